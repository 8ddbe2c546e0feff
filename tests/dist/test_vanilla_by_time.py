"""Seeds with cutoffs in vanilla mode: ranks that split the topology draw what one rank with the
whole graph draws, bit for bit. No edge is at or after its seed's cutoff."""

import functools
from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from test_vanilla import CUTS, hold_rows

from jgs import Graph, kernels
from jgs.dist.batches.vanilla import RowCapacity, VanillaSampler
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import Capacity, Labor, Neighbors, Seeds

N, E, B = 300, 4000, 12
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
ROOM = Capacity((80, 1200), (80, 900))
COLUMNS = ("time", "elapsed")
SAMPLERS = [
    Neighbors((4, 3), edges=COLUMNS),
    Neighbors((-1, 2), window=200, edges=("elapsed",)),
    Neighbors((4, 3), latest=True, relabel_inputs=False),
    Labor((4, 3), edges=("time",)),
    Labor((3, 2), layer_dependency=True, window=400, period=3),
]
BY_RELATION = [
    Neighbors(({"a": 3, "b": 1}, {"*": 2}), edges=(*COLUMNS, "type")),
    Labor(({"a": 2, "b": 2}, {"*": 1}), edges=("type", "elapsed")),
]


@functools.cache
def graph_of(typed):
    """Rows of 0 to hundreds of edges, with ties, and times that need 64 bits."""
    rng = np.random.default_rng(5)
    dst = (rng.random(E) ** 3 * N).astype(int)
    src, time = rng.integers(0, 60, E), rng.integers(-90, 90, E) * 7
    time[:40] = rng.choice([LEAST, MOST - 1, 1 << 40, -(1 << 40)], 40)
    if not typed:
        return Graph.from_edges(src, dst, N, edge_time=time)
    kind = rng.integers(0, 2, E)
    of = {("node", name, "node"): kind == i for i, name in enumerate("ab")}
    pairs = {relation: (src[keep], dst[keep]) for relation, keep in of.items()}
    return Graph.from_relations(
        {"node": N}, pairs, edge_time={relation: time[keep] for relation, keep in of.items()}
    )


def seeds_of(size):
    """Nodes that repeat, also with two cutoffs, and padding. The last rank has none at all."""
    found = []
    for rank in range(size):
        rng = np.random.default_rng(rank)
        nodes = rng.choice([*range(60), N, 3, 3, 3], B).astype(np.int32)
        time = rng.choice([-200, 0, 7, 400, MOST, LEAST], B)
        nodes[:2], time[:2] = 3, [7, 400]
        found.append((nodes, time))
    if size > 1:
        found[-1][0][:] = N
    return found


class Ranks:
    def __init__(self, size, typed, sampler, capacity=ROOM, rows=None):
        self.comm = Mesh(jax.devices()[:size]) if size > 1 else Alone()
        self.whole, self.seeds, self.each = graph_of(typed), seeds_of(size), sampler
        cuts = CUTS[size]
        own = [
            hold_rows(self.whole, (np.arange(N) >= begin) & (np.arange(N) < end))
            for begin, end in pairwise(cuts)
        ]
        self.sampler = VanillaSampler(
            self.comm,
            self.comm.own(own),
            cuts,
            E,
            B,
            sampler,
            capacity,
            rows=rows or RowCapacity((B, 80), (80, 1200)),
            any_seeds=True,
        )

    def sample(self, words):
        asked = self.comm.own([{"nodes": n, "time": t} for n, t in self.seeds])
        return [replace(one, items=None) for one in self.comm.local(self.sampler(words, asked))]

    def alone(self, words, capacity=ROOM):
        """What one rank with the whole graph draws for each rank's seeds."""
        draw = jax.jit(self.each.sample, static_argnums=4)
        return [
            draw(words, self.whole, (), Seeds(nodes, time), capacity)
            for nodes, time in self.seeds
        ]


def words_of(sampler):
    return np.arange(7, 9 if getattr(sampler, "period", 1) == 1 else 12, dtype=np.uint32) << 27


CASES = [(size, False, sampler) for size in (2, 3) for sampler in SAMPLERS]
CASES += [(1, False, SAMPLERS[0]), (1, False, SAMPLERS[3])]
CASES += [(3, True, sampler) for sampler in BY_RELATION]


@pytest.mark.parametrize(("size", "typed", "sampler"), CASES, ids=str)
def test_the_sample_of_the_whole_graph(size, typed, sampler, same_bits):
    ranks, words = Ranks(size, typed, sampler), words_of(sampler)
    want, found = ranks.alone(words), ranks.sample(words)
    assert not any(batch.overflow for batch in want)
    same_bits(found, want)
    assert ranks.sampler.extra_rounds == 0
    assert ranks.comm.counters.rounds == (4 if size > 1 else 0)
    first = jax.device_get(found[0])
    assert int(first.blocks[0].num_edges) > 20
    assert (first.cutoff[:2] == [7, 400]).all()
    pairs = list(zip(first.nodes.tolist(), first.cutoff.tolist(), strict=True))
    both = [pair for pair in pairs[B:] if pair[0] < N]
    assert len({*both}) == len(both) > len({node for node, _ in both})
    for block in first.blocks:
        count = int(block.num_edges)
        target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
        if block.edge_time is not None:
            assert (block.edge_time[:count] < first.cutoff[target]).all()
        if "elapsed" in sampler.edges:
            assert (block.edge_columns["elapsed"][:count] > 0).all()


def test_without_kernels(same_bits, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    ranks, words = Ranks(2, False, SAMPLERS[0]), words_of(SAMPLERS[0])
    same_bits(ranks.sample(words), ranks.alone(words))


@pytest.mark.parametrize(
    "capacity", [Capacity((80, 40), (80, 900)), Capacity((80, 1200), (20, 900))]
)
def test_overflow_is_that_of_the_whole_graph(capacity, same_bits):
    ranks, words = Ranks(2, False, SAMPLERS[0], capacity), words_of(SAMPLERS[0])
    want = ranks.alone(words, capacity)
    assert [bool(batch.overflow) for batch in want] == [True, False]
    same_bits(ranks.sample(words), want)


def test_more_rounds_where_ranks_exchange_more(same_bits):
    small = RowCapacity((2, 8), (8, 16))
    ranks, words = Ranks(3, False, SAMPLERS[0], rows=small), words_of(SAMPLERS[0])
    same_bits(ranks.sample(words), ranks.alone(words))
    assert ranks.sampler.extra_rounds > 0
