"""`induced_subgraph` and its jittable forms for samplers: the edges among some nodes, as a
block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Block, Graph
from jgs.graph.formats.export import edge_targets
from jgs.kernels.call import on_cpu, vary_alike
from jgs.sampling.capacity import round_up
from jgs.sampling.checks import check_graph, check_seed_ids
from jgs.sampling.edges.compact import without_edges
from jgs.sampling.edges.hops_kernel import call_once
from jgs.settings import exact_integers

_AT_ONCE = 1 << 15  # edges that the plain form reads at a time
_CHECKED_AT_ONCE = 1 << 24  # edges that are checked at a time on the host
_INT32_MAX = 2**31 - 1


class InducedArrays(NamedTuple):
    """The edges of an induced block, with room for `E`.

    Fields:
      indptr: int32 `[R+1]`.
      indices: int32 `[E]`.
      edge_id: int64 `[E]`, or empty if it is not wanted.
      edge_weight: float32 `[E]`, or empty if it is not wanted.
      needed: int64, the number of edges. If it is larger than `E`, the block is empty.
    """

    indptr: jax.Array
    indices: jax.Array
    edge_id: jax.Array
    edge_weight: jax.Array
    needed: jax.Array


class Wanted(NamedTuple):
    """The static part of the arguments of an induced block.

    Fields:
      max_edges: int; the room for edges.
      edge_ids, edge_weights: whether the block has `edge_id` and `edge_weight`.
      by_row: whether each weight is multiplied by the number of edges in its row.
      separate: whether S blocks have separate arrays instead of common ones.
    """

    max_edges: int
    edge_ids: bool
    edge_weights: bool
    by_row: bool = False
    separate: bool = False


def induced_subgraph(graph: Graph, nodes: Any, *, sorted_rows: bool = False) -> Block:
    """The graph that `nodes` induce: all edges of `graph` between two of them.

    Args:
      graph: the graph, of `N` nodes.
      nodes: int `[R]`, distinct node ids.
      sorted_rows: a promise that every row of the graph is sorted by source, as in
        `graph.sorted()`. A row much longer than `nodes` is then searched instead of read.

    Returns:
      A square `Block` with `R` sources and targets, in the order of `nodes`, with `edge_id`
      and, if the graph has weights, `edge_weight`. The edges of a row keep the graph's order.

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
    ids, count = np.unique(nodes, return_counts=True)
    if ids.size != nodes.size:
        raise InputError(
            "the nodes of a subgraph must be distinct",
            f"{ids[count > 1][0]} more than once",
            "Pass np.unique(nodes).",
        )
    groups = np.array([0, nodes.size], np.int32)
    # A first guess: in most graphs fewer than a third of the edges that are read are kept.
    with exact_integers():
        degrees = graph.indptr.at[nodes + 1].get() - graph.indptr.at[nodes].get()
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
def _whole(graph: Graph, nodes: Any, groups: Any, sorted_rows: Any, room: int) -> Any:
    weight = graph.edge_weight
    with exact_integers():
        return induced_block(
            graph, nodes, groups, room, edge_ids=True, edge_weight=weight, is_sorted=sorted_rows
        )


def induced_block(
    graph: Graph,
    nodes: jax.Array,
    groups: jax.Array,
    max_edges: int,
    *,
    edge_ids: bool = False,
    edge_weight: jax.Array | None = None,
    is_sorted: jax.Array | None = None,
    excluded: jax.Array | None = None,
) -> tuple[Block, jax.Array]:
    """The edges among the nodes of each group, as one square block; traced under x64.

    Args:
      nodes: int32 `[R]`. If a node is twice in a group, each of its rows has its in-edges, and
        its first row is the source of its out-edges. `N` has no edges.
      groups: int32 `[G+1]`; group `g` has the rows `groups[g]:groups[g+1]`. Rows from
        `groups[G]` on are padding.
      max_edges: static int, the block's room for edges.
      edge_ids: whether the block has `edge_id`.
      edge_weight: float32 `[E]`, a number for every edge of the graph, for the block's
        `edge_weight`; or None.
      is_sorted: bool `[]`, whether the graph's rows are sorted by source (`rows_sorted`); long
        rows are then searched. None: they may be unsorted.
      excluded: int64 `[X]`, the edges that the block does not have (`Seeds`); None: there are
        none.

    Returns the block, which is empty if it does not fit, and int64, the number of edges needed,
    excluded ones included.
    """
    wanted = Wanted(max_edges, edge_ids or excluded is not None, edge_weight is not None)
    (arrays,) = _arrays(graph, nodes, groups, wanted, edge_weight, is_sorted)
    block = without_edges(_as_block(arrays, groups[-1], wanted), excluded, graph.num_edges)
    return block if edge_ids else replace(block, edge_id=None), arrays.needed


