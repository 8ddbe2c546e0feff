"""Comparing a file's checksum: always, never, or once for each state of the file.

What was found whole is remembered in the user's cache folder, `jgs/whole` in `XDG_CACHE_HOME`
or `~/.cache`, not beside the file: its folder may be read-only, or copied to another machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

from jgs.files.npy import plain_file

# True: always. False: never. "once": unless it was found whole and is the same file still.
Verify = bool | Literal["once"]
_WHOLE = b"whole\n"


def sha256(path: str | os.PathLike) -> str:
    """The file's SHA-256 as hexadecimal digits; raises `OSError` and `InputError`."""
    with open(plain_file(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_whole(path: Path, digest: str, verify: Verify) -> bool:
    """Whether the file has the SHA-256 `digest`, as far as `verify` says to look.

    With "once" it is the same file as long as its path, device, inode, size and time of
    modification are. Of several processes that ask at once, one reads it and the others wait.
    Raises `OSError` and `InputError`.
    """
    if verify != "once":
        return not verify or sha256(path) == digest
    with suppress(OSError), open(_note(path, digest), "rb+") as note:
        with suppress(OSError):  # a file system without locks: each process reads the file
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
    """The file, made if missing, that says of this state of `path` whether it is whole."""
    state = path.stat()
    parts = (os.path.realpath(path), state.st_dev, state.st_ino, state.st_size)
    text = repr((*parts, state.st_mtime_ns, digest))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jgs" / "whole"
    cache.mkdir(parents=True, exist_ok=True)
    note = cache / hashlib.sha256(text.encode()).hexdigest()
    note.touch()
    return note
