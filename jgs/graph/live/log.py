"""`Log`: the changes of a graph in a folder, each whole or absent however a process ends."""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from jgs.errors import InputError, refusing
from jgs.files.writing import locked, writing
from jgs.graph import checks

log = logging.getLogger("jgs")

_MAGIC = b"jgsC"
# Magic, number of changes, position of the first one, bytes of the payload.
_HEAD, _UINT32 = struct.Struct("<4sIQQ"), struct.Struct("<I")
_START = _HEAD.size + _UINT32.size  # of the payload; the CRC-32 of the other two is before it
_MOST = 64 << 20  # bytes of a file, after which the next one begins
_REOPEN = "Open the graph again, from its newest base; or restore the folder from a copy."
_writing = partial(writing, remedy="Free space or mend the permissions there.")
KINDS = ("append", "add_nodes", "set_rows", "delete_edges", "delete_between", "delete_nodes")


class Change(NamedTuple):
    """A change of a `jgs.graph.Live`, which `Live.apply` makes.

    Fields:
      kind: the name of the method, one of `KINDS`.
      fields: its arguments by name: NumPy arrays, text, ints or None.
    """

    kind: str
    fields: dict[str, Any]


def field(name: str, value: Any) -> Any:
    """The value of a field as a log has it."""
    value = value.item() if isinstance(value, np.generic) else value
    if is_text(value):
        return tuple(value)
    plain = isinstance(value, str | int | None)
    return value if plain else checks.as_array(name, value, "an array")


def is_text(value: Any) -> bool:
    """Whether a value is a sequence of text, which is no array in the log."""
    return isinstance(value, list | tuple) and bool(value) and {*map(type, value)} == {str}


class Unwritten(InputError):
    """A change that the disk did not take, or a log that takes none."""


class _Frame(NamedTuple):
    position: int  # of its first change
    changes: int  # the number of them
    payload: bytearray
    end: int  # the place in its file after it


