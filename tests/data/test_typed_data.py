"""Data sets of typed graphs: features of another width, dtype and sparsity for each node type,
and labels of one type."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.sparse

from jgs import Graph, InputError
from jgs.data import Dataset, load
from jgs.data.__main__ import main
from jgs.data.dataset import Plain
from jgs.graph import SparseFeatures, TypedFeatures
from jgs.train.loop.fingerprint import fingerprint

COUNTS = {"user": 50, "item": 1200, "shop": 3}
RNG = np.random.default_rng(0)
USERS = RNG.standard_normal((50, 3)).astype(np.float32)
ITEMS = scipy.sparse.random(1200, 30, 0.2, "csr", np.float32, np.random.default_rng(1))
LABELS = np.arange(1200) % 4


@pytest.fixture
def graph():
    edges = {
        ("user", "buys", "item"): (np.arange(50), np.arange(50) * 7),
        ("shop", "sells", "item"): ([0, 1, 2], [0, 0, 3]),
    }
    return Graph.from_relations(COUNTS, edges)


@pytest.fixture
def make(graph):
    def make(**changes):
        given = {
            "graph": graph,
            "features": {"user": USERS.astype(np.float16), "item": ITEMS},
            "labels": {"item": LABELS},
            "splits": {"train": np.arange(100), "test": np.arange(1200) >= 1190},
        }
        return Dataset.from_arrays(**(given | changes))

    return make


def same(one: Dataset, two: Dataset):
    assert jax.tree.structure(one.features) == jax.tree.structure(two.features)
    for a, b in zip(jax.tree.leaves(one.features), jax.tree.leaves(two.features), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.train_idx, two.train_idx)
    assert fingerprint(one) == fingerprint(two)


def test_labels_and_splits_are_those_of_one_type(make, graph):
    data = make()
    nodes = graph.schema.nodes("item")
    assert (data.labels[nodes.start : nodes.stop] == LABELS).all()
    assert (np.delete(data.labels, nodes) == -1).all()
    assert data.train_idx.tolist() == [*range(nodes.start, nodes.start + 100)]
    assert data.test_idx.tolist() == [*range(nodes.stop - 10, nodes.stop)]
    assert "features=user 3, item 30 sparse, shop none" in repr(data)
    assert data.features.table("user").dtype == np.float16
    names = make(
        labels={"shop": ["b", "a", None]}, splits=np.array(["train", "val", None], object)
    )
    assert (names.train_idx.tolist(), names.val_idx.tolist()) == ([1250], [1251])
    assert (names.labels[-3:].tolist(), names.class_names) == ([1, 0, -1], ("a", "b"))
    several = make(labels={"shop": np.eye(3, 4)}, splits={"train": [2]})
    assert several.labels.sum() == 3
    assert several.labels[1252].tolist() == [0, 0, 1, 0]
    assert Plain.of(data).dataset().features is data.features


def test_a_saved_folder_opens_as_memory_maps(make, tmp_path):
    for change in ({}, {"features": {"item": USERS[:1].repeat(1200, 0)}}, {"features": {}}):
        data = make(**change)
        data.save(tmp_path / "mine")
        opened = load(tmp_path / "mine")
        same(opened, data)
        maps = Path("/proc/self/maps").read_text().splitlines()
        bounds = [line.split()[0].split("-") for line in maps if str(tmp_path) in line]
        ranges = [[int(bound, 16) for bound in each] for each in bounds]
        for leaf in jax.tree.leaves(opened.features):
            if leaf.nbytes >= 4096:
                assert any(a <= leaf.unsafe_buffer_pointer() < b for a, b in ranges)


def test_the_command_describes_each_type(make, tmp_path, capsys):
    make().save(tmp_path / "mine")
    assert main(["describe", str(tmp_path / "mine")]) == 0
    found = json.loads(capsys.readouterr().out)
    widths = {name: each["width"] for name, each in found["features_of_types"].items()}
    assert widths == {"user": 3, "item": 30, "shop": 0}


def test_fingerprints_tell_types_apart(make):
    whole = fingerprint(make())["features"]
    other = {"user": USERS.astype(np.float16), "item": ITEMS, "shop": np.ones((3, 2))}
    changed = ITEMS.copy()
    changed.data[0] += 1
    for features in (other, other | {"item": changed}, {"item": ITEMS}, {"user": USERS}):
        assert fingerprint(make(features=features))["features"] != whole


def test_rows_are_normalised_within_their_type(make):
    positive = {"user": np.abs(USERS), "item": abs(ITEMS)}
    data = make(features=positive, normalize_features=True)
    np.testing.assert_allclose(np.asarray(data.features.table("user")).sum(1), 1, rtol=1e-5)
    item = data.features.table("item")
    assert isinstance(item, SparseFeatures)
    filled = np.diff(ITEMS.indptr) > 0
    np.testing.assert_allclose(item.to_scipy().sum(1)[filled], 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"features": {"buyer": USERS}}, "must be one of user, item, shop"),
        ({"features": {"user": USERS[:7]}}, "one row for each of its 50 nodes"),
        ({"labels": {"item": LABELS, "user": LABELS}}, "must be for one type"),
        ({"labels": {"item": LABELS[1:]}}, "one for every node of their type"),
        ({"labels": {"user": LABELS[:50]}, "splits": {"train": [50]}}, "must hold node ids"),
        ({"splits": {"train": np.ones(1253, bool)}}, "an entry for every node"),
    ],
)
def test_what_does_not_fit_the_types_is_refused(make, change, says):
    with pytest.raises(InputError, match=says):
        make(**change)


def test_types_need_a_schema(make, graph):
    plain = Graph(graph.indptr, graph.indices)
    for change in ({"features": np.ones((1253, 2))}, {"labels": np.zeros(1253, int)}):
        with pytest.raises(InputError, match="a graph with a schema"):
            make(graph=plain, splits={"train": [0]}, **change)
    features = {"features": make().features}
    other = Graph.from_relations({"a": 1253}, {("a", "to", "a"): ([0], [1])})
    with pytest.raises(InputError, match="the node types of its graph"):
        make(graph=other, labels={"a": np.zeros(1253)}, splits={"train": [0]}, **features)
    features = make().features
    bad = TypedFeatures((features.tables[0][:9], *features.tables[1:]), features.schema)
    with pytest.raises(InputError, match="user in custom must have one row"):
        make(features=bad)
