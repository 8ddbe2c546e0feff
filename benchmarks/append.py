"""Appends 1 % of the edges to a graph with times, beside making the graph of all edges.

    python -m benchmarks.append [--scale 21 --edges 62000000 --threads 2]

Sources and targets are RMAT's, times are random. Prints seconds, medians of `--rounds`, and the
ratio of appending to building. The edges are given to both in arrays that stand ready.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=21, help="2**scale nodes")
    parser.add_argument("--edges", type=int, default=62_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weighted", action="store_true", help="edges have random weights")
    given = parser.parse_args()
    os.environ["JGS_NUM_THREADS"] = str(given.threads)
    from benchmarks.graph import edge_weights, rmat_edges

    src, dst = rmat_edges(given.scale, given.edges, [0, 0])
    times = np.sort(np.random.default_rng(1).integers(0, 10**9, given.edges))
    order = np.random.default_rng(2).permutation(given.edges)  # files are seldom sorted
    late, size = given.edges - given.edges // 100, 1 << given.scale
    weight = edge_weights(given.edges) if given.weighted else None
    first = order[order < late]
    graph = _built(src, dst, times, weight, first, size)()
    build = _built(src, dst, times, weight, order, size)
    new_weight = None if weight is None else weight[late:]
    built, added = [], []
    for _ in range(given.rounds):
        begun = time.perf_counter()
        build()
        built.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        graph.with_edges(src[late:], dst[late:], times[late:], edge_weight=new_weight)
        added.append(time.perf_counter() - begun)
    whole, part = np.median(built), np.median(added)
    print(f"build {whole:.2f} s, append 1 % {part:.3f} s: {part / whole:.1%}")


def _built(src, dst, times, weight, order, size):
    """A function that makes the graph of the edges in this order."""
    from jgs import Graph

    src, dst, times = src[order], dst[order], times[order]
    weight = None if weight is None else weight[order]
    return lambda: Graph.from_edges(src, dst, size, weight, edge_time=times)


if __name__ == "__main__":
    main()
