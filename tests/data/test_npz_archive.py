import numpy as np
import pytest
import scipy.sparse

from jgs import InputError, SparseFeatures
from jgs.data import load
from jgs.data.formats import npz


def dense(features: SparseFeatures) -> np.ndarray:
    parts = (features.values, features.indices, features.indptr)
    return scipy.sparse.csr_matrix(
        tuple(np.asarray(p) for p in parts), features.shape
    ).toarray()


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "features", "classes", "split"),
    [
        ("cora", 2708, 10556, 1433, 7, (140, 500, 1000)),
        ("citeseer", 3327, 9104, 3703, 6, (120, 500, 1000)),
        ("facebook", 22470, 341646, 4714, 4, (13482, 4494, 4494)),
    ],
)
def test_real_archives(real_data, name, nodes, edges, features, classes, split):
    dataset = load(name, real_data)
    assert dataset.name == name
    assert (dataset.graph.num_nodes, dataset.graph.num_edges) == (nodes, edges)
    assert dataset.features.shape == (nodes, features)
    assert dataset.num_classes == classes
    assert (len(dataset.train_idx), len(dataset.val_idx), len(dataset.test_idx)) == split
    indptr, values = np.asarray(dataset.features.indptr), np.asarray(dataset.features.values)
    full = np.diff(indptr) > 0
    sums = np.add.reduceat(values, indptr[:-1][full])
    np.testing.assert_allclose(sums, 1, rtol=1e-5)  # row-normalised by default
    raw = load(name, real_data, normalize_features=False)
    assert set(np.unique(raw.features.values)) == {1.0}


def test_the_full_split_trains_on_the_rest(real_data):
    full = load("cora", real_data, split="full")
    others = np.r_[full.val_idx, full.test_idx]
    assert (len(full.train_idx), len(others)) == (1208, 1500)
    np.testing.assert_array_equal(np.sort(np.r_[full.train_idx, others]), np.arange(2708))
    with pytest.raises(InputError, match="public or full"):
        load("cora", real_data, split="all")


def test_an_unlabelled_node_trains_in_no_split(arrays, tmp_path):
    labels = np.array([-1, *arrays["labels"][1:]])
    splits = {"train_idx": [1], "val_idx": [2], "test_idx": [4]}
    np.savez(tmp_path / "ring.npz", **arrays | splits | {"labels": labels})
    assert load("ring", tmp_path, split="full").train_idx.tolist() == [1, 3, 5]


def test_the_graph_is_the_archives_edges(real_data):
    dataset = load("cora", real_data)
    edges = np.load(real_data / "cora.npz")["edge_index"]
    indptr, indices = np.asarray(dataset.graph.indptr), np.asarray(dataset.graph.indices)
    dst = np.repeat(np.arange(dataset.graph.num_nodes), np.diff(indptr))
    assert set(zip(indices.tolist(), dst.tolist(), strict=True)) == set(
        zip(*edges.tolist(), strict=True)
    )


def test_a_path_and_a_name_below_root_are_the_same(arrays, tmp_path):
    np.savez(tmp_path / "ring.npz", **arrays)
    for name, root in [
        (tmp_path / "ring.npz", "data"),
        ("ring", tmp_path),
        ("ring.npz", tmp_path),
    ]:
        dataset = load(name, root)
        np.testing.assert_array_equal(dataset.features, arrays["features"])
        assert dataset.name == "ring"
    normal = load("ring", tmp_path, normalize_features=True)
    np.testing.assert_allclose(np.asarray(normal.features).sum(1), 1, rtol=1e-6)


def test_the_file_name_decides_on_normalisation(arrays, tmp_path):
    np.savez(tmp_path / "cora.npz", **arrays)
    for name in ("cora", tmp_path / "cora.npz"):
        assert np.asarray(load(name, tmp_path).features).max() < 1


def test_csr_graph_and_optional_counts(arrays, tmp_path):
    del arrays["edge_index"]
    extra = {"indptr": np.arange(7), "indices": np.zeros(6, np.int32), "num_classes": 5}
    names = ("a", "b", "c", "d", "é")
    np.savez(tmp_path / "ring.npz", **arrays, **extra, num_nodes=6, class_names=names)
    dataset = load("ring", tmp_path)
    assert (dataset.graph.num_edges, dataset.num_classes) == (6, 5)
    assert dataset.class_names == names


def test_symmetric_adds_the_reverses_that_lack(arrays, tmp_path):
    """The edges: 0 -> 1 twice and 1 -> 0, 1 -> 2 once, a loop twice."""
    edges = np.array([[0, 0, 1, 1, 3, 3], [1, 1, 0, 2, 3, 3]])
    weight = np.array([1, 5, 2, 0.5, 3, 4], np.float32)
    plain = arrays | {"edge_index": edges}
    np.savez(tmp_path / "plain.npz", **plain)
    np.savez(tmp_path / "weighted.npz", **plain, edge_weight=weight)
    csc = {"indptr": [0, 1, 3, 4, 6, 6, 6], "indices": [1, 0, 0, 1, 3, 3], "num_nodes": 6}
    del plain["edge_index"]
    np.savez(tmp_path / "csc.npz", **plain, **csc)
    for name in ("plain", "weighted", "csc"):
        as_it_is = load(name, tmp_path).graph
        np.testing.assert_array_equal(as_it_is.indptr, csc["indptr"])
        graph = load(name, tmp_path, symmetric=True).graph
        np.testing.assert_array_equal(graph.indptr, [0, 1, 3, 4, 5, 5, 5])
        np.testing.assert_array_equal(graph.indices, [1, 0, 2, 1, 3])
        if name == "weighted":  # the largest weight of an edge's copies
            np.testing.assert_array_equal(graph.edge_weight, [5, 5, 0.5, 0.5, 4])
    for name in ("cora", "facebook"):
        (tmp_path / "plain.npz").rename(tmp_path / f"{name}.npz")
        assert load(name, tmp_path, symmetric=True).graph.num_edges == 5
        (tmp_path / f"{name}.npz").rename(tmp_path / "plain.npz")


