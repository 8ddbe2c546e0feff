"""Tables of nodes with a column `time`: a node exists from then on."""

import json

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.__main__ import main
from jgs.data.parts import open_parts
from jgs.data.plain import load_plain
from jgs.partition.__main__ import main as partition

NODES = "id,x,time,label,split\nc,1,9,0,train\na,2,-3,1,val\nb,3,4,0,test\n"
EDGES = "src,dst,time\na,b,1\nb,a,5\nc,a,2\na,a,-9\n"


def times(data):
    """A tuple for each edge: the names of its ends and its time; sorted."""
    ends = data.node_ids[data.graph.edge_index()].tolist()
    return sorted(zip(*ends, np.asarray(data.graph.edge_time).tolist(), strict=True))


LATER = [("a", "a", -3), ("a", "b", 4), ("b", "a", 5), ("c", "a", 9)]


def test_edges_are_not_before_their_ends(tmp_path, capsys):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(EDGES)
    for data in (load(folder), load_plain(folder, "data")):
        assert np.asarray(data.graph.node_time).tolist() == [9, -3, 4]
        assert times(data) == LATER
        assert np.asarray(data.features).tolist() == [[1], [2], [3]]
    load(folder).save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert np.asarray(again.graph.node_time).tolist() == [9, -3, 4]
    assert times(again) == LATER
    assert main(["describe", str(tmp_path / "saved")]) == 0
    assert json.loads(capsys.readouterr().out)["timed_nodes"] is True
    both = load_plain(folder, "data", both_ways=True)
    assert times(both) == sorted(LATER + [(b, a, time) for a, b, time in LATER if a != b])
    (folder / "edges.csv").write_text("src,dst\na,b\nb,a\nc,a\n")
    assert times(load(folder)) == [("a", "b", 4), ("b", "a", 4), ("c", "a", 9)]
    dates = NODES.replace(",9,", ",1970-01-02,").replace(",-3,", ",1969-12-31,")
    (folder / "nodes.csv").write_text(dates.replace(",4,", ",1970-01-05,"))
    data = load(folder, time_unit="D")
    assert np.asarray(data.graph.node_time).tolist() == [1, -1, 4]
    assert data.time_unit == "D"


@pytest.mark.parametrize(
    ("time", "says"),
    [("", "nan at row 1"), ("soon", "soon at row 1"), ("2.5", "2.5 at row 1. Give --data")],
)
def test_wrong_times_of_nodes_are_refused_in_a_line(tmp_path, time, says):
    (tmp_path / "nodes.csv").write_text(NODES.replace("-3", time))
    (tmp_path / "edges.csv").write_text(EDGES)
    for read in (load, lambda folder: load_plain(folder, "data")):
        with pytest.raises(InputError, match=f"time of every row in .* got {says}") as caught:
            read(tmp_path)
        assert "\n" not in str(caught.value)


def test_times_of_one_type(tmp_path):
    (tmp_path / "nodes_user.csv").write_text("id,time\n8,7\n9,1\n")
    (tmp_path / "edges_user_buys_item.csv").write_text("src,dst,time\n8,1,3\n9,1,3\n8,2,8\n")
    plain = load_plain(tmp_path, "data", both_ways=False)
    assert times(plain) == [
        ("user:8", "item:1", 7),
        ("user:8", "item:2", 8),
        ("user:9", "item:1", 3),
    ]
    named = dict(zip(plain.node_ids.values, np.asarray(plain.graph.node_time), strict=True))
    assert (named["user:8"], named["user:9"]) == (7, 1)
    assert named["item:1"] <= 3
    (tmp_path / "edges_user_buys_item.csv").write_text("src,dst\n8,1\n9,1\n")
    assert [time for *_, time in times(load_plain(tmp_path, "data", both_ways=False))] == [7, 1]


def test_parts_have_the_times_of_nodes(tmp_path, capsys):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "nodes.csv").write_text(NODES)
    (folder / "edges.csv").write_text(EDGES)
    out = tmp_path / "parts"
    assert partition(["--dataset", str(folder), "--parts", "1", "--out", str(out)]) == 0
    capsys.readouterr()
    parts = open_parts(out)
    names = parts.node_ids[parts.original_ids].tolist()
    found = dict(zip(names, np.asarray(parts.graph.node_time).tolist(), strict=True))
    assert found == {"a": -3, "b": 4, "c": 9}
