"""A reordered graph is the same graph under other numbers."""

import jax
import numpy as np
import pytest
from refusals import refused

from jgs import Graph
from jgs.sampling import Neighbors, Seeds

N, E = 300, 4000
USERS, ITEMS = 200, 100


def some(timed, typed):
    rng = np.random.default_rng(3)
    time = rng.integers(0, 20, E) if timed else None
    if not typed:
        src, dst = (N * rng.random((2, E)) ** 3).astype(int)
        graph = Graph.from_edges(src, dst, N, rng.random(E), edge_time=time)
    else:
        ends = {("u", "buys", "i"): (rng.integers(0, USERS, E), rng.integers(0, ITEMS, E))}
        times = None if time is None else {("u", "buys", "i"): time}
        born = {"u": rng.integers(0, 9, USERS)} if timed else None
        graph = Graph.from_relations(
            {"u": USERS, "i": ITEMS}, ends, edge_time=times, node_time=born, both_ways=True
        )
    return graph


def edges_of(graph, names=None):
    """The edges, by the names of their ends, in an order that no number decides."""
    ends = graph.edge_index().astype(np.int64)
    ends = ends if names is None else names[ends]
    fields = graph.edge_order, graph.edge_weight, graph.edge_time, graph.edge_type
    columns = [*ends, *(np.asarray(a).astype(float) for a in fields if a is not None)]
    return np.array(sorted(zip(*map(np.ndarray.tolist, columns), strict=True)))


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("order", ["degree", "rcm", "own"])
def test_it_is_the_same_graph(order, timed, typed):
    graph = some(timed, typed)
    own = np.r_[np.arange(USERS)[::-1], np.arange(USERS, N)[::-1]]
    found, old = graph.reordered(own if order == "own" else order)
    assert old.dtype == np.int32
    assert sorted(old) == [*range(N)]
    np.testing.assert_array_equal(edges_of(found, old), edges_of(graph))
    np.testing.assert_array_equal(found.degrees(), np.asarray(graph.degrees())[old])
    if graph.node_time is not None:
        np.testing.assert_array_equal(found.node_time, np.asarray(graph.node_time)[old])
    if typed:
        assert (old[:USERS] < USERS).all()
    elif order == "degree":
        reads = np.bincount(np.asarray(found.indices), minlength=N)
        assert (np.diff(reads) <= 0).all()
    assert found.sorted_by_source == (not timed and not typed)
    weight = found.edge_weight
    Graph(found.indptr, found.indices, weight, edge_time=found.edge_time)  # checks the rows


def test_all_neighbours_under_a_cutoff_are_the_same():
    graph = some(True, False)
    found, old = graph.reordered("rcm")
    seeds, sampler = np.arange(0, N, 7), Neighbors((-1, -1), edge_ids=True)

    def drawn(graph, nodes, names):
        seeds = Seeds(nodes.astype(np.int32), np.full(nodes.size, 9))
        batch = sampler.sample(jax.random.key(0), graph, sampler.init(graph), seeds)
        last = batch.blocks[0]
        real = np.asarray(last.edge_id)[: int(last.num_edges)]
        return sorted(np.asarray(graph.edge_order)[real].tolist())

    one = drawn(graph, seeds, np.arange(N))
    assert one == drawn(found, np.argsort(old)[seeds], old)
    assert len(one) > N


def test_near_numbers_for_neighbours():
    """A ring whose nodes are shuffled: every edge spans few numbers again."""
    names = np.random.default_rng(0).permutation(1000)
    graph = Graph.from_edges(names, np.roll(names, 1), 1000)
    found, _ = graph.reordered("rcm")
    source, target = found.edge_index()
    assert np.abs(source - target).max() <= 2


def test_what_is_no_order_is_refused():
    graph = some(False, True)
    mixed = np.r_[np.arange(1, N), 0]
    twice = np.zeros(N, int)
    for order in ("size", twice, np.arange(N - 1), np.arange(N) + 0.5):
        refused("order", graph.reordered, order)
    refused("stay together*mixes types", graph.reordered, mixed)
