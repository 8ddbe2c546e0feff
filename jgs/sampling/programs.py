"""`shared`: one compiled program for all loaders that draw alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import Any

import jax

_KEPT = 16  # programs' functions; each keeps what JAX has compiled for it


def shared(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """`function(*first, ...)`, jitted, where `capacity` is static.

    A second call with equal `first` gives the function of the first call, so JAX compiles
    nothing again for arguments of the same shapes. That needs parts that cannot change: numbers
    and strings, and tuples, frozen dataclasses and hashable mappings of them. With any other
    part the function is new.
    """
    if all(map(_is_fixed, first)):
        return _jitted(function, *first)
    return _jitted.__wrapped__(function, *first)


def _is_fixed(part: Any) -> bool:
    if isinstance(part, tuple):
        return all(map(_is_fixed, part))
    if is_dataclass(part) and type(part).__dataclass_params__.frozen:  # type: ignore[union-attr]
        return all(_is_fixed(getattr(part, field.name)) for field in fields(part))
    if isinstance(part, Mapping) and type(part).__hash__ is not None:
        return _is_fixed(tuple(part.items()))
    return part is None or isinstance(part, bool | int | float | str)


@lru_cache(maxsize=_KEPT)
def _jitted(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    return jax.jit(partial(function, *first), static_argnames="capacity")
