"""Graphs made from other graphs, against NetworkX, SciPy, or results by hand."""

import pickle

import jax
import networkx
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph
from jgs.graph import as_device

NOWHERE = np.iinfo(np.int32).max


def made(edges, num_nodes=7, csc=False, **options):
    """Weights are 1, 2, 3, 1, ...; the columns hold each edge's number."""
    src, dst = [e[0] for e in edges], [e[1] for e in edges]
    number = np.arange(len(edges))
    columns = {"number": number, "pair": np.stack([number, 2.0 * number], 1)}
    weight = number % 3 + 1.0
    graph = Graph.from_edges(src, dst, num_nodes, weight, edge_columns=columns, **options)
    if csc:  # the same edges without a known order
        columns = jax.tree.map(np.asarray, graph.edge_columns)
        return Graph(graph.indptr, graph.indices, graph.edge_weight, columns)
    return graph


def edges_of(graph):
    """(source, target, weight, number) of each edge, in order. All other fields are checked."""
    number = np.asarray(graph.edge_columns["number"])
    assert number.dtype == np.int64
    np.testing.assert_array_equal(graph.edge_columns["pair"], np.stack([number, 2 * number], 1))
    again = Graph(graph.indptr, graph.indices, graph.edge_weight)
    np.testing.assert_array_equal(graph.edge_weight_prefix, again.edge_weight_prefix)
    assert graph.indices.dtype == graph.edge_order.dtype == np.int32
    columns = (*graph.edge_index(), np.asarray(graph.edge_weight), number)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def check_order(graph, before):
    """`edge_order` holds the edges' numbers; without an order in `before`, positions there."""
    number, order = np.asarray(graph.edge_columns["number"]), np.asarray(graph.edge_order)
    real = order != NOWHERE
    known = before.edge_order is not None
    first = np.arange(99) if known else np.asarray(before.edge_columns["number"])
    np.testing.assert_array_equal(number[real], first[order[real]])


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40)


def sorted_edges(edges):
    """By target, by source, and then by each edge's number as given."""
    order = sorted(range(len(edges)), key=lambda i: (*edges[i][::-1], i))
    return [(*edges[i], i % 3 + 1, i) for i in order]


def symmetric_edges(edges):
    """With the largest weight of parallel ones, and the first of the edge's own direction."""
    undirected, expected = networkx.MultiGraph(), []
    undirected.add_nodes_from(range(7))
    undirected.add_edges_from((*e, {"i": i}) for i, e in enumerate(edges))
    for d in range(7):
        for s in sorted(undirected[d]):
            parallel = [data["i"] for data in undirected[d][s].values()]
            kept = min((i for i in parallel if edges[i] == (s, d)), default=min(parallel))
            expected.append((s, d, max(i % 3 + 1 for i in parallel), kept))
    return expected


def looped_edges(edges):
    expected = []
    for v in range(7):
        row = [(s, d, i % 3 + 1, i) for i, (s, d) in enumerate(edges) if d == v]
        expected += row if (v, v) in edges else [*row, (v, v, 1, 0)]
    return expected


EDITS = {"sorted": sorted_edges, "symmetrized": symmetric_edges}
EDITS |= {"with_self_loops": looped_edges}


@pytest.mark.parametrize("edit", EDITS)
@settings(max_examples=30, deadline=None)
@given(EDGES, st.booleans())
def test_an_edit_is_its_definition(edit, edges, csc):
    graph, expected = made(edges, csc=csc), EDITS[edit](edges)
    found = getattr(graph, edit)()
    assert edges_of(found) == expected
    check_order(found, graph)
    assert edges_of(getattr(found, edit)()) == expected
    if edit == "symmetrized" and not csc:
        assert edges_of(made(edges, symmetric=True)) == expected


@pytest.mark.parametrize("num_edges", [0, 40])
def test_a_graph_that_knows_its_order_keeps_knowing_it(num_edges, tmp_path, same_bits):
    src, dst = np.random.default_rng(0).integers(0, 7, (2, num_edges))
    for i, graph in enumerate((Graph.from_edges(src, dst, 7), made([]).symmetrized())):
        for j, one in enumerate((graph, graph.sorted(), graph.symmetrized())):
            assert one.sorted_by_source == (i == 1 or j > 0)
            one.save(tmp_path / f"{i}{j}")
            same_bits(Graph.open(tmp_path / f"{i}{j}"), one)
            same_bits(pickle.loads(pickle.dumps(one)), one)
            same_bits(jax.jit(lambda g: g)(one), one)


