"""JAX's settings within jgs's own programs, whatever the user's are.

Users turn on `jax_numpy_dtype_promotion="strict"` and `jax_numpy_rank_promotion="raise"` to
check code of their own. That code, for instance a model's message, runs in neither of these
contexts. JAX keeps programs that were traced with different settings apart.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax

# The contexts of JAX that hold for one thread; `jax.config.jax_<name>` is this thread's value.
_OF_A_THREAD = (
    *("numpy_dtype_promotion", "numpy_rank_promotion", "enable_x64", "disable_jit"),
    *("default_device", "default_prng_impl", "legacy_prng_key", "threefry_partitionable"),
    *("debug_infs", "debug_key_reuse", "debug_nans", "check_tracer_leaks", "enable_checks"),
    *("default_matmul_precision", "explain_cache_misses", "log_compiles"),
    *("transfer_guard_device_to_device", "transfer_guard_device_to_host"),
    "transfer_guard_host_to_device",
)


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


def of_this_thread() -> dict[str, Any]:
    """JAX's settings as they are in this thread, for `as_in`."""
    names = (n for n in _OF_A_THREAD if hasattr(jax, n) and hasattr(jax.config, f"jax_{n}"))
    return {name: getattr(jax.config, f"jax_{name}") for name in names}


@contextlib.contextmanager
def as_in(thread: Mapping[str, Any]) -> Iterator[None]:
    """Gives this thread the settings of another one, which `of_this_thread` returned there."""
    own = of_this_thread()
    with contextlib.ExitStack() as stack:
        for name, value in thread.items():
            if value != own[name]:
                value = getattr(value, "value", value)  # the text of an enumerated setting
                stack.enter_context(getattr(jax, name)(value))
        yield
