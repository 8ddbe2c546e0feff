"""`induced_subgraph` and its jittable forms for samplers: the edges among some nodes, as a
block. And GraphSAINT's normalisation: how often each node and edge is in a sampled subgraph."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Block, Graph
from jgs.graph.checks import check_distinct, first_fall
from jgs.graph.foreign import edge_targets
from jgs.graph.rows import positions_in, row_lengths
from jgs.kernels.call import call, or_empty, vary_alike, where_it_is
from jgs.sampling.capacity import Capacities, Capacity, num_threads, round_up
from jgs.sampling.checks import check_graph, check_seed_ids
from jgs.sampling.edges.columns import without_edges
from jgs.sampling.edges.eligible import rows_of
from jgs.sampling.edges.hops import call_once
from jgs.sampling.edges.random import fold_each
from jgs.sampling.edges.slots import fold_slots
from jgs.settings import exact_integers

_AT_ONCE = 1 << 15  # edges that the plain form reads at a time
_INT32_MAX = 2**31 - 1


class InducedArrays(NamedTuple):
    """The arrays of an induced block: `edge_id` and `edge_weight` are empty if they are not
    wanted. `needed`, int64, is the number of edges; the block is empty if they do not fit."""

    indptr: jax.Array
    indices: jax.Array
    edge_id: jax.Array
    edge_weight: jax.Array
    needed: jax.Array


class Wanted(NamedTuple):
    """The static part of the arguments of `induced_blocks`. `separate`: whether S blocks have
    separate arrays instead of common ones."""

    max_edges: int
    edge_ids: bool
    edge_weights: bool
    by_row: bool
    separate: bool


def induced_subgraph(graph: Graph, nodes: Any, *, sorted_rows: bool = False) -> Block:
    """The graph that `nodes` int `[R]`, distinct ids, induce: all edges of `graph` between two
    of them.

    With `sorted_rows` every row of the graph is sorted by source, as in `graph.sorted()`. A row
    much longer than `nodes` is then searched instead of read.

    Returns a square `Block` with `R` sources and targets, in the order of `nodes`, with
    `edge_id` and, if the graph has weights, `edge_weight`. The edges of a row keep the graph's
    order.

    The cost is that of reading the in-edges of `nodes`, whatever the size of the graph. This
    does not work inside `jax.jit`, because the block's size depends on the values; samplers of
    subgraphs are jittable. Raises `InputError` for an id that is not a node, for a repeated
    node, for 2^31 edges or more, and in a function that JAX traces.
    """
    check_graph(graph, False)
    if isinstance(nodes, jax.core.Tracer) or isinstance(graph.indptr, jax.core.Tracer):
        raise InputError(
            "the nodes of induced_subgraph must be known, for they decide the block's size",
            "a function that JAX traces",
            "Call it outside jax.jit, or use a sampler such as Subgraph, which has a capacity.",
        )
    nodes = check_seed_ids(nodes, graph.num_nodes)
    check_distinct("the nodes of a subgraph", nodes)
    groups = np.array([0, nodes.size], np.int32)
    # A first guess: in most graphs fewer than a third of the edges that are read are kept.
    with exact_integers():
        _, degrees = rows_of(graph.indptr, jnp.asarray(nodes))
    room = min(round_up(int(np.asarray(degrees).sum()) // 3 + (1 << 10)), _INT32_MAX)
    while True:
        block, needed = _whole(graph, nodes, groups, jnp.array(bool(sorted_rows)), room)
        if int(needed) <= room:
            return block
        if int(needed) > _INT32_MAX:
            raise InputError(
                "a subgraph must have fewer than 2**31 edges", int(needed), "Pass fewer nodes."
            )
        room = min(round_up(int(needed)), _INT32_MAX)


@partial(jax.jit, static_argnums=4)
def _whole(graph: Graph, nodes: Any, groups: Any, is_sorted: Any, room: int) -> Any:
    options = {"edge_ids": True, "edge_weight": graph.edge_weight, "is_sorted": is_sorted}
    with exact_integers():
        return induced_blocks(graph, nodes, groups, room, **options)[0]


def induced_blocks(
    graph: Graph,
    nodes: jax.Array,
    groups: jax.Array,
    max_edges: int,
    *,
    edge_ids: bool = False,
    edge_weight: jax.Array | None = None,
    by_row: bool = False,
    is_sorted: jax.Array | None = None,
    excluded: Sequence[jax.Array | None] = (),
) -> list[tuple[Block, jax.Array]]:
    """The edges among the nodes of each group, as one square block; traced under x64. For `S`
    lists of nodes there are `S` blocks. They share no array, so taking them apart copies
    nothing.

    Args:
      nodes: int32 `[R]` or `[S, R]`. If a node is twice in a group, each of its rows has its
        in-edges, and its first row is the source of its out-edges. `N` has no edges.
      groups: int32 `[G+1]` or `[S, G+1]`; group `g` has the rows `groups[g]:groups[g+1]`. Rows
        from `groups[G]` on are padding.
      max_edges: static int, a block's room for edges.
      edge_ids: whether a block has `edge_id`.
      edge_weight: float32 `[E]`, for the blocks' `edge_weight`; or None.
      by_row: whether each weight is multiplied by the number of edges in its row of the block.
      is_sorted: bool `[]`, whether the graph's rows are sorted by source (`rows_sorted`); long
        rows are then searched.
      excluded: for each list int64 `[X]`, the edges that its block does not have, or None.

    Returns for each list the block, which is empty if it does not fit, and int64, the number of
    edges needed, excluded ones included.
    """
    limited = any(one is not None for one in excluded)
    weighted, separate = edge_weight is not None, nodes.ndim == 2
    wanted = Wanted(
        max_edges, edge_ids or limited, weighted, weighted and by_row and not limited, separate
    )
    known = jnp.array(False) if is_sorted is None else is_sorted
    operands = (graph.indptr, graph.indices, or_empty(edge_weight), known)
    groups, operands, nodes = vary_alike(groups.astype(jnp.int32), operands, nodes)
    every = where_it_is(
        partial(_kernel, wanted), partial(_plain, wanted), groups, operands, nodes
    )
    made = []
    for i, arrays in enumerate(every):
        fits = arrays.needed <= max_edges
        num_rows = jnp.where(fits, groups[i, -1] if separate else groups[-1], 0)
        block = Block(
            indptr=arrays.indptr,
            indices=arrays.indices,
            num_targets=num_rows,
            num_sources=num_rows,
            num_edges=jnp.where(fits, arrays.needed, 0).astype(jnp.int32),
            edge_id=arrays.edge_id if wanted.edge_ids else None,
            edge_weight=arrays.edge_weight if wanted.edge_weights else None,
            source_capacity=arrays.indptr.shape[-1] - 1,
        )
        if limited:
            block = without_edges(block, excluded[i], graph.num_edges)
            if by_row and block.edge_weight is not None:
                block = replace(block, edge_weight=_by_row(block.edge_weight, block.indptr))
        made.append((block if edge_ids else replace(block, edge_id=None), arrays.needed))
    return made


def _by_row(weight: jax.Array, indptr: jax.Array) -> jax.Array:
    """The weight `[E]` of each edge in the rows `indptr` `[R+1]`, times the number of edges in
    its row."""
    target, _ = edge_targets(weight.shape[0], indptr, indptr.shape[0] - 1, indptr[-1])
    count = jnp.diff(indptr).astype(jnp.float32)
    return weight * count.at[target].get(mode="fill", fill_value=0)


def rows_sorted(graph: Graph) -> jax.Array:
    """bool `[]`: whether every row of the graph is sorted by source. It reads all edges
    once."""
    known = graph.sorted_by_source
    if graph.has_room:  # they need not stay as they are
        return jax.device_put(np.False_)
    falls = None if known else first_fall(np.asarray(graph.indices), np.asarray(graph.indptr))
    return jax.device_put(np.bool_(falls is None))


def _kernel(
    wanted: Wanted, groups: jax.Array, operands: Any, nodes: jax.Array
) -> list[InducedArrays]:
    def draw(groups: jax.Array, operands: Any, nodes: jax.Array) -> list[InducedArrays]:
        batches = nodes.shape[: -2 if wanted.separate else -1]

        def result(dtype: Any, *shape: int) -> Any:
            return jax.ShapeDtypeStruct((*batches, *shape), dtype)

        room = wanted.max_edges
        one = InducedArrays(
            result(jnp.int32, nodes.shape[-1] + 1),
            result(jnp.int32, room),
            result(jnp.int64, room if wanted.edge_ids else 0),
            result(jnp.float32, room if wanted.edge_weights else 0),
            result(jnp.int64),
        )
        results, form = jax.tree.flatten([one] * (nodes.shape[-2] if wanted.separate else 1))
        arguments = (*operands, groups, nodes)
        by_row = np.bool_(wanted.by_row)
        arrays = call("jgs_induced", results, arguments, kernels.NUM_THREADS, by_row=by_row)
        return jax.tree.unflatten(form, arrays)

    return call_once(draw, groups, operands, nodes)


def _plain(
    wanted: Wanted, groups: jax.Array, operands: Any, nodes: jax.Array
) -> list[InducedArrays]:
    one = partial(_plain_block, wanted, operands)
    if nodes.ndim == 1:
        return [one(groups, nodes)]
    batches = jax.vmap(one)(groups, nodes)
    if not wanted.separate:
        return [batches]
    return [jax.tree.map(lambda a, i=i: a[i], batches) for i in range(nodes.shape[0])]


def _plain_block(
    wanted: Wanted, operands: Any, groups: jax.Array, nodes: jax.Array
) -> InducedArrays:
    """Reads the rows' edges in chunks, and keeps those whose source is in the group."""
    indptr, indices, weight, _ = operands
    room, num_rows = wanted.max_edges, nodes.shape[0]
    num_nodes, num_edges = indptr.shape[-1] - 1, indices.shape[0]
    row = jnp.arange(num_rows, dtype=jnp.int64)
    group = jnp.searchsorted(groups, row, side="right").astype(jnp.int64) - 1
    real = (group >= 0) & (row < groups[-1]) & (nodes >= 0) & (nodes < num_nodes)
    start, degree = rows_of(indptr, nodes, real)

    # The nodes sorted by (group, node); equal ones stay in order.
    one_past = num_nodes + 1
    name = jnp.where(real, group * one_past + nodes, jnp.iinfo(jnp.int64).max)
    order = jnp.argsort(name, stable=True)
    names = name[order]

    def read(value: tuple, at: jax.Array, nth: jax.Array, real: jax.Array) -> tuple:
        needed, count, local, edge_of = value
        edge = start[at] + nth
        source = indices.at[edge].get(mode="clip")
        wanted_name = group[at] * one_past + source
        place = jnp.clip(jnp.searchsorted(names, wanted_name), 0, num_rows - 1)
        kept = real & (names[place] == wanted_name)
        to = jnp.where(kept, needed + jnp.cumsum(kept) - 1, room)
        local = local.at[to].set(order[place].astype(jnp.int32), mode="drop")
        edge_of = edge_of.at[to].set(edge, mode="drop")
        count = count.at[at + 1].add(kept.astype(jnp.int32))
        return needed + jnp.sum(kept), count, local, edge_of

    value = (
        jnp.zeros((), jnp.int64),
        jnp.zeros(num_rows + 1, jnp.int32),
        jnp.full(room, num_rows, jnp.int32),
        jnp.full(room, num_edges, jnp.int64),
    )
    if num_edges and num_rows:  # an empty array cannot be indexed
        value = fold_slots(read, value, degree, _AT_ONCE, (nodes, groups, operands))
    needed, count, local, edge = value
    fits = needed <= room
    begin = jnp.where(fits, jnp.cumsum(count, dtype=jnp.int32), 0)
    edge = jnp.where(fits, edge, num_edges)
    of_edges = jnp.zeros(room if wanted.edge_weights else 0, jnp.float32)
    if wanted.edge_weights and num_edges:
        of_edges = weight.at[edge].get(mode="fill", fill_value=0)
        if wanted.by_row and num_rows:
            of_edges = _by_row(of_edges, begin)
    return InducedArrays(
        indptr=begin,
        indices=jnp.where(fits, local, num_rows),
        edge_id=edge if wanted.edge_ids else edge[:0],
        edge_weight=of_edges,
        needed=needed,
    )


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
