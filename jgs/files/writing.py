"""The run folder on the disk: whole files, one process at a time, errors in one line."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jgs.errors import InputError

LOCK = ".lock"
log = logging.getLogger(__name__)


@contextmanager
def writing(folder: Path, errors: tuple[type[Exception], ...] = (OSError,)) -> Iterator[None]:
    """What the disk refuses inside (an exception of `errors`) becomes an `InputError`."""
    try:
        yield
    except errors as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{folder} must be writable, with room on its disk",
            # Of a library's long message the end: its beginning is a list of what it did.
            f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}",
            "Free space or mend the permissions there, then continue with --resume; earlier "
            "checkpoints are kept.",
        ) from None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds `folder` against other processes; raises `InputError` where one holds it.

    The operating system lets go of it when the process ends, however it ends.
    """
    with open(folder / LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                "a run folder must have one process at a time",
                f"{folder}, in use by another",
                "Wait for that one to end, or choose another --run-dir.",
            ) from None
        except OSError as error:  # some network file systems have no locks
            log.warning("%s cannot be locked (%s): start one process there only", folder, error)
        yield


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` at the end, if nothing is raised."""
    # A name of its own: a file of the user's is never overwritten.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(fresh, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
