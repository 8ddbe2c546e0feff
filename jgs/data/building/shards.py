"""Shards of edges, read piece by piece: files of arrays, tables, and chunks of a user's own.

A chunk is a dict of arrays with one row an edge: `src`, `dst`, perhaps `edge_weight` and
`edge_time`, and the edge columns by name. What its values may be, `jgs.data.building.spreading`
checks.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import as_numpy, described
from jgs.data.building.table_pieces import TABLES, Columns, TableFile
from jgs.errors import InputError, refuse, refusing
from jgs.files.npy import map_npy, plain_file

Chunk = dict[str, Any]
_PEEK = 1 << 10  # rows
BINARY = {"int32": np.int32, "int64": np.int64}


class Shard:
    """Where some of the edges come from.

    Fields:
      what: what messages call it.
      rows: the number of its edges, or None where only reading tells.
      stamp: what tells that it is the same unchanged shard, as JSON can hold it.
      again: whether it can be read twice.
      is_file: whether it is a file, which a later call can go on with.
      named: whether the ends of its edges may have names.
    """

    what: str
    rows: int | None
    stamp: list[Any]
    again = True
    is_file = True
    named = True

    def chunks(self, first: int, most: int) -> Iterator[Chunk]:
        """The edges from number `first` on, at most `most` a chunk; raises `InputError`."""
        raise NotImplementedError

    def peek(self) -> Chunk | None:
        """A first chunk with edges, or None where there are none."""
        return next((c for c in self.chunks(0, _PEEK) if len(c["src"])), None)

    def largest_id(self, most: int) -> int:
        """The largest id of a node, -1 for none. The edges are read, `most` at a time."""
        largest = -1
        for chunk in self.chunks(0, most):
            for end in ("src", "dst"):
                ids = np.asarray(chunk[end])
                if ids.size and ids.dtype.kind not in "iu":
                    raise not_ids(f"{end} in {self.what}", ids)
                largest = max(largest, int(ids.max(initial=-1)))
        return largest


def open_shards(given: Any, columns: Columns, binary: str | None) -> list[Shard]:
    """The shards of a path, of a list of paths, or of an iterable of chunks. Raises
    `InputError`; nothing but the files' headers is read."""
    if binary is not None and binary not in BINARY:
        raise InputError(
            f"the integers of .bin files must be {' or '.join(BINARY)}", repr(binary), "Say so."
        )
    if isinstance(given, str | Path):
        given = [given]
    if isinstance(given, list | tuple) and all(isinstance(one, str | Path) for one in given):
        return [_open_file(Path(path), columns, binary) for path in given]
    if not isinstance(given, Iterable):
        raise InputError(
            "edges must be paths, or an iterable of chunks of edges",
            f"a {type(given).__name__}",
            "Give a list of files, or pairs (sources, targets).",
        )
    return [_Chunks(given)]


def _open_file(path: Path, columns: Columns, binary: str | None) -> Shard:
    if not plain_file(path).exists():
        raise InputError(f"{path} must exist", "no such file", "Correct the path.")
    if path.name.endswith(".npy"):
        return _open_npy(path, columns)
    if path.name.endswith(".bin"):
        return _open_binary(path, binary, columns)
    if path.name.endswith(TABLES):
        return _Table(path, columns)
    raise InputError(
        f"a shard of edges must end in .npy, .bin, {', '.join(TABLES)}",
        path,
        "Convert or rename it.",
    )


def stamp_of(path: Path) -> list[Any]:
    """What tells that a file is the same and unchanged."""
    state = path.stat()
    return [str(path.resolve()), state.st_size, state.st_mtime_ns]


def check_named(columns: Columns, shards: list[Shard]) -> None:
    """Raises `InputError` where the names of the ends are for none of the shards."""
    given = columns.src, columns.dst
    refuse(
        (given != ("src", "dst") and not any(shard.named for shard in shards),
         "src and dst must be names in a table, or of fields",
         f"{' and '.join(given)} for {', '.join(one.what for one in shards[:1])} without names",
         "Leave them out: the first of each pair is the source."),
    )  # fmt: skip


class FixedRows(NamedTuple):
    """Rows of fixed length in a file, which are read without a memory map: mapped pages would
    count as this process's memory.

    Fields:
      path, dtype: the file and the dtype of an element.
      begin: the byte at which the rows begin.
      shape: of a row.
    """

    path: Path
    dtype: np.dtype
    begin: int
    shape: tuple[int, ...] = ()

    def read(self, first: int, count: int) -> np.ndarray:
        """`[count, *shape]`, from row `first` on; raises `InputError`."""
        width = int(np.prod(self.shape, dtype=np.int64))
        begin = self.begin + first * width * self.dtype.itemsize
        with refusing(OSError, f"{self.path} must be readable", "Mend it, or its permissions."):
            found = np.fromfile(self.path, self.dtype, count * width, offset=begin)
        if found.size < count * width:
            raise InputError(
                f"{self.path} must keep its size while it is read",
                f"{found.size // max(1, width)} rows where {count} were",
                "Write it again, and start again.",
            )
        return found.reshape(count, *self.shape)


