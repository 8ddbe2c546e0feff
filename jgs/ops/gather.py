"""`gather`: feature rows of nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import MiniBatch
from jgs.graph.features import SparseFeatures
from jgs.graph.typed_features import TypedFeatures
from jgs.kernels.call import FILL, call, floats, kernel_or_plain, vary_alike
from jgs.ops.checks import (
    check_features,
    check_ids,
    check_num_nodes,
    check_tables,
    threads_for,
)
from jgs.settings import exact_integers


def gather(features: Any, ids: Any) -> Any:
    """Dense feature rows of the nodes `ids`.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, or `SparseFeatures`; or a tuple of
        arrays `[N_i, F]`, which are read as if they were concatenated to `[N, F]`, without a
        copy. Pass features to a jitted function as an argument, never as a constant in it. Of
        `TypedFeatures` the result is `TypedRows`: rows of different widths are not joined.
      ids: int32 (or int64) `[K]`. Ids outside `[0, N)` are padding. Or a `jgs.MiniBatch`,
        whose `nodes` are read: then `N` must be its `num_nodes`.

    Returns:
      float32 `[K, F]`, with rows of zeros for padding. Differentiable in dense `features` and
      in the `values` of sparse ones.

    Raises `InputError` for other types and ranks.
    """
    if isinstance(ids, MiniBatch):
        check_num_nodes(features, ids.num_nodes)
        ids = ids.nodes
    if isinstance(features, TypedFeatures):
        return features.rows(check_ids(ids, features.num_nodes))
    if isinstance(features, tuple):
        check_tables(features)
        ids = check_ids(ids, sum(table.shape[0] for table in features))
    else:
        check_features(features)
        ids = check_ids(ids, features.shape[0])
    tables = filled_tables(features)
    return _gather(features, ids, threads_for(ids.shape[0], *tables))


def filled_tables(features: Any) -> tuple[Any, ...]:
    """Those of the tables `features`, or of the one matrix, that have rows; all if none has."""
    tables = features if isinstance(features, tuple) else (features,)
    return tuple(table for table in tables if table.shape[0] > 0) or tables


@partial(jax.jit, static_argnums=2)
def _gather(features, ids, num_threads):
    def kernel(features, ids):
        if isinstance(features, SparseFeatures):
            out = floats((ids.shape[0], features.shape[1]))
            arrays = (features.indptr, features.indices, features.values, ids)
            return call("jgs_gather_sparse", out, arrays, num_threads)
        tables = filled_tables(features)
        out = floats((ids.shape[0], tables[0].shape[1]))
        return call("jgs_gather", out, (ids, *tables), num_threads)

    return kernel_or_plain(num_threads, kernel, gather_plain, *vary_alike(features, ids))


def gather_plain(features, ids):
    """The plain form of `gather`."""
    if isinstance(features, SparseFeatures):
        return _gather_sparse_plain(features, ids)
    if isinstance(features, tuple):
        first = np.cumsum([0, *(table.shape[0] for table in features)]).tolist()
        rows = [
            gather_plain(table, jnp.where(ids >= begin, ids - begin, -1))
            for table, begin in zip(features, first, strict=False)
        ]
        return sum(rows[1:], start=rows[0])  # at most one of the terms is not 0 in each row
    if features.shape[0] == 0:
        return jnp.zeros((ids.shape[0], features.shape[1]), jnp.float32)
    return features.at[ids].get(**FILL).astype(jnp.float32)


def _gather_sparse_plain(features, ids):
    num_rows, num_features = features.shape
    out = jnp.zeros((ids.shape[0], num_features), jnp.float32)
    if features.max_row == 0 or num_rows == 0:
        return out
    with exact_integers():  # entries are counted in 64 bits
        real = (ids >= 0) & (ids < num_rows)
        safe = jnp.where(real, ids, 0)
        start = features.indptr[safe]
        stop = jnp.where(real, features.indptr[safe + 1], start)
        entry = start[:, None] + jnp.arange(features.max_row, dtype=jnp.int64)
        entry = jnp.where(entry < stop[:, None], entry, features.values.shape[0])
        column = features.indices.at[entry].get(mode="fill", fill_value=num_features)
        value = features.values.at[entry].get(mode="fill", fill_value=0)
        slot = jnp.arange(ids.shape[0], dtype=jnp.int32)[:, None]
        return out.at[slot, column].add(value, mode="drop")
