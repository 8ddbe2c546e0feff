"""JAX's settings within jgs's own programs, whatever the user's are.

Users turn on `jax_numpy_dtype_promotion="strict"` and `jax_numpy_rank_promotion="raise"` to
check code of their own. That code, for instance a model's message, runs in neither of these
contexts. JAX keeps programs that were traced with different settings apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def usual_promotion() -> Iterator[None]:
    """Traces with the promotion of dtypes and of ranks that JAX has by default."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@contextlib.contextmanager
def exact_integers() -> Iterator[None]:
    """Traces with 64-bit integers, which edge offsets need, and with the usual promotion."""
    with jax.enable_x64(True), usual_promotion():
        yield
