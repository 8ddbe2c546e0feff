"""`gather`: feature rows of nodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import MiniBatch
from jgs.graph.row_tables.dense import rows_as_stored
from jgs.ops.checks import check_features, check_ids, check_num_nodes, threads_for


def gather(features: Any, ids: Any) -> Any:
    """Dense feature rows of the nodes `ids`.

    Args:
      features: `[N, F]`, a JAX array of any real dtype, `SparseFeatures` or
        `QuantizedFeatures`; or a tuple of arrays `[N_i, F]`, which are read as if they were
        concatenated to `[N, F]`, without a copy. Pass features to a jitted function as an
        argument, never as a constant in it. Of `TypedFeatures` the result is `TypedRows`: rows
        of different widths are not joined.
      ids: int32 (or int64) `[K]`. Ids outside `[0, N)` are padding. Or a `jgs.MiniBatch`,
        whose `nodes` are read: then `N` must be its `num_nodes`.

    Returns:
      float32 `[K, F]`, with rows of zeros for padding. Differentiable in dense `features` and
      in the `values` of sparse ones.

    Raises `InputError` for other types and ranks.
    """
    table = check_features(features, typed=True)
    if isinstance(ids, MiniBatch):
        check_num_nodes(table.shape[0], ids.num_nodes)
        ids = ids.nodes
    ids = check_ids(ids, table.shape[0])
    return table.gather(ids, threads_for(ids.shape[0], table))


def rows_apart(features: Any, ids: jax.Array) -> Any:
    """Features with the rows `ids`, int32 `[K]`, of `features`, which are of any form that
    `gather` takes, but not by node type. Rows are kept as they are stored, but those by entries
    become float32. What rows of padding say is not defined."""
    table = check_features(features)
    kinds = set() if table.by_entries else {jnp.dtype(rows.dtype) for rows in table.rows}
    if len(kinds) != 1 or jnp.dtype(jnp.float32) in kinds:  # which the kernel copies faster
        return gather(features, ids)
    return table.with_rows(rows_as_stored(table.rows, ids))
