"""Damaged archives and paths that are no files: an error of one line, without waiting."""

import io
import os
import zipfile

import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.data import load
from jgs.data.archive import extract
from jgs.data.formats import snap
from jgs.data.formats.npz import open_npy
from jgs.data.text import read_rows
from jgs.files import storage


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_damaged_archives_packed_in_other_ways(tmp_path, method, arrays, may_refuse):
    """LZMA raises its own kind of error."""
    path = tmp_path / "ring.npz"
    with zipfile.ZipFile(path, "w", method) as file:
        for name, array in arrays.items():
            data = io.BytesIO()
            np.save(data, array)
            file.writestr(f"{name}.npy", data.getvalue())
    assert load(path).graph.num_edges == 12
    whole = path.read_bytes()
    for position in range(30, 400, 3):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        with may_refuse():
            load(path)
        with may_refuse():
            extract(path, tmp_path / f"out{position}")


def test_a_pipe_is_no_file(tmp_path, arrays):
    """Opening a pipe waits until somebody writes into it, which may be for ever."""
    np.savez(tmp_path / "ring.npz", **arrays)
    for name in ("pipe", "pipe.npz", "pipe.zip", "edges.txt", "features.npy", "manifest.json"):
        os.mkfifo(tmp_path / name)
    for read in (
        lambda: load(tmp_path / "pipe.npz"),
        lambda: Graph.from_npz(tmp_path / "pipe.npz"),
        lambda: Graph.open(tmp_path),
        lambda: extract(tmp_path / "pipe.zip", tmp_path / "out"),
        lambda: open_npy(tmp_path / "features.npy"),
        lambda: next(read_rows(tmp_path / "edges.txt", np.int64)),
        lambda: snap.load("edges.txt", tmp_path),
        lambda: storage.sha256(tmp_path / "pipe"),
    ):
        with pytest.raises(InputError, match=r"must be a (plain )?file.*"):
            read()
