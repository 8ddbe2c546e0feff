"""What changes of a live graph cost, and draws from it.

    python -m benchmarks.live [--quick]

Edges go from and to random nodes, 50 to a node, in the order of their times. For each number of
edges: the time of an append of 1,000 edges and of making them visible (`live.graph`), of a
deletion of 1,000, by turns, and of `Graph.with_edges` for as many; and the memory that appended
edges take, by the growth of the process. For one graph: draws from it with a share of its
edges appended, beside draws from the same edges merged, by turns; and by the kernels as they
are, draws from a static graph.
"""

from __future__ import annotations

import gc
import time
from statistics import median
from typing import Any

import jax
import numpy as np

import jgs
from benchmarks.__main__ import command_line
from jgs.graph.live import Live

DEGREE, CHANGE, BATCH = 50, 1000, 1024


def graph_of(num_edges: int, rng: np.random.Generator) -> jgs.Graph:
    nodes = num_edges // DEGREE
    src, dst = (rng.integers(0, nodes, num_edges, dtype=np.int32) for _ in range(2))
    times = np.arange(num_edges)
    return jgs.Graph.from_edges(src, dst, nodes, edge_time=times)


def resident() -> int:
    """Bytes of memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def events(graph: Any, num: int, first: int, rng: np.random.Generator) -> tuple:
    src, dst = rng.integers(0, graph.num_nodes, (2, num))
    return src, dst, np.arange(first, first + num)


def changes(sizes: tuple[int, ...], rounds: int) -> None:
    """Graphs of all sizes take turns."""
    rng, lives, found = np.random.default_rng(0), {}, {}
    for num_edges in sizes:
        graph = graph_of(num_edges, rng)
        moments = num_edges + np.arange(CHANGE)
        src, dst, _ = events(graph, CHANGE, num_edges, rng)
        begin = time.perf_counter()
        graph.with_edges(src, dst, moments)
        copied = time.perf_counter() - begin
        lives[num_edges] = live = Live(graph)
        live.delete_edges([0])  # makes the index of edges by number
        found[num_edges] = {"append": [], "visible": [], "delete": [], "with_edges": [copied]}
        del graph
    for turn in range(rounds):
        for num_edges, live in lives.items():
            first = num_edges + turn * CHANGE
            src, dst, moments = events(live, CHANGE, first, rng)
            times = [time.perf_counter()]
            numbers = live.append(src, dst, time=moments)
            times.append(time.perf_counter())
            live.graph.indices.block_until_ready()
            times.append(time.perf_counter())
            live.delete_edges(numbers)
            times.append(time.perf_counter())
            for name, each in zip(found[num_edges], np.diff(times), strict=False):
                found[num_edges][name].append(float(each))
    for num_edges, times in found.items():
        shown = (f"{name} {1e3 * median(each):.2f} ms" for name, each in times.items())
        print(f"{num_edges:,} edges: {', '.join(shown)}")
    num_edges, live = [*lives.items()][-1]
    before, first = resident(), num_edges + rounds * CHANGE
    for part in range(10):
        src, dst, moments = events(live, num_edges // 100, first + part * num_edges, rng)
        live.append(src, dst, time=moments)
    gc.collect()
    grown = (resident() - before) / (num_edges // 10)
    print(f"memory of 10 % more edges than {num_edges:,}: {grown:.0f} bytes each")


def draws(num_edges: int, rounds: int) -> None:
    rng = np.random.default_rng(0)
    graph = graph_of(num_edges, rng)
    samplers = {
        "untimed": (jgs.Neighbors((10, 10)), False),
        "timed": (jgs.Neighbors((10, 10)), True),
        "labor": (jgs.sampling.Labor((10, 10)), False),
    }
    for share in (0, 1, 10):
        live = Live(graph)
        src, dst, moments = events(graph, share * num_edges // 100, num_edges, rng)
        for i in range(0, src.size, CHANGE * 10):
            some = slice(i, i + CHANGE * 10)
            live.append(src[some], dst[some], time=moments[some])
        merged = live.packed()
        for name, (sampler, timed) in samplers.items():
            found: dict[str, list[float]] = {"live": [], "merged": []}
            seeds = rng.integers(0, graph.num_nodes, BATCH).astype(np.int32)
            given = (
                jgs.sampling.Seeds(seeds, np.full(BATCH, moments.max(initial=num_edges) + 1))
                if timed
                else jgs.sampling.Seeds(seeds)
            )
            calls: dict[str, Any] = {}
            for which, each in (("live", live.graph), ("merged", merged)):
                state = sampler.init(each) if name != "labor" else ()
                plan = jgs.sampling.worst_case(each, BATCH, sampler)
                call = jax.jit(sampler.sample, static_argnums=4)
                calls[which] = (call, each, state, plan)
                jax.block_until_ready(call(jax.random.key(0), each, state, given, plan))
            for turn in range(rounds):
                key = jax.random.key(turn)
                for which, (call, each, state, plan) in calls.items():
                    begin = time.perf_counter()
                    jax.block_until_ready(call(key, each, state, given, plan))
                    found[which].append(time.perf_counter() - begin)
            ratio = median(a / b for a, b in zip(found["live"], found["merged"], strict=True))
            ms = 1e3 * median(found["live"])
            print(f"{share} % appended, {name}: {ms:.2f} ms, {ratio:.3f} times merged")


def main() -> None:
    parser = command_line("live", __doc__)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    large = (10**6, 10**7, 62 * 10**6, 10**8)
    changes((10**6, 10**7) if arguments.quick else large, 100)
    draws(10**6 if arguments.quick else 2 * 10**7, 200)


if __name__ == "__main__":
    main()
