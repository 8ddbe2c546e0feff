"""Files of events: JODIE's, TGB's, and SNAP's lists and networks of trust. Triples."""

import json

import numpy as np
import pytest
from folders import cases, edges, made, refused, write

from jgs.data import load
from jgs.data.__main__ import main
from jgs.data.formats import triples
from jgs.data.plain import load_plain

HEADER = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
JODIE = HEADER + "7,0,0.0,0,-0.5,1.5\n3,0,36.0,1,2,0\n7,5,36.0,0,0.25,1e-3\n7,0,77,0,3,4\n"


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_users_items_and_features_of_jodie(tmp_path, ending):
    path = write(tmp_path, {f"wikipedia{ending}": JODIE}) / f"wikipedia{ending}"
    plain = load_plain(path, "data", both_ways=False)
    assert (plain.name, plain.time_unit) == ("wikipedia", None)
    graph = plain.graph
    assert graph.schema.node_types == (("user", 2), ("item", 2))
    assert graph.schema.relations == (("user", "to", "item"),)
    assert edges(plain, "edge_time", "label", "features") == [
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
    there = edges(plain, "edge_time", "features")
    back = [(b, a, *rest) for a, b, *rest in there]
    assert edges(both, "edge_time", "features") == sorted(there + back)
    data = load(path, both_ways=False)
    assert (data.num_classes, data.graph.num_edges, data.features.shape) == (1, 4, (4, 0))
    data.save(tmp_path / "saved")
    again = load(tmp_path / "saved").graph
    assert np.array_equal(again.edge_columns["features"], graph.edge_columns["features"])
    assert np.array_equal(again.edge_time, graph.edge_time)
    path = write(tmp_path, {"mooc.csv": HEADER + "1,1,5,0\n2,1,6,1\n"}) / "mooc.csv"
    assert load_plain(path, "data").graph.edge_columns["features"].shape == (4, 0)
    write(tmp_path, {"mooc.csv": HEADER + "1,1,5,stays\n2,1,6,leaves\n"})
    plain = load_plain(path, "data", both_ways=False)
    assert sorted(plain.graph.edge_columns["label"].tolist()) == [0, 1]
    assert plain.label_names == ("leaves", "stays")


@cases(
    "line, says",
    ("1,1,soon,0,1,2", "must be a whole number or a date; got soon"),
    ("1,1,36.5,0,1,2", "got 36.5 at edge 1. Give --data-options time_scale=10"),
    ("1,1,5,0,1", "Expected 6 columns, got 5"),
    ("1,1,5,0,1,nan", "the features of the events in * must be finite; got NaN * row 1"),
    (",1,5,0,1,2", "src in * perhaps missing"),
    ("1,1,5,-7,1,2", "the classes of the edges in *; got -7 at edge 1"),
)
def test_wrong_lines_of_jodie_are_refused(tmp_path, line, says):
    path = tmp_path / "w.csv"
    path.write_text(f"{HEADER}7,0,0.0,0,-0.5,1.5\n{line}\n")
    refused(says, load_plain, path, "data")
    for text in (HEADER, HEADER + "1,2\n"):
        path.write_text(text)
        refused("must have events of at least 4 columns", load_plain, path, "data")


@cases(
    "text, options, expected",
    ("time,src,dst,share\n9,xa,xb,800.0\n5,xb,xa,1.5\n", {}, {"share": [800, 1.5]}),
    ("ts,src,dst,word,n\n9,xa,xb,x,3\n5,xb,xa,y,4\n", {"leave_out": "word"}, {"n": [3, 4]}),
    ("day,src,dst\n1970-01-10,xa,xb\n1970-01-06,xb,xa\n", {"time_unit": "D"}, {}),
    ("timestamp,user,item,w\n9,xa,xb,1\n5,xb,xa,2\n", {}, {"w": [1, 2]}),
    ("unix_time,source,destination\n9,xa,xb\n5,xb,xa\n", {}, {}),
    ("when,who,target\n9,xa,xb\n5,xb,xa\n", {"time": "when", "src": "who"}, {}),
)
def test_names_of_columns_of_tgb_and_others(tmp_path, text, options, expected):
    (tmp_path / "t.csv").write_text(text)
    plain = load_plain(tmp_path / "t.csv", "data", **options)
    assert edges(plain, "edge_time") == [("xa", "xb", 9), ("xb", "xa", 5)]
    found = {k: np.asarray(v).tolist() for k, v in plain.graph.edge_columns.items()}
    # Edges are in the order of their targets: xa, then xb.
    assert found == {name: values[::-1] for name, values in expected.items()}


TEMPORAL = "# FromNodeId ToNodeId Time\n30 10 7\n10 30 5\n30 10 7\n20 10 9\n"


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".tsv"])
def test_temporal_networks_of_snap(tmp_path, ending):
    text = TEMPORAL.replace(" ", "\t") if ending == ".tsv" else TEMPORAL
    path = write(tmp_path, {f"CollegeMsg{ending}": text}) / f"CollegeMsg{ending}"
    plain = load_plain(path, "data")
    assert edges(plain, "edge_time") == [(10, 30, 5), (20, 10, 9), (30, 10, 7), (30, 10, 7)]
    assert (plain.name, plain.node_ids.values.tolist()) == ("CollegeMsg", [10, 20, 30])
    both = load_plain(path, "data", both_ways=True, time_unit="s", time_scale=1000)
    assert (both.graph.num_edges, both.time_unit) == (8, "s")
    assert np.asarray(both.graph.edge_time).max() == 9000
    assert load(path).graph.num_edges == 4
    # Beside a column that has a fraction in a later line, times keep all digits.
    late = 1_700_000_000_000_000_001
    path = write(tmp_path, {"late.txt": f"0 1 3 {late}\n1 0 2.5 {late + 2}\n"}) / "late.txt"
    columns = {"columns": "src,dst,x,time"}
    assert edges(load_plain(path, "data", **columns), "edge_time")[0][2] == late
    assert edges(load_plain(path, "data", **columns), "x") == [(0, 1, 3.0), (1, 0, 2.5)]


