"""A layer's three steps for exact evaluation, jitted: messages of some rows, their reduction
piece by piece, and the update.

A relation layer has a state for each target and relation of a chunk. So a chunk of `C` targets
has `C * R` runs, in order of the targets and then of the relations, and a piece is a block with
a row for each run. The runs are put in order of their relations, as layers take them, when all
pieces are added up.

The state of a reduction is `[R, M]` for sums, means and maxima. For attention it is the running
maximum of the scores, with the sum and the weighted sum of the exponentials relative to it
(Milakov and Gimelshein 2018; Dao et al., FlashAttention, 2022, section 3.1). So no exponential
overflows, however many pieces hold a row's edges.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.ops
from jgs.errors import InputError
from jgs.graph import Block
from jgs.models.layer import attended, by_each_edge, of_relations, relational, uses_types
from jgs.models.parts import by_edge, on_edges, read_edges
from jgs.ops.relation_runs import TILE, dense_slots


class Stage(NamedTuple):
    """What is known of a layer before it is computed."""

    reduce: str  # the layer's `reduce`, or `run_reduce` of a `RelationLayer`
    edge_columns: tuple[str, ...]  # the layer's
    by_each_edge: bool  # whether the layer makes a message for each edge
    projects_first: bool  # whether its messages are computed and stored
    message_width: int  # of a source's message
    reduced_width: int  # of what is reduced; an `EdgeLayer` makes other rows of messages
    out_width: int  # of the output's rows after `activate`
    edge_floats: int  # that an edge takes meanwhile, without its source's row and its columns
    num_relations: int  # of a `RelationLayer`, which has a row for each target and relation
    row_floats: int  # that the state of a target takes


class Attended(NamedTuple):
    """The state of attention for `R` targets, or runs, after some of their edges: float32."""

    query: jax.Array  # `[R, Q]`, the targets' queries
    top: jax.Array  # `[R, H]`, the largest score; -inf without edges
    weight: jax.Array  # `[R, H]`, the sum of exp(score - top)
    total: jax.Array  # `[R, H * D]`, the sum of exp(score - top) times the values


def stages(model: Any, num_features: int) -> list[Stage]:
    """The `Stage` of each layer of a `jgs.models.Model`. Raises `InputError`."""
    graphdef, params = nnx.split(model)
    found: list[Stage] = []
    width = num_features
    for layer, conv in enumerate(model.layers):
        of_runs = relational(conv)
        reduce = conv.run_reduce if of_runs else conv.reduce
        if reduce not in (*jgs.ops.REDUCTIONS, "attention"):
            raise InputError(
                f"a layer's reduce must be one of {', '.join(jgs.ops.REDUCTIONS)}, attention, "
                "relations",
                repr(reduce),
                "Write the layer as the docstring of jgs.models.Layer says.",
            )
        x = jax.ShapeDtypeStruct((1, width), np.float32)

        relations = conv.num_relations if of_runs else 0
        num = max(relations, 1)

        def shapes(params, x, layer=layer, num=num, reduce=reduce):
            one, count = np.zeros(1, np.int32), np.zeros(num, np.float32)
            rows, conv = message(graphdef, params, x, one, one, layer), model.layers[layer]
            state = nothing((num, _reduced_width(conv, rows.shape[1])), reduce)
            if state is None:
                own = nnx.split(nnx.merge(graphdef, params).layers[layer])
                state = begin(*own, x, rows, one)
            out = update(graphdef, params, x, state, count, one, one, one, layer)
            return rows, state, out

        rows, state, out = jax.eval_shape(shapes, params, x)
        sent, floats, width = rows.shape[1], 0, out.shape[1]
        reduced = _reduced_width(conv, sent)
        # Rows gathered for every edge, and what becomes of them.
        if isinstance(state, Attended):
            floats = sent + sum(a.shape[1] for a in state) + state.total.shape[1]
        elif by_each_edge(conv):
            floats = sent + 2 * reduced
        of_layer = (reduce, conv.edge_columns, by_each_edge(conv), conv.projects_first)
        of_row = num * max(width, sum(a.shape[1] for a in jax.tree.leaves(state)))
        found.append(Stage(*of_layer, sent, reduced, width, floats, relations, of_row))
    return found


def _reduced_width(conv: Any, message_width: int) -> int:
    return conv.message_width if by_each_edge(conv) else message_width


@partial(jax.jit, static_argnames=("graphdef", "layer"))
def message(
    graphdef: Any, params: Any, x: Any, degree: Any, kind: Any, layer: int
) -> jax.Array:
    """The messages `[R, M]` of the rows `x`, of nodes of these in-degrees and types."""
    conv = nnx.merge(graphdef, params).layers[layer]
    return conv.message(x, **_degree(conv, degree), **_kind(conv, kind))


@partial(jax.jit, static_argnames=("graphdef", "layer"))
def update(
    graphdef: Any,
    params: Any,
    x: Any,
    state: Any,
    count: Any,
    degree: Any,
    kind: Any,
    ids: Any,
    layer: int,
) -> jax.Array:
    """The layer's output for the targets `ids`, from their rows `x`, the reduction `state` of
    their `count` edges, the in-degrees `degree` and the types `kind`. A relation layer has a
    state and a number for each run."""
    model = nnx.merge(graphdef, params)
    conv = model.layers[layer]
    if not relational(conv):
        aggregated = _finished(state, count, conv.reduce)
        h = conv.update(x, aggregated, **_degree(conv, degree))
        return model.activate(layer, h, ids, None)
    num = x.shape[0]
    if isinstance(state, Attended):
        reduced = _of_runs(conv, num, *state[1:])
    else:
        reduced = _finished(state, count, conv.run_reduce)
    slots = dense_slots(num, conv.num_relations)
    rows = reduced.reshape(num, conv.num_relations, -1).swapaxes(0, 1)
    rows = jnp.pad(rows, ((0, 0), (0, -num % TILE), (0, 0)))
    reduced = rows.reshape(slots.target.shape[0], -1)
    h = conv.update(x, slots, reduced, **_kind(conv, kind))
    return model.activate(layer, h, ids, None)


@partial(jax.jit, static_argnums=(0, 1))
def _full(shape: tuple[int, ...], value: float) -> jax.Array:
    return jnp.full(shape, value, jnp.float32)


def nothing(shape: tuple[int, ...], reduce: str) -> jax.Array | None:
    """The state `[R, M]` before the first edge; None for attention, where `begin` makes it."""
    if reduce == "attention":
        return None
    return _full(shape, -jnp.inf if reduce == "max" else 0)


@partial(jax.jit, static_argnames="definition")
def begin(
    definition: Any, params: Any, x: jax.Array, own_message: jax.Array, kind: Any
) -> Attended:
    """The state of attention before the first edge, for targets with the rows `x`; in a layer
    with `self_loops` it includes their own messages."""
    conv = nnx.merge(definition, params)
    if relational(conv):
        slots = dense_slots(x.shape[0], conv.num_relations)
        query = conv.query(x, slots, **_kind(conv, kind))
        query = query.reshape(conv.num_relations, -1, query.shape[1])[:, : x.shape[0]]
        query = query.swapaxes(0, 1).reshape(-1, query.shape[2])
        one = conv.edge_message(own_message[:1], np.zeros(1, np.int32))  # for its widths
        num, heads, width = query.shape[0], conv.num_heads, conv.values(one).shape[1]
        none = jnp.zeros((num, heads))
        return Attended(query, none - jnp.inf, none, jnp.zeros((num, width)))
    query, values = conv.query(x), conv.values(own_message)
    scores = conv.scores(own_message, query)
    if conv.self_loops:
        return Attended(query, scores, jnp.ones_like(scores), values)
    none = jnp.zeros_like(scores)
    return Attended(query, none - jnp.inf, none, jnp.zeros_like(values))


@partial(jax.jit, static_argnames="reduce", donate_argnames="total")
def combine(total: jax.Array, block: Block, x: jax.Array, reduce: str) -> jax.Array:
    """The state `total` after a piece's edges. (A mean is a sum that is divided at the end.)"""
    if reduce != "max":
        return total + jgs.ops.aggregate(block, x, "sum")
    here = jnp.diff(block.indptr)[:, None] > 0
    return jnp.where(here, jnp.maximum(total, jgs.ops.aggregate(block, x, "max")), total)


