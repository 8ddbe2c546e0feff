"""`partition_nodes`: all constraints even in all parts, few edges cut, bad input refused."""

import ctypes
import sys

import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from benchmarks import graph as rmat
from jgs import Graph
from jgs.graph.adjacency import edge_cut, in_neighbors
from jgs.partition import metis
from jgs.partition import rebalance as rebalancing
from jgs.partition.kaminpar import is_symmetric, undirected_rows
from jgs.partition.nodes import METHODS, TOLERANCE, max_over_mean, partition_nodes
from jgs.partition.rebalance import rebalance
from jgs.partition.weights import CONSTRAINTS, constraint_weights, limits, part_loads


@pytest.fixture(scope="module")
def skewed():
    """An RMAT graph with hubs, parallel edges and isolated nodes, and its three splits."""
    indptr, indices = rmat.rmat(rmat.Size(13, 80_000))
    order = np.random.default_rng(0).permutation(indptr.size - 1)
    splits = np.split(order[:4000], [800, 1500])
    return Graph(indptr, indices), dict(
        zip(("train_idx", "val_idx", "test_idx"), splits, strict=True)
    )


@pytest.fixture(scope="module")
def clustered():
    """Eight communities; a tenth of the edges lead out. Each has one direction."""
    rng = np.random.default_rng(1)
    src = rng.integers(0, 1600, 12_000)
    inside = rng.random(src.size) < 0.9
    dst = np.where(inside, src // 200 * 200 + rng.integers(0, 200, src.size), 0)
    dst[~inside] = rng.integers(0, 1600, np.count_nonzero(~inside))
    shuffle = rng.permutation(1600)
    return Graph.from_edges(shuffle[src], shuffle[dst], 1600)


@cases("method, num_parts", ("metis", 2), *((method, 8) for method in METHODS))
def test_every_constraint_is_within_5_percent(skewed, method, num_parts, caplog):
    graph, splits = skewed
    parts = partition_nodes(graph, num_parts, method, **splits)
    assert parts.dtype == np.int32
    assert parts.shape == (graph.num_nodes,)
    loads = part_loads(parts, constraint_weights(graph, *splits.values()), num_parts)
    uneven = {c: max_over_mean(load) for c, load in zip(CONSTRAINTS, loads.T, strict=True)}
    assert max(uneven.values()) <= TOLERANCE, uneven
    # Nodes without edges even out what the other nodes left uneven.
    assert max_over_mean(np.bincount(parts, minlength=num_parts)) < 1.001
    assert max_over_mean(loads[:, CONSTRAINTS.index("train")]) < 1.02
    assert not caplog.records  # no warning
    if num_parts == 8:
        again = partition_nodes(graph, num_parts, method, **splits)
        np.testing.assert_array_equal(parts, again)
        other = partition_nodes(graph, num_parts, method, **splits, seed=1)
        assert (other != parts).any() or method == "ldg"


def test_metis_cuts_least_and_one_pass_less_than_chance(clustered):
    cuts = {
        method: edge_cut(in_neighbors(clustered), partition_nodes(clustered, 8, method))
        for method in METHODS
    }
    # The cut of the communities: 0.1 * 7 / 8.
    assert max(cuts["metis"], cuts["kaminpar"]) < 0.13, cuts
    assert cuts["metis"] < cuts["ldg"] < 0.9 * cuts["random"], cuts
    assert 0.8 < cuts["random"] < 0.92, cuts


def test_a_metis_of_32_bits_refuses_what_it_cannot_count(monkeypatch):
    import pymetis._internal as extension

    monkeypatch.setattr(extension, "_idx_type_width", lambda: 64)
    metis.check_metis(2**31)
    monkeypatch.setattr(extension, "_idx_type_width", lambda: 32)
    refused("32-bit*2,147,483,648*--method ldg", metis.check_metis, 2**31)


def test_metis_missing_is_told_before_anything_else(monkeypatch, clustered):
    monkeypatch.setitem(sys.modules, "pymetis._internal", None)
    refused("pip install 'jgs[partition]'", partition_nodes, clustered, 2)
    assert partition_nodes(clustered, 2, "ldg").max() == 1


class Library:
    """In METIS's place: it complains, and returns `status`."""

    def __init__(self, status):
        self.METIS_SetDefaultOptions = lambda *_: None
        self.status = status

    def METIS_PartGraphKway(self, *_):
        ctypes.CDLL(None).printf(b"***Cannot bisect a graph with 0 vertices!\n")
        return self.status


@pytest.mark.parametrize("status", [1, -3, -4])
def test_what_metis_says_and_refuses(monkeypatch, clustered, status, capfd):
    """What it prints does not spoil standard output."""
    monkeypatch.setattr(metis, "_library", lambda largest: (Library(status), np.int64))
    if status == 1:
        partition_nodes(clustered, 2)
    else:
        refused("--method ldg", partition_nodes, clustered, 2)
    print("{}", flush=True)
    ctypes.CDLL(None).fflush(None)
    said = capfd.readouterr()
    assert said.out == "{}\n"
    assert "***Cannot bisect" in said.err


NONE = Graph.from_edges([], [], 0)
FIVE = Graph.from_edges([0, 1], [1, 2], 5)


@cases(
    "graph, arguments, message",
    (FIVE, {"num_parts": 0}, "positive int; got 0"),
    (FIVE, {"num_parts": 2.0}, "positive int; got 2.0"),
    (FIVE, {"num_parts": 6}, "no more parts than nodes, 5; got 6"),
    (FIVE, {"num_parts": 2, "method": "scotch"}, "kaminpar, ldg, random; got 'scotch'"),
    (FIVE, {"num_parts": 2, "seed": -1}, "seed"),
    (FIVE, {"num_parts": 2, "train_idx": [5]}, "train_idx must be node ids"),
    (NONE, {"num_parts": 1}, "must have nodes"),
)
def test_bad_input(graph, arguments, message):
    refused(message, partition_nodes, graph, **arguments)


EDGES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30),
        st.integers(1, n),
        st.lists(st.integers(0, n - 1), unique=True),
    )
)