def induced_blocks(
    graph: Graph,
    nodes: jax.Array,
    counts: jax.Array,
    max_edges: int,
    *,
    edge_ids: bool = False,
    edge_weight: jax.Array | None = None,
    by_row: bool = False,
    is_sorted: jax.Array | None = None,
    excluded: Sequence[jax.Array | None] = (),
) -> list[tuple[Block, jax.Array]]:
    """The `induced_block` of each of `S` lists of nodes.

    Args:
      nodes: int32 `[S, R]`.
      counts: int32 `[S]`; the first `counts[s]` nodes of list `s` are one group, and the rest
        is padding.
      by_row: whether each weight is multiplied by the number of edges in its row of the block.
      excluded: that of each list; none if it is empty.
      max_edges, edge_ids, edge_weight, is_sorted: as in `induced_block`.

    The blocks share no array, so taking them apart copies nothing.
    """
    limited = any(one is not None for one in excluded)
    weighted = edge_weight is not None
    wanted = Wanted(max_edges, edge_ids or limited, weighted, by_row and not limited, True)
    groups = jnp.stack([jnp.zeros_like(counts), counts], axis=1)
    all_arrays = _arrays(graph, nodes, groups, wanted, edge_weight, is_sorted)
    blocks = [
        _as_block(arrays, count, wanted)
        for arrays, count in zip(all_arrays, counts, strict=True)
    ]
    if limited:
        each = zip(blocks, excluded, strict=True)
        blocks = [without_edges(block, gone, graph.num_edges) for block, gone in each]
        if by_row and weighted:
            blocks = [_by_row(block) for block in blocks]
        if not edge_ids:
            blocks = [replace(block, edge_id=None) for block in blocks]
    return [(b, arrays.needed) for b, arrays in zip(blocks, all_arrays, strict=True)]


def _by_row(block: Block) -> Block:
    """The block, with each weight multiplied by the number of edges in its row."""
    target, _ = edge_targets(
        block.edge_capacity, block.indptr, block.num_targets, block.num_edges
    )
    count = jnp.diff(block.indptr).astype(jnp.float32)
    assert block.edge_weight is not None
    return replace(
        block, edge_weight=block.edge_weight * count.at[target].get(mode="fill", fill_value=0)
    )


