"""`VanillaSampler` draws the sample of `sample_neighbors` on the whole graph, in its rounds."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError, kernels
from jgs.dist.batches.plan import planned_vanilla
from jgs.dist.batches.vanilla import RowCapacity, VanillaSampler
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.sampling import (
    Capacity,
    Labor,
    Neighbors,
    PinSage,
    Subgraph,
    sample_neighbors,
    worst_case,
)
from jgs.sampling.loading.schedule import Schedule, SeedParts

N, E, B = 300, 4000, 12
CUTS = {1: [0, N], 2: [0, 120, N], 3: [0, 40, 40, N], 4: [0, 1, 90, 200, N]}
ROOMY = Capacity((60, 3000, 1200), (60, 312, 312))
ENOUGH = RowCapacity((60, 312), (3000, 1200))  # enough for everything that fits ROOMY
MODES = [
    {"fanouts": (3, -1, 2)},
    {"fanouts": (3, 4, 2), "replace": True},
    {"fanouts": (3, -1, 2), "weighted": True},
    {"fanouts": (4, 3, 2), "weighted": True, "replace": True},
    {"fanouts": (4, 3, 2), "relabel_inputs": False},
]
BY_RELATION = Neighbors(({"*": 1, "a": 2}, {"a": -1, "c": 2}, {"b": 1, "c": 2})).fanouts
TYPED = [
    {"fanouts": (*BY_RELATION[:2], 3), "edges": ("type",)},
    {"fanouts": (BY_RELATION[0], 4, BY_RELATION[2]), "weighted": True, "edges": ("type",)},
]
STATIC = ("fanouts", "capacity", "replace", "weighted", "relabel_inputs", "edges")
whole_sample = jax.jit(sample_neighbors, static_argnames=STATIC)


def random_graph(seed):
    """In-degrees from 0 to hundreds, parallel edges, a third of the weights 0."""
    rng = np.random.default_rng(seed)
    dst = (rng.random(E) ** 3 * N).astype(int)
    weight = rng.random(E) * (rng.random(E) > 1 / 3)
    src, columns = rng.integers(0, N, E), {"feat": rng.random((E, 2))}
    return Graph.from_edges(src, dst, N, weight.astype(np.float32), edge_columns=columns)


def typed_graph(seed):
    """The edges of `random_graph`, of three relations between nodes of one type."""
    graph = random_graph(seed)
    dst = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    kind = np.random.default_rng(seed).choice(3, E, p=(0.6, 0.3, 0.1))
    of = {("node", name, "node"): kind == i for i, name in enumerate("abc")}
    src, weight = np.asarray(graph.indices), np.asarray(graph.edge_weight)
    pairs = {relation: (src[keep], dst[keep]) for relation, keep in of.items()}
    weights = {relation: weight[keep] for relation, keep in of.items()}
    return Graph.from_relations({"node": N}, pairs, edge_weight=weights)


def random_seeds(seed, size):
    """With repetitions and padding anywhere; the last rank has none at all."""
    rng = np.random.default_rng(seed)
    seeds = [rng.choice([*range(N), N, N, N, 3, 3], B).astype(np.int32) for _ in range(size)]
    if size > 1:
        seeds[-1][:] = N
    return seeds


def hold_rows(graph, held):
    """The graph that has the in-edges of the nodes `held`, bool `[N]`, alone, padded to `E`."""
    degree = np.diff(np.asarray(graph.indptr))
    indptr = np.append(np.int64(0), np.cumsum(np.where(held, degree, 0)))
    keep = np.repeat(held, degree)
    edges = {name: np.asarray(a)[keep] for name, a in graph.edge_arrays().items()}
    return Graph.from_edge_arrays(indptr, edges, E, graph.schema)


class Ranks:
    """`size` ranks, which have the rows of their own nodes, of their seeds and of `halo`."""

    def __init__(self, size, graph, seeds, halo=(), capacity=ROOMY, **mode):
        self.comm = Mesh(jax.devices()[:size]) if size > 1 else Alone()
        self.whole, self.seeds, self.mode = graph, seeds, mode
        held = np.zeros((size, N + 1), bool)
        for r, (begin, end) in enumerate(zip(CUTS[size], CUTS[size][1:], strict=False)):
            held[r, begin:end] = held[r, list(halo)] = held[r, seeds[r]] = True
        held = held[:, :N]
        parts = [hold_rows(graph, h) for h in held]
        rest = {k: v for k, v in mode.items() if k != "fanouts"}
        self.sampler = VanillaSampler(
            self.comm,
            self.comm.own(parts),
            CUTS[size],
            E,
            B,
            mode["fanouts"],
            capacity,
            held=self.comm.own(list(held)),
            rows=ENOUGH,
            **rest,
        )

    def sample(self, key, level=0):
        key_data = np.asarray(jax.random.key_data(key))
        return self.comm.local(self.sampler(key_data, self.comm.own(self.seeds), level))

    def whole_samples(self, key, capacity=ROOMY):
        args = {"capacity": capacity, **self.mode}
        return [whole_sample(key, self.whole, seeds, **args) for seeds in self.seeds]


EACH = [(size, mode) for size in (2, 4) for mode in MODES]
EACH += [(size, mode) for size in (1, 3) for mode in (MODES[0], MODES[2])]


@pytest.mark.parametrize(("size", "mode"), EACH, ids=str)
def test_the_sample_of_the_whole_graph(size, mode, same_bits):
    seed = 4 * MODES.index(mode) + size  # a different graph for each case
    ranks = Ranks(size, random_graph(seed), random_seeds(seed, size), **mode)
    for key in jax.random.split(jax.random.key(seed), 2):
        whole = ranks.whole_samples(key)
        assert not any(batch.overflow for batch in whole)
        assert whole[0].blocks[0].num_edges > 50
        same_bits(ranks.sample(key), whole)
    assert ranks.comm.counters.rounds == (8 if size > 1 else 0)
    assert ranks.sampler.extra_rounds == 0


@pytest.mark.parametrize(("size", "mode"), [(2, TYPED[0]), (4, TYPED[1]), (1, TYPED[0])])
def test_the_typed_sample_of_the_whole_graph(size, mode, same_bits):
    """By relation, with the relation of each edge, which travels in the same rounds."""
    ranks = Ranks(size, typed_graph(size), random_seeds(size, size), **mode)
    for key in jax.random.split(jax.random.key(size), 2):
        whole = ranks.whole_samples(key)
        assert not any(batch.overflow for batch in whole)
        types = np.concatenate([block.edge_type for block in whole[0].blocks])
        assert set(types.tolist()) == {0, 1, 2}
        same_bits(ranks.sample(key), whole)
    assert ranks.comm.counters.rounds == (8 if size > 1 else 0)


@pytest.mark.parametrize("mode", [MODES[0], MODES[2]], ids=str)
def test_without_kernels(mode, same_bits, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: False)
    ranks = Ranks(2, random_graph(0), random_seeds(0, 2), **mode)
    same_bits(ranks.sample(jax.random.key(1)), ranks.whole_samples(jax.random.key(1)))


@pytest.mark.parametrize("mode", [MODES[0], MODES[2]], ids=str)
def test_more_rounds_where_ranks_exchange_more(mode, same_bits):
    ranks = Ranks(3, random_graph(2), random_seeds(2, 3), **mode)
    ranks.sampler.rows = RowCapacity((8, 64), (1024, 128))
    key = jax.random.key(4)
    same_bits(ranks.sample(key), ranks.whole_samples(key))
    assert ranks.sampler.extra_rounds > 0
    assert ranks.comm.counters.rounds == 4 + ranks.sampler.extra_rounds
    extra = ranks.sampler.extra_rounds
    ranks.sample(key)  # the enlarged capacities stay
    assert ranks.sampler.extra_rounds == extra


def test_a_plan_is_enough_and_tight(same_bits):
    ranks = Ranks(3, random_graph(2), random_seeds(2, 3), **MODES[0])
    key = jax.random.key(4)
    key_data, seeds = np.asarray(jax.random.key_data(key)), ranks.comm.own(ranks.seeds)
    rows = ranks.sampler.plan([(key_data, seeds)])
    assert rows == ranks.sampler.rows
    assert np.sum(rows) < np.sum(ENOUGH)
    extra = ranks.sampler.extra_rounds
    same_bits(ranks.sample(key), ranks.whole_samples(key))
    assert ranks.sampler.extra_rounds == extra


@pytest.mark.parametrize(
    ("mode", "capacity"),
    [
        (MODES[0], Capacity((60, 500, 1200), (60, 312, 312))),
        (MODES[0], Capacity((8, 3000, 1200), (60, 312, 312))),
        (MODES[0], Capacity((60, 3000, 1200), (60, 100, 312))),
        (MODES[2], Capacity((60, 500, 1200), (60, 312, 312))),
    ],
    ids=str,
)
def test_overflow_is_that_of_the_whole_graph(mode, capacity, same_bits):
    """Only the rank that overflows is flagged."""
    ranks = Ranks(2, random_graph(1), random_seeds(1, 2), capacity=capacity, **mode)
    key = jax.random.key(0)
    whole = ranks.whole_samples(key, capacity)
    assert [bool(batch.overflow) for batch in whole] == [True, False]
    same_bits(ranks.sample(key), whole)
    assert ranks.sampler.extra_rounds == 0


def test_a_level_is_a_larger_capacity(same_bits):
    capacity = Capacity((24, 500, 700), (40, 312, 312))
    ranks = Ranks(2, random_graph(1), random_seeds(1, 2), capacity=capacity, **MODES[0])
    worst = worst_case(random_graph(1), B, MODES[0]["fanouts"], distinct=True)
    for level in range(3):
        whole = ranks.whole_samples(jax.random.key(0), capacity)
        same_bits(ranks.sample(jax.random.key(0), level), whole)
        capacity = capacity.enlarge(worst)


def test_edges_without_weight_count_for_an_overflow(same_bits):
    """With weights the capacity bounds the edges that could be drawn, not those that were."""
    graph = random_graph(3)
    seeds, key = random_seeds(3, 2), jax.random.key(2)
    mode = {"fanouts": (3, -1, 2), "weighted": True}
    ranks = Ranks(2, graph, seeds, **mode)
    drawn = int(ranks.whole_samples(key)[0].blocks[1].num_edges)
    capacity = ROOMY._replace(edges=(60, drawn + 8, 1200))
    ranks = Ranks(2, graph, seeds, capacity=capacity, **mode)
    whole = ranks.whole_samples(key, capacity)
    assert whole[0].overflow
    same_bits(ranks.sample(key), whole)


def test_halo_nodes_are_not_asked_for(same_bits):
    graph, seeds, key = random_graph(0), random_seeds(0, 2), jax.random.key(0)
    sent = []
    for halo in ((), range(0, N, 2)):
        ranks = Ranks(2, graph, seeds, halo, **MODES[0])
        key_data = np.asarray(jax.random.key_data(key))
        sent.append(np.sum(ranks.sampler.plan([(key_data, ranks.comm.own(seeds))], margin=0)))
        same_bits(ranks.sample(key), ranks.whole_samples(key))
    assert sent[0] > 1.5 * sent[1]


def test_rounds_in_the_program():
    """The program has 2 (L-1) collectives and no others."""
    ranks = Ranks(4, random_graph(0), random_seeds(0, 4), **MODES[0])
    text = []
    compile_program = ranks.comm.counting

    def keep(jitted):
        def call(*args):
            text.append(jitted.lower(*args).compile().as_text())
            return jitted(*args)

        return compile_program(jitted) and call

    ranks.comm.counting = keep
    ranks.sample(jax.random.key(0))
    count = {name: text[0].count(f" {name}(") for name in ("all-to-all", "all-gather")}
    assert count == {"all-to-all": 4, "all-gather": 0}
    assert " all-reduce(" not in text[0]


def test_first_guess_of_what_is_exchanged():
    for size, nodes, edges in ((1, (60, 312), (3000, 1200)), (4, (30, 156), (1500, 600))):
        comm = Mesh(jax.devices()[:size]) if size > 1 else Alone()
        graph = comm.own([random_graph(0)] * comm.num_local)
        rows = VanillaSampler(comm, graph, CUTS[size], E, B, (3, -1, 2), ROOMY).rows
        assert np.all(np.array(rows) >= (nodes, edges))
        assert np.all(np.array(rows) <= 1.1 * np.array((nodes, edges)))


def test_bad_arguments():
    graph, seeds = random_graph(0), random_seeds(0, 2)
    ranks = Ranks(2, graph, seeds, **MODES[0])
    for cuts in ([0, N], [0, 200, 100], [1, 2, N], "ab"):
        with pytest.raises(InputError, match="offsets must be 3 ints"):
            VanillaSampler(ranks.comm, None, cuts, E, B, (3, -1, 2), ROOMY)
    ranks.seeds = [seed.copy() for seed in ranks.seeds]
    missing = np.setdiff1d(np.arange(120), ranks.seeds[1])
    ranks.seeds[1][5] = missing[0]
    with pytest.raises(
        InputError, match=f"seeds of rank 1 must be 12 nodes .* got .{missing[0]}"
    ):
        ranks.sample(jax.random.key(0))


def test_samplers_that_owners_cannot_draw_are_refused():
    ranks = Ranks(2, random_graph(1), random_seeds(1, 2), **MODES[0])
    arguments = (ranks.comm, None, CUTS[2], E, B)
    for sampler, says in (
        (Subgraph(5), "whose draws belong to a node"),
        (Labor((3, 2), importance=1), "whose draws belong to a node"),
        (PinSage((3, 2)), "draw among their own in-edges"),
        (Labor((3, 2), edge_weights=True), "no ids, weights or columns of edges"),
        (Neighbors((3, 2), edges=("feat",)), r"types and times; got .* edges=.'feat',."),
    ):
        with pytest.raises(InputError, match=says):
            VanillaSampler(*arguments, sampler)


def test_labor_split_over_owners_is_labor_on_the_whole(same_bits):
    sampler, graph, seeds = Labor((3, 2)), random_graph(2), random_seeds(2, 2)
    ranks = Ranks(2, graph, seeds, **MODES[0])  # only for its parts
    capacity = worst_case(graph, B, sampler)
    held = ranks.comm.own(ranks.comm.local(ranks.sampler._held))
    split = VanillaSampler(
        ranks.comm, ranks.sampler._graph, CUTS[2], E, B, sampler, capacity, held=held
    )
    key_data = np.asarray(jax.random.key_data(jax.random.key(4)))
    whole = jax.jit(sampler.sample, static_argnums=4)
    alone = [whole(key_data, graph, (), each, capacity) for each in seeds]
    same_bits(ranks.comm.local(split(key_data, ranks.comm.own(seeds))), alone)


def test_one_rank_plans_from_whole_batches(monkeypatch):
    """A batch that overflows while planning is drawn again, also where no other rank exists."""
    graph, comm = random_graph(1), Alone()
    seed_parts = SeedParts.whole(np.arange(N, dtype=np.int32))
    schedules = [Schedule(jax.random.key(0), seed_parts, B, N)]
    seeds = [np.zeros(0, np.int32)]

    def plan():
        offsets = np.array([0, N])
        planned = planned_vanilla(
            comm, [graph], offsets, E, B, Neighbors((3, 2)), schedules, seeds=seeds
        )
        return planned._capacity

    roomy = plan()
    monkeypatch.setattr("jgs.sampling.capacity._MODEST", 8)
    assert plan() == roomy
