"""Tables of edges as data sets: what `load_plain` makes of their columns, and refuses."""

import numpy as np
import pandas
import pytest
from folders import cases, edges, in_order, refused, splits, write

from jgs.data import load
from jgs.data.described import facts
from jgs.data.plain import load_plain
from jgs.predict.ids import read_ids

TABLE = {
    "src": ["ann", "bob", "ann", "cat", "bob"],
    "dst": ["bob", "cat", "bob", "cat", "ann"],
    "label": ["good", "bad", "", "good", "bad"],
    "split": ["train", "train", "val", "", "test"],
    "time": [5, 4, 3, 2, 1],
    "edge_weight": [1.0, 2.0, 3.0, 4.0, 5.0],
    "price": [10, 20, 30, 40, 50],
}
ALL = ("label", "split", "edge_time", "edge_weight", "price")
GIVEN = [
    ("ann", "bob", -1, 1, 3, 3.0, 30),
    ("ann", "bob", 1, 0, 5, 1.0, 10),
    ("bob", "ann", 0, 2, 1, 5.0, 50),
    ("bob", "cat", 0, 0, 4, 2.0, 20),
    ("cat", "cat", 1, -1, 2, 4.0, 40),
]
BACK = [(b, a, *rest) for a, b, *rest in GIVEN if a != b]


@pytest.fixture
def plain_of(tmp_path):
    """Writes `TABLE` with changed columns to a file and loads it."""

    def load_table(name="t.csv", options=None, **changes):
        write(tmp_path, {name: TABLE | changes})
        return load_plain(tmp_path / name, "data", **(options or {}))

    return load_table


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".tsv", ".tsv.gz"])
def test_every_column_stays_with_its_edge(plain_of, ending):
    plain = plain_of(f"mine{ending}")
    assert edges(plain, *ALL) == GIVEN
    columns = plain.graph.edge_columns
    assert (columns["label"].dtype, columns["split"].dtype) == (np.int32, np.int8)
    assert plain.graph.edge_time.dtype == np.int64
    assert (plain.name, plain.label_names) == ("mine", ("bad", "good"))
    assert plain.node_ids.values.tolist() == ["ann", "bob", "cat"]
    assert plain.labels is plain.train_idx is plain.features is plain.negatives is None
    told = {"nodes": 3, "edges": 5, "timed": True, "edge_labels": "classes"}
    told |= {"train_edges": 2, "val_edges": 1, "test_edges": 1}
    assert facts(plain).items() >= told.items()


def test_a_folder_has_edges_and_perhaps_nodes(tmp_path, caplog):
    folder = write(tmp_path / "own", {"edges.csv": TABLE})
    plain = load_plain("own", tmp_path)
    assert (plain.name, edges(plain, *ALL)) == ("own", GIVEN)
    nodes = {"id": ["cat", "dan", "bob", "ann"], "x": [1, 2, 3, 4], "label": list("aabb")}
    for left_out in ((), ("x",), ("label",), ("x", "label")):
        write(folder, {"nodes.csv": nodes | dict.fromkeys(left_out)})
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
    write(folder, {"nodes.csv": nodes | {"split": ["test", "train", "val", ""]}})
    plain, data = load_plain("own", tmp_path), load(folder)
    assert splits(plain) == splits(data) == [[1], [2], [0]]
    assert plain.class_names == data.class_names == ("a", "b")
    assert edges(data, *ALL) == GIVEN
    assert not caplog.messages
    (folder / "nodes.csv").rename(folder / "nodes.tsv")
    assert load_plain("own", tmp_path).features is None
    assert caplog.messages == [f"{folder} has tables that are not read: nodes.tsv"]


@pytest.mark.parametrize(("val", "ending"), [("val", ".csv"), ("valid", ".parquet")])
def test_a_folder_has_a_table_for_each_split(tmp_path, val, ending):
    parts = {"train": slice(0, 2), val: slice(2, 4), "test": slice(4, 5)}
    files = {
        name + ending: {key: column[part] for key, column in TABLE.items()} | {"split": None}
        for name, part in parts.items()
    }
    folder = write(tmp_path / "parts", files)
    one = [edge[:3] + ((1,) if edge[0] == "cat" else edge[3:4]) + edge[4:] for edge in GIVEN]
    assert edges(load_plain(folder, "data"), *ALL) == one
    without = files[val + ending] | {"label": None}
    write(folder, {val + ending: None, f"{val}.csv": without})
    labels = [edge[2] for edge in edges(load_plain(folder, "data"), "label", "price")]
    assert labels == [-1, 1, 0, 0, -1]


