"""Checks of a graph's arrays: each raises `InputError` or returns what it checked."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import jax
import numpy as np

from jgs.arrays import (
    RENUMBER,
    as_numpy,
    check_range,
    described,
    fits,
    refuse_where,
    refuse_words,
    require_array,
)
from jgs.errors import InputError
from jgs.graph.grouping import taken
from jgs.graph.row_tables.table import RowTable
from jgs.graph.rows import row_chunks

MAX_ID = 2**31 - 2  # ids are int32, and num_nodes itself must fit: it marks padding


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
    check_range("indices must be node ids", indices, num_nodes)


def check_columns(columns: Any, num_edges: int, taken: Container) -> dict[str, np.ndarray]:
    """A user's edge columns as arrays `[num_edges, ...]` by name. No name may be in `taken`."""
    if columns is not None and not isinstance(columns, Mapping):
        raise InputError(
            "edge_columns must be a dict of arrays by name",
            f"a {type(columns).__name__}",
            'Give them as {"time": array}.',
        )
    checked = {}
    for name, value in ({} if columns is None else columns).items():
        if not isinstance(name, str) or not name.isidentifier() or name in taken:
            raise InputError(
                "the name of an edge column must be an identifier, and no field of Graph",
                repr(name),
                "Choose another, such as 'dist'.",
            )
        what = f"the edge column {name!r}"
        array = as_array(what, value, "an array of numbers")
        if array.dtype.kind in "biufc":
            array = array.astype(array.dtype.newbyteorder("="), copy=False)
        refuse_words(what, array)
        if not is_column(array) or array.shape[0] != num_edges:
            raise InputError(
                f"{what} must be an array of numbers, {num_edges} rows of them, one an edge",
                described(array),
                "Give one row for every edge, in the order of the edges, with a dtype that JAX "
                "has.",
            )
        checked[name] = np.ascontiguousarray(array)
    return checked


def check_node_columns(columns: Mapping[str, Any], num_nodes: int) -> dict[str, Any]:
    """Node columns, which must be arrays of numbers `[num_nodes, ...]`, or a `RowTable` of
    `num_nodes` rows."""
    checked = {}
    for name, array in columns.items():
        if not isinstance(array, RowTable | jax.Array):
            array = as_numpy(array)
            refuse_words(f"the node column {name!r}", array)
        table = isinstance(array, RowTable)
        good = array.schema is None if table else is_column(array)
        if not good or array.shape[0] != num_nodes:
            raise InputError(
                f"the node column {name!r} must be numbers, {num_nodes} rows, one a node",
                described(array),
                "Give one row for every node, in the order of their ids.",
            )
        checked[name] = array
    return checked


def is_column(array: Any) -> bool:
    """Whether an array has a numeric dtype that JAX also has, and at least one dimension."""
    size = array.dtype.itemsize // (2 if array.dtype.kind == "c" else 1)
    return array.ndim > 0 and array.dtype.kind in "biufc" and size <= 8 and array.dtype.isnative


def check_arrays(
    owner: str, arrays: Mapping[str, np.ndarray], fields: Mapping[str, tuple], remedy: str
) -> None:
    """Raises `InputError` unless a graph's `arrays` have the dtypes that `fields` names and fit
    one another. The only values read are the first and the last of `indptr`."""
    weighted = any(name.startswith("edge_weight") for name in arrays)
    for name, dtypes in fields.items():
        must = weighted if name.startswith("edge_weight") else name.startswith("ind")
        if must or name in arrays:
            form = f"{' or '.join(np.dtype(each).name for each in dtypes)} [n]"
            require_array(f"`{name}` of {owner}", arrays.get(name), form, remedy)
    indptr, indices = arrays["indptr"], arrays["indices"]
    if indptr.size == 0 or indptr[0] != 0 or indptr[-1] != indices.size:
        raise InputError(
            "indptr must run from 0 to the number of edges",
            f"{indptr.size} entries, {indices.size} edges",
            remedy,
        )
    for name, array in arrays.items():
        if not is_column(array):
            rule = f"{owner} must hold an array of numbers `{name}`"
            raise InputError(rule, described(array), remedy)
        if name != "indptr":
            form = "[E, ...], one entry for every edge"
            require_array(name, array, form, remedy, E=indices.size)


def node_count(value: Any) -> int:
    """`value` as an int that can be a number of nodes; raises `InputError`."""
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


def as_array(name: str, value: Any, kind: str = "integers [n]") -> np.ndarray:
    """`value` as a NumPy array (see `as_numpy`); raises `InputError` that calls it `name`."""
    try:
        return as_numpy(value)
    except InputError:
        raise
    except ValueError:
        raise InputError(
            f"{name} must be {kind}",
            "sequences of unequal lengths",
            "Give one array, all rows of which are equally long.",
        ) from None


def integers(name: str, value: Any, dtype: type, remedy: str = "Check the ids.") -> np.ndarray:
    """`value` as a one-dimensional array of `dtype`, which must hold every element of it; the
    `remedy` is for one that it does not hold."""
    array = as_array(name, value)
    convert = f"Convert it with .astype(numpy.{np.dtype(dtype).name})."
    require_array(name, array, "integers or empty [n]", convert)
    if array.size and not np.can_cast(array.dtype, dtype):
        limit = np.iinfo(dtype)
        if array.max() > limit.max or array.min() < limit.min:
            raise InputError(f"{name} must fit in {np.dtype(dtype)}", int(array.max()), remedy)
    return np.ascontiguousarray(array, dtype)


