"""`jgs.Graph.from_edges`: its seconds, and the memory that it needs beside its input.

    python -m benchmarks.from_edges [--edges 60000000] [--nodes 2500000] [--rounds 3]

The input is skewed random edges in 64-bit arrays, as PyG has them. Memory is the most that the
process grew by, from Linux's `/proc/self`. It is shown beside the bytes of the graph that was
made.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

import jgs


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.from_edges")
    parser.add_argument("--edges", type=int, default=60_000_000)
    parser.add_argument("--nodes", type=int, default=2_500_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    src, dst = np.empty((2, given.edges), np.int64)
    random = np.random.default_rng(0)
    for first in range(0, given.edges, 1 << 22):  # in pieces, because temporaries would count
        part = src[first : first + (1 << 22)]
        part[:] = random.integers(0, given.nodes, part.size)
        dst[first : first + (1 << 22)] = given.nodes * random.random(part.size) ** 2
    jgs.Graph.from_edges([0], [0], 1)  # so that what JAX itself needs is not counted
    print("| seconds | of processors | grown at most, MB | graph, MB |\n|---|---|---|---|")
    for _ in range(given.rounds):
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")
        before, wall, used = _memory("VmRSS"), time.perf_counter(), time.process_time()
        graph = jgs.Graph.from_edges(src, dst, given.nodes)
        wall, used = time.perf_counter() - wall, time.process_time() - used
        grown = (_memory("VmHWM") - before) / 1e6
        size = sum(array.nbytes for array in jax.tree.leaves(graph)) / 1e6
        print(f"| {wall:.2f} | {used:.2f} | {grown:.0f} | {size:.0f} |", flush=True)
        del graph


def _memory(name: str) -> int:
    """The bytes of a line of `/proc/self/status`, by its name."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


if __name__ == "__main__":
    main()
