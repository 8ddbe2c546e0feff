"""The parsed cache: its checksums are compared, and no file of the user's is lost."""

import logging

import numpy as np
import pytest

from jgs import InputError
from jgs.data import load
from jgs.data.formats import snap


@pytest.fixture
def folder(arrays, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, array in arrays.items():
        if name != "edge_index":
            np.save(folder / f"{name}.npy", array)
    np.savetxt(folder / "edges.txt", arrays["edge_index"].T, "%d")
    return folder


def rows(dataset):
    graph = dataset.graph
    return [
        r.tolist() for r in np.split(np.asarray(graph.indices), np.asarray(graph.indptr)[1:-1])
    ]


RING = [sorted([(v - 1) % 6, (v + 1) % 6]) for v in range(6)]


@pytest.mark.parametrize("value", [4, 77, -3])  # another edge; ids of no node
def test_a_damaged_cache_is_parsed_again(folder, caplog, value):
    assert rows(load(folder)) == RING
    assert not caplog.records
    path = folder / "jgs-edges.txt" / "graph" / "indices.npy"
    indices = np.load(path)
    indices[2] = value
    np.save(path, indices)
    with caplog.at_level(logging.WARNING):
        assert rows(load(folder)) == RING
    (record,) = caplog.records
    assert "another checksum in graph/indices.npy" in record.getMessage()
    np.testing.assert_array_equal(np.load(path), np.concatenate(RING))
    caplog.clear()
    load(folder)
    assert not caplog.records


def test_verify_false_reads_sizes_alone(folder, monkeypatch):
    load(folder)
    monkeypatch.setattr("jgs.data.cache.sha256", None)
    monkeypatch.setattr(snap, "save_graph", None)
    assert rows(load(folder, verify=False)) == RING


def test_folders_beside_the_cache_are_the_users(folder, tmp_path):
    """`.cc.new` and `.cc.lock` were once jgs's own names."""
    place = tmp_path / "x"
    for name in (".cc.new", ".cc.extract", ".cc.tmp"):
        (place / name).mkdir(parents=True)
        (place / name / "notes").write_text("precious")
    (place / ".cc.lock").write_text("precious")
    for symmetric in (True, False, True):  # each graph replaces the one before
        load(folder, cache=place / "cc", symmetric=symmetric)
    assert all((p / "notes").read_text() == "precious" for p in place.glob(".cc.*[!k]"))
    assert (place / ".cc.lock").read_text() == "precious"
    assert len(list(place.iterdir())) == 5


def test_an_empty_folder_is_filled_and_a_full_one_is_not(folder, tmp_path):
    (tmp_path / "cc").mkdir()
    assert rows(load(folder, cache=tmp_path / "cc")) == RING
    (tmp_path / "cc" / "notes").write_text("precious")
    with pytest.raises(InputError, match=r"nothing was added to; got 'notes' in it"):
        load(folder, cache=tmp_path / "cc")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(InputError, match="got a file"):
        load(folder, cache=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"
