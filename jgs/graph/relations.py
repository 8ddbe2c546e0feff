"""The edges of a typed graph, made of relations whose ids count within each node type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph.arrays import TAKEN
from jgs.graph.checks import check_columns, check_paired, check_times, node_ids
from jgs.graph.schema import Relation, Schema
from jgs.graph.weights import check_weights


def typed_edges(
    num_nodes: Mapping[str, int],
    edges: Mapping[Relation, Any],
    edge_weight: Mapping[Relation, Any] | None,
    edge_columns: Mapping[Relation, Mapping[str, Any]] | None,
    edge_time: Mapping[Relation, Any] | None,
    both_ways: bool,
) -> tuple[Any, Any, Any, Any, dict[str, Any], Any, Schema]:
    """What `Graph.from_relations` makes a graph of, with ids of the graph: `src` and `dst`
    int32 `[E]`, `edge_type` int16 `[E]`, ascending, `edge_weight` float32 `[E]` or None, the
    edge columns `[E, ...]` by name, `edge_time` int64 `[E]` or None, and the schema."""
    for what, value in (("num_nodes", num_nodes), ("edges", edges)):
        if not isinstance(value, Mapping):
            raise InputError(
                f"{what} must be a dict", f"a {type(value).__name__}", "Give one by name."
            )
    schema = Schema(tuple(num_nodes.items()), tuple(edges))
    relations = schema.relations
    if both_ways:
        reverse = tuple((b, f"rev_{name}", a) for a, name, b in relations)
        schema = Schema(schema.node_types, relations + reverse)
    ends = [_ends(schema, relation, edges[relation]) for relation in relations]
    weights = None if edge_weight is None else _weights(edge_weight, relations, ends)
    columns = _columns({} if edge_columns is None else edge_columns, relations, ends)
    times = None if edge_time is None else _times(edge_time, relations, ends)
    if both_ways:
        ends += [(dst, src) for src, dst in ends]
        weights = None if weights is None else weights * 2
        columns = {name: arrays * 2 for name, arrays in columns.items()}
        times = None if times is None else times * 2
    counts = [src.size for src, _ in ends]
    nothing = np.empty(0, np.int32)
    return (
        np.concatenate([nothing, *(src for src, _ in ends)]),
        np.concatenate([nothing, *(dst for _, dst in ends)]),
        np.repeat(np.arange(len(ends), dtype=np.int16), counts),
        None if weights is None else np.concatenate([np.empty(0, np.float32), *weights]),
        {name: np.concatenate(arrays) for name, arrays in columns.items()},
        None if times is None else np.concatenate([np.empty(0, np.int64), *times]),
        schema,
    )


def _ends(schema: Schema, relation: Relation, given: Any) -> tuple[np.ndarray, np.ndarray]:
    """The sources and the targets of a relation as ids of the graph."""
    label = f"of ({', '.join(relation)})"
    try:
        src, dst = given
    except (TypeError, ValueError):
        raise InputError(
            f"the edges {label} must be a pair (sources, targets)",
            f"a {type(given).__name__}",
            "Give two arrays of node ids, which count from 0 in each type.",
        ) from None
    sources, targets = schema.nodes(relation[0]), schema.nodes(relation[2])
    src = node_ids(f"src {label}", src, len(sources)) + np.int32(sources.start)
    dst = node_ids(f"dst {label}", dst, len(targets)) + np.int32(targets.start)
    check_paired(f"src and dst {label}", src, dst)
    return src, dst


def _weights(given: Mapping, relations: tuple, ends: list) -> list[np.ndarray]:
    """The weights of each relation's edges; 1 where none are given."""
    _check_keys("edge_weight", given, relations)
    return [
        check_weights(given.get(relation, np.ones(src.size)), src.size)
        for relation, (src, _) in zip(relations, ends, strict=True)
    ]


def _columns(given: Mapping, relations: tuple, ends: list) -> dict[str, list[np.ndarray]]:
    """The columns of each relation's edges, by name."""
    _check_keys("edge_columns", given, relations)
    found = [
        check_columns(given.get(relation), src.size, TAKEN)
        for relation, (src, _) in zip(relations, ends, strict=True)
    ]
    names = set().union(*found)
    for relation, columns in zip(relations, found, strict=True):
        if missing := sorted(names - set(columns)):
            raise InputError(
                "either all relations must have an edge column or none",
                f"no {missing[0]!r} for ({', '.join(relation)})",
                "Give each relation an array of that name in edge_columns.",
            )
    return {name: [columns[name] for columns in found] for name in (found or [{}])[0]}


def _times(given: Mapping, relations: tuple, ends: list) -> list[np.ndarray]:
    """The times of each relation's edges."""
    _check_keys("edge_time", given, relations)
    if missing := [relation for relation in relations if relation not in given]:
        raise InputError(
            "either all relations must have times or none",
            f"none for ({', '.join(missing[0])})",
            "Give each relation an array in edge_time.",
        )
    return [
        check_times(given[one], src.size) for one, (src, _) in zip(relations, ends, strict=True)
    ]


def _check_keys(name: str, given: Any, relations: tuple) -> None:
    if not isinstance(given, Mapping) or not set(given) <= set(relations):
        wrong = sorted(set(given) - set(relations)) if isinstance(given, Mapping) else given
        raise InputError(
            f"{name} must be a dict by relations of the edges",
            repr(wrong),
            "Correct its keys.",
        )
