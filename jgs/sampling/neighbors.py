"""Neighbour sampling: `sample_neighbors`.

The plain version below is the meaning; on CPU devices a fused C++ kernel
(`jgs/kernels/sample.cc`) does the same in one call, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Block, Graph, MiniBatch
from jgs.sampling import draw
from jgs.sampling.capacity import Capacity, check_capacity, check_fanouts, worst_case
from jgs.sampling.random import fold, key_words
from jgs.sampling.relabel import relabel


def sample_neighbors(
    key: Any,
    graph: Graph,
    seeds: Any,
    fanouts: Sequence[int],
    capacity: Capacity | None = None,
    replace: bool = False,
    weighted: bool = False,
    return_edge_ids: bool = False,
    return_edge_weights: bool = False,
) -> MiniBatch:
    """Sample the in-neighbourhood of `seeds`, hop by hop, as message-passing blocks.

    At hop `h` every node known so far (the seeds and all neighbours drawn before them) draws
    `fanouts[h]` of its in-neighbours (GraphSAGE, Hamilton et al. 2017, Algorithm 2; sampled
    straight into CSC as in FastSample 2023, Algorithm 1). What node `v` draws at hop `h`
    depends on `(key, h, v)` alone: not on the other seeds, their order, the padding, the
    device or the number of threads. Jittable; everything from `fanouts` on is static.

    Args:
      key: a Threefry key (`jax.random.key(0)`), used once.
      graph: the graph `[N]`; under `jax.jit` pass it as an argument, do not close over it.
      seeds: integer `[B]` node ids, `B >= 1`. `N` marks padding, anywhere: it draws
        nothing. A seed that is repeated keeps its rows, one a repetition, with equal
        samples; edges from it name its first row.
      fanouts: how many neighbours each node draws, seed-first: `(5, 10)` draws 5 a seed,
        then 10. -1 takes all of them.
      capacity: static sizes, from `plan_capacity`; None takes the worst case, which is
        large. A sample that does not fit comes back empty with `overflow` set.
      replace: False: the drawn neighbours are distinct, every subset of `fanout` of them is
        equally likely, and all are taken where there are no more than `fanout`. True:
        `fanout` independent draws wherever there is a neighbour.
      weighted: draw in proportion to `graph.edge_weight` (without replacement: by successive
        draws among those left). Edges of weight 0 are never drawn, by -1 neither.
      return_edge_ids, return_edge_weights: fill the blocks' `edge_id`, `edge_weight`.

    Returns:
      A `MiniBatch` of `len(fanouts)` blocks, the hop of the seeds last.

    Raises:
      InputError: for arguments that break these rules. Seeds out of range are found when the
        values are known: under `jax.jit` the program then fails with the same message, in
        a ValueError or a `jax.errors.JaxRuntimeError` as JAX's version has it.
    """
    fanouts = check_fanouts(fanouts)
    words = key_words(key)
    check_graph(graph, weighted, return_edge_weights)
    seeds = _check_seeds(seeds, graph.num_nodes)
    batch_size = seeds.shape[0]
    if capacity is None:
        capacity = worst_case(graph.num_nodes, graph.num_edges, batch_size, fanouts, replace)
    spec = _Spec(
        fanouts,
        check_capacity(capacity, batch_size, len(fanouts)),
        bool(replace),
        bool(weighted),
        bool(return_edge_ids),
        bool(return_edge_weights),
    )
    with jax.enable_x64(True):  # edge offsets are 64-bit, whatever the caller's setting
        hops, nodes, overflow = _sample(words, graph, seeds, spec)
    return MiniBatch(seeds, nodes, tuple(hops[::-1]), overflow, graph.num_nodes)


class _Spec(NamedTuple):
    """What is static about a sample; one compiled program for each."""

    fanouts: tuple[int, ...]
    capacity: Capacity
    replace: bool
    weighted: bool
    edge_ids: bool
    edge_weights: bool


_Sample = tuple[list[Block], jax.Array, jax.Array]  # blocks seed-first, nodes, overflow


@partial(jax.jit, static_argnames="spec")
def _sample(words: jax.Array, graph: Graph, seeds: jax.Array, spec: _Spec) -> _Sample:
    plain = partial(_sample_plain, spec=spec)
    if not kernels.available():
        return plain(words, graph, seeds)
    kernel = partial(_sample_kernel, spec=spec)
    return jax.lax.platform_dependent(words, graph, seeds, cpu=kernel, default=plain)


# -- in plain JAX ----------------------------------------------------------------------------


def _sample_plain(words: jax.Array, graph: Graph, seeds: jax.Array, spec: _Spec) -> _Sample:
    num_nodes = graph.num_nodes
    if graph.num_edges == 0:  # one edge that no row has, since nothing can index no edges
        one = [None if a is None else jnp.zeros(1, a.dtype) for a in jax.tree.leaves(graph)[1:]]
        graph = Graph._unchecked(graph.indptr, *one)
    nodes = _refuse_outside(seeds, num_nodes)
    slot = jnp.arange(seeds.shape[0], dtype=jnp.int32)
    num_targets = jnp.max(slot + 1, initial=0, where=nodes < num_nodes)
    overflow = jnp.zeros((), bool)
    blocks = []
    for h in range(len(spec.fanouts)):
        block, nodes, exceeded = _hop_plain(fold(words, h), graph, nodes, num_targets, spec, h)
        overflow |= exceeded
        num_targets = block.num_sources
        blocks.append(block)
    blocks = [
        _empty_if(overflow, b, s) for b, s in zip(blocks, spec.capacity.sources, strict=True)
    ]
    return blocks, jnp.where(overflow, num_nodes, nodes), overflow


def _hop_plain(
    words: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    num_targets: jax.Array,
    spec: _Spec,
    h: int,
) -> tuple[Block, jax.Array, jax.Array]:
    """One hop from the first `num_targets` of `nodes`: its block, the sources, overflow."""
    num_nodes, k = graph.num_nodes, spec.fanouts[h]
    edge_capacity, source_capacity = spec.capacity.edges[h], spec.capacity.sources[h]
    real = (jnp.arange(nodes.shape[0]) < num_targets) & (nodes < num_nodes)
    start = jnp.where(real, graph.indptr.at[nodes].get(mode="clip"), 0)
    degree = jnp.where(real, graph.indptr.at[nodes + 1].get(mode="clip"), 0) - start

    # A row draws `bound` neighbours, by weight perhaps fewer.
    if k == -1:
        bound = degree
    else:
        bound = jnp.where(degree > 0, k, 0) if spec.replace else jnp.minimum(degree, k)
    ends = jnp.cumsum(bound)
    total = jnp.max(ends, initial=0)
    slot = jnp.arange(edge_capacity, dtype=jnp.int64)
    row = jnp.clip(jnp.searchsorted(ends, slot, side="right"), 0, max(nodes.shape[0] - 1, 0))
    nth = slot - (ends - bound)[row]
    position, drawn = _positions(words, graph, nodes, start, degree, row, nth, spec, k)
    edge = jnp.where(drawn & (slot < total), start[row] + position, -1)

    edge, indptr = _close_gaps(edge, row, nodes.shape[0])
    valid = edge >= 0
    neighbors = (
        graph.indices.at[edge].get(mode="clip") if graph.num_edges else edge.astype(jnp.int32)
    )
    sources, num_sources, local = relabel(
        nodes, num_targets, neighbors, valid, source_capacity, num_nodes
    )
    weight = None
    if spec.edge_weights and graph.edge_weight is not None:
        weight = graph.edge_weight.at[edge].get(
            mode="fill", fill_value=0, wrap_negative_indices=False
        )
    block = Block(
        indptr=indptr,
        indices=local,
        num_targets=num_targets,
        num_sources=num_sources,
        num_edges=indptr[-1],
        edge_id=edge if spec.edge_ids else None,
        edge_weight=weight,
    )
    return block, sources, (total > edge_capacity) | (num_sources > source_capacity)


def _positions(
    words: jax.Array,
    graph: Graph,
    nodes: jax.Array,
    start: jax.Array,
    degree: jax.Array,
    row: jax.Array,
    nth: jax.Array,
    spec: _Spec,
    k: int,
) -> tuple[jax.Array, jax.Array]:
    """Of edge slots that are the `nth` of target `row`: position in the row, drawn or not."""
    everything, prefix = jnp.ones(row.shape, bool), graph.edge_weight_prefix
    if spec.weighted and prefix is not None:
        before, through = (draw.row_weight(prefix, start[row], nth + i) for i in (0, 1))
        everything = through > before
    if k == -1 or (k >= graph.num_edges and not spec.replace):  # no row has more than k
        return nth, everything
    if spec.weighted and prefix is not None:
        by_weight = draw.weighted_repeated if spec.replace else draw.weighted_distinct
        position, drawn = by_weight(words, nodes, start, degree, prefix, k)
    else:
        uniform = draw.repeated if spec.replace else draw.distinct
        position = uniform(words, nodes, degree, k)
        drawn = jnp.ones_like(position, bool)
    at = (row, jnp.clip(nth, 0, k - 1))
    if spec.replace:
        return position[at], drawn[at]
    take_all = degree[row] <= k
    return jnp.where(take_all, nth, position[at]), jnp.where(take_all, everything, drawn[at])


def _close_gaps(edge: jax.Array, row: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Move the real edges (`edge` >= 0) together; also returns the rows' int32 `indptr`."""
    valid = edge >= 0
    count = (
        jnp.zeros(num_rows + 1, jnp.int32).at[row + 1].add(valid.astype(jnp.int32), mode="drop")
    )
    place = jnp.where(valid, jnp.cumsum(valid) - 1, edge.shape[0])
    closed = jnp.full_like(edge, -1).at[place].set(edge, mode="drop")
    return closed, jnp.cumsum(count, dtype=jnp.int32)