@settings(max_examples=30, deadline=None)
@given(EDGES, st.lists(st.integers(0, 6), unique=True), st.booleans())
def test_subgraph(edges, nodes, csc):
    graph = made(edges, csc=csc)
    found = graph.subgraph(nodes)
    expected = [
        (nodes.index(s), j, i % 3 + 1, i)
        for j, v in enumerate(nodes)
        for i, (s, d) in enumerate(edges)
        if d == v and s in nodes
    ]
    assert edges_of(found) == expected
    assert found.num_nodes == len(nodes)
    check_order(found, graph)
    # A second edit: the order is still that of the edges first given.
    twice = found.sorted().subgraph(range(len(nodes) // 2))
    edges_of(twice)
    check_order(twice, graph)


def test_of_matrices_and_networks():
    drawn = np.random.default_rng(0).random((20, 20))
    matrix = scipy.sparse.coo_array(np.where(drawn < 0.2, drawn, 0))
    network = networkx.from_scipy_sparse_array(matrix, create_using=networkx.DiGraph)
    both = matrix.maximum(matrix.T).tocsr()
    both.sort_indices()
    weights = np.array([w for *_, w in network.edges(data="weight")])
    for graph, stored in (
        (Graph.from_scipy(matrix, weighted=True, symmetric=True), matrix.tocoo().data),
        (Graph.from_networkx(network, "weight", symmetric=True), weights),
    ):
        np.testing.assert_array_equal(graph.indptr, both.indptr)
        np.testing.assert_array_equal(graph.indices, both.indices)
        np.testing.assert_array_equal(graph.edge_weight, both.data.astype(np.float32))
        ends = tuple(graph.edge_index())
        own = matrix.toarray()[ends]  # the edge's own weight; where it has none, its reverse's
        other = matrix.toarray().T[ends]
        kept = np.where(own > 0, own, other)
        np.testing.assert_array_equal(stored[np.asarray(graph.edge_order)], kept)


def test_the_order_of_an_undirected_network_counts_its_edges():
    network = networkx.Graph([(0, 1), (1, 1), (1, 2)])
    graph = Graph.from_networkx(network)
    assert graph.edge_order.dtype == np.int32
    ends = zip(np.asarray(graph.indices).tolist(), [0, 1, 1, 1, 2], strict=True)
    found = [list(network.edges)[i] for i in np.asarray(graph.edge_order)]
    assert [tuple(sorted(e)) for e in ends] == [tuple(sorted(e)) for e in found]


def test_beyond_two_to_the_31_edges(tmp_path):
    """The graph is a sparse file, and its first 8 GiB are never read."""
    hub, total = 2**30, 2**31 + 4
    file = np.lib.format.open_memmap(tmp_path / "indices.npy", "w+", np.int32, (total,))
    file[-4:] = [2, 0, 1, 2]
    file.flush()
    indices = np.load(tmp_path / "indices.npy", mmap_mode="r")
    indptr = np.array([0, hub, 2 * hub, total])
    graph = Graph.from_edge_arrays(as_device(indptr), {"indices": indices})
    assert graph.degrees().tolist() == [hub, hub, 4]
    assert jax.jit(Graph.degrees)(graph).tolist() == [hub, hub, 4]
    if graph.indices.platform() == "cpu":
        found = graph.subgraph([2])
        assert np.asarray(found.indices).tolist() == [0, 0]
        assert found.edge_order.dtype == np.int64
        assert np.asarray(found.edge_order).tolist() == [2**31, 2**31 + 3]


@cases(
    "nodes, says",
    ([3], "nodes must be node ids in [0, 3); got 3 at position 0"),
    ([0, 1, 0], "nodes must be distinct; got 0 more than once"),
    ([True, False, True], "nodes must be integers [n]; got bool[3]"),
    ([[0]], "nodes must be integers [n]; got int64[1, 1]"),
)
def test_nodes_that_make_no_subgraph(nodes, says):
    refused(says, made([(0, 1)], 3).subgraph, nodes)


def test_without_weights_columns_or_edges():
    for graph in (Graph.from_edges([0, 0, 1], [1, 1, 1], 2), Graph([0, 0, 3], [0, 0, 1])):
        assert graph.degrees().dtype == np.int32
        others = graph.symmetrized(), graph.with_self_loops(), graph.subgraph([1])
        for other, indices in zip(others, ([1, 0, 1], [0, 0, 0, 1], [0]), strict=True):
            assert np.asarray(other.indices).tolist() == indices
            assert other.edge_weight is other.edge_weight_prefix is None
    for num in (0, 3):
        nothing = Graph.from_edges([], [], num)
        for other in (nothing.symmetrized(), nothing.sorted(), nothing.subgraph([])):
            assert other.num_edges == 0
        assert nothing.with_self_loops().num_edges == num
        nothing = Graph(nothing.indptr, nothing.indices, [])
        assert nothing.symmetrized().edge_weight.shape == (0,)


def test_an_archive_made_symmetric(tmp_path):
    np.savez(tmp_path / "a.npz", edge_index=np.array([[0, 2], [1, 1]]), num_nodes=3)
    indptr, indices = [0, 0, 2, 2], [0, 2]
    np.savez(tmp_path / "b.npz", indptr=indptr, indices=indices)
    for name in "ab":
        graph = Graph.from_npz(tmp_path / f"{name}.npz", symmetric=True)
        assert np.asarray(graph.indptr).tolist() == [0, 1, 3, 4]
        assert np.asarray(graph.indices).tolist() == [1, 0, 2, 1]
