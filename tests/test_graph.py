"""`Graph`: what its constructors make, and what they refuse."""

import itertools
import json

import jax
import networkx
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import jgs
from jgs import Graph, InputError


def rows(graph: Graph) -> list[list[int]]:
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    return [indices[a:b].tolist() for a, b in itertools.pairwise(indptr)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_from_edges_keeps_every_edge_in_order(edges):
    src, dst = [e[0] for e in edges], [e[1] for e in edges]
    graph = Graph.from_edges(src, dst, 7, edge_weight=np.arange(len(edges)) + 1)
    assert rows(graph) == [[s for s, d in edges if d == v] for v in range(7)]
    order = [i for v in range(7) for i, (_, d) in enumerate(edges) if d == v]
    assert np.asarray(graph.edge_weight).tolist() == [i + 1 for i in order]


def test_dtypes_hold_inside_jit_and_outside_x64():
    graph = Graph.from_edges([0, 1], [1, 0], 2, [1.0, 2.0])
    for g in (graph, jax.jit(lambda g: g)(graph), jax.tree.map(lambda x: x, graph)):
        assert g.indptr.dtype == np.int64
        assert g.indices.dtype == np.int32
        assert g.edge_weight.dtype == np.float32
        assert g.edge_weight_prefix.dtype == np.int64
        assert (g.num_nodes, g.num_edges) == (2, 2)


def test_aligned_arrays_are_not_copied(tmp_path):
    np.save(tmp_path / "indices.npy", np.zeros(1000, np.int32))
    indices = np.load(tmp_path / "indices.npy", mmap_mode="r")
    graph = Graph(np.array([0, 1000]), indices)
    if graph.indices.platform() == "cpu":
        assert graph.indices.unsafe_buffer_pointer() == indices.ctypes.data


def test_scipy_and_networkx_agree_with_edges():
    src, dst, weight = np.array([0, 0, 2, 3]), np.array([1, 2, 1, 3]), np.array([1.5, 2, 0, 4])
    expected = Graph.from_edges(src, dst, 4, weight)
    matrix = scipy.sparse.coo_array((weight, (src, dst)), shape=(4, 4))
    for convert in (matrix, matrix.tocsr(), matrix.tocsc()):
        graph = Graph.from_scipy(convert, weighted=True)
        assert rows(graph) == rows(expected)
        np.testing.assert_array_equal(graph.edge_weight, expected.edge_weight)
    digraph = networkx.DiGraph()
    digraph.add_nodes_from("abcd")
    names = np.array(list("abcd"))
    for s, d, w in zip(names[src], names[dst], weight, strict=True):
        digraph.add_edge(s, d, w=w)
    graph = Graph.from_networkx(digraph, weight="w")
    assert rows(graph) == rows(expected)
    np.testing.assert_array_equal(graph.edge_weight, expected.edge_weight)


def test_undirected_networkx_edges_go_both_ways_and_loops_once():
    graph = Graph.from_networkx(networkx.Graph([(0, 1), (1, 2), (2, 2)]))
    assert [sorted(r) for r in rows(graph)] == [[1], [0, 2], [1, 2]]


def test_an_empty_graph_is_a_graph(tmp_path):
    for graph in (Graph.from_edges([], [], 0), Graph.from_edges([], [], 3)):
        graph.save(tmp_path / "g")
        assert rows(Graph.open(tmp_path / "g")) == rows(graph)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Graph.from_edges([0], [3], 3), "dst must be node ids in [0, 3); got 3"),
        (lambda: Graph.from_edges([-1], [0], 3), "src must be node ids in [0, 3); got -1"),
        (lambda: Graph.from_edges([2**40], [0], 3), "got 1099511627776 at position 0"),
        (lambda: Graph.from_edges([0, 1], [0], 3), "same length; got 2 and 1"),
        (lambda: Graph.from_edges([0.5], [0], 3), "src must be a one-dimensional array of int"),
        (lambda: Graph.from_edges([0], [0], -1), "number of nodes must be an int"),
        (lambda: Graph.from_edges([0], [0], 2**31), "number of nodes must be an int"),
        (lambda: Graph.from_edges([0], [0], 1, [np.nan]), "got nan at edge 0"),
        (lambda: Graph.from_edges([0], [0], 1, [-1.0]), "got -1.0 at edge 0"),
        (lambda: Graph.from_edges([0], [0], 1, [1e39]), "finite float32"),
        (lambda: Graph.from_edges([0], [0], 1, [1.0, 2.0]), "shape [1]"),
        (lambda: Graph([1, 2], [0, 0]), "indptr must start at 0; got 1"),
        (lambda: Graph([0, 2, 1], [0]), "indptr must not decrease; got 2 then 1 at node 1"),
        (lambda: Graph([0, 2], [0]), "indptr must end at the number of edges; got 2 with 1"),
        (lambda: Graph([], []), "indptr must have one entry more than nodes"),
        (lambda: Graph([0, 1], [5]), "indices must be node ids in [0, 1); got 5 at position 0"),
        (lambda: Graph([0.0, 1.0], [0]), "indptr must be a one-dimensional array of integers"),
        (lambda: Graph([[0, 1]], [0]), "indptr must be a one-dimensional array of integers"),
        (lambda: Graph.from_scipy(scipy.sparse.eye(2, 3)), "square; got shape (2, 3)"),
        (lambda: Graph.from_npz("nowhere.npz"), "must exist; got nowhere.npz"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, says):
    with pytest.raises(InputError) as error:
        make()
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_from_npz(tmp_path):
    expected = Graph.from_edges([0, 2], [1, 1], 4)
    edges = np.array([[0, 2], [1, 1]])
    np.savez(tmp_path / "a.npz", edge_index=edges, labels=np.zeros(4, int))
    np.savez(tmp_path / "b.npz", indptr=expected.indptr, indices=expected.indices)
    for name in "ab":
        assert rows(Graph.from_npz(tmp_path / f"{name}.npz")) == rows(expected)
    np.savez(tmp_path / "c.npz", edge_index=edges)
    with pytest.raises(InputError, match="Add `num_nodes`"):
        Graph.from_npz(tmp_path / "c.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="must be a whole NumPy"):
        Graph.from_npz(tmp_path / "cut.npz")
    np.savez(tmp_path / "pickle.npz", num_nodes=1, edge_index=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="without pickles"):
        Graph.from_npz(tmp_path / "pickle.npz")


@pytest.fixture
def saved(tmp_path, make_graph):
    graph = make_graph(30, 200)
    graph.save(tmp_path / "graph")
    return tmp_path / "graph"


def test_save_and_open(saved, same_bits, make_graph):
    graph = Graph.open(saved)
    same_bits(graph, make_graph(30, 200))
    make_graph(9, 40).save(saved)  # replaces
    same_bits(Graph.open(saved), make_graph(9, 40))
    manifest = json.loads((saved / "manifest.json").read_text())
    assert manifest["arrays"]["indptr"]["dtype"] == "<i8"
    assert {p.name for p in saved.parent.iterdir()} == {"graph"}  # nothing left behind


def damage_bit(folder):
    data = bytearray((folder / "indices.npy").read_bytes())
    data[-1] ^= 1
    (folder / "indices.npy").write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "manifest.json").unlink(), "manifest.json; got no such file"),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest.json must be whole"),
        (lambda f: (f / "manifest.json").write_text("[]"), "manifest.json must be whole"),
        (lambda f: (f / "indices.npy").unlink(), "must hold every array it lists"),
        (lambda f: (f / "indices.npy").write_bytes(b"\x93NUMPY"), "must hold every array"),
        (lambda f: np.save(f / "indices.npy", np.zeros(3, np.int32)), "as the manifest says"),
        (damage_bit, "must have the manifest's checksum"),
    ],
)
def test_damaged_folders_are_refused(damage, says, saved):
    damage(saved)
    with pytest.raises(InputError) as error:
        Graph.open(saved)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_truncated_file_is_refused_even_unverified(saved):
    path = saved / "indices.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="must hold every array"):
        Graph.open(saved, verify=False)


def test_save_replaces_nothing_of_the_users(tmp_path, make_graph):
    (tmp_path / "thesis").mkdir()
    with pytest.raises(InputError, match="must not exist, or be a folder that jgs wrote"):
        make_graph(9, 40).save(tmp_path / "thesis")


def test_public_names():
    assert jgs.sampling.sample_neighbors
    assert jgs.ops.aggregate
    assert jgs.models.GraphSAGE
    with pytest.raises(AttributeError):
        _ = jgs.nothing
