"""Select: `Matrix.individual_sample` and `Matrix.collective_sample`, specified there. The
kernel of rows that are drawn jointly is jgs/kernels/collective.cc."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jgs import kernels
from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Schema
from jgs.kernels.call import FILL, call, kernel_or_plain, where_it_is
from jgs.sampling.algorithms.neighbors import Neighbors, Reads
from jgs.sampling.capacity import Capacity
from jgs.sampling.edges import draw
from jgs.sampling.edges.eligible import Eligible, Weights, eligible, weights_of
from jgs.sampling.edges.hops import HopDraw, draw_batches
from jgs.sampling.edges.random import LOGARITHMS, as_key_data, exponential, fold, node_bits
from jgs.sampling.fanouts import ByType, is_fanout
from jgs.sampling.matrix.edge_arrays import EdgeArrays
from jgs.sampling.matrix.entries import Entries, more, num_slots, of_rows, onto_rows
from jgs.sampling.matrix.sums import count, exponent, to_fixed
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

T = TypeVar("T", bound=Entries)

_BITS = 30  # bits of a column's largest probability
_LATER = 1 << 31  # added to a selection's number, so that it is never a layer's number


def individual_sample(matrix: T, k: int, probs: Any, replace: bool, key: Any) -> T:
    """See `Matrix.individual_sample`."""
    k = _count(k, all_too=True)
    if matrix.relations:
        raise InputError(
            "edges must be selected from the columns of nodes",
            "a column for each relation, whose draws would be alike",
            "Select first, or draw by relation with Neighbors.",
        )
    key_data = _key_data(matrix, key)
    stored = _is_stored(matrix, probs)
    replace = bool(replace) and k != -1
    if replace:
        matrix = with_fields(matrix, repeats=k)
    if matrix.edges is None and matrix.rows is None and (probs is None or stored):
        drawn = _from_the_graph(matrix, key_data, k, replace, stored)
        return drawn if key is None else with_fields(drawn, origin=None)
    built = matrix.built()
    weight = None
    if probs is not None:
        weight = probs.values if isinstance(probs, Entries) else jnp.asarray(probs)
        form, size = "[E], one for each edge", built.edges.row.shape[0]
        remedy = "Make them from the same slice; of several values an edge make one."
        require_array("probs", weight, form, remedy, E=size)
        weight = weight.astype(jnp.float32)
    return _from_edges(built, fold(key_data, matrix.layer), k, replace, weight)


def _is_stored(matrix: Entries, probs: Any) -> bool:
    """Whether `probs` is the same slice as `matrix`, with the graph's own weights."""
    return (
        isinstance(probs, Entries)
        and probs.graph is matrix.graph
        and probs.columns is matrix.columns
        and probs.edges is None
        and probs.stored is None
        and not probs.steps
        and matrix.graph.edge_weight_prefix is not None
    )


def _from_the_graph(matrix: T, key_data: jax.Array, k: int, replace: bool, weighted: bool) -> T:
    """Extract and select in one: the fused kernel of `Neighbors` draws, and no slice is
    built."""
    graph, columns = matrix.graph, matrix.column()
    most = columns.shape[0] * k if k != -1 else matrix.room.looked or graph.num_edges
    room = max(min(most, matrix.room.selected or most), 1)
    capacity = Capacity((room,), (columns.shape[0],))
    neighbors = Neighbors((k,), replace, weighted)
    spec = HopDraw(neighbors, capacity, (k,), True, False, False, first_hop=matrix.layer)
    seeds = Seeds(columns, excluded=matrix.excluded)
    (batch,) = draw_batches(key_data, graph, Reads(), seeds, spec)
    block, needed = batch.blocks[0], batch.needed
    assert block.edge_id is not None
    assert needed is not None
    slots = jnp.arange(columns.shape[0], dtype=jnp.int32)
    column = jnp.repeat(slots, jnp.diff(block.indptr), total_repeat_length=room)
    real = jnp.arange(room) < block.num_edges
    column = jnp.where(real, column, columns.shape[0])
    edges = EdgeArrays(block.indptr, column, block.indices, block.edge_id)
    needs = more(matrix.needs, selected=needed[0, 0], overflow=batch.overflow)
    with exact_integers():
        real = columns < graph.num_nodes
        rows = eligible(graph, columns, real, excluded=matrix.excluded)
        by = weights_of(rows, graph.edge_weight_prefix) if weighted else None
        edge_probs = _probs(edges, edges.edge_id, rows, by, k, replace)
    valued = with_fields(matrix, stored=matrix.all_values())
    return with_fields(
        valued.with_edges(edges, edges.edge_id, needs),
        edge_probs=edge_probs,
        origin=(k, replace, weighted) if matrix.draws == 0 else None,
        draws=matrix.draws + 1,
        loose=True,
    )


