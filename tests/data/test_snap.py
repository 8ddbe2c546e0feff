"""Edge lists with arrays beside them, and the cache of what is parsed."""

import gzip
import logging

import numpy as np
import pytest
from folders import cases, is_mapped, refused, rows, write

from jgs.data import load
from jgs.data.formats import snap
from jgs.data.plain import load_plain

TEXT = "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t1\n3\t3\n"
SYMMETRIC = [[1], [0, 2], [1], [], [], []]


@pytest.fixture
def folder(arrays, tmp_path):
    beside = {f"{name}.npy": array for name, array in arrays.items() if name != "edge_index"}
    return write(tmp_path / "mine", beside | {"edges.txt": TEXT})


def test_every_way_to_name_it(folder, arrays, tmp_path):
    for name, root in [
        ("snap", folder),
        (folder, "data"),
        ("mine", tmp_path),
        (folder / "edges.txt", "data"),
        ("mine/edges.txt", tmp_path),
    ]:
        dataset = load(name, root)
        assert rows(dataset.graph) == SYMMETRIC
        np.testing.assert_array_equal(dataset.features, arrays["features"])
        np.testing.assert_array_equal(dataset.test_idx, arrays["test_idx"])
        assert dataset.name == "mine"
    folder.rename(tmp_path / "snap")
    assert rows(load("snap", tmp_path).graph) == SYMMETRIC
    refused("none, which is neither", load, "snap", tmp_path / "none")


def test_directed_and_gzipped(folder):
    assert rows(load(folder, symmetric=False).graph) == [[], [0, 2], [1], [3], [], []]
    write(folder, {"edges.txt": None, "p2p.txt.gz": TEXT})
    assert rows(load(folder).graph) == SYMMETRIC


KONECT = "% asym weighted\n% 4 4 4\n0\t1\n1\t2 0.5\t1138572000\n2 1 -1\n3 3 2 1e9\n"


def test_konect_s_lists_have_weights_and_times_beside_the_edges(folder, caplog):
    (folder / "edges.txt").write_text(KONECT)
    assert rows(load(folder, symmetric=False).graph) == [[], [0, 2], [1], [3], [], []]
    (folder / "edges.txt").rename(folder / "out.mine-own")
    assert rows(load(folder / "out.mine-own", "data").graph) == SYMMETRIC
    alone = (folder / "out.mine-own").rename(folder.parent / "out.mine-own")
    plain = load_plain(alone, "data")
    assert (plain.name, rows(plain.graph)) == ("mine-own", [[1], [0, 2], [1], []])
    assert not caplog.records
    alone.write_text("% asym positive\n4 9 2 1300000000\n9 4 5 1200000000\n")
    assert rows(load_plain(alone, "data").graph)[9] == [4]
    assert "columns behind their ends are not read; --data-options columns=src" in caplog.text
    (alone.parent / "features.npy").touch()
    load_plain(alone, "data")
    assert "features.npy beside it is not read without labels.npy" in caplog.text
    graph = load_plain(alone, "data", columns="src,dst,weight,time").graph
    found = *graph.edge_index().tolist(), graph.edge_weight.tolist(), graph.edge_time.tolist()
    assert found == ([1, 0], [0, 1], [5, 2], [1_200_000_000, 1_300_000_000])
    (folder / "edges.txt").write_text("% bip unweighted\n1 1\n2 1\n")
    refused("must join nodes of one kind* bipartite", load, folder)


def test_features_are_mapped_not_copied(folder, arrays):
    for dtype in (np.float32, np.float16):
        write(folder, {"features.npy": arrays["features"].astype(dtype)})
        features = load(folder).features
        assert features.dtype == dtype
        assert is_mapped(features, folder / "features.npy")
    normal = load(folder, normalize_features=True)
    np.testing.assert_allclose(np.asarray(normal.features).sum(1), 1, rtol=1e-6)


