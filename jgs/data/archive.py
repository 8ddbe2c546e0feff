"""Zip archives from other people, unpacked without harm."""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
from pathlib import Path, PurePosixPath

from jgs.data.cache import locked
from jgs.errors import InputError, refusing
from jgs.files.npy import NOT_ZIP, plain_file
from jgs.files.replacing import replacing

_CHUNK = 1 << 20
_MOST_GROWTH = 200  # the size of an honest archive of numbers grows less than this many times
_FOREIGN = re.compile(r"^[A-Za-z]:|[\\\0]")  # a drive letter of Windows, or its separator


def extract(archive: Path, folder: Path) -> Path:
    """Unpacks a zip archive as `folder`; a single top folder of the archive becomes `folder`.

    Every member is checked before anything is written. No member may have an absolute path, a
    drive letter, a backslash or `..`, be a link or a special file, or have the name of another
    member. All bytes together must fit the disk and a plausible growth. No member may grow
    beyond its declared size. `folder` appears whole or not at all; if it exists already,
    nothing happens. Raises `InputError`.
    """
    rule = f"{archive} must be a whole zip archive that can be unpacked as {folder}"
    remedy = "Delete it and fetch it again, or permit writing there."
    with refusing(NOT_ZIP, rule, remedy), locked(folder):
        if not folder.exists():
            with (
                replacing(folder, "freshly unpacked", lambda _: set()) as fresh,
                refusing(NOT_ZIP, rule, remedy),
            ):
                _unpack(plain_file(archive), fresh, folder.parent)
    return folder


def _unpack(archive: Path, fresh: Path, where: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = [m for m in file.infolist() if not m.is_dir()]
        paths = [_checked_path(archive, member) for member in members]
        if not paths:
            raise _refused(archive, "no files")
        if len({str(p).casefold() for p in paths}) != len(paths):
            raise _refused(archive, "a name twice")
        if len({p.parts[0] for p in paths}) == 1 and all(len(p.parts) > 1 for p in paths):
            paths = [PurePosixPath(*p.parts[1:]) for p in paths]
        _check_size(archive, members, where)
        for member, path in zip(members, paths, strict=True):
            _write(file, member, fresh / path)


def _checked_path(archive: Path, member: zipfile.ZipInfo) -> PurePosixPath:
    # orig_filename is the name in the archive, before zipfile changes it.
    name = member.orig_filename
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or not path.parts
    if outside or _FOREIGN.search(name):
        raise _refused(archive, f"the member {name!r}")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise _refused(archive, f"the member {name!r}, a link or special file")
    return path


def _check_size(archive: Path, members: list[zipfile.ZipInfo], where: Path) -> None:
    total, packed = sum(m.file_size for m in members), archive.stat().st_size
    if total > _MOST_GROWTH * packed:
        raise _refused(archive, f"{packed:,} bytes that unpack to {total:,}")
    free = shutil.disk_usage(where).free
    if total > free:
        raise InputError(
            f"unpacking {archive} needs {total:,} bytes in {where}",
            f"{free:,} bytes free",
            "Free space, or name another --root.",
        )


def _write(file: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with file.open(member) as source, open(path, "xb") as target:
        while data := source.read(_CHUNK):
            written += len(data)
            if written > member.file_size:
                break
            target.write(data)
    if written != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename} is not of its declared size")


def _refused(archive: Path, value: str) -> InputError:
    return InputError(
        f"{archive} must hold plain files inside its own folder only",
        value,
        "It is not what it should be and nothing was unpacked: delete it and fetch it again.",
    )
