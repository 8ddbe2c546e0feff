"""Tables of labels at moments beside tables of edges: read, saved, described, partitioned."""

import json

import numpy as np
import pandas
import pytest

from jgs import Graph, InputError
from jgs.data import Dataset, LabelTable, load
from jgs.data.__main__ import main
from jgs.data.parts import open_parts
from jgs.data.plain import Plain, load_plain
from jgs.partition.__main__ import main as partition

EDGES = {"src": list("aabc"), "dst": list("bcca"), "time": ["2020-01-01", "2020-01-03"] * 2}
LABELS = {
    "node": list("bcab"),
    "time": ["2020-01-02", "2020-01-04", "2020-01-02", "2020-01-05"],
    "label": ["stays", "goes", "stays", "stays"],
    "split": ["train", "val", "train", "test"],
}
DAY = 86400


def write(folder, name="labels.csv", **changes):
    """Writes `EDGES`, and `LABELS` with changed columns; None leaves a column out."""
    folder.mkdir(exist_ok=True)
    pandas.DataFrame(EDGES).to_csv(folder / "edges.csv", index=False)
    rows = pandas.DataFrame({k: v for k, v in (LABELS | changes).items() if v is not None})
    if name.endswith(".parquet"):
        rows.to_parquet(folder / name)
    else:
        rows.to_csv(folder / name, index=False, sep="," if ".csv" in name else "\t")
    return folder


