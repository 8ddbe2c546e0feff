"""A layer's three steps as exact evaluation takes them, jitted: messages of some rows, their
reduction piece by piece, and the update.

What has been reduced so far is, for sums, means and maxima, `[R, M]`; for attention the running
maximum of the scores, with the sum and the weighted sum of what lies below it (Milakov and
Gimelshein 2018; Dao et al., FlashAttention, 2022, section 3.1): so no exponential overflows,
however many pieces a row's edges are in.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.ops
from jgs.errors import InputError
from jgs.graph import Block


class Stage(NamedTuple):
    """What is known of a layer before it is computed.

    Fields:
      reduce: as the layer's.
      projects_first: whether its messages are computed and stored.
      message_width, out_width: of a row, after `activate` the latter.
      edge_floats: that an edge takes while it is reduced, its source's row apart.
    """

    reduce: str
    projects_first: bool
    message_width: int
    out_width: int
    edge_floats: int


class Attended(NamedTuple):
    """Attention so far, of `R` targets.

    Fields:
      query: float32 `[R, Q]`, the layer's.
      top: float32 `[R, H]`, the largest score; -inf without edges.
      weight: float32 `[R, H]`, the sum of exp(score - top).
      total: float32 `[R, H * D]`, the sum of exp(score - top) times the values.
    """

    query: jax.Array
    top: jax.Array
    weight: jax.Array
    total: jax.Array


def stages(model: Any, num_features: int) -> list[Stage]:
    """Of each layer of a `jgs.models.Model`; raises `InputError` where its `reduce` is none."""
    graphdef, params = nnx.split(model)
    found: list[Stage] = []
    width = num_features
    for layer, conv in enumerate(model.layers):
        if conv.reduce not in (*jgs.ops.REDUCTIONS, "attention"):
            raise InputError(
                f"a layer's reduce must be one of {', '.join(jgs.ops.REDUCTIONS)}, attention",
                repr(conv.reduce),
                "Write the layer as the docstring of jgs.models.Layer says.",
            )
        x = jax.ShapeDtypeStruct((1, width), np.float32)

        def shapes(params, x, layer=layer):
            one, count = np.zeros(1, np.int32), np.zeros(1, np.float32)
            rows = message(graphdef, params, x, one, layer)
            state = nothing(rows.shape, model.layers[layer].reduce)
            if state is None:
                state = begin(*nnx.split(nnx.merge(graphdef, params).layers[layer]), x, rows)
            return rows, state, update(graphdef, params, x, state, count, one, one, layer)

        rows, state, out = jax.eval_shape(shapes, params, x)
        floats = 0
        if isinstance(
            state, Attended
        ):  # rows gathered for every edge, and what becomes of them
            floats = rows.shape[1] + sum(a.shape[1] for a in state) + state.total.shape[1]
        width = out.shape[1]
        found.append(Stage(conv.reduce, conv.projects_first, rows.shape[1], width, floats))
    return found


@partial(jax.jit, static_argnames=("graphdef", "layer"))
def message(graphdef: Any, params: Any, x: Any, degree: Any, layer: int) -> jax.Array:
    """`[R, M]` of the rows `x`, whose nodes have the in-degrees `degree`."""
    conv = nnx.merge(graphdef, params).layers[layer]
    return conv.message(x, **_degree(conv, degree))


@partial(jax.jit, static_argnames=("graphdef", "layer"))
def update(
    graphdef: Any,
    params: Any,
    x: Any,
    state: Any,
    count: Any,
    degree: Any,
    ids: Any,
    layer: int,
) -> jax.Array:
    """The layer's output for the targets `ids`: their rows `x`, all that was reduced for them,
    of `count` edges each, and their in-degrees."""
    model = nnx.merge(graphdef, params)
    conv = model.layers[layer]
    aggregated = _finished(state, count, conv.reduce)
    return model.activate(layer, conv.update(x, aggregated, **_degree(conv, degree)), ids, None)


def nothing(shape: tuple[int, ...], reduce: str) -> jax.Array | None:
    """Nothing reduced yet, `[R, M]`; None for attention, which `begin` begins."""
    if reduce == "attention":
        return None
    return jnp.full(shape, -jnp.inf if reduce == "max" else 0, jnp.float32)


@partial(jax.jit, static_argnames="definition")
def begin(definition: Any, params: Any, x: jax.Array, own_message: jax.Array) -> Attended:
    """Attention before the first edge, of targets with the rows `x` and messages of their own:
    with `self_loops` these are attended to already. `definition`, `params`: of the layer."""
    conv = nnx.merge(definition, params)
    query, values = conv.query(x), conv.values(own_message)
    scores = conv.scores(own_message, query)
    if conv.self_loops:
        return Attended(query, scores, jnp.ones_like(scores), values)
    none = jnp.zeros_like(scores)
    return Attended(query, none - jnp.inf, none, jnp.zeros_like(values))


@partial(jax.jit, static_argnames="reduce", donate_argnames="total")
def combine(total: jax.Array, block: Block, x: jax.Array, reduce: str) -> jax.Array:
    """`total` with a piece's edges, whose sources are rows of `x`: as `attend`, of a sum (of
    which a mean is made at the end) or a maximum."""
    if reduce != "max":
        return total + jgs.ops.aggregate(block, x, "sum")
    here = jnp.diff(block.indptr)[:, None] > 0
    return jnp.where(here, jnp.maximum(total, jgs.ops.aggregate(block, x, "max")), total)


@partial(jax.jit, static_argnames="definition", donate_argnames="state")
def attend(
    definition: Any, params: Any, state: Attended, block: Block, table: jax.Array
) -> Attended:
    """`state` with a piece's edges, whose sources' messages are rows of `table`."""
    conv = nnx.merge(definition, params)
    edges = jnp.arange(block.edge_capacity, dtype=jnp.int32)
    target = jnp.searchsorted(block.indptr[1:], edges, side="right")  # R in padding
    rows = jgs.ops.gather(table, block.indices)
    query = state.query.at[target].get(mode="fill", fill_value=0)
    scores = conv.scores(rows, query)
    by_target = Block(block.indptr, edges, block.num_targets, block.num_edges, block.num_edges)

    def reduced(x: jax.Array, reduce: str) -> jax.Array:  # a row for every target, too
        short = max(block.target_capacity - x.shape[0], 0)
        return jgs.ops.aggregate(by_target, jnp.pad(x, ((0, short), (0, 0))), reduce)

    here = jnp.diff(block.indptr)[:, None] > 0
    top = jnp.where(here, jnp.maximum(state.top, reduced(scores, "max")), state.top)
    base = jnp.where(jnp.isfinite(top), top, 0)
    weight = jnp.exp(scores - base.at[target].get(mode="fill", fill_value=jnp.inf))
    shrink = jnp.exp(state.top - base)
    weighted = _each_unit(weight, state.total) * conv.values(rows)
    return Attended(
        state.query,
        top,
        state.weight * shrink + reduced(weight, "sum"),
        state.total * _each_unit(shrink, state.total) + reduced(weighted, "sum"),
    )


def _each_unit(of_head: jax.Array, total: jax.Array) -> jax.Array:
    """`[n, H]` as `[n, H * D]`, the width of `total`."""
    return jnp.repeat(of_head, total.shape[1] // max(of_head.shape[1], 1), axis=1)


def _finished(state: jax.Array | Attended, count: jax.Array, reduce: str) -> jax.Array:
    """What whole rows are reduced to, from their combined pieces; zeros without edges."""
    if isinstance(state, Attended):
        return state.total / _each_unit(
            jnp.where(state.weight > 0, state.weight, 1), state.total
        )
    if reduce == "mean":
        return state / jnp.maximum(count, 1)[:, None]
    return jnp.where(count[:, None] > 0, state, 0)


def _degree(conv: Any, degree: jax.Array) -> dict[str, jax.Array]:
    """The argument of a layer that reads degrees; others may do without one."""
    return {"degree": degree} if conv.uses_degrees else {}
