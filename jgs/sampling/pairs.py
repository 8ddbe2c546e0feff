"""What stages of pairs are made of: `edges_between`, `join_nodes`, `draw_negatives`.

All are jittable, and to be called in a stage (`jgs.sampling.loading.items`), or under
`jax.enable_x64(True)`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.checks import as_array, check_paired
from jgs.graph.schema import REVERSE
from jgs.sampling.checks import require_int
from jgs.sampling.edges.eligible import count_less, rows_of
from jgs.sampling.edges.random import as_key_data, below, node_bits, words
from jgs.sampling.edges.slots import fold_slots, relabel, relabel_edges
from jgs.settings import exact_integers

_AT_ONCE = 1 << 14  # edges that are read at a time


def edges_between(graph: Graph, src: Any, dst: Any, room: int) -> jax.Array:
    """The edges `src[i] -> dst[i]` of a graph, all parallel ones, for `Seeds.excluded`.

    The ends are int `[P]`; a pair with an end that is no node has no edges. Give a pair twice,
    with its ends in turn, to find the reverse edges too. `room` is a static int, at least 1:
    how many edges there is room for, all pairs together. The rows of the targets are read.
    Where the graph is `sorted_by_source` they are searched, which is much faster in long rows.

    Returns int64 `[room]`: the positions of the edges, ascending, each once, then `E`. If they
    do not fit, the first is -1, and samplers refuse it. Raises `InputError` for another `room`.
    """
    room = require_int("the room of edges_between", room, 1)
    num_edges = graph.num_edges
    with exact_integers():
        src, dst, start, degree = _rows_of(graph, src, dst)
        if num_edges == 0 or src.shape[0] == 0:
            return jnp.full(room, num_edges, jnp.int64)
        if graph.sorted_by_source:
            start, degree = _copies(graph, src, start, degree)
        at_once = min(_AT_ONCE, 2 * src.shape[0]) if graph.sorted_by_source else _AT_ONCE

        def read(value: tuple, pair: jax.Array, nth: jax.Array, real: jax.Array) -> tuple:
            found, count = value
            edge = start[pair] + nth
            kept = real & (graph.indices.at[edge].get(mode="clip") == src[pair])
            place = jnp.where(kept, count + jnp.cumsum(kept) - 1, room)
            return found.at[place].set(edge, mode="drop"), count + jnp.sum(kept)

        begin = (jnp.full(room, num_edges, jnp.int64), jnp.int64(0))
        found, count = fold_slots(read, begin, degree, at_once, (src, dst, graph))
        ordered = jnp.sort(found)  # pairs that are given twice find their edges twice
        again = jnp.concatenate([jnp.zeros(1, bool), ordered[1:] == ordered[:-1]])
        place = jnp.where(again, room, jnp.cumsum(~again) - 1)
        once = jnp.full(room, num_edges, jnp.int64).at[place].set(ordered, mode="drop")
        return once.at[0].set(jnp.where(count > room, -1, once[0]))


def join_nodes(
    graph: Graph, nodes: Any, time: Any = None
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """The distinct `nodes`, int `[...]` with `N` for padding, each to be a seed once. With
    `time` int `[...]`, a cutoff for each, two are one where both are equal. If another number
    is no node, all seeds are -1, which samplers refuse. Raises `InputError`.

    Returns int32 `[B]`, the nodes in order of first appearance, then `N`, where `B` is the
    number of entries of `nodes`; int64 `[B]`, their cutoffs, or None; and int32 of the shape of
    `nodes`, the index of each in the first. The index of padding is `B`.
    """
    with exact_integers():
        given = _integers("nodes", nodes)
        bad = jnp.any((given < 0) | (given > graph.num_nodes))
        ids = given.astype(jnp.int32)
        flat, size = ids.reshape(-1), ids.size
        real = (flat >= 0) & (flat < graph.num_nodes)
        nobody, zero = jnp.zeros(0, jnp.int32), jnp.int32(0)
        if time is None:  # the kernel takes the real ones first
            place = jnp.cumsum(real) - 1
            first = jnp.full(size, graph.num_nodes, jnp.int32)
            first = first.at[jnp.where(real, place, size)].set(flat, mode="drop")
            count = jnp.sum(real, dtype=jnp.int32)
            found, _, rows = relabel_edges(nobody, zero, first, count, size, graph.num_nodes)
            rows, cutoffs = jnp.where(real, rows[place], size), None
        else:
            cutoff = jnp.asarray(time).astype(jnp.int64)
            cutoff = jnp.broadcast_to(cutoff, ids.shape).reshape(-1)
            none = jnp.zeros(0, jnp.int64)
            found, _, rows, cutoffs = relabel(
                nobody, zero, flat, real, size, graph.num_nodes, none, cutoff
            )
        found = jnp.where(bad, -1, found)  # which samplers refuse
        return found, cutoffs, rows.reshape(ids.shape)


def has_fact(
    graph: Graph, src: Any, dst: Any, relation: Any = None, time: Any = None
) -> jax.Array:
    """bool `[P]`: whether the data say `src[i] -> dst[i]`: as `has_edge`, but of the relations
    number `relation` int `[P]` alone, and by an edge of the data's own. Edges that the column
    `jgs.graph.schema.REVERSE` marks were added to them.

    All that judges links asks this. None for `relation` is for graphs without relations; of a
    graph with some, the edges of all count then.
    """
    if relation is None and added_edges(graph) is None:
        return has_edge(graph, src, dst, time)
    with exact_integers():  # else JAX warns that it compares int64
        return count_edges(graph, src, dst, time, relation, own=True) > 0


def added_edges(graph: Graph) -> Any:
    """bool `[E]`: which edges are not the data's own; None where all are."""
    column = graph.edge_columns.get(REVERSE)
    return column if column is not None and column.dtype == bool else None


