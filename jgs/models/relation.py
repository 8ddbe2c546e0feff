"""What the layers of typed graphs share: a matrix for each relation, and the call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import Block, Schema
from jgs.models.dense import check_width, zero_unless
from jgs.models.messages import on_edges
from jgs.ops import aggregate, linear
from jgs.ops.checks import check_sources
from jgs.ops.linear import finish
from jgs.ops.relation_runs import Runs, runs_of


def matrices(rngs: nnx.Rngs, *shape: int, gain: float = 2**0.5) -> nnx.Param:
    """Matrices of `shape` `[..., in, out]`, each drawn Glorot uniform with this gain."""
    axes = tuple(range(len(shape) - 2))
    scale = gain**2
    draw = nnx.initializers.variance_scaling(scale, "fan_avg", "uniform", batch_axis=axes)
    return nnx.Param(jax.jit(draw, static_argnums=1)(rngs.params(), shape))


def relations_of(schema: Schema) -> int:
    """The number of relations; raises `InputError` where there are none."""
    if not schema.relations:
        raise InputError(
            "the schema of a model of relations must have some",
            "none",
            "Pass the schema of a typed graph, graph.schema.",
        )
    return len(schema.relations)


def from_edges(edges: Block) -> Block:
    """The same rows of edges, where each edge is a source of its own."""
    each, num = jnp.arange(edges.edge_capacity, dtype=jnp.int32), edges.num_edges
    capacity = edges.edge_capacity
    return replace(
        edges, indices=each, num_sources=num, source_capacity=capacity, edge_weight=None
    )


class RelationConv(nnx.Module):
    """A layer that reduces the edges of each run by `jgs.ops.aggregate`. A subclass has
    `update`, and says what else it has of the contract `jgs.models.RelationLayer`: one with
    more `edge_columns` has `edge_message`."""

    reduce, run_reduce = "relations", "mean"
    projects_first, uses_degrees, uses_types, takes_inputs = False, False, False, False
    edge_columns: tuple[str, ...] = ("type",)
    in_features: int
    num_relations: int
    self_loop: bool
    self_kernel: nnx.Param
    bias: nnx.Param

    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        layer: Any = self
        check_width(x, self.in_features)
        edges, rows = on_edges(self, block, x)
        runs = runs_from(edges, rows, self.num_relations)
        own = x if real is None else zero_unless(real[: block.target_capacity], x)
        reduced = aggregate(runs.edges, rows, self.run_reduce)
        return layer.update(own, runs.slots, reduced, block.num_targets, **after)

    def message(self, x, num_sources=None, degree=None, kind=None):
        """`x` itself."""
        return x

    def with_own(self, own, summed, num_targets=None, **after: Any) -> jax.Array:
        """The output: the bias, what the runs of each target sum to, `[T, out]`, and with
        `self_loop` the product of the target's own row."""
        if not self.self_loop:
            return finish(summed + self.bias[...], num_targets, **after)
        kernels, bias = [self.self_kernel[...]], self.bias[...]
        return linear([own], kernels, bias, num_targets, add=summed, **after)


def runs_from(block: Block, x: jax.Array, num_relations: int) -> Runs:
    """The runs of `block`, whose sources have the rows `x`."""
    if block.source_capacity is None:
        check_sources(x, block)
        block = replace(block, source_capacity=x.shape[0])
    return runs_of(block, num_relations)
