"""Typed features as one matrix, for models that know no node types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy

from jgs.data.dataset import Dataset, Plain
from jgs.errors import InputError, nearest
from jgs.graph import TypedFeatures, as_device
from jgs.graph.row_tables.table import as_table, of_host

CHOICES = ("typed", "padded")
_Data = TypeVar("_Data", Dataset, Plain)


def without_types(data: _Data) -> _Data:
    """The data set with its features as one matrix; `data` itself if they are one already.
    Raises `InputError` as `padded` does."""
    if not isinstance(data.features, TypedFeatures):
        return data
    made = padded(data.name, data.features)
    return (
        data._replace(features=made)
        if isinstance(data, Plain)
        else replace(data, features=made)
    )


def as_chosen(name: str, features: TypedFeatures, choice: str) -> Any:
    """The features as a reader's option `features` asks: "typed", as they are, or "padded".
    Raises `InputError`."""
    if choice not in CHOICES:
        raise InputError(
            f"the option features of {name} must be {' or '.join(CHOICES)}",
            repr(choice),
            nearest(choice, CHOICES),
        )
    return features if choice == "typed" else padded(name, features)


def padded(name: str, features: TypedFeatures) -> Any:
    """The features of all nodes in one matrix `[N, F]`, in the order of their ids. The nodes of
    types without features have rows of zeros.

    It is a `jax.Array` float32 or float16 if all tables are dense, and else `SparseFeatures`.
    The matrix is a copy. Raises `InputError` unless all types that have features have equally
    many.
    """
    schema = features.schema
    widths = {
        kind: table.shape[1]
        for (kind, _), table in zip(schema.node_types, features.tables, strict=True)
        if table is not None
    }
    if len(set(widths.values())) > 1:
        raise InputError(
            f"all node types of {name} that have features must have equally many for a model "
            "that knows no types",
            ", ".join(f"{kind} {width}" for kind, width in widths.items()),
            "Choose a model of typed graphs, or write the features of one type only.",
        )
    width = max(widths.values(), default=0)
    used: dict[str, int] = {}  # how many rows of each table are placed
    pieces = []
    parts = schema.parts or (tuple(count for _, count in schema.node_types),)
    tables = [None if table is None else as_table(table) for table in features.tables]
    sparse = any(table is not None and table.by_entries for table in tables)
    for part in parts:
        for (kind, _), count, table in zip(schema.node_types, part, tables, strict=True):
            first = used.get(kind, 0)
            used[kind] = first + count
            pieces.append(_rows(table, first, first + count, width, sparse))
    if sparse:
        return of_host(scipy.sparse.vstack(pieces, format="csr"))
    kinds = {table.kind for table in tables if table is not None}
    dtype = np.float16 if kinds == {"float16"} else np.float32
    nothing = np.empty((0, width), dtype)
    return as_device(np.concatenate([nothing, *(p.astype(dtype, copy=False) for p in pieces)]))


def _rows(table: Any, first: int, stop: int, width: int, sparse: bool) -> Any:
    """The rows `[first, stop)` of a table, or as many rows of zeros for None."""
    if table is not None and table.by_entries:
        return scipy.sparse.csr_matrix(table.host()[first:stop])
    empty = np.zeros((stop - first, width), np.float16)
    rows = empty if table is None else table.numbers(slice(first, stop))
    return scipy.sparse.csr_matrix(rows.astype(np.float32)) if sparse else rows
