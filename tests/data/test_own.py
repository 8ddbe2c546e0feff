"""A user's own data set: from arrays, saved and opened, and from tables of nodes and edges."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import scipy.sparse
from folders import cases, edges, refused, splits, write

from jgs import Graph, NodeIds, SparseFeatures
from jgs.data import Dataset, load
from jgs.data.described import facts
from jgs.data.plain import load_plain

SPLIT = ["train", "train", "val", "val", "test", None]


@pytest.fixture
def make(arrays):
    def make(**changes):
        given = {
            "graph": Graph.from_edge_index(arrays["edge_index"], 6, np.arange(12.0)),
            "features": arrays["features"],
            "labels": arrays["labels"],
            "splits": {"train": [0, 1], "val": np.arange(6) // 2 == 1, "test": [4, 5]},
        }
        return Dataset.from_arrays(**(given | changes))

    return make


def same(one: Dataset, two: Dataset):
    assert jax.tree.structure(one.graph) == jax.tree.structure(two.graph)
    for field in dataclasses.fields(Dataset):
        first, second = getattr(one, field.name), getattr(two, field.name)
        if field.name == "node_ids":
            first, second = (ids and ids.values.tolist() for ids in (first, second))
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
            assert np.array_equal(a, b), field.name
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None), field.name


def test_one_call_saves_and_opens_by_name_or_path(make, arrays, tmp_path):
    graph = make().graph
    for change in (
        {},
        {"name": "own", "node_ids": NodeIds(list("aüßd€f")), "class_names": "xyz"},
        {"node_ids": NodeIds(np.arange(6) * 10**12)},
        {"features": scipy.sparse.csr_array(arrays["features"])},
        {"features": SparseFeatures.from_scipy(scipy.sparse.csr_array(arrays["features"]))},
        {"labels": np.eye(6, 4)},
        {"graph": Graph(graph.indptr, graph.indices, None, {"time": np.arange(12)})},
        {"graph": Graph.from_relations({"a": 2, "b": 4}, {("a", "r", "b"): ([0, 1], [2, 3])})},
        {"splits": SPLIT, "labels": ["b", "a", "b", "c", "a", None]},
        {"splits": {"train": [3]}},
    ):
        data = make(**change)
        data.save(tmp_path / "mine")
        same(load(tmp_path / "mine"), data)
        same(load("mine", tmp_path, verify=False), data)
    assert make(splits=SPLIT).test_idx.tolist() == [4]
    text = make(labels=["b", "a", "b", "c", "a", None], splits={"train": [0]})
    assert (text.labels.tolist(), text.class_names) == ([1, 0, 1, 2, 0, -1], ("a", "b", "c"))


EDGES = {"src": list("abcdef"), "dst": list("bcdefa"), "time": np.arange(6)}
NODES = {
    "id": list("fedcba"),
    "label": [0, 1, 0, 1, 0, 1],
    "split": SPLIT,
    "x": np.arange(6.0),
    "y": np.ones(6, int),
}


def tables(folder, ending=".csv", edges=None, nodes=None):
    """The folder of tables with changed columns; None leaves one out."""
    files = {"edges": EDGES | (edges or {}), "nodes": NODES | (nodes or {})}
    return write(folder, {f"{name}{ending}": table for name, table in files.items()})


def test_tables_of_nodes_and_edges(tmp_path):
    first = load(tables(tmp_path / "csv"))
    for nodes in ({}, {"x": [[i, 1.0] for i in range(6)], "y": None}):
        other = load(tables(tmp_path / "other", ".parquet", nodes=nodes))
        alike = {"name": "csv", "feature_columns": first.feature_columns}
        same(dataclasses.replace(other, **alike), first)
    assert first.node_ids[[0, 5]].tolist() == ["f", "a"]
    given = zip(EDGES["src"], EDGES["dst"], range(6), strict=True)
    assert edges(first, "edge_time") == [*given]
    assert splits(first) == [[0, 1], [2, 3], [4]]
    assert load(tmp_path / "csv", symmetric=True).graph.num_edges == 12


def test_ids_that_are_numbers_in_one_table_and_text_in_the_other(tmp_path):
    """A table's column is of numbers if all its entries are. As text they are as written."""
    ends = {"src": ["07", "8", "7", "07", "8", "7"], "dst": ["7"] * 6}
    nodes = {"id": ["x", "7", "07", "8", "9", "10"]}
    for ending in (".csv", ".parquet"):
        data = load(tables(tmp_path / ending, ending, ends, nodes))
        assert data.graph.edge_index().tolist() == [[2, 3, 1, 2, 3, 1], [1] * 6]

    numbers = {"src": [3, 2, 1, 3, 2, 1], "dst": [0] * 6}
    zeros = tables(tmp_path / "0", ".csv", numbers, {"id": ["00", "01", "02", "03", "4", "5"]})
    assert load(zeros).graph.edge_index().tolist() == list(numbers.values())