def rows_of(data, names=None):
    """A tuple for each row: the name of its node, its day in 2020, label and split."""
    table, ids = data.label_table, data.node_ids if names is None else names
    days = (table.time // DAY - 18261).tolist()
    return list(
        zip(ids[table.nodes].tolist(), days, table.labels.tolist(), table.split, strict=True)
    )


GIVEN = [("b", 2, 1, 0), ("c", 4, 0, 1), ("a", 2, 1, 0), ("b", 5, 1, 2)]


@pytest.mark.parametrize(
    "name", ["labels.csv", "labels.csv.gz", "labels.tsv", "labels.parquet"]
)
def test_a_table_of_labels_beside_edges(tmp_path, capsys, name):
    folder = write(tmp_path / "own", name)
    plain, data = load_plain(folder, "data"), load(folder)
    assert rows_of(plain) == rows_of(data) == GIVEN
    assert (data.class_names, data.num_classes, data.time_unit) == (("goes", "stays"), 2, "s")
    assert (np.unique(data.labels).tolist(), data.train_idx.size) == ([-1], 0)
    data.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert rows_of(again) == GIVEN
    assert [each.dtype for each in again.label_table] == [
        each.dtype for each in data.label_table
    ]
    assert (again.class_names, again.num_classes, again.time_unit) == (
        data.class_names,
        2,
        "s",
    )
    assert main(["describe", str(tmp_path / "saved")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[f"{each}_rows"] for each in ("train", "val", "test")] == [2, 1, 1]
    assert (found["labels_at_moments"], found["label_kind"], found["classes"]) == (
        4,
        "classes",
        2,
    )
    assert (found["time_unit"], found["distinct_times"]) == ("s", 2)
    assert found["first_date"] == "2020-01-01T00:00:00"


def test_numbers_and_splits_by_time(tmp_path):
    folder = write(tmp_path / "own", label=[1, 2, 3, 4], split=None)
    table = load(folder, label_kind="number").label_table
    assert (table.labels.dtype, table.labels.tolist()) == (np.float32, [1, 2, 3, 4])
    assert table.split.tolist() == [0, 1, 0, 2]  # on the days 2, 4, 2 and 5
    assert table.num_classes == 1
    classes = load(folder)
    assert (classes.label_table.labels.dtype, classes.num_classes) == (np.int32, 5)
    whole = load(folder, time_unit="D").label_table
    assert whole.time.tolist() == [18263, 18265, 18263, 18266]


def test_a_table_of_nodes_may_be_there_too(tmp_path):
    folder = write(tmp_path / "own")
    nodes = pandas.DataFrame({"id": list("cbad"), "x": [1, 2, 3, 4]})
    nodes.to_csv(folder / "nodes.csv", index=False)
    data = load(folder)
    assert rows_of(data) == GIVEN
    assert (data.graph.num_nodes, data.features.shape) == (4, (4, 1))
    nodes.assign(label=0).to_csv(folder / "nodes.csv", index=False)
    with pytest.raises(InputError, match=r"labels must be in .*labels\.csv, or in the column"):
        load(folder)
    (folder / "nodes.csv").unlink()
    write(folder, "labels.tsv")
    with pytest.raises(InputError, match=r"one table of labels; got labels\.csv, labels\.tsv"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node": None}, "labels.csv must have a column 'node'"),
        ({"time": None}, "labels.csv must have a column 'time'"),
        ({"node": list("bcaz")}, "node in .*labels.csv must be one of the 3 nodes'; got 'z'"),
        (
            {"time": ["2020-01-02", "soon", "", ""]},
            "every row in .* or a date; got soon at row 1",
        ),
        ({"label": ["x", "", "y", "z"]}, "have classes from 0; got -1 at row 1"),
        ({"label": [0.5, None, 1.5, 2.5]}, "have finite labels; got nan at row 1"),
        ({"split": ["train", "dev", "", ""]}, "0, 1, 2, or empty; got dev at row 1"),
        ({"weight": [1, 2, 3, 4]}, "must have the columns node, time, label, split"),
        ({"time": ["2020-01-02T00:00:00.5"] * 4}, "Give --data-options time_unit=ms"),
    ],
)
def test_wrong_tables_of_labels_are_refused_in_a_line(tmp_path, changes, says):
    folder = write(tmp_path / "own", **changes)
    with pytest.raises(InputError, match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_labels_of_one_type(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "edges_user_buys_item.csv").write_text("src,dst,time\n7,7,1\n9,8,2\n")
    (folder / "labels_user.csv").write_text(
        "node,time,label,split\n9,3,1,0\n7,3,0,1\n9,5,1,2\n"
    )
    plain, data = load_plain(folder, "data"), load(folder, label_kind="number")
    names = ["user:9", "user:7", "user:9"]
    assert plain.node_ids[plain.label_table.nodes].tolist() == names
    assert data.node_ids[data.label_table.nodes].tolist() == names
    assert (data.label_table.labels.dtype, data.label_table.nodes.dtype) == ("f4", "i4")
    (folder / "labels_item.csv").write_text("node,time,label,split\n8,3,1,0\n")
    assert load(folder, target="item").label_table.nodes.tolist() == [1]
    with pytest.raises(InputError, match="of one type, which the option target names"):
        load(folder)
    (folder / "labels_item.csv").rename(folder / "labels_shop.csv")
    with pytest.raises(InputError, match=r"node type of the tables beside it; got 'shop'"):
        load(folder, target="shop")
    (folder / "labels_shop.csv").unlink()
    (folder / "nodes_item.csv").write_text("id,label\n7,1\n8,0\n")
    with pytest.raises(InputError, match="must be at moments, or in tables of nodes"):
        load(folder)


def test_a_users_own_arrays():
    graph = Graph.from_edges([0, 1], [1, 2], 3, edge_time=[5, 6])
    table = LabelTable.from_arrays([2, 0], [7, 8], [0, 3], ["train", "test"])
    data = Dataset.from_arrays(
        graph,
        np.eye(3),
        None,
        None,
        label_table=table,
        time_unit="ms",
        class_names=list("abcd"),
    )
    assert (data.num_classes, data.train_idx.size, data.time_unit) == (4, 0, "ms")
    assert Plain.of(data).dataset().label_table is table
    labelled = Dataset.from_arrays(
        graph, np.eye(3), [0, 1, 1], {"train": [0]}, label_table=table
    )
    assert (labelled.num_classes, labelled.label_table) == (2, table)
    wrong = LabelTable.from_arrays([2, 3], [7, 8], [0, 3], ["train", "test"])
    with pytest.raises(InputError, match=r"label table of custom must name nodes in \[0, 3\)"):
        Dataset.from_arrays(graph, np.eye(3), None, None, label_table=wrong)
    with pytest.raises(InputError, match="time_unit of custom must be one of D, s, ms, us, ns"):
        Dataset.from_arrays(graph, np.eye(3), [0, 1, 1], {"train": [0]}, time_unit="h")
    with pytest.raises(InputError, match="train split of custom must not be empty"):
        Dataset.from_arrays(graph, np.eye(3), [0, 1, 1], {})


def test_parts_have_the_table(tmp_path, capsys):
    folder = write(tmp_path / "own")
    out = tmp_path / "parts"
    assert partition(["--dataset", str(folder), "--parts", "2", "--out", str(out)]) == 0
    parts = open_parts(out)
    names = parts.node_ids[parts.original_ids]
    assert rows_of(parts, names) == GIVEN
    assert parts.time_unit == "s"
    assert parts.class_names == ("goes", "stays")
    capsys.readouterr()
