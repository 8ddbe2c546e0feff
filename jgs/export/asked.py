"""What a request asks for: nodes or pairs, their relation and their moments; checked."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from jgs.arrays import described
from jgs.data.column_values import moments
from jgs.data.values import check_pairs, nodes_of
from jgs.errors import InputError
from jgs.export.spec import Spec
from jgs.graph import Schema
from jgs.graph.checks import node_ids


def ids_below(name: str, value: Any, total: int) -> np.ndarray:
    """`value`, called `name`, as int32 `[n]`, ids of `total` nodes. Raises `InputError`."""
    value = np.empty(0, np.int32) if isinstance(value, list) and not value else value
    return node_ids(name, value, total, "Give ids of the graph's nodes, or of new ones.")


def nodes_asked(
    spec: Spec, schema: Schema | None, nodes: Any, total: int, node_type: str | None
) -> np.ndarray:
    """int32 `[n]`: ids of `total` nodes, or of one type, where they count from 0. Raises
    `InputError`."""
    if node_type is None:
        return ids_below("nodes", np.arange(total) if nodes is None else nodes, total)
    if schema is None:
        refuse_untaken("node_type", "a graph with node types", spec)
    every = nodes_of(schema, node_type)
    return every if nodes is None else every[ids_below("nodes", nodes, every.size)]


def pairs_asked(
    schema: Schema | None, pairs: Any, total: int, relation: int | None
) -> np.ndarray:
    """int32 `[n, 2]`: pairs of nodes, of the types of their relation. Raises `InputError`."""
    try:
        array = np.asarray(pairs)
    except ValueError:  # ragged
        array = np.empty(0)
    array = np.zeros((0, 2), np.int32) if array.shape == (0,) else array
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InputError(
            "pairs must be integers [n, 2], a source and a target each",
            described(array),
            "Give both ends of each pair.",
        )
    ids = ids_below("pairs", array.reshape(-1), total).reshape(-1, 2)
    if relation is not None and schema is not None:
        check_pairs(schema, ids, relation)
    return ids


def relation_asked(spec: Spec, schema: Schema | None, relation: str | None) -> int | None:
    """The number of the relation of pairs, by default the learned one. Raises `InputError`."""
    if relation is not None:
        if spec.pairs is None or schema is None:
            refuse_untaken("relation", "pairs with relations", spec)
        return schema.relation(relation)
    if spec.pairs is not None and spec.pairs["named"]:
        names = [] if schema is None else [name for _, name, _ in schema.relations]
        raise InputError(
            "the relation of the pairs must be named",
            "none",
            f"Give one of {', '.join(names)}.",
        )
    return None if spec.pairs is None else spec.pairs["relation"]


def moments_asked(spec: Spec, time: Any, num: int) -> np.ndarray | None:
    """int64 `[num]`: the moment of each row, or None of a model without times. Raises
    `InputError`."""
    if not spec.timed:
        if time is not None:
            refuse_untaken("time", "rows at moments", spec)
        return None
    return moments("nodes and pairs of this model", time, num, spec.time_unit)


def refuse_untaken(name: str, taker: str, spec: Spec) -> NoReturn:
    raise InputError(
        f"{name} must be for a model of {taker}",
        f"--task {spec.task} --model {spec.model}" + " with times" * spec.timed,
        "Leave it out.",
    )
