"""Draws have their distribution; by `test_equality.py` plain JAX draws the same."""

import itertools
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import jax
import numpy as np
import pytest
from rows_law import assert_as_often, assert_included, assert_independent, inclusion
from test_by_relation import graph_of

import jgs
from jgs import Graph
from jgs.sampling import Neighbors, Seeds, sample_neighbors
from jgs.sampling.edges.recency import POWERS, decayed_sums

DRAWS = 30_000


def star(degree: int, copies: int = DRAWS, weight=None) -> tuple[jgs.Graph, np.ndarray]:
    """The graph and ids of `copies` targets, each with the in-neighbours `0..degree`."""
    targets = degree + np.arange(copies)
    src = np.tile(np.arange(degree), copies)
    weight = None if weight is None else np.tile(np.asarray(weight, np.float32), copies)
    graph = jgs.Graph.from_edges(src, np.repeat(targets, degree), degree + copies, weight)
    return graph, targets


def drawn(batch: jgs.MiniBatch, hop: int = 0) -> np.ndarray:
    """The neighbours that a hop has drawn, as node ids."""
    block = jax.device_get(batch.blocks[-1 - hop])
    return np.asarray(batch.nodes)[block.indices[: block.num_edges]]


def draws(batch: jgs.MiniBatch, k: int) -> np.ndarray:
    """int `[copies, k]`: the neighbours of each target in the batch's first hop."""
    return drawn(batch).reshape(-1, k)


def assert_follows(outcomes: np.ndarray, probability: dict[tuple, float]) -> None:
    """Chi-square of the rows of `outcomes`; those without a probability may not occur."""
    counts = dict.fromkeys(probability, 0)
    for outcome in map(tuple, outcomes.tolist()):
        counts[outcome] += 1  # raises KeyError for an impossible outcome
    assert_as_often(list(counts.values()), list(probability.values()))


@pytest.mark.parametrize(("degree", "k"), [(2, 1), (5, 1), (6, 3), (7, 5), (9, 8)])
def test_every_subset_is_equally_likely(degree, k):
    graph, targets = star(degree)
    rows = draws(sample_neighbors(jax.random.key(1), graph, targets, (k,)), k)
    subsets = list(itertools.combinations(range(degree), k))
    assert_follows(np.sort(rows, axis=1), dict.fromkeys(subsets, 1))