def _from_edges(
    built: T, key_data: jax.Array, k: int, replace: bool, weight: jax.Array | None
) -> T:
    """A selection from edges that are built, uniform or by `weight` float32 `[E]`."""
    edges, columns = built.edges, built.column()
    overflow = jnp.zeros((), bool)
    with exact_integers():
        start = edges.indptr[:-1].astype(jnp.int64)
        degree = jnp.diff(edges.indptr).astype(jnp.int64)
        rows = Eligible(columns, start, start, degree, degree)
        by = None
        if weight is not None:
            running, overflow = running_weights(weight, edges)
            by = weights_of(rows, running)
        if k == -1:
            each = edges._replace(edge_id=jnp.arange(edges.row.shape[0]))
            drawn = edges.real
        else:
            each, drawn = _draws(key_data, rows, by, k, replace)
        if by is not None:
            drawn &= by.part(each.edge_id, each.column)[1] > 0
        new, at = built.kept(each, drawn, edges.row, num_slots(built.rows, built.graph))
        probs = _probs(new.edges, at, rows, by, k, replace)
        needs = more(new.needs, overflow=overflow)
    loose = built.loose or built.rows is None
    return with_fields(new, edge_probs=probs, needs=needs, draws=built.draws + 1, loose=loose)


def _draws(
    key_data: jax.Array, rows: Eligible, by: Weights | None, k: int, replace: bool
) -> tuple[EdgeArrays, jax.Array]:
    """The `k` draws of each column as edges `[C * k]`, whose `edge_id` are positions among the
    built edges; and bool `[C * k]`, which of them drew an edge."""
    columns, start, degree = rows.nodes, rows.start[:, None], rows.num[:, None]
    if by is None:
        uniform = draw.repeated if replace else draw.distinct
        at = start + uniform(key_data, columns, rows.num, k)
        drawn = jnp.ones(at.shape, bool)
    else:
        by_weight = draw.repeated_by if replace else draw.weighted_distinct
        if not replace:  # rows of at most `k` edges give all of them
            by = by._replace(total=jnp.where(rows.num > k, by.total, 0))
        at, drawn = by_weight(key_data, columns, by, k)
    nth = jnp.arange(k)
    if replace:
        drawn &= degree > 0
    else:
        at = jnp.where(degree <= k, start + nth, at)
        drawn = jnp.where(degree <= k, nth < degree, drawn)
    column, indptr = (jnp.arange(columns.shape[0] + i, dtype=jnp.int32) for i in (0, 1))
    column = jnp.repeat(column, k)
    return EdgeArrays(
        indptr * k, column, jnp.zeros_like(column), at.reshape(-1)
    ), drawn.reshape(-1)


def running_weights(weight: jax.Array, edges: EdgeArrays) -> tuple[jax.Array, jax.Array]:
    """int64 `[E]`: the sum of the `weight` float32 `[E]` of its column's edges up to each edge,
    0 in padding. It is in units of 2**-30 of the power of two above the column's largest, and a
    positive weight is at least one unit. And bool: whether a weight is negative, infinite or
    NaN; these count as 0. Traced under x64."""

    def kernel(weight: jax.Array, indptr: jax.Array, column: jax.Array) -> Any:
        out = [
            jax.ShapeDtypeStruct(weight.shape, jnp.int64),
            jax.ShapeDtypeStruct((), jnp.bool_),
        ]
        return tuple(call("jgs_running_weights", out, (weight, indptr), kernels.NUM_THREADS))

    def plain(weight: jax.Array, indptr: jax.Array, column: jax.Array) -> Any:
        num_columns = indptr.shape[0] - 1
        real = column < num_columns
        bad = jnp.any(real & ~((weight >= 0) & (weight < jnp.inf)))
        usable = real & (weight > 0) & (weight < jnp.inf)
        weight = jnp.where(usable, weight, 0)
        largest = jnp.zeros(num_columns, jnp.float32).at[column].max(weight, mode="drop")
        shift = (_BITS - exponent(largest)).at[column].get(**FILL)
        fixed = jnp.where(usable, jnp.maximum(to_fixed(weight, shift), 1), 0)
        running = jnp.cumsum(fixed)
        start = indptr[:-1].astype(jnp.int64)
        before = (running - fixed).at[start].get(mode="fill", fill_value=0)
        return jnp.where(real, running - before.at[column].get(**FILL), 0), bad

    running, bad = where_it_is(kernel, plain, weight, edges.indptr, edges.column)
    return running, bad


