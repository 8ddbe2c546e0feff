"""Nodes of a type: ids that count from 0 in the type, and ids of the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, Schema
from jgs.train.evaluation.edges import check_nodes


def schema_of(graph: Graph, own_ids: np.ndarray | None) -> Schema | None:
    """The schema for the ids of the data set of `graph`, whose parts have other ids, `own_ids`,
    if the graph is partitioned: in the data set the nodes of each type are one range."""
    schema = graph.schema
    if schema is None or own_ids is None:
        return schema
    return Schema(schema.node_types, schema.relations)


def ids_of(
    schema: Schema | None, num_nodes: int, nodes: Any = None, node_type: str | None = None
) -> np.ndarray:
    """int32 `[n]`: the ids in the graph of `nodes`, int `[n]`, by default all. With a node type
    they are nodes of this type, and count from 0 in it. Raises `InputError`."""
    if node_type is None:
        if nodes is None:
            return np.arange(num_nodes, dtype=np.int32)
        return check_nodes(nodes, 0, num_nodes)
    if schema is None:
        raise InputError(
            "a node type must be for a graph with node types",
            f"{node_type!r} for a graph without",
            "Leave it out.",
        )
    every = np.concatenate([np.array(r, np.int32) for r in schema.ranges(node_type)])
    return every if nodes is None else every[check_nodes(nodes, 0, every.size)]


def named(schema: Schema, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The name of the type of each of the nodes `ids`, text `[n]`, and its id in this type,
    int32 `[n]`."""
    kind, place = schema.type_and_place(ids)
    names = np.array([name for name, _ in schema.node_types] or [""])
    return names[np.asarray(kind)], np.asarray(place, np.int32)


def check_ends(schema: Schema | None, relation: int | None, pairs: np.ndarray) -> None:
    """Raises `InputError` unless the pairs `[n, 2]`, ids of the graph of `schema`, are from the
    source type of the relation of this number to its target type."""
    if schema is None or relation is None:
        return
    source, name, target = schema.relations[relation]
    wanted = [schema.number(source), schema.number(target)]
    kinds = np.asarray(schema.numbers(pairs.reshape(-1))).reshape(-1, 2)
    wrong = (kinds != wanted).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        src, dst = (schema.node_types[kind][0] for kind in kinds[row])
        raise InputError(
            f"pairs for the relation {name} must be of types {source} and {target}",
            f"pair {row}, of {src} and {dst}",
            "Give such pairs, or name another relation.",
        )