@cases(
    "changes, says",
    ({"edges.txt": None}, "one edge list"),
    ({"labels.npy": None}, "labels.npy must exist"),
    ({"edges.txt": "0 6\n"}, "edges.txt must name nodes in [0, 6)"),
    ({"edges.txt": "0 -1\n"}, "[0, 6); got -1"),
    ({"edges.txt": f"0 {2**33}\n"}, f"must name nodes in [0, 6); got {2**33}"),
    ({"edges.txt": "0 1 2\n"}, "2 columns"),
    ({"edges.txt": "0,1\n"}, "table of int64"),
    ({"edges.txt": "% sym\n0\n"}, "table of int64"),
    ({"edges.txt": "% sym\n0 1.5 2\n"}, "table of int64"),
    ({"edges.txt": gzip.compress(b"0 1\n" * 99)[:-9]}, "whole file"),
    ({"labels.npy": np.float32(1)}, "must be [N] or [N, C]; got float32[]"),
)
def test_broken_folders(folder, changes, says):
    refused(says, load, write(folder, changes))


def test_several_lists(folder):
    (folder / "readme.txt").write_text("0 1")
    assert rows(load(folder).graph) == SYMMETRIC  # the name edges.txt decides
    (folder / "edges.txt").rename(folder / "other.txt")
    refused("other.txt*readme.txt", load, folder)
    assert rows(load(folder / "other.txt").graph) == SYMMETRIC


# -- the cache ---------------------------------------------------------------------------------


def test_parsed_once_and_again_when_changed(folder, monkeypatch):
    load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(snap, "save_graph", None)
        assert rows(load(folder).graph) == SYMMETRIC
        patch.setattr("jgs.files.storage.sha256", None)
        assert rows(load(folder, verify=False).graph) == SYMMETRIC  # sizes alone are compared
    (folder / "edges.txt").write_text("4 5\n")
    assert rows(load(folder).graph) == [[], [], [], [], [5], [4]]


@pytest.mark.parametrize("value", [4, 77, -3, None])  # another edge; ids of no node; cut short
def test_a_damaged_cache_is_parsed_again(folder, caplog, value):
    assert rows(load(folder).graph) == SYMMETRIC
    assert not caplog.records
    path = folder / "jgs-edges.txt" / "graph" / "indices.npy"
    whole = path.read_bytes()  # 4 numbers behind 128 bytes
    other = b"" if value is None else np.int32(value).tobytes() + whole[140:]
    path.write_bytes(whole[:136] + other)
    with caplog.at_level(logging.WARNING):
        assert rows(load(folder).graph) == SYMMETRIC
    (record,) = caplog.records
    says = "not the files" if value is None else "another checksum in graph/indices.npy"
    assert says in record.getMessage()
    assert path.read_bytes() == whole
    caplog.clear()
    load(folder)
    assert not caplog.records


def test_folders_beside_the_cache_are_the_users(folder, tmp_path):
    """`.cc.new` and `.cc.lock` were once jgs's own names."""
    place = tmp_path / "x"
    names = (".cc.new/notes", ".cc.extract/notes", ".cc.tmp/notes", ".cc.lock")
    write(place, dict.fromkeys(names, "precious"))
    for symmetric in (True, False, True):  # each graph replaces the one before
        load(folder, cache=place / "cc", symmetric=symmetric)
    assert [(place / name).read_text() for name in names] == ["precious"] * 4
    assert len(list(place.iterdir())) == 5


def test_an_empty_folder_is_filled_and_a_full_one_is_not(folder, tmp_path):
    (cache := tmp_path / "cc").mkdir()
    assert rows(load(folder, cache=cache).graph) == SYMMETRIC
    write(cache, {"notes": "precious"})
    refused("nothing was added to; got 'notes' in it", load, folder, cache=cache)
    for key in ("{}", "[" * 100_000):
        write(cache, {"source.json": key})
        refused("nothing was added to", load, folder, cache=cache)
    write(tmp_path, {"foreign/notes": "precious", "file": "precious"})
    refused("folder that jgs wrote", load, folder, cache=tmp_path / "foreign")
    refused("got a file", load, folder, cache=tmp_path / "file")
    for kept in ("cc/notes", "foreign/notes", "file"):
        assert (tmp_path / kept).read_text() == "precious"
