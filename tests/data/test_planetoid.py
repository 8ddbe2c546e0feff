import pickle
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse

from jgs import InputError
from jgs.data import load
from jgs.data.formats.planetoid import PARTS


def write_raw(folder, name, features, labels, edges, num_train, num_other, test_idx):
    """The eight files of a graph whose test nodes, in this order, are `test_idx`."""
    folder.mkdir(parents=True, exist_ok=True)
    one_hot = np.eye(labels.max() + 1, dtype=np.int32)[labels]
    neighbours = defaultdict(list, {v: [] for v in range(len(labels))})
    for u, v in edges.T.tolist():
        neighbours[u].append(v)
    parts = {
        "x": features[:num_train],
        "tx": features[test_idx],
        "allx": features[:num_other],
        "y": one_hot[:num_train],
        "ty": one_hot[test_idx],
        "ally": one_hot[:num_other],
        "graph": neighbours,
    }
    for part, value in parts.items():
        (folder / f"ind.{name}.{part}").write_bytes(pickle.dumps(value, 2))
    text = "".join(f"{i}\n" for i in test_idx)
    (folder / f"ind.{name}.test.index").write_text(text)


def fake(folder, name="cora"):
    """12 nodes, 6 of allx, test nodes 6..11 without 8; noisy edges."""
    features = scipy.sparse.random(12, 5, 0.6, "csr", np.float32, 0)
    keep = scipy.sparse.diags_array(1.0 * (np.arange(12) != 8))
    features = scipy.sparse.csr_matrix(keep @ features)
    features.eliminate_zeros()
    labels = np.arange(12) % 3
    labels[8] = 0
    edges = np.array([[0, 1, 1, 2, 3, 4, 9, 9], [1, 0, 2, 2, 4, 3, 11, 11]])
    write_raw(folder, name, features, labels, edges, 2, 6, np.array([11, 6, 9, 7, 10]))
    return features, labels


@pytest.mark.parametrize("place", [".", "cora", "cora/raw"])
def test_small_graph_with_a_gap(tmp_path, place):
    features, labels = fake(tmp_path / place)
    dataset = load("cora", tmp_path, normalize_features=False)
    got = dataset.features
    parts = tuple(np.asarray(a) for a in (got.values, got.indices, got.indptr))
    np.testing.assert_array_equal(
        scipy.sparse.csr_matrix(parts, got.shape).toarray(), features.toarray()
    )
    np.testing.assert_array_equal(dataset.labels, labels)
    np.testing.assert_array_equal(dataset.train_idx, [0, 1])
    np.testing.assert_array_equal(dataset.val_idx, [2, 3, 4, 5])
    np.testing.assert_array_equal(dataset.test_idx, [6, 7, 9, 10, 11])
    full = load("cora", tmp_path, split="full", normalize_features=False)
    np.testing.assert_array_equal(full.train_idx, [0, 1])  # node 8 has no label
    np.testing.assert_array_equal(full.val_idx, dataset.val_idx)
    rows = np.split(np.asarray(dataset.graph.indices), np.asarray(dataset.graph.indptr)[1:-1])
    expected = [[1], [0, 2], [1], [4], [3], [], [], [], [], [11], [], [9]]
    assert [r.tolist() for r in rows] == expected


def test_a_folder_by_path(tmp_path):
    fake(tmp_path / "other" / "raw", "mine")
    assert load(tmp_path / "other").name == "mine"


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_real_graph_through_raw_files(real_data, tmp_path, name):
    with np.load(real_data / f"{name}.npz") as archive:
        arrays = dict(archive)
    csr = (arrays["feature_values"], arrays["feature_indices"], arrays["feature_indptr"])
    features = scipy.sparse.csr_matrix(csr, arrays["feature_shape"])
    test_idx = np.random.default_rng(0).permutation(arrays["test_idx"])
    num_train, num_other = len(arrays["train_idx"]), int(test_idx.min())
    edges = arrays["edge_index"]
    edges = edges[:, edges[0] < edges[1]]  # each pair once; below come a loop and a copy
    edges = np.c_[edges, edges[:, :5], [[3], [3]]]
    write_raw(
        tmp_path / name, name, features, arrays["labels"], edges, num_train, num_other, test_idx
    )
    raw, archive = load(name, tmp_path), load(name, real_data)
    np.testing.assert_array_equal(raw.graph.indptr, archive.graph.indptr)
    for a, b in zip(_rows(raw.graph), _rows(archive.graph), strict=True):
        np.testing.assert_array_equal(a, np.sort(b))
    for read in (
        lambda d: d.features.indptr,
        lambda d: d.features.values,
        lambda d: d.labels,
        lambda d: d.train_idx,
        lambda d: d.val_idx,
        lambda d: d.test_idx,
    ):
        np.testing.assert_array_equal(read(raw), read(archive))
    zero = int((np.diff(np.asarray(raw.features.indptr)) == 0).sum())
    assert zero == (15 if name == "citeseer" else 0)


def _rows(graph):
    return np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])


def test_archive_comes_first(tmp_path, arrays):
    fake(tmp_path)
    np.savez(tmp_path / "cora.npz", **arrays)
    assert load("cora", tmp_path).graph.num_nodes == 6


def replace(part, value):
    def change(folder):
        (folder / f"ind.cora.{part}").write_bytes(pickle.dumps(value, 2))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "ind.cora.ty").unlink(), r"no ind\.cora\.ty"),
        (lambda f: (f / "ind.cora.test.index").write_text("x\n"), "int64"),
        (lambda f: (f / "ind.cora.test.index").write_text("6\n7\n9\n10\n99\n"), "6 to 99"),
        (lambda f: (f / "ind.cora.test.index").write_text("1\n7\n9\n10\n11\n"), "1 to 11"),
        (lambda f: (f / "ind.cora.test.index").write_text("7\n7\n9\n10\n11\n"), "fit one"),
        (lambda f: (f / "ind.cora.test.index").write_text("7\n"), "fit one another"),
        (lambda f: (f / "ind.cora.allx").write_bytes(b""), "whole"),
        (replace("tx", np.ones(3)), "must hold a CSR matrix"),
        (replace("tx", np.ones((5, 9))), "fit one another"),
        (replace("y", [1, 2]), "one-hot"),
        (replace("ally", np.ones((6, 0))), "one-hot"),
        (replace("graph", [1, 2]), "fit|after the 6"),
        (replace("graph", {v: [99] for v in range(12)}), r"every node in \[0, 12\)"),
        (replace("graph", {v: 1 for v in range(12)}), r"every node in \[0, 12\)"),
        (replace("graph", {v: ["a"] for v in range(12)}), r"every node in \[0, 12\)"),
        (replace("graph", {v + 1: [] for v in range(12)}), r"every node in \[0, 12\)"),
    ],
)
def test_broken_files(tmp_path, change, message):
    fake(tmp_path)
    change(tmp_path)
    with pytest.raises(InputError, match=message) as caught:
        load("cora", tmp_path)
    assert "\n" not in str(caught.value)


def test_missing_and_offline(tmp_path):
    with pytest.raises(InputError, match=r"127\.0\.0\.1:9/planetoid.*pubmed/raw") as caught:
        load("pubmed", tmp_path)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"planetoid/ind\.pubmed"):
        load("pubmed", tmp_path, download=False)


def test_there_are_eight_parts():
    assert len(PARTS) == 8