def check_paired(what: str, src: np.ndarray, dst: np.ndarray) -> None:
    """Raises `InputError` unless the two ends of the edges, `what`, are equally many."""
    if src.size != dst.size:
        raise InputError(
            f"{what} must have the same length",
            f"{src.size} and {dst.size}",
            "Give one source and one target for every edge.",
        )


def check_times(edge_time: Any, num_edges: int, name: str = "edge_time") -> np.ndarray:
    """`edge_time` as int64 `[E]`; raises `InputError` that calls it `name`."""
    times = _times(name, edge_time)
    form = "integers [E], one entry for every edge"
    remedy = "Give each edge's time, as an integer in a unit of your choice."
    require_array(name, times, form, remedy, E=num_edges)
    return times


def check_node_time(node_time: Any, num_nodes: int) -> np.ndarray:
    """`node_time` as int64 `[N]`; raises `InputError`."""
    times = _times("node_time", node_time)
    form = "integers [N], one entry for every node"
    remedy = "Give the time from which each node exists, as an integer."
    require_array("node_time", times, form, remedy, N=num_nodes)
    return times


def _times(name: str, value: Any) -> np.ndarray:
    array = as_array(name, value)
    if array.dtype.kind in "mMf":
        missing = np.isnan(array) if array.dtype.kind == "f" else np.isnat(array)
        remedy = "Leave out what has no time, or write one."
        rule = f"{name} must be integers, and none may be missing"
        refuse_where(missing.ravel(), array.ravel(), "position", rule, remedy)
    if array.dtype.kind in "mM" or (array.dtype.kind == "f" and array.size):
        raise InputError(
            f"{name} must be integers, in a unit of your choice",
            described(array),
            'Convert dates with .astype("datetime64[s]").astype(int), and numbers with rint.',
        )
    times = integers(name, array, np.int64, "Count from another moment, or in a coarser unit.")
    rule, remedy = f"{name} must be below 2**63 - 1", "Give times in a coarser unit."
    refuse_where(times == np.iinfo(np.int64).max, times, "position", rule, remedy)
    return times


def times_with_nodes(
    edge_time: np.ndarray | None, node_time: np.ndarray, *ends: np.ndarray
) -> np.ndarray:
    """int64 `[E]`: the time of each edge, or that of the latest of its `ends`, which are ids
    `[E]` of `node_time` int64 `[N]`, if that is later."""
    latest = edge_time
    for ids in ends:
        times = taken(node_time, ids)
        latest = times if latest is None else np.maximum(times, latest, out=times)
    assert latest is not None
    return latest


def check_times_ascend(times: np.ndarray, types: np.ndarray | None, indptr: np.ndarray) -> None:
    """Raises `InputError` unless the `times` `[E]` of the edges of each row, or of each type in
    it if there are `types`, ascend."""
    if found := first_fall(times, indptr, types):
        at, node = found
        raise InputError(
            "the edges of each row, or of each type in it, must be sorted by edge_time",
            f"{times[at]} after {times[at - 1]} in the row of node {node}",
            "Make the graph with Graph.from_edges(..., edge_time=...), which sorts them.",
        )


def first_fall(
    values: np.ndarray, indptr: np.ndarray, types: np.ndarray | None = None
) -> tuple[int, int] | None:
    """The first edge, and its row, whose entry in `values` `[E]` is below that of the edge
    before it in the row, which must be of the same type if there are `types`."""
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        falls = 1 + np.flatnonzero(values[begin + 1 : end] < values[begin : end - 1]) + begin
        row = np.searchsorted(indptr, falls, side="right") - 1
        inside = indptr[row] < falls
        if types is not None:
            inside &= types[falls] == types[falls - 1]
        if inside.any():
            return int(falls[np.argmax(inside)]), int(row[np.argmax(inside)])
    return None


def check_distinct(name: str, ids: np.ndarray) -> None:
    """Raises `InputError` unless `ids` are distinct."""
    ascending = np.sort(ids)
    twice = ascending[1:] == ascending[:-1]
    if twice.any():
        raise InputError(
            f"{name} must be distinct",
            f"{int(ascending[1:][twice][0])} more than once",
            "Remove the repetitions, e.g. with numpy.unique.",
        )


def id_array(name: str, value: Any, num_nodes: int) -> np.ndarray:
    """`value` as a contiguous array of int32 or int64. An array of these dtypes is not copied
    and its range not checked: the caller must check it. Any other goes through `node_ids`."""
    array = as_array(name, value)
    if array.ndim == 1 and array.dtype in (np.int32, np.int64):
        return np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    return node_ids(name, array, num_nodes)


def node_ids(name: str, value: Any, num_nodes: int, remedy: str = RENUMBER) -> np.ndarray:
    """`value` as int32 `[n]`, each in `[0, num_nodes)`; raises `InputError`."""
    array = as_array(name, value)
    if fits(array, "integers [n]"):
        # Before narrowing, so that no id wraps around.
        check_range(f"{name} must be node ids", array, num_nodes, remedy)
    return integers(name, array, np.int32)
