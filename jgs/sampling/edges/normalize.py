"""GraphSAINT's normalisation: how often each node and edge is in a sampled subgraph."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.rows import positions_in, row_lengths
from jgs.sampling.capacity import Capacities, Capacity, num_threads
from jgs.sampling.edges.random import fold_each
from jgs.settings import exact_integers

_KEY_DATA = np.zeros(2, np.uint32)  # the key of these subgraphs; batches have other keys


class Coefficients(NamedTuple):
    """Factors that make sums over a subgraph estimates of sums over the graph. They come from
    `T` sampled subgraphs: `C[v]` of them had the node `v`, and `C[u, v]` the edge from `u` to
    `v`. What was in none counts as if it had been in one.

    Fields:
      nodes: float32 `[N]`, `T / C[v]`: one over the probability that `v` is in a subgraph.
        Times the batch's share of all seeds it weighs the loss of a seed, so that the mean over
        a batch estimates the mean over all seeds (section 3.2, equation 3).
      edges: float32 `[E]`, `C[v] / C[u, v] / d[v]`, where `d` is the in-degree, times the
        graph's edge weight if asked for. Times the number of the row's edges in a block it is
        the block's `edge_weight`. So `aggregate(block, x, "mean")` estimates the mean over all
        neighbours of `v`, given that `v` was drawn (equation 2, with `alpha = C[u, v] / C[v]`).
    """

    nodes: jax.Array
    edges: jax.Array


def estimate(
    draw: Callable[[jax.Array, Graph, Any, Capacity], list[Any]],
    graph: Graph,
    state: Any,
    edge_weight: Any,
    bound: Capacity,
    error: float,
) -> Coefficients:
    """The coefficients, times `edge_weight` if it is given. Subgraphs are drawn until the
    relative standard error of a node's count, for the mean count of all nodes, is at most
    `error`. Their keys are always the same. `draw(key_data, graph, state, capacity)` is traced
    under x64, and returns a `jgs.sampling.subgraphs.DrawnSubgraph` for each key `[S, 2]`; none
    exceeds the `bound`."""
    began, enough = time.perf_counter(), math.ceil(graph.num_nodes / error**2)
    in_nodes = np.zeros(graph.num_nodes, np.int32)
    in_edges = np.zeros(graph.num_edges, np.int32)
    program, capacities = jax.jit(draw, static_argnums=3), Capacities.modest(bound)

    def attempt(capacity: Capacity, key_data: np.ndarray) -> tuple[list[Any], bool]:
        with exact_integers(), kernels.this_host_only():
            drawn = program(key_data, graph, state, capacity)
        return drawn, bool((_most(drawn) > np.array(capacity)).any())

    num_drawn, total, level = 0, 0, 0
    while total < enough:
        key_data = fold_each(_KEY_DATA, num_drawn + np.arange(num_threads()))
        drawn, level = capacities.fit(partial(attempt, key_data=key_data), level)
        for subgraph in drawn:
            if total >= enough:
                break
            count, num_edges = int(subgraph.num_nodes), int(subgraph.needed)
            if count == 0:
                raise InputError(
                    "a subgraph must have nodes to be normalised by",
                    "none",
                    "Draw more nodes, or none of this.",
                )
            in_nodes[np.asarray(subgraph.nodes)[:count]] += 1
            in_edges[np.asarray(subgraph.block.edge_id)[:num_edges]] += 1
            total, num_drawn = total + count, num_drawn + 1
        if num_drawn <= len(drawn):  # the first subgraphs show how large a capacity is needed
            capacities, level = capacities.with_margin(_most(drawn), 0.2), 0
    logging.getLogger("jgs").info(
        "normalisation estimated from %d subgraphs in %.1f s",
        num_drawn,
        time.perf_counter() - began,
    )
    indptr, edges = np.asarray(graph.indptr), np.zeros(graph.num_edges, np.float32)
    degree, at_least = row_lengths(indptr), np.maximum(in_nodes, 1).astype(np.float32)
    where = positions_in(*indptr[:, :-1]) if graph.has_room else slice(None)
    edges[where] = np.repeat(at_least / np.maximum(degree, 1).astype(np.float32), degree)
    edges /= np.maximum(in_edges, 1, out=in_edges)
    if edge_weight is not None:
        edges *= np.asarray(edge_weight)
    return Coefficients(jnp.asarray(num_drawn / at_least), jnp.asarray(edges))


def _most(drawn: list[Any]) -> np.ndarray:
    """int `[2, 1]`: the most edges and the most nodes that a subgraph needed, as in a
    `Capacity`."""
    return np.array([[[int(d.needed)], [int(d.num_nodes)]] for d in drawn]).max(axis=0)