def only_facts(graph: Graph, relation: int | None) -> Graph:
    """The graph of the edges for which `has_fact` is true of their ends."""
    kept = np.ones(graph.num_edges, bool)
    if relation is not None and graph.edge_type is not None:
        kept = np.asarray(graph.edge_type) == relation
    if (added := added_edges(graph)) is not None:
        kept &= ~np.asarray(added)
    return graph if kept.all() else graph.edge_subgraph(kept)


def has_edge(graph: Graph, src: Any, dst: Any, time: Any = None) -> jax.Array:
    """bool `[P]`: whether the graph has an edge `src[i] -> dst[i]`, for ends int `[P]`; False
    where an end is no node. With `time` int64 `[P]` only edges of exactly that time count.

    Where the graph is `sorted_by_source` the rows of the targets are searched, else they are
    read.
    """
    num_edges = graph.num_edges
    with exact_integers():
        src, dst, start, degree = _rows_of(graph, src, dst)
        if num_edges == 0 or src.shape[0] == 0:
            return jnp.zeros(src.shape, bool)
        if graph.sorted_by_source and time is None:
            place = count_less(graph.indices, start, degree, src)
            return (place < degree) & (graph.indices.at[start + place].get(mode="clip") == src)
        return count_edges(graph, src, dst, time) > 0


def count_edges(
    graph: Graph, src: Any, dst: Any, time: Any = None, relation: Any = None, own: bool = False
) -> jax.Array:
    """int64 `[P]`: the number of edges `src[i] -> dst[i]` of the graph, for ends int `[P]`; 0
    where an end is no node. Rows are searched or read, and edges of a `time` count, as by
    `has_edge`; `relation` and `own` are as of `has_fact`. Raises `InputError` for a `time` in a
    graph without times."""
    with exact_integers():
        src, dst, start, degree = _rows_of(graph, src, dst)
        none = jnp.zeros(src.shape, jnp.int64)
        if graph.num_edges == 0 or src.shape[0] == 0:
            return none
        added = added_edges(graph) if own else None
        relations = () if graph.schema is None else graph.schema.relations
        one = relation is not None or graph.edge_type is None or len(relations) == 1
        if relation is not None and graph.edge_type is not None:
            number, types = jnp.asarray(relation).astype(jnp.int32).reshape(-1), graph.edge_type
            begin, end = (count_less(types, start, degree, number + i) for i in (0, 1))
            start, degree = start + begin, end - begin
        if time is not None:
            start, degree, time = _at_time(graph, start, degree, time, one)
        elif graph.sorted_by_source:
            start, degree = _copies(graph, src, start, degree)
            if added is None:
                return degree

        def read(found: Any, pair: jax.Array, nth: jax.Array, real: jax.Array) -> jax.Array:
            edge = start[pair] + nth
            same = real & (graph.indices.at[edge].get(mode="clip") == src[pair])
            if time is not None and graph.edge_time is not None:
                same &= graph.edge_time.at[edge].get(mode="clip") == time[pair]
            if added is not None:
                same &= ~added.at[edge].get(mode="clip")
            return found.at[pair].add(same, mode="drop")

        return fold_slots(read, none, degree, _AT_ONCE, (src, dst, graph))


