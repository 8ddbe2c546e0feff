"""`DiskRows`: features on disk, of which the rows that the next steps need are in memory.

A sample is a function of its key, so the next batches can be drawn before their rows are read.
It is then known what each row is needed for next, and those that are needed first stay. This is
Belady's rule, without traces of earlier epochs (Ginex, VLDB 2022) or a choice of hot rows.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError, refusing
from jgs.files.row_file import THREADS, PackedRows
from jgs.graph import MiniBatch, Schema, TypedRows, as_device
from jgs.ops import gather
from jgs.ops.checks import check_num_nodes
from jgs.sampling.checks import distinct_ids, require_int
from jgs.sampling.loading.disk_table import MOST_STEPS, REMEDY, Taken, rows_on_disk
from jgs.sampling.loading.sending import Ahead, RowsTogether

WINDOW = 31  # reads within 3 % of the fewest on RMAT graphs: python -m benchmarks.disk
BLOCK = 256


class DiskRows:
    """Features on disk for a `Loader`, which has the rows of its batches read ahead.

    `Loader(..., read=DiskRows("features.npy", memory=1 << 30))` yields pairs of a batch and the
    rows of its nodes, float32 `[S, F]` with zeros in padding: the bits of `jgs.ops.gather`. The
    next `window` batches are drawn first. The rows that a batch lacks are read past the page
    cache, in order of their place in the file, and stay while known batches need them sooner
    than others (Belady, IBM Systems Journal 1966). What is in memory changes no result.

    With a `scratch` folder the rows that the batches of a `block` lack are read in one pass
    over the file, and written to a scratch file, batch by batch, where they are read in turn.
    Each is then read twice and written once, in order, which many disks do faster. The drawn
    batches of a block wait in that folder too.

    Args:
      features: the path of a `.npy` file `[N, F]`; several paths, the parts of one table in
        order; or a matrix that is a memory map of a file, like the features of a saved
        `Dataset`; or a tuple of such, numbered as one; or `SparseFeatures` of which `indices`
        and `values` are such maps; or `TypedFeatures` of these, for which the loader yields
        `TypedRows`.
      memory: bytes of the rows that stay in memory. Beside them there are 8 bytes for each of
        the `N` rows, 12 bytes for each that stays, the rows that one step lacks, and the
        batches of the window; or, where there is a `scratch`, their nodes, 128 MiB, and 26
        bytes for each row that a block lacks.
      scratch: an existing folder on a disk, which then has the batches and the missing rows of
        two blocks, in files without names. While an epoch's last block is in use, the first one
        of the next epoch is packed; closing the loader ends that. None: each batch's rows are
        read from `features`, as always for samplers that learn.
      block: how many batches a block has, from 1 to 4096. A loop's first one has fewer.
      window: how many batches are known ahead, from 0 to 31.
      pinned: int `[K]`, distinct nodes whose rows stay in memory for ever.
      then: a jittable function of tables, places and the batch, called in place of
        `gather(tables, places)`. Its result is what the loader yields beside the batch. Not for
        `TypedFeatures`. Of sparse features the tables are `SparseFeatures` `[S, F]` of the
        batch's nodes in order.
      dtype: of the numbers in `.npy` files for which NumPy has no name: `jax.numpy.bfloat16`.
      scale: number or float32 `[F]` by which the rows are multiplied, as int8 features need.
      threads: how many requests are under way at once.

    Sparse features are read in blocks of 32 entries of `indices` and as many of `values`. These
    are then the rows that stay, are lacked and are counted, and `indptr` is in memory.

    Attributes:
      shape: `(N, F)`; of `TypedFeatures` with the sum of the widths.
      capacity: how many rows may stay in memory.
      direct: whether files are read past the page cache.
      nbytes: the memory in use, without batches.
      counts: the `disk_rows` that batches lacked so far, the `disk_requests` by which they were
        read from `features`, their `disk_bytes`, and the `scratch_bytes` of rows written.

    One loop at a time may use it. Raises `InputError`; in the loop too, where a file can no
    longer be read.
    """

    def __init__(
        self,
        features: Any,
        memory: int,
        *,
        scratch: str | os.PathLike | None = None,
        block: int = BLOCK,
        window: int = WINDOW,
        pinned: Any = (),
        then: Callable[[Any, Any, MiniBatch], Any] | None = None,
        dtype: Any = None,
        scale: Any = None,
        threads: int = THREADS,
    ):
        memory, threads = require_int("memory", memory, 0), require_int("threads", threads, 1)
        self.window = require_int("window", window, 0)
        if self.window > MOST_STEPS:
            raise InputError(f"window must be at most {MOST_STEPS}", window, "Lower it.")
        self.block = require_int("block", block, 1)
        if self.block > 4096:
            raise InputError("block must be at most 4096", block, "Lower it.")
        self.scratch = None if scratch is None else Path(scratch).absolute()
        if self.scratch is not None and not self.scratch.is_dir():
            raise InputError("scratch must be a folder", scratch, "Make it, or name another.")
        self.scratch_bytes = self._planned = self._made = 0
        self._schema: Schema | None = getattr(features, "schema", None)
        if self._schema is not None and (then is not None or scale is not None):
            raise InputError(
                "then and scale must be for one table", "TypedFeatures", "Leave them out."
            )
        tables = [features] if self._schema is None else features.by_type.values()
        self._tables = [None if t is None else rows_on_disk(t, dtype, threads) for t in tables]
        there = [each for each in self._tables if each is not None]
        if not there:
            raise InputError("features that are read from disk must be files", "none", REMEDY)
        num_rows = there[0].shape[0] if self._schema is None else self._schema.num_nodes
        self.shape = num_rows, sum(each.shape[1] for each in there)
        own = self._of_tables(distinct_ids("pinned nodes", pinned, num_rows))
        size = max(sum(each.nbytes for each in there), 1)
        for each, rows in zip(self._tables, own, strict=True):
            if each is not None:
                each.open(memory * each.nbytes // size, rows[rows >= 0])
        self._there = [table for each in there for table in each.tables]
        self.files = [table.files for table in self._there]
        self.direct = all(each.direct for each in self.files)
        self._then = jax.jit(then or _scaled(scale, self.shape[1]))
        self._together, self._in_use = RowsTogether(), False
        self._planning: Callable[[], Ahead | None] = _nothing

    @property
    def capacity(self) -> int:
        return sum(table.capacity for table in self._there)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._there)

    @property
    def counts(self) -> dict[str, int]:
        return {
            "disk_rows": sum(table.rows_read for table in self._there),
            "disk_requests": sum(table.files.requests for table in self._there),
            "disk_bytes": sum(table.files.bytes for table in self._there),
            "scratch_bytes": self.scratch_bytes,
        }

    def begin(self, planning: Ahead | None = None) -> bool:
        """Begins a loop, which `end` ends. Returns whether it goes on with what `planning` has
        planned since the last one ended. If not, no batch is known any more. Rows stay in
        memory then, unless a batch was planned whose rows were never read."""
        if self._in_use:
            raise InputError(
                "DiskRows must be used by one loop at a time",
                "another loop under way",
                "Close its loader first, or make DiskRows for each.",
            )
        self._in_use = True
        earlier, self._planning = self._planning(), _nothing
        if earlier is not None and earlier is planning:
            return True
        if earlier is not None:
            earlier.end()
        for table in self._there:
            if self._planned == self._made:
                table.reset()
            else:
                table.forget()
        self._planned = self._made = 0
        return False

    def end(self, planning: Ahead | None = None) -> None:
        """Ends the loop that began. `planning` goes on with plans for the next one."""
        self._in_use = False
        self._planning = _nothing if planning is None else weakref.ref(planning)

    def rows_of(self, batch: MiniBatch) -> list[np.ndarray]:
        """For each of `files` int32 `[n]`, the rows that the batch reads, -1 for none."""
        self._check(batch)
        every = zip(self._tables, self._of_tables(batch.nodes), strict=True)
        return [rows for one, ids in every if one is not None for rows in one.rows_of(ids)]

    def see(self, rows: Sequence[np.ndarray], number: int) -> None:
        """Makes known a batch, used after all that are, by its `rows_of`."""
        for table, own in zip(self._there, rows, strict=True):
            table.see(own, number)

    def plan(self, rows: Sequence[np.ndarray], number: int) -> list[Taken]:
        """Passes over the first known batch, whose rows these are: what each table does."""
        self._planned += 1
        return [t.take(own, number) for t, own in zip(self._there, rows, strict=True)]

    def make(
        self,
        batch: MiniBatch,
        plan: list[Taken],
        packed: Sequence[PackedRows] = (),
        number: int = 0,
    ) -> Any:
        """What goes with the batch, of which `plan` was made, the next one in order. Its rows
        are read as those of the step `number` of `packed`, by file, or where they lie."""
        fetched = []
        for i, (table, taken) in enumerate(zip(self._there, plan, strict=True)):
            if packed:
                fetched.append(table.fetched(taken, partial(packed[i].read, number)))
            else:
                fetched.append(table.fetched(taken, partial(table.files.read, taken.missing)))
        every, first = list[Any](), 0
        for each, ids in zip(self._tables, self._of_tables(batch.nodes), strict=True):
            own = slice(first, first + (0 if each is None else len(each.tables)))
            every.append(None if each is None else each.found(ids, fetched[own], plan[own]))
            first = own.stop
        if self._schema is None:
            ((rows, places),) = every
            made = self._then(rows, as_device(places), batch)
        else:
            made = self._together(self._typed_rows(batch, every))
        made = jax.block_until_ready(made)
        for table, taken in zip(self._there, plan, strict=True):
            table.keep(taken)
        self._made += 1
        return made

    def _typed_rows(self, batch: MiniBatch, every: Sequence[Any]) -> TypedRows:
        assert self._schema is not None
        kind, place = self._schema.type_and_place(batch.nodes)
        places = np.array(place)
        for number, found in enumerate(every):
            if found is not None:
                mine = np.asarray(kind) == number
                places[mine] = found[1][mine]
        tables = tuple(None if found is None else found[0] for found in every)
        return TypedRows(tables, kind, as_device(places))

    def _of_tables(self, nodes: Any) -> list[np.ndarray]:
        """For each table int32 `[S]`, the row of each of `nodes`, -1 for none."""
        if self._schema is None:
            return [np.asarray(nodes, np.int32)]
        kind, place = map(np.asarray, self._schema.type_and_place(nodes))
        return [np.where(kind == i, place, np.int32(-1)) for i in range(len(self._tables))]

    def _check(self, batch: MiniBatch) -> None:
        if not isinstance(batch, MiniBatch):
            raise InputError(
                "what rows are read for must be a MiniBatch",
                f"a {type(batch).__name__} of `after`",
                "Read rows by a function of yours, or leave `after` out.",
            )
        check_num_nodes(self.shape[0], batch.num_nodes)
        if batch.direct_inputs:
            raise InputError(
                "features on disk must be read for batches that list their input nodes",
                "relabel_inputs=False",
                "Leave it out.",
            )


def _nothing() -> None:
    """A reference to nothing."""


def _scaled(scale: Any, width: int) -> Callable[[Any, Any, MiniBatch], jax.Array]:
    if scale is None:
        return lambda tables, place, batch: gather(tables, place)
    with refusing(
        (TypeError, ValueError), "scale must be a number, or one a column", "Mend it."
    ):
        factor = jnp.asarray(np.asarray(scale, np.float32))
    form = "[] or [F], a number or one for each column"
    remedy = "Give the missing ones, or remove those too many."
    require_array("scale", factor, form, remedy, F=width)
    return lambda tables, place, batch: gather(tables, place) * factor
