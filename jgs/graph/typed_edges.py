"""The edges of a typed graph, made of relations whose ids count within each node type."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np

from jgs.arrays import aligned_empty
from jgs.errors import InputError
from jgs.graph import checks
from jgs.graph.arrays import TAKEN
from jgs.graph.grouping import threads
from jgs.graph.schema import ALWAYS, Relation, Schema, times_of_types
from jgs.graph.weights import check_weights

_AT_ONCE = 1 << 20  # edges that a thread copies at a time


def typed_edges(
    num_nodes: Mapping[str, int],
    edges: Mapping[Relation, Any],
    edge_weight: Mapping[Relation, Any] | None,
    edge_columns: Mapping[Relation, Mapping[str, Any]] | None,
    edge_time: Mapping[Relation, Any] | None,
    node_time: Mapping[str, Any] | None,
    both_ways: bool,
) -> tuple[np.ndarray, np.ndarray, dict[str, Any], dict[str, Any], np.ndarray | None, Schema]:
    """What `Graph.from_relations` makes a graph of: `src` and `dst` int32 `[E]`, ids of the
    graph; by name the fields `edge_type`, ascending, `edge_weight` and `edge_time`, `[E]` or
    None; the edge columns `[E, ...]` by name; the times of nodes int64 `[N]`; the schema."""
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
    sizes = {one: src.size for one, (src, _) in zip(relations, ends, strict=True)}
    weights = _each("edge_weight", edge_weight, sizes, check_weights, lambda _, n: np.ones(n))
    times = _each("edge_time", edge_time, sizes, checks.check_times, _no_times)
    columns = _columns({} if edge_columns is None else edge_columns, sizes)
    born = None if node_time is None else times_of_types(schema, node_time)
    if born is not None:
        each = zip(relations, ends, times or [None] * len(ends), strict=True)
        times = [_times(*one, born, node_time or ()) for one in each]
    if both_ways:
        ends += [(dst, src) for src, dst in ends]
        weights, times = weights and weights * 2, times and times * 2
        columns = {name: arrays * 2 for name, arrays in columns.items()}
    numbers = [np.broadcast_to(np.int16(i), src.shape) for i, (src, _) in enumerate(ends)]
    fields = {
        "edge_type": _joined(numbers, np.int16) if ends else None,
        "edge_weight": None if weights is None else _joined(weights, np.float32),
        "edge_time": None if times is None else _joined(times, np.int64),
    }
    src, dst = (_joined([each[end] for each in ends], np.int32) for end in (0, 1))
    joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    return src, dst, fields, joined, born, schema


def _joined(arrays: list, dtype: type) -> np.ndarray:
    """One array after the other, copied on all cores: touching new pages takes the time."""
    ends = np.cumsum([0, *(array.size for array in arrays)]).tolist()
    out = aligned_empty(ends[-1], np.result_type(dtype, *arrays))
    pieces = [
        (first + begin, array[begin : begin + _AT_ONCE])
        for first, array in zip(ends, arrays, strict=False)
        for begin in range(0, array.size, _AT_ONCE)
    ]

    def put(piece: tuple[int, np.ndarray]) -> None:
        at, part = piece
        out[at : at + part.size] = part

    with threads(len(pieces)) as run:
        for _ in run(put, pieces):
            pass
    return out


def _ends(schema: Schema, relation: Relation, given: Any) -> tuple[np.ndarray, np.ndarray]:
    label = f"of ({', '.join(relation)})"
    try:
        src, dst = given
    except (TypeError, ValueError):
        raise InputError(
            f"the edges {label} must be a pair (sources, targets)",
            f"a {type(given).__name__}",
            "Give two arrays of node ids, which count from 0 in each type.",
        ) from None
    return ends_of(schema, relation, src, dst, f" {label}")


def ends_of(
    schema: Schema, relation: Relation, src: Any, dst: Any, label: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """`src` and `dst`, which count from 0 in the types of the relation, as ids of the graph,
    int32 `[n]`. The `label` is what errors add to their names. Raises `InputError`."""
    sources, targets = schema.nodes(relation[0]), schema.nodes(relation[2])
    src = checks.node_ids(f"src{label}", src, len(sources)) + np.int32(sources.start)
    dst = checks.node_ids(f"dst{label}", dst, len(targets)) + np.int32(targets.start)
    checks.check_paired(f"src and dst{label}", src, dst)
    return src, dst


def _each(name: str, given: Any, sizes: dict[Relation, int], check: Any, default: Any) -> Any:
    """What `check` makes of each relation's entry, which is `default`'s where it is left out,
    and of its number of edges; None for None."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or not set(given) <= set(sizes):
        wrong = sorted(set(given) - set(sizes)) if isinstance(given, Mapping) else given
        raise InputError(
            f"{name} must be a dict by relations of the edges", repr(wrong), "Correct its keys."
        )
    entries = ((given[r] if r in given else default(r, n), n) for r, n in sizes.items())
    return [check(*entry) for entry in entries]


def _columns(given: Any, sizes: dict[Relation, int]) -> dict[str, list[np.ndarray]]:
    check = partial(checks.check_columns, taken=TAKEN)
    found = _each("edge_columns", given, sizes, check, lambda *_: None)
    names = set().union(*found)
    for relation, columns in zip(sizes, found, strict=True):
        if missing := sorted(names - set(columns)):
            raise InputError(
                "either all relations must have an edge column or none",
                f"no {missing[0]!r} for ({', '.join(relation)})",
                "Give each relation an array of that name in edge_columns.",
            )
    return {name: [columns[name] for columns in found] for name in (found or [{}])[0]}


def _times(
    relation: Relation,
    pair: tuple[np.ndarray, np.ndarray],
    given: np.ndarray | None,
    born: np.ndarray,
    timed: Container[str],
) -> np.ndarray:
    """int64 `[n]`: the times of a relation's edges, of which ends of types that are not `timed`
    tell nothing."""
    types = (relation[0], relation[2])
    ends = [ids for ids, name in zip(pair, types, strict=True) if name in timed]
    if given is None and not ends:
        return np.full(pair[0].size, ALWAYS)
    return checks.times_with_nodes(given, born, *ends)


def _no_times(relation: Relation, _: int) -> NoReturn:
    raise InputError(
        "either all relations must have times or none",
        f"none for ({', '.join(relation)})",
        "Give each relation an array in edge_time.",
    )