def _at_time(
    graph: Graph, start: Any, degree: Any, time: Any, one: bool
) -> tuple[Any, Any, Any]:
    """The stretches of the rows from `start` on that have the edges of these times, and the
    times by which these edges are told from others there: None where there are no others.
    `one`: the stretches are of one relation each, so they are sorted by time."""
    if graph.edge_time is None:
        raise InputError(
            "edges of a time must be looked for in a graph with edge_time",
            "one without",
            "Give edge_time, or Links(filtered=False).",
        )
    if not one:  # rows are sorted by type first
        return start, degree, jnp.asarray(time).astype(jnp.int64).reshape(-1)
    begin, end = (count_less(graph.edge_time, start, degree, time + i) for i in (0, 1))
    return start + begin, jnp.maximum(end - begin, 0), None  # 0 for the largest time of all


def _copies(graph: Graph, src: Any, start: Any, degree: Any) -> tuple[jax.Array, jax.Array]:
    """int64 `[P]` each: where the edges from `src` begin in rows that are sorted by source, and
    their number."""
    begins, lengths = (jnp.tile(a, 2) for a in (start, degree))  # one search for both bounds
    bounds = jnp.concatenate([src, src + 1])
    first, after = jnp.split(count_less(graph.indices, begins, lengths, bounds), 2)
    return start + first, after - first


def _rows_of(graph: Graph, src: Any, dst: Any) -> tuple[jax.Array, ...]:
    """int64 `[P]` each: the ends, where the row of `dst` begins, and its length; 0 where an end
    is no node."""
    src, dst, real = _ends(graph, src, dst)
    return src, dst, *rows_of(graph.indptr, dst, real)


def _ends(graph: Graph, src: Any, dst: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The ends of pairs as int64 `[P]`, and bool `[P]`, whether both are nodes. Raises
    `InputError` for what are no integers, and for fewer of one end."""
    src, dst = (_integers(*named).reshape(-1) for named in (("src", src), ("dst", dst)))
    check_paired("src and dst", src, dst)
    real = [(ends >= 0) & (ends < graph.num_nodes) for ends in (src, dst)]
    return src, dst, real[0] & real[1]


def _integers(name: str, ids: Any) -> jax.Array:
    """`ids` of any shape as int64; raises `InputError`."""
    if not isinstance(ids, jax.Array | np.ndarray):
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(ids))
        ids = jnp.asarray(ids) if traced else as_array(name, ids)
    require_array(name, ids, "integers or empty [...]", "Convert it with .astype(int).")
    return jnp.asarray(ids).astype(jnp.int64)


def pair_keys(key: Any, src: jax.Array, dst: jax.Array, time: Any = None) -> jax.Array:
    """uint32 `[P, 2]`: a key for each pair, and its time int64 `[P]` if that is given."""
    keys = words(as_key_data(key), src, dst).T
    if time is None:
        return keys
    bits = time.astype(jnp.uint64)
    return words(keys, bits >> jnp.uint64(32), bits).T


def draw_negatives(key: Any, graph: Graph, src: Any, dst: Any, num: int) -> jax.Array:
    """int32 `[P, num]`: uniform nodes for each pair `src[i]`, `dst[i]`, int `[P]`; `N` for a
    pair with an end that is no node.

    The bits belong to (key, pair, draw number), so a pair draws the same in any batch and on
    any rank. A drawn node may be joined to the pair's ends. Raises `InputError`.
    """
    num, num_nodes = require_int("num", num, 0), graph.num_nodes
    with exact_integers():
        src, dst, real = _ends(graph, src, dst)
        keys = pair_keys(key, src, dst)[:, None]
        keys = jnp.broadcast_to(keys, (src.shape[0], num, 2))
        drawn = below(node_bits(keys, jnp.arange(num), 0), num_nodes)
        return jnp.where(real[:, None], drawn, num_nodes).astype(jnp.int32)
