"""Neighbour sampling: `sample_neighbors`.

`neighbors_plain.py` is the meaning; on CPU devices a fused C++ kernel (`neighbors_kernel.py`)
does the same in one call, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax

from jgs import kernels
from jgs.graph import Graph, MiniBatch
from jgs.kernels.call import vary_alike
from jgs.sampling.algorithms.neighbors_kernel import sample_kernel
from jgs.sampling.algorithms.neighbors_plain import Sample, Spec, sample_plain
from jgs.sampling.capacity import Capacity, check_capacity, worst_case
from jgs.sampling.checks import check_fanouts, check_graph, check_seeds
from jgs.sampling.random import key_words


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
    relabel_inputs: bool = True,
) -> MiniBatch:
    """Sample the in-neighbourhood of `seeds`, hop by hop, as message-passing blocks.

    At hop `h` every node known so far (the seeds and all neighbours drawn before them) draws
    `fanouts[h]` of its in-neighbours (GraphSAGE, Hamilton et al. 2017, Algorithm 2; sampled
    straight into CSC as in FastSample 2023, Algorithm 1). What node `v` draws at hop `h`
    depends on `(key, h, v)` alone: not on the other seeds, their order, the padding, the
    device or the number of threads. Jittable; everything from `fanouts` on is static.

    Args:
      key: a Threefry key (`jax.random.key(0)`), used once. For several batches an array of
        as many keys (`jax.random.split(key, S)`).
      graph: the graph `[N]`; under `jax.jit` pass it as an argument, do not close over it.
      seeds: integer `[B]` node ids, `B >= 1`. `N` marks padding, anywhere: it draws
        nothing. A seed that is repeated keeps its rows, one a repetition, with equal
        samples; edges from it name its first row. `[S, B]` are S batches (gSampler,
        SOSP 2023, super-batches): one call, each batch sampled on its own, with less waiting
        between threads than S calls have.
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
      relabel_inputs: False: the input-side block names its sources by node id, for a first
        layer that reads rows straight from the feature store (see `Block`, `MiniBatch`). The
        last hop's sources then need no capacity. Else the sample is the same, bit for bit.

    Returns:
      A `MiniBatch` of `len(fanouts)` blocks, the hop of the seeds last. Of S batches all
      its arrays have a leading axis S: `jax.tree.map(lambda a: a[i], batch)` is batch `i`, bit
      for bit what a call with its key and seeds alone returns, its own `overflow` included.

    Raises:
      InputError: for arguments that break these rules. Seeds out of range are found when the
        values are known: under `jax.jit` the program then fails with the same message, in
        a ValueError or a `jax.errors.JaxRuntimeError` as JAX's version has it.
    """
    fanouts = check_fanouts(fanouts)
    check_graph(graph, weighted, return_edge_weights)
    seeds = check_seeds(seeds, graph.num_nodes)
    words = key_words(key, seeds.shape[:-1])
    batch_size = seeds.shape[-1]
    if capacity is None:
        capacity = worst_case(graph.num_nodes, graph.num_edges, batch_size, fanouts, replace)
    spec = Spec(
        fanouts,
        check_capacity(capacity, batch_size, len(fanouts)),
        bool(replace),
        bool(weighted),
        bool(return_edge_ids),
        bool(return_edge_weights),
        bool(relabel_inputs),
    )
    (batch,) = sample_batches(words, graph, seeds, spec)
    return batch


def sample_batches(
    words: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec
) -> list[MiniBatch]:
    """The one batch of `sample_neighbors`; with `spec.apart` the S batches of seeds `[S, B]`,
    none of which shares an array with another, so that taking them apart copies nothing."""
    with jax.enable_x64(True):  # edge offsets are 64-bit, whatever the caller's setting
        samples = _sample(*vary_alike(words, graph, seeds), spec)
    rows = [seeds[i] for i in range(seeds.shape[0])] if spec.apart else [seeds]
    return [
        MiniBatch(row, nodes, tuple(hops[::-1]), overflow, graph.num_nodes)
        for row, (hops, nodes, overflow) in zip(rows, samples, strict=True)
    ]


@partial(jax.jit, static_argnames="spec")
def _sample(words: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec) -> list[Sample]:
    plain = partial(sample_plain, spec=spec)
    if not kernels.available():
        return plain(words, graph, seeds)
    kernel = partial(sample_kernel, spec=spec)
    return jax.lax.platform_dependent(words, graph, seeds, cpu=kernel, default=plain)