def _probs(
    edges: EdgeArrays, at: jax.Array, rows: Eligible, by: Weights | None, k: int, replace: bool
) -> jax.Array:
    """float32 `[E]`: the `edge_probs` of the drawn `edges`, each column's in the order of its
    draws. `at` int64 `[E]` are their positions in the `rows` that columns draw from, uniformly
    or `by` weight."""
    if k == -1:
        return jnp.ones(at.shape[0], jnp.float32)

    def of(vector: jax.Array) -> jax.Array:
        return vector.at[edges.column].get(mode="fill", fill_value=1)

    if by is None:
        part = k / jnp.maximum(rows.num, 1).astype(jnp.float32)
        return of((part if replace else jnp.minimum(part, 1)).astype(jnp.float32))
    weight = jnp.where(edges.real, by.part(at, edges.column)[1], 0)
    total = jnp.maximum(of(by.total), 1)
    share = weight.astype(jnp.float64) / total
    if replace:
        return jnp.where(edges.real, k * share, 1).astype(jnp.float32)
    first = of(edges.indptr[:-1])
    running = jnp.cumsum(weight) - weight
    earlier = running - running.at[first].get(mode="clip")
    left = 1 - earlier.astype(jnp.float64) / total
    nth = jnp.arange(weight.shape[0]) - first
    raj = (left / jnp.where(share > 0, share, 1) + (k - 1 - nth)) / k
    certain = (of(rows.num) <= k) | (of(jnp.diff(edges.indptr)) < k) | ~edges.real
    return (1 / jnp.where(certain, 1, raj)).astype(jnp.float32)


def collective_sample(matrix: T, k: Any, node_probs: Any, key: Any) -> T:
    """See `Matrix.collective_sample`."""
    k = ByType(k) if isinstance(k, Mapping) else _count(k, all_too=False)
    key_data = fold(_key_data(matrix, key), matrix.layer)
    matrix = matrix.aligned()
    if matrix.rows is not None:
        matrix = matrix.built()
    ids = matrix.row()
    slots = ids.shape[0]
    part = matrix.columns is not None or matrix.edges is not None
    edges = count(matrix, 1) if part or node_probs is None else None
    weight = edges if node_probs is None else jnp.asarray(node_probs)
    assert weight is not None
    remedy = "Index the nodes' numbers by A.row(); a sum along axis 1 has them too."
    require_array("node_probs", weight, "[n], one for each row", remedy, n=slots)
    weight = weight.astype(jnp.float32)
    bad = ~jnp.all((weight >= 0) & (weight < jnp.inf))
    if edges is not None:
        weight = jnp.where(edges > 0, weight, 0)
    weight = jnp.where((ids < matrix.graph.num_nodes) & ~bad, weight, 0)
    if isinstance(k, ByType):
        slot, probs = _of_each_type(matrix.graph.schema, key_data, ids, weight, k)
    else:
        slot, probs = smallest_ranks(key_data, ids, weight, k)
    rows = ids.at[slot].get(mode="fill", fill_value=matrix.graph.num_nodes)
    needs = more(matrix.needs, overflow=bad)
    matrix = with_fields(matrix, draws=matrix.draws + 1, needs=needs, row_probs=probs)
    if matrix.edges is None:  # the slice need not be built
        return of_rows(matrix, rows)
    drawn = slot.shape[0]
    to_new = jnp.full(slots, drawn, jnp.int32)
    to_new = to_new.at[slot].set(jnp.arange(drawn, dtype=jnp.int32), mode="drop")
    return onto_rows(matrix, rows, to_new, slot)


