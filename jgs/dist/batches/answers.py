"""What ranks send each other in vanilla mode: the nodes that one asks for, with their cutoffs,
and what they have drawn, with the columns of the edges."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jgs.dist.rows.picked import NUM_HEADERS, merge_rows
from jgs.sampling.base import HopRows


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


def to_words(column: jax.Array) -> jax.Array:
    """int32 `[R, W]`: the bits of `[R, n]` of 16, 32 or 64 bits, with a 0 at the end where it
    takes one."""
    if column.dtype.itemsize == 2:
        column = jnp.pad(column, ((0, 0), (0, column.shape[1] % 2)))
        column = column.reshape(column.shape[0], -1, 2)
    words = jax.lax.bitcast_convert_type(column, jnp.int32)
    return words.reshape(words.shape[0], -1)


def from_words(words: jax.Array, dtype: Any, num: int) -> jax.Array:
    """The column `[R, num]` of this type of which these are the `to_words`."""
    if jnp.dtype(dtype).itemsize == 8:
        words = words.reshape(words.shape[0], -1, 2)
    column = jax.lax.bitcast_convert_type(words, dtype)
    return column.reshape(column.shape[0], -1)[:, :num]


def _columns(rows: HopRows) -> dict[str, jax.Array]:
    """The columns of the drawn edges, those that there are, by the names of their fields."""
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
