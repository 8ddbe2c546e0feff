"""`VanillaSampler` draws the whole graph's sample, bit for bit; also for seeds with cutoffs."""

import functools
from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from cases import cases
from refusals import refused
from small_ranks import ranks_of

from jgs import Graph, InputError, kernels
from jgs.dist.batches.plan import planned_vanilla
from jgs.dist.batches.vanilla import RowCapacity, VanillaSampler
from jgs.dist.communicators.comm import Alone
from jgs.sampling import Capacity, Labor, Neighbors, PinSage, Seeds, Subgraph, worst_case
from jgs.sampling.loading.schedule import Schedule, SeedParts

N, E, B = 300, 4000, 12
CUTS = {1: [0, N], 2: [0, 120, N], 3: [0, 40, 40, N], 4: [0, 1, 90, 200, N]}
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# By the number of hops: room for all that is drawn, and for what ranks then exchange. With
# cutoffs there are two hops, and the first is asked for too.
ROOM = {3: Capacity((60, 3000, 1200), (60, 312, 312)), 2: Capacity((80, 1200), (80, 900))}
ENOUGH = {3: RowCapacity((60, 312), (3000, 1200)), 2: RowCapacity((B, 80), (80, 1200))}

PLAIN, WEIGHTED = Neighbors((3, -1, 2)), Neighbors((3, -1, 2), weighted=True)
OF_NODES = [
    (1, "", WEIGHTED),
    (2, "", PLAIN),
    (2, "", Neighbors((4, 3, 2), weighted=True, replace=True)),
    (3, "", Neighbors((3, 4, 2), replace=True)),
    (3, "", WEIGHTED),
    (4, "", Neighbors((4, 3, 2), relabel_inputs=False)),
    (2, "", Labor((3, 3, 2))),
    # By relation, with the relation of each edge, which travels in the same rounds.
    (2, "abc", Neighbors(({"*": 1, "a": 2}, {"a": -1, "c": 2}, 3), edges=("type",))),
    (
        3,
        "abc",
        Neighbors(({"*": 1, "a": 2}, 4, {"b": 1, "c": 2}), weighted=True, edges=("type",)),
    ),
]
COLUMNS = ("time", "elapsed")
BY_TIME = Neighbors((4, 3), edges=COLUMNS)
OF_CUTOFFS = [
    (1, "", BY_TIME),
    (2, "", BY_TIME),
    (3, "", Neighbors((-1, 2), window=200, edges=("elapsed",))),
    (2, "", Neighbors((4, 3), latest=True, relabel_inputs=False)),
    (3, "", Labor((3, 2), layer_dependency=True, window=400, period=3)),
    (3, "ab", Neighbors(({"a": 3, "b": 1}, {"*": 2}), edges=(*COLUMNS, "type"))),
    (2, "ab", Labor(({"a": 2, "b": 2}, {"*": 1}), edges=("type", "elapsed"))),
]
CASES = [*((*case, False) for case in OF_NODES), *((*case, True) for case in OF_CUTOFFS)]


