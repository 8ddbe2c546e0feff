import shutil
import stat
import struct
import zipfile

import numpy as np
import pytest

from jgs import InputError
from jgs.data.archive import extract


def make(path, members, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def test_the_top_folder_becomes_the_target(tmp_path):
    archive = make(tmp_path / "a.zip", [("top/", b""), ("top/raw/x", b"1"), ("top/y", b"")])
    assert extract(archive, tmp_path / "out") == tmp_path / "out"
    assert (tmp_path / "out" / "raw" / "x").read_bytes() == b"1"
    assert (tmp_path / "out" / "y").read_bytes() == b""
    flat = make(tmp_path / "b.zip", [("raw/x", b"1"), ("y", b"2")])
    extract(flat, tmp_path / "flat")
    assert (tmp_path / "flat" / "raw" / "x").read_bytes() == b"1"


def test_a_folder_that_is_there_stays(tmp_path):
    (tmp_path / "out").mkdir()
    extract(make(tmp_path / "a.zip", [("x", b"1")]), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def link():
    info = zipfile.ZipInfo("top/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "member",
    [
        "/etc/x",
        "../x",
        "top/../../x",
        "top/..",
        "C:/x",
        "c:x",
        "top\\..\\..\\x",
        "\\\\host\\x",
        "//host/x",
        link(),
    ],
)
def test_members_that_leave_the_folder(tmp_path, member):
    archive = make(tmp_path / "a.zip", [("top/x", b"good"), (member, b"/etc/passwd")])
    before = set(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="nothing was unpacked") as caught:
        extract(archive, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert {p for p in tmp_path.rglob("*") if p.suffix != ".lock"} == before


def test_a_name_twice(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        archive = make(tmp_path / "a.zip", [("top/x", b"1"), ("top/x", b"2")])
    with pytest.raises(InputError, match="a name twice"):
        extract(archive, tmp_path / "out")


def test_a_bomb(tmp_path):
    archive = make(tmp_path / "a.zip", [("top/x", bytes(50 * 2**20))])
    with pytest.raises(InputError, match="that unpack to 52,428,800"):
        extract(archive, tmp_path / "out")


def test_more_bytes_than_declared(tmp_path):
    data = np.random.default_rng(0).bytes(5000)
    archive = make(tmp_path / "a.zip", [("top/x", data)])
    raw = bytearray(archive.read_bytes())
    size = struct.pack("<I", 5000)
    while (at := raw.find(size)) >= 0:  # both headers now declare 1000 bytes
        raw[at : at + 4] = struct.pack("<I", 1000)
    archive.write_bytes(raw)
    with pytest.raises(InputError):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.rglob("x"))


def test_no_room(tmp_path, monkeypatch):
    archive = make(tmp_path / "a.zip", [("top/x", b"12345")])
    usage = shutil.disk_usage(tmp_path)._replace(free=4)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match="needs 5 bytes"):
        extract(archive, tmp_path / "out")


def test_cut_and_damaged_archives(tmp_path, may_refuse):
    members = [("top/x", b"some text " * 20), ("top/y", b"more")]
    archive = make(tmp_path / "a.zip", members)
    whole = archive.read_bytes()
    for cut in (0, 3, 50, len(whole) // 2, len(whole) - 1):
        archive.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            extract(archive, tmp_path / "out")
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        archive.write_bytes(damaged)
        with may_refuse():
            extract(archive, tmp_path / f"out{position}")
    with pytest.raises(InputError):
        extract(make(tmp_path / "empty.zip", []), tmp_path / "out")
    with pytest.raises(InputError):
        extract(tmp_path / "none.zip", tmp_path / "out")


def test_folders_beside_the_target_are_the_users(tmp_path):
    for name in (".out.extract", ".out.new", ".out.mine.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes").write_text("precious")
    archive = make(tmp_path / "a.zip", [("top/x", b"1")])
    for _ in range(2):
        extract(archive, tmp_path / "out")
    assert len(list(tmp_path.glob(".out.*/notes"))) == 3
    assert (tmp_path / "out" / "x").read_bytes() == b"1"
