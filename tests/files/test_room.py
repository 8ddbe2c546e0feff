"""`with_room`: a file's pages stay where they are, and zeros follow them."""

from pathlib import Path

import numpy as np

from jgs.files.room import with_room


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
