"""`VersionedFeatures`: rows that change with time, and `Versions`, which row holds when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import aligned_zeros
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.batch import Block, MiniBatch
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.foreign import targets_of
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.graph.rows import clipped, count_less, row_offsets, rows_of
from jgs.settings import exact_integers

PARTS = ("", "later.rows", "later.indptr", "later.time", "later.row")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Versions:
    """From which moment on which row of a table is that of a node. `N` nodes, a JAX pytree.

    Fields:
      indptr: int64 `[2, N+1]`; node `v` has the versions `indptr[0, v]:indptr[1, v]`.
      time: int64 `[M]`, the moment of each version, ascending within a node. Of equal moments
        the last one counts. With one entry there is no version.
      row: int32 `[M]`, the row that holds from then on.

    Before its first version node `v` has row `v`.
    """

    indptr: Any
    time: Any
    row: Any

    __reduce__ = reduce_arrays

    @classmethod
    def of(cls, num_nodes: int, nodes: Any = (), time: Any = ()) -> Self:
        """Version `i` is row `num_nodes + i`, which `nodes[i]`, int `[V]`, has from `time[i]`
        on, int `[V]`. Raises `InputError`."""
        nodes = checks.node_ids("nodes", nodes, num_nodes, "Give nodes that there are.")
        time = checks.check_times(time, nodes.size, "time")
        order = np.lexsort((time, nodes))
        bounds = aligned_zeros(2 * (num_nodes + 1), np.int64).reshape(2, -1)
        if nodes.size:  # else no page of them is in memory
            bounds[0] = row_offsets(np.bincount(nodes, minlength=num_nodes))
            bounds[1, :-1] = bounds[0, 1:]
        row = (num_nodes + order).astype(np.int32)
        return cls(*map(as_device, (bounds, np.pad(time[order], (0, 1)), np.pad(row, (0, 1)))))

    @property
    def some(self) -> jax.Array:
        """bool `[]`: whether there may be versions, a constant once shapes are known."""
        return jnp.asarray(self.time.shape[0]) > 1

    def rows(self, nodes: jax.Array, batch: MiniBatch | None) -> jax.Array:
        """int32 `[S]`: the row that each of `nodes`, int32 `[S]`, has by its latest version
        before the cutoff of the batch's node there, or of all in a batch without cutoffs; -1
        for ids of no node. Raises `InputError` without a batch."""
        if batch is None:
            raise _unread("by ids alone")
        return _rows(self, nodes, batch.cutoff)

    def batch(self, batch: MiniBatch, num_rows: int) -> MiniBatch:
        """The batch whose `nodes` are their rows among `num_rows`, the `N` first and those of
        versions: for readers of ids, such as `DiskRows`. Raises `InputError` for types."""
        if batch.schema is not None:
            raise _unread("of ids in a graph with types")
        rows = self.rows(batch.nodes, batch)
        nodes = jnp.where(rows < 0, jnp.int32(num_rows), rows)
        seeds = jnp.where(batch.seeds < batch.num_nodes, batch.seeds, jnp.int32(num_rows))
        return replace(batch, nodes=nodes, seeds=seeds, num_nodes=num_rows)

    def of_edges(self, batch: MiniBatch) -> tuple[Block, jax.Array]:
        """The first block of a batch, which names its sources by node, with a source for every
        edge, and the row of each, int32 `[E]`, at the cutoff of the edge's target."""
        block, cutoff = batch.blocks[0], batch.cutoff
        if cutoff is not None:
            with exact_integers():
                cutoff = clipped(cutoff, targets_of(block)[0])
        edge, num = jnp.arange(block.edge_capacity, dtype=jnp.int32), block.edge_capacity
        apart = replace(block, indices=edge, num_sources=jnp.int32(num), source_capacity=num)
        return apart, _rows(self, block.indices, cutoff)


@jax.jit
def _rows(versions: Versions, nodes: jax.Array, cutoff: jax.Array | None) -> jax.Array:
    def latest() -> jax.Array:
        start, num = rows_of(versions.indptr, nodes)
        if cutoff is not None:
            num = count_less(versions.time, start, num, cutoff)
        later = clipped(versions.row, start + num - 1)
        return jnp.where(num > 0, later, first).astype(jnp.int32)

    with exact_integers():
        first = jnp.where(nodes < versions.indptr.shape[-1] - 1, nodes, jnp.int32(-1))
        return jax.lax.cond(versions.some, latest, lambda: first)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class VersionedFeatures(RowTable):
    """Features `[N, F]` of which rows hold from moments on, a JAX pytree.

    `batch.gather(features)` reads for each of the batch's nodes the row of its cutoff: the
    latest that began *before* it, as edges are seen. A batch without cutoffs sees everything,
    and reads the latest rows. Ids alone have no cutoff, and are refused.

    Fields:
      table: the rows that nodes begin with, followed by those of versions: features of any form
        `[N + V, F]`, or a tuple of them.
      versions: `Versions`, which row a node has when.
    """

    table: Any
    versions: Versions

    __reduce__ = reduce_arrays
    form, names = "versioned", ()

    @property
    def in_kernels(self) -> bool:
        return as_table(self.table).in_kernels

    @property
    def shape(self) -> tuple[int, int]:
        return self.versions.indptr.shape[-1] - 1, as_table(self.table).shape[1]

    @property
    def kind(self) -> str:
        return as_table(self.table).kind

    def check_values(self, what: str) -> None:
        as_table(self.table).check_values(what)

    def gather(
        self, ids: jax.Array, num_threads: int | None, batch: MiniBatch | None = None
    ) -> Any:
        return as_table(self.table).gather(self.versions.rows(ids, batch), num_threads)

    @classmethod
    def of_parts(cls, first: Any, rows: Any = None, *index: Any) -> Self:
        """The features of arrays in the order of `PARTS`: rows `[N, F]` and `[V, F]`, and the
        fields of `Versions`; of the first alone, with no version but room for one."""
        if rows is None:
            rows, index = first[:1], tuple(jax.tree.leaves(Versions.of(len(first))))
        return cls((first, rows), Versions(*index))

    @property
    def parts(self) -> dict[str, Any]:
        """What `of_parts` took, by name."""
        return dict(zip(PARTS, jax.tree.leaves(self), strict=True))

    def arrays(self, *_: Any, **__: Any) -> Any:
        raise _unread("without one")

    rows, numbers, squares, take, joined = property(arrays), arrays, arrays, arrays, arrays


def _unread(how: str) -> InputError:
    return InputError(
        "features whose rows hold from moments on must be read by a batch, whose nodes have "
        "cutoffs",
        f"a read {how}",
        "Call batch.gather(features).",
    )
