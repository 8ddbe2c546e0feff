"""A user's own data set: from arrays, saved and opened, and from tables of nodes and edges."""

import dataclasses
import json

import jax
import numpy as np
import pandas
import pytest
import scipy.sparse

import jgs
from jgs import Graph, InputError, NodeIds, SparseFeatures
from jgs.data import Dataset, load
from jgs.data.described import facts
from jgs.data.plain import load_plain
from jgs.train.__main__ import main

SPLIT = ["train", "train", "val", "val", "test", None]


@pytest.fixture
def graph(arrays):
    return Graph.from_edge_index(arrays["edge_index"], 6, np.arange(12.0))


@pytest.fixture
def make(arrays, graph):
    def make(**changes):
        given = {
            "graph": graph,
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


def test_one_call_saves_and_opens_by_name_or_path(make, graph, arrays, tmp_path):
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


def write_tables(folder, ending=".csv", **changes):
    edges = {"src": list("abcdef"), "dst": list("bcdefa"), "time": np.arange(6)}
    nodes = {
        "id": list("fedcba"),
        "label": [0, 1, 0, 1, 0, 1],
        "split": SPLIT,
        "x": np.arange(6.0),
        "y": np.ones(6, int),
    }
    folder.mkdir(exist_ok=True)
    for name, table in (("edges", edges), ("nodes", nodes)):
        table = {k: v for k, v in (table | changes.get(name, {})).items() if v is not None}
        frame = pandas.DataFrame(table)
        if ending == ".csv":
            frame.to_csv(folder / f"{name}.csv", index=False)
        else:
            frame.to_parquet(folder / f"{name}.parquet")
    return folder


def test_tables_of_nodes_and_edges(tmp_path):
    first = load(write_tables(tmp_path / "csv"))
    for ending, changes in (
        (".parquet", {}),
        (".parquet", {"nodes": {"x": [[i, 1.0] for i in range(6)], "y": None}}),
    ):
        other = load(write_tables(tmp_path / "other", ending, **changes))
        alike = {"name": "csv", "feature_columns": first.feature_columns}
        same(dataclasses.replace(other, **alike), first)
    assert first.node_ids[[0, 5]].tolist() == ["f", "a"]
    pairs = first.node_ids[first.graph.edge_index()].T.tolist()
    assert sorted(map("".join, pairs)) == ["ab", "bc", "cd", "de", "ef", "fa"]
    order = np.asarray(first.graph.edge_order)
    assert np.array_equal(first.graph.edge_time, order)
    assert first.train_idx.tolist() == [0, 1]
    assert load(tmp_path / "csv", symmetric=True).graph.num_edges == 12


def test_ids_that_are_numbers_in_one_table_and_text_in_the_other(tmp_path):
    """A table's column is of numbers if all its entries are. As text they are as written."""
    ends = {"src": ["07", "8", "7", "07", "8", "7"], "dst": ["7"] * 6}
    tables = {"edges": ends, "nodes": {"id": ["x", "7", "07", "8", "9", "10"]}}
    data = load(write_tables(tmp_path / "csv", **tables))
    assert data.graph.edge_index().tolist() == [[2, 3, 1, 2, 3, 1], [1] * 6]
    data = load(write_tables(tmp_path / "parquet", ".parquet", **tables))
    assert data.graph.edge_index().tolist() == [[2, 3, 1, 2, 3, 1], [1] * 6]

    numbers = {"src": [3, 2, 1, 3, 2, 1], "dst": [0] * 6}
    for ending, ids, edges in (
        (".csv", ["00", "01", "02", "03", "4", "5"], numbers),
        (".parquet", list("012345"), numbers),
        (".parquet", range(6), {"src": list("321321"), "dst": [0] * 6}),
    ):
        folder = write_tables(tmp_path / "other", ending, nodes={"id": ids}, edges=edges)
        assert load(folder).graph.edge_index().tolist() == list(numbers.values())
        for table in folder.iterdir():
            table.unlink()
    odd = {"nodes": {"id": ["0", "01", "2", "3", "4", "5"]}, "edges": numbers}
    with pytest.raises(InputError, match="written alike; got '01' among the text"):
        load(write_tables(tmp_path / "odd", ".parquet", **odd))


def test_numbers_and_labels_that_are_not_known(tmp_path):
    """Columns `label:NAME`, with empty cells; and numbers, by their look or by the option."""
    own = {"label": None, "label:red": [1, 0, None, 1, 0, 0], "label:blue": [True] * 5 + [None]}
    for ending in (".csv", ".parquet"):
        data = load(write_tables(tmp_path / f"many{ending}", ending, nodes=own))
        assert data.class_names == ("red", "blue")
        want = [[1, 1], [0, 1], [np.nan, 1], [1, 1], [0, 1], [0, np.nan]]
        np.testing.assert_array_equal(data.labels, want)
        assert data.features.shape == (6, 2)
    told = facts(load_plain(tmp_path / "many.csv", tmp_path))
    assert (told["classes"], told["labels_not_known"]) == (2, 2)
    both = write_tables(tmp_path / "both", nodes=own | {"label": range(6)})
    with pytest.raises(InputError, match="'label', or columns of labels"):
        load(both)
    half = {"label": [0.5, 1, 2, -3, 4, None], "split": [*SPLIT[:5], None]}
    for folder, options, last in (
        (write_tables(tmp_path / "half", nodes=half), {}, np.nan),
        (write_tables(tmp_path / "whole"), {"label_kind": "number"}, 1),
    ):
        data = load(folder, **options)
        assert (data.numbers, data.num_classes, data.labels.dtype) == (True, 1, np.float32)
        np.testing.assert_array_equal(data.labels[-1], last)
        data.save(tmp_path / "saved")
        again = load(tmp_path / "saved")
        assert again.numbers
        np.testing.assert_array_equal(again.labels, data.labels)
    assert facts(load_plain(tmp_path / "half", tmp_path))["labels"] == "numbers"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"edges": {"src": None}}, "edges.csv must have a column 'src'; got columns 'dst', 't"),
        ({"edges": {"src": list("abcdeZ")}}, "one of the 6 nodes'; got 'Z' at position 5"),
        ({"edges": {"src": range(6)}}, "one of the 6 nodes'; got '0' at position 0"),
        ({"nodes": {"id": range(6)}}, "6 nodes', which are integers; got 'a' at position 0"),
        (
            {"edges": {"time": [*"abcde", None]}},
            "edges.csv must be a whole number or a date; got a at edge 0",
        ),
        ({"nodes": {"split": ["training"] * 6}}, "val and test; got 'training' at node 0"),
        ({"nodes": {"split": None}}, "Add it; --data-options split=0.6,0.2,0.2 draws"),
        ({"nodes": {"id": list("aacdef")}}, "must have an id of its own"),
        ({"nodes": {"x": [0, 1, 2, float("inf"), 4, 5]}}, "must be finite; got inf at row 3"),
        ({"nodes": {"x": None, "y": None}}, "must have columns of features"),
        (
            {"nodes": {"label": [0.5, 1, 0, 1, 0, float("inf")]}},
            "must be finite as float32, or NaN for none; got inf at node 5",
        ),
        ({"nodes": {"split": [None] * 6}}, "the train split of csv must not be empty"),
    ],
)
def test_bad_tables_are_refused_in_one_line(changes, says, tmp_path):
    with pytest.raises(InputError) as error:
        load(write_tables(tmp_path / "csv", **changes))
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_folders_and_arrays_are_refused_in_one_line(make, tmp_path):
    folder = write_tables(tmp_path / "csv")
    (folder / "edges.parquet").write_bytes(b"PAR1 cut short")
    make().save(tmp_path / "saved")
    manifest = json.loads((tmp_path / "saved" / "manifest.json").read_text())
    del manifest["arrays"]["labels"]
    (tmp_path / "less").mkdir()
    for file in (tmp_path / "saved").iterdir():
        (tmp_path / "less" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "less" / "manifest.json").write_text(json.dumps(manifest))
    make().graph.save(tmp_path / "graph")
    for call, says in (
        (lambda: load(folder), "one table edges.parquet or edges.csv; got 2"),
        (
            lambda: jgs.Graph.from_table(folder / "edges.parquet"),
            "must be a whole Parquet file",
        ),
        (lambda: load(tmp_path / "less"), "the arrays of a data set; got no labels"),
        (lambda: load(tmp_path / "graph"), "must be a jgs.dataset folder"),
        (lambda: make().save(tmp_path / "graph"), "jgs.dataset"),
        (lambda: make(splits={"training": [0]}), "train, val and test; got 'training'"),
        (
            lambda: make(splits={"train": np.ones(5, bool)}),
            "an entry for every node; got shape [5",
        ),
        (lambda: make(splits=[0, 1]), "a dict of node ids or masks, or a name a node"),
        (lambda: make(splits={"train": [9]}), "node ids in [0, 6); got 9 at position 0"),
        (lambda: make(class_names=["a"]), "must be in [0, 1)"),
        (lambda: make(node_ids=NodeIds([1, 2])), "node_ids of custom must be one for each"),
        (
            lambda: make(labels=np.array(["a", 1, *"bcde"], object)),
            "all numbers, or all text; got int",
        ),
    ):
        with pytest.raises(InputError) as error:
            call()
        assert says in str(error.value)
        assert "\n" not in str(error.value)


def test_the_command_trains_on_a_folder_of_tables(tmp_path, capsys):
    folder = write_tables(tmp_path / "csv")
    common = ["--fanouts", "2", "--hidden", "4", "--batch-size", "2", "--epochs", "1"]
    train = ["--dataset", str(folder), *common, "--no-progress", "--run-dir"]
    assert main([*train, str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 1
    for text, says in (
        ("from,dst\na,b\n", "edges.csv must have a column 'src'"),
        ("src,dst,kind\na,b,likes\n", "'kind' must be numbers; got 'likes' in row 0. Say what"),
    ):
        (folder / "edges.csv").write_text(text)
        assert main([*train, str(tmp_path / "other")]) == 2
        told = capsys.readouterr().err.strip()
        assert says in told
        assert "\n" not in told
