"""Downloads that can be resumed and are checked, with clear errors where there is no network;
and zip archives from other people, unpacked without harm. `Cache`: folders that are made once
from slow files, and opened quickly afterwards."""

from __future__ import annotations

import fcntl
import http.client
import json
import logging
import os
import re
import shutil
import stat
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rich import progress
from rich.console import Console
from rich.filesize import decimal

from jgs.errors import InputError, one_line, refusing
from jgs.files import storage
from jgs.files.npy import NOT_ZIP, plain_file
from jgs.files.replacing import replacing
from jgs.files.writing import write_whole

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # seconds without any data
_KEY = "source.json"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file of `path`, so that one process at a time makes `path`; others
    wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a") as file:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Cache:
    """Where parsed files are kept; the options of a data set with these names.

    Fields:
      cache: the folder; None: one beside the sources.
      verify: whether to read the parsed files once and compare their checksums (about a second
        a gigabyte); damaged files are parsed again.
    """

    cache: str | os.PathLike | None = None
    verify: bool = True

    def parsed(
        self, folder: Path, sources: Sequence[Path], settings: dict, build: Callable
    ) -> Path:
        """The folder that holds what `build` writes, whole and up to date.

        Args:
          folder: the folder, where nothing else is said.
          sources: the files that it is made from; another size or modification time makes it
            out of date.
          settings: everything else that it depends on, as JSON can hold it.
          build: writes the files into the empty folder that it is given. When it raises,
            nothing is kept.

        The folder appears whole or not at all, and replaces an older one or an empty folder. A
        folder with anything else in it raises `InputError`. A second process waits for the
        first.
        """
        folder = Path(self.cache or folder)
        state = {s.name: [s.stat().st_size, s.stat().st_mtime_ns] for s in sources}
        key = {"version": 2, "settings": settings, "sources": state}
        if _fault(folder, key, self.verify) is None:
            return folder
        rule = f"{folder} must be writable: the parsed data set is kept there"
        remedy = "Free space or permit writing there, or name a folder with the option `cache`."
        with refusing(OSError, rule, remedy), locked(folder):
            fault = _fault(folder, key, self.verify)  # another process may have mended it
            if fault is None:
                return folder
            if fault:
                log.warning("%s %s: it is parsed again", folder, fault)
            with replacing(folder, "parsed data set's", _our_files) as fresh:
                log.info("parsing %s into %s, once", folder.parent, folder)
                build(fresh)
                files = {
                    n: [size, storage.sha256(fresh / n)] for n, size in _sizes(fresh).items()
                }
                text = json.dumps({"key": key, "files": files}, indent=1) + "\n"
                (fresh / _KEY).write_text(text)
        return folder


def _fault(folder: Path, key: dict, verify: bool) -> str | None:
    """None: `folder` can be used; a text: it is damaged; "": missing or out of date."""
    try:
        entry = _read(folder)
        if entry["key"] != key:
            return ""
        sizes = {name: size for name, (size, _) in entry["files"].items()}
        if sizes != _sizes(folder):
            return "has not the files that were written there"
        if verify:
            log.info("comparing %s with its checksums", folder)
            for name, (_, digest) in entry["files"].items():
                if storage.sha256(folder / name) != digest:
                    return f"has another checksum in {name} than was written"
    except _UNREADABLE:
        return ""
    return None


def _our_files(folder: Path) -> set[str]:
    try:
        return {_KEY, *_read(folder)["files"]}
    except _UNREADABLE as error:
        raise InputError(
            f"{folder} must hold a sound {_KEY}", type(error).__name__, "Move it away."
        ) from None


def _read(folder: Path) -> Any:
    return json.loads((folder / _KEY).read_text())


def _sizes(folder: Path) -> dict[str, int]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != _KEY)
    return {str(p.relative_to(folder)): p.stat().st_size for p in files}


def fetch(url: str, path: Path) -> Path:
    """`path`, downloaded from `url` unless it exists already.

    The bytes received so far are in `<path>.part`. A later call, or this one after the
    connection was cut, continues there if the server still has the same file, and otherwise
    starts again. The size must be the one that the server stated. `<path>.sha256` then keeps
    the checksum, in the format of `sha256sum`. A file that exists already is checked against
    it. The size and a progress bar go to stderr. A second process waits for the first.

    Raises `InputError`, which names the address and the place to put the file by hand.
    """
    with refusing(OSError, f"{path} must be writable", "Choose another --root."), locked(path):
        if not path.exists():
            _download(url, path)
        return verified(path)  # locked too: it may write the checksum


