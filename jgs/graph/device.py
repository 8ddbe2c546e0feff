"""Arrays where JAX can read them, without a copy (`as_device`), and in pickles."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jgs.arrays import aligned_empty
from jgs.devices import computes_on_cpu, host_device
from jgs.settings import exact_integers


def as_device(array: Any) -> Any:
    """`array`, or all of a pytree, on the host device (`jgs.devices`). An aligned NumPy array
    is not copied there.

    Where JAX's default device is a GPU or TPU, the result is committed to the CPU: programs
    that take it run there.
    """
    where = None if computes_on_cpu() else host_device()
    with exact_integers():  # else int64 offsets would be cut to int32
        return jax.device_put(array, where, may_alias=True)


def aligned_copy(array: np.ndarray) -> np.ndarray:
    """A contiguous copy of an array, which `as_device` takes without another."""
    made = aligned_empty(array.size, array.dtype).reshape(array.shape)
    made[...] = array
    return made


def reduce_arrays(instance: Any) -> tuple[Any, ...]:
    """The `__reduce__` of a dataclass of JAX arrays: a pickle of it keeps every bit.

    Without it JAX would unpickle 64-bit arrays as 32-bit ones outside x64. Arrays are
    unpickled to the host device. Copies, also deep ones, share the arrays, which are
    immutable.
    """
    fields = vars(instance).items()
    return _restored, (type(instance), {name: _wrapped(value) for name, value in fields})


class _Wrapped:
    """A JAX array inside a pickle or a copy of `reduce_arrays`."""

    def __init__(self, array: jax.Array):
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return as_device, (np.asarray(self.array),)

    def __deepcopy__(self, _: Any) -> _Wrapped:
        return self


def _wrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _wrapped(each) for key, each in value.items()}
    return _Wrapped(value) if isinstance(value, jax.Array) else value


def _restored(kind: type, fields: dict[str, Any]) -> Any:
    instance: Any = object.__new__(kind)
    vars(instance).update({name: _unwrapped(value) for name, value in fields.items()})
    return instance


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unwrapped(each) for key, each in value.items()}
    return value.array if isinstance(value, _Wrapped) else value