@pytest.mark.parametrize("k", [1, 60])
def test_a_hub_is_drawn_evenly_to_its_end(k):
    """pyg-lib 0.9 gives the first 64 % of 40,000 neighbours 78 % of the draws."""
    graph, targets = star(40_000, copies=300)
    keys = jax.random.split(jax.random.key(0), 60 // k)
    rows = [drawn(sample_neighbors(key, graph, targets, (k,))) for key in keys]
    assert_as_often(np.bincount(np.concatenate(rows) // 1000, minlength=40), np.ones(40))


@pytest.mark.parametrize("weight", [None, (0.5, 0, 3, 1)])
def test_with_replacement_draws_are_independent_and_as_likely_as_their_weights(weight):
    graph, targets = star(4, weight=weight)
    options = {"replace": True, "weighted": weight is not None}
    rows = draws(sample_neighbors(jax.random.key(2), graph, targets, (3,), **options), 3)
    chances = np.ones(4) if weight is None else np.array(weight)
    sequences = list(itertools.product(range(4), repeat=3))
    assert_follows(rows, {each: chances[list(each)].prod() for each in sequences})


def successive(weight: np.ndarray, k: int) -> dict[tuple, float]:
    """Probability of each ordered outcome of k successive draws without replacement."""
    outcomes: dict[tuple, float] = {}
    for order in itertools.permutations(np.flatnonzero(weight).tolist(), k):
        left, probability = float(weight.sum()), 1.0
        for i in order:
            probability *= weight[i] / left
            left -= weight[i]
        outcomes[order] = probability
    return outcomes


@pytest.mark.parametrize("k", [1, 2, 3])
def test_weighted_without_replacement_is_successive_draws(k):
    weight = np.array([1.0, 0.0, 4.0, 2.0, 0.25, 0.0, 3.0])
    graph, targets = star(7, weight=weight)
    rows = draws(sample_neighbors(jax.random.key(4), graph, targets, (k,), weighted=True), k)
    assert_follows(rows, successive(weight, k))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 2, 4, 6])
def test_zero_weights_are_never_drawn(replace, fanout):
    """Also where the fanout exceeds the positive weights or the degree, or all are 0."""
    weight = np.array([0.0, 1e-38, 0.0, 3e38, 0.0], np.float32)
    graph, targets = star(5, copies=40, weight=weight)
    edges = np.asarray(graph.edge_weight).copy()
    edges[:5] = 0  # all the neighbours of the first target have weight 0
    graph = jgs.Graph(graph.indptr, graph.indices, edges)
    options = {"replace": replace, "weighted": True}
    batch = sample_neighbors(jax.random.key(0), graph, targets, (fanout,), **options)
    assert set(drawn(batch).tolist()) <= {1, 3}
    degree = np.diff(np.asarray(batch.blocks[0].indptr))
    each = fanout if replace and fanout > 0 else 2
    assert degree.tolist() == [0] + [each] * 39


def test_hops_nodes_and_steps_are_independent():
    graph, targets = star(6)
    key = jax.random.key(9)
    two_hops = sample_neighbors(key, graph, targets, (1, 1))
    first, second = drawn(two_hops), drawn(two_hops, 1)[: targets.size]
    assert_independent(first, second)  # the same nodes draw anew at the next hop
    assert_independent(first[:-1], first[1:])  # nodes with neighbouring ids are independent
    assert_independent(first[::2], first[1::2])
    later = sample_neighbors(jax.random.fold_in(key, 1), graph, targets, (1,))
    assert_independent(first, drawn(later))  # and at the next step
    several = draws(sample_neighbors(key, graph, targets, (3,), replace=True), 3)
    assert_independent(several[:, 0], several[:, 1])
    assert_independent(several[:, 1], several[:, 2])


KEY = jax.random.key(3)


def test_sums_are_those_of_the_recurrence():
    """Edge by edge, in Python's integers; rows of many octaves, of one, of none, extremes."""
    rng, least, most = np.random.default_rng(0), -(1 << 63), (1 << 63) - 1
    rows = np.sort(rng.integers(-90, 90, 60)), np.sort(rng.integers(least, most, 9))
    times = np.r_[(*rows, [least, least, -1, 0, most - 1], np.full(30, 7))]
    indptr = np.array([0, 0, 60, 69, 74, 74, 104])
    graph = Graph(indptr, np.zeros(times.size, np.int32), edge_time=times)
    for half_life in (1, 7, 1 << 62):
        sums = np.asarray(decayed_sums(graph, half_life))
        for begin, end in pairwise(indptr.tolist()):
            total, before = 0, None
            for edge in range(begin, end):
                octave, rest = divmod(int(times[edge]), half_life)
                weight = 2.0 ** (31 + float(Fraction(rest, half_life)))
                if before is not None:
                    total >>= min(octave - before, 63)
                own = int(sums[edge]) - total
                assert abs(own - weight) < 2e-7 * weight
                total, before = total + own, octave
                assert total < 1 << 63
    assert POWERS[0] == 1 << 31 and POWERS[2048] == 1 << 32  # noqa: PT018


# One row: ties, a gap of 400 half-lives, and a last edge that is excluded.
TIMES = np.array([-4000, -3990, -3990, -5, 0, 0, 3, 9, 14, 14, 15, 21, 30])
CASES = {
    "all": (Neighbors((4,), half_life=10), 40, ()),
    "beyond a gap": (Neighbors((5,), half_life=10), 1, ()),
    "window": (Neighbors((2,), half_life=6, window=20), 22, ()),
    "holes": (Neighbors((3,), half_life=10), 31, (2, 8, 12)),
    "one edge is nearly all": (Neighbors((3,), half_life=1), 31, (12,)),
}


@pytest.mark.parametrize("case", CASES)
def test_law_without_replacement(case):
    """That of successive draws by weight. A fixed scale would leave late rows empty."""
    sampler, cutoff, excluded = CASES[case]
    graph = Graph.from_edges(np.arange(13), np.zeros(13, int), 13, edge_time=TIMES)
    sampler = replace(sampler, edge_ids=True)
    state, (k,) = sampler.init(graph), sampler.fanouts
    seeds = Seeds([0], [cutoff], list(excluded) + [13] * (3 - len(excluded)))
    age = cutoff - TIMES
    known = (age > 0) & (age <= (sampler.window or 1 << 40))
    known[list(excluded)] = False
    weight = np.where(known, 2.0 ** (-age / sampler.half_life).clip(-900), 0)

    def draw(key):
        ids = sampler.sample(key, graph, state, seeds, None).blocks[0].edge_id[:k]
        return jax.numpy.zeros(14, bool).at[ids.astype(np.int32)].set(True)[:13]

    expected = inclusion(weight, k)
    assert abs(expected.sum() - k) < 1e-5
    assert_included(draw, expected, 8_000)


def test_law_with_replacement():
    graph = Graph.from_edges(np.arange(13), np.zeros(13, int), 13, edge_time=TIMES)
    sampler = Neighbors((20_000,), half_life=10, replace=True, edge_ids=True)
    block = sampler.sample(KEY, graph, sampler.init(graph), Seeds([0], [30]), None).blocks[0]
    # Those before are 400 half-lives older, and the last one is at the cutoff.
    weight = np.r_[np.zeros(3), 2.0 ** (TIMES[3:12] / 10), 0]
    assert_as_often(np.bincount(block.edge_id, minlength=13), weight)


@pytest.mark.parametrize("replace", [False, True])
def test_kernel_equals_plain(replace, alike):
    """By relation, with holes or windows. `test_causal.py` looks at the edges."""
    graph, fanouts = graph_of(timed=True), ({"*": 3, "cites": 6}, {"*": 4, "holds": -1})
    rng, options = np.random.default_rng(1), {"window": 25} if replace else {}
    holes = None if replace else np.unique(rng.integers(0, graph.num_edges, 200))
    nodes = np.r_[rng.integers(0, graph.num_nodes, 30), 5, 5, graph.num_nodes]
    seeds = Seeds(nodes, rng.choice(np.asarray(graph.edge_time), 33), holes)
    sampler = Neighbors(fanouts, replace, half_life=6, edges=("id", "time"), **options)

    def draw(state, graph, seeds):
        return sampler.sample(KEY, graph, state, seeds, None)

    found = alike(draw, sampler.init(graph), graph, seeds, threads=(1, 2, 4))
    assert all(block.num_edges > 20 for block in found.blocks)
