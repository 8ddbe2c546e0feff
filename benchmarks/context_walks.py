"""What a step of a walk costs under cutoffs in a graph of several relations, and what contexts
by visits cost.

    python -m benchmarks.context_walks [--quick]

The graph is a shop: 80,000 users, 20,000 items and 1.7 million events, each with a key to a
user and to an item. Edges go both ways, and have the time of their event. Walks have 20 steps,
before which they jump back with probability 0.2. Times are of jitted calls, which take turns;
those of walks are for the steps that were made, those of contexts for all 20 of each walk. On
a machine with other work the time of the processors says more than that of the clock.
JGS_NUM_THREADS limits the kernels' threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np

import jgs
from benchmarks.__main__ import command_line
from jgs.sampling import Seeds, Walk
from jgs.sampling.checks import checked_seeds
from jgs.sampling.contexts import ByVisits
from jgs.settings import exact_integers

USERS, ITEMS, EVENTS, LAST = 80_000, 20_000, 1_700_000, 10**9
LENGTH, RESTART, TOKENS = 20, 0.2, 1024
CONTEXTS = {10_000: 16, 1_000: 160}  # walks of a seed, and seeds of a batch


def shop(num_events: int) -> jgs.Graph:
    rng = np.random.default_rng(0)
    user, item = ((n * rng.random(num_events) ** 2).astype(int) for n in (USERS, ITEMS))
    event, moment = np.arange(num_events), np.sort(rng.integers(0, LAST, num_events))
    ends = {("event", "by", "user"): (event, user), ("event", "of", "item"): (event, item)}
    sizes = {"user": USERS, "item": ITEMS, "event": num_events}
    times = dict.fromkeys(ends, moment)
    return jgs.Graph.from_relations(sizes, ends, edge_time=times, both_ways=True)


def untyped(graph: jgs.Graph) -> jgs.Graph:
    source, target = map(np.asarray, graph.edge_index())
    times = np.asarray(graph.edge_time)
    return jgs.Graph.from_edges(source, target, graph.num_nodes, edge_time=times)


def walks(graph: jgs.Graph, seeds: Seeds) -> Callable[[], Any]:
    walk, key = Walk(LENGTH, restart=RESTART), jax.random.key(0)
    state, draw = walk.init(graph), jax.jit(walk.sample)
    return lambda: draw(key, graph, state, seeds)


def contexts(graph: jgs.Graph, seeds: Seeds, num_walks: int) -> Callable[[], Any]:
    way, key_data = ByVisits(num_walks, LENGTH, RESTART), jax.random.key_data(jax.random.key(0))
    state, of = way.init(graph), checked_seeds(way, graph, seeds)
    find = jax.jit(way.find, static_argnums=4)

    def run() -> Any:
        with exact_integers():
            return find(key_data, graph, state, of, TOKENS)

    return run


def main() -> int:
    parser = command_line("context_walks", __doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller graph, fewer rounds")
    quick = parser.parse_args().quick
    graph = shop(EVENTS // (20 if quick else 1))
    rng, plain = np.random.default_rng(1), untyped(graph)
    roots = rng.integers(0, graph.num_nodes, 20_000).astype(np.int32)
    cutoff = rng.integers(LAST // 2, LAST, roots.size)
    timed = Seeds(roots, cutoff)
    calls = {
        "walks, without types and cutoffs": walks(plain, Seeds(roots)),
        "walks under cutoffs, without types": walks(plain, timed),
        "walks, typed": walks(graph, Seeds(roots)),
        "walks under cutoffs, typed": walks(graph, timed),
    }
    steps = {name: int(np.asarray(call().lengths).sum()) for name, call in calls.items()}
    for number, batch in CONTEXTS.items():
        name = f"contexts of {number:,} walks"
        calls[name] = contexts(graph, Seeds(roots[:batch], cutoff[:batch]), number)
        steps[name] = batch * number * LENGTH
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for turn in range(4 if quick else 16):
        for name, call in calls.items():
            began = time.perf_counter(), time.process_time()
            jax.block_until_ready(call())
            took = time.perf_counter() - began[0], time.process_time() - began[1]
            seconds[name] += [took] if turn else []  # the first call compiles
    print("| what | ns a step, median | best | of processors, best |\n|---|---|---|---|")
    for name, of in seconds.items():
        wall, busy = zip(*of, strict=True)
        shown = (1e9 * value / steps[name] for value in (median(wall), min(wall), min(busy)))
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in shown)} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
