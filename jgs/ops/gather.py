"""`gather`: feature rows of nodes; `gather_aggregate`: their aggregation without gathering them
first."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block, MiniBatch
from jgs.graph.row_tables.dense import rows_as_stored
from jgs.graph.row_tables.table import RowTable
from jgs.kernels.call import kernel_or_plain, vary_alike
from jgs.ops.aggregate import forward_plain
from jgs.ops.checks import (
    check_block,
    check_features,
    check_ids,
    check_num_nodes,
    check_reduce,
    edges_or_lost,
    threads_for,
    zeros_or_lost,
)


def gather(features: Any, ids: Any) -> Any:
    """Dense feature rows of the nodes `ids`.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, `SparseFeatures` or
        `QuantizedFeatures`; or a tuple of arrays `[N_i, F]`, which are read as if they were
        concatenated to `[N, F]`, without a copy. Pass features to a jitted function as an
        argument, never as a constant in it. Of `TypedFeatures` the result is `TypedRows`: rows
        of different widths are not joined.
      ids: int32 (or int64) `[K]`. Ids outside `[0, N)` are padding. Or a `jgs.MiniBatch`,
        whose `nodes` are read: then `N` must be its `num_nodes`. `VersionedFeatures` take
        nothing else.

    Returns:
      float32 `[K, F]`, with rows of zeros for padding. Differentiable in dense `features` and
      in the `values` of sparse ones.

    Raises `InputError` for other types and ranks.
    """
    table = check_features(features, typed=True)
    batch = ids if isinstance(ids, MiniBatch) else None
    if batch is not None:
        check_num_nodes(table.shape[0], batch.num_nodes)
        ids = batch.nodes
    ids = check_ids(ids, table.shape[0])
    return table.gather(ids, threads_for(ids.shape[0], table), batch)


def rows_apart(features: Any, ids: jax.Array) -> Any:
    """Features with the rows `ids`, int32 `[K]`, of `features`, which are of any form that
    `gather` takes, but not by node type. Rows are kept as they are stored, but those by entries
    become float32. What rows of padding say is not defined."""
    table = check_features(features)
    kinds = set() if table.by_entries else {jnp.dtype(rows.dtype) for rows in table.rows}
    if len(kinds) != 1 or jnp.dtype(jnp.float32) in kinds:  # which the kernel copies faster
        return gather(features, ids)
    return table.with_rows(rows_as_stored(table.rows, ids))


def gather_aggregate(
    features: jax.Array | RowTable | tuple[jax.Array, ...],
    block: Block,
    reduce: str = "mean",
    place: Any = None,
) -> jax.Array:
    """For every target of `block`, the reduction of its neighbours' rows of `features`.

    The result equals `aggregate(block, gather(features, rows), reduce)` to rounding, where
    `rows` is `place` or, without it, `jnp.arange(N)`. The gathered matrix is never built, nor
    is that of the batch's distinct input nodes.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, `SparseFeatures` or
        `QuantizedFeatures`; with `place` also a tuple of matrices, as for `gather`. Pass
        features to a jitted function as an argument, never as a constant in it.
      block: a `jgs.Block` with `T` targets (capacity). Without `place` its `indices` are node
        ids, that is, rows of `features`, and its `num_sources` is `N`. The first block of a
        batch sampled with `relabel_inputs=False` is such a block.
      reduce: as in `aggregate`, with the block's edge weights.
      place: int32 (or int64) `[S]`, the row of `features` of each source of the block. A place
        outside `[0, N)` reads zeros. `indices` are then sources, as in `aggregate`.

    Returns float32 `[T, F]`, with zeros and NaN as in `aggregate`. Rows are summed in edge
    order.

    The function has derivatives in both modes in dense `features`, in the `values` of sparse
    ones, and in `edge_weight`. The plain form computes them, with a matrix of one row for each
    edge; features that are only read need no derivative.

    Raises `InputError` for arguments and blocks that break these rules and, without `place`,
    for a block with edges whose `num_sources` is known and not `N`, because its `indices` are
    then sources of the batch, not nodes. Only the kernel checks the values in the arrays, as in
    `aggregate`. The plain form reads zeros for ids outside `[0, N)`.
    """
    check_reduce(reduce)
    counts = check_block(block)
    if block.control is not None:
        raise InputError(
            "a block with control variates must be aggregated by jgs.ops.aggregate",
            "gather_aggregate",
            "Call gather and aggregate.",
        )
    table = check_features(features)
    if place is None:
        if isinstance(features, tuple):
            raise InputError(
                "features must be a JAX array or SparseFeatures",
                type(features).__name__,
                "Give the place of each source too.",
            )
        _check_num_sources(block, table.shape[0], *counts[1:])
    else:
        if table.by_entries:
            raise InputError(
                "features in several tables must be JAX arrays",
                type(table).__name__,
                "Join them with scipy.sparse.vstack.",
            )
        place = check_ids(place, table.shape[0])
        if block.source_capacity is not None:
            form = "[S], the row of each of the block's sources, padding included"
            remedy = "Find the places of batch.nodes."
            require_array("place", place, form, remedy, S=block.source_capacity)
    num_rows, width = block.target_capacity, table.shape[1]
    if 0 in (num_rows, block.edge_capacity, width) or (place is not None and place.size == 0):
        return zeros_or_lost(block, (num_rows, width), jnp.float32)
    num_threads = threads_for(num_rows, table)
    counts = (*counts[:2], edges_or_lost(block, counts[2]))
    edges = (block.edge_weight, block.indptr, block.indices, *counts)
    return _gather_aggregate(reduce, num_threads, *vary_alike(table, place, *edges))


def _check_num_sources(block, num_nodes, *counts):
    found = block.source_capacity
    if found in (None, num_nodes):
        if any(isinstance(count, jax.core.Tracer) for count in counts):
            return
        num_sources, num_edges = map(int, counts)
        found = num_sources if num_edges > 0 else num_nodes
    if found != num_nodes:
        raise InputError(
            "block.num_sources must be the number of rows of features, block.indices node ids",
            f"{found} for {num_nodes} rows",
            "Sample with relabel_inputs=False, or call gather and aggregate.",
        )


_EDGES = ("edge_weight", "indptr", "indices", "num_targets", "num_sources", "num_edges")


@partial(jax.jit, static_argnums=(0, 1))
def _gather_aggregate(reduce, num_threads, *operands):
    def kernel(table, place, *edges):
        named = dict(zip(_EDGES, edges, strict=True))
        return table.aggregate_kernel(place, named, reduce, num_threads)

    def plain(table, place, weight, indptr, indices, num_targets, _, num_edges):
        if place is None:  # a matrix with one row for each edge, read by the edge's node id
            edge = jnp.arange(indices.shape[0], dtype=jnp.int32)
            place, indices = jnp.where(edge < num_edges, indices, -1), edge
        rows = table.gather_plain(place)
        return forward_plain(reduce, rows, weight, indptr, indices, num_targets, num_edges)[0]

    return kernel_or_plain(num_threads, kernel, plain, *operands)
