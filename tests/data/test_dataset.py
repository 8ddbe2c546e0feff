import dataclasses

import numpy as np
import pytest
import scipy.sparse

from jgs import Graph, InputError, SparseFeatures
from jgs.data.dataset import Dataset, assemble
from jgs.graph import as_device


def build(arrays, **changes):
    kept = {k: v for k, v in arrays.items() if k != "edge_index"} | changes
    options = {k: kept.pop(k) for k in list(kept) if k not in arrays}
    graph = Graph.from_edges(*arrays["edge_index"], 6)
    return assemble("ring", graph, *kept.values(), **options)


def test_a_sound_data_set_keeps_its_arrays(arrays):
    dataset = build(arrays)
    np.testing.assert_array_equal(dataset.features, arrays["features"])
    np.testing.assert_array_equal(dataset.labels, arrays["labels"])
    assert dataset.num_classes == 3
    assert not dataset.multilabel
    assert (dataset.labels.dtype, dataset.train_idx.dtype) == (np.int32, np.int32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones((5, 3))}, r"one row for every node; got shape \[5, 3\]"),
        ({"features": np.ones((7, 3))}, r"one row for every node; got shape \[7, 3\]"),
        ({"features": np.ones(6)}, "matrix of numbers"),
        ({"features": np.full((6, 3), "x")}, "matrix of numbers"),
        ({"features": np.where(np.arange(18) == 7, np.nan, 1).reshape(6, 3)}, "in row 2"),
        ({"features": np.where(np.arange(18) == 16, np.inf, 1).reshape(6, 3)}, "in row 5"),
        ({"features": np.full((6, 3), 1e300)}, "in row 0"),
        ({"labels": np.array([0, 1, 2])}, "one for every node"),
        ({"labels": np.array([0, 1, 2, 0, 1, 9]), "num_classes": 3}, "got 9 at node 5"),
        ({"labels": np.array([0, 1, -2, 0, 1, 2])}, "got -2 at node 2"),
        (
            {"labels": np.array([0, 1, 0.5, 0, 1, 2]), "label_kind": "class"},
            "whole numbers; got 0.5 at node 2",
        ),
        ({"labels": np.array([0, 1, 0.5, 0, 1, 2]), "num_classes": 3}, "with num_classes 1"),
        ({"labels": np.array([0.5, np.nan, 2, 0, 1, 2])}, r"node 1, which has none \(NaN\)"),
        ({"labels": np.arange(6), "label_kind": "rank"}, "must be class or number"),
        ({"labels": np.array([0, 1, 2**40, 0, 1, 2])}, "whole numbers"),
        ({"labels": np.array([0, -1, 2, 0, 1, 2])}, "node 1, which has none"),
        ({"labels": np.full((6, 2), 2)}, "must be 0 or 1.* label_kind=number"),
        ({"labels": np.full((6, 2), 0.5), "label_kind": "class"}, "must be 0 or 1"),
        ({"labels": np.array([[0.5, np.inf]] * 6)}, "must be finite"),
        ({"labels": np.array([[0.5, 1]] + [[np.nan] * 2] * 5)}, r"which has none \(NaN\)"),
        ({"labels": np.ones((6, 2)), "num_classes": 3}, "3 classes"),
        ({"train_idx": np.array([], np.int32)}, "train split of ring must not be empty"),
        ({"val_idx": np.array([6])}, "got 6 at position 0"),
        ({"test_idx": np.array([0, -1])}, "got -1 at position 1"),
        ({"test_idx": np.array([0, 2**40])}, "test split.* got 1099511627776 at position 1"),
        ({"val_idx": np.array([2**64 - 1], np.uint64)}, "val split.* got 18446744073709551615"),
        ({"test_idx": np.array([0.0])}, "test split .* one-dimensional array of node ids"),
        ({"train_idx": np.ones(6, bool)}, "flatnonzero"),
        ({"val_idx": np.array([3, 2, 3])}, "each node of ring .* got node 3 2 times in val"),
        ({"train_idx": np.array([1, 5, 1, 0, 0, 0])}, "got node 0 3 times in train"),
        ({"test_idx": np.array([4, 3, 2])}, r"node 2 in val and in test \(2 such nodes\)"),
        ({"test_idx": np.array([5, 1])}, r"node 1 in train and in test \(1 such nodes\)"),
        ({"labels": np.array([0, 1, 2, 0, 2e9, 2])}, "got 2000000001, .* label of node 4"),
        ({"num_classes": 2**63}, r"number of classes of ring must be in \[1, 65536\]"),
        ({"num_classes": 2_000_000_000}, "got 2000000000"),
        ({"num_classes": 0}, "got 0"),
        ({"labels": np.ones((6, 0))}, "got 0"),
    ],
)
def test_broken_rules_are_named_in_one_line(arrays, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        build(arrays, **changes)
    assert "\n" not in str(caught.value)


def test_a_graph_without_edges_is_taken_with_a_word(arrays, caplog):
    arrays["edge_index"] = np.empty((2, 0), int)
    assert build(arrays).graph.num_edges == 0
    assert [r.getMessage() for r in caplog.records] == [
        "ring has no edges: every node is by itself"
    ]


def test_check_guards_data_sets_made_by_hand(arrays):
    dataset = build(arrays)
    for change, message in [
        ({"labels": dataset.labels.astype(np.int64)}, "int32"),
        ({"train_idx": np.array([0])}, "int32"),
        ({"features": as_device(np.ones((6, 3), np.int32))}, "float32 or float16"),
    ]:
        with pytest.raises(InputError, match=message):
            dataclasses.replace(dataset, **change).check()
    nan = np.ones((6, 3), np.float32)
    nan[4, 1] = np.nan
    broken = dataclasses.replace(dataset, features=as_device(nan))
    assert isinstance(broken.check(values=False), Dataset)
    with pytest.raises(InputError, match="row 4"):
        broken.check()


def test_sparse_features_stay_sparse_and_are_checked(arrays):
    matrix = scipy.sparse.random(6, 9, 0.4, "csr", None, 0)
    dataset = build(arrays, features=matrix)
    assert isinstance(dataset.features, SparseFeatures)
    assert dataset.features.shape == (6, 9)
    values = np.asarray(dataset.features.values).copy()
    values[-1] = np.nan
    last = int(np.flatnonzero(np.diff(matrix.indptr))[-1])
    broken = dataclasses.replace(dataset.features, values=as_device(values))
    with pytest.raises(InputError, match=f"row {last}"):
        dataclasses.replace(dataset, features=broken).check()
    matrix.data[0] = np.inf
    with pytest.raises(InputError, match="finite"):
        build(arrays, features=matrix)


def test_row_normalisation(arrays):
    x = np.array([[1, 3], [0, 0], [2, 2], [5, 0], [0, 1], [1, 1]], np.float32)
    expected = [[0.25, 0.75], [0, 0], [0.5, 0.5], [1, 0], [0, 1], [0.5, 0.5]]
    dense = build(arrays, features=x, normalize_features=True)
    np.testing.assert_allclose(dense.features, expected, rtol=1e-6)
    sparse = build(
        arrays, features=scipy.sparse.csr_matrix(x), normalize_features=True
    ).features
    parts = tuple(np.asarray(a) for a in (sparse.values, sparse.indices, sparse.indptr))
    rebuilt = scipy.sparse.csr_matrix(parts, shape=sparse.shape)
    np.testing.assert_allclose(rebuilt.toarray(), expected, rtol=1e-6)
    with pytest.raises(InputError, match="must not be negative"):
        build(arrays, features=-x, normalize_features=True)


def test_labels_in_their_other_forms(arrays):
    floats = np.array([[0.0], [1], [np.nan], [0], [1], [2]])
    dataset = build(arrays, labels=floats, val_idx=np.array([3]))
    np.testing.assert_array_equal(dataset.labels, [0, 1, -1, 0, 1, 2])
    multi = np.eye(6, 4, dtype=np.int64)
    dataset = build(arrays, labels=multi)
    assert dataset.multilabel
    assert dataset.num_classes == 4
    assert dataset.labels.dtype == np.float32


def test_memory_mapped_features_are_used_where_they_lie(arrays, tmp_path):
    for dtype in (np.float32, np.float16):
        np.save(tmp_path / "x.npy", arrays["features"].astype(dtype))
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        features = build(arrays, features=mapped).features
        assert features.dtype == dtype
        assert features.unsafe_buffer_pointer() == mapped.ctypes.data
