"""What the layers share: checks of widths, weight matrices, and the call in three steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import is_number, require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.models.messages import on_edges
from jgs.ops import aggregate, linear

# A program for each shape, instead of one for each operation.
_glorot = jax.jit(
    nnx.initializers.variance_scaling(2.0, "fan_avg", "uniform"), static_argnums=1
)


def check_widths(**widths: int) -> None:
    """Raises `InputError` unless each width, by its argument's name, is a positive int."""
    for name, width in widths.items():
        if not isinstance(width, int | np.integer) or width < 1:
            rule, remedy = f"{name} must be at least 1, and whole", "Give a positive int."
            raise InputError(rule, repr(width), remedy)


def check_heads(num_heads: int, **widths: int) -> None:
    """Raises `InputError` unless `num_heads` heads share each width equally."""
    check_widths(num_heads=num_heads)
    for name, width in widths.items():
        if width % num_heads != 0:
            raise InputError(
                f"{name} must be a multiple of num_heads, which share it",
                f"{width} features, {num_heads} heads",
                "Give the width of all heads together.",
            )


def check_rates(**rates: float) -> None:
    """Raises `InputError` unless each rate of dropout, by its argument's name, is in [0, 1)."""
    for name, rate in rates.items():
        if not is_number(rate) or not 0 <= rate < 1:
            raise InputError(f"{name} must be in [0, 1)", repr(rate), "0 switches it off.")


def glorot(rngs: nnx.Rngs, shape: tuple[int, int]) -> nnx.Param:
    """A weight matrix of `shape`, drawn Glorot uniform with a gain of sqrt(2)."""
    return nnx.Param(_glorot(rngs.params(), shape))


def check_width(x: jax.Array, in_features: int) -> None:
    form = "[S, F], with the layer's input features"
    remedy = "Build the model with in_features = features.shape[1]."
    require_array("x", x, form, remedy, F=in_features)


def zero_unless(real: jax.Array | None, x: jax.Array) -> jax.Array:
    """The first `len(real)` rows of `x`, with zeros where `real` is False. With `real` None it
    is `x` itself.

    Rows that are not real must enter no product: 0 * NaN would be NaN in a weight's gradient.
    """
    return x if real is None else jnp.where(real[:, None], x[: real.shape[0]], 0)


class Conv(nnx.Module):
    """A layer in three steps: messages, at its sources or at its edges, a reduction by
    `jgs.ops.aggregate`, and an update. A subclass has `update`, and says what else it has of
    the contract `jgs.models.Layer`. Where it `projects_first` it has a `message`, or the matrix
    of its neighbours under the name that `message_kernel` says."""

    reduce, uses_degrees, takes_inputs = "mean", False, False
    edge_columns: tuple[str, ...] = ()
    message_kernel = "neighbor_kernel"

    @property
    def projects_first(self) -> bool:
        return False

    def message(self, x, num_sources=None, degree=None):
        """The rows to aggregate: `x` itself or, if `projects_first`, its product."""
        if not self.projects_first:
            return x
        return linear([x], [getattr(self, self.message_kernel)[...]], None, num_sources)

    def __call__(self, block: Block, x: Any, real=None, *, degree=None, **after: Any):
        layer: Any = self
        check_width(x, layer.in_features)
        own = x if real is None else zero_unless(real[: block.target_capacity], x)
        if layer.projects_first:
            x = zero_unless(real, x)
        message = layer.message(x, block.num_sources, degree)
        aggregated = aggregate(*on_edges(layer, block, message), layer.reduce)
        return layer.update(own, aggregated, block.num_targets, degree, **after)
