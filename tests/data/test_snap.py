import gzip

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.formats import snap
from jgs.data.plain import load_plain

TEXT = "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n2\t1\n3\t3\n"


@pytest.fixture
def folder(arrays, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, array in arrays.items():
        if name != "edge_index":
            np.save(folder / f"{name}.npy", array)
    (folder / "edges.txt").write_text(TEXT)
    return folder


def rows(graph):
    return [
        r.tolist() for r in np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    ]


SYMMETRIC = [[1], [0, 2], [1], [], [], []]


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


def test_directed_and_gzipped(folder):
    assert rows(load(folder, symmetric=False).graph) == [[], [0, 2], [1], [3], [], []]
    (folder / "edges.txt").unlink()
    (folder / "p2p.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert rows(load(folder).graph) == SYMMETRIC


KONECT = "% asym weighted\n% 4 4 4\n0\t1\n1\t2 0.5\t1138572000\n2 1 -1\n3 3 2 1e9\n"


def test_konect_s_lists_have_weights_and_times_beside_the_edges(folder):
    (folder / "edges.txt").write_text(KONECT)
    assert rows(load(folder, symmetric=False).graph) == [[], [0, 2], [1], [3], [], []]
    (folder / "edges.txt").rename(folder / "out.mine-own")
    assert rows(load(folder / "out.mine-own", "data").graph) == SYMMETRIC
    alone = (folder / "out.mine-own").rename(folder.parent / "out.mine-own")
    plain = load_plain(alone, "data")
    assert (plain.name, rows(plain.graph)) == ("mine-own", [[1], [0, 2], [1], []])
    alone.write_text("% bip unweighted\n1 1\n2 1\n")
    with pytest.raises(InputError, match=r"must join nodes of one kind.* bipartite"):
        load_plain(alone, "data")


def test_parsed_once_and_again_when_changed(folder, monkeypatch):
    load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(snap, "save_graph", None)
        assert rows(load(folder).graph) == SYMMETRIC
    (folder / "edges.txt").write_text("4 5\n")
    assert rows(load(folder).graph) == [[], [], [], [], [5], [4]]


def test_features_are_mapped_not_copied(folder, arrays):
    dataset = load(folder)
    pointer = dataset.features.unsafe_buffer_pointer()
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if "features.npy" in line]
    assert any(int(a, 16) <= pointer < int(b, 16) for a, b in spans)
    normal = load(folder, normalize_features=True)
    np.testing.assert_allclose(np.asarray(normal.features).sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "edges.txt").unlink(), "one edge list"),
        (lambda f: (f / "labels.npy").unlink(), r"labels\.npy must exist"),
        (lambda f: (f / "train_idx.npy").unlink(), r"train_idx\.npy must exist"),
        (
            lambda f: (f / "edges.txt").write_text("0 6\n"),
            r"edges\.txt must name nodes in \[0, 6\)",
        ),
        (lambda f: (f / "edges.txt").write_text("0 -1\n"), r"\[0, 6\); got -1"),
        (lambda f: (f / "edges.txt").write_text("0 1 2.5\n"), "table of int64"),
        (lambda f: (f / "edges.txt").write_text("0 1 2\n"), "2 columns"),
        (lambda f: (f / "edges.txt").write_text("0,1\n"), "table of int64"),
        (lambda f: (f / "edges.txt").write_text("% sym\n0\n"), "table of int64"),
        (lambda f: (f / "edges.txt").write_text("% sym\n0 1.5 2\n"), "table of int64"),
        (
            lambda f: (f / "edges.txt").write_bytes(gzip.compress(b"0 1\n" * 99)[:-9]),
            "whole file",
        ),
        (lambda f: np.save(f / "features.npy", np.ones((5, 3))), "one row for every node"),
        (lambda f: np.save(f / "labels.npy", np.float32(1)), "a scalar"),
        (lambda f: np.save(f / "features.npy", np.full((6, 3), np.nan)), "row 0"),
        (lambda f: np.save(f / "train_idx.npy", np.empty(0, int)), "must not be empty"),
    ],
)
def test_broken_folders(folder, change, message):
    change(folder)
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="none, which is neither"):
        load("snap", tmp_path / "none")


def test_several_lists(folder):
    (folder / "readme.txt").write_text("0 1")
    assert rows(load(folder).graph) == SYMMETRIC  # the name edges.txt decides
    (folder / "edges.txt").rename(folder / "other.txt")
    with pytest.raises(InputError, match=r"other\.txt.*readme\.txt"):
        load(folder)
    assert rows(load(folder / "other.txt").graph) == SYMMETRIC
