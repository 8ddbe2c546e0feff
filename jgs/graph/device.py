"""`as_device`: arrays where JAX can read them, without a copy."""

from __future__ import annotations

from typing import Any

import jax


def as_device(array: Any) -> jax.Array:
    """`array` on the default device, without a copy where it is aligned NumPy on the CPU."""
    with jax.enable_x64(True):  # else int64 offsets would be cut to int32
        return jax.device_put(array, may_alias=True)
