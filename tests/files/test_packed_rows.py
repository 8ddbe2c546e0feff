"""Rows packed by step: those of each step; one line where there is no room or a disk fails."""

import os
import sys

import numpy as np
import pytest

from jgs.files import packed_rows
from jgs.files.packed_rows import PackedRows, Spool
from jgs.files.row_file import DiskError, RowFiles

N = 2000


@pytest.fixture
def table(tmp_path):
    rows = np.random.default_rng(0).random((N, 33)).astype(np.float16)
    np.save(tmp_path / "x.npy", rows)
    return rows


def files(folder):
    return RowFiles.of_npy([folder / "x.npy"])


@pytest.mark.parametrize("chunk", [1, 5000, 1 << 20])
@pytest.mark.parametrize("kernels", [True, False])
def test_rows_of_each_step(tmp_path, table, chunk, kernels, implemented, monkeypatch):
    implemented(kernels)
    monkeypatch.setattr(packed_rows, "_CHUNK", chunk)
    rng = np.random.default_rng(1)
    most = 30 if chunk == 1 else 700
    sizes = [0, 1, most, most // 2, 0, 3]
    steps = [np.sort(rng.choice(N, size, replace=False)).astype(np.int32) for size in sizes]
    packed = PackedRows(files(tmp_path), steps, tmp_path)
    assert os.listdir(tmp_path) == ["x.npy"]  # the scratch file has no name
    assert packed.nbytes >= sum(sizes) * table[:1].nbytes
    for number in (5, 0, 3, 2, 4, 1):
        out = np.zeros((most + 1, 33), np.float16)
        packed.read(number, out)
        np.testing.assert_array_equal(out[: sizes[number]], table[steps[number]])


def test_more_steps_than_a_byte_counts(tmp_path, table):
    steps = [np.array([number], np.int32) for number in range(300)]
    packed, out = PackedRows(files(tmp_path), steps, tmp_path), np.zeros((1, 33), np.float16)
    for number in (0, 255, 256, 299):
        packed.read(number, out)
        np.testing.assert_array_equal(out[0], table[number])


def test_arrays_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(packed_rows, "_MOST_SPOOLED", 500)
    spool, kinds = Spool(tmp_path), ("i4", "f2", "?", "u1")
    arrays = [np.arange(n).reshape(-1, 5).astype(k) for n in (0, 5, 1000) for k in kinds]
    spooled = [spool.append(array) for array in arrays]
    for each, array in zip(reversed(spooled), reversed(arrays), strict=True):
        assert each.read().dtype == array.dtype
        np.testing.assert_array_equal(each.read(), array)
    assert os.listdir(tmp_path) == []
    os.ftruncate(spooled[-1].file.fileno(), 10)
    with pytest.raises(DiskError, match="has become shorter"):
        spooled[-1].read()
    files = {each.file for each in spooled}
    assert len(files) > 3
    del spooled, each, spool
    assert all(sys.getrefcount(file) <= 3 for file in files)  # `files`, `file`, the argument


def test_no_room_and_no_disk(tmp_path, table, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    steps = [np.arange(10, dtype=np.int32)]
    packed = PackedRows(files(tmp_path), steps, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskError, match=r"must have room for the rows.*No space left"):
            PackedRows(files(tmp_path), steps, tmp_path)
    os.ftruncate(packed._file, 4096)
    os.ftruncate(packed._file, 0)
    with pytest.raises(DiskError, match=r"the scratch file in .* must stay readable"):
        packed.read(0, np.zeros((10, 33), np.float16))
    for make in (Spool, lambda folder: PackedRows(files(tmp_path), steps, folder)):
        with pytest.raises(DiskError, match=r"must have room .*No such file"):
            make(tmp_path / "absent")
