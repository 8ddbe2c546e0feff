"""The working folder of a build: what is done so far, so that a killed build can go on.

`.NAME.build` lies beside the data set that is built:

    lock          held by the process that builds
    state.json    what is built, and how far it is (`Work.state`)
    buckets/      edges by ranges of targets
    new/          files of the data set

`state.json` is replaced in one step, after everything that it counts is on the disk. What the
files hold beyond that is cut off when the build goes on.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from jgs.errors import InputError
from jgs.files.replacing import replacing
from jgs.files.storage import ArrayFile, sha256
from jgs.files.writing import refusal, write_whole

_VERSION = 1
T = TypeVar("T")


class Work:
    """The working folder of one build.

    Fields:
      folder, buckets, new: the folder and the two in it.
      state: what `state.json` holds, as JSON can hold it.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.state: dict[str, Any] = {}
        self.buckets, self.new = folder / "buckets", folder / "new"

    def begin(self, key: dict[str, Any]) -> str:
        """Makes the folder ready for a build of what `key` says. Returns "new", or "resumed"
        where a build of the same stood there, or "other" where one of something else did."""
        key = json.loads(json.dumps({"version": _VERSION, **key}))
        found = self.folder / "state.json"
        try:
            self.state = json.loads(found.read_text())
            if self.state["key"] == key and self.new.is_dir():
                return "resumed"
            verdict = "other"
        except FileNotFoundError:
            verdict = "new"
        except (OSError, ValueError, KeyError, TypeError):
            verdict = "other"
        self.clear()
        self.buckets.mkdir(exist_ok=True)
        self.new.mkdir(exist_ok=True)
        self.state = {}
        self.save(key=key)
        return verdict

    def save(self, **changes: Any) -> None:
        """Adds `changes` to the state, on the disk too."""
        self.state = self.state | changes
        write_whole(self.folder / "state.json", json.dumps(self.state))

    def restart(self, *parts: str) -> None:
        """Forgets these parts of the state, and all files."""
        key = self.state["key"]
        kept = {name: part for name, part in self.state.items() if name not in parts}
        self.clear()
        for folder in (self.buckets, self.new):
            folder.mkdir()
        self.state = {}
        self.save(**(kept | {"key": key, "features": {}}))

    def clear(self) -> None:
        """Removes what is built so far."""
        with suppress(FileNotFoundError):
            (self.folder / "state.json").unlink()
        for folder in (self.buckets, self.new):
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, out: Path, kind: str, files: Callable[[Path], set[str]]) -> None:
        """Replaces the folder `out` by the files in `new`, in one step."""
        with replacing(out, kind, files) as fresh:
            for file in self.new.iterdir():
                try:
                    # A second name, so that nothing is lost if the process is killed now.
                    os.link(file, fresh / file.name)
                except OSError:  # not every file system has them
                    shutil.copy2(file, fresh / file.name)


@contextmanager
def working(out: Path) -> Iterator[Work]:
    """Gives the working folder beside `out`, locked against other processes. What `out` and it
    are must be on a disk with room: an `OSError` inside becomes an `InputError`."""
    folder = out.parent / f".{out.name}.build"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{out} must be built by one process at a time",
                    "another one at work",
                    "Wait for that one to end, or choose another --out.",
                ) from None
            except OSError:  # some network file systems have no locks
                pass
            yield Work(folder)
    except OSError as error:
        raise InputError(
            f"{out} must be on a disk that can be written, with room",
            refusal(error, out.parent),
            "Free space or mend the permissions there. The same command then goes on where it "
            "stood.",
        ) from None


def remove(work: Work) -> None:
    """Removes the folder of a build that has ended."""
    shutil.rmtree(work.folder, ignore_errors=True)


def sync(path: Path) -> None:
    """Waits until a file is on the disk; nothing for a file that is not there."""
    with suppress(FileNotFoundError):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


_AT_ONCE = 1 << 24  # bytes


class GrowingFile(ArrayFile):
    """An `ArrayFile` that goes on where it stood, and whose length may be known only at its
    end.

    Args:
      shape: of the whole array; None for its length where that is not known.
      done: how many rows are in the file already. What is behind them is cut off.
    """

    def __init__(
        self, folder: Path, name: str, shape: tuple[int | None, ...], dtype: Any, done: int
    ):
        self._known = shape[0] is not None
        super().__init__(folder, name, (shape[0] or 0, *shape[1:]), dtype)  # type: ignore[arg-type]
        self._done, self._digest = done, ""
        self._row = self.dtype.itemsize * math.prod(self.shape[1:])

    def is_there(self) -> bool:
        """Whether the file has the rows that are done."""
        least = len(self._header()) + self._done * self._row
        return self._done == 0 or (self.path.exists() and self.path.stat().st_size >= least)

    def __enter__(self) -> Self:
        header = self._header()
        fresh = self._done == 0
        self._file: Any = open(self.path, "wb" if fresh else "r+b")
        if fresh:
            self._write(header)
        else:
            self._file.truncate(len(header) + self._done * self._row)
            if self._known:
                while data := self._file.read(_AT_ONCE):
                    self._hash.update(data)
            self._file.seek(0, os.SEEK_END)
        return self

    def append(self, piece: np.ndarray) -> None:
        """Appends the next rows of the array."""
        assert (piece.dtype, piece.shape[1:]) == (self.dtype, tuple(self.shape)[1:])
        self._done += len(piece)
        if piece.nbytes:
            self._write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)

    def sync(self) -> None:
        """Waits until all that was appended is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __exit__(self, error: type[BaseException] | None, *_: Any) -> None:
        if error is None and not self._known:
            self.shape = (self._done, *self.shape[1:])
            self._file.seek(0)
            self._file.write(self._header())
        self._file.close()
        if error is None:
            assert self._done == self.shape[0], "rows are missing, or too many"
            self._digest = self._hash.hexdigest() if self._known else sha256(self.path)

    def sha256(self) -> str:
        return self._digest

    def _write(self, data: Any) -> None:
        self._file.write(data)
        if self._known:  # else the header is still to change
            self._hash.update(data)

    def _header(self) -> bytes:
        """The header, which is equally long for every number of rows."""
        header = io.BytesIO()
        fields = {"descr": self.dtype.str, "fortran_order": False, "shape": tuple(self.shape)}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each of which is made while the one before it is used."""
    done = object()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, done)
        while (item := waiting.result()) is not done:
            waiting = pool.submit(next, items, done)
            yield item  # type: ignore[misc]


Arrays = dict[str, np.ndarray]
_READ = 1 << 20  # records
