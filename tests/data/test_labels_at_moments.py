"""Labels of nodes at moments: of arrays, and of tables beside those of edges."""

import numpy as np
import pytest
from folders import cases, refused, write

from jgs import Graph
from jgs.data import Dataset, LabelTable, load
from jgs.data.described import facts
from jgs.data.parts import open_parts
from jgs.data.plain import load_plain
from jgs.partition.__main__ import main as partition

EDGES = {"src": list("aabc"), "dst": list("bcca"), "time": ["2020-01-01", "2020-01-03"] * 2}
LABELS = {
    "node": list("bcab"),
    "time": ["2020-01-02", "2020-01-04", "2020-01-02", "2020-01-05"],
    "label": ["stays", "goes", "stays", "stays"],
    "split": ["train", "val", "train", "test"],
}
DAY = 86400
GIVEN = [("b", 2, 1, 0), ("c", 4, 0, 1), ("a", 2, 1, 0), ("b", 5, 1, 2)]


def own(tmp_path, name="labels.csv", **changes):
    """The folder of `EDGES`, and of `LABELS` with changed columns."""
    return write(tmp_path / "own", {"edges.csv": EDGES, name: LABELS | changes})


def rows_of(data, names=None):
    """A tuple for each row: the name of its node, its day in 2020, label and split."""
    table, ids = data.label_table, data.node_ids if names is None else names
    days = (table.time // DAY - 18261).tolist()
    columns = (ids[table.nodes].tolist(), days, table.labels.tolist(), table.split)
    return list(zip(*columns, strict=True))


@cases("name", "labels.csv", "labels.csv.gz", "labels.tsv", "labels.parquet")
def test_a_table_of_labels_is_read_saved_and_described(tmp_path, name):
    folder = own(tmp_path, name)
    data = load(folder)
    data.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    for each in (data, again):
        assert (each.class_names, each.num_classes) == (("goes", "stays"), 2)
        assert (each.time_unit, each.train_idx.size) == ("s", 0)
        assert np.unique(each.labels).tolist() == [-1]
        dtypes = [str(column.dtype) for column in each.label_table]
        assert dtypes == ["int32", "int64", "int32", "int8"]
    assert rows_of(load_plain(folder, "data")) == rows_of(data) == rows_of(again) == GIVEN
    told = {"train_rows": 2, "val_rows": 1, "test_rows": 1, "labels_at_moments": 4}
    told |= {"label_kind": "classes", "classes": 2, "time_unit": "s", "distinct_times": 2}
    told |= {"first_date": "2020-01-01T00:00:00"}
    assert facts(again).items() >= told.items()


def test_numbers_and_splits_by_time(tmp_path):
    folder = own(tmp_path, label=[1, 2, 3, 4], split=None)
    table = load(folder, label_kind="number").label_table
    assert (table.labels.dtype, table.labels.tolist()) == (np.float64, [1, 2, 3, 4])
    assert table.split.tolist() == [0, 1, 0, 2]  # on the days 2, 4, 2 and 5
    assert table.num_classes == 1
    classes = load(folder)
    assert (classes.label_table.labels.dtype, classes.num_classes) == (np.int32, 5)
    whole = load(folder, time_unit="D").label_table
    assert whole.time.tolist() == [18263, 18265, 18263, 18266]


def test_a_table_of_nodes_may_be_there_too(tmp_path):
    nodes = {"id": list("cbad"), "x": [1, 2, 3, 4]}
    folder = write(own(tmp_path), {"nodes.csv": nodes})
    data = load(folder)
    assert rows_of(data) == GIVEN
    assert (data.graph.num_nodes, data.features.shape) == (4, (4, 1))
    write(folder, {"nodes.csv": nodes | {"label": [0] * 4}})
    refused("labels must be in *labels.csv, or in the column", load, folder)
    write(folder, {"nodes.csv": None, "labels.tsv": LABELS})
    refused("one table of labels; got labels.csv, labels.tsv", load, folder)


@cases(
    "changes, says",
    ({"node": None}, "labels.csv must have a column 'node'"),
    ({"time": None}, "labels.csv must have a column 'time'"),
    ({"node": list("bcaz")}, "node in *labels.csv must be one of the 3 nodes'; got 'z'"),
    ({"time": ["2020-01-02", "soon", "", ""]}, "every row in * a date; got soon at row 1"),
    ({"label": ["x", "", "y", "z"]}, "have classes from 0; got -1 at row 1"),
    ({"weight": [1, 2, 3, 4]}, "must have the columns node, time, label, split"),
    ({"time": ["2020-01-02T00:00:00.5"] * 4}, "Give --data-options time_unit=ms"),
)
def test_wrong_tables_of_labels_are_refused_in_a_line(tmp_path, changes, says):
    refused(says, load, own(tmp_path, **changes))


def test_labels_of_one_type(tmp_path):
    users = "node,time,label,split\n9,3,1,0\n7,3,0,1\n9,5,1,2\n"
    bought = {"edges_user_buys_item.csv": "src,dst,time\n7,7,1\n9,8,2\n"}
    folder = write(tmp_path / "shop", bought | {"labels_user.csv": users})
    plain, data = load_plain(folder, "data"), load(folder, label_kind="number")
    names = ["user:9", "user:7", "user:9"]
    assert plain.node_ids[plain.label_table.nodes].tolist() == names
    assert data.node_ids[data.label_table.nodes].tolist() == names
    assert (data.label_table.labels.dtype, data.label_table.nodes.dtype) == ("f8", "i4")
    items = "node,time,label,split\n8,3,1,0\n"
    write(folder, {"labels_item.csv": items})
    assert load(folder, target="item").label_table.nodes.tolist() == [1]
    refused("of one type, which the option target names", load, folder)
    write(folder, {"labels_item.csv": None, "labels_shop.csv": items})
    refused("node type of the tables beside it; got 'shop'", load, folder, target="shop")
    write(folder, {"labels_shop.csv": None, "nodes_item.csv": "id,label\n7,1\n8,0\n"})
    refused("must be at moments, or in tables of nodes", load, folder)


def test_a_users_own_arrays():
    graph = Graph.from_edges([0, 1], [1, 2], 3, edge_time=[5, 6])
    table = LabelTable.from_arrays([2, 0], [7, 8], [0, 3], ["train", "test"])
    about = {"time_unit": "ms", "class_names": list("abcd")}
    data = Dataset.from_arrays(graph, np.eye(3), None, None, label_table=table, **about)
    assert (data.num_classes, data.train_idx.size, data.time_unit) == (4, 0, "ms")
    assert data.dataset().label_table is table
    labelled = graph, np.eye(3), [0, 1, 1], {"train": [0]}
    both = Dataset.from_arrays(*labelled, label_table=table)
    assert (both.num_classes, both.label_table) == (2, table)
    wrong = LabelTable.from_arrays([2, 3], [7, 8], [0, 3], ["train", "test"])
    unlabelled = graph, np.eye(3), None, None
    says = "label table of custom must name nodes in [0, 3)"
    refused(says, Dataset.from_arrays, *unlabelled, label_table=wrong)
    says = "time_unit of custom must be one of D, s, ms, us, ns"
    refused(says, Dataset.from_arrays, *labelled, time_unit="h")


def test_parts_have_the_table_and_the_times_of_nodes(tmp_path):
    out, times = tmp_path / "parts", ["2020-01-02", "2020-01-01", "2019-12-31"]
    nodes = {"id": list("cab"), "x": [1, 2, 3], "time": times}
    folder = write(own(tmp_path), {"nodes.csv": nodes})
    assert partition(["--dataset", str(folder), "--parts", "2", "--out", str(out)]) == 0
    parts = open_parts(out)
    names = parts.node_ids[parts.original_ids]
    assert rows_of(parts, names) == GIVEN
    days = (np.asarray(parts.graph.node_time) // DAY - 18261).tolist()
    assert dict(zip(names.tolist(), days, strict=True)) == {"c": 2, "a": 1, "b": 0}
    assert (parts.time_unit, parts.class_names) == ("s", ("goes", "stays"))


# -- arrays ------------------------------------------------------------------------------------

ARRAYS = {"nodes": [3, 0, 3, 1], "time": [10, 40, 20, 30], "labels": [1, 0, 2, 1]}


@pytest.mark.parametrize("split", [["train", "val", "", "test"], [0, 1, -1, 2]])
def test_arrays_become_a_table(split):
    table = LabelTable.from_arrays(**ARRAYS, split=split)
    assert [each.tolist() for each in table] == [*ARRAYS.values(), [0, 1, -1, 2]]
    assert [str(each.dtype) for each in table] == ["int32", "int64", "int32", "int8"]
    assert table.num_classes == 3
    numbers = LabelTable.from_arrays(**ARRAYS | {"labels": [0.5, 1, 2, -3]}, split=split)
    assert (numbers.labels.dtype, numbers.num_classes) == (np.float64, 1)
    assert numbers.labels.tolist() == [0.5, 1, 2, -3]


def test_rows_are_split_by_time_with_equal_times_together():
    time = np.repeat([50, 10, 30, 20, 40], [15, 40, 10, 30, 5])  # 70 rows are before 30
    split = LabelTable.from_arrays(np.zeros(100, int), time, np.zeros(100, int)).split
    pairs = set(zip(time.tolist(), split.tolist(), strict=True))
    assert pairs == {(10, 0), (20, 0), (30, 1), (40, 1), (50, 2)}
    shuffled = np.random.default_rng(0).permutation(100)
    again = LabelTable.from_arrays(np.zeros(100, int), time[shuffled], np.zeros(100, int))
    assert np.array_equal(again.split, split[shuffled])
    negative = LabelTable.from_arrays(np.zeros(100, int), time - 100, np.zeros(100, int))
    assert np.array_equal(negative.split, split)


@cases(
    "changes, says",
    ({"nodes": [0.5, 1, 2, 3]}, "nodes of labels must be integers"),
    ({"time": np.array([1, 2, 3, 4], "M8[s]")}, "time of labels must be integers"),
    ({"time": [1, 2, 3]}, "time of labels must be [4], one for each*got int64[3]"),
    ({"labels": [0, -1, 1, 2]}, "have classes from 0; got -1 at row 1"),
    ({"labels": [0.5, np.nan, 1, 2]}, "have finite labels; got nan at row 1"),
    ({"labels": [0.5, np.inf, 1, 2]}, "rows in labels must be finite*got inf at row 1"),
    ({"labels": list("abcd")}, "labels of labels must be numbers; got text"),
    ({"split": ["train", "valid", "", ""]}, "0, 1, 2, or empty; got valid at row 1"),
    ({"split": [1, 2, -1, 2]}, "rows to train on; got no train among 4 rows"),
    ({"time": [7] * 4}, "times of labels must differ enough*got 1 different ones"),
    ({"nodes": [], "time": [], "labels": []}, "must"),
)
def test_wrong_arrays_of_labels_are_refused_in_a_line(changes, says):
    refused(says, LabelTable.from_arrays, **ARRAYS | changes)
