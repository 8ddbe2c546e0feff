"""Tables of features on disk, dense and sparse, of which some rows are in memory; and
`RowPool`, which says which, as `jgs/kernels/row_pool.h` tells."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from jgs import kernels
from jgs.arrays import aligned_empty
from jgs.errors import InputError
from jgs.files.row_file import FilePart, RowFiles, copy_rows, part_of_mapped
from jgs.graph import SparseFeatures, as_device
from jgs.graph.row_tables.table import RowTable
from jgs.sampling.capacity import round_up

MOST_STEPS = 31  # that may be known ahead of the one that is taken
_LISTS = 33  # one for each step in turn, and that of the rows that no known step needs
_NONE = 32


class Taken(NamedTuple):
    """What `RowPool.take` found for the `n` rows of a step.

    Fields:
      place: int32 `[n]`, the slot of each; `capacity + j` for the `j`-th missing row; -1 for
        padding.
      missing: int32 `[m]`, the rows that have no slot, ascending, each once.
      source, target: int32 `[k]`: after the step the row `missing[source[i]]` has the slot
        `target[i]`. No slot is twice; a slot may be a `place` of this step.
    """

    place: np.ndarray
    missing: np.ndarray
    source: np.ndarray
    target: np.ndarray


class RowPool(Protocol):
    """Decides which of a table's `N` rows have one of `capacity` slots: those that are needed
    again first (Belady 1966), as far as steps are known. Rows that no known step needs leave
    first, the one that was used longest ago before the others.

    Attributes:
      nbytes: the memory of the plan: 8 bytes a row of the table, and 12 a slot.
    """

    nbytes: int

    def reset(self) -> None:
        """Forgets the known steps. Rows keep their slots."""

    def see(self, rows: np.ndarray, step: int) -> None:
        """Makes known that `step`, later than all known ones, needs `rows`, int32 `[n]`; what
        is not in `[0, N)` is padding. At most `MOST_STEPS` steps may be known beside one."""

    def take(self, rows: np.ndarray, step: int) -> Taken:
        """Passes over the first known step, whose rows these are."""


def row_pool(num_rows: int, capacity: int, pinned: np.ndarray) -> RowPool:
    """A `RowPool` of `N` rows in which the distinct rows `pinned`, int32 `[K]`, have the first
    slots for ever, and no other row has one yet."""
    made = _Kernel if kernels.available() else PlainPool
    return made(num_rows, capacity, pinned)


class _Pool(ctypes.Structure):
    """See `jgs/kernels/row_pool.h`."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("num_rows", "capacity", "pinned", "used")),
        *((name, ctypes.c_void_p) for name in ("rows", "row", "links")),
    )


class _Kernel:
    def __init__(self, num_rows: int, capacity: int, pinned: np.ndarray):
        self._rows = np.zeros((num_rows, 2), np.int32)  # steps, and slot
        self._rows[:, 1] = -1
        self._row = np.full(capacity, -1, np.int32)
        self._links = np.zeros((capacity + _LISTS, 2), np.int32)
        self._rows[pinned, 1], self._row[: pinned.size] = np.arange(pinned.size), pinned
        arrays = (self._rows, self._row, self._links)
        self.nbytes = sum(array.nbytes for array in arrays)
        addresses = (array.ctypes.data for array in arrays)
        self._pool = _Pool(num_rows, capacity, pinned.size, pinned.size, *addresses)
        self.reset()

    def reset(self) -> None:
        kernels.function("JgsPoolReset", None)(ctypes.byref(self._pool))

    def see(self, rows: np.ndarray, step: int) -> None:
        kernels.function("JgsPoolSee", None)(*self._of(rows), ctypes.c_int64(step))

    def take(self, rows: np.ndarray, step: int) -> Taken:
        found, number = np.empty((4, rows.size), np.int32), np.zeros(2, np.int64)
        results = (ctypes.c_void_p(each.ctypes.data) for each in (*found, number))
        take = kernels.function("JgsPoolTake", ctypes.c_int64)
        if take(*self._of(rows), ctypes.c_int64(step), *results):
            raise MemoryError("planning which rows to keep")
        place, missing, source, target = found
        num_missing, num_kept = number.tolist()
        return Taken(place, missing[:num_missing], source[:num_kept], target[:num_kept])

    def _of(self, rows: np.ndarray) -> tuple[Any, ...]:
        assert rows.dtype == np.int32
        assert rows.flags.c_contiguous
        return (
            ctypes.byref(self._pool),
            ctypes.c_void_p(rows.ctypes.data),
            ctypes.c_int64(rows.size),
        )


