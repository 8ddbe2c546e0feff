"""The process in which KaMinPar runs: reads a graph's file and writes an array of parts.

Started as a file by `jgs.partition.kaminpar`, with the graph's ParHiP file, the number of
parts, the seed, the number of threads, and the `.npy` file to write. It imports nothing of jgs.
"""

import ctypes
import os
import signal
import sys


def main() -> None:
    """Ends when the process that started it does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    import kaminpar
    import numpy as np

    file, num_parts, seed, threads, found = sys.argv[1:]
    kaminpar.reseed(int(seed))
    graph = kaminpar.load_graph(file, kaminpar.GraphFileFormat.PARHIP, compress=True)
    os.unlink(file)  # its pages are no longer of use
    solver = kaminpar.KaMinPar(int(threads), kaminpar.context_by_name("terapart"))
    parts = solver.compute_partition(graph, int(num_parts), 0.03)
    np.save(found, np.fromiter(parts, np.int32, len(parts)))


if __name__ == "__main__":
    main()
