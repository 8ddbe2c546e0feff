"""A data set's arrays where the graph has node types: labels and splits that are given for the
nodes of one type, and features with a table for each type; and the check of all features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.label_values import are_numbers, as_labels
from jgs.data.values import as_ids, normalized, split_ids
from jgs.errors import InputError
from jgs.graph import Graph, Schema, TypedFeatures
from jgs.graph.device import as_numpy
from jgs.graph.row_tables.table import RowTable, as_table, of_host


def schema_of(name: str, graph: Graph) -> Schema:
    """The schema of the graph of the data set `name`. Raises `InputError` if it has none."""
    if graph.schema is None:
        raise InputError(
            f"features and labels of {name} by node type must be for a graph with a schema",
            "a graph without node types",
            "Give arrays for all nodes, or make the graph with Graph.from_relations.",
        )
    return graph.schema


def only_type(name: str, labels: Mapping[str, Any]) -> str:
    """The node type that has labels. Raises `InputError` unless it is one."""
    if len(labels) != 1:
        raise InputError(
            f"labels of {name} by node type must be for one type",
            ", ".join(map(repr, labels)) or "none",
            "Give {'paper': labels}.",
        )
    return next(iter(labels))


def nodes_of(schema: Schema, node_type: str) -> np.ndarray:
    """int32: the ids of the nodes of a type, ascending. Raises `InputError`."""
    ranges = schema.ranges(node_type)
    return np.concatenate([np.arange(r.start, r.stop, dtype=np.int32) for r in ranges])


def labels_of_type(
    name: str, labels: Any, schema: Schema, node_type: str, kind: str | None = None
) -> np.ndarray:
    """The labels of all nodes, of those of the nodes of a type. Other nodes have -1, NaN among
    numbers, or zeros where a node can have several labels. Raises `InputError`."""
    labels, nodes = as_labels(name, labels, kind), nodes_of(schema, node_type)
    form = "[n] or [n, C], one for every node of their type"
    remedy = "Give a label for every node, -1 where there is none."
    require_array(f"the labels of {name}", labels, form, remedy, n=nodes.size)
    none = np.nan if are_numbers(labels) else 0 if labels.ndim == 2 else -1
    every = np.full((schema.num_nodes, *labels.shape[1:]), none, labels.dtype)
    every[nodes] = labels
    return every


def splits_of_type(name: str, splits: Any, nodes: np.ndarray) -> list[np.ndarray]:
    """The node ids of each split that `splits` gives by the places within `nodes`. Raises
    `InputError`."""
    within = zip(("train", "val", "test"), split_ids(name, splits, nodes.size), strict=True)
    return [nodes[as_ids(name, split, ids, nodes.size)] for split, ids in within]


def typed_features(
    name: str, features: Any, schema: Schema, normalize_features: bool = False
) -> TypedFeatures:
    """`features`, a dict by node type or `TypedFeatures`, for the nodes of `schema`. Raises
    `InputError`."""
    if isinstance(features, TypedFeatures):
        if features.schema != schema.without_relations():
            raise InputError(
                f"the features of {name} must have the node types of its graph",
                f"{features.schema.node_types} for {schema.node_types}",
                "Make them with TypedFeatures.from_dict(graph.schema, ...).",
            )
        made = features
    else:
        given = {k: t if _is_table(t) else as_numpy(t) for k, t in features.items()}
        made = TypedFeatures.from_dict(schema, given)
    if not normalize_features:
        return made
    tables = [None if table is None else _normalized(name, table) for table in made.tables]
    return TypedFeatures(tuple(tables), made.schema)


def _is_table(table: Any) -> bool:
    return table is None or isinstance(table, RowTable) or hasattr(table, "tocsr")


def _normalized(name: str, table: Any) -> Any:
    return of_host(normalized(name, as_table(table).host()))


def check_features(name: str, features: Any, graph: Graph, values: bool) -> None:
    """Raises `InputError` unless the features have a row for every node of the graph, and an
    allowed dtype; with `values` also finite numbers."""
    if isinstance(features, TypedFeatures):
        check_typed(name, features, graph, values)
    else:
        _check_table(name, features, graph.num_nodes, values)


def check_typed(name: str, features: TypedFeatures, graph: Graph, values: bool) -> None:
    """Raises `InputError` unless each node type of the graph has its table or none, of the
    right number of rows and dtype; with `values` also of finite numbers."""
    schema = schema_of(name, graph)
    typed_features(name, features, schema)
    for (kind, count), table in zip(schema.node_types, features.tables, strict=True):
        if table is not None:
            _check_table(f"{kind} in {name}", table, count, values)


def _check_table(name: str, table: Any, num_nodes: int, values: bool) -> None:
    what, form = f"the features of {name}", "[N, F], one row for every node"
    remedy = "Give the missing rows, remove those too many, or correct the number of nodes."
    require_array(what, table, form, remedy, N=num_nodes)
    as_table(table).check_dtype(what)
    if values:
        as_table(table).check_values(what)


def shown_features(features: Any) -> str:
    """The widths of features, as "1,433 sparse", or by node type: "user 3, shop none"."""
    return "none" if features is None else as_table(features).shown_widths()