def _without(key):
    return lambda a: a.pop(key)


def _with(**new):
    return lambda a: a.update(new)


CSR = {
    "feature_indptr": np.array([0, 1, 2, 3, 4, 5, 6]),
    "feature_indices": np.zeros(6, np.int32),
    "feature_values": np.ones(6, np.float32),
    "feature_shape": np.array([6, 3]),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("labels"), r"no \['labels'\]"),
        (_without("test_idx"), r"no \['test_idx'\]"),
        (_without("features"), "must hold `features`, or"),
        (_without("edge_index"), "edge_index"),
        (
            _with(features=np.ones((4, 3))),
            r"as many rows of features as labels; got features \[4, 3\] and 6",
        ),
        (_with(features=np.ones((4, 3)), num_nodes=6), "one row for every node"),
        (
            _with(labels=np.zeros(2, np.int32)),
            r"as many rows of features as labels; got features \[6, 3\] and 2",
        ),
        (_with(edge_index=np.array([[0, 9], [1, 0]])), r"\[0, 6\)"),
        (_with(edge_index=np.array([0, 9])), "shape"),
        (_with(edge_index=np.array([[0.0], [1.0]])), "integers"),
        (_with(labels=np.array([{}] * 6, dtype=object)), "pickle"),
        (_with(num_classes=np.array([1, 2])), "must be an int"),
        (_with(num_classes=2), "got 2 at node 2"),
        (_with(class_names=np.arange(3)), r"must be text \[C\]; got int64\[3\]"),
        (_with(class_names=["a"]), "class_names .* one for each; got 1 for 3"),
        (_with(num_classes=np.uint64(2**63)), r"number of classes of ring must be in \[1, "),
        (_with(labels=np.array([0, 1, 2, 2_000_000_000, 1, 2])), "label of node 3"),
        (_with(num_nodes=np.array([6, 6])), "num_nodes in .* must be an int"),
        (_with(labels=np.int32(3)), r"\[N\] or \[N, C\]"),
        (_with(features=np.float32(3)), r"features \[\] and 6 labels"),
    ],
)
def test_broken_archives(arrays, tmp_path, change, message):
    change(arrays)
    np.savez(tmp_path / "ring.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        load("ring", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"feature_indices": np.full(6, 3)}, "sound CSR"),
        ({"feature_indices": np.full(6, -1)}, "sound CSR"),
        ({"feature_indices": np.zeros(6)}, "indices must be integers"),
        ({"feature_indptr": np.array([0, 5, 2, 3, 4, 5, 6])}, "sound CSR"),
        ({"feature_indptr": np.arange(6)}, "sound CSR"),
        ({"feature_shape": np.array([6])}, "sound CSR"),
        ({"feature_shape": np.array([7, 3])}, "sound CSR"),
        ({"feature_shape": np.array([6, 2**40])}, "columns must fit in 31 bits"),
        ({"feature_values": np.ones(5)}, "sound CSR"),
        ({"feature_values": np.full(6, np.nan)}, "finite"),
        ({"feature_values": np.ones((6, 1))}, "one-dimensional"),
    ],
)
def test_broken_csr_features(arrays, tmp_path, change, message):
    del arrays["features"]
    np.savez(tmp_path / "ring.npz", **arrays, **(CSR | change))
    if message is None:
        expected = np.zeros((6, 3))
        expected[:, 0] = 1
        np.testing.assert_array_equal(dense(load("ring", tmp_path).features), expected)
        return
    with pytest.raises(InputError, match=message) as caught:
        load("ring", tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_truncated_and_damaged_archives_are_input_errors(arrays, tmp_path, save, may_refuse):
    save(tmp_path / "ring.npz", **arrays)
    whole = (tmp_path / "ring.npz").read_bytes()
    path = tmp_path / "ring.npz"
    rng = np.random.default_rng(0)
    for cut in [0, 1, 10, *rng.integers(0, len(whole), 20)]:
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            load("ring", tmp_path)
    for position in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with may_refuse():
            load("ring", tmp_path)  # damage to a byte without meaning does no harm


def test_missing_archive_names_the_place(tmp_path):
    with pytest.raises(InputError, match=r"no file .*facebook\.npz"):
        load("facebook", tmp_path)


def test_open_npy(tmp_path):
    np.save(tmp_path / "empty.npy", np.empty((0, 3)))
    assert npz.open_npy(tmp_path / "empty.npy").shape == (0, 3)
    np.save(tmp_path / "x.npy", np.arange(1000))
    assert isinstance(npz.open_npy(tmp_path / "x.npy"), np.memmap)
    whole = (tmp_path / "x.npy").read_bytes()
    for cut in (0, 5, 60, 500, len(whole) - 1):
        (tmp_path / "x.npy").write_bytes(whole[:cut])
        with pytest.raises(InputError, match="whole NumPy"):
            npz.open_npy(tmp_path / "x.npy")
    for old, new in ((b"}", b" "), (b"(1000", b"(0100")):
        (tmp_path / "x.npy").write_bytes(whole.replace(old, new, 1))
        with pytest.raises(InputError, match="whole NumPy"):
            npz.open_npy(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object))
    with pytest.raises(InputError, match="without pickles"):
        npz.open_npy(tmp_path / "x.npy")
    with pytest.raises(InputError, match="no such file"):
        npz.open_npy(tmp_path / "y.npy")
