"""Draws from a live graph have the bits of draws from the graph that is made anew."""

import jax
import numpy as np
import pytest
from cases import rarely
from every_sampler import EVERY, KEY, SEEDS, E, N, alike, second, seeds_for, typed
from refusals import refused
from test_walk_protocol import CASES as WALKS

from jgs import Graph, Neighbors, kernels
from jgs.graph.live import Live
from jgs.sampling import (
    Context,
    FastGCN,
    Labor,
    Node2Vec,
    Saint,
    Subgraph,
    Walk,
    worst_case,
)
from jgs.sampling.contexts import ByHops, ByPageRank, ByVisits
from jgs.sampling.seeds import Seeds

WALKERS = [case for cases in WALKS.values() for case in cases]
SAINT = [(Saint(mode, 20, edge_ids=True), None) for mode in ("node", "degree")]
PAIRS = [*EVERY, *WALKERS, *SAINT]


def grown(graph, **given):
    """A live graph of the same nodes after many changes, and it packed."""
    live, rng = Live(graph), np.random.default_rng(0)
    schema, timed = graph.schema, graph.edge_time is not None
    for _ in range(12):
        num = int(rng.integers(1, 150))
        ends, own = [range(graph.num_nodes)] * 2, dict(given)
        if schema is not None:
            own["relation"] = one = schema.relations[rng.integers(len(schema.relations))]
            ends = [schema.nodes(one[0]), schema.nodes(one[2])]
        src, dst = (rng.integers(0, len(each), num) for each in ends)
        own |= {"time": rng.integers(0, 50, num)} if timed else {}
        own |= {"edge_weight": rng.random(num).astype(np.float32)}
        live.append(src, dst, **own)
        live.delete_edges(rng.integers(0, live.next_edge, 40))
    return live.graph, live.packed()


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, N, (2, E))
    made = typed(Graph.from_edges(src, dst, N, rng.random(E).astype(np.float32)))
    features = made.node_columns
    return [graph.with_node_columns(**features) for graph in grown(made)]


def events(typed):
    rng = np.random.default_rng(6)
    time, weight = rng.integers(0, 50, (2, 2000))
    if not typed:
        src, dst = rng.integers(0, 80, (2, 2000))
        return grown(Graph.from_edges(src, dst, 80, weight.astype(float), edge_time=time))
    relations = {
        ("a", "to", "b"): (50, 30),
        ("b", "to", "a"): (30, 50),
        ("a", "in", "a"): (50, 50),
    }
    edges = {
        r: [rng.integers(0, size, 600) for size in sizes] for r, sizes in relations.items()
    }
    return grown(
        Graph.from_relations(
            {"a": 50, "b": 30},
            edges,
            {r: weight[:600].astype(float) for r in relations},
            edge_time={r: time[:600] for r in relations},
        )
    )


def drawn(sampler, graph, seeds, plain):
    """The leaves of what is drawn, with edges by their numbers, and without padding's."""
    with kernels.plain(plain):
        room = (
            () if not hasattr(sampler, "bound") else (worst_case(graph, SEEDS.size, sampler),)
        )
        program = jax.jit(sampler.sample, static_argnums=range(4, 4 + len(room)))
        batch = jax.device_get(program(KEY, graph, sampler.init(graph), seeds, *room))
    numbers = np.append(np.asarray(graph.edge_order), -1)
    if not room:
        return jax.tree.leaves(batch)
    found = [batch.nodes, batch.num_nodes, batch.overflow]
    for block in batch.blocks:
        num = int(block.num_edges)
        found += [block.indptr, block.indices[:num], num]
        if block.edge_id is not None:
            found.append(numbers[block.edge_id[:num]])
        found += [a[:num] for a in (block.edge_weight, block.edge_type) if a is not None]
    return found


def assert_alike(sampler, live, packed, seeds, packed_seeds=None, plain=(False, True)):
    for each in plain if kernels.available() else (True,):
        one = drawn(sampler, live, seeds, each)
        other = drawn(sampler, packed, seeds if packed_seeds is None else packed_seeds, each)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def some_holes(live, packed):
    """The places of the same 300 edges in both."""
    rng, order = np.random.default_rng(2), np.asarray(packed.edge_order)
    chosen = rng.permutation(order)[:300]
    bounds = np.asarray(live.indptr)
    slots = np.concatenate([np.arange(*bounds[:, v]) for v in range(live.num_nodes)])
    own = slots[np.isin(np.asarray(live.edge_order)[slots], chosen)]
    return np.sort(own), np.flatnonzero(np.isin(order, chosen))


@pytest.mark.parametrize(
    ("sampler", "_"), rarely(PAIRS, *second(EVERY), *alike(EVERY)), ids=repr
)
def test_every_sampler(sampler, _, graphs):
    live, packed = graphs
    if type(sampler).__name__ == "Metapath":
        sampler = type(sampler)((["b", "to", "a"], ["a", "to", "b"]), 5, True)
    seeds = seeds_for(sampler, SEEDS) if hasattr(sampler, "pairs") else SEEDS
    if isinstance(sampler, Node2Vec):  # the rows are in the order in which edges came
        refused("live.packed", sampler.init, live)
        return
    plain = (False, True) if type(sampler) in QUICK else (False,)
    assert_alike(sampler, live, packed, Seeds(seeds), plain=plain)


QUICK = Neighbors, Subgraph, FastGCN, Walk, Saint  # to compile in plain JAX
TIMED = [
    Neighbors((3, 2), edge_ids=True),
    Neighbors((3, 2), weighted=True, edge_ids=True, window=9),
    Neighbors((3, -1), latest=True, edge_ids=True),
    Neighbors((3, 2), half_life=7, edge_ids=True),
    Labor((3, 2), edge_ids=True),
    Context(9, ByHops((3, 2)), edge_ids=True),
    Context(9, ByPageRank(0.2, 1e-3), edge_ids=True),
    Context(9, ByVisits(8, 4, 0.2), edge_ids=True),
    Walk(5, weighted=True),
    Walk(5, half_life=7),
    Node2Vec(5, 0.05, 4.0, weighted=True),
]
BY_RELATION = [
    Neighbors(({"*": 3}, {"*": 2}), weighted=True, edge_ids=True),
    Neighbors(({"*": 3}, {"*": 2}), half_life=7, edge_ids=True),
    Labor(({"*": 3}, {"*": 2}), edge_ids=True),
    Context(9, ByHops(({"*": 3}, {"*": 2})), edge_ids=True),
    Context(9, ByPageRank(0.2, 1e-3), edge_ids=True),
    Context(9, ByVisits(8, 4, 0.2), edge_ids=True),
    Walk(5, weighted=True),
]
CASES = [(False, one) for one in TIMED] + [(True, one) for one in BY_RELATION]
EVENTS = {each: events(each) for each in (False, True)}


@pytest.mark.parametrize(("typed", "sampler"), CASES, ids=repr)
def test_under_cutoffs_and_around_holes(typed, sampler):
    live, packed = EVENTS[typed]
    nodes = np.arange(12, dtype=np.int32)
    times = np.random.default_rng(1).integers(5, 60, nodes.size)
    holes = some_holes(live, packed) if sampler.takes_excluded else (None, None)
    assert_alike(sampler, live, packed, *(Seeds(nodes, times, each) for each in holes))
