"""`DiskSource`: batches with their rows, which `DiskRows` reads as it has planned."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import jax
import numpy as np

from jgs.arrays import aligned_empty
from jgs.files.row_file import PackedRows, Spool, Spooled
from jgs.graph import as_device
from jgs.sampling.loading.disk_rows import DiskRows
from jgs.sampling.loading.disk_table import Taken
from jgs.sampling.loading.sending import Ahead, each, go_on, run_ahead
from jgs.sampling.loading.source import OverSource, Source

# A step, the plans of its batches, the packed rows of each table, and the number of the step's
# first batch there; without packed rows these are read where they lie.
Planned = tuple[Any, list[list[Taken]], Sequence[PackedRows], int]
_FIRST_BLOCK, _GROWTH = 8, 4  # a loop waits for its first block; later ones are longer


class Stored:
    """A pytree, of which the long arrays are on disk."""

    def __init__(self, tree: Any, spool: Spool):
        leaves, self._tree = jax.tree.flatten(tree)
        self._leaves = [
            (spool.append(np.asarray(leaf)) if _is_long(leaf) else leaf, type(leaf))
            for leaf in leaves
        ]

    def load(self) -> Any:
        def loaded(leaf: Any, kind: type) -> Any:
            if not isinstance(leaf, Spooled):
                return leaf
            array = leaf.read(aligned_empty)
            return array if kind is np.ndarray else as_device(array)

        return jax.tree.unflatten(self._tree, [loaded(*each) for each in self._leaves])


class Block:
    """Steps that are planned, and the rows that they lack, on disk.

    Attributes:
      steps: the steps, and the plans of the batches of each.
      num_batches: how many batches there are in all.
      packed: the rows, of each table, once `pack` has been called.
    """

    packed: list[PackedRows]

    def __init__(self, disk: DiskRows):
        self._disk, self.steps, self.num_batches = disk, list[tuple[Stored, Stored]](), 0
        self._missing: list[list[np.ndarray]] = []

    def add(self, step: Stored, plans: list[list[Taken]], spool: Spool) -> None:
        """Adds a step, with the plan of each of its batches."""
        self._missing += [[taken.missing.copy() for taken in plan] for plan in plans]
        self.steps.append((step, Stored(plans, spool)))
        self.num_batches += len(plans)

    def pack(self) -> Block:
        assert self._disk.scratch is not None
        by_table = zip(self._disk.files, zip(*self._missing, strict=True), strict=True)
        folder = self._disk.scratch
        self.packed = [PackedRows(files, rows, folder, go_on) for files, rows in by_table]
        self._missing.clear()
        self._disk.scratch_bytes += sum(packed.nbytes for packed in self.packed)
        return self


@dataclass
class Plans:
    """The steps of a source, with what `DiskRows` does for each.

    Attributes:
      source: draws the batches.
      rows: has the rows of the batches.
      ahead: whether batches are drawn in a thread of their own.
    """

    source: Source
    rows: DiskRows
    ahead: bool

    def batches_from(self, step: int) -> int:
        """How many batches an epoch has from that step on."""
        (schedule,) = self.source.schedules
        return (len(schedule) - step) * schedule.devices

    def steps(self, epoch: int, first: int) -> Generator[Any]:
        """What the source draws, step by step."""
        with run_ahead(self.source.drawn(epoch, first), self.ahead) as calls:
            yield from each(calls)

    def planned(self, steps: Iterable[Any]) -> Generator[tuple[Any, list[list[Taken]]]]:
        """Each step with the plans of its batches, made with the next steps known."""
        return self._with_next((step, _listed(step)) for step in steps)

    def packed(self, epoch: int, first: int) -> Generator[Block]:
        """As `blocks`, each with its rows. The next one is planned while one is packed."""
        with (
            closing(self.blocks(epoch, first)) as blocks,
            run_ahead(blocks, self.ahead) as made,
        ):
            for block in made:
                yield block.pack()

    def blocks(self, epoch: int, first: int) -> Generator[Block]:
        """Blocks of the steps from that one on, epoch after epoch without end; none has steps
        of two epochs. The first ones are short."""
        assert self.rows.scratch is not None
        size, left, block = _FIRST_BLOCK, self.batches_from(first), Block(self.rows)
        spool = Spool(self.rows.scratch)
        with (
            closing(self._stored(epoch, first, spool)) as steps,
            closing(self._with_next(steps)) as planned,
        ):
            for step, plans in planned:
                go_on()
                block.add(step, plans, spool)
                blocks_left = -(-left // min(size, self.rows.block))
                if block.num_batches >= -(-left // blocks_left):  # all are alike long
                    left -= block.num_batches
                    yield block
                    size, block = _GROWTH * size, Block(self.rows)
                    if not left:
                        size, left = self.rows.block, self.batches_from(0)

    def _stored(
        self, epoch: int, first: int, spool: Spool
    ) -> Generator[tuple[Stored, list[Any]]]:
        """The steps from that one on, epoch after epoch, each with its batches."""
        for number in count(epoch):
            with closing(self.steps(number, first if number == epoch else 0)) as steps:
                for step in steps:
                    yield Stored(step, spool), _listed(step)

    def _with_next(
        self, steps: Iterable[tuple[Any, list[Any]]]
    ) -> Generator[tuple[Any, list[list[Taken]]]]:
        """Of each step what came with its batches, and the plans of these."""
        # A sampler that learns draws a batch when the step before it has been made.
        window = 0 if self.source.learning is not None else self.rows.window
        known, seen, passed = deque[tuple[Any, list[Any]]](), 0, 0
        for step in chain(steps, [None]):
            batches = [] if step is None else step[1]
            rows = [self.rows.rows_of(batch) for batch in batches]
            for own in rows:
                self.rows.see(own, seen)
                seen += 1
            if step is not None:
                known.append((step[0], rows))
            most = passed + window + 1
            while known and (step is None or seen + len(rows) > most):
                earlier, rows_of_it = known.popleft()
                plans = [self.rows.plan(r, passed + i) for i, r in enumerate(rows_of_it)]
                passed += len(plans)
                most += len(plans)
                yield earlier, plans


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
        # A thread has its own reference to what plans, and none to this object, so that this
        # can be collected as garbage, and stops the thread.
        self._plans = Plans(source, rows, ahead)
        self._blocks: Ahead | None = None  # of the epoch that follows one that has ended
        self._blocks_of = -1

    @property
    def counts(self) -> dict[str, int]:
        return self.source.counts | self._disk.counts

    def close(self) -> None:
        blocks, self._blocks = self._blocks, None
        if blocks is not None:
            blocks.end()
        super().close()

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        left = self._plans.batches_from(first)
        packs = self._disk.scratch is not None and self.source.learning is None and left > 0
        blocks = None
        if (first, epoch) == (0, self._blocks_of):
            blocks, self._blocks = self._blocks, None
        self.close()
        goes_on = self._disk.begin(blocks)
        try:
            if packs and self._ahead and not goes_on:
                blocks = Ahead(self._plans.packed(epoch, first), 1)
            made = self._packed(epoch, first, blocks) if packs else self._in_place(epoch, first)
            with closing(made) as steps:
                for step, plans, packed, number in steps:
                    began = time.perf_counter()
                    batches = _listed(step)
                    left -= len(batches)
                    numbered = enumerate(zip(batches, plans, strict=True), number)
                    own = [
                        (b, self._disk.make(b, plan, packed, i)) for i, (b, plan) in numbered
                    ]
                    self._seconds += time.perf_counter() - began
                    if blocks is not None and not left:  # they go on with the next epoch
                        self._blocks, self._blocks_of, blocks = blocks, epoch + 1, None
                    yield [own if isinstance(step, list) else own[0]]
        finally:
            if blocks is not None:
                blocks.end()
            self._disk.end(self._blocks)

    def _in_place(self, epoch: int, first: int) -> Generator[Planned]:
        with (
            closing(self._plans.steps(epoch, first)) as steps,
            closing(self._plans.planned(steps)) as planned,
        ):
            for step, plans in planned:
                yield step, plans, (), 0

    def _packed(
        self, epoch: int, first: int, blocks: Iterator[Block] | None
    ) -> Generator[Planned]:
        """As `_in_place`, of rows that were packed in `blocks`, or are packed now."""
        left = self._plans.batches_from(first)
        with closing(self._plans.packed(epoch, first)) as own:
            while left:
                block, number = next(own if blocks is None else blocks), 0
                for step, stored in block.steps:
                    plans = stored.load()
                    yield step.load(), plans, block.packed, number
                    number += len(plans)
                left -= number


def _listed(step: Any) -> list[Any]:
    return step if isinstance(step, list) else [step]


def _is_long(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return True
    if not isinstance(leaf, jax.Array) or jax.dtypes.issubdtype(
        leaf.dtype, jax.dtypes.extended
    ):
        return False
    return leaf.nbytes >= 4096 and leaf.dtype.itemsize <= 4
