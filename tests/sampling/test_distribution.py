"""Draws have their distribution; by `test_equality.py` plain JAX draws the same."""

import itertools

import jax
import numpy as np
import pytest
from rows_law import assert_as_often, assert_independent

import jgs
from jgs.sampling import sample_neighbors

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