def rows_sorted(graph: Graph) -> jax.Array:
    """bool `[]`: whether every row of the graph is sorted by source. It reads all edges
    once."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    for first in range(0, indices.size - 1, _CHECKED_AT_ONCE):
        sources = indices[first : first + _CHECKED_AT_ONCE + 1]
        falls = first + 1 + np.flatnonzero(sources[1:] < sources[:-1])
        # The sources may fall where a new row begins.
        if falls.size and not np.array_equal(indptr[np.searchsorted(indptr, falls)], falls):
            return jax.device_put(np.False_)
    return jax.device_put(np.True_)


def _arrays(
    graph: Graph,
    nodes: jax.Array,
    groups: jax.Array,
    wanted: Wanted,
    edge_weight: jax.Array | None,
    is_sorted: jax.Array | None,
) -> list[InducedArrays]:
    """The arrays of the block of `nodes` `[..., R]`; with `separate` those of S
    blocks of `[S, R]`."""
    weight = jnp.zeros(0, jnp.float32) if edge_weight is None else edge_weight
    known = jnp.array(False) if is_sorted is None else is_sorted
    operands = (graph.indptr, graph.indices, weight, known)
    groups, operands, nodes = vary_alike(groups.astype(jnp.int32), operands, nodes)
    return on_cpu(partial(_kernel, wanted), partial(_plain, wanted), groups, operands, nodes)


def _as_block(arrays: InducedArrays, count: jax.Array, wanted: Wanted) -> Block:
    fits = arrays.needed <= wanted.max_edges
    num_rows = jnp.where(fits, count, 0).astype(jnp.int32)
    return Block(
        indptr=arrays.indptr,
        indices=arrays.indices,
        num_targets=num_rows,
        num_sources=num_rows,
        num_edges=jnp.where(fits, arrays.needed, 0).astype(jnp.int32),
        edge_id=arrays.edge_id if wanted.edge_ids else None,
        edge_weight=arrays.edge_weight if wanted.edge_weights else None,
        source_capacity=arrays.indptr.shape[-1] - 1,
    )


def _kernel(
    wanted: Wanted, groups: jax.Array, operands: Any, nodes: jax.Array
) -> list[InducedArrays]:
    """The result of `_plain`, computed by jgs/kernels/induced.cc."""

    def call(groups: jax.Array, operands: Any, nodes: jax.Array) -> list[InducedArrays]:
        batches = nodes.shape[: -2 if wanted.separate else -1]

        def result(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((*batches, *shape), dtype)

        room = wanted.max_edges
        one = [
            result(jnp.int32, nodes.shape[-1] + 1),
            result(jnp.int32, room),
            result(jnp.int64, room if wanted.edge_ids else 0),
            result(jnp.float32, room if wanted.edge_weights else 0),
            result(jnp.int64),
        ]
        results = one * (nodes.shape[-2] if wanted.separate else 1)
        run = jax.ffi.ffi_call("jgs_induced", results, vmap_method="sequential")
        arrays = run(
            *operands,
            groups,
            nodes,
            by_row=np.bool_(wanted.by_row),
            num_threads=np.int64(kernels.NUM_THREADS),
        )
        arrays = [vary_alike(array, nodes)[0] for array in arrays]
        each = len(one)
        return [InducedArrays(*arrays[i : i + each]) for i in range(0, len(arrays), each)]

    return call_once(call, groups, operands, nodes)


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
    num_nodes, num_edges = indptr.shape[0] - 1, indices.shape[0]
    row = jnp.arange(num_rows, dtype=jnp.int64)
    group = jnp.searchsorted(groups, row, side="right") - 1
    real = (group >= 0) & (row < groups[-1]) & (nodes >= 0) & (nodes < num_nodes)
    start = jnp.where(real, indptr.at[nodes].get(mode="clip"), 0)
    degree = jnp.where(real, indptr.at[nodes + 1].get(mode="clip"), 0) - start
    ends = jnp.cumsum(degree)
    total = jnp.max(ends, initial=0)

    # The nodes sorted by (group, node); equal ones stay in order.
    one_past = num_nodes + 1
    name = jnp.where(real, group * one_past + nodes, jnp.iinfo(jnp.int64).max)
    order = jnp.argsort(name, stable=True)
    names = name[order]

    def go_on(state: tuple[jax.Array, ...]) -> jax.Array:
        return state[0] < total

    def read(state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        first, needed, count, local, edge_of = state
        slot = first + jnp.arange(_AT_ONCE, dtype=jnp.int64)
        at = jnp.clip(jnp.searchsorted(ends, slot, side="right"), 0, num_rows - 1)
        edge = start[at] + slot - (ends - degree)[at]
        source = indices.at[edge].get(mode="clip")
        wanted_name = group[at] * one_past + source
        place = jnp.clip(jnp.searchsorted(names, wanted_name), 0, num_rows - 1)
        kept = (slot < total) & (names[place] == wanted_name)
        to = jnp.where(kept, needed + jnp.cumsum(kept) - 1, room)
        local = local.at[to].set(order[place].astype(jnp.int32), mode="drop")
        edge_of = edge_of.at[to].set(edge, mode="drop")
        count = count.at[at + 1].add(kept.astype(jnp.int32))
        return first + _AT_ONCE, needed + jnp.sum(kept), count, local, edge_of

    zero = jnp.zeros((), jnp.int64)
    state = (
        zero,
        zero,
        jnp.zeros(num_rows + 1, jnp.int32),
        jnp.full(room, num_rows, jnp.int32),
        jnp.full(room, num_edges, jnp.int64),
    )
    state = vary_alike(*state, nodes, groups, operands)[:5]
    if num_edges and num_rows:  # an empty array cannot be indexed
        state = jax.lax.while_loop(go_on, read, state)
    _, needed, count, local, edge = state
    fits = needed <= room
    begin = jnp.where(fits, jnp.cumsum(count, dtype=jnp.int32), 0)
    edge = jnp.where(fits, edge, num_edges)
    of_edges = jnp.zeros(room if wanted.edge_weights else 0, jnp.float32)
    if wanted.edge_weights and num_edges:
        of_edges = weight.at[edge].get(mode="fill", fill_value=0)
        if wanted.by_row and num_rows:
            slot = jnp.arange(room, dtype=jnp.int32)
            at = jnp.clip(jnp.searchsorted(begin, slot, side="right") - 1, 0, num_rows - 1)
            of_edges = of_edges * (begin[at + 1] - begin[at]).astype(jnp.float32)
    return InducedArrays(
        indptr=begin,
        indices=jnp.where(fits, local, num_rows),
        edge_id=edge if wanted.edge_ids else edge[:0],
        edge_weight=of_edges,
        needed=needed,
    )
