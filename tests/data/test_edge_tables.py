"""Tables of edges as data sets: what `load_plain` makes of their columns, and refuses."""

import gzip
import json
import sys

import numpy as np
import pandas
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.__main__ import main
from jgs.data.plain import load_plain
from jgs.predict.command import read_ids

TABLE = {
    "src": ["ann", "bob", "ann", "cat", "bob"],
    "dst": ["bob", "cat", "bob", "cat", "ann"],
    "label": ["good", "bad", "", "good", "bad"],
    "split": ["train", "train", "val", "", "test"],
    "time": [5, 4, 3, 2, 1],
    "edge_weight": [1.0, 2.0, 3.0, 4.0, 5.0],
    "price": [10, 20, 30, 40, 50],
}


def write(path, **changes):
    """Writes `TABLE` with changed columns; None leaves a column out."""
    columns = {k: v for k, v in (TABLE | changes).items() if v is not None}
    frame = pandas.DataFrame(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="," if ".csv" in path.name else "\t")
    return path


def edges(plain, *names):
    """A tuple for each edge: the names of its ends, then its columns `names`; sorted."""
    graph = plain.graph
    ends = plain.node_ids[graph.edge_index()].tolist()
    fields = {"edge_time": graph.edge_time, "edge_weight": graph.edge_weight}
    columns = [np.asarray((fields | graph.edge_columns)[name]).tolist() for name in names]
    return sorted(zip(*ends, *columns, strict=True))


ALL = ("label", "split", "edge_time", "edge_weight", "price")
GIVEN = [
    ("ann", "bob", -1, 1, 3, 3.0, 30),
    ("ann", "bob", 1, 0, 5, 1.0, 10),
    ("bob", "ann", 0, 2, 1, 5.0, 50),
    ("bob", "cat", 0, 0, 4, 2.0, 20),
    ("cat", "cat", 1, -1, 2, 4.0, 40),
]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".tsv", ".tsv.gz"])
def test_every_column_stays_with_its_edge(tmp_path, ending):
    plain = load_plain(write(tmp_path / f"mine{ending}"), "data")
    assert edges(plain, *ALL) == GIVEN
    columns = plain.graph.edge_columns
    assert (columns["label"].dtype, columns["split"].dtype) == (np.int32, np.int8)
    assert plain.graph.edge_time.dtype == np.int64
    assert (plain.name, plain.label_names) == ("mine", ("bad", "good"))
    assert plain.node_ids.values.tolist() == ["ann", "bob", "cat"]
    assert plain.labels is plain.train_idx is plain.features is plain.negatives is None


