"""Files of events: JODIE's, TGB's, and SNAP's lists and networks of trust."""

import gzip
import json

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.__main__ import main
from jgs.data.plain import load_plain

HEADER = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
JODIE = HEADER + "7,0,0.0,0,-0.5,1.5\n3,0,36.0,1,2,0\n7,5,36.0,0,0.25,1e-3\n7,0,77,0,3,4\n"


def events(plain, *names):
    """A tuple for each edge: the names of its ends, its time, its columns `names`; sorted."""
    graph = plain.graph
    ends = plain.node_ids[graph.edge_index()].tolist()
    columns = [np.asarray(graph.edge_columns[name]).tolist() for name in names]
    times = np.asarray(graph.edge_time).tolist()
    return sorted(zip(*ends, times, *columns, strict=True), key=str)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_users_items_and_features_of_jodie(tmp_path, ending):
    path = tmp_path / f"wikipedia{ending}"
    path.write_bytes(gzip.compress(JODIE.encode()) if ending.endswith("gz") else JODIE.encode())
    plain = load_plain(path, "data", both_ways=False)
    assert (plain.name, plain.time_unit) == ("wikipedia", None)
    graph = plain.graph
    assert graph.schema.node_types == (("user", 2), ("item", 2))
    assert graph.schema.relations == (("user", "to", "item"),)
    assert events(plain, "label", "features") == [
        ("user:3", "item:0", 36, 1, [2, 0]),
        ("user:7", "item:0", 0, 0, [-0.5, 1.5]),
        ("user:7", "item:0", 77, 0, [3, 4]),
        ("user:7", "item:5", 36, 0, [0.25, float(np.float32(1e-3))]),
    ]
    assert (graph.edge_time.dtype, graph.edge_columns["label"].dtype) == (np.int64, np.int32)
    assert graph.edge_columns["features"].dtype == np.float32
    both = load_plain(path, "data", relation="edits", time_unit="s")
    assert both.graph.schema.relations[1] == ("item", "rev_edits", "user")
    assert both.time_unit == "s"
    there = events(plain, "features")
    assert events(both, "features") == sorted(
        there + [(b, a, *rest) for a, b, *rest in there], key=str
    )
    data = load(path, both_ways=False)
    assert (data.num_classes, data.graph.num_edges, data.features.shape) == (1, 4, (4, 0))
    data.save(tmp_path / "saved")
    again = load(tmp_path / "saved").graph
    assert np.array_equal(again.edge_columns["features"], graph.edge_columns["features"])
    assert np.array_equal(again.edge_time, graph.edge_time)


def test_events_of_jodie_without_features(tmp_path):
    path = tmp_path / "mooc.csv"
    path.write_text(HEADER + "1,1,5,0\n2,1,6,1\n")
    graph = load_plain(path, "data").graph
    assert graph.edge_columns["features"].shape == (4, 0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,1,soon,0,1,2", "must be a whole CSV file; got .*soon"),
        ("1,1,,0,1,2", "must be a whole number or a date; got nan at edge 1"),
        ("1,1,36.5,0,1,2", "got 36.5 at edge 1. Give --data-options time_scale=10"),
        ("1,1,5,0,1", "Expected 6 columns, got 5"),
        ("1,1,5,0,1,2,3", "Expected 6 columns, got 7"),
        ("1,1,5,0,1,nan", "the features of the events in .* must be finite; got NaN .* row 1"),
        ("1,1,5,0,1,", "must be finite; got NaN or infinity in row 1"),
        ("1,1,5,0,1,inf", "must be finite; got NaN or infinity in row 1"),
        ("1,1,5,0,1,x", "must be a whole CSV file; got .*x"),
        (",1,5,0,1,2", "user_id in .* perhaps missing"),
        ("1.5,1,5,0,1,2", "user_id in .* must be integers"),
        ("1,1,5,-7,1,2", "the classes of the edges in .*; got -7 at edge 1"),
    ],
)
def test_wrong_lines_of_jodie_are_refused(tmp_path, line, says):
    path = tmp_path / "w.csv"
    path.write_text(f"{HEADER}7,0,0.0,0,-0.5,1.5\n{line}\n")
    with pytest.raises(InputError, match=says) as caught:
        load_plain(path, "data")
    assert "\n" not in str(caught.value)
    for text in (HEADER, HEADER + "1,2\n"):
        path.write_text(text)
        with pytest.raises(InputError, match="must have events of at least 4 columns"):
            load_plain(path, "data")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("time,src,dst,weight\n9,xa,xb,800.0\n5,xb,xa,1.5\n", {}, {"weight": [800, 1.5]}),
        (
            "ts,src,dst,subreddit,num_words,score\n9,xa,xb,x,3,1\n5,xb,xa,y,4,2\n",
            {"leave_out": "subreddit"},
            {"num_words": [3, 4], "score": [1, 2]},
        ),
        (
            "day,src,dst,callsign,typecode\n1970-01-10,xa,xb,f,g\n1970-01-06,xb,xa,f,g\n",
            {"leave_out": "callsign,typecode", "time_unit": "D"},
            {},
        ),
        ("timestamp,user,item,w\n9,xa,xb,1\n5,xb,xa,2\n", {}, {"w": [1, 2]}),
        ("unix_time,source,destination\n9,xa,xb\n5,xb,xa\n", {}, {}),
        ("when,who,target\n9,xa,xb\n5,xb,xa\n", {"time": "when", "src": "who"}, {}),
    ],
)
def test_names_of_columns_of_tgb_and_others(tmp_path, text, options, expected):
    (tmp_path / "t.csv").write_text(text)
    plain = load_plain(tmp_path / "t.csv", "data", **options)
    assert events(plain) == [("xa", "xb", 9), ("xb", "xa", 5)]
    found = {k: np.asarray(v).tolist() for k, v in plain.graph.edge_columns.items()}
    # Edges are in the order of their targets: xa, then xb.
    assert found == {name: values[::-1] for name, values in expected.items()}


