"""What layers check of the rows they are given, and how they leave some of them out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jgs.errors import InputError


def check_width(x: jax.Array, in_features: int) -> None:
    """Raises `InputError` unless `x` is a matrix with so many columns."""
    if x.ndim != 2 or x.shape[1] != in_features:
        raise InputError(
            f"x must be a matrix with the layer's {in_features} input features",
            f"shape {list(x.shape)}",
            "Build the model with in_features = features.shape[1].",
        )


def zero_unless(real: jax.Array, x: jax.Array) -> jax.Array:
    """`x` with its rows where `real` is False set to 0."""
    return jnp.where(real[:, None], x, 0)
