"""What batches of a graph draw, measured by drawing some on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.plan.cost import Draw, Workload
from jgs.dist.rows.owners import Demand
from jgs.graph import Graph, MiniBatch
from jgs.sampling import plan_capacity, worst_case
from jgs.sampling.capacity import Capacities
from jgs.sampling.edges.random import threefry

_RANKS = 4  # batches are drawn for at most so many ranks
_TRIALS = 8  # batches for each of these ranks


def measured_draw(
    work: Workload,
    graph: Graph,
    owner: np.ndarray,
    seeds: list[np.ndarray],
    cache_rows: int = 0,
    most_batches: int = 200,
) -> Draw:
    """The `Draw` of `len(seeds)` ranks, from a few batches of up to 4 of them.

    Args:
      work: the graph's size and the training.
      graph: the graph to draw from.
      owner: int `[N]`, the rank of each node.
      seeds: for each rank int32, its training nodes.
      cache_rows: the number of rows that a rank may keep. If it is not 0, batches of rank 0's
        epoch are drawn to find the rows that are read most.
      most_batches: the largest number of batches drawn for that. A longer epoch reads some rows
        more often, so a cache serves more of it than the result says.

    Edge weights are not used: neighbours are drawn uniformly.
    """
    num_ranks, num_nodes = len(seeds), work.num_nodes
    sampled = [np.zeros((2, work.sampler.num_hops))]
    asked = np.zeros((2, work.sampler.num_hops))
    needs, read = dict[int, int](), np.zeros(num_nodes, np.int32)
    capacity = plan_capacity(
        graph, work.batch_size, work.sampler, seeds=np.concatenate(seeds), trials=4
    )
    for rank in range(min(num_ranks, _RANKS)):
        whole = rank == 0 and cache_rows > 0 and num_ranks > 1
        most = most_batches if whole else _TRIALS
        batches = _batches(work, graph, seeds[rank], capacity, rank, most)
        for step, batch in enumerate(batches):
            blocks = batch.blocks[::-1]
            counts = [(int(b.num_edges), int(b.num_sources)) for b in blocks]
            sampled.append(np.array(counts, float).T)
            nodes = np.asarray(batch.nodes)
            real = nodes[nodes < num_nodes]
            remote = real[owner[real] != rank]
            need = _most(owner[remote], None, num_ranks)
            needs[step] = max(needs.get(step, 0), need)
            for hop, block in enumerate(blocks[1:], 1):
                asked[:, hop] = np.maximum(
                    asked[:, hop], _asked(nodes, block, owner, rank, num_ranks)
                )
            if whole:
                read[remote] += 1
    mean = np.mean(sampled[1:], axis=0)
    best = np.sort(read)[::-1][:cache_rows]
    reads = int(read.sum(dtype=np.int64))
    return Draw(
        tuple(mean[0].tolist()),
        tuple(mean[1].tolist()),
        tuple(asked[0, 1:].tolist()),
        tuple(asked[1, 1:].tolist()),
        Demand(map(int, needs.values())).most(),
        int(np.count_nonzero(best)),
        float(best.sum(dtype=np.int64) / reads) if reads else 0.0,
        float(np.bincount(owner, minlength=num_ranks).max() / num_nodes),
    )


def _asked(
    nodes: np.ndarray, block: Any, owner: np.ndarray, rank: int, num_ranks: int
) -> list[int]:
    """The largest number of a hop's targets that one other rank owns, and the largest number of
    edges into such targets."""
    targets = nodes[: int(block.num_targets)]
    degree = np.diff(np.asarray(block.indptr))[: targets.size]
    there = targets < owner.size  # seeds may be padding
    of = owner[targets[there]]
    other = of != rank
    of, degree = of[other], degree[there][other]
    return [_most(of, None, num_ranks), _most(of, degree, num_ranks)]


def _most(of: np.ndarray, weights: np.ndarray | None, num_ranks: int) -> int:
    return int(np.bincount(of, weights, minlength=num_ranks).max())


def _batches(
    work: Workload, graph: Graph, seeds: np.ndarray, capacity: Any, rank: int, most: int
) -> Iterator[MiniBatch]:
    """The first `most` batches of a rank's epoch. A smaller last batch is left out, unless it
    is the only one."""
    order = np.random.default_rng(rank).permutation(seeds)
    sampler, size = work.sampler, work.batch_size
    sample = jax.jit(sampler.sample, static_argnums=4)
    key, state = (
        jax.random.fold_in(threefry(0), rank),
        sampler.init(graph),
    )
    capacities = Capacities(capacity, worst_case(graph, size, sampler, distinct=True))
    for number, begin in enumerate(range(0, min(order.size, most * size), size)):
        some = np.full(size, work.num_nodes, np.int32)
        mine = order[begin : begin + size]
        if mine.size < size and number > 0:
            return  # a smaller batch would lower the mean
        some[: mine.size] = mine
        key_data = jax.random.fold_in(key, number)

        def attempt(capacity: Any, key_data: Any = key_data, some: np.ndarray = some) -> Any:
            batch = sample(key_data, graph, state, some, capacity)
            return batch, batch.overflow

        yield capacities.fit(attempt)[0]
