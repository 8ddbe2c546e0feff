"""Rows of a topology that is split over ranks: which rank to ask for which row, what ranks send
each other, and how the answers are merged.

Ranks send the nodes that one asks for, with their cutoffs, and what they have drawn, with the
columns of the edges. On CPU devices the kernels of jgs/kernels/rows.cc route and merge too, bit
for bit.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.rows.owners import from_words, to_words
from jgs.kernels.call import handler, where_it_is
from jgs.sampling.base import HopRows

NUM_HEADERS = 2  # columns of a reply before those that say where its rows end


def route_rows(
    nodes: jax.Array, offsets: jax.Array, held: jax.Array, rank: jax.Array, capacity: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which of the nodes' rows are here, and which rank to ask for each of the others.

    Args:
      nodes: int32 `[T]`; a node that no rank owns is padding.
      offsets: int32 `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      held: bool `[N]`: the nodes that are not the rank's own and whose rows are here; `[0]`
        where there are none.
      rank: int32 scalar: this rank.
      capacity: `C`, the most nodes to ask a rank for.

    Returns:
      own int32 `[T]`: the nodes whose rows are here, with `offsets[R]` in place of the others.
      requests int32 `[R, 1+C]`: in column 0 the most nodes that one rank has to be asked for;
      then the first `C` nodes to ask each rank for, in their order, padded with `offsets[R]`.
      place int32 `[T]`: `r * C + i` where the row is answer `i` of rank `r`, else -1.
    """

    num, num_ranks = nodes.shape[0], offsets.shape[0] - 1
    out = [_ints(num), _ints(num_ranks, 1 + capacity), _ints(num)]

    def kernel(*operands):
        return tuple(handler("jgs_route_rows", out)(*operands))

    plain = partial(_route_plain, capacity=capacity)
    return where_it_is(kernel, plain, nodes, offsets, held, rank)


def merge_rows(
    place: jax.Array,
    own_indptr: jax.Array,
    own_indices: jax.Array,
    replies: jax.Array,
    capacity: int,
    edge_capacity: int,
    num_nodes: int,
) -> tuple[jax.Array, jax.Array]:
    """The rows, in the order of the nodes that `route_rows` was given.

    Args:
      place: int32 `[T]` of `route_rows`.
      own_indptr, own_indices: int32 `[T+1]` and `[E']`: the neighbours of each node that were
        drawn here; none where another rank draws them.
      replies: int32 `[R, 2+C+E'']`: two numbers that are not read here; where the row of each
        node that was asked for ends; and the neighbours.
      capacity: that of `route_rows`, at least 1.
      edge_capacity: `E`. Edges that exceed it are dropped.
      num_nodes: what pads the neighbours.

    Returns int32 `[T+1]` and `[E]`: each row's neighbours. The kernel fails with a message on
    replies that do not have this form.
    """

    out = [_ints(place.shape[0] + 1), _ints(edge_capacity)]

    def kernel(*operands):
        sizes = {"capacity": np.int64(capacity), "num_nodes": np.int64(num_nodes)}
        return tuple(handler("jgs_merge_rows", out)(*operands, **sizes))

    plain = partial(_merge_plain, capacity=capacity, room=edge_capacity, num_nodes=num_nodes)
    return where_it_is(kernel, plain, place, own_indptr, own_indices, replies)


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _route_plain(nodes, offsets, held, rank, capacity):
    num_ranks, padding = offsets.shape[0] - 1, offsets[-1]
    owner = jnp.searchsorted(offsets, nodes, side="right").astype(jnp.int32) - 1
    real = (owner >= 0) & (owner < num_ranks)
    here = owner == rank
    if held.shape[0]:
        here |= held.at[nodes].get(mode="fill", fill_value=False, wrap_negative_indices=False)
    asked = jnp.where(real & ~here, owner, num_ranks)  # the rank to ask; num_ranks: none

    slot = jnp.arange(nodes.shape[0], dtype=jnp.int32)
    order = jnp.argsort(asked, stable=True)
    ordered = asked[order]
    starts = jnp.searchsorted(ordered, jnp.arange(num_ranks + 1)).astype(jnp.int32)
    nth = jnp.zeros_like(slot).at[order].set(slot - starts[ordered])
    keep = (asked < num_ranks) & (nth < capacity)
    column = jnp.where(keep, 1 + nth, 1 + capacity)
    requests = jnp.full((num_ranks, 1 + capacity), padding, jnp.int32)
    requests = requests.at[asked, column].set(nodes, mode="drop")
    requests = requests.at[:, 0].set(jnp.max(starts[1:] - starts[:-1]))
    place = jnp.where(keep, asked * capacity + nth, -1)
    return jnp.where(real & here, nodes, padding), requests, place


