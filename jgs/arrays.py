"""One description of an array's dtype and shape, for the check and for the error; memory for
arrays that XLA uses in place."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from jgs.errors import InputError

_ALIGNED = 64  # bytes, the alignment that XLA needs to use an array in place
_FORM = re.compile(r"(?:([^\[,]+) )?\[([^\]]*(?:\] or \[[^\]]*)*)\](.*)")
_SIZE = re.compile(r"(?:([^\W\d]\w*)(?: \+ )?)?(\d*)")  # a name, a number, or both
_GROUPS = {"numbers": "fiub", "integers": "iuI", "floats": "fF", "text": "U", "empty": ""}
_Shape = tuple[list[tuple[str, int]], bool]  # names and numbers; whether any axes may follow


def require_array(what: str, array: Any, form: str, remedy: str, /, **sizes: Any) -> None:
    """Raises `InputError` unless `array` has the dtype and the shape that `form` says.

    Args:
      what: what the array is; the message begins with `"{what} must be {form}"`.
      array: of NumPy, JAX or SciPy, or a tracer. Its values are not read. What has no shape is
        refused, and so is what has no dtype where `form` names one.
      form: as docstrings of jgs say it: `"int32 [n]"`, `"numbers [N, F]"`, `"[E] or [E, H]"`,
        `"bool [E], one for each edge"`. The words before the bracket are names of dtypes,
        `"numbers"` (those of NumPy, bool too), `"integers"`, `"floats"` (bfloat16 too),
        `"text"`, with `" or "` between, and at last `"empty"` where any dtype will do for an
        array without elements; the message does not say that. Without words every dtype will
        do. A bracket has numbers, names, and sums of both as in `"[N + 1]"`. It may end in
        `...`, which are any further axes. What comes after the shape is for the message alone.
      remedy: what the user should do.
      sizes: what names in `form` are; the message has these numbers. Any other name is of any
        size, the same wherever it occurs.
    """
    if not fits(array, form, **sizes):
        raise InputError(f"{what} must be {_filled(form, sizes)}", described(array), remedy)


def fits(array: Any, form: str, /, **sizes: Any) -> bool:
    """Whether `array` has the form, as in `require_array`."""
    kinds, shapes = _parsed(form, frozenset(sizes))
    shape = getattr(array, "shape", None)
    if not isinstance(shape, tuple) or not any(_fits(shape, *each, sizes) for each in shapes):
        return False
    if not kinds or ("empty" in kinds and 0 in shape):
        return True
    dtype = getattr(array, "dtype", None)
    return dtype is not None and _is_of(dtype, kinds)  # to NumPy, None is float64


def described(array: Any) -> str:
    """The dtype and the shape of `array`, as "float32[9, 4]"; "none" for None, and the type of
    what has no shape."""
    kind = "none" if array is None else type(array).__name__
    if not isinstance(shape := getattr(array, "shape", None), tuple):
        return kind
    return f"{getattr(array, 'dtype', kind)}{list(shape)}"


@lru_cache(1024)
def _parsed(form: str, given: frozenset[str]) -> tuple[tuple[str, ...], list[_Shape]]:
    """The words and the shapes of a form, which must have the names of the sizes `given`."""
    if not (found := _FORM.fullmatch(form)):
        raise ValueError(f"a form must have a bracket: {form}")
    kinds = tuple(found[1].split(" or ")) if found[1] else ()
    for kind in {*kinds} - {*_GROUPS}:
        np.dtype(kind)  # raises for what is none
    shapes = [_shape(text) for text in found[2].split("] or [")]
    if unknown := given - {name for axes, _ in shapes for name, _ in axes}:
        raise ValueError(f"{form} has no {', '.join(unknown)}")
    return kinds, shapes


def _shape(text: str) -> _Shape:
    texts = text.split(", ") if text else []
    more = texts[-1:] == ["..."]
    found = [_SIZE.fullmatch(each) for each in texts[: len(texts) - more]]
    if not all(found):
        raise ValueError(f"[{text}] is no shape")
    return [(each[1] or "", int(each[2] or 0)) for each in found if each], more


def _fits(shape: Any, axes: list[tuple[str, int]], more: bool, sizes: Any) -> bool:
    if len(shape) < len(axes) or (len(shape) > len(axes) and not more):
        return False
    known = {"": 0, **sizes}
    for size, (name, plus) in zip(shape, axes, strict=False):
        if known.setdefault(name, size - plus) + plus != size or (plus and size < plus):
            return False
    return True


@lru_cache(1024)
def _is_of(dtype: Any, kinds: tuple[str, ...]) -> bool:
    letter = getattr(dtype, "kind", "")
    if letter == "V":  # JAX's own, such as bfloat16 and int4
        letter = "F" if "float" in dtype.name else "I" if "int" in dtype.name else letter
    return any(
        letter in [*_GROUPS[kind]] if kind in _GROUPS else np.dtype(kind) == dtype
        for kind in kinds
    )


def _filled(form: str, sizes: dict[str, Any]) -> str:
    def number(found: re.Match) -> str:
        return str(sizes[found[1]] + int(found[2] or 0)) if found[1] in sizes else found[0]

    form = form.replace(" or empty [", " [")
    return re.sub(r"\[.*?\]", lambda found: _SIZE.sub(number, found[0]), form)


def aligned_empty(size: int, dtype: Any) -> np.ndarray:
    """An uninitialised array `[size]` that `as_device` takes without a copy on the CPU."""
    return _aligned(np.empty, size, dtype)


def aligned_zeros(size: int, dtype: Any) -> np.ndarray:
    """As `aligned_empty`, of zeros. Pages that nothing is written to take no memory."""
    return _aligned(np.zeros, size, dtype)


def _aligned(make: Any, size: int, dtype: Any) -> np.ndarray:
    dtype = np.dtype(dtype)
    room = make(size * dtype.itemsize + _ALIGNED, np.uint8)
    before = -room.ctypes.data % _ALIGNED
    return room[before : before + size * dtype.itemsize].view(dtype)
