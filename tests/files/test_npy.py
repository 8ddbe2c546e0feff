"""The claims of a `.npy` header and of a zip archive are checked, not believed."""

import struct
import zipfile

import numpy as np
import pytest
from refusals import refused

from jgs import Graph, InputError
from jgs.files import storage
from jgs.files.npy import map_npy

GOOD = {"descr": "<f4", "fortran_order": False, "shape": (3,)}
SHAPES = [*((2**power,) for power in (40, 62, 63, 70)), (-1,), (-(2**70),), (True,), (1.5,), 3]
SHAPES += [(2**70, 0), (2**62, 0), (0,) * 70, "ab"]
DESCRS = ["|O", "<f99", "x", "", "<U0", "|V99999999", 5, None, [], [()], [(1,)], [("a",)], {}]
DESCRS += [(), ("<f4",), ("<f4", (2**40,)), ("<f4", -1), [("a", "<f4", 2**40)]]
HEADERS = [
    *(repr(GOOD | {"shape": shape}) for shape in SHAPES),
    *(repr(GOOD | {"descr": descr}) for descr in DESCRS),
    *(repr(GOOD | {"fortran_order": 1}), repr(GOOD | {1: 2}), repr({(): 1, "a": 2})),
    *("{}", "[1]", "7", "{[]: 1}", "(" * 9000, "1 +", "'\\", "\0", "{'descr':"),
    "-" * 9000 + "1",
]


def npy(header, values=bytes(12), version=1):
    text = header.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + values


@pytest.mark.filterwarnings("ignore")  # Python warns of odd literals
@pytest.mark.parametrize("version", [1, 2, 3, 99])
def test_absurd_headers(tmp_path, version):
    path, archive, folder = tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "folder"
    storage.save_arrays(folder, "test", {"x": np.ones(3, np.float32)})
    for header in HEADERS:
        path.write_bytes(npy(header, version=version))
        (folder / "x.npy").write_bytes(path.read_bytes())
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(path, "test.npy")
        with pytest.raises((ValueError, OSError)):
            map_npy(path)
        for read, place in ((storage.open_arrays, folder), (_read, archive)):
            refused("", read, place, "test")


def test_sound_headers(tmp_path):
    path = tmp_path / "x.npy"
    for version in (1, 2):
        path.write_bytes(npy(repr(GOOD), version=version))
        np.testing.assert_array_equal(map_npy(path), np.zeros(3))
    for array in (np.ones((2, 3), order="F"), np.empty((5, 0)), np.array(1), np.ones(0)):
        np.save(path, array)
        np.testing.assert_array_equal(map_npy(path), array)


def _read(path, name):
    with storage.open_npz(path) as archive:
        return archive[name]


def test_a_member_that_would_not_fit_its_archive_takes_no_memory(tmp_path, monkeypatch):
    """The archive's directory claims 4 TB, as the member's header does."""
    directory = zipfile.ZipFile.infolist

    def infolist(archive):
        for info in directory(archive):
            info.file_size = 2**43
        return directory(archive)

    header = npy(repr(GOOD | {"shape": (2**40,)}))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as file:
            file.writestr("x.npy", header)
        with monkeypatch.context() as patch:
            patch.setattr(zipfile.ZipFile, "infolist", infolist)
            says = r"npz archive without pickles; got \S"
            with pytest.raises(InputError, match=says) as caught:
                _read(tmp_path / "x.npz", "x")
            assert "\n" not in str(caught.value)


def test_an_archive_that_is_a_single_array(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    refused("whole NumPy", Graph.from_npz, tmp_path / "x.npz")