class _Pairs(Shard):
    """Pairs of ids, or records, whose fields `columns` names as it does columns of tables."""

    def __init__(self, path: Path, rows: int, parts: list[FixedRows], columns: Columns):
        self.what, self.rows, self.stamp = str(path), rows, stamp_of(path)
        self._parts = parts
        fields = parts[0].dtype.names
        self.named = bool(fields)
        named = columns if fields else columns._replace(src="src", dst="dst")
        self._roles = named.roles(str(path), list(fields or ("src", "dst")))

    def chunks(self, first: int, most: int) -> Iterator[Chunk]:
        assert self.rows is not None
        for at in range(first, self.rows, most):
            count = min(most, self.rows - at)
            found = [part.read(at, count) for part in self._parts]
            if found[0].dtype.names:
                yield {role: found[0][name] for name, role in self._roles.items()}
            else:
                src, dst = found if len(found) == 2 else found[0].T
                yield {"src": src, "dst": dst}


def _open_npy(path: Path, columns: Columns) -> Shard:
    rule, remedy = f"{path} must be a whole .npy file", "Write it again."
    with refusing((OSError, ValueError), rule, remedy):
        array = map_npy(path)
    shape, dtype, begin = array.shape, array.dtype, getattr(array, "offset", 0)
    if dtype.names and {columns.src, columns.dst} <= set(dtype.names) and len(shape) == 1:
        return _Pairs(path, shape[0], [FixedRows(path, dtype, begin)], columns)
    pairs = len(shape) == 2 and 2 in shape and dtype.kind in "iu" and dtype.itemsize >= 4
    if not pairs or shape == (2, 2):
        raise InputError(
            f"{path} must be int32 or int64 [E, 2] or [2, E], or records with fields "
            f"{columns.src}, {columns.dst}",
            described(array) + ", which may be either" * pairs,
            "Write two edges as .bin or as a table." if pairs else "Convert it.",
        )
    count = shape[0] if shape[1] == 2 else shape[1]
    if (shape[1] == 2) == array.flags.c_contiguous:  # the two ends of an edge lie together
        return _Pairs(path, count, [FixedRows(path, dtype, begin, (2,))], columns)
    ends = [FixedRows(path, dtype, begin + end * count * dtype.itemsize) for end in (0, 1)]
    return _Pairs(path, count, ends, columns)


def _open_binary(path: Path, binary: str | None, columns: Columns) -> Shard:
    if binary is None:
        raise InputError(
            f"the integers of {path} must be known",
            "no binary",
            "Say --binary int32 or --binary int64.",
        )
    dtype = np.dtype(BINARY[binary])
    size = path.stat().st_size
    if size % (2 * dtype.itemsize):
        raise InputError(
            f"{path} must hold pairs of {dtype}, {2 * dtype.itemsize} bytes each",
            f"{size:,} bytes",
            "It is cut short, or has other integers: write it again, or correct --binary.",
        )
    parts = [FixedRows(path, dtype, 0, (2,))]
    return _Pairs(path, size // (2 * dtype.itemsize), parts, columns)


class _Table(Shard):
    def __init__(self, path: Path, columns: Columns):
        self._file = TableFile(path, columns)
        self.what, self.rows, self.stamp = str(path), self._file.rows, stamp_of(path)

    def chunks(self, first: int, most: int) -> Iterator[Chunk]:
        return self._file.chunks(first, most)

    def largest_id(self, most: int) -> int:
        known = self._file.largest_id()
        return super().largest_id(most) if known is None else known


class _Chunks(Shard):
    is_file = False

    def __init__(self, given: Iterable):
        self.what, self.rows, self.stamp = "the edges", None, [secrets.token_hex(8)]
        self._given = given
        self._held: list[Any] = []  # chunks that `peek` took from an iterator
        iterator = iter(given)
        self.again = iterator is not given
        self._iterator = None if self.again else iterator

    def chunks(self, first: int, most: int) -> Iterator[Chunk]:
        assert first == 0
        held, self._held = self._held, []
        rest = iter(self._given) if self._iterator is None else self._iterator
        for given in chain(held, rest):
            chunk = _as_chunk(given)
            size = max((len(array) for array in chunk.values()), default=0)
            for at in range(0, size, most) if size > most else (0,):
                yield {name: array[at : at + most] for name, array in chunk.items()}

    def peek(self) -> Chunk | None:
        if self.again:
            return super().peek()
        assert self._iterator is not None
        for given in self._iterator:
            self._held.append(given)
            if len((chunk := _as_chunk(given))["src"]):
                return chunk
        return None


def _as_chunk(given: Any) -> Chunk:
    wrong = not isinstance(given, Mapping)
    if wrong:
        try:
            src, dst = given
        except (TypeError, ValueError):
            pass
        else:
            given, wrong = {"src": src, "dst": dst}, False
    if wrong or not {"src", "dst"} <= set(given):
        raise InputError(
            "a chunk of edges must be a pair (sources, targets), or a dict with src and dst",
            ", ".join(map(repr, given)) if isinstance(given, Mapping) else type(given).__name__,
            "Give arrays, one row an edge.",
        )
    arrays = {name: as_numpy(array) for name, array in given.items()}
    if scalars := [name for name, array in arrays.items() if np.ndim(array) == 0]:
        raise InputError(
            "a chunk of edges must have arrays, one row an edge",
            f"a single value for {', '.join(scalars)}",
            "Give a list of chunks: [(sources, targets)].",
        )
    return arrays


def not_ids(what: str, ids: np.ndarray) -> InputError:
    """The error for ids of nodes that are no integers."""
    return InputError(
        f"{what} must be node ids, integers from 0",
        f"{described(ids)}, some perhaps missing",
        "Number the nodes from 0 (jgs.NodeIds does that in memory), and leave out no end.",
    )
