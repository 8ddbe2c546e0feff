"""`half_life`: draws by recency: their sums, their law, and kernel equals plain."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import jax
import numpy as np
import pytest
from cases import rarely
from rows_law import assert_as_often, assert_included, inclusion
from test_by_relation import graph_of

from jgs import Graph
from jgs.sampling import Neighbors, Seeds
from jgs.sampling.edges.recency import POWERS, decayed_sums

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


@pytest.mark.parametrize(("by_relation", "replace"), rarely([(False, False), (True, True)], 0))
def test_kernel_equals_plain(by_relation, replace, alike):
    """With holes or windows, typed or not. `test_causal.py` looks at the edges."""
    if by_relation:
        graph, fanouts = graph_of(timed=True), ({"*": 3, "cites": 6}, {"*": 4, "holds": -1})
    else:
        rng = np.random.default_rng(4)
        dst = np.r_[rng.integers(0, 80, 700), np.full(300, 5)]
        time = rng.integers(-40, 40, 1000) * rng.choice([1, 1, 1, 1 << 40], 1000)
        graph = Graph.from_edges(rng.integers(0, 80, 1000), dst, 80, edge_time=time)
        fanouts = (5, 3)
    rng, options = np.random.default_rng(1), {"window": 25} if replace else {}
    holes = None if replace else np.unique(rng.integers(0, graph.num_edges, 200))
    nodes = np.r_[rng.integers(0, graph.num_nodes, 30), 5, 5, graph.num_nodes]
    seeds = Seeds(nodes, rng.choice(np.asarray(graph.edge_time), 33), holes)
    sampler = Neighbors(fanouts, replace, half_life=6, edges=("id", "time"), **options)

    def draw(state, graph, seeds):
        return sampler.sample(KEY, graph, state, seeds, None)

    found = alike(draw, sampler.init(graph), graph, seeds, threads=(1, 2, 4))
    assert all(block.num_edges > 20 for block in found.blocks)
