"""A folder that replaces another one in one step, or not at all.

Until the new folder is whole, it lies in a hidden folder beside the old one,
`.NAME.RANDOM.new`:

    lock    held by the process that writes; if it is free, that process was killed
    new     the new folder; the old one, once the two have been exchanged
    old     the old folder, on systems that exchange folders in two steps
"""

from __future__ import annotations

import ctypes
import fcntl
import glob
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jgs.errors import InputError
from jgs.files.writing import refusal

_SUFFIX, _LOCK, _NEW, _OLD = ".new", "lock", "new", "old"


@contextmanager
def replacing(
    folder: str | os.PathLike, kind: str, files: Callable[[Path], set[str]]
) -> Iterator[Path]:
    """Gives an empty folder, which replaces `folder` at the end if nothing is raised.

    `check_replaceable` says what may be in `folder`, at the beginning and at the end. The
    replacement is one rename, once everything is on the disk, so that either the old folder or
    the new one is there, whatever happens. Ctrl-C and SIGTERM wait until the old one is
    removed. An `OSError` inside becomes an `InputError`, and so does anything that prevents the
    rename.
    """
    folder = Path(os.path.realpath(folder))  # so that `.` has a name, and a link stays one
    with _refusing(folder):
        check_replaceable(folder, kind, files)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        with _beside(folder) as work:
            fresh = work / _NEW
            fresh.mkdir()
            yield fresh
            _sync(fresh)
            check_replaceable(folder, kind, files)
            with _uninterrupted():
                _exchange(fresh, folder, work / _OLD)
                _remove(work)


def check_replaceable(
    folder: str | os.PathLike, kind: str, files: Callable[[Path], set[str]]
) -> None:
    """Raises `InputError` if replacing `folder` would lose something of the user's.

    The folder may be missing or empty, or hold nothing but `files(folder)`, the relative paths
    of what jgs wrote there; `files` raises `InputError` for a folder of another kind.
    """
    folder = Path(os.path.realpath(folder))
    if not os.path.lexists(folder):
        return
    if os.path.ismount(folder):  # cannot be renamed
        raise InputError(
            f"{folder} must not be a mount point", "one", "Name a folder inside it."
        )
    value = "a file"
    if folder.is_dir():
        if not any(folder.iterdir()):
            return
        try:
            ours = files(folder)
        except InputError as error:
            value = f"something else ({error.value})"
        else:
            found = {str(p.relative_to(folder)): p for p in folder.rglob("*")}
            folders = {str(parent) for name in ours for parent in Path(name).parents}
            others = sorted(
                name
                for name, path in found.items()
                if name not in (ours if path.is_file() else folders)
            )
            if not others:
                return
            value = f"{', '.join(map(repr, others[:3]))} in it"
    raise InputError(
        f"{folder} must not exist, be empty, or be a {kind} folder that jgs wrote and nothing "
        "was added to",
        value,
        "Choose another folder, or move this one away.",
    )


def check_writable(folder: str | os.PathLike) -> None:
    """Raises `InputError` where `replacing` would, as far as that is known yet. It creates what
    `replacing` creates beside `folder`, and removes it again."""
    folder = Path(os.path.realpath(folder))
    with _refusing(folder):
        missing = [parent for parent in folder.parents if not parent.exists()]
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _beside(folder):
                pass
        finally:
            for parent in missing:
                with suppress(OSError):
                    parent.rmdir()


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        rule = f"{folder} must be a folder that can be written"
        remedy = "Choose another folder, free space or permit writing there."
        raise InputError(rule, refusal(error, folder.parent), remedy) from None


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(_SUFFIX, f".{folder.name}.", folder.parent))
    try:
        with open(work / "locking", "w") as file:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (work / "locking").rename(work / _LOCK)  # held from the moment it exists
            yield work
    finally:
        _remove(work)


def _tidy(folder: Path) -> None:
    """Removes the folders that killed processes left beside `folder`, whose locks are free."""
    for lock in folder.parent.glob(f".{glob.escape(folder.name)}.*{_SUFFIX}/{_LOCK}"):
        with suppress(OSError), open(lock, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (lock.parent / _OLD).exists() and not os.path.lexists(folder):
                (lock.parent / _OLD).rename(folder)  # killed during `_exchange`
            _remove(lock.parent)


def _remove(work: Path) -> None:
    for name in (_NEW, _OLD, ""):  # the lock last: if killed now, the folder is found by it
        shutil.rmtree(work / name, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Writes everything in `folder` to the disk. Otherwise a power cut could keep the rename
    and lose the files."""
    for path in (*folder.rglob("*"), folder):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        except OSError:
            if path.is_file():  # not every file system can sync folders
                raise
        finally:
            os.close(file)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: pressed.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if pressed:
            signal.raise_signal(pressed[0])


def _exchange(fresh: Path, folder: Path, old: Path) -> None:
    """Moves `fresh` to `folder`, and what was there to `fresh` or `old`."""
    if not folder.exists() or not any(folder.iterdir()):
        fresh.rename(folder)  # fails if something has been put into it
        return
    with suppress(OSError, AttributeError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2  # Linux
        here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if rename(here, os.fsencode(fresh), here, os.fsencode(folder), swap) == 0:
            return
    folder.rename(old)
    try:
        fresh.rename(folder)
    except OSError:
        old.rename(folder)
        raise
