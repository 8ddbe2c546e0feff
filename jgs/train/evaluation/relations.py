"""Relation layers in exact evaluation: a state for each target and relation of a chunk.

A chunk of `C` targets has `C * R` runs, in order of the targets and then of the relations. The
edges of a piece are in the same order, so a piece is a block with a row for each run. The runs
are put in order of their relations, as layers take them, when all pieces are added up.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.ops.relations import TILE, Slots, dense_slots


def rows_by_relation(
    row_starts: np.ndarray, relations: np.ndarray, num_relations: int
) -> np.ndarray:
    """int32 `[C * R + 1]`: where the edges of each run begin, of a piece's rows `[C + 1]` and
    of its edges' relations, which ascend in each row."""
    num_rows = len(row_starts) - 1
    target = np.repeat(np.arange(num_rows), np.diff(row_starts))
    counts = np.bincount(target * num_relations + relations, minlength=num_rows * num_relations)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)


def kinds_of(conv: Any, kind: jax.Array) -> dict[str, jax.Array]:
    """The keyword argument `kind` for a layer that reads types; `{}` for any other."""
    return {"kind": kind} if conv.uses_types else {}


@partial(jax.jit, static_argnames="definition")
def queries(definition: Any, params: Any, x: jax.Array, kind: jax.Array) -> jax.Array:
    """float32 `[C * R, Q]`: the queries of the runs of the targets with the rows `x`, of the
    types `kind`. `definition` and `params` are the layer's."""
    conv = nnx.merge(definition, params)
    slots = dense_slots(x.shape[0], conv.num_relations)
    query = conv.query(x, slots, **kinds_of(conv, kind))
    by_relation = query.reshape(conv.num_relations, -1, query.shape[1])[:, : x.shape[0]]
    return by_relation.swapaxes(0, 1).reshape(-1, query.shape[1])


def finished(
    conv: Any, num_targets: int, top: jax.Array, weight: jax.Array, total: jax.Array
) -> jax.Array:
    """float32 `[C * R, H * D]`: the weighted sums of the runs' values. `top` and `weight`
    `[C * R, H]` and `total` are those of `jgs.train.evaluation.layer.Attended`."""
    num_heads = top.shape[1]
    shape = (num_targets, conv.num_relations, num_heads)
    top, weight = top.reshape(shape), weight.reshape(shape)
    total = total.reshape(*shape, -1)
    if conv.softmax_over == "target":
        highest = jnp.max(top, axis=1, keepdims=True)
        highest = jnp.where(jnp.isfinite(highest), highest, 0)
        factor = jnp.exp(top - highest)  # 0 for runs without edges
        total = total * factor[..., None]
        weight = jnp.sum(weight * factor, axis=1, keepdims=True)
    total = total / jnp.where(weight > 0, weight, 1)[..., None]
    return total.reshape(num_targets * conv.num_relations, -1)


def by_slots(rows: jax.Array, num_targets: int, num_relations: int) -> tuple[Slots, jax.Array]:
    """The slots of all runs, and their rows `[K, M]`, from rows `[C * R, M]`."""
    slots = dense_slots(num_targets, num_relations)
    rows = rows.reshape(num_targets, num_relations, -1).swapaxes(0, 1)
    more = -num_targets % TILE
    rows = jnp.pad(rows, ((0, 0), (0, more), (0, 0)))
    return slots, rows.reshape(slots.target.shape[0], -1)