def test_reverse_edges_have_the_columns_of_their_edges(plain_of):
    plain = plain_of(options={"both_ways": True})
    assert edges(plain, *ALL) == sorted(GIVEN + BACK)
    added = [edge for edge in edges(plain, *ALL, "reverse") if edge[-1]]
    assert sorted(BACK) == [edge[:-1] for edge in added]
    once = plain_of(options={"symmetric": True})  # but times differ
    assert len(edges(once)) == 9
    assert edges(plain_of(options={"symmetric": True}, time=None), "price") == [
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
    there = [("user:3", "item:3", 1, 20), ("user:7", "item:3", 5, 30)]
    there += [("user:7", "item:9", 4, 10)]
    back = [(b, a, *rest) for a, b, *rest in there]
    assert edges(plain, "label", "edge_time") == sorted(there + back)
    assert graph.edge_columns["label"].dtype == np.float64
    assert "reverse" not in graph.edge_columns
    (tmp_path / "pairs.txt").write_text("user:7\titem:3\nuser:3 item:9\n")
    pairs, _ = read_ids(tmp_path / "pairs.txt", graph.num_nodes, 2, plain.node_ids)
    assert pairs.tolist() == [[1, 2], [0, 3]]
    one = load_plain(path, "data", **given, **types, relation="rates", both_ways=False)
    assert one.graph.schema.relations == (("user", "rates", "item"),)
    assert edges(one, "label", "edge_time") == there
    same = load_plain(path, "data", **given)
    assert same.node_ids.values.tolist() == [3, 7, 9]


def test_a_file_of_recbole_s_says_the_types_of_its_columns(tmp_path):
    path = tmp_path / "ml-100k.inter"
    head = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    path.write_text(head + "196\t242\t3\t881250949\n186\t302\t4\t891717742\n")
    plain = load_plain(path, "data")
    assert plain.name == "ml-100k"
    given = [(186, 302, 4.0, 891717742), (196, 242, 3.0, 881250949)]
    assert edges(plain, "label", "edge_time") == given
    assert plain.graph.edge_columns["label"].dtype == np.float64
    classes = load_plain(path, "data", label_kind="class")
    assert classes.graph.edge_columns["label"].dtype == np.int32


@cases(
    "kind, labels, expected",
    (None, pandas.array([3, None, 0, 2, 1], "Int64"), [3, -1, 0, 2, 1]),
    ("number", pandas.array([3, None, 0, 2, 1], "Int64"), [3, np.nan, 0, 2, 1]),
    (None, pandas.array([1, None, 2, 0, 1], "UInt8"), [1, -1, 2, 0, 1]),
    (None, pandas.array([True, False, True, True, True], "bool"), [1, 0, 1, 1, 1]),
    (None, pandas.array([3.5, None, 0.5, 2, 1], "Float64"), [3.5, np.nan, 0.5, 2, 1]),
    (None, pandas.array([None, None, "b", "a", "b"], "string"), [-1, -1, 1, 0, 1]),
    (None, pandas.Categorical(["b", None, "a", "b", "a"]), [1, -1, 0, 1, 0]),
)
def test_labels_that_are_missing(plain_of, kind, labels, expected):
    for name in ("t.csv", "t.parquet"):
        options = {"label_kind": kind} if kind else {}
        graph = plain_of(name, options, label=labels).graph
        found = in_order(graph, graph.edge_columns["label"])
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == (np.float64 if np.isnan(expected).any() else np.int32)


@cases(
    "time, unit, whole",
    ("2020-01-01", None, 1577836800),
    ("2020-01-01", "D", 18262),
    ("2020-01-01 00:00:01", "ms", 1577836801 * 10**3),
    ("2020-01-01T00:00:00.000001", "us", 1577836800 * 10**6 + 1),
    ("2020-01-01T02:00:00+02:00", "s", 1577836800),
    ("1960-01-01", "s", -315619200),
    (2.0**40, None, 2**40),
    (2**62, "us", 2**62),
)
def test_dates_become_whole_numbers(plain_of, time, unit, whole):
    options, dates = {"time_unit": unit} if unit else {}, isinstance(time, str)
    times = [time] * 5
    if time == "2020-01-01T02:00:00+02:00":
        times[::2] = ["2020-01-01T00:00:00Z"] * 3
    columns = [("t.csv", times)]
    if dates:  # in Parquet as text and as dates
        moments = pandas.Series(pandas.to_datetime(times, utc=True))
        columns += [("t.parquet", times), ("t.parquet", moments.dt.tz_convert("Asia/Tokyo"))]
    for name, column in columns:
        plain = plain_of(name, options, time=column)
        assert np.asarray(plain.graph.edge_time).tolist() == [whole] * 5
        assert plain.time_unit == (unit or ("s" if dates else None))


def test_ids_of_which_some_look_like_numbers(tmp_path, plain_of):
    mixed = {"src": ["07", "7", "8", "7", "8"], "dst": ["x", "07", "x", "x", "7"]}
    assert plain_of(**mixed).node_ids.values.tolist() == ["07", "7", "8", "x"]
    ends = {"src": ["07", "7"], "dst": ["07", "7"]}, {"src": ["a", "b"], "dst": ["a", "b"]}
    folder = write(tmp_path / "parts", {"train.csv": ends[0], "test.csv": ends[1]})
    assert load_plain(folder, "data").node_ids.values.tolist() == ["07", "7", "a", "b"]
    typed = {"src_type": "user", "dst_type": "item", "both_ways": False}
    assert edges(load_plain(folder, "data", **typed), "split") == [
        *[("user:07", "item:07", 0), ("user:7", "item:7", 0)],
        *[("user:a", "item:a", 2), ("user:b", "item:b", 2)],
    ]


A_TIME = "must be a whole number or a date; got "
DAYS, LETTERS = ["2020-01-01"] * 4, list("abcde")


@cases(
    "changes, options, says",
    ({"src": None}, {}, "t.csv must have a column 'src'; got columns 'dst', 'label'"),
    ({}, {"label": "stars"}, "t.csv must have a column 'stars'; got columns"),
    ({}, {"label": "price"}, "one column of each name, and none that means 'reverse'; got"),
    ({}, {"src": "dst", "dst": "dst"}, "must name another one; got src=dst, dst=dst"),
    ({}, {"both_ways": True, "symmetric": True}, "one of symmetric and both_ways must"),
    ({}, {"src_type": "a", "dst_type": "b", "symmetric": True}, "without symmetric; got"),
    ({}, {"src_type": "a", "dst_type": "a"}, "must be two types of nodes; got 'a'"),
    ({}, {"label_kind": "number"}, "must be numbers for label_kind=number; got 'bad'"),
    ({}, {"sources": "a"}, "the options of the data set"),
    ({}, {"relation": "rates"}, "relation must be beside src_type and dst_type"),
    ({}, {"split": "0.6,0.2,0.2"}, "the option split must be of nodes with labels"),
    ({"time": None}, {"time_unit": "s"}, "time_unit of the data set * be of columns of times"),
    ({"time": None}, {"time_scale": 2}, "time_scale of the data set * be of columns of times"),
    ({"label": None}, {"label_kind": "class"}, "must be of columns of labels; got label_kind"),
    ({}, {"standardize": True}, "must be of columns of numbers; got standardize=True"),
    ({}, {"max_categories": 5}, "be of columns of text; got max_categories=5 and no such"),
    ({"src": [1.5, 2, 3, 4, 5]}, {}, "src in *t.csv must be integers of at most 64 bits*ids="),
    ({"src": ["a", "b", "", "c", "d"]}, {}, "t.csv must name a node; got nothing in"),
    ({"time": [1, 2, None, 4, 5]}, {}, A_TIME + "nan at edge 2"),
    ({"time": [1, 2, 2.5, 4, 5]}, {}, A_TIME + "2.5 at edge 2. Give --data-options time_s"),
    ({"time": [1, 2, 1e30, 4, 5]}, {}, A_TIME + "1e+30 at edge 2"),
    ({"time": [*"1234", "in\nlines"]}, {}, A_TIME + "in lines at edge 4"),
    ({"time": [*DAYS, None]}, {}, A_TIME + "NaT at edge 4"),
    ({"time": [*DAYS, "2020-01-01T00:00:00.5"]}, {}, "at edge 4. Give * time_unit=ms."),
    ({}, {"time_unit": "h"}, "must be one of D, s, ms, us, ns; got 'h'"),
    ({}, {"time_scale": 0}, "the option time_scale must be 1 or more; got 0"),
    ({}, {"leave_out": "cost"}, "must have a column 'cost'"),
    ({"time": None, "ts": 1, "day": 2}, {}, "got 'ts' and 'day'. Say which by * time=ts."),
    ({"split": ["train", "valid"] * 2 + [""]}, {}, "test, or empty; got valid at edge 1"),
    ({"label": [0, -2, 1, 1, 1]}, {}, "-1; got -2 at edge 1. Number them from 0; label_"),
    ({"label": [0, 1 << 16, 1, 1, 1]}, {}, "65536), or -1; got 65536 at edge 1"),
    ({"label": [0, 0.5, 1, 1, 1]}, {"label_kind": "class"}, "or -1; got 0.5 at edge 1"),
    ({"label": [0, np.inf, 1, 1, 1.5]}, {}, "finite, or NaN for none; got inf"),
    ({"edge_weight": [1, 1, 1, 1, None]}, {}, "edge weights must be finite float32"),
    ({"price": LETTERS}, {}, "'price' must be numbers; got 'a' in row 0"),
    ({"reverse": 0}, {}, "none that means 'reverse'; got 'reverse' among"),
)
def test_broken_tables_are_refused_in_a_line(plain_of, changes, options, says):
    refused(says, plain_of, "t.csv", options, **changes)


def test_broken_folders_of_splits_are_refused(tmp_path):
    table = TABLE | {"split": None}
    folder = write(tmp_path / "parts", {"train.csv": table})
    for other, says in (
        (TABLE, "test.csv must have no column 'split', for its name says it"),
        (table | {"price": None}, "'price' in only one of them"),
        (table | {"price": list("abcde")}, "must be of the same types"),
    ):
        refused(says, load_plain, write(folder, {"test.csv": other}), "data")
    write(folder, {"test.csv": table, "val.csv": table, "valid.parquet": table})
    refused("of the val split; got val.csv, valid.parquet", load_plain, folder, "data")
    write(folder, {"train.csv": TABLE, "val.csv": None, "valid.parquet": None})
    refused("train.csv must have no column 'split'", load_plain, folder, "data")


def test_files_that_are_no_tables_of_labelled_edges(tmp_path):
    csv, parquet = tmp_path / "t.csv", tmp_path / "t.parquet"
    write(tmp_path, {"t.csv": "src,dst\n", "t.parquet": TABLE})
    refused("t.csv must have edges; got no row", load_plain, csv, "data")
    csv.write_text("a,b\n1,2\n")
    refused("must have a column 'src' and a column 'dst'", load_plain, csv, "data")
    says = "only the columns of a text file may need names"
    refused(says, load_plain, parquet, "data", columns="src,dst")
    refused("must have a table of them beside that of edges", load, parquet)
    for name, text in (("t.tsv", "0\t1\n1\t2\n"), ("u.tsv", "# from\tto\n0\t1\n1\t2\n")):
        (tmp_path / name).write_text(text)
        assert load_plain(tmp_path / name, "data").graph.num_edges == 4


@cases(
    "header",
    "ts,src,dst,weight",
    "timestamp,user_address,token_address,value",
    "year,nation,trading nation,weight",
    "ts,src,subreddit,score",
    "ts,user_id,genre,weight",
    "source,destination,timestamp",
    "timestamp,head,tail,relation_type",
)
def test_lists_of_tgb_need_no_names(tmp_path, header):
    names = header.split(",")
    row = {"source": "7", "destination": "9", "timestamp": "5", "ts": "5", "year": "5"}
    third = iter(["7", "9", "1"])
    cells = [row[name] if name in row else next(third) for name in names]
    (tmp_path / "tgb_edgelist.csv").write_text(f"{header}\n{','.join(cells)}\n")
    plain = load_plain(tmp_path / "tgb_edgelist.csv", "data")
    assert plain.graph.edge_time.tolist() == [5]
    assert plain.node_ids[plain.graph.edge_index()].ravel().tolist() == [7, 9]
