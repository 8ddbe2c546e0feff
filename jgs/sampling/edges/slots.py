"""Slots of rows that follow each other: row `r` has the slots before `ends[r]` that no
earlier row has (traced under `jax.enable_x64(True)`). And local ids of the nodes in slots,
in order of first appearance: in plain JAX (`relabel`), and by the kernel
jgs/kernels/relabel_edges.cc (`relabel_edges`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.kernels.call import call, kernel_or_plain, vary_alike

_DENSE = 4  # nodes for each slot, up to which a table of all nodes is faster than hashing


def fold_slots(
    look: Callable[..., Any], begin: Any, degree: jax.Array, at_once: int, reads: Any
) -> Any:
    """A fold over the slots of rows of the lengths `degree` int64 `[T]`, so many at a time.

    `look(value, row, nth, real)` returns the next value, and `begin` is the first. A slot is
    number `nth` int64 of `row`; those that are not `real` come after the last. `reads` is what
    `look` reads.
    """
    ends = jnp.cumsum(degree)
    total = jnp.max(ends, initial=0)

    def body(state: tuple) -> tuple:
        first, value = state
        slot = first + jnp.arange(at_once, dtype=jnp.int64)
        row = jnp.searchsorted(ends, slot, side="right").astype(jnp.int32)
        row = jnp.minimum(row, ends.shape[0] - 1)
        return first + at_once, look(value, row, slot - (ends - degree)[row], slot < total)

    # jax.shard_map requires the loop's state to vary over the same axes as what it reads.
    begin, *_ = vary_alike((jnp.int64(0), begin), degree, reads)
    return jax.lax.while_loop(lambda state: state[0] < total, body, begin)[1]


def row_of_slot(ends: jax.Array, room: int) -> jax.Array:
    """int32 `[room]`: the row of each slot, by the rows' `ends` int `[T]`; `T` after the last
    one. Rows may have more slots than `room`; those are left out."""
    at = jnp.minimum(ends, room).astype(jnp.int32)
    passed = jnp.zeros(room + 1, jnp.int32).at[at].add(1, indices_are_sorted=True)
    return jnp.cumsum(passed[:room], dtype=jnp.int32)


def offsets_of(row: jax.Array, real: jax.Array, num_rows: int) -> jax.Array:
    """int32 `[num_rows + 1]`: where the slots of each row begin, and their number. `row` int
    `[n]` is the row of each slot, ascending where `real`, which is true in the first slots."""
    at = jnp.where(real, row.astype(jnp.int32) + 1, num_rows + 1)
    counts = jnp.zeros(num_rows + 1, jnp.int32).at[at].add(1, mode="drop")
    return jnp.cumsum(counts, dtype=jnp.int32)


def first_equal(keys: Sequence[jax.Array], real: jax.Array) -> jax.Array:
    """int32 `[n]`: for each slot the first one that has the same `keys`, integers `[n]` of one
    array or more; itself where it is not `real`, bool `[n]`.

    Nothing is sorted. The slots are hashed to a table of cells. The first slot that comes to a
    free cell gets it, and so do its equals, for they go the same way. Those that find another's
    slot there try their next cell together. A CPU has a table of 1.25n to 2.5n cells, which
    fits its caches. On an accelerator, where the host has to ask whether another round is
    needed, the table has 4n to 8n cells, and four rounds are made before each question.
    """
    num = real.shape[0]
    on_cpu = partial(_first_equal, num + num // 4, 1)
    if kernels.host_only():
        return on_cpu(real, *keys)
    elsewhere = partial(_first_equal, 4 * num, 4)
    return jax.lax.platform_dependent(real, *keys, cpu=on_cpu, default=elsewhere)


def _first_equal(cells: int, rounds: int, real: jax.Array, *keys: jax.Array) -> jax.Array:
    """`first_equal` with more than so many cells, and with so many rounds at a time. Once few
    slots are left, the rounds go over these alone."""
    num = real.shape[0]
    few, size = num // 8 + 1, 1 << cells.bit_length()
    slot, mixed = jnp.arange(num, dtype=jnp.int32), jnp.zeros(num, jnp.uint32)
    for key in keys:
        bits = key.astype(jnp.uint64)
        for word in (bits, bits >> jnp.uint64(32))[: key.dtype.itemsize // 4]:
            mixed = _mix(mixed ^ word.astype(jnp.uint32))
    stride = _mix(mixed) | jnp.uint32(1)  # odd, so every cell comes in turn

    def look(state: tuple, slot: jax.Array, stride: jax.Array, *own: jax.Array) -> tuple:
        cell, table, first, left = state
        for _ in range(rounds):
            at = (cell & jnp.uint32(size - 1)).astype(jnp.int32)
            free = left & (table[at] == num)
            table = table.at[jnp.where(free, at, size)].min(slot, mode="drop")
            holder, same = table[at], left
            for key, each in zip(keys, own, strict=True):
                same &= key.at[holder].get(mode="clip") == each
            first, left = jnp.where(same, holder, first), left & ~same
            cell += stride
        return cell, table, first, left

    def while_more(most: int, state: tuple, *operands: jax.Array) -> tuple:
        def go_on(state: tuple) -> jax.Array:
            return jnp.sum(state[-1], dtype=jnp.int32) > most

        return jax.lax.while_loop(go_on, lambda state: look(state, *operands), state)

    begin = (mixed, jnp.full(size, num, jnp.int32), slot, real)
    begin = vary_alike(*begin, *keys)[:4]
    cell, table, first, left = while_more(few, begin, slot, stride, *keys)
    # Not jnp.nonzero with a size: JAX 0.12 lowers it without x64, even if called under x64.
    place = jnp.where(left, jnp.cumsum(left, dtype=jnp.int32) - 1, few)
    of = vary_alike(jnp.full(few, num, jnp.int32), left)[0].at[place].set(slot, mode="drop")
    operands = [array.at[of].get(mode="clip") for array in (slot, stride, *keys)]
    state = cell.at[of].get(mode="clip"), table, operands[0], of < num
    *_, found, _ = while_more(0, state, *operands)
    return first.at[of].set(found, mode="drop")


def _first_of_node(targets: jax.Array, neighbors: jax.Array, num_nodes: int) -> jax.Array:
    """int32 `[E]`: the first slot of each neighbour's node among the targets `[T]`, and then
    the neighbours `[E]`, by a table of all nodes. Ids of no nodes are in no slot."""
    num, most = targets.shape[0], targets.shape[0] + neighbors.shape[0]
    table = jnp.full(num_nodes + 1, most, jnp.int32)
    for ids, first in ((targets, 0), (neighbors, num)):
        slot = jnp.arange(first, first + ids.shape[0], dtype=jnp.int32)
        table = table.at[ids].min(slot, mode="drop", wrap_negative_indices=False)
    return table.at[neighbors].get(mode="clip", wrap_negative_indices=False)


def _mix(bits: jax.Array) -> jax.Array:
    """uint32: a function of `bits` uint32 of which every bit depends on all (Murmur3's end)."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> jnp.uint32(shift))) * jnp.uint32(factor)
    return bits ^ (bits >> jnp.uint32(16))


def relabel(
    targets: jax.Array,
    num_targets: jax.Array,
    neighbors: jax.Array,
    valid: jax.Array,
    source_capacity: int,
    padding: int,
    cutoff: jax.Array | None = None,
    neighbor_cutoff: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """The sources of a hop, and the position of each neighbour among them. The cost depends on
    the sample, and not on the graph where it has more than four nodes for each slot. Nothing is
    sorted.

    Args:
      targets: int32 `[T]`; the first `num_targets` are real. They may repeat.
      neighbors: int32 `[E]`, real where `valid` (bool `[E]`).
      padding: int, above all real ids: the graph's number of nodes.
      cutoff, neighbor_cutoff: int64 `[T]` and `[E]`, or None. With them two nodes are the same
        where their cutoffs are too.

    Returns int32 `[S]`, the targets, then every other neighbour in order of first appearance,
    then `padding`; int32, their number, which may exceed `S` (the rest is then dropped); int32
    `[E]`, the neighbours' positions, `S` where not valid; and int64 `[S]`, the sources'
    cutoffs, or None.
    """
    num, target = targets.shape[0], jnp.arange(targets.shape[0], dtype=jnp.int32)
    slot = jnp.arange(num, num + neighbors.shape[0], dtype=jnp.int32)
    real = target < num_targets
    few = isinstance(padding, int) and padding <= _DENSE * (num + neighbors.shape[0])
    if cutoff is None and few:  # exports do not know the number of nodes
        known = jnp.where(real, targets, padding), jnp.where(valid, neighbors, padding)
        first = _first_of_node(*known, padding)
    else:
        keys = [jnp.concatenate([targets, neighbors])]
        if cutoff is not None and neighbor_cutoff is not None:
            keys.append(jnp.concatenate([cutoff, neighbor_cutoff]))
        first = first_equal(keys, jnp.concatenate([real, valid]))[num:]

    new = (first == slot) & valid
    place = num_targets + jnp.cumsum(new, dtype=jnp.int32) - 1
    num_sources = num_targets + jnp.sum(new, dtype=jnp.int32)
    keep = jnp.where(real, target, source_capacity), jnp.where(new, place, source_capacity)

    def kept(of_targets: jax.Array, of_neighbors: jax.Array, empty: jax.Array) -> jax.Array:
        for at, values in zip(keep, (of_targets, of_neighbors), strict=True):
            empty = empty.at[at].set(values, mode="drop", wrap_negative_indices=False)
        return empty

    sources = kept(targets, neighbors, jnp.full(source_capacity, padding, jnp.int32))
    if neighbors.shape[0]:  # an empty array cannot be indexed
        place = place.at[first - num].get(mode="clip", wrap_negative_indices=False)
    local = jnp.where(first < num, first, place)
    local = jnp.where(valid, local, source_capacity).astype(jnp.int32)
    if cutoff is None or neighbor_cutoff is None:
        return sources, num_sources, local, None
    empty = jnp.zeros(source_capacity, jnp.int64)
    return sources, num_sources, local, kept(cutoff, neighbor_cutoff, empty)


def relabel_edges(
    targets: jax.Array,
    num_targets: jax.Array,
    neighbors: jax.Array,
    num_edges: jax.Array,
    source_capacity: int,
    padding: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As `relabel`, where the first `num_edges` of `neighbors` are real.

    If the sources do not fit, their number is `source_capacity + 1` and all are padding.
    """

    def plain(targets, num_targets, neighbors, num_edges):
        valid = jnp.arange(neighbors.shape[0]) < num_edges
        nodes, count, indices, _ = relabel(
            targets, num_targets, neighbors, valid, source_capacity, padding
        )
        fits = count <= source_capacity
        return (
            jnp.where(fits, nodes, padding),
            jnp.where(fits, count, source_capacity + 1).astype(jnp.int32),
            jnp.where(fits, indices, source_capacity),
        )

    def kernel(*operands):
        shapes = ((source_capacity,), (), operands[2].shape)
        out = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]
        return tuple(call("jgs_relabel", out, operands, kernels.NUM_THREADS, padding=padding))

    operands = (targets, num_targets, neighbors, num_edges)
    return kernel_or_plain(
        kernels.NUM_THREADS if kernels.available() else None, kernel, plain, *operands
    )
