"""Layers with a weight on every edge's message; explanations are derivatives by the weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Block
from jgs.models.dense import zero_unless
from jgs.models.edges import on_edges, read_edges


def masked_layer(
    layer: Any,
    mask: jax.Array,
    block: Block,
    x: jax.Array,
    real: jax.Array | None = None,
    degree: jax.Array | None = None,
    relu: bool = False,
) -> jax.Array:
    """The output `[T, out]` of `layer(block, x, real)`, to rounding, with the message of edge
    `e` multiplied by `mask[e]`. In a layer with attention the edge's value is multiplied, after
    the softmax. A mask of 1 changes nothing. An edge with a mask of 0 contributes nothing and
    is still counted in a mean.

    Args:
      layer: a layer that keeps the contract `jgs.models.Layer`.
      mask: float32 `[E]`, without meaning in padding. The result is differentiable in it.
      block, x, real, degree, relu: as the layer's call takes them, with a matrix `x`.

    This is plain JAX and stores a message for each edge. It is for neighbourhoods, not for
    training.
    """
    targets = block.target_capacity
    edges = jnp.arange(block.edge_capacity, dtype=jnp.int32)
    # Each edge's target; the number of targets in padding.
    target = jnp.searchsorted(block.indptr[1:], edges, side="right")
    mask = jnp.where(target < targets, mask, 0)
    of_degree = {"degree": degree} if layer.uses_degrees else {}
    x = zero_unless(real, x)
    message = layer.message(x, block.num_sources, **of_degree)
    if layer.reduce == "attention":
        rows = jnp.take(message, block.indices, axis=0, mode="fill", fill_value=0)
        edge = [read_edges(layer, block)] if layer.edge_columns else []
        aggregated = _attended(layer, x[:targets], message, rows, edge, mask, target)
    else:
        reduced_block, rows = on_edges(layer, block, message)
        rows = jnp.take(rows, reduced_block.indices, axis=0, mode="fill", fill_value=0)
        aggregated = _reduced(
            layer.reduce, rows * mask[:, None], target, jnp.diff(block.indptr)
        )
    return layer.update(x, aggregated, block.num_targets, **of_degree, relu=relu)


def _reduced(reduce: str, rows: jax.Array, target: jax.Array, count: jax.Array) -> jax.Array:
    if reduce == "max":
        top = jax.ops.segment_max(rows, target, count.shape[0])
        return jnp.where(count[:, None] > 0, top, 0)
    total = jax.ops.segment_sum(rows, target, count.shape[0])
    count = jnp.maximum(count, 1).astype(total.dtype)
    return total / count[:, None] if reduce == "mean" else total


def _attended(
    layer: Any,
    own: jax.Array,
    message: jax.Array,
    rows: jax.Array,
    edge: list[dict[str, jax.Array]],
    mask: jax.Array,
    target: jax.Array,
) -> jax.Array:
    num, heads = own.shape[0], layer.num_heads
    query = layer.query(own)
    asked = jnp.take(query, target, axis=0, mode="fill", fill_value=0)
    scores = layer.scores(rows, asked, *edge)
    top = jax.ops.segment_max(scores, target, num)
    if layer.self_loops:
        own_scores = layer.scores(message[:num], query)
        top = jnp.maximum(top, own_scores)
    top = jax.lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    far = jnp.take(top, target, axis=0, mode="fill", fill_value=jnp.inf)
    weight = jnp.exp(scores - far)  # 0 in padding
    total = jax.ops.segment_sum(weight, target, num)

    def each_unit(weight: jax.Array, values: jax.Array) -> jax.Array:
        return jnp.repeat(weight, values.shape[1] // heads, axis=1) * values

    values = each_unit(weight * mask[:, None], layer.values(rows))
    aggregated = jax.ops.segment_sum(values, target, num)
    if layer.self_loops:
        own_weight = jnp.exp(own_scores - top)
        total = total + own_weight
        aggregated += each_unit(own_weight, layer.values(message[:num]))
    return each_unit(1 / jnp.where(total > 0, total, 1), aggregated)
