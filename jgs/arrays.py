"""What an array must be: one description of its dtype and shape, for the check and for the
error, and checks of its values; arrays of other libraries as NumPy's; memory for arrays that
XLA uses in place."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from numbers import Number
from typing import Any, TypeGuard

import numpy as np

from jgs.errors import InputError

_ALIGNED = 64  # bytes, the alignment that XLA needs to use an array in place
_FORM = re.compile(r"(?:([^\[,]+) )?\[([^\]]*(?:\] or \[[^\]]*)*)\](.*)")
_SIZE = re.compile(r"(?:([^\W\d]\w*)(?: \+ )?)?(\d*)")  # a name, a number, or both
_GROUPS = {"numbers": "fiub", "integers": "iuI", "floats": "fF", "text": "U", "empty": ""}
_MOST = np.iinfo(np.int64).max
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


# -- values


def is_real(value: Any) -> TypeGuard[float]:
    """Whether `value` is one real number, of Python or of NumPy, and no bool or time."""
    kinds = int | float | np.integer | np.floating
    return isinstance(value, kinds) and not isinstance(value, bool | np.timedelta64)


RENUMBER = "Raise num_nodes, or renumber the nodes from 0."
_LEAVE_OUT = (
    "Leave it out (a table's by columns=, or delete it there), or write a number for each "
    "word, as np.unique(words, return_inverse=True)[1] does."
)


def refuse_where(wrong: np.ndarray, values: Any, place: str, rule: str, remedy: str) -> None:
    """Raises `InputError` that shows the first of `values` `[n, ...]` for which `wrong` `[n]`
    is True, and its position, "at" this `place`."""
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(rule, f"{values[at]} at {place} {at}", remedy)


def refuse_words(what: str, array: np.ndarray, remedy: str = _LEAVE_OUT) -> None:
    """Raises `InputError` where an array `[n, ...]` has text, dates or other things that are no
    numbers."""
    if array.ndim == 0 or array.dtype.kind in "biufcV":
        return
    for row, entry in enumerate(array):
        for value in np.ravel(entry) if array.ndim > 1 else [entry]:
            if not isinstance(value, Number):
                shown = repr(str(value)) if isinstance(value, str) else str(value)
                seen = f"{' '.join(shown.split())[:60]} in row {row}"
                raise InputError(f"{what} must be numbers", seen, remedy)


def check_range(rule: str, ids: np.ndarray, num_nodes: int, remedy: str = RENUMBER) -> None:
    """Raises `InputError` unless all `ids` are in `[0, num_nodes)`. The `rule` is what comes
    before the range, such as "src must be node ids"."""
    if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
        wrong = (ids < 0) | (ids >= num_nodes)
        refuse_where(wrong, ids, "position", f"{rule} in [0, {num_nodes})", remedy)


# -- conversion


def as_numpy(value: Any) -> np.ndarray:
    """`value` as a NumPy array, without a copy where possible.

    `value` is a sequence or another library's array. Its `__array__` is used; an array without
    `__array__` is read by DLPack. Entries that a mask hides are missing ones, as in `unmasked`.
    Raises `InputError` for an array that the CPU cannot read, such as one on a GPU, and
    `ValueError` for sequences of unequal lengths.
    """
    if isinstance(value, np.ma.MaskedArray):
        return unmasked(value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    try:
        if hasattr(value, "__array__"):
            return np.asarray(value)
        return np.from_dlpack(value)
    except (TypeError, RuntimeError, BufferError, ValueError) as error:
        raise InputError(
            "an array of another library must be one that NumPy can read",
            f"a {type(value).__name__}: {' '.join(str(error).split())}",
            "Copy it to the CPU first; a torch tensor by .detach().cpu().",
        ) from None


def unmasked(array: np.ma.MaskedArray) -> np.ndarray:
    """A masked array, as DuckDB's `fetchnumpy()` gives them, whose hidden entries are missing:
    NaN among floats, NaT among times, and None, in an array of objects, among all others."""
    hidden = np.ma.getmaskarray(array)
    if not hidden.any():
        return array.data
    kind = array.dtype.kind
    found = np.array(array.data, None if kind in "fcmM" else object)
    found[hidden] = {"f": np.nan, "c": np.nan, "m": "NaT", "M": "NaT"}.get(kind)
    return found


def id_column(what: str, values: Any, in_file: bool = False) -> np.ndarray:
    """`values` `[n]` as int64, or as objects if they are text; raises `InputError`. Integers of
    which one has more than 64 bits become text. `in_file`: they are of a data set's files."""
    array = as_numpy(values)
    if array.ndim == 1 and array.dtype.kind in "iu":
        if array.dtype == np.uint64 and array.size and array.max() > _MOST:
            return np.array([*map(str, array.tolist())], object)
        return array.astype(np.int64, copy=False)
    if array.ndim == 1 and (array.dtype.kind in "UT" or array.size == 0):
        return array.astype(object)
    if array.ndim == 1 and array.dtype == object:
        entries = array.tolist()
        kinds = set(map(type, entries))
        if kinds == {str}:
            return array
        if all(map(_is_integer, entries)):
            whole = [int(each) for each in entries]
            small = all(-_MOST <= each <= _MOST for each in whole)
            return np.array(whole, np.int64) if small else np.array([*map(str, whole)], object)
    missing = array.dtype.kind in "fO"
    raise InputError(
        f"{what} must be integers of at most 64 bits, or text",
        f"{described(array)}{', some perhaps missing' if missing else ''}",
        "Write whole numbers without a point and without gaps, or give --data-options ids=text."
        if in_file
        else "Give a whole column of one kind, with .astype(int) or .astype(str).",
    )


def _is_integer(entry: Any) -> bool:
    if isinstance(entry, Decimal):  # Arrow's integers of 128 bits
        return entry.is_finite() and entry == entry.to_integral_value()
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


# -- memory


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
