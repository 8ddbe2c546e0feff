"""`gather`: feature rows of nodes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax

from jgs.graph import MiniBatch
from jgs.graph.typed_features import TypedFeatures
from jgs.kernels.call import kernel_or_plain, vary_alike
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
    if isinstance(ids, MiniBatch):
        check_num_nodes(features, ids.num_nodes)
        ids = ids.nodes
    if isinstance(features, TypedFeatures):
        return features.rows(check_ids(ids, features.num_nodes))
    table = check_features(features)
    ids = check_ids(ids, table.shape[0])
    return _gather(table, ids, threads_for(ids.shape[0], table))


@partial(jax.jit, static_argnums=2)
def _gather(table, ids, num_threads):
    def kernel(table, ids):
        return table.gather_kernel(ids, num_threads)

    def plain(table, ids):
        return table.gather_plain(ids)

    return kernel_or_plain(num_threads, kernel, plain, *vary_alike(table, ids))