@settings(max_examples=40, deadline=None)
@given(EDGES, st.sampled_from(METHODS))
def test_small_graphs_of_any_shape(made, method):
    n, edges, num_parts, train = made
    graph = Graph.from_edges([e[0] for e in edges], [e[1] for e in edges], n)
    parts = partition_nodes(graph, num_parts, method, train_idx=train)
    assert parts.shape == (n,)
    assert set(parts.tolist()) <= set(range(num_parts))


def test_metis_of_what_would_trouble_it(capfd):
    """Isolated nodes, self-loops, a star, parallel edges, no edges, a split of no node."""
    nodes = np.arange(200)
    cases = {
        "star": (np.zeros(199, int), nodes[1:]),
        "loops": (nodes, nodes),
        "parallel": (np.repeat(nodes[:100], 5), np.repeat(nodes[:100][::-1], 5)),
        "ring, a hundred isolated": (nodes[:100], (nodes[:100] + 1) % 100),
        "no edges": ([], []),
    }
    for name, (src, dst) in cases.items():
        parts = partition_nodes(Graph.from_edges(src, dst, 200), 4)
        assert max_over_mean(np.bincount(parts, minlength=4)) <= TOLERANCE, name
    capfd.readouterr()
    nodes = np.arange(400)
    ring = Graph.from_edges(nodes, (nodes + 1) % 400, 400)
    parts = partition_nodes(ring, 16, train_idx=[1, 1, 1, 2, 2, 3])
    assert max_over_mean(np.bincount(parts, minlength=16)) <= TOLERANCE
    said = capfd.readouterr()
    assert "***" not in said.out + said.err  # METIS's complaints


