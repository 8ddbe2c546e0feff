"""What a graph's arrays must be: each check raises `InputError` and returns what it checked."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from jgs.errors import InputError

MAX_ID = 2**31 - 2  # ids are int32, and num_nodes itself must fit: it marks padding
# What can say how many nodes there are in a NumPy archive, and the form it must have.
COUNTS = {
    "num_nodes": "an integer",
    "labels": "an array [N] or [N, C]",
    "feature_shape": "two integers [N, F]",
}


def check_csc(indptr: np.ndarray, indices: np.ndarray) -> None:
    """Raises `InputError` unless the two arrays form a graph (see `Graph`)."""
    if indptr.size == 0:
        raise InputError(
            "indptr must have one entry more than nodes",
            "an empty array",
            "Give [0] for no nodes.",
        )
    num_nodes = node_count(indptr.size - 1)
    if indptr[0] != 0:
        raise InputError("indptr must start at 0", int(indptr[0]), "Subtract the offset.")
    degree = np.diff(indptr)
    if degree.size and degree.min() < 0:
        at = int(np.argmax(degree < 0))
        raise InputError(
            "indptr must not decrease",
            f"{indptr[at]} then {indptr[at + 1]} at node {at}",
            "Build it with a cumulative sum of the degrees.",
        )
    if indptr[-1] != indices.size:
        raise InputError(
            "indptr must end at the number of edges",
            f"{int(indptr[-1])} with {indices.size} edges",
            "indices must have exactly indptr[-1] entries.",
        )
    if degree.size and degree.max() > MAX_ID:
        raise InputError("a node's degree must fit in 31 bits", int(degree.max()), "Split it.")
    check_range("indices", indices, num_nodes)


def node_count(value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not 0 <= value <= MAX_ID
    ):
        raise InputError(
            f"the number of nodes must be an int in [0, {MAX_ID}]",
            repr(value),
            "Node ids are 32-bit; larger graphs must be partitioned.",
        )
    return int(value)


def stated_node_count(path: str | os.PathLike, name: str, value: np.ndarray) -> int:
    """The number of nodes that the array `name` of an archive says, one of `COUNTS`."""
    if name == "labels" and value.ndim > 0:
        return value.shape[0]
    if value.dtype.kind in "iu":
        if name == "num_nodes" and value.ndim == 0:
            return int(value)
        if name == "feature_shape" and value.shape == (2,):
            return int(value[0])
    raise InputError(
        f"`{name}` in {path} must be {COUNTS[name]}, to say how many nodes there are",
        f"{value.dtype}{list(value.shape)}",
        "Correct it, or add `num_nodes` to the archive.",
    )


def number(name: str, value: Any) -> float:
    """The value of an edge's attribute `name`; text is none, even where it reads as one."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(
        f"the edge attribute {name!r} must be a float",
        " ".join(repr(value).split()),
        "Convert it with float() on every edge.",
    )


def as_array(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:
        raise InputError(
            f"{name} must be a one-dimensional array of integers",
            "sequences of unequal lengths",
            "Give one flat array.",
        ) from None


def integers(name: str, value: Any, dtype: type) -> np.ndarray:
    """`value` as a one-dimensional array of `dtype`, which must hold every element of it."""
    array = as_array(name, value)
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or array.size == 0):
        raise InputError(
            f"{name} must be a one-dimensional array of integers",
            f"{array.dtype}{list(array.shape)}",
            f"Convert it with .astype(numpy.{np.dtype(dtype).name}).",
        )
    if array.size and not np.can_cast(array.dtype, dtype):
        limit = np.iinfo(dtype)
        if array.max() > limit.max or array.min() < limit.min:
            raise InputError(
                f"{name} must fit in {np.dtype(dtype)}", int(array.max()), "Check the ids."
            )
    return np.ascontiguousarray(array, dtype)


def check_range(name: str, ids: np.ndarray, num_nodes: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= num_nodes):
        at = int(np.argmax((ids < 0) | (ids >= num_nodes)))
        raise InputError(
            f"{name} must be node ids in [0, {num_nodes})",
            f"{int(ids[at])} at position {at}",
            "Raise num_nodes, or renumber the nodes from 0.",
        )


def node_ids(name: str, value: Any, num_nodes: int) -> np.ndarray:
    array = as_array(name, value)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        check_range(name, array, num_nodes)  # before narrowing, so that no id wraps around
    return integers(name, array, np.int32)
