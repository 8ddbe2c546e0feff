"""`Graph`: what its constructors make, and what they refuse."""

import itertools
import json

import networkx
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from jgs import Graph, SparseFeatures
from jgs.files import storage


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


def weighted(weight, name="w"):
    return Graph.from_networkx(networkx.Graph([(0, 1, {"w": weight})]), name)


edges, eye = Graph.from_edges, scipy.sparse.eye


@cases(
    "make, says",
    (lambda: edges([0], [3], 3), "dst must be node ids in [0, 3); got 3"),
    (lambda: edges([-1], [0], 3), "src must be node ids in [0, 3); got -1"),
    (lambda: edges([2**40], [0], 3), "got 1099511627776 at position 0"),
    (lambda: edges([0, 1], [0], 3), "same length; got 2 and 1"),
    (lambda: edges([0.5], [0], 3), "src must be integers [n]; got float64[1]"),
    (lambda: edges([0], [0], -1), "number of nodes must be an int"),
    (lambda: edges([0], [0], 1, [np.nan]), "got nan at edge 0"),
    (lambda: edges([0], [0], 1, [-1.0]), "got -1.0 at edge 0"),
    (lambda: edges([0], [0], 1, [1e39]), "finite float32"),
    (lambda: edges([0, 0, 1], [1, 1, 1], 2, [0, 1, 1e-46]), "1e-46 at edge 2*ratios"),
    (lambda: edges([0], [0], 1, [1.0, 2.0]), "edge_weight must be numbers [1], one an edge"),
    (lambda: edges([0, 1], [[0], [1, 2]], 3), "dst must be integers [n]; got sequences"),
    (lambda: edges([0, 1], [0, 1], 3, [[0], [1, 2]]), "of unequal lengths"),
    (lambda: Graph([1, 2], [0, 0]), "indptr must start at 0; got 1"),
    (lambda: Graph([0, 2, 1], [0]), "indptr must not decrease; got 2 then 1 at node 1"),
    (lambda: Graph([0, 2], [0]), "indptr must end at the number of edges; got 2 with 1"),
    (lambda: Graph([], []), "indptr must have one entry more than nodes"),
    (lambda: Graph([0, 1], [5]), "indices must be node ids in [0, 1); got 5 at position 0"),
    (lambda: Graph([[0, 1]], [0]), "indptr must be integers [n]; got int64[1, 2]"),
    (lambda: Graph([0, 1], [[0], [1, 2]]), "indices must be integers [n]; got sequences"),
    (lambda: Graph.from_scipy(eye(2, 3)), "matrix must be [N, N]; got float64[2, 3]"),
    (lambda: Graph.from_scipy(np.eye(3)), "a SciPy sparse matrix or array; got a ndarray"),
    (lambda: Graph.from_networkx(None), "must be a NetworkX graph; got a NoneType"),
    (lambda: weighted("1.5"), "'w' must be a float; got '1.5'"),
    (lambda: weighted(10**400), "'w' must be a float; got 1000"),
    (lambda: weighted(1, "v"), "must have the attribute 'v'; got edges with 'w'"),
    (lambda: Graph.from_networkx(networkx.path_graph(3), "v"), "got edges with none"),
    (lambda: SparseFeatures.from_scipy(np.eye(3)), "a SciPy sparse matrix or array; got a"),
    (
        lambda: SparseFeatures.from_scipy(eye(3, dtype=complex)),
        "sparse features must be numbers [N, F]; got complex128[3, 3]",
    ),
    (lambda: Graph.from_npz("nowhere.npz"), "must exist; got nowhere.npz"),
)
def test_bad_input_is_refused_in_one_line(make, says):
    refused(says, make)


