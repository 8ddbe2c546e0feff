"""Rows of matrices in files: the bytes that NumPy wrote, whatever the files' layout, and one
line where a file can no longer be read."""

import os
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from jgs.errors import InputError
from jgs.files.row_file import DiskError, FilePart, RowFiles, copy_rows, part_of_mapped
from jgs.graph import as_device

RNG = np.random.default_rng(0)
N = 3000
DTYPES = ("float32", "float16", "int8", "float64", "int32")


@pytest.fixture(params=[True, False], ids=["kernel", "plain"])
def implementation(request, implemented):
    implemented(request.param)
    return request.param


def written(folder, table, cuts=()):
    """The files that have the rows of the table between the cuts."""
    paths = []
    for i, (a, b) in enumerate(pairwise([0, *cuts, len(table)])):
        paths.append(folder / f"rows{i}.npy")
        np.save(paths[-1], table[a:b])
    return paths


def read(files, rows, room=0):
    out = np.zeros((len(rows) + room, files.shape[1]), files.dtype)
    files.read(np.array(rows, np.int32), out)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 128, 5000])
def test_rows_are_those_written(tmp_path, implementation, dtype, width):
    table = (RNG.random((400, width)) * 200 - 100).astype(dtype)
    files = RowFiles.of_npy(written(tmp_path, table, (1, 150, 150, 399)))
    assert files.shape == (400, width)
    assert files.dtype == dtype
    for rows in ([], [0], [399], [148, 149, 150, 151], np.arange(400), np.arange(0, 400, 37)):
        np.testing.assert_array_equal(read(files, rows, room=2)[: len(rows)], table[rows])


def test_requests_join_what_lies_close(tmp_path, implemented):
    table = RNG.random((N, 128), np.float32)  # 1.5 MB
    (path,) = written(tmp_path, table)
    implemented(True)
    files = RowFiles.of_npy([path], threads=3)
    assert np.array_equal(read(files, np.arange(N)), table)
    assert files.requests == pytest.approx(table.nbytes / (256 << 10), abs=1)
    assert table.nbytes <= files.bytes <= table.nbytes + 2 * 4096 * files.requests
    files = RowFiles.of_npy([path])
    far = np.arange(0, N, 100)  # 51,200 bytes apart
    assert np.array_equal(read(files, far), table[far])
    assert files.requests == far.size
    assert files.bytes <= far.size * 8192


def test_past_the_page_cache_or_not(tmp_path, implementation, monkeypatch):
    table = RNG.random((50, 3), np.float32)
    (path,) = written(tmp_path, table)
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    files = RowFiles.of_npy([path])
    assert not files.direct
    assert np.array_equal(read(files, [3, 49]), table[[3, 49]])


def test_bfloat16(tmp_path, implementation):
    table = jnp.asarray(RNG.random((20, 5)), jnp.bfloat16)
    np.save(tmp_path / "x.npy", np.asarray(table).view(np.uint16))
    files = RowFiles.of_npy([tmp_path / "x.npy"], jnp.bfloat16)
    assert np.array_equal(read(files, [2, 19]), np.asarray(table)[[2, 19]])


def test_copied_rows(implementation):
    rows, table = RNG.random((9, 4), np.float32), np.zeros((5, 4), np.float32)
    copy_rows(rows, np.array([8, 0, 3], np.int32), np.array([1, 4, 0], np.int32), table)
    assert np.array_equal(table[[1, 4, 0]], rows[[8, 0, 3]])
    assert not table[2:4].any()


def test_the_file_behind_an_array(tmp_path):
    table = RNG.random((N, 16), np.float32)
    (path,) = written(tmp_path, table)
    mapped = np.load(path, mmap_mode="r")
    for array in (mapped, as_device(mapped), mapped[0:]):
        part = part_of_mapped(array)
        assert part == FilePart(path, mapped.offset, N)
        files = RowFiles([part], 16, np.float32)
        assert np.array_equal(read(files, [0, N - 1]), table[[0, N - 1]])
    assert part_of_mapped(mapped[5:]) == FilePart(path, mapped.offset + 5 * 64, N - 5)
    for other in (table, as_device(table), mapped[:, :3], mapped[:0]):
        assert part_of_mapped(other) is None
    path.unlink()
    assert part_of_mapped(mapped) is None


def test_a_file_that_gets_shorter(tmp_path, implementation):
    table = RNG.random((N, 16), np.float32)
    paths = written(tmp_path, table, (1000,))
    files = RowFiles.of_npy(paths)
    os.truncate(paths[1], 128 + 1500 * 64 + 3)
    assert np.array_equal(read(files, [0, 2499]), table[[0, 2499]])
    with pytest.raises(DiskError, match=r"rows1\.npy must stay readable.*a file that ends"):
        read(files, np.arange(900, N))


def test_a_file_that_fails(tmp_path, implementation):
    (path,) = written(tmp_path, RNG.random((N, 16), np.float32))
    files = RowFiles.of_npy([path])
    folder = os.open(tmp_path, os.O_RDONLY)
    os.dup2(folder, int(files._file[0]))  # a folder cannot be read
    os.close(folder)
    with pytest.raises(DiskError, match=r"must stay readable.*Is a directory.*its disk"):
        read(files, [1, 2, 2000])


def test_what_is_no_table(tmp_path):
    np.save(tmp_path / "line.npy", np.zeros(3))
    np.save(tmp_path / "columns.npy", np.zeros((3, 2), order="F"))
    np.save(tmp_path / "narrow.npy", np.zeros((3, 2)))
    np.save(tmp_path / "wide.npy", np.zeros((3, 4)))
    (tmp_path / "text.npy").write_text("none")
    wrong = {
        ("line.npy",): "must be a matrix",
        ("columns.npy",): "columns that lie",
        ("text.npy",): "whole .npy file",
        ("absent.npy",): "whole .npy file",
        ("narrow.npy", "wide.npy"): "same width and dtype",
    }
    for names, message in wrong.items():
        with pytest.raises(InputError, match=message):
            RowFiles.of_npy([tmp_path / name for name in names])
    with pytest.raises(InputError, match="dtype must be one of 8 bytes"):
        RowFiles.of_npy([tmp_path / "wide.npy"], np.float32)
    with pytest.raises(InputError, match="must be a file that can be read"):
        RowFiles([FilePart(tmp_path / "absent", 0, 3)], 2, np.float32)