def _empty_if(overflow: jax.Array, block: Block, source_capacity: int) -> Block:
    empty = Block(
        indptr=jnp.zeros_like(block.indptr),
        indices=jnp.full_like(block.indices, source_capacity),
        num_targets=jnp.zeros_like(block.num_targets),
        num_sources=jnp.zeros_like(block.num_sources),
        num_edges=jnp.zeros_like(block.num_edges),
        edge_id=None if block.edge_id is None else jnp.full_like(block.edge_id, -1),
        edge_weight=None if block.edge_weight is None else jnp.zeros_like(block.edge_weight),
    )
    return jax.tree.map(lambda e, b: jnp.where(overflow, e, b), empty, block)


# -- in the kernel ---------------------------------------------------------------------------


def _sample_kernel(words: jax.Array, graph: Graph, seeds: jax.Array, spec: _Spec) -> _Sample:
    num_hops, capacity = len(spec.fanouts), spec.capacity
    results = []
    for targets, edges in zip(
        (seeds.shape[0], *capacity.sources), capacity.edges, strict=False
    ):
        results += [
            jax.ShapeDtypeStruct((targets + 1,), jnp.int32),
            jax.ShapeDtypeStruct((edges,), jnp.int32),
            jax.ShapeDtypeStruct((edges if spec.edge_ids else 0,), jnp.int64),
            jax.ShapeDtypeStruct((edges if spec.edge_weights else 0,), jnp.float32),
        ]
    results += [
        jax.ShapeDtypeStruct((capacity.sources[-1],), jnp.int32),
        jax.ShapeDtypeStruct((num_hops, 3), jnp.int32),
        jax.ShapeDtypeStruct((), jnp.bool),
    ]
    prefix = graph.edge_weight_prefix if spec.weighted else jnp.zeros(0, jnp.int64)
    weight = graph.edge_weight if spec.edge_weights else jnp.zeros(0, jnp.float32)
    hop_keys = jnp.stack([fold(words, h) for h in range(num_hops)])
    *arrays, nodes, counts, overflow = jax.ffi.ffi_call(
        "jgs_sample_neighbors", results, vmap_method="sequential"
    )(
        hop_keys,
        graph.indptr,
        graph.indices,
        prefix,
        weight,
        seeds,
        fanouts=np.array(spec.fanouts, np.int64),
        edge_capacity=np.array(capacity.edges, np.int64),
        source_capacity=np.array(capacity.sources, np.int64),
        replace=np.bool_(spec.replace),
        weighted=np.bool_(spec.weighted),
        num_threads=np.int64(kernels.NUM_THREADS),
    )
    blocks = [
        Block(
            indptr=arrays[4 * h],
            indices=arrays[4 * h + 1],
            num_targets=counts[h, 0],
            num_sources=counts[h, 1],
            num_edges=counts[h, 2],
            edge_id=arrays[4 * h + 2] if spec.edge_ids else None,
            edge_weight=arrays[4 * h + 3] if spec.edge_weights else None,
        )
        for h in range(num_hops)
    ]
    return blocks, nodes, overflow


