import numpy as np
from folders import cases, refused, rows, splits, write

from jgs import Schema
from jgs.data import load
from jgs.data.plain import load_plain


@cases(
    "name, nodes, edges, features, classes, split",
    ("cora", 2708, 10556, 1433, 7, (140, 500, 1000)),
    ("citeseer", 3327, 9104, 3703, 6, (120, 500, 1000)),
    ("facebook", 22470, 341646, 4714, 4, (13482, 4494, 4494)),
)
def test_real_archives(data_folder, name, nodes, edges, features, classes, split):
    dataset = load(name, data_folder)
    assert dataset.name == name
    assert (dataset.graph.num_nodes, dataset.graph.num_edges) == (nodes, edges)
    given = np.load(data_folder / f"{name}.npz")["edge_index"]
    found = dataset.graph.edge_index()
    np.testing.assert_array_equal(*(pairs[:, np.lexsort(pairs)] for pairs in (found, given)))
    assert dataset.features.shape == (nodes, features)
    assert dataset.num_classes == classes
    assert (len(dataset.train_idx), len(dataset.val_idx), len(dataset.test_idx)) == split
    sums = dataset.features.to_scipy().sum(axis=1)
    np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)  # row-normalised by default
    raw = load(name, data_folder, normalize_features=False)
    assert set(np.unique(raw.features.values)) == {1.0}


def test_the_full_split_trains_on_the_rest(data_folder, arrays, tmp_path):
    full = load("cora", data_folder, split="full")
    others = np.r_[full.val_idx, full.test_idx]
    assert (len(full.train_idx), len(others)) == (1208, 1500)
    np.testing.assert_array_equal(np.sort(np.r_[full.train_idx, others]), np.arange(2708))
    refused("public, full", load, "cora", data_folder, split="all")
    labels = np.array([-1, *arrays["labels"][1:]])  # a node without one trains in no split
    split = {"train_idx": [1], "val_idx": [2], "test_idx": [4]}
    np.savez(tmp_path / "ring.npz", **arrays | split | {"labels": labels})
    assert load("ring", tmp_path, split="full").train_idx.tolist() == [1, 3, 5]


def test_names_and_normalisation(arrays, tmp_path):
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
    np.savez(tmp_path / "cora.npz", **arrays)  # this name is reason enough
    for name in ("cora", tmp_path / "cora.npz"):
        assert np.asarray(load(name, tmp_path).features).max() < 1
    refused("no file *facebook.npz", load, "facebook", tmp_path)


def test_without_labels_the_features_stay_and_what_is_not_read_is_named(
    arrays, tmp_path, caplog
):
    own = {name: arrays[name] for name in ("edge_index", "features")}
    for more in ({}, {"labels": arrays["labels"]}, {"edge_time": np.arange(12)}):
        np.savez(tmp_path / "ring.npz", **own, **more)
        found = load_plain(tmp_path / "ring.npz", tmp_path)
        np.testing.assert_array_equal(found.features, arrays["features"])
        assert (found.graph.num_nodes, caplog.messages) == (6, [])
    np.savez(tmp_path / "ring.npz", **own, edge_attr=np.ones((6, 2)), train_mask=[True] * 6)
    load_plain(tmp_path / "ring.npz", tmp_path)
    assert "not read: edge_attr, train_mask" in caplog.text
    np.savez(tmp_path / "ring.npz", edge_index=own["edge_index"], feature_shape=[7, 2])
    assert load_plain(tmp_path / "ring.npz", tmp_path).graph.num_nodes == 7


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
    arrays["edge_index"] = np.array([[0, 0, 1, 1, 3, 3], [1, 1, 0, 2, 3, 3]])
    arrays["edge_weight"] = np.array([1, 5, 2, 0.5, 3, 4], np.float32)
    for name in ("ring", "cora"):
        np.savez(tmp_path / f"{name}.npz", **arrays)
        assert rows(load(name, tmp_path).graph) == [[1], [0, 0], [1], [3, 3], [], []]
        graph = load(name, tmp_path, symmetric=True).graph
        assert rows(graph) == [[1], [0, 2], [1], [3], [], []]
        # The largest weight of an edge's copies.
        np.testing.assert_array_equal(graph.edge_weight, [5, 5, 0.5, 0.5, 4])


