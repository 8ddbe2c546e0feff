"""Orders of a graph's nodes in which what is read together lies together."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from jgs.errors import InputError, check_choice
from jgs.graph import checks
from jgs.graph.rows import neighbor_counts
from jgs.graph.schema import Schema

ORDERS = ("degree", "rcm")


def nodes_in_order(graph: Any, order: Any) -> np.ndarray:
    """int32 `[N]`: the nodes in an order that `Graph.reordered` takes. Raises `InputError`."""
    if not isinstance(order, str):
        return _checked(order, graph)
    check_choice("order", order, ORDERS)
    if order == "degree":
        counts = neighbor_counts(np.asarray(graph.indices), graph.num_nodes)
        nodes = np.argsort(-counts.astype(np.int64), kind="stable")
    else:
        nodes = _cuthill_mckee(graph)
    return _by_type(nodes, graph.schema).astype(np.int32)


def _cuthill_mckee(graph: Any) -> np.ndarray:
    """SciPy's reverse Cuthill-McKee order: neighbours get near numbers."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # a slow import

    if graph.num_edges >= 1 << 31:
        raise InputError(
            "a graph in the order rcm must have fewer than 2**31 edges",
            f"{graph.num_edges:,} edges",
            'Take order="degree", or give an order of your own.',
        )
    offsets, sources = (np.asarray(a).astype(np.int32) for a in (graph.indptr, graph.indices))
    shape = (graph.num_nodes, graph.num_nodes)
    rows = scipy.sparse.csr_array((np.ones(sources.size, bool), sources, offsets), shape)
    return reverse_cuthill_mckee(rows)


def _by_type(nodes: np.ndarray, schema: Schema | None) -> np.ndarray:
    """The nodes with those of each type together, for types are ranges of ids."""
    return nodes if schema is None else nodes[np.argsort(schema.numbers(nodes), kind="stable")]


def _checked(order: Any, graph: Any) -> np.ndarray:
    nodes = checks.integers("order", order, np.int32)
    if nodes.shape != (graph.num_nodes,) or (np.sort(nodes) != np.arange(nodes.size)).any():
        raise InputError(
            f"order must be {' or '.join(ORDERS)}, or each of {graph.num_nodes:,} nodes once",
            f"{nodes.size:,} numbers, {np.unique(nodes).size:,} of them distinct",
            "Give a permutation.",
        )
    if (_by_type(nodes, graph.schema) != nodes).any():
        raise InputError(
            "the nodes of a type must stay together, for types are ranges of ids",
            "an order that mixes types",
            "Order the nodes of each type among themselves.",
        )
    return nodes