# -- checks ----------------------------------------------------------------------------------


def _seeds_error(seeds: np.ndarray, num_nodes: int) -> InputError | None:
    outside = (seeds < 0) | (seeds > num_nodes)
    if not outside.any():
        return None
    at = int(np.argmax(outside))
    return InputError(
        f"seeds must be node ids in [0, {num_nodes}), or {num_nodes} for padding",
        f"{int(seeds[at])} at position {at}",
        "Check where the seeds come from",
    )


def _check_seeds(seeds: Any, num_nodes: int) -> jax.Array:
    """`seeds` as int32 `[B]`; values are checked here when they are known already."""
    if not isinstance(seeds, jax.Array):
        seeds = np.asarray(seeds)
    if seeds.ndim != 1 or seeds.size == 0 or not jnp.issubdtype(seeds.dtype, jnp.integer):
        raise InputError(
            "seeds must be a one-dimensional integer array of node ids, at least one",
            f"{seeds.dtype}{list(seeds.shape)}",
            "Give one id a seed.",
        )
    if not isinstance(seeds, jax.core.Tracer) and (
        error := _seeds_error(np.asarray(seeds), num_nodes)
    ):
        raise error
    if not jnp.can_cast(seeds.dtype, jnp.int32):  # wide ids must not wrap into the range
        seeds = jnp.clip(seeds, 0 if seeds.dtype.kind == "u" else -1, num_nodes + 1)
    return jnp.asarray(seeds, jnp.int32)


