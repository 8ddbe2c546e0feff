"""Node features for samplers that learn from them: read from the graph, and projected."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import require_array
from jgs.graph import Graph, SparseFeatures
from jgs.graph.row_tables.table import as_table
from jgs.kernels.call import call, where_it_is
from jgs.ops import gather
from jgs.sampling.edges.eligible import rows_of
from jgs.settings import exact_integers

FEATURES = "features"  # the name of the node column
# The rows that are projected together, whose sums stay in a core's cache, and the features that
# are added to them in one pass.
_ROWS, _AT_ONCE = 1024, 16


def features_of(graph: Graph | None) -> Any:
    """The node column `features` of `graph`, `[N, F]`. Raises `InputError`."""
    features = None if graph is None else graph.node_columns.get(FEATURES)
    what, form = "the graph's node column features", "[N, F], for this sampler learns from them"
    remedy = "Give it graph.with_node_columns(features=features), of [N, F]."
    require_array(what, features, form, remedy)
    return features


@jax.custom_vjp
def project(features: Any, nodes: jax.Array, weight: jax.Array) -> Any:
    """The `features` `[N, F]`, as `jgs.ops.gather` takes them, of `nodes` int32 `[n]`, times
    `weight` float32 `[F, ...]`: float32 `[n, ...]`, 0 for ids of no nodes. Those after the last
    node are left as they are in memory if `weight` has more axes, for nothing may read them. A
    node's products are exact in 64 bits and added there in the order of its features, so its
    row has the same bits beside any nodes, by the kernel and on every device. Differentiable in
    `weight`."""
    if as_table(features).by_entries:
        shape = nodes.shape[0], *weight.shape[1:]

        def add_entry(j: jax.Array, total: jax.Array) -> jax.Array:
            column, value = _entries(features, nodes, j)
            row = weight.at[column].get(mode="fill", fill_value=0)
            return total + _deep(value.astype(jnp.float64), row) * row

        with exact_integers():
            zero, longest = jnp.zeros(shape, jnp.float64), _longest(features, nodes)
            return jax.lax.fori_loop(0, longest, add_entry, zero).astype(jnp.float32)
    if not isinstance(features, jax.Array | np.ndarray) or features.dtype != jnp.float32:
        return _project(features, nodes, weight)
    return where_it_is(_project_kernel, _project, features, nodes, weight)


def _project_kernel(features: jax.Array, nodes: jax.Array, weight: jax.Array) -> jax.Array:
    shape = nodes.shape[0], *weight.shape[1:]
    out = [jax.ShapeDtypeStruct((shape[0], math.prod(shape[1:])), jnp.float32)]
    operands = features, nodes, weight.reshape(features.shape[1], -1)
    return call("jgs_project", out, operands, kernels.NUM_THREADS)[0].reshape(shape)


def _project(features: Any, nodes: jax.Array, weight: jax.Array) -> jax.Array:
    shape = nodes.shape[0], *weight.shape[1:]
    if 0 in shape:
        return jnp.zeros(shape, jnp.float32)
    size = min(_ROWS, nodes.shape[0])
    padded = jnp.pad(nodes, (0, -nodes.shape[0] % size), constant_values=-1)
    real = (padded >= 0) & (padded < features.shape[0])
    blocks = jnp.arange(padded.shape[0], dtype=jnp.int32) // size + 1
    weight = _in_groups(weight)

    def add_rows(i: jax.Array, total: jax.Array) -> jax.Array:
        own = jax.lax.dynamic_slice_in_dim(padded, i * size, size)
        columns = _in_groups(gather(features, own).T)

        def add_columns(g: jax.Array, part: jax.Array) -> jax.Array:
            for column, row in zip(columns[g], weight[g], strict=True):
                part = part + _deep(column.astype(jnp.float64), part) * row
            return part

        with exact_integers():
            part = jnp.zeros((size, *shape[1:]), jnp.float64)
            part = jax.lax.fori_loop(0, weight.shape[0], add_columns, part)
            known = _deep(jax.lax.dynamic_slice_in_dim(real, i * size, size), part)
            part = jnp.where(known, part, 0).astype(jnp.float32)
        return jax.lax.dynamic_update_slice_in_dim(total, part, i * size, 0)

    total = jnp.zeros((padded.shape[0], *shape[1:]), jnp.float32)
    number = jnp.max(blocks, initial=0, where=real)  # without those of padding at the end
    return jax.lax.fori_loop(0, number, add_rows, total)[: nodes.shape[0]]


def _forward(features: Any, nodes: jax.Array, weight: jax.Array) -> tuple[jax.Array, Any]:
    return project(features, nodes, weight), (features, nodes, weight)


def _backward(saved: Any, derivative: jax.Array) -> tuple[None, None, jax.Array]:
    features, nodes, weight = saved
    if not as_table(features).by_entries:
        return None, None, jnp.tensordot(gather(features, nodes), derivative, (0, 0))

    def add_entry(j: jax.Array, total: jax.Array) -> jax.Array:
        column, value = _entries(features, nodes, j)
        return total.at[column].add(_deep(value, derivative) * derivative, mode="drop")

    zero = jnp.zeros(weight.shape, jnp.float32)
    return None, None, jax.lax.fori_loop(0, _longest(features, nodes), add_entry, zero)


project.defvjp(_forward, _backward)


def _entries(
    features: SparseFeatures, nodes: jax.Array, j: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The `j`-th entry of each node's row: its column, int32 `[n]`, and its value, float32
    `[n]`. Where a row has no such entry they are `F` and 0."""
    with exact_integers():  # entries are counted in 64 bits
        start, length = rows_of(features.indptr, nodes)
        at = jnp.where(j < length, start + j, features.values.shape[0])
        column = features.indices.at[at].get(mode="fill", fill_value=features.num_features)
        return column, features.values.at[at].get(mode="fill", fill_value=0)


def _longest(features: SparseFeatures, nodes: jax.Array) -> jax.Array:
    """int32: the largest number of entries in a row of these nodes."""
    with exact_integers():
        return jnp.max(rows_of(features.indptr, nodes)[1], initial=0).astype(jnp.int32)


def _in_groups(array: jax.Array) -> jax.Array:
    """`[G, 16, ...]`: the rows of `array` and rows of 0."""
    array = jnp.pad(array, ((0, -len(array) % _AT_ONCE), *[(0, 0)] * (array.ndim - 1)))
    return array.reshape(-1, _AT_ONCE, *array.shape[1:])


def _deep(vector: jax.Array, like: jax.Array) -> jax.Array:
    return vector.reshape(-1, *[1] * (like.ndim - 1))