class PlainPool:
    """A `RowPool` in Python: the meaning of that in C++."""

    def __init__(self, num_rows: int, capacity: int, pinned: np.ndarray):
        self._steps, self._slot = np.zeros(num_rows, np.uint32), np.full(num_rows, -1, np.int32)
        self._row = np.full(capacity, -1, np.int32)
        self._slot[pinned], self._row[: pinned.size] = np.arange(pinned.size), pinned
        self._pinned = self._used = pinned.size
        self.nbytes = self._steps.nbytes + self._slot.nbytes + self._row.nbytes
        self.reset()

    def reset(self) -> None:
        self._steps[:] = 0
        # The slots of each list, in order: a dict keeps that of insertion.
        self._lists: list[dict[int, None]] = [{} for _ in range(_LISTS)]
        self._lists[_NONE] = dict.fromkeys(range(self._pinned, self._used))
        self._list_of = dict.fromkeys(range(self._pinned, self._used), _NONE)

    def see(self, rows: np.ndarray, step: int) -> None:
        for row in self._real(rows):
            if self._steps[row] == 0 and self._slot[row] >= self._pinned:
                self._move(int(self._slot[row]), step % 32)
            self._steps[row] |= np.uint32(1 << step % 32)

    def take(self, rows: np.ndarray, step: int) -> Taken:
        capacity = self._row.size
        for row in self._real(rows):
            self._steps[row] &= ~np.uint32(1 << step % 32)
            if self._slot[row] >= self._pinned:
                self._move(int(self._slot[row]), self._next(row, step))
        real = (rows >= 0) & (rows < self._slot.size)
        place = np.where(real, self._slot[np.where(real, rows, 0)], -1)
        lacks = real & (place < 0)
        missing = np.unique(rows[lacks])
        place[lacks] = capacity + np.searchsorted(missing, rows[lacks])
        for row in missing.tolist():
            wanted = self._next(row, step)
            slot = self._free(wanted, step)
            if slot is not None:
                self._row[slot], self._slot[row] = row, slot
                self._move(slot, wanted)
        source = np.flatnonzero(self._slot[missing] >= 0).astype(np.int32)
        return Taken(place, missing, source, self._slot[missing[source]])

    def _real(self, rows: np.ndarray) -> list[int]:
        return rows[(rows >= 0) & (rows < self._slot.size)].tolist()

    def _next(self, row: int, step: int) -> int:
        steps = int(self._steps[row])
        turns = ((step + 1 + later) % 32 for later in range(32))
        return next((turn for turn in turns if steps >> turn & 1), _NONE)

    def _move(self, slot: int, to: int) -> None:
        self._lists[self._list_of.get(slot, _NONE)].pop(slot, None)
        self._lists[to][slot] = None
        self._list_of[slot] = to

    def _free(self, wanted: int, step: int) -> int | None:
        if self._used < self._row.size:
            self._used += 1
            return self._used - 1
        wait = 31 if wanted == _NONE else (wanted - step - 1) % 32
        later = [_NONE, *((step + 1 + more) % 32 for more in range(31, wait, -1))]
        for turn in later:
            for slot in self._lists[turn]:
                self._slot[self._row[slot]] = -1
                return slot
        return None


ENTRIES = 32  # of sparse features, in a block
REMEDY = "Save them: numpy.save, Dataset.save, or jgs data build."


