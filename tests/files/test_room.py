"""`with_room` and `with_rows`: pages stay where they are; rows and zeros follow them."""

from pathlib import Path

import numpy as np

from jgs.files.room import shared, with_room, with_rows


def in_file(array, path):
    lines = [s for s in Path("/proc/self/maps").read_text().splitlines() if str(path) in s]
    ranges = [[int(bound, 16) for bound in s.split()[0].split("-")] for s in lines]
    return any(first <= array.ctypes.data < last for first, last in ranges)


def test_a_files_rows_are_not_copied_and_zeros_follow(tmp_path):
    rows = np.arange(9000, dtype=np.float32).reshape(3000, 3)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for given, lies in ((mapped, True), (mapped[10:], True), (rows, False), (rows[:0], False)):
        longer = with_room(given, 5000)
        assert in_file(longer, tmp_path) == lies
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
    assert in_file(with_rows(mapped, rows[:1], 4000), tmp_path)
