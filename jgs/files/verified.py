"""Comparison of a file's checksum: always, never, or once for each state of the file.

Files found whole are remembered in the user's cache folder, `jgs/whole` in `XDG_CACHE_HOME` or
`~/.cache`; of many files, those that were asked for last. They are not remembered beside the
file, because its folder may be read-only, or be copied to another machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from jgs.files.npy import plain_file

# True: always. False: never. "once": unless the same file was found whole before.
Verify = bool | Literal["once"]
_WHOLE = b"whole\n"
_MOST = 1 << 13  # files that are remembered


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file as hexadecimal digits; raises `OSError` and `InputError`."""
    with open(plain_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(path: Path, digest: str, verify: Verify) -> bool:
    """Whether the file has the SHA-256 `digest`, checked as `verify` says.

    With "once" a file counts as the same while its path, device, inode, size and time of
    modification are the same. If several processes ask at once, one reads it and the others
    wait. Raises `OSError` and `InputError`.
    """
    if verify != "once":
        return not verify or sha256(path) == digest
    with suppress(OSError), open(_note(path, digest), "rb+") as note:
        with suppress(OSError):  # without locks each process reads the file
            fcntl.flock(note, fcntl.LOCK_EX)
        if note.read() == _WHOLE:
            return True
        whole = sha256(path) == digest
        if whole:
            note.seek(0)
            note.write(_WHOLE)
        return whole
    return sha256(path) == digest  # nothing can be remembered


def _note(path: Path, digest: str) -> Path:
    state = path.stat()
    parts = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size)
    text = repr((*parts, state.st_mtime_ns, digest))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jgs" / "whole"
    cache.mkdir(parents=True, exist_ok=True)
    note = cache / hashlib.sha256(text.encode()).hexdigest()
    if not note.exists():
        _forget_oldest(cache)
    note.touch()
    return note


def _forget_oldest(cache: Path) -> None:
    """Removes half of the notes, the oldest ones, if there are `_MOST`."""
    if len(notes := os.listdir(cache)) < _MOST:
        return
    with suppress(OSError):  # another process may remove them too
        oldest = sorted((cache / name for name in notes), key=os.path.getmtime)
        for note in oldest[: _MOST // 2]:
            note.unlink()
