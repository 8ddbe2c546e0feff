"""What other numbers of the nodes are worth: draws and rows of features before and after.

    python -m benchmarks.reordered [--quick] [--rounds 9]

Two graphs, with 100 features a node: RMAT, whose hubs are anywhere among the ids; and
communities of 500 nodes, in which nine of ten edges stay, whose ids are shuffled. Batches of
1,024 seeds with fanouts 5, 10, 15 of each graph as it is and by `Graph.reordered`, of the same
seeds, take turns: the draw, and its rows of features. Prints Markdown: how long the order
took, and medians in milliseconds with their ratio.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import jax
import numpy as np

import jgs
from benchmarks import graph as rmat
from benchmarks.__main__ import command_line, say
from jgs.ops import gather
from jgs.sampling import Neighbors, plan_capacity

FANOUTS, BATCH, FEATURES, COMMUNITY = (5, 10, 15), 1024, 100, 500


def main() -> int:
    parser = command_line("reordered", __doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    size = rmat.QUICK if given.quick else rmat.Size(20, 16_000_000)
    offsets, sources = rmat.rmat(size)
    graphs = {"RMAT": jgs.Graph(offsets, sources), "communities": communities(1 << size.scale)}
    print("| graph | order | seconds | draw, ms | after | ratio | rows, ms | after | ratio |")
    print("|---" * 9 + "|")
    for name, graph in graphs.items():
        for order in ("degree", "rcm"):
            began = time.perf_counter()
            other, old = graph.reordered(order)
            took = time.perf_counter() - began
            say(f"{name}, {order}: {took:.1f} s")
            found = compared(graph, other, old, given.rounds)
            cells = [f"{value:.2f}" for value in found]
            print(f"| {name} | {order} | {took:.1f} | {' | '.join(cells)} |", flush=True)
    return 0


def communities(num_nodes: int) -> jgs.Graph:
    rng = np.random.default_rng(0)
    target = rng.integers(0, num_nodes, 16 * num_nodes)
    near = target // COMMUNITY * COMMUNITY + rng.integers(0, COMMUNITY, target.size)
    far = rng.integers(0, num_nodes, target.size)
    source = np.where(rng.random(target.size) < 0.9, near, far).clip(max=num_nodes - 1)
    names = rng.permutation(num_nodes)
    return jgs.Graph.from_edges(names[source], names[target], num_nodes)


def compared(graph: jgs.Graph, other: jgs.Graph, old: np.ndarray, rounds: int) -> list[float]:
    """Milliseconds of a draw before and after and their ratio, and of its rows."""
    rng = np.random.default_rng(1)
    features = rng.standard_normal((graph.num_nodes, FEATURES), np.float32)
    some = rng.choice(np.flatnonzero(np.asarray(graph.degrees())), (4, BATCH))
    sides = (graph, features, some), (other, features[old], np.argsort(old)[some])
    work = [prepared(*side) for side in sides]
    times: list[list[list[float]]] = [[[], []], [[], []]]
    for _ in range(rounds):
        for step in range(len(some)):
            for side, run in enumerate(work):
                for part, took in enumerate(run(step)):
                    times[part][side].append(took)
    cells = []
    for part in times:
        before, after = map(median, part)
        cells += [before, after, after / before]
    return cells


def prepared(graph: jgs.Graph, features: np.ndarray, seeds: np.ndarray) -> Any:
    """A function of a step that gives the milliseconds of its draw, and of its rows."""
    sampler, seeds, key = Neighbors(FANOUTS), seeds.astype(np.int32), jax.random.key(0)
    capacity = plan_capacity(graph, BATCH, sampler, seeds=seeds.ravel())
    table, state = jgs.graph.as_device(features), sampler.init(graph)
    draw = jax.jit(sampler.sample, static_argnums=4)
    read = jax.jit(gather)

    def run(step: int) -> tuple[float, float]:
        begun = time.perf_counter()
        batch = jax.block_until_ready(draw(key, graph, state, seeds[step], capacity))
        drawn = time.perf_counter()
        jax.block_until_ready(read(table, batch.nodes))
        return 1e3 * (drawn - begun), 1e3 * (time.perf_counter() - drawn)

    for step in range(len(seeds)):
        run(step)
    return run


if __name__ == "__main__":
    sys.exit(main())