def test_the_command_describes_the_edges(tmp_path, capsys):
    assert main(["describe", str(write(tmp_path / "mine.csv"))]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nodes"], found["edges"], found["timed"]) == (3, 5, True)
    assert found["edge_labels"] == "classes"
    assert [found[f"{name}_edges"] for name in ("train", "val", "test")] == [2, 1, 1]


def test_a_folder_has_edges_and_perhaps_nodes(tmp_path):
    write(tmp_path / "own" / "edges.csv")
    plain = load_plain("own", tmp_path)
    assert (plain.name, edges(plain, *ALL)) == ("own", GIVEN)
    nodes = {"id": ["cat", "dan", "bob", "ann"], "x": [1, 2, 3, 4], "label": list("aabb")}
    for left_out in ((), ("x",), ("label",), ("x", "label")):
        kept = {name: column for name, column in nodes.items() if name not in left_out}
        pandas.DataFrame(kept).to_csv(tmp_path / "own" / "nodes.csv", index=False)
        plain = load_plain("own", tmp_path)
        assert edges(plain, *ALL) == GIVEN
        assert plain.node_ids.values.tolist() == nodes["id"]
        assert plain.label_names == ("bad", "good")
        labels, features = plain.labels, plain.features
        assert (labels is None) == ("label" in left_out)
        assert (features is None) == ("x" in left_out)
        assert labels is None or labels.tolist() == [0, 0, 1, 1]
        assert features is None or np.asarray(features).tolist() == [[1], [2], [3], [4]]
        assert plain.train_idx is None
    nodes["split"] = ["test", "train", "val", ""]
    pandas.DataFrame(nodes).to_csv(tmp_path / "own" / "nodes.csv", index=False)
    plain, data = load_plain("own", tmp_path), load(tmp_path / "own")
    assert (plain.train_idx.tolist(), plain.test_idx.tolist()) == ([1], [0])
    assert plain.class_names == data.class_names == ("a", "b")
    assert np.array_equal(plain.graph.edge_time, data.graph.edge_time)
    assert np.array_equal(plain.graph.edge_columns["label"], data.graph.edge_columns["label"])


@pytest.mark.parametrize("val", ["val", "valid"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_folder_has_a_table_for_each_split(tmp_path, val, ending):
    rows = {"train": slice(0, 2), val: slice(2, 4), "test": slice(4, 5)}
    for name, some in rows.items():
        own = {key: column[some] for key, column in TABLE.items()} | {"split": None}
        write(tmp_path / "parts" / f"{name}{ending}", **own)
    plain = load_plain(tmp_path / "parts", "data")
    expected = [
        edge[:3] + ((1,) if edge[0] == "cat" else edge[3:4]) + edge[4:] for edge in GIVEN
    ]
    assert edges(plain, *ALL) == expected
    frame = pandas.DataFrame({key: TABLE[key][2:4] for key in ("src", "dst", "time", "price")})
    frame.assign(edge_weight=[3.0, 4.0]).to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "parts" / f"{val}{ending}").unlink()
    (tmp_path / "own.csv").rename(tmp_path / "parts" / f"{val}.csv")  # without labels
    labels = [
        edge[2] for edge in edges(load_plain(tmp_path / "parts", "data"), "label", "price")
    ]
    assert labels == [-1, 1, 0, 0, -1]


def test_reverse_edges_have_the_columns_of_their_edges(tmp_path):
    path = write(tmp_path / "mine.csv")
    plain = load_plain(path, "data", both_ways=True)
    back = [(b, a, *rest) for a, b, *rest in GIVEN if a != b]
    assert edges(plain, *ALL) == sorted(GIVEN + back)
    added = [edge for edge in edges(plain, *ALL, "reverse") if edge[-1]]
    assert sorted(back) == [edge[:-1] for edge in added]
    once = load_plain(path, "data", symmetric=True)  # but times differ
    assert len(edges(once)) == 9
    write(path, time=None)
    assert edges(load_plain(path, "data", symmetric=True), "price") == [
        *[("ann", "bob", 10), ("bob", "ann", 50), ("bob", "cat", 20)],
        *[("cat", "bob", 20), ("cat", "cat", 40)],
    ]


def test_two_types_of_nodes_number_their_names_apart(tmp_path):
    path = tmp_path / "u.data"
    path.write_text("7\t3\t5\t30\n3\t3\t1\t20\n7\t9\t4\t10\n")
    given = {"columns": "user_id,item_id,rating,timestamp", "label_kind": "number"}
    types = {"src_type": "user", "dst_type": "item"}
    plain = load_plain(path, "data", **given, **types)
    graph = plain.graph
    assert graph.schema.node_types == (("user", 2), ("item", 2))
    assert graph.schema.relations == (("user", "to", "item"), ("item", "rev_to", "user"))
    assert plain.node_ids.values.tolist() == ["user:3", "user:7", "item:3", "item:9"]
    there = [
        ("user:3", "item:3", 1, 20),
        ("user:7", "item:3", 5, 30),
        ("user:7", "item:9", 4, 10),
    ]
    back = [(b, a, *rest) for a, b, *rest in there]
    assert edges(plain, "label", "edge_time") == sorted(there + back)
    assert graph.edge_columns["label"].dtype == np.float32
    assert "reverse" not in graph.edge_columns
    (tmp_path / "pairs.txt").write_text("user:7\titem:3\nuser:3 item:9\n")
    pairs = read_ids(tmp_path / "pairs.txt", graph.num_nodes, 2, plain.node_ids)
    assert pairs.tolist() == [[1, 2], [0, 3]]
    one = load_plain(path, "data", **given, **types, relation="rates", both_ways=False)
    assert one.graph.schema.relations == (("user", "rates", "item"),)
    assert edges(one, "label", "edge_time") == there
    same = load_plain(path, "data", **given)
    assert same.node_ids.values.tolist() == [3, 7, 9]


def test_two_types_in_tables_of_splits(tmp_path):
    for name, src, dst in (("train", [1, 2], ["a", "b"]), ("test", ["x"], ["7"])):
        pandas.DataFrame({"src": src, "dst": dst}).to_csv(tmp_path / f"{name}.csv", index=False)
    plain = load_plain(tmp_path, "data", src_type="user", dst_type="item", both_ways=False)
    assert edges(plain, "split") == [
        *[("user:1", "item:a", 0), ("user:2", "item:b", 0), ("user:x", "item:7", 2)]
    ]


def test_a_file_of_recbole_s_says_the_types_of_its_columns(tmp_path):
    path = tmp_path / "ml-100k.inter"
    head = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    path.write_text(head + "196\t242\t3\t881250949\n186\t302\t4\t891717742\n")
    plain = load_plain(path, "data")
    assert plain.name == "ml-100k"
    assert edges(plain, "label", "edge_time") == [
        (186, 302, 4.0, 891717742),
        (196, 242, 3.0, 881250949),
    ]
    assert plain.graph.edge_columns["label"].dtype == np.float32
    classes = load_plain(path, "data", label_kind="class")
    assert classes.graph.edge_columns["label"].dtype == np.int32
    other = load_plain(path, "data", label="timestamp", time="rating")
    assert np.asarray(other.graph.edge_time).tolist() == [3, 4]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_labels_that_are_missing(tmp_path, ending):
    for labels, kind, expected in (
        ([3, None, 0, 2, 1], "Int64", [3, -1, 0, 2, 1]),
        ([True, False, True, True, True], "bool", [1, 0, 1, 1, 1]),
        ([3.5, None, 0.5, 2, 1], "Float64", [3.5, np.nan, 0.5, 2, 1]),
        ([None, None, "b", "a", "b"], "string", [-1, -1, 1, 0, 1]),
    ):
        path = write(tmp_path / f"t{ending}", label=pandas.array(labels, kind), time=range(5))
        graph = load_plain(path, "data").graph
        found = np.asarray(graph.edge_columns["label"])[np.argsort(graph.edge_time)]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == (np.float32 if "F" in kind else np.int32)
        if kind == "Int64":
            graph = load_plain(path, "data", label_kind="number").graph
            found = np.asarray(graph.edge_columns["label"])[np.argsort(graph.edge_time)]
            np.testing.assert_array_equal(found, [3, np.nan, 0, 2, 1])
            assert found.dtype == np.float32


@pytest.mark.parametrize(
    ("times", "unit", "whole"),
    [
        (["2020-01-01"] * 5, None, 1577836800),
        (["2020-01-01"] * 5, "D", 18262),
        (["2020-01-01 00:00:01"] * 5, "ms", 1577836801 * 10**3),
        (["2020-01-01T00:00:00.000001"] * 5, "us", 1577836800 * 10**6 + 1),
        (["2020-01-01T02:00:00+02:00", "2020-01-01T00:00:00Z"] * 2 + [None], "s", None),
        (["1960-01-01"] * 5, "s", -315619200),
        ([2.0**40] * 5, None, 2**40),
        ([2**62] * 5, "us", 2**62),
    ],
)
def test_dates_become_whole_numbers(tmp_path, times, unit, whole):
    path, options = write(tmp_path / "t.csv", time=times), {"time_unit": unit} if unit else {}
    if whole is None:
        with pytest.raises(InputError, match="or a date; got NaT at edge 4"):
            load_plain(path, "data", **options)
        times, whole = times[:-1] * 2, 1577836800
        path = write(path, time=times[:5])
    plain = load_plain(path, "data", **options)
    assert np.asarray(plain.graph.edge_time).tolist() == [whole] * 5
    dates = isinstance(times[0], str)
    assert plain.time_unit == (unit or ("s" if dates else None))
    if dates:
        frame = pandas.Series(pandas.to_datetime(times[:5], utc=True))
        path = write(tmp_path / "t.parquet", time=frame.dt.tz_convert("Asia/Tokyo"))
        graph = load_plain(path, "data", **options).graph
        assert np.asarray(graph.edge_time).tolist() == [whole] * 5
        path = write(tmp_path / "t.parquet", time=times[:5])  # text, as in CSV
        graph = load_plain(path, "data", **options).graph
        assert np.asarray(graph.edge_time).tolist() == [whole] * 5


def test_the_kinds_of_columns_that_parquet_has(tmp_path):
    for labels, expected in (
        (pandas.array([1, None, 2, 0, 1], "UInt8"), [1, -1, 2, 0, 1]),
        (pandas.Categorical(["b", None, "a", "b", "a"]), [1, -1, 0, 1, 0]),
    ):
        path = write(tmp_path / "t.parquet", label=labels, time=range(5))
        graph = load_plain(path, "data").graph
        found = np.asarray(graph.edge_columns["label"])[np.argsort(graph.edge_time)]
        assert found.tolist() == expected
    with pytest.raises(InputError, match="only the columns of a text file may need names"):
        load_plain(path, "data", columns="src,dst")
    with pytest.raises(InputError, match="must have a table of them beside that of edges"):
        load(path)


def test_ids_of_which_some_look_like_numbers(tmp_path):
    mixed = {"src": ["07", "7", "8", "7", "8"], "dst": ["x", "07", "x", "x", "7"]}
    plain = load_plain(write(tmp_path / "t.csv", **mixed), "data")
    assert plain.node_ids.values.tolist() == ["07", "7", "8", "x"]
    for name, src in (("train", ["07", "7"]), ("test", ["a", "b"])):
        pandas.DataFrame({"src": src, "dst": src}).to_csv(tmp_path / f"{name}.csv", index=False)
    assert load_plain(tmp_path, "data").node_ids.values.tolist() == ["07", "7", "a", "b"]


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"src": None}, {}, "t.csv must have a column 'src'; got columns 'dst', 'label'"),
        ({}, {"label": "stars"}, "t.csv must have a column 'stars'; got columns"),
        ({}, {"label": "price"}, "one column of each name, and none that means 'reverse'; got"),
        ({}, {"src": "dst", "dst": "dst"}, "must name another one; got src=dst, dst=dst"),
        ({}, {"both_ways": True, "symmetric": True}, "one of symmetric and both_ways must"),
        ({}, {"src_type": "a"}, "must be given together"),
        ({}, {"src_type": "a", "dst_type": "b", "symmetric": True}, "without symmetric; got"),
        ({}, {"src_type": "a", "dst_type": "a"}, "must be two types of nodes; got 'a'"),
        ({}, {"label_kind": "rank"}, "must be class or number; got 'rank'"),
        ({}, {"label_kind": "number"}, "must be numbers for label_kind=number; got 'bad'"),
        ({}, {"sources": "a"}, "the options of the data set"),
        ({}, {"columns": "src,dst"}, "must be a whole CSV file; got CSV parse error"),
        (
            {"src": [1.5, 2, 3, 4, 5]},
            {},
            "src in {path} must be integers of at most 64 bits, or",
        ),
        ({"src": [1, 2, 3, None, 5]}, {}, "perhaps missing"),
        (
            {"src": ["a", "b", "", "c", "d"]},
            {},
            "src in {path} must name a node; got nothing in",
        ),
        ({"time": [1, 2, None, 4, 5]}, {}, "a whole number or a date; got nan at edge 2"),
        ({"time": [1, 2, 2.5, 4, 5]}, {}, "a whole number or a date; got 2.5 at edge 2"),
        ({"time": [1, 2, 1e30, 4, 5]}, {}, "a whole number or a date; got 1e+30 at edge 2"),
        ({"time": [*"1234", "soon"]}, {}, "whole number or a date; got soon at edge 4"),
        ({"time": ["2020-01-01"] * 4 + ["soon"]}, {}, "or a date; got soon at edge 4"),
        ({"time": ["2020-01-01"] * 4 + [None]}, {}, "or a date; got NaT at edge 4"),
        (
            {"time": ["2020-01-01", "2020-01-01T00:00:00.000001"] * 2 + ["2020-01-01"]},
            {"time_unit": "ms"},
            "of ms; got 2020-01-01T00:00:00.000001000 at edge 1. Give --data-options "
            "time_unit=us.",
        ),
        ({"time": [1, 2, 2.5, 4, 5]}, {}, "Give --data-options time_scale=10: times are"),
        ({}, {"time_unit": "h"}, "must be one of D, s, ms, us, ns; got 'h'"),
        ({}, {"time_scale": 0}, "the option time_scale must be 1 or more; got 0"),
        ({}, {"leave_out": "cost"}, "must have a column 'cost'"),
        (
            {"time": None, "ts": [1] * 5, "day": [2] * 5},
            {},
            "one column of {path} must mean 'time'; got 'ts' and 'day'. Say which by "
            "--data-options time=ts.",
        ),
        (
            {"src": None, "user": list("abcde"), "source": list("abcde")},
            {},
            "must mean 'src'; got 'source' and 'user'",
        ),
        (
            {"split": ["train", "valid"] * 2 + [""]},
            {},
            "val, test, or empty; got valid at edge 1",
        ),
        (
            {"label": [0, -2, 1, 1, 1]},
            {},
            "or -1; got -2 at edge 1. Number them from 0; label_",
        ),
        ({"label": [0, 1 << 16, 1, 1, 1]}, {}, "65536), or -1; got 65536 at edge 1"),
        ({"label": [0, 0.5, 1, 1, 1]}, {"label_kind": "class"}, "or -1; got 0.5 at edge 1"),
        (
            {"label": [0, 1e300, 1, 1, 1.5]},
            {},
            "finite as float32, or NaN for none; got 1e+300",
        ),
        (
            {"edge_weight": [1, 1, 1, 1, None]},
            {},
            "edge weights must be finite float32 numbers and not",
        ),
        (
            {"edge_weight": [1, 1, 1, 1, -1]},
            {},
            "edge weights must be finite float32 numbers and not negative",
        ),
        ({"price": list("abcde")}, {}, "'price' must be numbers; got 'a' in row 0"),
        (
            {"time": [*"1234", "in\nlines"]},
            {},
            "whole number or a date; got in lines at edge 4",
        ),
        ({"split": ["in\nlines"] * 5}, {}, "or empty; got in lines at edge 0"),
        ({"reverse": [0] * 5}, {}, "none that means 'reverse'; got 'reverse' among"),
    ],
)
def test_broken_tables_are_refused_in_a_line(tmp_path, changes, options, says):
    path = write(tmp_path / "t.csv", **changes)
    with pytest.raises(InputError) as caught:
        load_plain(path, "data", **options)
    assert says.replace("{path}", str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_folders_of_splits_are_refused(tmp_path):
    folder = tmp_path / "parts"
    write(folder / "train.csv", split=None)
    for changes, says in (
        ({}, "test.csv must have no column 'split', for its name says it"),
        ({"split": None, "price": None}, "'price' in only one of them"),
        ({"split": None, "price": list("abcde")}, "must be of the same types"),
    ):
        write(folder / "test.csv", **changes)
        with pytest.raises(InputError, match=says) as caught:
            load_plain(folder, "data")
        assert "\n" not in str(caught.value)
    write(folder / "test.csv", split=None)
    for name in ("val.csv", "valid.parquet"):
        write(folder / name, split=None)
    with pytest.raises(InputError, match=r"of the val split; got val\.csv, valid\.parquet"):
        load_plain(folder, "data")
    for name in ("val.csv", "valid.parquet", "test.csv"):
        (folder / name).unlink()
    write(folder / "train.csv")
    with pytest.raises(InputError, match=r"train\.csv must have no column 'split'"):
        load_plain(folder, "data")


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    path = write(tmp_path / "t.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pyarrow must be installed to read .*t\.csv"):
        load_plain(path, "data")


def test_a_table_without_rows_and_a_list_that_is_no_table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("src,dst\n")
    with pytest.raises(InputError, match=r"t\.csv must have edges; got no row"):
        load_plain(path, "data")
    for name, text in (("t.tsv", "0\t1\n1\t2\n"), ("u.tsv", "# from\tto\n0\t1\n1\t2\n")):
        (tmp_path / name).write_text(text)
        assert load_plain(tmp_path / name, "data").graph.num_edges == 4
    (tmp_path / "v.tsv.gz").write_bytes(gzip.compress(b"src\tdst\n0\t1\n1\t2\n"))
    assert load_plain(tmp_path / "v.tsv.gz", "data").graph.num_edges == 2
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="must have a column 'src' and a column 'dst'"):
        load_plain(path, "data")


def test_a_data_set_of_labelled_nodes_counts_time_in_its_unit(tmp_path):
    write(tmp_path / "own" / "edges.csv", time=["2020-01-01T00:00:00.5"] * 5)
    nodes = {"id": ["cat", "bob", "ann"], "x": [1, 2, 3], "label": [0, 1, 0]}
    frame = pandas.DataFrame(nodes | {"split": ["train", "val", "test"]})
    frame.to_csv(tmp_path / "own" / "nodes.csv", index=False)
    with pytest.raises(InputError, match="Give --data-options time_unit=ms"):
        load(tmp_path / "own")
    data = load(tmp_path / "own", time_unit="ms")
    assert (data.time_unit, int(data.graph.edge_time[0])) == ("ms", 1577836800500)
    load(tmp_path / "own", time_unit="ms").save(tmp_path / "saved")
    assert load(tmp_path / "saved").time_unit == "ms"