TEMPORAL = "# FromNodeId ToNodeId Time\n30 10 7\n10 30 5\n30 10 7\n20 10 9\n"


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".tsv"])
def test_temporal_networks_of_snap(tmp_path, ending):
    path = tmp_path / f"CollegeMsg{ending}"
    text = (TEMPORAL.replace(" ", "\t") if ending == ".tsv" else TEMPORAL).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    plain = load_plain(path, "data")
    assert events(plain) == [(10, 30, 5), (20, 10, 9), (30, 10, 7), (30, 10, 7)]
    assert (plain.name, plain.node_ids.values.tolist()) == ("CollegeMsg", [10, 20, 30])
    both = load_plain(path, "data", both_ways=True, time_unit="s", time_scale=1000)
    assert (both.graph.num_edges, both.time_unit) == (8, "s")
    assert np.asarray(both.graph.edge_time).max() == 9000
    assert load(path).graph.num_edges == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 2 3\n1 2\n", "1.txt must be a table of int64 numbers; got"),
        ("1 2 3\n1 2 3 4\n", "1.txt must be a table of int64 numbers; got"),
        ("1 2 3\n1 2 soon\n", "1.txt must be a table of int64 numbers; got"),
        ("1 2 3\nann 2 3\n", "1.txt must be a table of int64 numbers; got"),
        ("1 2 3.25\n", "or a date; got 3.25 at edge 0. Give --data-options time_scale=100:"),
        ("1 2 nan\n", "got nan at edge 0"),
        ("1.5 2 3.0\n", "must name nodes by whole numbers; got 1.5 in row 0"),
    ],
)
def test_wrong_lists_are_refused(tmp_path, text, says):
    (tmp_path / "1.txt").write_text(text)
    with pytest.raises(InputError, match=says) as caught:
        load_plain(tmp_path / "1.txt", "data")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_networks_of_trust(tmp_path, ending):
    text = b"6,2,4,1289241911.72836\n6,5,-10,1289241941.53378\n2,6,1,1289243140.39049\n"
    path = tmp_path / f"soc-sign-bitcoinotc{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    says = r"got 1289241911.72836 at edge 0. Give --data-options time_scale=100000"
    with pytest.raises(InputError, match=says):
        load_plain(path, "data")
    plain = load_plain(path, "data", time_scale=1_000_000, time_unit="us")
    assert events(plain, "label") == [
        (2, 6, 1289243140390490, 1),
        (6, 2, 1289241911728360, 4),
        (6, 5, 1289241941533780, -10),
    ]
    assert plain.graph.edge_columns["label"].dtype == np.float32
    assert plain.time_unit == "us"
    assert load(path, time_scale=100_000).graph.num_edges == 3
    (tmp_path / "alpha.csv").write_bytes(b"6,2,4,5\n6,5,-10,9\n")
    assert events(load_plain(tmp_path / "alpha.csv", "data")) == [(6, 2, 5), (6, 5, 9)]


def test_an_archive_of_events(tmp_path, capsys):
    path = tmp_path / "m.npz"
    edges = {"edge_index": np.array([[0, 2, 0], [1, 0, 1]]), "edge_time": np.array([5, 9, 5])}
    np.savez(path, **edges, num_nodes=4)
    data = load(path)
    assert (data.graph.num_nodes, data.graph.num_edges, data.features.shape) == (4, 3, (4, 0))
    assert np.asarray(data.graph.edge_time).tolist() == [9, 5, 5]
    assert main(["describe", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first_time"], found["last_time"], found["distinct_times"]) == (5, 9, 2)
    assert "time_unit" not in found


def test_college_messages_are_events(real_data):
    data = load(real_data / "collegemsg.npz")
    assert (data.graph.num_nodes, data.graph.num_edges) == (1899, 59835)
    assert data.graph.edge_time is not None
