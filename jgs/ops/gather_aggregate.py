"""`gather_aggregate`: aggregation of feature rows without gathering them first."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.features import SparseFeatures
from jgs.kernels.call import call, floats, kernel_or_plain, or_empty, vary_alike
from jgs.ops import aggregate_plain
from jgs.ops.checks import (
    check_block,
    check_features,
    check_ids,
    check_reduce,
    check_tables,
)
from jgs.ops.gather import gather_plain, num_threads_for, threads_for_tables


def gather_aggregate(
    features: jax.Array | SparseFeatures | tuple[jax.Array, ...],
    block: Block,
    reduce: str = "mean",
    place: Any = None,
) -> jax.Array:
    """For every target of `block`, the reduction of its neighbours' rows of `features`.

    The result equals `aggregate(block, gather(features, rows), reduce)` to rounding, where
    `rows` is `place` or, without it, `jnp.arange(N)`. The gathered matrix is never built, nor
    is that of the batch's distinct input nodes.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, or `SparseFeatures`; with `place` also
        a tuple of matrices, as for `gather`. Pass features to a jitted function as an argument,
        never as a constant in it.
      block: a `jgs.Block` with `T` targets (capacity). Without `place` its `indices` are node
        ids, that is, rows of `features`, and its `num_sources` is `N`. The first block of a
        batch sampled with `relabel_inputs=False` is such a block.
      reduce: as in `aggregate`, with the block's edge weights.
      place: int32 (or int64) `[S]`, the row of `features` of each source of the block. A place
        outside `[0, N)` reads zeros. `indices` are then sources, as in `aggregate`.

    Returns:
      float32 `[T, F]`. Rows without edges, and those from `num_targets` on, are 0. Edges from
      `num_edges` on contribute nothing, whatever they hold.

    The function has derivatives in both modes in dense `features`, in the `values` of sparse
    ones, and in `edge_weight`. The plain form computes them, with a matrix of one row for each
    edge; features that are only read need no derivative. Rows are summed in edge order: on the
    CPU the result does not depend on the number of threads.

    Raises `InputError` for an unknown `reduce`; for features of another type or rank; for a
    block whose arrays have other dtypes or shapes; and, without `place`, for a block with edges
    whose `num_sources` is known and not `N`, because its `indices` are then sources of the
    batch, not nodes.

    Only the kernel checks the values in the arrays, when it runs (dense float32 or sparse, on
    the CPU, `T`, `E`, `N` and `F` not 0): a block that breaks a rule of `jgs.Block`, or that
    has another `num_sources`, is a `jax.errors.JaxRuntimeError` that names the rule. The plain
    form does not check values, and reads zeros for ids outside `[0, N)`.
    """
    check_reduce(reduce)
    counts = check_block(block)
    if block.control is not None:
        raise InputError(
            "a block with control variates must be aggregated by jgs.ops.aggregate",
            "gather_aggregate",
            "Call gather and aggregate.",
        )
    if place is not None:
        return _of_tables(features, block, reduce, place, counts)
    check_features(features)
    assert not isinstance(features, tuple)
    if block.source_capacity not in (None, features.shape[0]):
        _refuse_sources(block.source_capacity, features.shape[0])
    _check_num_sources(features.shape[0], *counts[1:])
    if block.target_capacity == 0 or block.edge_capacity == 0 or features.shape[1] == 0:
        return jnp.zeros((block.target_capacity, features.shape[1]), jnp.float32)
    num_threads = num_threads_for(features, block.target_capacity)
    operands = (features, block.edge_weight, block.indptr, block.indices, *counts)
    return _gather_aggregate(reduce, num_threads, *vary_alike(*operands))


def _of_tables(features, block, reduce, place, counts):
    tables = features if isinstance(features, tuple) else (features,)
    check_tables(tables)
    place = check_ids(place, sum(table.shape[0] for table in tables))
    if block.source_capacity not in (None, place.shape[0]):
        raise InputError(
            "place must have the row of each of the block's sources, padding included",
            f"{place.shape[0]} places for {block.source_capacity} sources",
            "Find the places of batch.nodes.",
        )
    width = tables[0].shape[1]
    if 0 in (block.target_capacity, block.edge_capacity, width, place.shape[0]):
        return jnp.zeros((block.target_capacity, width), jnp.float32)
    num_threads = threads_for_tables(tables, block.target_capacity)
    num_targets, _, num_edges = counts
    operands = (tables, place, block.edge_weight, block.indptr, block.indices)
    return _tables(reduce, num_threads, *vary_alike(*operands, num_targets, num_edges))


def _check_num_sources(num_nodes, num_sources, num_edges):
    unknown = isinstance(num_sources, jax.core.Tracer) or isinstance(num_edges, jax.core.Tracer)
    if not unknown and int(num_edges) > 0 and int(num_sources) != num_nodes:
        _refuse_sources(int(num_sources), num_nodes)


def _refuse_sources(num_sources, num_nodes):
    raise InputError(
        "block.num_sources must be the number of rows of features, block.indices node ids",
        f"{num_sources} for {num_nodes} rows",
        "Sample with relabel_inputs=False, or call gather and aggregate.",
    )


@partial(jax.jit, static_argnums=(0, 1))
def _gather_aggregate(reduce, num_threads, features, weight, indptr, *rest):
    def kernel(features, weight, indptr, *rest):
        out = floats((indptr.shape[0] - 1, features.shape[1]))
        block = (or_empty(weight), indptr, *rest)
        if isinstance(features, SparseFeatures):
            arrays = (features.indptr, features.indices, features.values, *block)
            return call("jgs_gather_aggregate_sparse", out, arrays, num_threads, reduce)
        return call("jgs_gather_aggregate", out, (features, *block), num_threads, reduce)

    operands = (features, weight, indptr, *rest)
    return kernel_or_plain(num_threads, kernel, partial(_plain, reduce), *operands)


def _plain(reduce, features, weight, indptr, indices, num_targets, num_sources, num_edges):
    """Aggregates a matrix with one row for each edge, read by the edge's node id."""
    edge = jnp.arange(indices.shape[0], dtype=jnp.int32)
    rows = gather_plain(features, jnp.where(edge < num_edges, indices, -1))
    return aggregate_plain.forward(reduce, rows, weight, indptr, edge, num_targets, num_edges)[
        0
    ]


@partial(jax.jit, static_argnums=(0, 1))
def _tables(reduce, num_threads, tables, place, weight, indptr, *rest):
    def kernel(tables, place, weight, indptr, *rest):
        out = floats((indptr.shape[0] - 1, tables[0].shape[1]))
        filled = (table for table in tables if table.shape[0] > 0)
        arrays = (place, or_empty(weight), indptr, *rest, *filled)
        return call("jgs_gather_aggregate_tables", out, arrays, num_threads, reduce)

    def plain(tables, place, weight, *block):
        rows = gather_plain(tables, place)
        return aggregate_plain.forward(reduce, rows, weight, *block)[0]

    return kernel_or_plain(num_threads, kernel, plain, tables, place, weight, indptr, *rest)
