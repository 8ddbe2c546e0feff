"""What the formats read files with: whole, cut short, damaged, and pipes."""

import gzip
import io
import itertools
import os
import pickle
import shutil
import stat
import struct
import zipfile

import numpy as np
import pytest
import scipy.sparse
from folders import cases, refused, write
from torch_files import Tensor, torch_pickles, torch_zip

from jgs import Graph, InputError
from jgs.data import load
from jgs.data.array_files import open_npy
from jgs.data.download import Cache, extract
from jgs.data.formats import snap
from jgs.data.text import read_rows, read_table
from jgs.data.unpickle import load_pickle, load_torch
from jgs.files import storage


def saved(save, *args, **arrays):
    file = io.BytesIO()
    save(file, *args, **arrays)
    return file.getvalue()


def zipped(*members, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def packed(arrays, method):
    """An archive of arrays, packed as NumPy does not; LZMA raises its own kind of error."""
    members = ((f"{name}.npy", saved(np.save, array)) for name, array in arrays.items())
    return zipped(*members, method=method)


def load_papers(path):
    """Loads OGB's binary layout, whose archive is unpacked member by member."""
    files = {"raw/data.npz": path.read_bytes(), "raw/node-label.npz": {"node_label": [0.0] * 6}}
    names = ("train", "valid", "test")
    files |= {f"split/time/{name}.csv.gz": [node] for node, name in enumerate(names)}
    return load(write(path.parent / "papers", files))


def unpack(path):
    return extract(path, path.parent / "out")


def read_numbers(path):
    return read_table(path, np.int64)


PAIRS = np.arange(12).reshape(6, 2)
TENSORS = {"edge": Tensor(PAIRS), "year": np.arange(6)}
MATRIX = scipy.sparse.random(5, 7, 0.5, "csr", None, 0)


def papers(arrays):
    given = {"edge_index": arrays["edge_index"], "node_feat": arrays["features"]}
    return saved(np.savez_compressed, **given, num_nodes_list=np.array([6]))


@cases(
    "name, make, read",
    ("a.npz", lambda arrays: saved(np.savez, **arrays), load),
    ("b.npz", lambda arrays: saved(np.savez_compressed, **arrays), load),
    ("lzma.npz", lambda arrays: packed(arrays, zipfile.ZIP_LZMA), load),
    ("bz2.npz", lambda arrays: packed(arrays, zipfile.ZIP_BZIP2), load),
    ("papers.npz", papers, load_papers),
    ("x.zip", lambda _: zipped(("top/x", b"some text " * 20), ("top/y", b"more")), unpack),
    ("lzma.zip", lambda arrays: packed(arrays, zipfile.ZIP_LZMA), unpack),
    ("x.txt.gz", lambda _: gzip.compress(b"1,2\n" * 99), read_numbers),
    ("x.npy", lambda _: saved(np.save, PAIRS), open_npy),
    ("x.pickle", lambda _: pickle.dumps(MATRIX, 2), load_pickle),
    ("zip.pt", lambda _: torch_zip(TENSORS), load_torch),
    ("pickles.pt", lambda _: torch_pickles(TENSORS), load_torch),
)
def test_cut_and_damaged_files(tmp_path, arrays, name, make, read):
    whole = make(arrays)
    read(write(tmp_path / "whole", {name: whole}) / name)
    # An empty text is a table without rows.
    cuts = range(read == read_numbers, len(whole) - 1, 1 + len(whole) // 40)
    for at in (*cuts, len(whole) - 2):
        refused("", read, write(tmp_path / f"cut{at}", {name: whole[:at]}) / name)
    places = range(0, len(whole), 1 + len(whole) // 75)
    for at, bits in itertools.product(places, (0x15, 0xFF)):
        damaged = whole[:at] + bytes([whole[at] ^ bits]) + whole[at + 1 :]
        path = write(tmp_path / f"{at}.{bits}", {name: damaged}) / name
        message = ""
        try:
            read(path)  # a byte without meaning, or another number
        except InputError as error:
            message = str(error)
        assert "\n" not in message


def test_a_pipe_is_no_file(tmp_path, arrays):
    """Opening a pipe waits until somebody writes into it, which may be for ever."""
    np.savez(tmp_path / "ring.npz", **arrays)
    for name in ("pipe", "pipe.npz", "pipe.zip", "edges.txt", "features.npy", "manifest.json"):
        os.mkfifo(tmp_path / name)
    for call in (
        lambda: load(tmp_path / "pipe.npz"),
        lambda: Graph.from_npz(tmp_path / "pipe.npz"),
        lambda: Graph.open(tmp_path),
        lambda: unpack(tmp_path / "pipe.zip"),
        lambda: open_npy(tmp_path / "features.npy"),
        lambda: next(read_rows(tmp_path / "edges.txt", np.int64)),
        lambda: snap.load("edges.txt", tmp_path, kept=Cache()),
        lambda: storage.sha256(tmp_path / "pipe"),
    ):
        refused("must be a*file", call)


# -- archives ----------------------------------------------------------------------------------


def unpacked(folder, *members):
    """Unpacks an archive of these members as the folder `out`."""
    return unpack(write(folder, {"a.zip": zipped(*members)}) / "a.zip")


def test_the_top_folder_becomes_the_target(tmp_path):
    out = unpacked(tmp_path, ("top/", b""), ("top/raw/x", b"1"), ("top/y", b""))
    assert out == tmp_path / "out"
    assert [(out / name).read_bytes() for name in ("raw/x", "y")] == [b"1", b""]
    flat = ("raw/x", b"1"), ("y", b"2")
    assert (unpacked(tmp_path / "flat", *flat) / "raw" / "x").read_bytes() == b"1"
    (there := tmp_path / "there" / "out").mkdir(parents=True)
    unpacked(tmp_path / "there", *flat)  # a folder that is there stays
    assert list(there.iterdir()) == []


def test_members_that_leave_the_folder(tmp_path):
    link = zipfile.ZipInfo("top/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    paths = ("/etc/x", "../x", "top/../../x", "top/..", "//host/x")
    windows = ("C:/x", "c:x", "top\\..\\..\\x", "\\\\host\\x")
    for member in (*paths, *windows, link):
        members = ("top/x", b"good"), (member, b"/etc/passwd")
        refused("nothing was unpacked", unpacked, tmp_path, *members)
        assert {path.name for path in tmp_path.rglob("*")} <= {"a.zip", ".out.lock"}


def test_what_cannot_be_unpacked(tmp_path, monkeypatch):
    with pytest.warns(UserWarning, match="Duplicate"):
        refused("a name twice", unpacked, tmp_path, ("top/x", b"1"), ("top/x", b"2"))
    bomb = ("top/x", bytes(50 * 2**20))
    refused("that unpack to 52,428,800", unpacked, tmp_path, bomb)
    refused("no files", unpacked, tmp_path)
    refused("", unpack, tmp_path / "none.zip")
    large = zipped(("top/x", np.random.default_rng(0).bytes(5000)))
    # Both headers then declare 1000 bytes.
    small = large.replace(struct.pack("<I", 5000), struct.pack("<I", 1000))
    refused("", unpack, write(tmp_path, {"a.zip": small}) / "a.zip")
    assert not list(tmp_path.rglob("x"))
    usage = shutil.disk_usage(tmp_path)._replace(free=4)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused("needs 5 bytes", unpacked, tmp_path, ("top/x", b"12345"))
    assert not (tmp_path / "out").exists()


# -- numbers in text ---------------------------------------------------------------------------


def table(tmp_path, text, dtype=np.int64, **options):
    (tmp_path / "t").write_bytes(text if isinstance(text, bytes) else text.encode())
    parts = list(read_rows(tmp_path / "t", dtype, **options))
    return np.concatenate(parts).tolist() if parts else []


@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_chunks_do_not_matter(tmp_path, chunk):
    text = "1,2\n30,40\n\n500,600\r\n7,8"  # a blank line, CRLF, no newline at the end
    expected = [[1, 2], [30, 40], [500, 600], [7, 8]]
    assert table(tmp_path, text, chunk_bytes=chunk) == expected
    assert table(tmp_path, gzip.compress(text.encode()), chunk_bytes=chunk) == expected
    spaced = "# Nodes: 3\n# a\tb\n1\t2\n 3   4 \n# end\n"
    options = {"delimiter": None, "comments": "#", "chunk_bytes": chunk}
    assert table(tmp_path, spaced, **options) == [[1, 2], [3, 4]]
    assert table(tmp_path, "#\n#\n", **options) == []
    assert table(tmp_path, "0.5,-1e3\n", np.float32, chunk_bytes=chunk) == [[0.5, -1000.0]]
    assert table(tmp_path, "", chunk_bytes=chunk) == []
    assert read_table(tmp_path / "t", np.int64, columns=1).shape == (0, 1)


@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_what_is_no_integer_table(tmp_path, chunk):
    texts = ["1,2\n3\n", "1,2\n3,4,5\n", "1,x\n", "1,2.5\n", "1,\n", "1 2\n", "1,2\n\0\1"]
    for text in (*texts, f"{2**70},1\n"):
        says = str(tmp_path / "t")
        refused(says, table, tmp_path, text, columns=2, chunk_bytes=chunk)
    refused("no such file", next, read_rows(tmp_path / "none", np.int64))
    refused("", next, read_rows(tmp_path, np.int64))
