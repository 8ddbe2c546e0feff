"""`RowPool`: which rows of a table on disk are in memory; `jgs/kernels/row_pool.h` says how."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

import numpy as np

from jgs import kernels

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