@cases(
    "text, says",
    ("1 2 1.1e9\n1 2\n", "1.txt must be a table of int64, int64, float64 numbers; got"),
    (
        "1 2 1082008561.25\n",
        "or a date; got 1082008561.25 at edge 0. Give --data-options time_scale=100:",
    ),
    ("1.5 2 1082008561\n", "could not convert string '1.5' to int64"),
)
def test_wrong_lists_are_refused(tmp_path, text, says):
    refused(says, load_plain, write(tmp_path, {"1.txt": text}) / "1.txt", "data")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_networks_of_trust(tmp_path, ending):
    text = "6,2,4,1289241911.72836\n6,5,-10,1289241941.53378\n2,6,1,1289243140.39049\n"
    name = f"soc-sign-bitcoinotc{ending}"
    path = write(tmp_path, {name: text}) / name
    says = "got 1289241911.72836 at edge 0. Give --data-options time_scale=100000"
    refused(says, load_plain, path, "data")
    plain = load_plain(path, "data", time_scale=1_000_000, time_unit="us")
    assert edges(plain, "edge_time", "label") == [
        (2, 6, 1289243140390490, 1),
        (6, 2, 1289241911728360, 4),
        (6, 5, 1289241941533780, -10),
    ]
    assert plain.graph.edge_columns["label"].dtype == np.float64
    assert plain.time_unit == "us"
    assert load(path, time_scale=100_000).graph.num_edges == 3
    (tmp_path / "alpha.csv").write_bytes(b"6,2,4,5\n6,5,-10,9\n")
    refused("", load_plain, tmp_path / "alpha.csv", "data")


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


# -- triples -----------------------------------------------------------------------------------

TRAIN = "b\tlikes it\ta\nc\t/is/a\ta\n\nb\t/is/a\tc\na\tlikes it\tb\n"
VALID = "d\t/is/a\ta\n"
TEST = "7\tlikes it\t07\r\n"
folder = made("kg", {"train.txt": TRAIN, "valid.txt": VALID, "test.txt.gz": TEST})


def test_triples(folder, monkeypatch):
    pieces = triples.line_chunks
    for size in (1 << 24, 12):  # whole, and a line or two at a time
        monkeypatch.setattr(triples, "line_chunks", lambda path, n=size: pieces(path, n))
        data = load_plain(folder, "")
        assert data.name == "kg"
        assert data.node_ids.values.tolist() == ["07", "7", "a", "b", "c", "d"]
        schema = data.graph.schema
        assert schema.node_types == (("entity", 6),)
        names = ["/is/a", "likes it", "rev_/is/a", "rev_likes it"]
        assert [name for _, name, _ in schema.relations] == names
        given = [("b", "c", 0, 0), ("c", "a", 0, 0), ("d", "a", 0, 1)]  # /is/a
        given += [("7", "07", 1, 2), ("a", "b", 1, 0), ("b", "a", 1, 0)]
        back = [(b, a, kind + 2, split) for a, b, kind, split in given]
        assert edges(data, "edge_type", "split") == sorted(given + back)
    assert load_plain(folder, "", both_ways=False).graph.num_edges == 6
    refused("which has no labels", load, folder)


@cases(
    "file, text, says",
    ("train.txt", TRAIN + "a\tb\n", "with tabs between; got 'a b' in line 6"),
    ("train.txt", TRAIN + "a\tlikes\tb\tc\n", "got 'a likes b c' in line 6"),
    ("train.txt", "a\t\tb\n", "in line 1"),
    ("valid.txt", "a b c\na b\n", "with white space between; got 'a b' in line 2"),
    ("test.txt.gz", "", "test.txt.gz must have triples"),
    ("train.txt", b"a\tb\tc\na\t\xff\tc\n", "UTF-8; got other bytes in line 2"),
    ("val.txt", VALID, "must hold one file of the val split; got val.txt, valid.txt"),
)
def test_bad_lines_are_named(file, text, says, folder):
    refused(says, load_plain, write(folder, {file: text}), "")