class DiskTable:
    """A matrix `[N, F]` in files, of which some rows are in memory.

    Args:
      files: the matrix.
      memory: bytes for rows.
      pinned: int32 `[K]`, rows that stay in memory for ever.

    Attributes:
      capacity: how many rows may stay in memory.
      nbytes: the memory that is in use: of the rows that stay, those that were read for the
        latest step, and the plan.
      rows_read: how many rows were read so far.
    """

    def __init__(self, files: RowFiles, memory: int, pinned: np.ndarray):
        self.files = files
        num_rows, width = files.shape
        self.capacity = min(num_rows, memory // max(width * files.dtype.itemsize, 1))
        if pinned.size > self.capacity:
            raise InputError(
                "the pinned rows must fit the memory for rows",
                f"{pinned.size:,} rows, and memory for {self.capacity:,}",
                "Pin fewer, or give more memory.",
            )
        self._pinned = np.sort(pinned)
        self._kept, self._kept_on_host = self._room(self.capacity)
        self._read, self._read_on_host = self._room(0)
        files.read(self._pinned, self._kept_on_host)
        self.rows_read = pinned.size
        self.forget()

    @property
    def nbytes(self) -> int:
        return self._kept_on_host.nbytes + self._read_on_host.nbytes + self._pool.nbytes

    def forget(self) -> None:
        """Has no row in memory any more but the pinned ones."""
        self._pool = row_pool(self.files.shape[0], self.capacity, self._pinned)
        self.reset, self.see, self.take = self._pool.reset, self._pool.see, self._pool.take

    def fetched(
        self, taken: Taken, read: Callable[[np.ndarray], None]
    ) -> tuple[jax.Array, jax.Array]:
        """Has `read` read the missing rows. Returns the tables, numbered as one, in which the
        step has its places. They hold until `keep` is called."""
        size = taken.missing.size
        if size > len(self._read_on_host):
            self._read, self._read_on_host = self._room(round_up(size + size // 8))
        read(self._read_on_host)
        self.rows_read += size
        return self._kept, self._read

    def keep(self, taken: Taken) -> None:
        """Moves those of the rows that were read to where they stay."""
        copy_rows(self._read_on_host, taken.source, taken.target, self._kept_on_host)

    def _room(self, size: int) -> tuple[jax.Array, np.ndarray]:
        """Room for so many rows as JAX and NumPy see it, the same memory."""
        width = self.files.shape[1]
        memory = aligned_empty(size * width, self.files.dtype).reshape(size, width)
        table = as_device(memory)
        if memory.nbytes and table.unsafe_buffer_pointer() != memory.ctypes.data:
            raise RuntimeError("JAX copied an aligned array of the host")
        return table, memory


class RowsOnDisk:
    """The features of all nodes, or of those of one type, `N` rows, in files: a matrix. `made`
    makes features of its rows.

    Attributes:
      shape: `(N, F)`.
      nbytes: of the files.
      tables: the matrices on disk from which they are made, once they are `open`.
    """

    tables: list[DiskTable]

    def __init__(self, files: RowFiles, made: Callable[[Any], Any]):
        self.shape, self._files, self._made = files.shape, files, made
        self.nbytes = files.shape[0] * files.row_bytes

    def open(self, memory: int, pinned: np.ndarray) -> None:
        """Has so many bytes of rows in memory, and the rows `pinned`, int32 `[K]`, for ever."""
        self.tables = [DiskTable(self._files, memory, pinned)]

    def rows_of(self, ids: np.ndarray) -> list[np.ndarray]:
        """For each of `tables` int32 `[n]`, the rows of it that the features of `ids`, int32
        `[S]`, need. An id outside `[0, N)` needs none. A row may be named twice."""
        return [ids]

    def found(
        self, ids: np.ndarray, tables: Sequence[tuple[jax.Array, jax.Array]], plan: list[Taken]
    ) -> tuple[Any, np.ndarray]:
        """What `jgs.ops.gather` takes: features, and int32 `[S]`, the row in them of each of
        `ids`. Of each of `tables` the rows of `rows_of(ids)` were fetched, by this plan."""
        return self._made(tables[0]), plan[0].place


class SparseRowsOnDisk(RowsOnDisk):
    """`SparseFeatures` whose `indices` and `values` lie in files.

    The two arrays are read as matrices of blocks of 32 entries. A row of features needs the
    blocks in which its entries lie. `indptr` is in memory. So are the entries after the last
    whole block.
    """

    def __init__(self, features: SparseFeatures, threads: int):
        arrays = features.indices, features.values
        both = zip(*(_blocks_of(array, threads) for array in arrays), strict=True)
        self._of_arrays, self._tails = both
        self.shape, self._max_row = features.shape, features.max_row
        self.nbytes = sum(each.nbytes for each in arrays)
        self._indptr, self._room = np.array(features.indptr), 0

    def open(self, memory: int, pinned: np.ndarray) -> None:
        blocks = np.unique(self._blocks(pinned)[0])
        blocks = blocks[blocks < self._of_arrays[0].shape[0]]
        self.tables = [DiskTable(each, memory // 2, blocks) for each in self._of_arrays]

    def rows_of(self, ids: np.ndarray) -> list[np.ndarray]:
        return [self._blocks(ids)[0]] * 2

    def found(
        self, ids: np.ndarray, tables: Sequence[tuple[jax.Array, jax.Array]], plan: list[Taken]
    ) -> tuple[Any, np.ndarray]:
        _, start, length = self._blocks(ids)
        turns = np.zeros(plan[0].place.size * ENTRIES + 1, np.int8)
        filled = length > 0
        turns[start[filled]] += 1
        turns[(start + length)[filled]] -= 1
        own = np.cumsum(turns[:-1], dtype=np.int8).view(bool)
        indptr = np.concatenate([[0], np.cumsum(length)])
        if indptr[-1] > self._room:
            self._room = round_up(int(indptr[-1] + indptr[-1] // 8))
        arrays = []
        for table, taken, tail in zip(tables, plan, self._tails, strict=True):
            entries = aligned_empty(self._room, tail.dtype)
            entries[: indptr[-1]] = _rows_at(taken.place, table, tail).reshape(-1)[own]
            entries[indptr[-1] :] = 0
            arrays.append(as_device(entries))
        width = self.shape[1]
        rows = SparseFeatures(as_device(indptr), arrays[0], arrays[1], width, self._max_row)
        return rows, np.arange(ids.size, dtype=np.int32)

    def _blocks(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The blocks of each of `ids` one after the other, int32 `[n]`; where in their entries
        each one's own begin, and how many these are, int64 `[S]`."""
        real = (ids >= 0) & (ids < self.shape[0])
        safe = np.where(real, ids, 0)
        begin = self._indptr[safe]
        length = np.where(real, self._indptr[safe + 1] - begin, 0)
        first = begin // ENTRIES
        num = np.where(length > 0, (begin + length - 1) // ENTRIES - first + 1, 0)
        before = np.cumsum(num) - num
        blocks = np.repeat(first - before, num) + np.arange(num.sum())
        return blocks.astype(np.int32), (before - first) * ENTRIES + begin, length


def _rows_at(
    place: np.ndarray, tables: tuple[jax.Array, jax.Array], last: np.ndarray
) -> np.ndarray:
    """`[n, F]`, the rows of the tables, numbered as one, and `last` where the place is -1."""
    kept, read = map(np.asarray, tables)
    rows = np.empty((place.size, last.size), last.dtype)
    if len(kept):
        np.take(kept, place, axis=0, out=rows, mode="clip")
    missing = np.flatnonzero(place >= len(kept))
    rows[missing] = read[place[missing] - len(kept)]
    rows[place < 0] = last
    return rows


def rows_on_disk(features: Any, dtype: Any, threads: int) -> RowsOnDisk:
    """Opens features, given as `DiskRows` takes those of one table. Raises `InputError`."""
    if not isinstance(features, RowTable):
        return RowsOnDisk(_files_of(features, dtype, threads), lambda rows: rows)
    if features.by_entries:
        return SparseRowsOnDisk(features, threads)  # type: ignore[arg-type]
    return RowsOnDisk(_files_of(features.rows, dtype, threads), features.with_rows)


def _blocks_of(array: Any, threads: int) -> tuple[RowFiles, np.ndarray]:
    """The blocks of 32 entries of an array in a file, and what comes after the last whole one,
    filled up with zeros. Raises `InputError`."""
    num, left = divmod(array.size, ENTRIES)
    tail = np.zeros((1, ENTRIES), array.dtype)
    if not array.size:
        return RowFiles([], ENTRIES, array.dtype), tail[0]
    part = part_of_mapped(array)
    if part is None:
        raise _not_in_files("SparseFeatures in memory")
    files = RowFiles([part._replace(rows=num)], ENTRIES, array.dtype, threads)
    if left:  # by a request too: a file that has become shorter must not end the process
        last = part._replace(begin=part.begin + num * files.row_bytes, rows=1)
        entries = np.empty((1, left), array.dtype)
        RowFiles([last], left, array.dtype).read(np.zeros(1, np.int32), entries)
        tail[:, :left] = entries
    return files, tail[0]


def _files_of(table: Any, dtype: Any, threads: int) -> RowFiles:
    if isinstance(table, RowFiles):
        return _of_numbers(table)
    paths = isinstance(table, str | os.PathLike)
    several = table if isinstance(table, Sequence) and not paths else [table]
    if not several:
        raise InputError("features that are read from disk must be files", "none", REMEDY)
    if all(isinstance(each, str | os.PathLike) for each in several):
        return _of_numbers(RowFiles.of_npy(several, dtype, threads=threads))
    parts = list[FilePart]()
    for one in several:
        matrix = getattr(one, "ndim", 0) == 2
        part = part_of_mapped(one) if matrix else None
        if part is None:
            raise _not_in_files("a matrix in memory" if matrix else type(one).__name__)
        parts.append(part)
    return _of_numbers(RowFiles(parts, several[0].shape[1], several[0].dtype, threads))


def _not_in_files(value: str) -> InputError:
    rule = "features that are read from disk must be matrices that lie in files"
    return InputError(rule, value, REMEDY)


def _of_numbers(files: RowFiles) -> RowFiles:
    kind = files.dtype
    real = kind.kind in "iuf" and kind.itemsize <= 8 and kind.isnative
    if not real and not kind.name.startswith(("bfloat16", "float8")):
        raise InputError(
            "features that are read from disk must be real numbers of at most 8 bytes, in "
            "this machine's order of bytes",
            kind,
            "Convert them; files of bfloat16 need dtype=jax.numpy.bfloat16.",
        )
    return files