class Log:
    """The changes of a graph, in files of bounded size in a folder.

    The changes of one `write` are a frame: their number, position and length, a CRC-32, and
    each change as JSON with arrays in NumPy's format. A frame is on the disk before `write`
    returns and before the next one begins. So a process that is killed, or a machine that loses
    power, leaves at most one frame that is not whole, at the end, of which nobody was told.
    Opening the log for writing drops it, and says so in Python's log. A frame that is not whole
    and that whole ones follow is damage. So is a last one of which some bytes changed: it is as
    long as its head says, or whole but for its head. What a killed process leaves is shorter.

    One process writes; others open the log with `writes=False` and `follow` it. Methods may be
    called from any threads.

    Fields:
      folder: the log's.
      position: the position after the last change that this object knows.
    """

    _file: FileIO
    _path: Path  # of `_file`
    _end: int  # the place in it after the last frame that is known

    def __init__(self, folder: Path, writes: bool, most: int = _MOST):
        self.folder, self.writes = folder, writes
        self._most, self._broken, self._guard = most, "", threading.Lock()
        self._process = os.getpid()
        with ExitStack() as stack:
            if writes:
                rule = "a log must have one process that writes"
                with _writing(folder):
                    stack.enter_context(locked(folder, rule, "Wait for that one to end."))
            self._open()
            stack.callback(lambda: self._file.close())
            self._held = stack.pop_all()

    @classmethod
    def create(cls, folder: str | os.PathLike, position: int = 0, **options: Any) -> Self:
        """A log for writing whose first change will follow `position`. Raises `InputError`
        where the folder has a log, or cannot be written."""
        path = Path(folder)
        with _writing(path):
            path.mkdir(parents=True, exist_ok=True)
            if _starts(path):
                raise InputError(
                    "a folder must have one log", path, "Open it, or choose another."
                )
            _begin_file(path, position)
            _sync_folder(path.parent)
        return cls(path, True, **options)

    @classmethod
    def open(cls, folder: str | os.PathLike, *, writes: bool = True, **options: Any) -> Self:
        """The log in `folder`. Raises `InputError` where there is none, where it is damaged,
        and, with `writes`, where another process writes it."""
        path = Path(folder)
        if not _starts(path):
            raise InputError("the folder must have a log", path, "Restore it from a copy.")
        return cls(path, writes, **options)

    @property
    def begin(self) -> int:
        """The position from which on the log has the changes."""
        return _starts(self.folder)[0]

    def close(self) -> None:
        """Closes the files; another process may then write."""
        self._broken = "a closed one"
        self._held.close()

    def write(self, *changes: Change) -> int:
        """Writes changes, all or none of them, and returns the position after them. They are
        then on the disk.

        Raises `InputError` for what is no change, and `Unwritten` where the disk fails. After
        a failed `fsync` nobody knows what the disk has: the log takes no more changes until it
        is opened again.
        """
        payload = b"".join(map(_encoded, changes))
        with self._guard:
            self._check_writable()
            if not changes:
                return self.position
            try:
                with _writing(self.folder):
                    if self._end >= self._most:
                        self._cut()
                    head = _HEAD.pack(_MAGIC, len(changes), self.position, len(payload))
                    check = zlib.crc32(payload, zlib.crc32(head))
                    self._append(head + _UINT32.pack(check) + payload)
            except InputError as error:
                raise Unwritten(error.rule, error.value, error.remedy) from None
            self.position += len(changes)
            return self.position

    def cut(self) -> int:
        """Begins a new file, so that `drop` can remove all changes before it. Returns the
        position."""
        with self._guard, _writing(self.folder):
            self._check_writable()
            self._cut()
            return self.position

    def drop(self, before: int) -> None:
        """Removes the changes before the position `before` that a `cut` returned. A base of the
        graph at that position must be on the disk."""
        with self._guard, _writing(self.folder):
            for start, end in pairwise(_starts(self.folder)):
                if end <= before:  # the oldest first, so that what is left has no gap
                    _path(self.folder, start).unlink()
            _sync_folder(self.folder)

    def changes(self, begin: int = 0) -> Iterator[Change]:
        """The changes from the position `begin` to `position`, in order. Raises `InputError`
        where the log is damaged, and where it no longer has them."""
        last, starts = self.position, _starts(self.folder)
        if not starts or not starts[0] <= begin <= last:
            raise _gone(self.folder, begin)
        position = max(start for start in starts if start <= begin)
        while position < last:
            path = _path(self.folder, position)
            if position not in starts:
                raise _damage(path, position)
            starts.remove(position)
            with _reading(path), open(path, "rb") as file:
                for frame in _frames(file.fileno(), 0, position):
                    position = frame.position + frame.changes
                    if position > begin:
                        found = list(_decoded(path, frame))
                        yield from found[max(0, begin - frame.position) : last - frame.position]
                    if position >= last:
                        break

    def follow(self) -> list[Change]:
        """The changes after `position`, at most those of one file; `position` goes on with
        them. None: there are no whole ones yet. Raises `InputError` where the log is damaged,
        and where it no longer has them."""
        found: list[Change] = []
        with self._guard:
            if self._file.closed:
                raise InputError("a log must be open", "a closed one", "Open it again.")
            while (frames := self._next_frames()) or (not found and self._next_file()):
                for frame in frames:
                    found += _decoded(self._path, frame)
                    self._end, self.position = frame.end, frame.position + frame.changes
        return found

    def _next_frames(self) -> list[_Frame]:
        return list(_frames(self._file.fileno(), self._end, self.position))

    def _next_file(self) -> bool:
        """Goes on with the file that follows. False where the last frame of all is known."""
        starts = _starts(self.folder)
        later = [start for start in starts if start > int(self._path.stem)]
        damaged = later and self.position not in later
        damaged = damaged or _whole_after(self._file.fileno(), self._end, self.position)
        if damaged and not self._next_frames():  # unless they have been written since
            raise (_gone if starts and starts[0] > self.position else _damage)(
                self._path, self.position
            )
        if later and not damaged:
            self._hold(_path(self.folder, self.position))
        return bool(later or damaged)

    def _open(self) -> None:
        self.position = _starts(self.folder)[-1]
        self._hold(_path(self.folder, self.position))
        for frame in _frames(self._file.fileno(), 0, self.position):
            self._end, self.position = frame.end, frame.position + frame.changes
        for damaged, end in ((_whole_after, None), (_changed_last, self._end)):
            found = damaged(self._file.fileno(), self._end, self.position)
            if found and not self._next_frames():  # unless they have been written since
                raise _damage(self._path, self.position, end)
        if not self.writes:
            return
        if rest := os.fstat(self._file.fileno()).st_size - self._end:
            with _writing(self.folder):
                os.ftruncate(self._file.fileno(), self._end)
                os.fsync(self._file.fileno())
            text = "%s: dropped the last %d bytes, a change that was not written whole"
            log.warning(text, self._path, rest)

    def _hold(self, path: Path) -> None:
        with _reading(path):
            file = FileIO(path, "r+" if self.writes else "r")
        if hasattr(self, "_file"):
            self._file.close()
        self._file, self._path, self._end = file, path, 0

    def _check_writable(self) -> None:
        forked = "one of another process, which has forked" * (self._process != os.getpid())
        if self._broken or forked or not self.writes:
            value = self._broken or forked or "one that is read"
            raise Unwritten("a log must be open for writing", value, "Open it again.")

    def _cut(self) -> None:
        if self._end:
            self._hold(_begin_file(self.folder, self.position))

    def _append(self, frame: bytes) -> None:
        number, written = self._file.fileno(), 0
        try:
            self._broken = "one whose disk has failed"
            while written < len(frame):
                written += os.pwrite(number, memoryview(frame)[written:], self._end + written)
            os.fsync(number)
            self._broken, self._end = "", self._end + written
        except OSError:
            if written < len(frame):  # no room: the next change may find some
                os.ftruncate(number, self._end)
                self._broken = ""
            raise


