"""Rows in files, plain and packed by step; no room, failing disks; rows after mapped pages."""

import os
import sys
from itertools import pairwise

import numpy as np
import pytest
from cases import cases
from mapped import is_mapped
from refusals import refused

from jgs.errors import InputError
from jgs.files import row_file
from jgs.files.npy import shared, with_room, with_rows
from jgs.files.row_file import DiskError, FilePart, PackedRows, RowFiles, Spool, part_of_mapped
from jgs.graph import as_device

RNG = np.random.default_rng(0)
N = 3000
HALVES = RNG.random((N, 33)).astype(np.float16)


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


@cases(
    "dtype, width",
    ("int8", 1),
    ("float16", 7),
    ("float64", 1),
    ("float32", 128),
    ("int32", 5000),
)
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
    for message, *names in (
        ("must be a matrix", "line.npy"),
        ("columns that lie", "columns.npy"),
        ("whole .npy file", "text.npy"),
        ("whole .npy file", "absent.npy"),
        ("same width and dtype", "narrow.npy", "wide.npy"),
    ):
        refused(message, RowFiles.of_npy, [tmp_path / name for name in names])
    with pytest.raises(InputError, match="dtype must be one of 8 bytes"):
        RowFiles.of_npy([tmp_path / "wide.npy"], np.float32)
    with pytest.raises(InputError, match="must be a file that can be read"):
        RowFiles([FilePart(tmp_path / "absent", 0, 3)], 2, np.float32)


# -- packed by step ----------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 5000, 1 << 20])
def test_rows_of_each_step(tmp_path, chunk, implementation, monkeypatch):
    monkeypatch.setattr(row_file, "_CHUNK", chunk)
    rng = np.random.default_rng(1)
    most = 30 if chunk == 1 else 700
    sizes = [0, 1, most, most // 2, 0, 3]
    steps = [np.sort(rng.choice(N, size, replace=False)).astype(np.int32) for size in sizes]
    files = RowFiles.of_npy(written(tmp_path, HALVES))
    packed = PackedRows(files, steps, tmp_path)
    assert os.listdir(tmp_path) == ["rows0.npy"]  # the scratch file has no name
    assert packed.nbytes >= sum(sizes) * HALVES[:1].nbytes
    for number in (5, 0, 3, 2, 4, 1):
        out = np.zeros((most + 1, 33), np.float16)
        packed.read(number, out)
        np.testing.assert_array_equal(out[: sizes[number]], HALVES[steps[number]])


def test_more_steps_than_a_byte_counts(tmp_path):
    steps = [np.array([number], np.int32) for number in range(300)]
    files, out = RowFiles.of_npy(written(tmp_path, HALVES)), np.zeros((1, 33), np.float16)
    packed = PackedRows(files, steps, tmp_path)
    for number in (0, 255, 256, 299):
        packed.read(number, out)
        np.testing.assert_array_equal(out[0], HALVES[number])


def test_arrays_come_back(tmp_path, monkeypatch):
    monkeypatch.setattr(row_file, "_MOST_SPOOLED", 500)
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


def test_no_room_and_no_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    steps = [np.arange(10, dtype=np.int32)]
    files = RowFiles.of_npy(written(tmp_path, HALVES))
    packed = PackedRows(files, steps, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(DiskError, match=r"must have room for the rows.*No space left"):
            PackedRows(files, steps, tmp_path)
    os.ftruncate(packed._file, 4096)
    os.ftruncate(packed._file, 0)
    with pytest.raises(DiskError, match=r"the scratch file in .* must stay readable"):
        packed.read(0, np.zeros((10, 33), np.float16))
    for make in (Spool, lambda folder: PackedRows(files, steps, folder)):
        with pytest.raises(DiskError, match=r"must have room .*No such file"):
            make(tmp_path / "absent")


# -- `with_room` and `with_rows` ---------------------------------------------------------------


def test_a_files_rows_are_not_copied_and_zeros_follow(tmp_path):
    rows = np.arange(9000, dtype=np.float32).reshape(3000, 3)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for given, lies in ((mapped, True), (mapped[10:], True), (rows, False), (rows[:0], False)):
        longer = with_room(given, 5000)
        assert is_mapped(longer, tmp_path) == lies
        assert longer.shape == (5000, 3)
        np.testing.assert_array_equal(longer[: len(given)], given)
        assert not longer[len(given) :].any()
        assert with_room(given, len(given)).ctypes.data == given.ctypes.data
    again = with_room(with_room(mapped, 4000), 5000)  # two maps, so the pages are copied
    np.testing.assert_array_equal(again[:3000], rows)


def test_rows_follow_pages_that_are_shared(tmp_path):
    """Each result has rows of its own after the same pages, and the array keeps its bytes."""
    rows = np.arange(9000, dtype=np.float32).reshape(3000, 3)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert shared(mapped).ctypes.data == mapped.ctypes.data
    for given in (mapped, shared(rows), shared(rows[:5]), shared(rows[:0])):
        results = [with_rows(given, np.full((n, 3), n, np.float32), 4000) for n in (0, 7, 20)]
        for n, found in zip((0, 7, 20), results, strict=True):
            num = len(given)
            np.testing.assert_array_equal(found[:num], rows[:num])
            assert (found[num : num + n] == n).all()
            assert not found[num + n :].any()
            assert not found.flags.writeable
    assert is_mapped(with_rows(mapped, rows[:1], 4000), tmp_path)
