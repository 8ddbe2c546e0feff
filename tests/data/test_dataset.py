"""The rules of a data set's arrays: of one type of nodes, of several, and of padded ones."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.sparse
from folders import cases, is_mapped, refused

from jgs import Graph, Schema, SparseFeatures
from jgs.data import load
from jgs.data.dataset import Dataset
from jgs.data.values import padded
from jgs.graph import TypedFeatures, as_device
from jgs.train.loop.open_data import fingerprint


def build(arrays, **changes):
    kept = {k: v for k, v in arrays.items() if k != "edge_index"} | changes
    options = {k: kept.pop(k) for k in list(kept) if k not in arrays}
    graph = Graph.from_edges(*arrays["edge_index"], 6)
    features, labels, *ids = kept.values()
    splits = dict(zip(("train", "val", "test"), ids, strict=True))
    return Dataset.from_arrays(graph, features, labels, splits, name="ring", **options)


NUMBERS = np.array([0, 1, 0.5, 0, 1, 2])


def at(place, value, dtype=int):
    """Labels of which one is this."""
    labels = np.array([0, 1, 2, 0, 1, 2], dtype)
    labels[place] = value
    return labels


@cases(
    "changes, says",
    ({"features": np.ones((5, 3))}, "[6, F], one row for every node; got float32[5, 3]"),
    ({"features": np.ones(6)}, "must be numbers [N, F]; got float64[6]"),
    ({"features": np.where(np.arange(18) == 7, np.nan, 1).reshape(6, 3)}, "in row 2"),
    ({"features": np.full((6, 3), 1e300)}, "in row 0"),
    ({"labels": np.array([0, 1, 2])}, "one for every node"),
    ({"labels": at(5, 9), "num_classes": 3}, "got 9 at node 5"),
    ({"labels": at(2, -2)}, "got -2 at node 2"),
    ({"labels": NUMBERS, "label_kind": "class"}, "whole numbers; got 0.5 at node 2"),
    ({"labels": NUMBERS, "num_classes": 3}, "with num_classes 1"),
    ({"labels": np.array([0.5, np.nan, 2, 0, 1, 2])}, "node 1, which has none (NaN)"),
    ({"labels": np.arange(6), "label_kind": "rank"}, "must be one of class, number"),
    ({"labels": at(2, 2**40)}, "whole numbers"),
    ({"labels": at(1, -1)}, "node 1, which has none"),
    ({"labels": np.full((6, 2), 0.5), "label_kind": "class"}, "must be 0 or 1"),
    ({"labels": np.array([[0.5, np.inf]] * 6)}, "must be finite"),
    ({"labels": np.array([[0.5, 1]] + [[np.nan] * 2] * 5)}, "which has none (NaN)"),
    ({"labels": np.ones((6, 2)), "num_classes": 3}, "must be float32 [N, 3]"),
    ({"train_idx": np.array([], np.int32)}, "train split of ring must not be empty"),
    ({"test_idx": np.array([0, -1])}, "got -1 at position 1"),
    ({"val_idx": np.array([2**64 - 1], np.uint64)}, "val split* got 18446744073709551615"),
    ({"train_idx": np.array([1, 5, 0, 0])}, "each node of ring * node 0 2 times in train"),
    ({"test_idx": np.array([4, 3, 2])}, "node 2 in val and in test (2 such nodes)"),
    ({"labels": at(4, 2e9, float)}, "got 2000000001, * label of node 4"),
    ({"num_classes": 2**63}, "number of classes of ring must be in [1, 65536]"),
    ({"labels": np.ones((6, 0))}, "got 0"),
)
def test_broken_rules_are_named_in_one_line(arrays, changes, says):
    refused(says, build, arrays, **changes)


def test_scipys_dok_is_a_matrix_and_no_dict(arrays):
    arrays["features"] = scipy.sparse.dok_array((6, 4))
    assert build(arrays).features.shape == (6, 4)


def test_labels_and_splits_are_copied(arrays):
    data = build(arrays)
    assert not any(np.shares_memory(data.labels, array) for array in arrays.values())
    assert not np.shares_memory(data.train_idx, arrays["train_idx"])
    refused("must be in [1, 65536]; got 0", build, arrays, num_classes=0)


def test_a_graph_without_edges_is_taken_with_a_word(arrays, caplog):
    arrays["edge_index"] = np.empty((2, 0), int)
    assert build(arrays).graph.num_edges == 0
    (record,) = caplog.records
    assert record.getMessage() == "ring has no edges: every node is by itself"


def test_check_guards_data_sets_made_by_hand(arrays):
    dataset = build(arrays)
    for change, says in [
        ({"labels": dataset.labels.astype(np.int64)}, "int32"),
        ({"train_idx": np.array([0])}, "int32"),
        ({"features": as_device(np.ones((6, 3), np.int32))}, "float32 or float16"),
    ]:
        refused(says, dataclasses.replace(dataset, **change).check)
    nan = np.ones((6, 3), np.float32)
    nan[4, 1] = np.nan
    broken = dataclasses.replace(dataset, features=as_device(nan))
    assert isinstance(broken.check(values=False), Dataset)
    refused("row 4", broken.check)


def test_sparse_features_stay_sparse_and_are_checked(arrays):
    matrix = scipy.sparse.random(6, 9, 0.4, "csr", None, 0)
    dataset = build(arrays, features=matrix)
    assert isinstance(dataset.features, SparseFeatures)
    assert dataset.features.shape == (6, 9)
    values = np.asarray(dataset.features.values).copy()
    values[-1] = np.nan
    last = int(np.flatnonzero(np.diff(matrix.indptr))[-1])
    broken = dataclasses.replace(dataset.features, values=as_device(values))
    refused(f"row {last}", dataclasses.replace(dataset, features=broken).check)
    matrix.data[0] = np.inf
    refused("finite", build, arrays, features=matrix)


def test_row_normalisation(arrays):
    x = np.array([[1, 3], [0, 0], [2, 2], [5, 0], [0, 1], [1, 1]], np.float32)
    expected = [[0.25, 0.75], [0, 0], [0.5, 0.5], [1, 0], [0, 1], [0.5, 0.5]]
    dense = build(arrays, features=x, normalize_features=True)
    np.testing.assert_allclose(dense.features, expected, rtol=1e-6)
    sparse = build(arrays, features=scipy.sparse.csr_matrix(x), normalize_features=True)
    found = sparse.features.to_scipy().toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    refused("must not be negative", build, arrays, features=-x, normalize_features=True)


# -- typed graphs ------------------------------------------------------------------------------

COUNTS = {"user": 50, "item": 1200, "shop": 3}
RNG = np.random.default_rng(0)
USERS = RNG.standard_normal((50, 3)).astype(np.float32)
ITEMS = scipy.sparse.random(1200, 30, 0.2, "csr", np.float32, np.random.default_rng(1))
LABELS = np.arange(1200) % 4
BUYS = (np.arange(50), np.arange(50) * 7)
EDGES = {("user", "buys", "item"): BUYS, ("shop", "sells", "item"): ([0, 1, 2], [0, 0, 3])}


def make(**changes):
    given = {
        "graph": Graph.from_relations(COUNTS, EDGES),
        "features": {"user": USERS.astype(np.float16), "item": ITEMS},
        "labels": {"item": LABELS},
        "splits": {"train": np.arange(100), "test": np.arange(1200) >= 1190},
    }
    return Dataset.from_arrays(**(given | changes))


def test_labels_and_splits_are_those_of_one_type():
    data = make()
    nodes = data.graph.schema.nodes("item")
    assert (data.labels[nodes.start : nodes.stop] == LABELS).all()
    assert (np.delete(data.labels, nodes) == -1).all()
    assert data.train_idx.tolist() == [*range(nodes.start, nodes.start + 100)]
    assert data.test_idx.tolist() == [*range(nodes.stop - 10, nodes.stop)]
    assert "features=user 3, item 30 sparse, shop none" in repr(data)
    assert data.features.table("user").dtype == np.float16
    split = np.array(["train", "val", None], object)
    names = make(labels={"shop": ["b", "a", None]}, splits=split)
    assert (names.train_idx.tolist(), names.val_idx.tolist()) == ([1250], [1251])
    assert (names.labels[-3:].tolist(), names.class_names) == ([1, 0, -1], ("a", "b"))
    several = make(labels={"shop": np.eye(3, 4)}, splits={"train": [2]})
    assert several.labels.sum() == 3
    assert several.labels[1252].tolist() == [0, 0, 1, 0]
    assert data.dataset().features is data.features


def test_a_saved_folder_opens_as_memory_maps(tmp_path, same_bits):
    for change in ({}, {"features": {"item": USERS[:1].repeat(1200, 0)}}, {"features": {}}):
        data = make(**change)
        data.save(tmp_path / "mine")
        opened = load(tmp_path / "mine")
        same_bits(opened.features, data.features)
        np.testing.assert_array_equal(opened.labels, data.labels)
        np.testing.assert_array_equal(opened.train_idx, data.train_idx)
        assert fingerprint(opened) == fingerprint(data)
        for leaf in jax.tree.leaves(opened.features):
            assert leaf.nbytes < 4096 or is_mapped(leaf, tmp_path)


def test_fingerprints_tell_types_apart():
    whole = fingerprint(make())["features"]
    other = {"user": USERS.astype(np.float16), "item": ITEMS, "shop": np.ones((3, 2))}
    changed = ITEMS.copy()
    changed.data[0] += 1
    for features in (other, other | {"item": changed}, {"item": ITEMS}, {"user": USERS}):
        assert fingerprint(make(features=features))["features"] != whole


def test_rows_are_normalised_within_their_type():
    positive = {"user": np.abs(USERS), "item": abs(ITEMS)}
    data = make(features=positive, normalize_features=True)
    user, item = (data.features.table(each) for each in ("user", "item"))
    for sums in (np.asarray(user).sum(1), item.to_scipy().sum(1)):
        np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-5)


@cases(
    "change, says",
    ({"features": {"buyer": USERS}}, "must be one of user, item, shop"),
    ({"features": {"user": USERS[:7]}}, "must be [50, F], one row for each of its nodes"),
    ({"labels": {"item": LABELS, "user": LABELS}}, "must be for one type"),
    ({"labels": {"item": LABELS[1:]}}, "one for every node of their type"),
    ({"labels": {"user": LABELS[:50]}, "splits": {"train": [50]}}, "must hold node ids"),
    ({"splits": {"train": np.ones(1253, bool)}}, "must be [1200], one a node"),
)
def test_what_does_not_fit_the_types_is_refused(change, says):
    refused(says, make, **change)


def test_types_need_a_schema():
    typed = make()
    plain = Graph(typed.graph.indptr, typed.graph.indices)
    for change in ({"features": np.ones((1253, 2))}, {"labels": np.zeros(1253, int)}):
        given = {"graph": plain, "splits": {"train": [0]}} | change
        refused("a graph with a schema", make, **given)
    features = typed.features
    other = Graph.from_relations({"a": 1253}, {("a", "to", "a"): ([0], [1])})
    given = {"labels": {"a": np.zeros(1253)}, "splits": {"train": [0]}, "features": features}
    refused("the node types of its graph", make, graph=other, **given)
    bad = TypedFeatures((features.tables[0][:9], *features.tables[1:]), features.schema)
    refused("user in custom must be [50, F], one row for every node", make, features=bad)


# -- one matrix of all types -------------------------------------------------------------------

A = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
B = -A[:2]


@pytest.mark.parametrize("sparse", [(), ("a",), ("b",), ("a", "b")])
@pytest.mark.parametrize("parts", [(), ((1, 1, 0), (0, 1, 2), (2, 0, 0))])
def test_padded_rows_are_in_the_order_of_ids(sparse, parts):
    schema = Schema((("a", 3), ("none", 2), ("b", 2)), parts=parts)
    tables = {"a": A, "b": B}
    given = {k: scipy.sparse.csr_array(t) if k in sparse else t for k, t in tables.items()}
    found = padded("it", TypedFeatures.from_dict(schema, given))
    assert isinstance(found, SparseFeatures) == bool(sparse)
    assert found.shape == (7, 2)
    expected = np.zeros((7, 2), np.float32)
    for name, table in tables.items():
        ids = np.concatenate([np.arange(r.start, r.stop) for r in schema.ranges(name)])
        expected[ids] = table
    dense = found.to_scipy().toarray() if sparse else np.asarray(found)
    np.testing.assert_array_equal(dense, expected)


def test_dtypes_of_padded_rows():
    schema = Schema((("a", 3), ("b", 2)))
    half = TypedFeatures.from_dict(schema, {"a": A.astype(np.float16)})
    assert padded("it", half).dtype == np.float16
    mixed = TypedFeatures.from_dict(schema, {"a": A.astype(np.float16), "b": B})
    assert padded("it", mixed).dtype == np.float32
    assert padded("it", TypedFeatures.from_dict(schema, {})).shape == (5, 0)