@pytest.mark.parametrize("both_ways", [False, True])
def test_undirected_rows_have_each_edge_once_in_each_direction(
    tmp_path, monkeypatch, make_graph, both_ways
):
    monkeypatch.setattr("jgs.graph.rows._EDGES_AT_ONCE", 50)
    graph = make_graph(60, 300)  # it has self-loops, parallel edges and nodes without edges
    dst = np.repeat(np.arange(60), np.diff(np.asarray(graph.indptr)))
    src = np.asarray(graph.indices)
    if both_ways:
        graph = Graph.from_edges(np.r_[src, dst], np.r_[dst, src], 60)
    adjacency = in_neighbors(graph)
    assert is_symmetric(adjacency) == both_ways
    expected = {(a, b) for a, b in zip(np.r_[src, dst], np.r_[dst, src], strict=True) if a != b}
    found, at = [], 0
    for first, degree, neighbors in undirected_rows(adjacency, tmp_path):
        assert first == at
        at += degree.size
        found += zip(np.repeat(first + np.arange(degree.size), degree), neighbors, strict=True)
    assert at == 60
    assert found == sorted(expected)


@pytest.mark.parametrize("looked_at", [1 << 18, 64])
def test_rebalance_mends_everything_in_one_part(monkeypatch, skewed, looked_at, noted):
    """An even partition is left as it is. The edges are read a few times, not in each round."""
    monkeypatch.setattr(rebalancing, "_LOOKED_AT", looked_at)
    read = noted(rebalancing, "neighbors_per_part")
    graph, splits = skewed
    weights = constraint_weights(graph, *splits.values())
    limit = limits(weights[:].sum(axis=0), 4, 1.04)
    adjacency = in_neighbors(graph)
    parts = rebalance(adjacency, weights, np.zeros(graph.num_nodes, np.int32), 4, limit)
    assert (part_loads(parts, weights, 4) <= limit).all()
    num_read = sum(rows.size for _, rows, *_ in read)
    assert looked_at > graph.num_nodes or num_read < 6 * graph.num_nodes
    np.testing.assert_array_equal(parts, rebalance(adjacency, weights, parts, 4, limit))


def test_rebalance_swaps_hubs_for_leaves():
    """Part 0 has all the edges, part 1 most of the nodes: neither can give without taking."""
    degree = np.array([20] * 10 + [1] * 70)
    src = np.zeros(degree.sum(), int)
    graph = Graph.from_edges(src, np.repeat(np.arange(80), degree), 80)
    weights = np.stack([np.ones(80, np.int64), degree], axis=1)
    parts = (np.arange(80) >= 20).astype(np.int32)
    limit = limits(weights.sum(axis=0), 2, 1.05)
    parts = rebalance(in_neighbors(graph), weights, parts, 2, limit)
    assert (part_loads(parts, weights, 2) <= limit).all()


@cases("method, num_parts", ("metis", 2), *((method, 4) for method in METHODS))
def test_a_hub_spoils_the_balance_of_edges_alone(caplog, method, num_parts):
    """Half of all edges end in one node; too few nodes without in-edges can join it."""
    rng, n = np.random.default_rng(0), 20_000
    src = np.r_[np.arange(1, n), rng.integers(0, n, n)]
    graph = Graph.from_edges(src, np.r_[np.zeros(n - 1, int), rng.integers(1, n, n)], n)
    train = rng.permutation(n)[:4000]
    parts = partition_nodes(graph, num_parts, method, train_idx=train)
    loads = part_loads(parts, constraint_weights(graph, train, [], []), num_parts)
    uneven = dict(zip(CONSTRAINTS, map(max_over_mean, loads.T), strict=True))
    edges = uneven.pop("edges")
    assert max(uneven.values()) <= TOLERANCE, uneven
    assert edges <= num_parts / 2 + 0.15
    (warned,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert warned.endswith(f"times the mean, {edges:.2f} of edges")


def test_two_hubs_do_not_share_a_part():
    """Each of the hubs has more edges than a part may have."""
    rng = np.random.default_rng(0)
    dst = np.r_[np.repeat([5, 6], 3000), rng.integers(10, 2000, 4000)]
    graph = Graph.from_edges(rng.integers(10, 2000, dst.size), dst, 2000)
    for method in METHODS:
        parts = partition_nodes(graph, 8, method)
        assert parts[5] != parts[6], method
