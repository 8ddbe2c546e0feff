"""`shared`: one compiled program for all loaders that draw alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax

_KEPT = 16  # functions; each keeps what JAX has compiled for it
_functions: dict[Any, Callable[..., Any]] = {}  # the newest comes last


def shared(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """`function(*first, ...)`, jitted, where `capacity` is static.

    A second call with the same `first` gives the function of the first call, so JAX compiles
    nothing again for arguments of the same shapes. That needs parts that cannot change: numbers
    and strings, and tuples, frozen dataclasses and hashable mappings of them. With any other
    part the function is new.
    """
    made: Any = jax.jit(partial(function, *first), static_argnames="capacity")
    try:
        key = function, _key(first)
    except TypeError:
        return made
    _functions[key] = made = _functions.pop(key, made)
    for old in list(_functions)[:-_KEPT]:
        _functions.pop(old, None)
    return made


def _key(part: Any) -> Any:
    """Tells `part` from others, also 2 from 2.0, which are equal. Raises `TypeError`."""
    if isinstance(part, tuple):
        return type(part), *map(_key, part)
    if is_dataclass(part) and type(part).__dataclass_params__.frozen:  # type: ignore[union-attr]
        names = [field.name for field in fields(part)]
        if {*getattr(part, "__dict__", ())} <= {*names}:  # else it holds what no field says
            return type(part), *(_key(getattr(part, name)) for name in names)
    if isinstance(part, Mapping) and type(part).__hash__ is not None:
        return type(part), _key(tuple(part.items()))
    if part is None or isinstance(part, bool | int | float | str):
        return type(part), repr(part)
    raise TypeError("it may change")