def verified(path: Path) -> Path:
    """`path`, after a check that its bytes match `<path>.sha256`, which is written if
    missing."""
    kept = path.with_name(f"{path.name}.sha256")
    digest = storage.sha256(path)
    if not kept.is_file():
        write_whole(kept, f"{digest}  {path.name}\n")
    elif kept.read_text().split()[:1] != [digest]:
        raise InputError(
            f"{path} must have the checksum in {kept.name}",
            digest,
            f"It changed or is damaged: delete it to fetch it again, {kept.name} to keep it.",
        )
    return path


def _download(url: str, path: Path) -> None:
    part = path.with_name(f"{path.name}.part")
    while True:
        before = _size(part)
        try:
            _receive(url, path, part)
            break
        except (OSError, http.client.HTTPException) as error:
            if _size(part) > before:
                continue  # the connection was cut, but data came: continue
            so_far = f" after {decimal(_size(part))}" if _size(part) else ""
            raise InputError(
                f"{path} must exist, or be downloaded",
                f"{_reason(error)}{so_far} from {url}",
                f"Go online and run this again, or put {path.name} from that address into "
                f"the folder {path.parent}.",
            ) from None
    os.replace(part, path)
    _about(part).unlink(missing_ok=True)


def _receive(url: str, path: Path, part: Path) -> None:
    about = _read_about(part, url)
    have = _size(part) if about else 0
    if about and have == about["total"]:
        return
    with _request(url, have, about) as response:
        if response.status != 206:
            have = 0  # the server sends the whole file although a part was requested
        length, tag = response.headers.get("Content-Length"), response.headers.get("ETag")
        total = None if length is None else have + int(length)
        if have == 0:
            strong = tag if tag and not tag.startswith("W/") else None
            # What identifies the server's version of the file.
            validator = strong or response.headers.get("Last-Modified")
            entry = {"url": url, "total": total, "validator": validator}
            part.unlink(missing_ok=True)
            write_whole(_about(part), json.dumps(entry))
        _check_space(path, total, have)
        with open(part, "ab") as file, _progress(url, path, total, have) as shown:
            task = shown.add_task(path.name, total=total, completed=have)
            while data := response.read(_CHUNK):
                file.write(data)
                shown.advance(task, len(data))
    if total is not None and _size(part) != total:
        raise OSError(f"the connection was cut at {_size(part):,} of {total:,} bytes")


def _request(url: str, have: int, about: dict | None) -> Any:
    headers = {"User-Agent": "jgs", "Accept-Encoding": "identity"}
    if have and about:
        headers |= {"Range": f"bytes={have}-", "If-Range": about["validator"]}
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=_TIMEOUT
        )
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # the file is shorter now, so it is another one
            return _request(url, 0, None)
        raise
    if response.status == 206:
        expected = f"bytes {have}-{about['total'] - 1}/{about['total']}" if about else ""
        if response.headers.get("Content-Range") != expected:
            response.close()
            return _request(url, 0, None)
    return response


def _read_about(part: Path, url: str) -> dict | None:
    try:
        about = json.loads(_about(part).read_text())
        safe = about["url"] == url and about["total"] is not None and about["validator"]
        return about if safe and part.is_file() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check_space(path: Path, total: int | None, have: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if total is not None and total - have > free:
        raise InputError(
            f"downloading {path.name} needs {decimal(total - have)} in {path.parent}",
            f"{decimal(free)} free",
            "Free space, or name another --root.",
        )


def _progress(url: str, path: Path, total: int | None, have: int) -> progress.Progress:
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    size = "of unknown size" if total is None else f"({decimal(total)})"
    resumed = f", going on from {decimal(have)}" if have else ""
    console.print(f"downloading {url} {size} to {path}{resumed}", markup=False)
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,  # a log file gets only the line above
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the answer {error.code} {error.reason}"
    if isinstance(error, urllib.error.URLError):
        return f"no answer ({error.reason})"
    return one_line(error)


def _about(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


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
