"""Tables of nodes: their columns, and the column `time`: a node exists from then on."""

import numpy as np
import pyarrow as pa
from folders import cases, edges, made, refused, write
from pyarrow import parquet

from jgs.data import load
from jgs.data.columns import ColumnRule
from jgs.data.described import facts
from jgs.data.plain import load_plain
from jgs.data.table_graph import TableRules, read_nodes


def table_of(folder, **columns):
    parquet.write_table(pa.table(columns), folder / "nodes.parquet")
    rule = ColumnRule(max_categories=3)
    return read_nodes(folder / "nodes.parquet", TableRules(rule))


def test_columns_of_parquet(tmp_path):
    table = table_of(
        tmp_path,
        id=["x", "y", "z"],
        vector=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
        big=pa.array([1, None, 3], pa.int64()),
        flag=[True, None, False],
        word=pa.array(["b", None, "a"]).dictionary_encode(),
        empty_text=["", "c", "c"],
        label=["p", None, "q"],
        split=["train", None, "test"],
    )
    assert table.ids.values.tolist() == ["x", "y", "z"]
    assert table.features.dtype == np.float32
    assert table.features.tolist() == [
        # vector, big, missing, flag, missing, word a, b, missing, empty_text c, missing
        [1, 2, 1, 0, 1, 0, 0, 1, 0, 0, 1],
        [3, 4, 0, 1, 0, 1, 0, 0, 1, 1, 0],
        [5, 6, 3, 0, 0, 0, 1, 0, 0, 1, 0],
    ]
    assert table.columns.filled == {"big": 1, "flag": 1, "word": 1, "empty_text": 1}
    assert table.label.tolist() == ["p", None, "q"]
    assert table_of(tmp_path, id=[3, 1]).features is None


@cases(
    "columns, says",
    ({"id": [1, None]}, "must have an id; got none at row 1"),
    ({"id": ["a", ""]}, "must have an id; got none at row 1"),
    ({"id": [0.5, 1.5]}, "nodes.parquet: the ids of nodes must be integers"),
    ({"id": [1, 2], "x": [[1.0], [1.0, 2.0]]}, "long lists of numbers; got lists of uneq"),
    ({"id": [1, 2], "x": [[1.0], [np.nan]]}, "must have whole lists; got [nan] at row 1"),
    ({"id": [1, 2], "x": [1e300, 1.0]}, "must be finite; got 1e+300 at row 0"),
    ({"id": [1, 2], "x": [None, ""]}, "a value somewhere; got none. Delete the column, o"),
)
def test_bad_columns_are_refused(tmp_path, columns, says):
    refused(says, table_of, tmp_path, **columns)


# -- times -------------------------------------------------------------------------------------

NODES = "id,x,time,label,split\nc,1,9,0,train\na,2,-3,1,val\nb,3,4,0,test\n"
EDGES = "src,dst,time\na,b,1\nb,a,5\nc,a,2\na,a,-9\n"
LATER = [("a", "a", -3), ("a", "b", 4), ("b", "a", 5), ("c", "a", 9)]
folder = made("own", {"nodes.csv": NODES, "edges.csv": EDGES})


def test_edges_are_not_before_their_ends(folder, tmp_path):
    load(folder).save(tmp_path / "saved")
    for data in (load(folder), load_plain(folder, "data"), load(tmp_path / "saved")):
        assert np.asarray(data.graph.node_time).tolist() == [9, -3, 4]
        assert edges(data, "edge_time") == LATER
        assert np.asarray(data.features).tolist() == [[1], [2], [3]]
    both = load_plain(folder, "data", both_ways=True)
    assert facts(both)["timed_nodes"]
    back = [(b, a, time) for a, b, time in LATER if a != b]
    assert edges(both, "edge_time") == sorted(LATER + back)
    write(folder, {"edges.csv": "src,dst\na,b\nb,a\nc,a\n"})
    assert edges(load(folder), "edge_time") == [("a", "b", 4), ("b", "a", 4), ("c", "a", 9)]
    dates = NODES.replace(",9,", ",1970-01-02,").replace(",-3,", ",1969-12-31,")
    write(folder, {"nodes.csv": dates.replace(",4,", ",1970-01-05,")})
    data = load(folder, time_unit="D")
    assert np.asarray(data.graph.node_time).tolist() == [1, -1, 4]
    assert data.time_unit == "D"


@cases(
    "time, says",
    *[("", "nan at row 1"), ("soon", "soon at row 1"), ("2.5", "2.5 at row 1. Give --data")],
)
def test_wrong_times_of_nodes_are_refused_in_a_line(folder, time, says):
    write(folder, {"nodes.csv": NODES.replace("-3", time)})
    for read in (load, load_plain):
        refused(f"time of every row in * got {says}", read, folder, "data")


def test_times_of_one_type(tmp_path):
    bought = {"edges_user_buys_item.csv": "src,dst,time\n8,1,3\n9,1,3\n8,2,8\n"}
    write(tmp_path, bought | {"nodes_user.csv": "id,time\n8,7\n9,1\n"})
    plain = load_plain(tmp_path, "data", both_ways=False)
    assert edges(plain, "edge_time") == [
        ("user:8", "item:1", 7),
        ("user:8", "item:2", 8),
        ("user:9", "item:1", 3),
    ]
    named = dict(zip(plain.node_ids.values, np.asarray(plain.graph.node_time), strict=True))
    assert (named["user:8"], named["user:9"]) == (7, 1)
    assert named["item:1"] <= 3
    write(tmp_path, {"edges_user_buys_item.csv": "src,dst\n8,1\n9,1\n"})
    plain = load_plain(tmp_path, "data", both_ways=False)
    assert [time for *_, time in edges(plain, "edge_time")] == [7, 1]
