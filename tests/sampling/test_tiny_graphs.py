"""Every sampler, and every task, on graphs of almost nothing."""

import jax
import numpy as np
import pytest
from cases import rarely
from every_sampler import EVERY, OWN, alike, second
from refusals import refused

from jgs import Graph, Schema
from jgs.data import Dataset
from jgs.graph.foreign import drawn_edges
from jgs.sampling import GCNBS, Feedback, Ladies, PinSage, Saint, Thanos
from jgs.sampling.capacity import GraphShape
from jgs.train import Config, run

N = 4
EDGES = {  # sources and targets
    "no edges": ([], []),
    "one node": ([], []),
    "one edge": ([0], [1]),
    "self-loops": (range(N), range(N)),
    "parallel edges": ([0] * N, [1] * N),
}
SAMPLERS = [*(sampler for sampler, _ in EVERY), Ladies((3,), weighted=True)]
SAMPLERS += [Saint("node", 4), Saint("edge", 4), PinSage((2,), 3, 2, relations=("in", "in"))]


def tiny(name):
    src, dst = (np.array(ends, np.int32) for ends in EDGES[name])
    n = 1 if name == "one node" else N
    made = Graph.from_edges(src, dst, n, np.ones(src.size, np.float32))
    relations = [("a", "in", "a"), ("b", "up", "b")]
    schema = Schema((("a", n // 2), ("b", n - n // 2)), relations)
    kinds = {"edge_type": (np.sort(dst) >= n // 2).astype(np.int16), "schema": schema}
    graph = Graph(made.indptr, made.indices, made.edge_weight, **kinds)
    return graph.with_node_columns(features=np.ones((n, 3), np.float32))


GRAPHS = {name: tiny(name) for name in EDGES}


def draw(sampler, graph):
    seeds = np.arange(min(graph.num_nodes, 2), dtype=np.int32)
    if sampler.pairs:
        seeds = np.stack([seeds, seeds[::-1]], axis=1)
    # Graphs of one shape share a program.
    shape = GraphShape.of(graph)._replace(max_degree=graph.num_edges)
    capacity = sampler.bound(shape, len(seeds))
    sample = jax.jit(sampler.sample, static_argnums=4)
    return sample(jax.random.key(0), graph, sampler.init(graph), seeds, capacity)


def drawn_or_refused(sampler, name):
    """The batch; None where the sampler says, in one line, that it needs edges."""
    if isinstance(sampler, Saint) and sampler.mode in ("node", "edge") and not EDGES[name][0]:
        refused("needs a graph with edges; got 0 edges", sampler.init, GRAPHS[name])
        return None
    return draw(sampler, GRAPHS[name])


@pytest.mark.parametrize("sampler", rarely(SAMPLERS, *second(EVERY), *alike(EVERY)), ids=repr)
def test_a_sampler_draws_edges_of_the_graph(sampler):
    few = "no edges", "self-loops", "parallel edges"  # the last two share a program
    for name in GRAPHS if sampler in dict(OWN) else few:
        if (batch := drawn_or_refused(sampler, name)) is None:
            continue
        assert not batch.overflow, name
        drawn = drawn_edges(batch)
        edges = set(zip(*map(list, EDGES[name]), strict=True))
        assert set(zip(drawn.src.tolist(), drawn.dst.tolist(), strict=True)) <= edges, name
        weights = [b.edge_weight for b in batch.blocks if b.edge_weight is not None]
        assert all(np.isfinite(weight).all() for weight in weights), name


@pytest.mark.parametrize("sampler", rarely([GCNBS((3,)), Thanos((3,))], 0), ids=repr)
def test_a_bandit_learns_nothing_without_edges(sampler, same_bits):
    graph = GRAPHS["no edges"]
    (block,) = (batch := draw(sampler, graph)).blocks
    sizes = (block.source_capacity, block.target_capacity)
    feedback = Feedback(*((np.ones((size, 2), np.float32),) for size in sizes))
    state = sampler.init(graph)
    update = jax.jit(sampler.update)
    same_bits(update(state, batch, feedback), state)


TASKS = {
    "nodes": {"fanouts": (2,), "hidden": 2},
    "embed": {"sampler": "walk", "walk_length": 2, "dim": 2},
    "links": {"sampler": "seal", "fanouts": (2,), "hidden": 2},
}
FEW = "a graph to learn links from must have at least 3"
CASES = [("nodes", "no edges", ""), ("nodes", "one node", "the val split must not be empty")]
CASES += [("embed", "no edges", ""), ("embed", "one node", "")]
CASES += [("links", "parallel edges", FEW)]


@pytest.mark.parametrize(("task", "name", "says"), CASES)
def test_a_task_trains_or_says_what_it_needs(task, name, says, tmp_path):
    graph, folder = GRAPHS[name], str(tmp_path / "data")
    n = graph.num_nodes
    splits = {"train": [0], **({"val": [2], "test": [3]} if n > 1 else {})}
    data = Dataset.from_arrays(graph, np.ones((n, 3), np.float32), np.arange(n) % 2, splits)
    data.save(folder)
    options = {"batch_size": 1, "epochs": 1, "progress": False, **TASKS[task]}
    config = Config(dataset=folder, task=task, run_dir=str(tmp_path / "run"), **options)
    if says:
        refused(says, run, config)
    else:
        assert run(config).config.epochs == 1
