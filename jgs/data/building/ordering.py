"""Stable sorts of records by several keys, on all cores, and without memory for each node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from jgs.graph.grouping import group, threads

_DIGIT = 20  # bits
_FEW = 1 << 18  # entries that one thread takes

T = TypeVar("T")


def stable_order(keys: Sequence[np.ndarray]) -> np.ndarray | None:
    """The positions of entries sorted by integer `keys` `[n]`, the first of which decides the
    least; equal entries keep their order. None if that is the order that they have."""
    order: np.ndarray | None = None
    for key in keys:
        for digit, size in _digits(key):
            _, next_order = group(digit if order is None else taken(digit, order), size)
            order = next_order if order is None else taken(order, next_order)
    return order


def _digits(key: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The digits of a key, the least first: int32 `[n]`, and the bound that they are below."""
    if not key.size:
        return
    least = key.min()
    # Differences of 64-bit integers fit in 64 bits without a sign.
    rest = key.astype(np.int64).view(np.uint64) - np.int64(least).view(np.uint64)
    bits = int(rest.max()).bit_length()
    count = -(-bits // _DIGIT)
    for number in range(count):
        width = -(-bits // count)
        digit = (rest >> np.uint64(number * width)) & np.uint64((1 << width) - 1)
        yield digit.astype(np.int32), 1 << width


def taken(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """`array[order]`, on all cores."""
    if order.size < _FEW:
        return array[order]
    out = np.empty((order.size, *array.shape[1:]), array.dtype)
    ends = np.linspace(0, order.size, max(2, order.size // _FEW) + 1).astype(np.int64)

    def take(at: int) -> None:
        span = slice(ends[at], ends[at + 1])
        np.take(array, order[span], axis=0, out=out[span], mode="clip")

    with threads(ends.size - 1) as run:
        for _ in run(take, range(ends.size - 1)):
            pass
    return out


def sorted_parts(keys: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    """Sorts in place `keys`, each part of which, up to one of `ends`, is above those before."""
    starts = [0, *ends[:-1]]

    def sort(at: int) -> None:
        keys[starts[at] : ends[at]].sort()

    with threads(len(ends)) as run:
        for _ in run(sort, range(len(ends))):
            pass
    return keys


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each of which is made while the one before it is used."""
    done = object()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, items, done)
        while (item := waiting.result()) is not done:
            waiting = pool.submit(next, items, done)
            yield item  # type: ignore[misc]