@cases(
    "changes, says",
    ({"labels": None}, "no ['labels']"),
    ({"features": None}, "must hold `features`, or"),
    ({"edge_index": None}, "edge_index"),
    ({"edge_index": [[0, 9], [1, 0]]}, "[0, 6)"),
    ({"features": np.ones((4, 3))}, "[6, ...], as many rows as labels; got float64[4, 3]"),
    ({"features": np.float32(3)}, "as many rows as labels; got float32[]"),
    ({"labels": np.int32(3)}, "[N] or [N, C]"),
    ({"labels": np.array([{}] * 6, dtype=object)}, "pickle"),
    ({"num_classes": [1, 2]}, "must be an int"),
    ({"num_classes": 2}, "got 2 at node 2"),
    ({"class_names": np.arange(3)}, "must be text [C]; got int64[3]"),
    ({"class_names": ["a"]}, "class_names * one for each; got 1 for 3"),
    ({"num_nodes": [6, 6]}, "num_nodes in * must be an int"),
)
def test_broken_archives(arrays, tmp_path, changes, says):
    refused(says, load, "ring", write(tmp_path, {"ring.npz": arrays | changes}))


CSR = {
    "feature_indptr": np.arange(7),
    "feature_indices": np.array([0, 2, 1, 0, 0, 2], np.int32),
    "feature_values": np.arange(1, 7, dtype=np.float32),
    "feature_shape": np.array([6, 3]),
}


def test_csr_features(arrays, tmp_path):
    del arrays["features"]
    np.savez(tmp_path / "ring.npz", **arrays, **CSR)
    expected = np.zeros((6, 3))
    expected[np.arange(6), CSR["feature_indices"]] = CSR["feature_values"]
    found = load("ring", tmp_path).features.to_scipy().toarray()
    np.testing.assert_array_equal(found, expected)


@cases(
    "changes, says",
    ({"indices": np.full(6, 3)}, "sound CSR"),
    ({"indices": np.full(6, -1)}, "sound CSR"),
    ({"indices": np.zeros(6)}, "indices must be integers"),
    ({"indptr": np.arange(6)}, "sound CSR"),
    ({"shape": [7, 3]}, "sound CSR"),
    ({"shape": [6, 2**40]}, "columns must fit in 31 bits"),
    ({"values": np.ones(5)}, "sound CSR"),
    ({"values": np.full(6, np.nan)}, "finite"),
    ({"values": np.ones((6, 1))}, "one-dimensional"),
)
def test_broken_csr_features(arrays, tmp_path, changes, says):
    del arrays["features"]
    changes = {f"feature_{name}": array for name, array in changes.items()}
    np.savez(tmp_path / "ring.npz", **arrays, **(CSR | changes))
    refused(says, load, "ring", tmp_path)


# -- typed graphs ------------------------------------------------------------------------------


def test_acm(data_folder):
    archive = np.load(data_folder / "acm.npz")
    data = load("acm", data_folder)
    graph, schema = data.graph, data.graph.schema
    assert dict(schema.node_types) == {"paper": 4019, "author": 7167, "subject": 60}
    assert graph.num_edges == 2 * (13407 + 4019)
    assert [*map(len, splits(data))] == [180, 1000, 1000]
    assert np.bincount(data.labels + 1).tolist() == [7227, 1993, 965, 1061]
    assert data.features.widths == (1902, 0, 0)
    values = np.asarray(data.features.table("paper").values)
    np.testing.assert_array_equal(values, archive["paper_feature_values"])
    padded = load("acm", data_folder, features="padded").features
    assert padded.shape == (graph.num_nodes, 1902)
    np.testing.assert_array_equal(padded.values, archive["paper_feature_values"])
    ends = archive["paper_feature_indptr"]
    np.testing.assert_array_equal(padded.indptr, np.r_[ends, [ends[-1]] * (7167 + 60)])
    # The subjects of the papers, by the edges of one relation.
    kind = np.asarray(graph.edge_type) == schema.relation("paper_subject")
    found = graph.edge_index()[:, kind] - [[0], [schema.nodes("subject").start]]
    given = archive["paper_subject"]
    np.testing.assert_array_equal(*(each[:, np.lexsort(each)] for each in (found, given)))


