"""Folders that are made once from slow files, and opened quickly afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jgs.errors import InputError, refusing
from jgs.files.replacing import replacing
from jgs.files.storage import sha256

_KEY = "source.json"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

log = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file of `path`, so that one process at a time makes `path`; others
    wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a") as file:
        with contextlib.suppress(OSError):  # some file systems have no locks
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
                files = {n: [size, sha256(fresh / n)] for n, size in _sizes(fresh).items()}
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
                if sha256(folder / name) != digest:
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
