import pickle
from collections import defaultdict

import numpy as np
import pytest
import scipy.sparse
from folders import cases, refused, rows, splits, write

from jgs.data import load


def files_of(name, features, labels, edges, num_train, num_other, test_idx):
    """The eight files of a graph whose test nodes, in this order, are `test_idx`."""
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
    files = {f"ind.{name}.{part}": pickle.dumps(value, 2) for part, value in parts.items()}
    return files | {f"ind.{name}.test.index": "".join(f"{i}\n" for i in test_idx)}


# 12 nodes, 6 of allx, test nodes 6..11 without 8; noisy edges.
KEEP = scipy.sparse.diags_array(1.0 * (np.arange(12) != 8))
FEATURES = scipy.sparse.csr_matrix(KEEP @ scipy.sparse.random(12, 5, 0.6, "csr", np.float32, 0))
FEATURES.eliminate_zeros()
LABELS = np.arange(12) % 3 * (np.arange(12) != 8)
EDGES = np.array([[0, 1, 1, 2, 3, 4, 9, 9], [1, 0, 2, 2, 4, 3, 11, 11]])
REST = (FEATURES, LABELS, EDGES, 2, 6, np.array([11, 6, 9, 7, 10]))
FILES = files_of("cora", *REST)


@pytest.mark.parametrize("place", [".", "cora", "cora/raw"])
def test_small_graph_with_a_gap(tmp_path, place):
    write(tmp_path / place, FILES)
    dataset = load("cora", tmp_path, normalize_features=False)
    found = dataset.features.to_scipy().toarray()
    np.testing.assert_array_equal(found, FEATURES.toarray())
    np.testing.assert_array_equal(dataset.labels, LABELS)
    assert splits(dataset) == [[0, 1], [2, 3, 4, 5], [6, 7, 9, 10, 11]]
    full = load("cora", tmp_path, split="full", normalize_features=False)
    assert splits(full) == splits(dataset)  # node 8 has no label
    expected = [[1], [0, 2], [1], [4], [3], [], [], [], [], [11], [], [9]]
    assert rows(dataset.graph) == expected


def test_a_folder_by_path_and_an_archive_that_comes_first(tmp_path, arrays):
    write(tmp_path / "other" / "raw", files_of("mine", *REST))
    assert load(tmp_path / "other").name == "mine"
    write(tmp_path, FILES)
    np.savez(tmp_path / "cora.npz", **arrays)
    assert load("cora", tmp_path).graph.num_nodes == 6


def test_a_real_graph_through_raw_files(data_folder, tmp_path):
    name = "citeseer"
    with np.load(data_folder / f"{name}.npz") as archive:
        arrays = dict(archive)
    csr = (arrays["feature_values"], arrays["feature_indices"], arrays["feature_indptr"])
    features = scipy.sparse.csr_matrix(csr, arrays["feature_shape"])
    test_idx = np.random.default_rng(0).permutation(arrays["test_idx"])
    num_train, num_other = len(arrays["train_idx"]), int(test_idx.min())
    edges = arrays["edge_index"]
    edges = edges[:, edges[0] < edges[1]]  # each pair once; below come a loop and a copy
    edges = np.c_[edges, edges[:, :5], [[3], [3]]]
    given = (features, arrays["labels"], edges, num_train, num_other, test_idx)
    write(tmp_path / name, files_of(name, *given))
    raw, archive = load(name, tmp_path), load(name, data_folder)
    assert rows(raw.graph) == [sorted(row) for row in rows(archive.graph)]
    np.testing.assert_array_equal(raw.features.indptr, archive.features.indptr)
    np.testing.assert_array_equal(raw.features.values, archive.features.values)
    np.testing.assert_array_equal(raw.labels, archive.labels)
    assert splits(raw) == splits(archive)
    assert (np.diff(raw.features.indptr) == 0).sum() == 15


def part(name, value):
    return {f"ind.cora.{name}": value if value is None else pickle.dumps(value, 2)}


def index_file(*nodes):
    return {"ind.cora.test.index": "".join(f"{node}\n" for node in nodes)}


@cases(
    "changes, says",
    (part("ty", None), "no ind.cora.ty"),
    (index_file(6, 7, 9, 10, 99), "6 to 99"),
    (index_file(1, 7, 9, 10, 11), "1 to 11"),
    (index_file(7, 7, 9, 10, 11), "must fit one another"),
    ({"ind.cora.allx": b""}, "whole"),
    (part("tx", np.ones(3)), "must hold a CSR matrix"),
    (part("tx", np.ones((5, 9))), "must fit one another"),
    (part("y", [1, 2]), "one-hot"),
    (part("ally", np.ones((6, 0))), "one-hot"),
    (part("graph", [1, 2]), "after the 6"),
    (part("graph", {v: [99] for v in range(12)}), "every node in [0, 12)"),
    (part("graph", dict.fromkeys(range(12), 1)), "every node in [0, 12)"),
    (part("graph", {v + 1: [] for v in range(12)}), "every node in [0, 12)"),
)
def test_broken_files(tmp_path, changes, says):
    refused(says, load, "cora", write(tmp_path, FILES | changes))


def test_missing_and_offline(tmp_path):
    refused("127.0.0.1:9/planetoid*pubmed/raw", load, "pubmed", tmp_path)
    refused("planetoid/ind.pubmed", load, "pubmed", tmp_path, download=False)