def test_from_npz(tmp_path):
    expected = Graph.from_edges([0, 2], [1, 1], 4)
    edges = np.array([[0, 2], [1, 1]])
    np.savez(tmp_path / "a.npz", edge_index=edges, labels=np.zeros(4, int))
    np.savez(tmp_path / "b.npz", indptr=expected.indptr, indices=expected.indices)
    for name in "ab":
        assert rows(Graph.from_npz(tmp_path / f"{name}.npz")) == rows(expected)
    np.savez(tmp_path / "c.npz", edge_index=edges)
    refused("Add `num_nodes`", Graph.from_npz, tmp_path / "c.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    refused("must be a whole NumPy", Graph.from_npz, tmp_path / "cut.npz")
    data, at = bytearray(whole), -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:  # every entry of the directory
        data[at + 8] |= 1
    (tmp_path / "encrypted.npz").write_bytes(data)
    refused("whole NumPy *encrypted", Graph.from_npz, tmp_path / "encrypted.npz")
    np.savez(tmp_path / "pickle.npz", num_nodes=1, edge_index=np.array([{}], dtype=object))
    refused("without pickles", Graph.from_npz, tmp_path / "pickle.npz")


@cases(
    "count, says",
    ({"num_nodes": [1, 2]}, "must be an integer, to say how many nodes there are; got int"),
    ({"num_nodes": 2.7}, "must be an integer, to say how many nodes there are; got float"),
    ({"num_nodes": -1}, "number of nodes must be an int"),
    ({"labels": 3}, "must be an array [N] or [N, C]"),
    ({"feature_shape": np.zeros(0, int)}, "to say how many nodes there are; got int64[0]"),
    ({"feature_shape": 3}, "must be two integers [N, F]"),
)
def test_from_npz_needs_a_sound_number_of_nodes(count, says, tmp_path):
    np.savez(tmp_path / "a.npz", edge_index=np.zeros((2, 1), int), **count)
    refused(says, Graph.from_npz, tmp_path / "a.npz")


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


def indices_file(change):
    def edit(folder):
        (folder / "indices.npy").write_bytes(change((folder / "indices.npy").read_bytes()))

    return edit


def manifest_of(data: bytes):
    return lambda folder: (folder / "manifest.json").write_bytes(data)


def edited(change):
    def edit(folder):
        manifest = json.loads((folder / "manifest.json").read_text())
        change(manifest)
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return edit


def entry(**changed):
    return edited(lambda m: m["arrays"]["indices"].update(changed))


def without(name, of="arrays"):
    return edited(lambda m: (m["arrays"] if of == "arrays" else m["arrays"][of]).pop(name))


def saved_as(name, change):
    def edit(folder):
        arrays = storage.open_arrays(folder, "jgs.graph")
        storage.save_arrays(folder, "jgs.graph", arrays | {name: change(arrays[name])})

    return edit


@cases(
    "damage, says",
    (lambda f: (f / "manifest.json").unlink(), "manifest.json; got no such file"),
    (manifest_of(b"{"), "manifest.json must be whole"),
    (manifest_of(b"[" * 100_000), "manifest.json must be whole"),
    (manifest_of(b"\xff\xfe"), "manifest.json must be whole"),
    (edited(lambda m: m.update(arrays=[])), "manifest.json must be whole"),
    (edited(lambda m: m.update(kind="other")), "got 'other' version 1"),
    (edited(lambda m: m.update(version=[[2]])), "got 'jgs.graph' version [[2]]"),
    (edited(lambda m: m["arrays"].update(indices=None)), "manifest.json must be whole"),
    (entry(shape=["3"]), "an entry that no array"),
    (entry(dtype=4), "an entry that no array"),
    (entry(file="x.npy"), "an entry that no array"),
    (entry(sha256=None), "an entry that no array"),
    *((without(k, "indices"), f"KeyError('{k}')") for k in ("file", "shape", "dtype")),
    (without("indices"), "`indices` of *graph must be int32 [n]; got none"),
    (without("edge_weight"), "`edge_weight` of *graph must be float32 [n]; got none"),
    (without("edge_weight_prefix"), "`edge_weight_prefix` of *must be int64 [n]; got none"),
    (lambda f: (f / "indices.npy").unlink(), "must hold every array it lists"),
    (indices_file(lambda data: data[:6]), "must hold every array it lists"),
    (lambda f: np.save(f / "indices.npy", np.zeros(3, np.int32)), "as the manifest says"),
    (indices_file(lambda d: d[:-1] + bytes([d[-1] ^ 1])), "the manifest's checksum"),
    (
        saved_as("edge_weight", lambda a: a.astype(np.float64)),
        "must be float32 [n]; got float64",
    ),
    (saved_as("edge_weight", lambda a: a[:-1]), "must be [200, ...], one entry for every edge"),
    (saved_as("edge_weight_prefix", lambda a: a[:1]), "one entry for every edge; got int64[1]"),
)
def test_damaged_folders_are_refused(damage, says, saved):
    damage(saved)
    refused(says, Graph.open, saved)


def test_truncated_file_is_refused_even_unverified(saved):
    indices_file(lambda data: data[:-100])(saved)
    refused("must hold every array", Graph.open, saved, verify=False)


def contents(folder):
    return {p.name: p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@cases(
    "spoil, says",
    (lambda f: (f / "thesis.txt").write_text("mine"), "got 'thesis.txt' in it"),
    (lambda f: (f / "thesis").mkdir(), "got 'thesis' in it"),
    (manifest_of(b'{"name": "a web application"}'), "something else"),
    (edited(lambda m: m.update(kind="other")), "something else ('other' version 1)"),
    (lambda f: (f / "manifest.json").unlink(), "something else (no such file)"),
)
def test_save_replaces_nothing_of_the_users(spoil, says, saved, make_graph):
    spoil(saved)
    before = contents(saved.parent)
    refused(says, make_graph(9, 40).save, saved)
    assert contents(saved.parent) == before


def test_save_takes_other_folders(saved, monkeypatch, same_bits, make_graph):
    """An empty one, an incomplete graph, a link, and the working folder."""
    parent, graph = saved.parent, make_graph(9, 40)
    (parent / "here").mkdir()
    (parent / "link").symlink_to(parent / "here")
    (saved / "indices.npy").unlink()
    for folder in (parent / "empty", saved, parent / "link"):
        folder.mkdir(exist_ok=True)
        graph.save(folder)
        same_bits(Graph.open(folder), graph)
    assert (parent / "link").is_symlink()
    (parent / "file").write_text("mine")
    refused("got a file", graph.save, parent / "file")
    monkeypatch.chdir(parent / "here")
    make_graph(30, 200).save(".")
    same_bits(Graph.open(parent / "link"), make_graph(30, 200))