@partial(jax.jit, static_argnames="definition", donate_argnames="total")
def combine_edges(
    definition: Any, params: Any, total: jax.Array, block: Block, table: jax.Array
) -> jax.Array:
    """The same for a layer whose messages read their edges. `table` has their sources' rows."""
    conv = nnx.merge(definition, params)
    reduce = conv.run_reduce if relational(conv) else conv.reduce
    part, rows = on_edges(conv, block, table)
    return combine(total, part.with_edge_arrays({}), rows, reduce)


@partial(jax.jit, static_argnames="definition", donate_argnames="state")
def attend(
    definition: Any, params: Any, state: Attended, block: Block, table: jax.Array
) -> Attended:
    """The state of attention after a piece's edges; `table` has their sources' messages."""
    conv = nnx.merge(definition, params)
    edges = jnp.arange(block.edge_capacity, dtype=jnp.int32)
    target = jnp.searchsorted(block.indptr[1:], edges, side="right")  # R in padding
    rows = jgs.ops.gather(table, block.indices)
    query = state.query.at[target].get(mode="fill", fill_value=0)
    edge = [read_edges(conv, block)] if conv.edge_columns else []
    if relational(conv):
        columns = edge.pop()
        relation = jnp.minimum(columns["type"], conv.num_relations - 1)
        # The type is 1 in padding, if a piece has no edges.
        rows = of_relations(conv, rows, columns | {"type": relation})
        scores, values = conv.scores(rows, query), conv.values(rows)
    else:
        scores, values = attended(conv, rows, query, edge.pop() if edge else None)
    by_target = by_edge(block.with_edge_arrays({}))
    by_target = replace(by_target, source_capacity=block.edge_capacity)

    def reduced(x: jax.Array, reduce: str) -> jax.Array:
        return jgs.ops.aggregate(by_target, x, reduce)

    here = jnp.diff(block.indptr)[:, None] > 0
    top = jnp.where(here, jnp.maximum(state.top, reduced(scores, "max")), state.top)
    base = jnp.where(jnp.isfinite(top), top, 0)
    weight = jnp.exp(scores - base.at[target].get(mode="fill", fill_value=jnp.inf))
    shrink = jnp.exp(state.top - base)
    weighted = _each_unit(weight, state.total) * values
    return Attended(
        state.query,
        top,
        state.weight * shrink + reduced(weight, "sum"),
        state.total * _each_unit(shrink, state.total) + reduced(weighted, "sum"),
    )


def _each_unit(of_head: jax.Array, total: jax.Array) -> jax.Array:
    """`of_head` `[n, H]`, repeated for each unit of a head: `[n, H * D]`, as `total`."""
    return jnp.repeat(of_head, total.shape[1] // max(of_head.shape[1], 1), axis=1)


def _finished(state: jax.Array | Attended, count: jax.Array, reduce: str) -> jax.Array:
    if isinstance(state, Attended):
        return state.total / _each_unit(
            jnp.where(state.weight > 0, state.weight, 1), state.total
        )
    if reduce == "mean":
        return state / jnp.maximum(count, 1)[:, None].astype(state.dtype)
    return jnp.where(count[:, None] > 0, state, 0)


def _of_runs(
    conv: Any, num_targets: int, top: jax.Array, weight: jax.Array, total: jax.Array
) -> jax.Array:
    """float32 `[C * R, H * D]`: the weighted sums of the runs' values, of an `Attended`."""
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


def _kind(conv: Any, kind: jax.Array) -> dict[str, jax.Array]:
    return {"kind": kind} if uses_types(conv) else {}


def _degree(conv: Any, degree: jax.Array) -> dict[str, jax.Array]:
    return {"degree": degree} if conv.uses_degrees else {}