def _path(folder: Path, position: int) -> Path:
    return folder / f"{position:020}.log"


def _begin_file(folder: Path, position: int) -> Path:
    (path := _path(folder, position)).touch()
    _sync_folder(folder)
    return path


def _starts(folder: Path) -> list[int]:
    """The positions at which the log's files begin, ascending."""
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(n[:-4]) for n in names if n.endswith(".log") and n[:-4].isdigit())


def _frames(number: int, offset: int, position: int) -> Iterator[_Frame]:
    """The whole frames of an open file from `offset` and `position` on."""
    while (frame := _frame_at(number, offset)) and frame.position == position:
        yield frame
        offset, position = frame.end, position + frame.changes


def _frame_at(number: int, offset: int) -> _Frame | None:
    head = os.pread(number, _START, offset)
    if len(head) < _START or not head.startswith(_MAGIC):
        return None
    _, count, position, length = _HEAD.unpack_from(head)
    offset += _START
    if length > os.fstat(number).st_size - offset:
        return None
    payload = bytearray()
    while some := os.pread(number, length - len(payload), offset + len(payload)):
        payload += some
    (found,) = _UINT32.unpack_from(head, _HEAD.size)
    if len(payload) < length or found != zlib.crc32(payload, zlib.crc32(head[: _HEAD.size])):
        return None
    return _Frame(position, count, payload, offset + length)


def _whole_after(number: int, offset: int, position: int) -> bool:
    """Whether a whole frame of a later position begins after `offset`."""
    rest, at = os.pread(number, os.fstat(number).st_size - offset, offset), 0
    while (at := rest.find(_MAGIC, at + 1)) > 0:
        frame = _frame_at(number, offset + at)
        if frame and frame.position > position:
            return True
    return False


def _changed_last(number: int, offset: int, position: int) -> bool:
    """Whether the rest of an open file from `offset` on is a frame as long as its head says, of
    other bytes than were written, or one that is whole but for its head."""
    rest = os.pread(number, os.fstat(number).st_size - offset, offset)
    if len(rest) < _START:
        return False
    head = _HEAD.pack(_MAGIC, _HEAD.unpack_from(rest)[1], position, len(rest) - _START)
    (found,) = _UINT32.unpack_from(rest, _HEAD.size)
    return rest.startswith(head) or found == zlib.crc32(rest[_START:], zlib.crc32(head))


def _encoded(change: Change) -> bytes:
    plain: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, value in change.fields.items():
        if isinstance(value, str | int | float | None) or is_text(value):
            plain[name] = value
        elif (array := np.asarray(value)).dtype.kind in "biufcSU":
            arrays[name] = array
        else:
            raise InputError(
                "a change must have arrays of numbers or text, text, numbers or None",
                f"{name}, {getattr(value, 'dtype', type(value).__name__)}",
                "Convert it.",
            )
    text = json.dumps([change.kind, plain, list(arrays)]).encode()
    made = io.BytesIO()
    made.write(_UINT32.pack(len(text)) + text)
    for array in arrays.values():
        np.lib.format.write_array(made, array, allow_pickle=False)
    return made.getvalue()


def _decoded(path: Path, frame: _Frame) -> Iterator[Change]:
    rest, newer = io.BytesIO(frame.payload), "Open it with the version of jgs that wrote it."
    for _ in range(frame.changes):
        with refusing((ValueError, struct.error), f"{path} must be of this jgs", newer):
            (size,) = _UINT32.unpack(rest.read(_UINT32.size))
            kind, fields, names = json.loads(rest.read(size))
            fields = {n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}
            for name in names:
                fields[name] = np.lib.format.read_array(rest, allow_pickle=False)
        yield Change(kind, fields)


def _reading(path: Path) -> AbstractContextManager[None]:
    return refusing(OSError, f"{path} must be readable", _REOPEN)


def _gone(path: Path, position: int) -> InputError:
    value = f"position {position}, which it has not"
    return InputError(
        f"the log in {path} must have the changes from a position on", value, _REOPEN
    )


def _damage(path: Path, position: int, end: int | None = None) -> InputError:
    """That of a file whose change at `position` is damaged; with `end`, the last one, which
    begins there."""
    value, remedy = f"no whole change at position {position}", "Restore it from a copy."
    if end is None:
        value += ", and later ones"
    else:
        remedy = f"{remedy[:-1]}, or give that change up: truncate -s {end} {path}"
    return InputError(f"{path} must be as it was written", value, remedy)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not every file system can sync folders
            os.fsync(number)
    finally:
        os.close(number)