def _of_each_type(
    schema: Schema | None, key_data: jax.Array, ids: jax.Array, weight: jax.Array, sizes: ByType
) -> tuple[jax.Array, jax.Array]:
    """What `smallest_ranks` draws of each node type by itself, one type after the other."""
    numbers = sizes.numbers(schema)
    assert schema is not None
    kind, _ = schema.type_and_place(ids)
    found = [
        smallest_ranks(key_data, ids, jnp.where(kind == i, weight, 0), k)
        for i, k in enumerate(numbers)
        if k
    ]
    slot, probs = (jnp.concatenate(each) for each in zip(*found, strict=True))
    return slot, probs


def _key_data(matrix: Entries, key: Any) -> jax.Array:
    key = matrix.key if key is None else key
    if key is None:
        raise InputError(
            "a selection needs a random key",
            "a matrix without one",
            "Make it with Matrix(graph, key=jax.random.key(0)), or give key=.",
        )
    key_data = as_key_data(key)
    return key_data if matrix.draws == 0 else fold(key_data, _LATER + matrix.draws)


def _count(k: Any, all_too: bool) -> int:
    if not is_fanout(k) or (k == -1 and not all_too):
        raise InputError(
            "k must be a static positive 32-bit int" + (", or -1 for all" if all_too else ""),
            repr(k),
            "Close over it under jax.jit, or make it static.",
        )
    return int(k)


def smallest_ranks(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """Successive draws without replacement, see `Matrix.collective_sample`: of `nodes` int32
    `[R]`, which are distinct but for padding, by `weight` float32 `[R]`, finite and not
    negative. A node of weight 0 is never drawn.

    Returns int32 `[k]`, the drawn slots in the order of their nodes, `R` where there are fewer;
    and float32 `[k]`, the probabilities of inclusion, 1 in padding. Ranks are float64 quotients
    of an exponential number and the weight. Among equal ranks the smaller node comes first.
    """

    def kernel(*arrays: jax.Array) -> tuple[jax.Array, jax.Array]:
        with exact_integers():
            out = [jax.ShapeDtypeStruct((k,), jnp.int32), jax.ShapeDtypeStruct((), jnp.float64)]
            operands = (*arrays, jnp.asarray(LOGARITHMS))
            slot, least = call("jgs_smallest_ranks", out, operands, kernels.NUM_THREADS)
        return slot, least

    threads = kernels.NUM_THREADS if kernels.available() else None
    arrays = key_data, nodes, weight
    slot, least = kernel_or_plain(threads, kernel, partial(_smallest_plain, k=k), *arrays)
    return slot, _inclusion(weight, slot, least)


@jax.jit
def _inclusion(weight: jax.Array, slot: jax.Array, least: jax.Array) -> jax.Array:
    with exact_integers():
        drawn_weight = weight.at[slot].get(mode="fill", fill_value=0).astype(jnp.float64)
        probs = -jnp.expm1(-drawn_weight * least)
        certain = (slot == weight.shape[0]) | (least == jnp.inf)
        return jnp.where(certain, 1, probs).astype(jnp.float32)


@partial(jax.jit, static_argnames="k")  # one equation, like the kernel: see `prepare`
def _smallest_plain(
    key_data: jax.Array, nodes: jax.Array, weight: jax.Array, k: int
) -> tuple[jax.Array, jax.Array]:
    """The drawn slots, and float64, the `k + 1`-st smallest rank; infinite if there is none."""
    slots = nodes.shape[0]
    with exact_integers():
        number = exponential(node_bits(key_data, nodes, 0))
        rank = jnp.where(weight > 0, number / weight.astype(jnp.float64), jnp.inf)
        slot = jnp.arange(slots, dtype=jnp.int32)
        rank, _, slot = jax.lax.sort((rank, nodes, slot), num_keys=2)
        rank = jnp.pad(rank, (0, max(0, k + 1 - slots)), constant_values=jnp.inf)
        slot = jnp.pad(slot, (0, max(0, k - slots)), constant_values=slots)[:k]
        slot = jnp.where(rank[:k] < jnp.inf, slot, slots)
        node = nodes.at[slot].get(mode="fill", fill_value=jnp.iinfo(jnp.int32).max)
        _, slot = jax.lax.sort((node, slot), num_keys=1)
    return slot, rank[k]