def _refuse_outside(seeds: jax.Array, num_nodes: int) -> jax.Array:
    """`seeds`; when the program runs and one is out of range, it fails with the message."""

    def fail(values):
        if error := _seeds_error(np.asarray(values), num_nodes):
            raise error
        return np.asarray(values)

    def refuse(s):
        return jax.pure_callback(
            fail, jax.ShapeDtypeStruct(s.shape, s.dtype), s, vmap_method="sequential"
        )

    good = jnp.all((seeds >= 0) & (seeds <= num_nodes))
    return jax.lax.cond(good, lambda s: s, refuse, seeds)


def check_graph(graph: Any, weighted: bool, return_edge_weights: bool = False) -> None:
    """Raises `InputError` unless `graph` is one that can be sampled from as asked."""
    if not isinstance(graph, Graph):
        raise InputError(
            "the second argument must be a jgs.Graph",
            type(graph).__name__,
            "Make one with Graph.from_edges, from_scipy, from_networkx, from_npz or open.",
        )
    num_edges = jnp.shape(graph.indices)
    for name, dtype, shape in (
        ("indptr", jnp.int64, jnp.shape(graph.indptr)),
        ("indices", jnp.int32, num_edges),
        ("edge_weight", jnp.float32, num_edges),
        ("edge_weight_prefix", jnp.int64, num_edges),
    ):
        array = getattr(graph, name)
        if array is not None and (array.dtype != dtype or array.shape != shape or not shape):
            raise InputError(
                f"the graph's {name} must be {jnp.dtype(dtype)}{list(shape)}",
                f"{array.dtype}{list(array.shape)}",
                "Build the graph with Graph(...): its arrays keep their dtypes outside x64.",
            )
    missing = (weighted and graph.edge_weight_prefix is None) or (
        return_edge_weights and graph.edge_weight is None
    )
    if missing:
        raise InputError(
            "weighted sampling needs a graph with edge weights",
            "a graph without",
            "Give edge_weight when you make the graph, outside jax.jit.",
        )
