"""Times of edges and of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph.checks import check_node_time
from jgs.graph.schema import Schema

ALWAYS = np.iinfo(np.int64).min  # the time of a node that has always existed


def times_with_nodes(
    edge_time: np.ndarray | None, node_time: np.ndarray, src: np.ndarray, dst: np.ndarray
) -> np.ndarray:
    """int64 `[E]`: the time of each edge, or that of the later one of its ends, `node_time`
    int64 `[N]`, if that is later."""
    both = np.maximum(node_time[src], node_time[dst])
    return both if edge_time is None else np.maximum(both, edge_time)


def times_of_types(schema: Schema, given: Mapping[str, Any]) -> np.ndarray:
    """int64 `[N]`: the times of the nodes of each type, by its name; raises `InputError`."""
    names = [name for name, _ in schema.node_types]
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        wrong = (
            sorted(set(given) - set(names), key=str) if isinstance(given, Mapping) else given
        )
        raise InputError(
            "node_time must be a dict by node types",
            repr(wrong),
            f"Choose among {', '.join(names)}.",
        )
    times: np.ndarray = np.full(schema.num_nodes, ALWAYS)
    for name, value in given.items():
        nodes = schema.nodes(name)
        times[nodes.start : nodes.stop] = check_node_time(value, len(nodes))
    return times
