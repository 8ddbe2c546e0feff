"""The runs of a block: the edges of one relation into one target, put in order of the relation.

A layer of a typed graph (`jgs.models.RelationLayer`) reduces the edges of each run to a row,
multiplies the rows by the matrices of their relations (`relation_linear`) and adds up each
target's rows. So it costs what the runs that exist cost, however many relations there are.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.foreign import edge_targets
from jgs.kernels.call import call, floats, kernel_or_plain, vary_alike, where_it_is
from jgs.ops import checks
from jgs.ops.aggregate import aggregate_forward, gather
from jgs.ops.linear import finish

TILE = 32  # slots; all of a tile's runs are of one relation


class Slots(NamedTuple):
    """Places for `K` runs, in tiles of `TILE` slots. All runs in a tile are of one relation,
    and the tiles are in order of it. `T` and `R` are the numbers of targets and of relations.

    Fields:
      relation: int32 `[K / TILE]`; each tile's relation, 0 in padding.
      target: int32 `[K]`; the target of each slot's run, `T` where a slot has no run.
      sums: a block from slots to targets. The edges into a target are its runs, ascending by
        relation. So `aggregate(sums, rows, "sum")` adds up the rows `[K, F]` of each target's
        runs. Its `num_sources` is the number of slots in use, a multiple of `TILE`.
    """

    relation: jax.Array
    target: jax.Array
    sums: Block

    @property
    def num_slots(self) -> jax.Array:
        return self.sums.num_sources

    def of_targets(self, rows: jax.Array) -> jax.Array:
        """float32 `[K, F]`: the target's row of `rows` `[T, F]` for each slot; zeros where a
        slot has no run. Differentiable. `rows` may have more rows, which are not read."""
        return _of_targets(rows, self)


class Runs(NamedTuple):
    """The runs of a block with `E` edges.

    Fields:
      slots: `Slots`, a slot for each run.
      edges: a block whose targets are the slots, and whose sources are those of the block.
        Slots without a run have no edges. So `aggregate(edges, x, reduce)` is the rows
        `[K, F]` of the runs. It has the block's edge weights. A run's edges are in the order
        of the block.
      order: int32 `[E]`; the edge of the block at each place in `edges`, `E` in padding.
      place: int32 `[E]`; the place of each edge of the block in `edges`, `E` in padding.
    """

    slots: Slots
    edges: Block
    order: jax.Array
    place: jax.Array

    def to_block(self, rows: jax.Array) -> jax.Array:
        """`rows` `[E, F]` of the edges in the order of the block, from their order in `edges`.
        Zeros in padding. Differentiable."""
        return permuted(rows, self.place, self.order)

    def to_runs(self, rows: jax.Array) -> jax.Array:
        """The opposite of `to_block`."""
        return permuted(rows, self.order, self.place)


def runs_of(block: Block, num_relations: int) -> Runs:
    """The `Runs` of a block with `edge_type`, which a sampler gives with `edges=("type",)`.

    A target's edges may be in any order. The number of slots is static: `min(E, T * R)` runs,
    and fewer than `TILE` slots of padding for each relation. The cost is in proportion to edges
    and slots.

    Raises `InputError` for a block without edge types or with control variates. A relation
    outside `[0, R)` is an error of the kernel, as for `jgs.ops.aggregate`. The plain form drops
    its edges.
    """
    num_targets, num_sources, num_edges = checks.check_block(block)
    if block.edge_type is None:
        raise InputError(
            "a block must have the edge column 'type' for its runs",
            ", ".join(block.edge_arrays()) or "no edge columns",
            "Ask the sampler for it: edges=('type',).",
        )
    if block.control is not None:
        raise InputError(
            "a block's runs must be reduced without control variates",
            "a block with control",
            "Take a sampler without control variates: any but VRGCN.",
        )
    num_rows, capacity = block.target_capacity, block.edge_capacity
    num_runs = max(1, min(capacity, num_rows * num_relations))
    room = num_runs + min(num_relations, num_runs) * (TILE - 1)
    sizes = (num_runs, -(-room // TILE) * TILE, block.source_capacity or 0, num_relations)
    kind = jnp.clip(block.edge_type, -1, 2**15 - 1).astype(jnp.int16)  # never another relation
    arrays = (block.indptr, block.indices, kind)
    num_threads = kernels.NUM_THREADS if kernels.available() else None
    found = _runs(num_threads, sizes, *vary_alike(*arrays, num_targets, num_edges))
    indptr, indices, order, place, relation, target, sum_indptr, sum_indices, slots, runs = (
        found
    )
    weight = block.edge_weight
    if weight is not None:
        weight = weight.at[order].get(mode="fill", fill_value=0)
    edges = Block(
        indptr,
        indices,
        slots,
        num_sources,  # type: ignore[arg-type]
        num_edges,  # type: ignore[arg-type]
        edge_weight=weight,
        source_capacity=block.source_capacity,
        overflow=block.overflow,
    )
    sums = Block(
        sum_indptr,
        sum_indices,
        num_targets,  # type: ignore[arg-type]
        slots,
        runs,
        source_capacity=target.shape[0],
        overflow=block.overflow,
    )
    return Runs(Slots(relation, target, sums), edges, order, place)


def groups_of(kind: jax.Array, num_groups: int, num_rows: jax.Array) -> Slots:
    """`Slots` whose relations are the groups `kind` int32 `[S]`, a negative number counting as
    0, with one slot for each of the first `num_rows` rows. `slots.target` is the row of each
    slot, and `slots.sums.indices` the slot of each row."""
    num = kind.shape[0]
    row = jnp.arange(num, dtype=jnp.int32)
    num_rows = jnp.clip(num_rows, 0, num).astype(jnp.int32)
    indptr = jnp.minimum(jnp.arange(num + 1, dtype=jnp.int32), num_rows)
    each = Block(indptr, row, num_rows, num_rows, num_rows, source_capacity=num)
    each = each.with_edge_arrays({"type": jnp.maximum(kind, 0).astype(jnp.int16)})
    return runs_of(each, num_groups).slots


def dense_slots(num_targets: int, num_relations: int) -> Slots:
    """`Slots` with a run of every relation for each of `num_targets` targets. The slot of
    relation `r` and target `t` is `r * width + t`, where `width` is `num_targets` rounded up to
    a multiple of `TILE`."""
    width = -(-max(num_targets, 1) // TILE) * TILE
    tile = jnp.arange(num_relations * width // TILE, dtype=jnp.int32)
    place = jnp.arange(num_relations * width, dtype=jnp.int32) % width
    target = jnp.arange(num_targets, dtype=jnp.int32)
    first = width * jnp.arange(num_relations, dtype=jnp.int32)
    indices = target[:, None] + first[None, :]
    sums = Block(
        jnp.arange(num_targets + 1, dtype=jnp.int32) * num_relations,
        indices.reshape(-1),
        jnp.int32(num_targets),
        jnp.int32(num_relations * width),
        jnp.int32(num_relations * num_targets),
        source_capacity=num_relations * width,
    )
    return Slots(tile // (width // TILE), jnp.minimum(place, num_targets), sums)


@partial(jax.custom_vjp)
def permuted(rows: jax.Array, ids: jax.Array, inverse: jax.Array) -> jax.Array:
    """`rows[ids]`, with zeros where an id is out of range. Row `i` of `rows` is read only for
    result `inverse[i]`, so the derivative is read likewise and needs no scatter."""
    return gather(rows, ids)


permuted.defvjp(
    lambda rows, ids, inverse: (gather(rows, ids), (ids, inverse)),
    lambda found, grad: (gather(grad, found[1]), None, None),  # differentiable in both modes
)


def _rows_of_targets(rows, slots):
    return gather(rows, jnp.where(slots.target < slots.sums.target_capacity, slots.target, -1))


def _of_targets_bwd(residuals, grad):
    num_rows, slots = residuals
    num_targets, _, num_edges = checks.check_block(slots.sums)
    edges = (slots.sums.indptr, slots.sums.indices, num_targets)
    operands = vary_alike(grad, None, *edges, checks.edges_or_lost(slots.sums, num_edges))
    num_threads = checks.threads_for(slots.sums.target_capacity, grad)
    grad = aggregate_forward("sum", num_threads, *operands)[0]  # which has both modes
    return jnp.pad(grad, ((0, num_rows.shape[0] - grad.shape[0]), (0, 0))), None


_of_targets = checks.with_derivative(
    _rows_of_targets, lambda rows, slots, _: (rows[:, :0], slots), _of_targets_bwd, 0
)


@partial(jax.jit, static_argnums=(0, 1))
def _runs(num_threads, sizes, *operands):
    """The arrays of `Runs`, as jgs/kernels/runs.h lists them, then the numbers of slots in use
    and of runs. `sizes` are the capacities of runs and slots, the number of rows that fills
    `indices` in padding, and the number of relations. `num_threads` None: no kernel runs."""
    num_runs, num_slots, num_sources, num_relations = sizes

    def kernel(indptr, indices, edge_type, *counts):
        num_edges, num_rows = indices.shape[0], indptr.shape[0]
        shapes: list[tuple[int, ...]] = [(num_slots + 1,), *[(num_edges,)] * 3]
        shapes += [(num_slots // TILE,), (num_slots,), (num_rows,), (num_runs,), (), ()]
        out = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]
        facts = {"num_sources": num_sources, "num_relations": num_relations, "tile": TILE}
        facts = {name: np.int64(fact) for name, fact in facts.items()}
        arguments = (indptr, indices, edge_type, *counts)
        return tuple(call("jgs_runs", out, arguments, num_threads, **facts))

    return where_it_is(kernel, partial(_runs_plain, sizes), *operands)


def _runs_plain(sizes, indptr, indices, edge_type, num_targets, num_edges):
    num_runs, num_slots, num_sources, num_relations = sizes
    capacity, num_rows = indices.shape[0], indptr.shape[0] - 1
    at = jnp.arange(capacity, dtype=jnp.int32)
    row, real = edge_targets(capacity, indptr, num_targets, num_edges)
    kind = edge_type.astype(jnp.int32)
    real &= (kind >= 0) & (kind < num_relations)
    row, kind, edge = jax.lax.sort(  # edges that are not real come last
        (jnp.where(real, row, num_rows), kind, at), num_keys=2, is_stable=True
    )
    real = row < num_rows
    differs = (row[1:] != row[:-1]) | (kind[1:] != kind[:-1])
    new = real & jnp.concatenate([jnp.ones(1, bool), differs])[:capacity]
    run = jnp.cumsum(new, dtype=jnp.int32) - 1  # of each edge
    count = jnp.sum(new, dtype=jnp.int32)

    (first,) = jnp.nonzero(new, size=num_runs, fill_value=capacity)
    kind = _at(kind, first, num_relations)  # of each run
    sizes_of = jnp.zeros(num_relations, jnp.int32).at[kind].add(1, mode="drop")
    before = jnp.cumsum(sizes_of) - sizes_of
    tiles = -(-sizes_of // TILE)
    start = (jnp.cumsum(tiles) - tiles) * TILE
    by_kind = jnp.argsort(kind, stable=True)
    rank = jnp.zeros(num_runs, jnp.int32).at[by_kind].set(jnp.arange(num_runs, dtype=jnp.int32))
    slot = (start - before).at[kind].get(mode="fill", fill_value=0) + rank
    slot = jnp.where(kind < num_relations, slot, num_slots)

    length = jnp.zeros(num_runs, jnp.int32).at[run].add(real, mode="drop")
    length = jnp.zeros(num_slots, jnp.int32).at[slot].set(length, mode="drop")
    run_indptr = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(length, dtype=jnp.int32)])
    begin = run_indptr.at[slot].get(mode="clip") - first.astype(jnp.int32)
    place = jnp.where(real, begin.at[run].get(mode="clip") + at, capacity)
    order = jnp.full(capacity, capacity, jnp.int32).at[place].set(edge, mode="drop")
    target = _at(row, first, num_rows)
    target = jnp.full(num_slots, num_rows, jnp.int32).at[slot].set(target, mode="drop")
    tile = jnp.arange(num_slots // TILE, dtype=jnp.int32)
    relation = jnp.searchsorted(jnp.cumsum(tiles), tile, side="right").astype(jnp.int32)
    of_row = jnp.zeros(num_rows, jnp.int32).at[row].add(new, mode="drop")
    return (
        run_indptr,
        indices.at[order].get(mode="fill", fill_value=num_sources).astype(jnp.int32),
        order,
        jnp.zeros(capacity, jnp.int32).at[edge].set(place),
        jnp.where(tile < jnp.sum(tiles), relation, 0),
        target.astype(jnp.int32),
        jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(of_row, dtype=jnp.int32)]),
        slot.astype(jnp.int32),
        jnp.sum(tiles, dtype=jnp.int32) * TILE,
        count,
    )


def relation_linear(slots: Slots, x: jax.Array, kernel: jax.Array) -> jax.Array:
    """For each slot, its row of `x` times the matrix of its relation.

    Args:
      slots: `Slots` of `R` relations, with `K` slots.
      x: float `[K, F]`, a row for each slot.
      kernel: float `[R, F, O]`; or `[R, B, F / B, O / B]`, the `B` blocks on the diagonal of
        each matrix.

    Returns:
      `[K, O]`; 0 in slots that are not in use. What `x` and the gradient hold there changes
      nothing, NaN included. Slots in use that have no run are multiplied like others.

    Only tiles in use are computed, on the CPU. Differentiable in `x` and `kernel`. Raises
    `InputError` for shapes that do not match.
    """
    checks.check_rows("x", x)
    blocks = kernel if kernel.ndim == 4 else kernel[:, None]
    num_slots = slots.target.shape[0]
    if blocks.ndim != 4 or x.shape != (num_slots, blocks.shape[1] * blocks.shape[2]):
        raise InputError(
            f"relation_linear takes x [{num_slots}, F] and a kernel [R, F, O], or in B blocks "
            "[R, B, F / B, O / B]",
            f"{list(x.shape)} and {list(kernel.shape)}",
            "Give each slot a row, and each relation a matrix.",
        )
    dtype = jnp.result_type(x, blocks)
    x, blocks = x.astype(dtype), blocks.astype(dtype)
    num_threads = checks.threads_for(num_slots, x, blocks)
    return _linear(num_threads, *vary_alike(slots.num_slots, slots.relation, x, blocks))


def group_linear(
    kind: jax.Array,
    x: jax.Array,
    kernel: jax.Array,
    bias: jax.Array | None,
    num_rows: jax.Array,
) -> jax.Array:
    """float32 `[S, O]`: each row of `x` `[S, F]` times the matrix of its group in `kernel` `[G,
    F, O]`, plus the `bias` `[G, O]` of its group; zeros from row `num_rows` on. `kind` int32
    `[S]` has the groups. Where it is negative the row counts to group 0, so `x` must be finite
    there."""
    num_groups, num = kernel.shape[0], kind.shape[0]
    slots = groups_of(kind, num_groups, num_rows)
    row_of_slot, slot_of_row = slots.target, slots.sums.indices
    y = relation_linear(slots, permuted(x[:num], row_of_slot, slot_of_row), kernel)
    y = permuted(y, slot_of_row, row_of_slot)[:num]
    if bias is None:
        return y
    # A product, whose derivative is one too.
    of_row = jax.nn.one_hot(jnp.maximum(kind, 0), num_groups) @ bias
    return finish(y + of_row, num_rows)


# The passes are jitted, so that eager calls compile once too. `num_threads` None means that no
# kernel runs.


@partial(jax.jit, static_argnums=0)
def _forward(num_threads, *operands):
    def run(num_rows, relation, x, kernel):
        out = floats((x.shape[0], kernel.shape[1] * kernel.shape[3]))
        return call("jgs_relation_linear", out, (num_rows, relation, x, kernel), num_threads)

    def plain(num_rows, relation, x, kernel):
        tiles = _tiles(num_rows, x, kernel.shape[1])
        y = jnp.einsum("ntbi,nbio->ntbo", tiles, kernel[relation])
        return finish(y.reshape(x.shape[0], -1), num_rows)

    return kernel_or_plain(num_threads, run, plain, *operands)


@partial(jax.jit, static_argnums=0)
def _grad_kernel(num_threads, num_rows, relation, x, grad, kernel):
    shape = kernel.shape

    def run(num_rows, relation, x, grad):
        arguments = (num_rows, relation, x, grad)
        return call("jgs_relation_linear_grad", floats(shape), arguments, num_threads)

    def plain(num_rows, relation, x, grad):
        x, grad = (_tiles(num_rows, a, shape[1]) for a in (x, grad))
        of_tile = jnp.einsum("ntbi,ntbo->nbio", x, grad)
        return jax.ops.segment_sum(of_tile, relation, shape[0])

    return kernel_or_plain(num_threads, run, plain, num_rows, relation, x, grad)


def _backward(num_threads, operands, grad):
    num_rows, relation, x, kernel = operands
    grad_x = _forward(num_threads, num_rows, relation, grad, kernel.swapaxes(2, 3))
    return None, None, grad_x, _grad_kernel(num_threads, num_rows, relation, x, grad, kernel)


_linear = checks.with_derivative(_forward, lambda *operands: operands[:-1], _backward, 1)


def _tiles(num_rows, x, num_blocks):
    """`x` `[K, F]` as `[K / TILE, TILE, B, F / B]`, with zeros in padding."""
    return finish(x, num_rows).reshape(-1, TILE, num_blocks, x.shape[1] // num_blocks)


def _at(values: jax.Array, at: jax.Array, fill: int) -> jax.Array:
    if not values.shape[0]:  # which JAX refuses
        return jnp.full(at.shape, fill, values.dtype)
    return values.at[at].get(mode="fill", fill_value=fill)
