"""The process in which KaMinPar runs. It reads a graph's file and writes an array of parts.

`jgs.partition.min_cut` starts this file. The arguments are the graph's ParHiP file, the number
of parts, the seed, the number of threads, and the `.npy` file to write. It imports nothing of
jgs.
"""

import ctypes
import os
import signal
import sys


def main() -> None:
    """Runs KaMinPar. The process ends when the process that started it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    import kaminpar
    import numpy as np

    file, num_parts, seed, threads, found = sys.argv[1:]
    kaminpar.reseed(int(seed))
    graph = kaminpar.load_graph(file, kaminpar.GraphFileFormat.PARHIP, compress=True)
    os.unlink(file)  # the graph is read: the file's pages are no longer needed
    solver = kaminpar.KaMinPar(int(threads), kaminpar.context_by_name("terapart"))
    parts = solver.compute_partition(graph, int(num_parts), 0.03)
    np.save(found, np.fromiter(parts, np.int32, len(parts)))


if __name__ == "__main__":
    main()