def _merge_plain(place, own_indptr, own_indices, replies, capacity, room, num_nodes):
    ends = replies[:, NUM_HEADERS : NUM_HEADERS + capacity]
    begins = jnp.pad(ends, ((0, 0), (1, 0)))[:, :-1]
    answered = place >= 0
    rank, nth = jnp.where(answered, place, 0) // capacity, place % capacity
    begin = jnp.where(answered, begins[rank, nth], own_indptr[:-1])
    end = jnp.where(answered, ends[rank, nth], own_indptr[1:])
    first = jnp.pad(jnp.cumsum(end - begin), (1, 0))
    indptr = jnp.minimum(first, room).astype(jnp.int32)

    slot = jnp.arange(room, dtype=jnp.int32)
    row = jnp.searchsorted(indptr[1:], slot, side="right")
    at = begin.at[row].get(mode="clip") + slot - first.at[row].get(mode="clip")
    there = replies.at[rank.at[row].get(mode="clip"), NUM_HEADERS + capacity + at].get(
        mode="clip"
    )
    here = own_indices.at[at].get(mode="clip") if own_indices.shape[0] else there
    neighbors = jnp.where(answered.at[row].get(mode="clip"), there, here)
    return indptr, jnp.where(slot < indptr[-1], neighbors, num_nodes).astype(jnp.int32)


def with_cutoffs(requests: jax.Array, place: jax.Array, cutoff: jax.Array | None) -> jax.Array:
    """The requests int32 `[R, 1+C]` of `route_rows`, which gave each node its `place` `[T]`.
    With the nodes' cutoffs int64 `[T]` these follow, two numbers each: `[R, 1+3C]`."""
    if cutoff is None:
        return requests
    num_ranks, num = requests.shape[0], requests.shape[1] - 1
    at = jnp.where(place >= 0, place, num_ranks * num)
    times = jnp.zeros(num_ranks * num, jnp.int64).at[at].set(cutoff, mode="drop")
    return jnp.concatenate([requests, to_words(times.reshape(num_ranks, num))], axis=1)


def asked_for(wanted: jax.Array, num: int) -> tuple[jax.Array, jax.Array | None]:
    """The nodes int32 `[R, C]` that other ranks ask for, and their cutoffs int64 `[R, C]`, if
    they have any."""
    begin = 1 + num
    times = wanted[:, begin:]
    return wanted[:, 1:begin], from_words(times, jnp.int64, num) if times.shape[1] else None


def _columns(rows: HopRows) -> dict[str, jax.Array]:
    both = {"types": rows.types, "times": rows.times}
    return {name: column for name, column in both.items() if column is not None}


def reply(answers: HopRows) -> jax.Array:
    """The replies int32 `[R, 2+C+E]`, a row for each rank: the most edges that any rank must be
    sent; the edges that this one must be sent; where the edges of each node end; and the
    neighbours. The `to_words` of the edges' columns follow."""
    need = answers.needed
    headers = jnp.stack([jnp.broadcast_to(jnp.max(need), need.shape), need], axis=1)
    reply = [headers, answers.indptr[:, 1:], answers.neighbors]
    reply += [to_words(column) for column in _columns(answers).values()]
    return jnp.concatenate(reply, axis=1)


def merged(
    place: jax.Array, own: HopRows, replies: jax.Array, num: int, num_edges: int, num_nodes: int
) -> HopRows:
    """What all nodes drew: `own` that of the nodes that this rank drew for, and `replies` that
    of those that it asked others for, `num` nodes and `num_edges` edges of each rank. `needed`
    is that of its own."""
    begin, num_ranks, room = NUM_HEADERS + num, replies.shape[0], own.neighbors.shape[0]
    end = begin + num_edges
    of_rows = num, room
    rows = merge_rows(place, own.indptr, own.neighbors, replies[:, :end], *of_rows, num_nodes)
    columns = _columns(own)
    if not columns:
        return HopRows(*rows, own.needed)
    # Where the columns of each edge are: among the rank's own, and then in the replies.
    slots = jnp.arange(room + num_ranks * num_edges, dtype=jnp.int32)
    sent = jnp.concatenate(
        [replies[:, :begin], slots[room:].reshape(num_ranks, num_edges)], axis=1
    )
    _, slot = merge_rows(place, own.indptr, slots[:room], sent, *of_rows, slots.shape[0])
    merged = {}
    for name, column in columns.items():
        size = to_words(jnp.zeros((1, num_edges), column.dtype)).shape[1]
        there = from_words(replies[:, end : end + size], column.dtype, num_edges)
        every = jnp.concatenate([column, there.reshape(-1)])
        merged[name] = every.at[slot].get(mode="fill", fill_value=0)
        end += size
    return HopRows(*rows, own.needed, **merged)
