"""Which format a built slice should have: by columns, by edges or by rows.

    python -m benchmarks.formats [--rounds 5]

There is one slice of the small RMAT graph: the in-edges of the nodes that 512 seeds and one hop
of fanout 10 reach. The figures are medians in milliseconds of what programs do with a built
slice: an edge map by a vector of the columns, and sums along rows. `Edges` has the offsets and
each edge's column and row. So it is compressed by columns and a list of edges at once. The
table says what it would cost to store less, or to sort by row as well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs
from benchmarks import graph, inputs
from benchmarks.__main__ import CACHE
from jgs.sampling.matrix import Matrix, Room
from jgs.sampling.matrix.sums import exact_sum


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats")
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    rounds = parser.parse_args().rounds
    size, key = graph.QUICK, jax.random.key(0)
    data = jgs.Graph.open(graph.cached(CACHE, size), verify=False).unweighted()
    seeds = np.load(inputs.seeds(CACHE, size))[:512].astype(np.int32)
    known = np.asarray(jgs.sampling.sample_neighbors(key, data, seeds, (10,)).nodes)
    frontier = np.unique(known[known < data.num_nodes])
    room = int(np.asarray(data.degrees())[frontier].sum())

    def lazy(data: jgs.Graph) -> Matrix:
        return Matrix(data, room=Room(room))[:, frontier]

    sub = jax.jit(lambda data: lazy(data).built())(data)
    edges = sub.edges
    assert edges is not None
    vector, values = jnp.arange(1.0, frontier.size + 1), jnp.arange(1.0, room + 1)

    def by_row(row: jax.Array) -> jax.Array:
        return jnp.argsort(row, stable=True)

    order = jax.jit(by_row)(edges.row)
    row, moved = edges.row[order], values[order]
    print(f"{frontier.size} columns, {room} edges\n\n| what | format | ms |\n|---|---|---|")
    for what, form, function, arguments in (
        ("edge map", "columns stored", lambda s, v: s.div(v, 0).values, (sub, vector)),
        (
            "edge map",
            "columns from the offsets",
            lambda p, v: 1 / jnp.repeat(v, jnp.diff(p), total_repeat_length=room),
            (edges.indptr, vector),
        ),
        (
            "sum by row",
            "slice not built",
            lambda d, v: (lazy(d).mul(v, 0)).sum(1),
            (data, vector),
        ),
        ("sum by row", "by columns", lambda s, v: s.with_values(v).sum(1), (sub, values)),
        (
            "sum by row",
            "sorted by row",
            lambda r, v: exact_sum(v, r, data.num_nodes),
            (row, moved),
        ),
        ("values to their place", "sorted by row", lambda v, o: v[o], (values, order)),
        ("the order itself", "sorted by row", by_row, (edges.row,)),
    ):
        print(f"| {what} | {form} | {_median(function, arguments, rounds):.1f} |", flush=True)
    return 0


def _median(function: Callable[..., Any], arguments: tuple, rounds: int) -> float:
    run, times = jax.jit(function), []
    jax.block_until_ready(run(*arguments))
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
