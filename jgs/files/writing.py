"""Writing on the disk: whole files, one process at a time, and errors in one line that name the
full disk and the missing space."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import resource
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jgs.errors import InputError

LOCK = ".lock"
log = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def reserve(file: int, size: int, folder: str | os.PathLike) -> None:
    """Reserves `size` bytes of the disk for a new file, given by its descriptor, in `folder`.

    Raises `OSError` that names the disk and the missing space."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise OSError(error.errno, _lack(error, folder, size)) from None


def _lack(error: OSError, folder: str | os.PathLike, size: int) -> str:
    text = error.strerror or str(error)
    if (
        error.errno == errno.EFBIG
        and (most := resource.getrlimit(resource.RLIMIT_FSIZE)[0]) > 0
    ):
        return f"{text}: a file may have {most >> 10} KiB, and {mib(size)} MiB are needed"
    if error.errno not in _FULL or (free := free_space(folder)) is None:
        return text
    found = f"{text}: {free >> 20} MiB free on the disk at {mount_point(folder)}"
    return f"{found}, {mib(size - free)} MiB too few" if free < size else found


def free_space(folder: str | os.PathLike) -> int | None:
    """The free bytes on the disk of `folder`; None where they cannot be known."""
    try:
        return shutil.disk_usage(mount_point(folder)).free  # the folder may be missing
    except OSError:
        return None


def mount_point(folder: str | os.PathLike) -> str:
    """The mount point of the disk of `folder`, as `df` shows it."""
    path = os.path.realpath(folder)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def mib(size: int) -> int:
    """`size` in whole MiB, rounded up."""
    return -(-size >> 20)


def refusal(error: Exception, folder: str | os.PathLike) -> str:
    """Why `folder` could not be written; if a disk is full, which one."""
    # Only the end of a library's long message, which begins with a list of what it did.
    found = f"{type(error).__name__}: {' '.join(str(error).split())[-200:]}"
    if os.strerror(errno.ENOSPC) in found and " MiB free" not in found:
        free = (free_space(folder) or 0) >> 20
        found += f" ({free} MiB free on the disk at {mount_point(folder)})"
    return found


_RESUME = (
    "Free space or mend the permissions there, then continue with --resume; earlier "
    "checkpoints are kept."
)


@contextmanager
def writing(
    folder: Path, errors: tuple[type[Exception], ...] = (OSError,), remedy: str = _RESUME
) -> Iterator[None]:
    """Turns exceptions of `errors`, raised where the disk fails, into `InputError`."""
    try:
        yield
    except errors as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{folder} must be writable, with room on its disk",
            refusal(error, folder),
            remedy,
        ) from None


@contextmanager
def locked(
    folder: Path,
    rule: str = "a run folder must have one process at a time",
    remedy: str = "Wait for that one to end, or choose another --run-dir.",
) -> Iterator[None]:
    """Locks `folder` against other processes; raises `InputError` where one has locked it.

    The operating system unlocks it when the process ends, however it ends.
    """
    with open(folder / LOCK, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(rule, f"{folder}, in use by another", remedy) from None
        except OSError as error:  # some network file systems have no locks
            log.warning("%s cannot be locked (%s): start one process there only", folder, error)
        yield


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it appears whole or not at all."""
    with whole_file(path) as file:
        file.write(text.encode())


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Gives a new file, which replaces `path` at the end if nothing is raised."""
    # A random name, so that no file of the user's is overwritten.
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