TYPED = {
    "num_a": 2,
    "num_b": 3,
    "a_b": np.array([[0, 1, 1], [0, 0, 2]]),
    "b_labels": np.array([0, 1, -1]),
    "b_feature_values": np.ones(3, np.float32),  # a diagonal
    "b_feature_indices": np.arange(3),
    "b_feature_indptr": np.arange(4),
    "b_feature_shape": np.array([4, 3]),  # as if from a matrix of columns
    "train_idx": np.array([0]),
    "val_idx": np.array([], int),
    "test_idx": np.array([], int),
}


def test_a_typed_archive(tmp_path, caplog):
    np.savez(tmp_path / "t.npz", **TYPED)
    data = load("t", tmp_path, split="full")
    relations = (("a", "a_b", "b"), ("b", "rev_a_b", "a"))
    assert data.graph.schema == Schema((("a", 2), ("b", 3)), relations)
    assert np.asarray(data.graph.indices).tolist() == [2, 2, 4, 0, 1, 1]
    assert data.labels.tolist() == [-1, -1, 0, 1, -1]
    assert data.train_idx.tolist() == [2, 3]
    assert data.features.widths == (0, 4)
    assert np.asarray(data.features.table("b").indptr).tolist() == [0, 1, 2, 3]
    padded = load("t", tmp_path, features="padded").features
    assert np.asarray(padded.indptr).tolist() == [0, 0, 0, 1, 2, 3]
    dense = {k: v for k, v in TYPED.items() if "feature" not in k}
    np.savez(tmp_path / "t.npz", **dense, b_features=np.ones((3, 2), np.float32))
    data = load(tmp_path / "t.npz", both_ways=False, features="padded")
    assert data.graph.num_edges == 3
    assert np.asarray(data.features).sum(axis=1).tolist() == [0, 0, 2, 2, 2]
    both = dense | {"a_features": [[3], [1]], "b_features": np.ones((3, 2))}
    assert not caplog.messages
    np.savez(tmp_path / "t.npz", **both, a_cites_b=[[0], [1]])
    data = load(tmp_path / "t.npz", normalize_features=True)
    assert np.asarray(data.features.table("a")).tolist() == [[1], [1]]
    assert np.asarray(data.features.table("b")).tolist() == [[0.5, 0.5]] * 3
    assert "not read: a_cites_b" in caplog.text
    refused(
        "must be one of typed, padded; got 'wide'", load, tmp_path / "t.npz", features="wide"
    )


@cases(
    "change, says",
    ({"num_a": 1.5}, "num_a in"),
    ({"a_b": np.zeros((3, 2), int)}, "a_b must be [2, E]; got int64[3, 2]"),
    ({"a_b": np.array([[2], [0]])}, "src of (a, a_b, b) must be node ids in [0, 2); got 2"),
    ({"b_labels": None}, "must hold the labels of one type, and train_idx, val_idx, test"),
    ({"a_labels": np.zeros(2, int)}, "got labels of a, b"),
    ({"b_labels": np.zeros(2, int)}, "the labels of b in"),
    ({"num_a": 0}, "must have nodes of the type a; got 0"),
    ({"train_idx": np.array([3])}, "the train split of t must hold node ids"),
)
def test_unsound_typed_archives_are_refused(change, says, tmp_path):
    refused(says, load, "t", write(tmp_path, {"t.npz": TYPED | change}))
