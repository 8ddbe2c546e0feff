"""Integers in as few bits as their range needs, in the files of a folder."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import aligned_empty

_GROUP = 64  # values of `bits` bits, which fill `bits` words
_CHUNK = 4096  # groups at a time, so that their words stay in cache


class Packing(NamedTuple):
    """How integers of a packed array are kept: `(value - least) / step`, of `bits` bits each.

    The number of value `i` has its lowest bit at bit `i * bits` of the file's 64-bit words,
    lowest bit first.
    """

    least: int
    step: int
    bits: int


def packing_of(array: np.ndarray) -> Packing | None:
    """The packing of an array's values; None where it would take no less room, or where they
    are no integers."""
    if array.dtype.kind not in "iub" or array.size == 0:
        return None
    flat = array.reshape(-1)
    least, most = int(flat.min()), int(flat.max())
    step = _step(flat, least)
    # One bit at least: so no small file claims an array that fills the memory.
    bits = max(((most - least) // step).bit_length(), 1)
    return Packing(least, step, bits) if bits < 8 * array.dtype.itemsize else None


def _step(flat: np.ndarray, least: int) -> int:
    """The greatest number of which all values are multiples, counted from the least one."""
    step = 0
    for start in range(0, flat.size, _CHUNK * _GROUP):
        part = _above(flat[start : start + _CHUNK * _GROUP], least)
        step = int(np.gcd(np.gcd.reduce(part), np.uint64(step)))
        if step == 1:
            break
    return max(step, 1)


def _above(flat: np.ndarray, least: int) -> np.ndarray:
    """uint64: how far each value is above the least one."""
    return flat.astype(np.uint64) - np.uint64(least % 2**64)


def packed(array: np.ndarray, packing: Packing) -> np.ndarray:
    """uint64: the words of an array that has this packing."""
    least, step, bits = packing
    flat = array.reshape(-1)
    words = np.zeros((-(-flat.size // _GROUP), bits), np.uint64)
    for first in range(0, len(words), _CHUNK):
        part = flat[first * _GROUP : (first + _CHUNK) * _GROUP]
        values = np.zeros((-(-part.size // _GROUP), _GROUP), np.uint64)
        values.reshape(-1)[: part.size] = _above(part, least) // np.uint64(step)
        own = words[first : first + _CHUNK]
        for i in range(_GROUP):
            word, shift = divmod(i * bits, 64)
            own[:, word] |= values[:, i] << np.uint64(shift)
            if shift + bits > 64:
                own[:, word + 1] |= values[:, i] >> np.uint64(64 - shift)
    return words.reshape(-1)


def unpacked(words: np.ndarray, packing: Packing, shape: Any, dtype: Any) -> np.ndarray:
    """The array of `packed`, in memory, where XLA can use it without a copy. Raises
    `ValueError` for facts that fit no array."""
    (least, step, bits), dtype, size = packing, np.dtype(dtype), math.prod(shape)
    groups = -(-size // _GROUP)
    sound = 1 <= bits < 8 * dtype.itemsize and step >= 1 and dtype.kind in "iub"
    if not sound or min(shape) < 1 or words.shape != (groups * bits,):
        raise ValueError(f"{words.size:,} words of {bits} bits a value, for {shape}")
    out = aligned_empty(size, dtype)
    words, mask = words.reshape(groups, bits), np.uint64(2**bits - 1)
    for first in range(0, groups, _CHUNK):
        own = words[first : first + _CHUNK]
        values = np.zeros((len(own), _GROUP), np.uint64)
        for i in range(_GROUP):
            word, shift = divmod(i * bits, 64)
            values[:, i] = own[:, word] >> np.uint64(shift)
            if shift + bits > 64:
                values[:, i] |= own[:, word + 1] << np.uint64(64 - shift)
        values = (values & mask) * np.uint64(step) + np.uint64(least % 2**64)
        part = out[first * _GROUP : (first + _CHUNK) * _GROUP]
        part[:] = values.reshape(-1)[: part.size].astype(out.dtype)
    return out.reshape(shape)