def test_numbers_and_labels_that_are_not_known(tmp_path):
    """Columns `label:NAME`, with empty cells; and numbers, by their look or by the option."""
    own = {"label": None, "label:red": [1, 0, None, 1, 0, 0], "label:blue": [True] * 5 + [None]}
    for ending in (".csv", ".parquet"):
        data = load(tables(tmp_path / f"many{ending}", ending, nodes=own))
        assert data.class_names == ("red", "blue")
        want = [[1, 1], [0, 1], [np.nan, 1], [1, 1], [0, 1], [0, np.nan]]
        np.testing.assert_array_equal(data.labels, want)
        assert data.features.shape == (6, 2)
    told = facts(load_plain(tmp_path / "many.csv", tmp_path))
    assert (told["classes"], told["labels_not_known"]) == (2, 2)
    both = tables(tmp_path / "both", nodes=own | {"label": range(6)})
    refused("'label', or columns of labels", load, both)
    none = tables(tmp_path / "none", nodes={"label": [None] * 6})
    refused("node 0, which has none (NaN)", load, none, label_kind="number")
    half = {"label": [0.5, 1, 2, -3, 4, None], "split": [*SPLIT[:5], None]}
    for folder, options, last in (
        (tables(tmp_path / "half", nodes=half), {}, np.nan),
        (tables(tmp_path / "whole"), {"label_kind": "number"}, 1),
    ):
        data = load(folder, **options)
        assert (data.numbers, data.num_classes, data.labels.dtype) == (True, 1, np.float64)
        np.testing.assert_array_equal(data.labels[-1], last)
        data.save(tmp_path / "saved")
        again = load(tmp_path / "saved")
        assert again.numbers
        np.testing.assert_array_equal(again.labels, data.labels)
        assert facts(load_plain(folder, tmp_path, **options))["labels"] == "numbers"


@cases(
    "changes, says",
    ({"edges": {"src": None}}, "edges.csv must have a column 'src'; got columns 'dst', 't"),
    ({"edges": {"kind": "likes"}}, "'kind' must be numbers; got 'likes' in row 0. Say"),
    ({"edges": {"src": list("abcdeZ")}}, "one of the 6 nodes'; got 'Z' at position 5"),
    ({"edges": {"src": range(6)}}, "one of the 6 nodes'; got '0' at position 0"),
    ({"nodes": {"id": range(6)}}, "6 nodes', which are integers; got 'a' at position 0"),
    ({"nodes": {"split": "training"}}, "val and test; got 'training' at node 0"),
    ({"nodes": {"split": None}}, "Add it; --data-options split=0.6,0.2,0.2 draws"),
    ({"nodes": {"id": list("aacdef")}}, "must have an id of its own"),
    ({"nodes": {"x": [0, 1, 2, np.inf, 4, 5]}}, "must be finite; got inf at row 3"),
    ({"nodes": {"x": None, "y": None}}, "must have columns of features"),
    ({"nodes": {"label": [0.5, 1, 0, 1, 0, np.inf]}}, "or NaN for none; got inf at node 5"),
)
def test_bad_tables_are_refused_in_one_line(changes, says, tmp_path):
    refused(says, load, tables(tmp_path / "csv", **changes))


def test_bad_folders_and_arrays_are_refused_in_one_line(make, tmp_path):
    make().save(tmp_path / "saved")
    make().graph.save(tmp_path / "graph")
    write(folder := tables(tmp_path / "csv"), {"edges.parquet": b"PAR1 cut short"})
    refused("one table edges.parquet or edges.csv; got 2", load, folder)
    refused("must be a whole Parquet file", Graph.from_table, folder / "edges.parquet")
    refused("must be a jgs.dataset folder", load, tmp_path / "graph")
    refused("jgs.dataset", make().save, tmp_path / "graph")
    manifest = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    del manifest["arrays"]["labels"]
    write(tmp_path / "saved", {"manifest.json": manifest})
    refused("the arrays of a data set; got no labels", load, tmp_path / "saved")
    for says, changes in (
        ("train, val and test; got 'training'", {"splits": {"training": [0]}}),
        ("must be [6], one a node; got bool[5", {"splits": {"train": np.ones(5, bool)}}),
        ("a dict of node ids or masks, or a name a node", {"splits": [0, 1]}),
        ("must be in [0, 1)", {"class_names": ["a"]}),
        ("node_ids of custom must be one for each", {"node_ids": NodeIds([1, 2])}),
        ("all numbers, or all text; got int", {"labels": np.array(["a", 1, *"bcde"], object)}),
    ):
        refused(says, make, **changes)
