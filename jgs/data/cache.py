"""Folders made once from slow files and opened at once the next time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from jgs.errors import InputError

_KEY = "source.json"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds `path`'s lock file, so that one process at a time makes `path`; others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as file:
        with contextlib.suppress(OSError):  # a file system without locks: do without
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def parsed(
    folder: Path, sources: Sequence[Path], settings: dict, build: Callable[[Path], None]
) -> Path:
    """`folder`, holding what `build` writes; built when it is missing, stale or damaged.

    Args:
      folder: where the result lives, beside the sources as a rule.
      sources: the files it is made from; another size or modification time makes it stale.
      settings: what else it depends on (anything JSON can hold).
      build: writes the files into the empty folder it is given. When it raises, nothing
        is kept.

    The folder appears whole or not at all. A second process waits for the first.
    """
    key = {
        "version": 1,
        "settings": settings,
        "sources": {s.name: [s.stat().st_size, s.stat().st_mtime_ns] for s in sources},
    }
    if _is_current(folder, key):
        return folder
    try:
        with locked(folder):
            if not _is_current(folder, key):
                _rebuild(folder, key, build)
    except OSError as error:
        raise InputError(
            f"{folder} must be writable: the parsed data set is kept there",
            error,
            "Free space or permit writing there, or name a folder with the option `cache`.",
        ) from None
    return folder


def _rebuild(folder: Path, key: dict, build: Callable[[Path], None]) -> None:
    if folder.exists() and not _is_ours(folder):
        raise InputError(
            f"{folder} must not exist, or be a folder that jgs wrote and nothing was added to",
            "something else",
            "Move it away, or name another folder with the option `cache`.",
        )
    fresh = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)  # left by a process that was killed
    fresh.mkdir()
    try:
        build(fresh)
        entry = {"key": key, "files": _sizes(fresh)}
        (fresh / _KEY).write_text(json.dumps(entry, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _is_current(folder: Path, key: dict) -> bool:
    try:
        entry = json.loads((folder / _KEY).read_text())
        return entry["key"] == key and entry["files"] == _sizes(folder)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _is_ours(folder: Path) -> bool:
    """Whether `folder` holds nothing but what was written here, so that it may be replaced."""
    try:
        entry = json.loads((folder / _KEY).read_text())
        return set(_sizes(folder)) <= set(entry["files"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _sizes(folder: Path) -> dict[str, int]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != _KEY)
    return {str(p.relative_to(folder)): p.stat().st_size for p in files}
