"""What a data set has by node type: features with a table for each type, and labels and splits
that are given for the nodes of one. Features without types are those of one type, `""`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import scipy

from jgs.arrays import require_array
from jgs.data.label_values import are_numbers
from jgs.data.values import normalized
from jgs.errors import InputError, nearest
from jgs.graph import Graph, Schema, TypedFeatures, as_device
from jgs.graph.device import as_numpy
from jgs.graph.row_tables.table import RowTable, as_table, of_host, plain

_Data = TypeVar("_Data", bound=Any)


def schema_of(name: str, graph: Graph) -> Schema:
    """The schema of the graph of the data set `name`. Raises `InputError` if it has none."""
    if graph.schema is None:
        raise InputError(
            f"features and labels of {name} by node type must be for a graph with a schema",
            "a graph without node types",
            "Give arrays for all nodes, or make the graph with Graph.from_relations.",
        )
    return graph.schema


def nodes_of(schema: Schema, node_type: str) -> np.ndarray:
    """int32: the ids of the nodes of a type, ascending. Raises `InputError`."""
    ranges = schema.ranges(node_type)
    return np.concatenate([np.arange(r.start, r.stop, dtype=np.int32) for r in ranges])


def labels_of_all(
    name: str, labels: np.ndarray, nodes: np.ndarray, num_nodes: int
) -> np.ndarray:
    """The labels of all nodes, of those of some `nodes`. Other nodes have -1, NaN among
    numbers, or zeros where a node can have several labels. Raises `InputError`."""
    form = "[n] or [n, C], one for every node of their type"
    remedy = "Give a label for every node, -1 where there is none."
    require_array(f"the labels of {name}", labels, form, remedy, n=nodes.size)
    none = np.nan if are_numbers(labels) else 0 if labels.ndim == 2 else -1
    every = np.full((num_nodes, *labels.shape[1:]), none, labels.dtype)
    every[nodes] = labels
    return every


def typed_features(
    name: str, features: Any, schema: Schema, normalize_features: bool = False
) -> TypedFeatures:
    """`features`, a dict by node type or `TypedFeatures`, for the nodes of `schema`. Raises
    `InputError`."""
    if isinstance(features, Mapping):
        given = {
            kind: table
            if table is None or isinstance(table, RowTable) or hasattr(table, "tocsr")
            else as_numpy(table)
            for kind, table in features.items()
        }
        made = TypedFeatures.from_dict(schema, given)
    else:
        if features.schema != schema.without_relations():
            raise InputError(
                f"the features of {name} must have the node types of its graph",
                f"{features.schema.node_types} for {schema.node_types}",
                "Make them with TypedFeatures.from_dict(graph.schema, ...).",
            )
        made = features
    if not normalize_features:
        return made
    return made.changed(lambda table: of_host(normalized(name, table.host())))


def check_features(name: str, features: Any, graph: Graph, values: bool) -> None:
    """Raises `InputError` unless the features, or those of each node type that has some, have a
    row for every node, and an allowed dtype; with `values` also finite numbers."""
    own, counts = as_table(features), {"": graph.num_nodes}
    if own.schema is not None:
        schema = schema_of(name, graph)
        typed_features(name, features, schema)
        counts = dict(schema.node_types)
    for kind, table in own.by_type.items():
        if table is None:
            continue
        what = f"the features of {f'{kind} in ' * bool(kind)}{name}"
        remedy = "Give the missing rows, remove those too many, or correct the number of nodes."
        form = "[N, F], one row for every node"
        require_array(what, plain(table), form, remedy, N=counts[kind])
        table.check_dtype(what)
        if values:
            table.check_values(what)


def without_types(data: _Data) -> _Data:
    """The `Dataset` or `Plain` with its features as one matrix; `data` itself if they are one
    already. Raises `InputError` as `padded` does."""
    if data.features is None or as_table(data.features).schema is None:
        return data
    made = padded(data.name, data.features)
    is_tuple = isinstance(data, tuple)  # a `Plain`
    return data._replace(features=made) if is_tuple else replace(data, features=made)


def as_chosen(data: _Data, choice: str) -> _Data:
    """The `Dataset` or `Plain` with its features as a reader's option `features` asks: "typed",
    as they are, or "padded" to one matrix. Raises `InputError`."""
    if choice not in (choices := ("typed", "padded")):
        rule = f"the option features of {data.name} must be {' or '.join(choices)}"
        raise InputError(rule, repr(choice), nearest(choice, choices))
    return data if choice == "typed" else without_types(data)


def padded(name: str, features: TypedFeatures) -> Any:
    """The features of all nodes in one matrix `[N, F]`, in the order of their ids. The nodes of
    types without features have rows of zeros.

    It is a `jax.Array` float32 or float16 if all tables are dense, and else `SparseFeatures`.
    The matrix is a copy. Raises `InputError` unless all types that have features have equally
    many.
    """
    schema, tables = features.schema, features.by_type
    widths = {kind: table.shape[1] for kind, table in tables.items() if table is not None}
    if len(set(widths.values())) > 1:
        raise InputError(
            f"all node types of {name} that have features must have equally many for a model "
            "that knows no types",
            ", ".join(f"{kind} {width}" for kind, width in widths.items()),
            "Choose a model of typed graphs, or write the features of one type only.",
        )
    width = max(widths.values(), default=0)
    sparse = any(table is not None and table.by_entries for table in tables.values())
    used = dict.fromkeys(tables, 0)  # how many rows of each table are placed
    pieces = []
    for part in schema.parts or (tuple(count for _, count in schema.node_types),):
        for (kind, table), count in zip(tables.items(), part, strict=True):
            pieces.append(_rows(table, used[kind], used[kind] + count, width, sparse))
            used[kind] += count
    if sparse:
        return of_host(scipy.sparse.vstack(pieces, format="csr"))
    kinds = {table.kind for table in tables.values() if table is not None}
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
