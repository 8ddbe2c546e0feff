"""Inputs of a model's first layer that need no matrix of all input rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.ops import gather, gather_aggregate


class Inputs(NamedTuple):
    """The first layer's input, in place of the rows `x` of all input nodes.

    Fields, each `[T, F]`, a row for every target of the batch's first block and 0 in padding:
      own: the target's own features.
      aggregated: the reduction of its sampled neighbours' features.
    """

    own: jax.Array
    aggregated: jax.Array


class Placed(NamedTuple):
    """Where the rows of a batch's input nodes lie, in place of a matrix `x` of these rows.

    Fields:
      tables: tuple of matrices `[N_i, F]`, numbered as one table: the rows of the first, then
        those of the second and so on. On a rank they are its own rows, its cache, and the rows
        that other ranks sent. Or a `RowTable` of such matrices; or `SparseFeatures` of the
        nodes, in order.
      place: int32 `[S]`, for each of `batch.nodes` its row in the tables; -1 in padding.
    """

    tables: tuple[jax.Array, ...] | RowTable
    place: jax.Array

    def rows(self) -> jax.Array:
        """The matrix `x`, float32 `[S, F]`."""
        return gather(self.tables, self.place)

    def inputs(self, batch: MiniBatch, reduce: str) -> Inputs:
        """The `Inputs` of `batch`, to whose nodes these rows belong, without the matrix `x`.
        `reduce` is the first layer's."""
        block = batch.block(0)
        own = gather(self.tables, self.place[: block.target_capacity])
        if (table := as_table(self.tables)).by_entries:
            every = replace(block, num_sources=jnp.int32(table.shape[0]))
            return Inputs(own, gather_aggregate(table, every, reduce))
        return Inputs(own, gather_aggregate(self.tables, block, reduce, self.place))


def read_inputs(
    features: jax.Array | RowTable, batch: MiniBatch, reduce: str = "mean"
) -> Inputs:
    """The `Inputs` of a batch sampled with `relabel_inputs=False`.

    The rows of the sampled neighbours are reduced while they are read, and never stored. (A
    batch has about three times as many input nodes as targets in its first block.)

    Args:
      features: `[N, F]`, as for `jgs.ops.gather_aggregate`.
      batch: from `sample_neighbors` or `Loader` with `relabel_inputs=False`.
      reduce: the first layer's `reduce`.

    Raises `InputError` for other features or batches.
    """
    block = batch.blocks[0]
    if batch.nodes.shape[0] != block.target_capacity:
        raise InputError(
            "read_inputs takes a batch whose first block names its neighbours by node id",
            f"{batch.nodes.shape[0]} nodes for {block.target_capacity} targets",
            "Sample with relabel_inputs=False, or use jgs.ops.gather(features, batch.nodes).",
        )
    return Inputs(gather(features, batch.nodes), gather_aggregate(features, block, reduce))