@functools.cache
def graph_of(timed, relations):
    """In-degrees from 0 to hundreds, parallel edges; weights of 0, or times with ties."""
    rng = np.random.default_rng(2)
    few = 5 if timed else 1  # sources, so that some are reached at several times
    src, dst = rng.integers(0, N // few, E) * few, (rng.random(E) ** 3 * N).astype(int)
    if timed:
        name, column = "edge_time", rng.integers(-90, 90, E) * 7
        column[:40] = rng.choice([LEAST, MOST - 1, 1 << 40, -(1 << 40)], 40)
    else:
        name, column = "edge_weight", rng.random(E, np.float32) * (rng.random(E) > 1 / 3)
    if not relations:
        more = {} if timed else {"edge_columns": {"feat": rng.random((E, 2))}}
        return Graph.from_edges(src, dst, N, **{name: column}, **more)
    kind = (rng.random(E) ** 2 * len(relations)).astype(int)
    of = {("node", letter, "node"): kind == i for i, letter in enumerate(relations)}
    pairs = {relation: (src[keep], dst[keep]) for relation, keep in of.items()}
    columns = {relation: column[keep] for relation, keep in of.items()}
    return Graph.from_relations({"node": N}, pairs, **{name: columns})


def seeds_of(size, timed):
    """Nodes that repeat, also with two cutoffs, and padding. The last rank has none at all."""
    found = []
    for rank in range(size):
        rng = np.random.default_rng(rank)
        nodes = rng.choice([*range(0, N, 5), N, N, N, 3, 3], B).astype(np.int32)
        time = rng.choice([-200, 0, 7, 400, MOST, LEAST], B)
        nodes[:2], time[:2] = 3, [7, 400]
        if rank == size - 1 > 0:
            nodes[:] = N
        found.append(Seeds(nodes, time) if timed else nodes)
    return found


def hold_rows(graph, held):
    """The graph that has the in-edges of the nodes `held`, bool `[N]`, alone, padded to `E`."""
    degree = np.diff(np.asarray(graph.indptr))
    indptr = np.append(np.int64(0), np.cumsum(np.where(held, degree, 0)))
    keep = np.repeat(held, degree)
    edges = {name: np.asarray(a)[keep] for name, a in graph.edge_arrays().items()}
    return Graph.from_edge_arrays(indptr, edges, E, graph.schema)


@functools.partial(jax.jit, static_argnums=(0, 4))
def sample(sampler, words, graph, seeds, capacity):
    return sampler.sample(words, graph, (), seeds, capacity)


class Ranks:
    """`size` ranks with the rows of own nodes, of `halo`, and without cutoffs of seeds."""

    def __init__(self, size, relations, each, timed=False, capacity=None, halo=()):
        hops, self.comm, self.each = each.num_hops, ranks_of(size), each
        self.whole, self.seeds = graph_of(timed, relations), seeds_of(size, timed)
        self.timed, self.capacity = timed, capacity or ROOM[hops]
        held = np.zeros((size, N + 1), bool)
        for r, (begin, end) in enumerate(pairwise(CUTS[size])):
            held[r, begin:end] = held[r, list(halo)] = True
            held[r, [] if timed else self.seeds[r]] = True
        held = held[:, :N]
        parts = self.comm.own([hold_rows(self.whole, h) for h in held])
        options = {"any_seeds": True} if timed else {"held": self.comm.own(list(held))}
        arguments = (self.comm, parts, CUTS[size], E, B, each, self.capacity)
        self.sampler = VanillaSampler(*arguments, **options)
        words = 5 if getattr(each, "period", 1) > 1 else 2
        self.words = np.arange(7, 7 + words, dtype=np.uint32) << 27

    def asked(self):
        if not self.timed:
            return self.comm.own(self.seeds)
        return self.comm.own([{"nodes": s.nodes, "time": s.time} for s in self.seeds])

    def sample(self, capacity=None, rows=None):
        """What the ranks draw; with `rows` for what they exchange."""
        self.sampler.rows = rows or ENOUGH[self.each.num_hops]
        drawn = self.sampler(self.words, self.asked(), capacity)
        return [replace(one, items=None) for one in self.comm.local(drawn)]

    def alone(self, capacity=None):
        """What one rank with the whole graph draws for each rank's seeds."""
        capacity = capacity or self.capacity
        return [sample(self.each, self.words, self.whole, s, capacity) for s in self.seeds]


made = functools.cache(Ranks)  # they keep their programs


@pytest.mark.parametrize(("size", "relations", "each", "timed"), CASES, ids=str)
def test_the_sample_of_the_whole_graph(size, relations, each, timed, same_bits):
    ranks = made(size, relations, each, timed)
    rounds, extra = ranks.comm.counters.rounds, ranks.sampler.extra_rounds
    whole, found = ranks.alone(), ranks.sample()
    assert not any(batch.overflow for batch in whole)
    same_bits(found, whole)
    assert ranks.comm.counters.rounds - rounds == (4 if size > 1 else 0)
    assert ranks.sampler.extra_rounds == extra
    first = jax.device_get(found[0])
    assert first.blocks[0].num_edges > 20
    if relations == "abc":
        types = np.concatenate([block.edge_type for block in first.blocks])
        assert {*types.tolist()} == {0, 1, 2}
    if timed:
        check_times(first, each)


def check_times(drawn, each):
    """Edges are before their targets' cutoffs. A node has a row for each of its cutoffs."""
    assert (drawn.cutoff[:2] == [7, 400]).all()
    pairs = list(zip(drawn.nodes.tolist(), drawn.cutoff.tolist(), strict=True))
    both = [pair for pair in pairs[B:] if pair[0] < N]
    assert len({*both}) == len(both) > len({node for node, _ in both})
    for block in drawn.blocks:
        count = int(block.num_edges)
        target = np.repeat(np.arange(block.target_capacity), np.diff(block.indptr))
        if block.edge_time is not None:
            assert (block.edge_time[:count] < drawn.cutoff[target]).all()
        if "elapsed" in each.edges:
            assert (block.edge_columns["elapsed"][:count] > 0).all()


def test_without_kernels(same_bits, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    ranks = Ranks(2, "", BY_TIME, True)
    same_bits(ranks.sample(), ranks.alone())


@cases(
    "size, each, timed, rows",
    (3, WEIGHTED, False, RowCapacity((8, 64), (1024, 128))),
    pytest.param(2, BY_TIME, True, RowCapacity((2, 8), (8, 16)), marks=pytest.mark.slow),
    ids=str,
)
def test_more_rounds_where_ranks_exchange_more(size, each, timed, rows, same_bits):
    """A plan is enough, and tight."""
    ranks = made(size, "", each, timed)
    rounds, before = ranks.comm.counters.rounds, ranks.sampler.extra_rounds
    whole = ranks.alone()
    same_bits(ranks.sample(rows=rows), whole)
    extra = ranks.sampler.extra_rounds
    assert extra > before
    assert ranks.comm.counters.rounds - rounds == 4 + extra - before
    same_bits(ranks.sample(rows=ranks.sampler.rows), whole)  # the enlarged capacities stay
    assert ranks.sampler.extra_rounds == extra
    if timed:
        return
    ranks.sampler.rows = ENOUGH[3]
    planned = ranks.sampler.plan([(ranks.words, ranks.asked())])
    assert planned == ranks.sampler.rows
    assert np.sum(planned) < np.sum(ENOUGH[3])
    extra = ranks.sampler.extra_rounds
    same_bits(ranks.sample(rows=planned), whole)
    assert ranks.sampler.extra_rounds == extra


@cases(
    "each, timed, capacity",
    (PLAIN, False, Capacity((60, 3000, 1200), (60, 100, 312))),
    (BY_TIME, True, Capacity((80, 40), (80, 900))),
    ids=str,
)
def test_overflow_is_that_of_the_whole_graph(each, timed, capacity, same_bits):
    """Only the rank that overflows is flagged. Another capacity may be given."""
    ranks = Ranks(2, "", each, timed, capacity)
    whole = ranks.alone()
    assert [bool(batch.overflow) for batch in whole] == [True, False]
    same_bits(ranks.sample(), whole)
    if not timed:
        larger = capacity.enlarge(worst_case(ranks.whole, B, each, distinct=True))
        same_bits(ranks.sample(larger), ranks.alone(larger))
    assert ranks.sampler.extra_rounds == 0


def test_edges_without_weight_count_for_an_overflow(same_bits):
    """With weights the capacity bounds the edges that could be drawn, not those that were."""
    drawn = int(made(3, "", WEIGHTED).alone()[0].blocks[1].num_edges)
    capacity = ROOM[3]._replace(edges=(60, drawn + 8, 1200))
    ranks = Ranks(3, "", WEIGHTED, capacity=capacity)
    whole = ranks.alone()
    assert whole[0].overflow
    same_bits(ranks.sample(), whole)


def test_halo_nodes_are_not_asked_for(same_bits):
    far, near = made(2, "", PLAIN), Ranks(2, "", PLAIN, halo=range(0, N, 2))
    sent = []
    for ranks in (far, near):
        ranks.sampler.rows = ENOUGH[3]
        sent.append(np.sum(ranks.sampler.plan([(ranks.words, ranks.asked())], margin=0)))
    assert sent[0] > 1.5 * sent[1]
    same_bits(near.sample(), far.alone())


def test_bad_arguments():
    ranks = made(2, "", PLAIN)
    for cuts in ([0, N], [0, 200, 100], [1, 2, N], "ab"):
        with pytest.raises(InputError, match="offsets must be 3 ints"):
            VanillaSampler(ranks.comm, None, cuts, E, B, PLAIN, ROOM[3])
    seeds = [seed.copy() for seed in ranks.seeds]
    seeds[1][5] = missing = np.setdiff1d(np.arange(120), seeds[1])[0]
    with pytest.raises(InputError, match=f"seeds of rank 1 must be 12 nodes .* got .{missing}"):
        ranks.sampler(ranks.words, ranks.comm.own(seeds))
    for sampler, says in (
        (Subgraph(5), "whose draws belong to a node"),
        (Labor((3, 2), importance=1), "whose draws belong to a node"),
        (PinSage((3, 2)), "draw among their own in-edges"),
        (Labor((3, 2), edge_weights=True), "no ids, weights or columns of edges"),
        (Neighbors((3, 2), edges=("feat",)), "types and times; got * edges=('feat',)"),
    ):
        refused(says, VanillaSampler, ranks.comm, None, CUTS[2], E, B, sampler)


def test_one_rank_plans_from_whole_batches(monkeypatch):
    """A batch that overflows while planning is drawn again, also where no other rank exists."""
    seed_parts = SeedParts.whole(np.arange(N, dtype=np.int32))
    monkeypatch.setattr("jgs.dist.batches.plan.SMALL", 0)
    schedules = [Schedule(jax.random.key(0), seed_parts, B, N)]
    of_graph = (Alone(), [graph_of(False, "")], np.array([0, N]), E, B)

    def plan():
        none, each = [np.zeros(0, np.int32)], Neighbors((3, 2))
        return planned_vanilla(*of_graph, each, schedules, seeds=none).capacities.capacity

    roomy = plan()
    monkeypatch.setattr("jgs.sampling.capacity._MODEST", 8)
    assert plan() == roomy
