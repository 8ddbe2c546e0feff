"""`partition_nodes`: constraints even in all parts, few edges cut, machines, memory."""

import ctypes
import itertools
import json
import sys
import tracemalloc

import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import command_refused, refused

import jgs
from benchmarks import graph as rmat
from jgs import Graph
from jgs.data.dataset import Dataset
from jgs.data.parts import open_parts
from jgs.partition import balance as rebalancing
from jgs.partition import min_cut, partition_nodes, write_parts
from jgs.partition.__main__ import main
from jgs.partition.balance import (
    CONSTRAINTS,
    constraint_weights,
    edge_cut,
    in_neighbors,
    limits,
    part_loads,
    rebalance,
)
from jgs.partition.folder import deal_seeds
from jgs.partition.min_cut import is_symmetric, undirected_rows
from jgs.partition.nodes import METHODS, TOLERANCE, edges_between, max_over_mean


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
    min_cut.check_metis(2**31)
    monkeypatch.setattr(extension, "_idx_type_width", lambda: 32)
    refused("32-bit*2,147,483,648*--method ldg", min_cut.check_metis, 2**31)


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
    monkeypatch.setattr(min_cut, "_library", lambda largest: (Library(status), np.int64))
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


NODES, NUM_EDGES, PARTS = 400_000, 600_000, 4


class Counted(np.ndarray):
    """An array that counts how many of its rows are read."""

    rows = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Counted.rows += len(found) if self.ndim == 2 else 0
        return found


@pytest.fixture(scope="module")
def data():
    """A fifth of the nodes has no edges; every node is in a split."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(NODES)[: NODES * 4 // 5]
    src, dst = ids[(rng.random((2, NUM_EDGES)) ** 2 * ids.size).astype(int)]
    order = rng.permutation(NODES).astype(np.int32)
    splits = np.split(order, [NODES // 10, NODES // 5])
    features = rng.random((NODES, 2), np.float32).view(Counted)
    labels = rng.integers(0, 3, NODES).astype(np.int32)
    return Dataset("made", Graph.from_edges(src, dst, NODES), features, labels, 3, *splits)


@pytest.mark.parametrize("method", ["ldg", "random"])
def test_40_bytes_a_node_and_one_pass(tmp_path, monkeypatch, data, method):
    # Temporaries of a fixed size do not count; they are made small compared with the graph.
    for name, size in (
        ("jgs.graph.rows._EDGES_AT_ONCE", 1 << 12),
        ("jgs.graph.rows._ROWS_AT_ONCE", 1 << 12),
        ("jgs.partition.balance._NODES_AT_ONCE", 1 << 12),
        ("jgs.partition.folder._BYTES_AT_ONCE", 1 << 16),
    ):
        monkeypatch.setattr(name, size)
    splits = {f"{k}_idx": getattr(data, f"{k}_idx") for k in ("train", "val", "test")}
    tracemalloc.start()
    parts = partition_nodes(data.graph, PARTS, method, **splits)
    partitioned = tracemalloc.get_traced_memory()[1] / NODES
    tracemalloc.reset_peak()
    Counted.rows = 0
    write_parts(tmp_path / "parts", data, parts, PARTS, method=method)
    written = tracemalloc.get_traced_memory()[1] / NODES
    tracemalloc.stop()
    assert max(partitioned, written) <= 40, (partitioned, written)
    assert Counted.rows <= NODES + 1  # one more row tells how many bytes a row has


def test_each_edge_between_parts_counts_once(make_graph):
    graph = make_graph(70, 900)
    parts = np.random.default_rng(1).integers(0, 5, 70).astype(np.int32)
    found = edges_between(in_neighbors(graph), parts, 5)
    wanted = np.zeros((5, 5), np.int64)
    target = np.repeat(np.arange(70), np.diff(graph.indptr))
    np.add.at(wanted, (parts[target], parts[np.asarray(graph.indices)]), 1)
    np.testing.assert_array_equal(found, wanted)
    cut = 1 - wanted.trace() / wanted.sum()
    assert edge_cut(in_neighbors(graph), parts) == pytest.approx(cut)
    no_edges = jgs.Graph.from_edges([], [], 5)
    assert edge_cut(in_neighbors(no_edges), np.zeros(5, int)) == 0


def test_machines_have_the_parts_that_belong_together():
    """Sixteen communities of 64 nodes, in two halves with many edges within each half."""
    rng = np.random.default_rng(3)
    place = rng.permutation(1024)  # the node at each place; communities are 64 places each
    near = rng.integers(0, 1024, 60_000)
    half = (near // 512) * 512 + rng.integers(0, 512, near.size)
    own = (near // 64) * 64 + rng.integers(0, 64, near.size)
    ends = np.where(rng.random(near.size) < 0.6, own, half)
    ends[:600] = rng.integers(0, 1024, 600)
    a, b = place[near], place[ends]
    graph = jgs.Graph.from_edges(np.r_[a, b], np.r_[b, a], 1024)
    splits = {"train_idx": rng.permutation(1024)[:301]}
    alone = partition_nodes(graph, 16, **splits)
    parts = partition_nodes(graph, 16, **splits, ranks_per_machine=8)
    # The same parts, with other numbers.
    assert len(set(zip(alone, parts, strict=True))) == 16
    adjacency = in_neighbors(graph)
    assert edge_cut(adjacency, parts // 8) < 0.1 < edge_cut(adjacency, parts)


def test_the_command_takes_the_ranks_of_a_machine(tmp_path, capsys):
    flags = ["--dataset", "synthetic", "--data-options", "num_nodes=200", "num_edges=900"]
    flags += ["--parts", "4", "--out", str(tmp_path / "p"), "--ranks-per-machine"]
    assert main([*flags, "2"]) == 0
    said, parts = capsys.readouterr(), open_parts(tmp_path / "p")
    machines = parts.owner(np.arange(200)) // 2
    cut = pytest.approx(edge_cut(in_neighbors(parts.graph), machines))
    assert json.loads(said.out)["machine_cut"] == parts.manifest["machine_cut"] == cut
    assert "between machines" in " ".join(said.err.split())
    assert parts.manifest["ranks_per_machine"] == 2
    for wrong, rule in (("3", "multiple"), ("0", "positive")):
        command_refused(capsys, rule, main, [*flags, wrong])


def _moved(has, counts, size):
    """How many seeds leave their part and their machine, at least, to be dealt so."""
    of_machines = np.add.reduceat(has - counts, np.arange(0, 6, size))
    return tuple(np.maximum(too_many, 0).sum() for too_many in (has - counts, of_machines))


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_fewest_seeds_leave_their_part_and_their_machine(size):
    rng = np.random.default_rng(size)
    for _ in range(50):
        num = int(rng.integers(0, 200))
        owner = np.sort(rng.choice(6, num, p=rng.dirichlet(np.ones(6))))
        dealt = deal_seeds(owner, 6, size)
        counts, has = np.bincount(dealt, minlength=6), np.bincount(owner, minlength=6)
        assert np.ptp(counts) <= 1
        # No dealing to these counts moves fewer.
        assert (dealt != owner).sum() == np.maximum(has - counts, 0).sum()
        share, rest = divmod(num, 6)
        best = min(
            _moved(has, share + np.isin(range(6), more), size)
            for more in itertools.combinations(range(6), rest)
        )
        left = (dealt // size != owner // size).sum()
        assert ((dealt != owner).sum(), left) == best


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
