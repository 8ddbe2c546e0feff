"""`DiskSource`: batches with their rows, which `DiskRows` reads as it has planned."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np

from jgs.files.packed_rows import PackedRows, Spool
from jgs.graph import MiniBatch
from jgs.sampling.loading.ahead import Ahead, each
from jgs.sampling.loading.disk_rows import DiskRows
from jgs.sampling.loading.row_pool import Taken
from jgs.sampling.loading.source import OverSource, Source

_FIRST_BLOCK, _GROWTH = 8, 4  # a loop waits for its first block; later ones are longer


class Block:
    """Batches that are planned, and the rows that they lack, on disk.

    Attributes:
      packed: the rows, of each table, once `pack` has been called.
    """

    packed: list[PackedRows]

    def __init__(self, disk: DiskRows):
        assert disk.scratch is not None
        self._disk, self._folder, self._spool = disk, disk.scratch, Spool(disk.scratch)
        self._places: list[list[tuple[Any, ...]]] = []
        self._missing: list[list[np.ndarray]] = []

    def __len__(self) -> int:
        return len(self._places)

    def add(self, plan: list[Taken]) -> None:
        self._missing.append([taken.missing.copy() for taken in plan])
        places = []
        for place, missing, source, target in plan:
            arrays = (place, source, target)
            places.append((missing.size, *map(self._spool.append, arrays)))
        self._places.append(places)

    def pack(self) -> Block:
        by_table = zip(self._disk.files, zip(*self._missing, strict=True), strict=True)
        self.packed = [PackedRows(files, rows, self._folder) for files, rows in by_table]
        self._missing.clear()
        self._disk.scratch_bytes += sum(packed.nbytes for packed in self.packed)
        return self

    def plan(self, number: int) -> list[Taken]:
        """What was added as the `number`-th; of the missing rows only how many there are."""
        found = []
        for size, *places in self._places[number]:
            place, source, target = map(self._spool.read, places)
            found.append(Taken(place, np.empty(size, np.int32), source, target))
        return found


class DiskSource(OverSource):
    """Pairs of a batch that another source draws, or of each in a list of such, and what
    `DiskRows` has for it.

    Args:
      rows: has the rows of the batches.
      source, ahead: as in `OverSource`.
    """

    at_once = 1  # else the batches of a call would all wait with their rows

    def __init__(self, source: Source, rows: DiskRows, ahead: bool):
        super().__init__(source, ahead)
        self._disk = rows
        # A sampler that learns draws a batch when the step before it has been made.
        self._window = 0 if source.learning is not None else rows.window

    @property
    def counts(self) -> dict[str, int]:
        return self.source.counts | self._disk.counts

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        self._disk.begin()
        try:
            packs = self._disk.scratch is not None and self.source.learning is None
            steps = self._packed(epoch, first) if packs else self._in_place(epoch, first)
            with closing(steps):
                for step, make in steps:
                    began = time.perf_counter()
                    made = [(batch, make(batch, i)) for i, batch in enumerate(_listed(step))]
                    self._seconds += time.perf_counter() - began
                    yield [made if isinstance(step, list) else made[0]]
        finally:
            self._disk.end()

    def _in_place(self, epoch: int, first: int) -> Generator[tuple[Any, Callable[..., Any]]]:
        """Each step, and what makes the rows of its `i`-th batch, where they lie."""
        planned = self._planned(epoch, first)
        try:
            for step, plans in planned:
                yield step, lambda batch, i, plans=plans: self._disk.make(batch, plans[i])
        finally:
            planned.close()

    def _packed(self, epoch: int, first: int) -> Generator[tuple[Any, Callable[..., Any]]]:
        """As `_in_place`, of rows that were packed in blocks."""
        blocks, steps = self._blocks(epoch, first), self._steps(epoch, first)
        calls = Ahead(blocks, 1) if self._ahead else blocks
        try:
            for block in calls:
                at = 0
                while at < len(block):
                    step = next(steps)

                    def make(
                        batch: MiniBatch, i: int, block: Block = block, at: int = at
                    ) -> Any:
                        return self._disk.make(batch, block.plan(at + i), block.packed, at + i)

                    yield step, make
                    at += len(_listed(step))
        finally:
            if isinstance(calls, Ahead):
                calls.end()
            blocks.close()
            steps.close()

    def _blocks(self, epoch: int, first: int) -> Generator[Block]:
        size, block = _FIRST_BLOCK, Block(self._disk)
        planned = self._planned(epoch, first, only_rows=True)
        try:
            for _, plans in planned:
                for plan in plans:
                    block.add(plan)
                if len(block) >= min(size, self._disk.block):
                    yield block.pack()
                    size, block = _GROWTH * size, Block(self._disk)
            if len(block):
                yield block.pack()
        finally:
            planned.close()

    def _planned(
        self, epoch: int, first: int, only_rows: bool = False
    ) -> Generator[tuple[Any, list[list[Taken]]]]:
        """Each step with the plans of its batches, made with the next steps known. With
        `only_rows` None is in its place: then it need not be in memory."""
        known, seen, passed = deque[tuple[Any, list[Any]]](), 0, 0
        steps = self._steps(epoch, first)
        try:
            for step in chain(steps, [None]):
                rows = [self._disk.rows_of(batch) for batch in _listed(step)]
                for own in rows:
                    self._disk.see(own, seen)
                    seen += 1
                if step is not None:
                    known.append((None if only_rows else step, rows))
                most = passed + self._window + 1
                while known and (step is None or seen + len(rows) > most):
                    earlier, rows_of_it = known.popleft()
                    plans = [self._disk.plan(r, passed + i) for i, r in enumerate(rows_of_it)]
                    passed += len(plans)
                    most += len(plans)
                    yield earlier, plans
        finally:
            steps.close()

    def _steps(self, epoch: int, first: int) -> Generator[Any]:
        """What the source draws, step by step."""
        calls = self.source.drawn(epoch, first)
        ahead = Ahead(calls, 1) if self._ahead else None
        try:
            yield from each(calls if ahead is None else ahead)
        finally:
            if ahead is not None:
                ahead.end()


def _listed(step: Any) -> list[Any]:
    """The batches of a step."""
    return step if isinstance(step, list) else [] if step is None else [step]
