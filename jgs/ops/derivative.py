"""How an operation gets its derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def with_derivative(
    forward: Callable[..., Any],
    keep: Callable[..., Any],
    backward: Callable[..., Any],
    static: int,
) -> Callable[..., Any]:
    """`forward`, whose first `static` arguments are not differentiated. Its derivative is
    `backward(*static arguments, kept, derivative by the result)`: a value or None for each
    other argument. `keep(*other arguments, result)` says what is kept for it."""
    run = jax.custom_vjp(forward, nondiff_argnums=tuple(range(static)))

    def forwards(*arguments: Any) -> tuple[Any, Any]:
        out = forward(*arguments)
        return out, keep(*arguments[static:], out)

    run.defvjp(forwards, backward)
    return run
