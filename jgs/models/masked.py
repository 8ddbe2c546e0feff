"""Layers with a weight on every edge's message; explanations are derivatives by the weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.graph import Block
from jgs.graph.foreign import targets_of
from jgs.kernels.call import FILL
from jgs.models import parts
from jgs.models.layer import attended, of_relations, relational, uses_types
from jgs.ops import aggregate, edge_softmax, gather


def masked_layer(
    layer: Any,
    mask: jax.Array,
    block: Block,
    x: jax.Array,
    real: jax.Array | None = None,
    degree: jax.Array | None = None,
    relu: bool = False,
    kind: jax.Array | None = None,
) -> jax.Array:
    """The output `[T, out]` of `layer(block, x, real)`, to rounding, with the message of edge
    `e` multiplied by `mask[e]`; differentiable in `mask` float32 `[E]`, which has no meaning in
    padding. In a layer with attention the edge's value is multiplied, after the softmax. A mask
    of 1 changes nothing. An edge with a mask of 0 contributes nothing and is still counted in a
    mean."""
    facts = {"degree": degree} if layer.uses_degrees else {}
    types = {"kind": kind} if uses_types(layer) else {}
    x = parts.zero_unless(real, x)
    own = x[: block.target_capacity]
    message = layer.message(x, block.num_sources, **facts, **types)
    if relational(layer):
        slots, reduced = _of_runs(layer, mask, block, own, message, types)
        return layer.update(own, slots, reduced, block.num_targets, **types, relu=relu)
    if layer.reduce == "attention":
        aggregated = _attended(layer, mask, block, own, message)
    else:
        weight = mask if block.edge_weight is None else mask * block.edge_weight
        aggregated = aggregate(*parts.on_edges(layer, block, message), layer.reduce, weight)
    return layer.update(x, aggregated, block.num_targets, **facts, relu=relu)


def _of_runs(layer: Any, mask: Any, block: Block, own: Any, message: Any, types: Any) -> Any:
    block, message = parts.on_edges(layer, block, message)
    runs = parts.runs_from(block, message, layer.num_relations)
    slots, edges = runs.slots, runs.edges
    weight = runs.to_runs(mask[:, None])
    if layer.run_reduce != "attention":
        weight = weight[:, 0] if edges.edge_weight is None else weight[:, 0] * edges.edge_weight
        reduced = aggregate(edges, message, layer.run_reduce, weight)
    else:
        columns = parts.read_edges(layer, block)
        columns = {n: array.at[runs.order].get(**FILL) for n, array in columns.items()}
        rows = of_relations(layer, gather(message, edges.indices), columns)
        slot, _ = targets_of(edges)
        query = layer.query(own, slots, **types)
        scores = layer.scores(rows, query.at[slot].get(**FILL))
        if layer.softmax_over == "run":
            weights = edge_softmax(edges, scores)
        else:
            weights = runs.to_runs(edge_softmax(block, runs.to_block(scores)))
        reduced = aggregate(
            parts.from_edges(edges), layer.values(rows), "sum", weights * weight
        )
    return slots, reduced


def _attended(
    layer: Any, mask: jax.Array, block: Block, own: jax.Array, message: jax.Array
) -> jax.Array:
    query = layer.query(own)
    target, _ = targets_of(block)
    edge = parts.read_edges(layer, block) if layer.edge_columns else None
    rows, of_edges = gather(message, block.indices), query.at[target].get(**FILL)
    scores, values = attended(layer, rows, of_edges, edge)
    if not layer.self_loops:
        weights = edge_softmax(block, scores) * mask[:, None]
        return aggregate(
            parts.by_edge(block), parts.padded_edges(block, values), "sum", weights
        )
    own_message, values = message[: own.shape[0]], layer.values(message)
    weights, own_weights = edge_softmax(block, scores, layer.scores(own_message, query))
    aggregated = aggregate(block, values, "sum", weights * mask[:, None])
    own_weights = jnp.repeat(own_weights, values.shape[1] // layer.num_heads, axis=1)
    return aggregated + own_weights * layer.values(own_message)
