"""The draws have the distribution they claim: chi-square with fixed keys.

Many nodes share one row of neighbours, so that one call makes many independent draws. The
kernel draws where it is installed: test_equality.py proves that plain JAX draws the same.
"""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import stats

import jgs
from jgs.sampling import sample_neighbors

DRAWS = 30_000
P_VALUE = 1e-4  # keys are fixed: a correct version always passes


def star(degree: int, copies: int = DRAWS, weight=None) -> tuple[jgs.Graph, np.ndarray]:
    """The graph and ids of `copies` targets, each with the in-neighbours `0..degree`."""
    targets = degree + np.arange(copies)
    src = np.tile(np.arange(degree), copies)
    weight = None if weight is None else np.tile(np.asarray(weight, np.float32), copies)
    graph = jgs.Graph.from_edges(src, np.repeat(targets, degree), degree + copies, weight)
    return graph, targets


def draws(batch: jgs.MiniBatch, k: int) -> np.ndarray:
    """int `[copies, k]`: the neighbours of each target in the batch's first hop."""
    block = batch.blocks[-1]
    return np.asarray(batch.nodes)[np.asarray(block.indices)[: int(block.num_edges)]].reshape(
        -1, k
    )


def assert_follows(outcomes: list[tuple], probability: dict[tuple, float]) -> None:
    """Chi-square of the outcomes against their probabilities; no other outcome may occur."""
    counts = dict.fromkeys(probability, 0)
    for outcome in outcomes:
        counts[outcome] += 1  # raises KeyError for an impossible outcome
    expected = np.array(list(probability.values())) * len(outcomes)
    assert math.isclose(expected.sum(), len(outcomes), rel_tol=1e-9)
    _, p = stats.chisquare(list(counts.values()), expected)
    assert p > P_VALUE, f"p={p}, expected {expected}, actual {list(counts.values())}"


def tuples(rows: np.ndarray) -> list[tuple]:
    return [tuple(row) for row in rows.tolist()]


@pytest.mark.parametrize(("degree", "k"), [(2, 1), (5, 1), (6, 3), (7, 5), (9, 8)])
def test_every_subset_is_equally_likely(degree, k):
    graph, targets = star(degree)
    rows = draws(sample_neighbors(jax.random.key(1), graph, targets, (k,)), k)
    subsets = list(itertools.combinations(range(degree), k))
    probability = dict.fromkeys(subsets, 1 / len(subsets))
    assert_follows(tuples(np.sort(rows, axis=1)), probability)


@pytest.mark.parametrize("k", [1, 60])
def test_a_hub_is_drawn_evenly_to_its_end(k):
    """pyg-lib 0.9 gives the first 64 % of 40,000 neighbours 78 % of the draws."""
    graph, targets = star(40_000, copies=300)
    keys = range(1 if k > 1 else 60)
    rows = np.concatenate(
        [draws(sample_neighbors(jax.random.key(i), graph, targets, (k,)), k) for i in keys]
    )
    counts = np.bincount(rows.ravel() // 1000, minlength=40)
    assert stats.chisquare(counts).pvalue > P_VALUE, counts


def test_with_replacement_every_sequence_is_equally_likely():
    graph, targets = star(4)
    rows = draws(sample_neighbors(jax.random.key(2), graph, targets, (3,), replace=True), 3)
    sequences = list(itertools.product(range(4), repeat=3))
    assert_follows(tuples(rows), dict.fromkeys(sequences, 1 / len(sequences)))


def test_with_replacement_draws_k_also_from_fewer():
    graph, targets = star(2, copies=50)
    rows = draws(sample_neighbors(jax.random.key(2), graph, targets, (5,), replace=True), 5)
    assert rows.shape == (50, 5)


WEIGHT = np.array([0.5, 0.0, 3.0, 1e-3, 2.0, 0.0, 4.5], np.float32)


def test_weighted_with_replacement():
    graph, targets = star(7, weight=WEIGHT)
    options = {"replace": True, "weighted": True}
    rows = draws(sample_neighbors(jax.random.key(3), graph, targets, (4,), **options), 4)
    share = WEIGHT.astype(float) / WEIGHT.sum(dtype=float)
    assert_follows([(int(v),) for v in rows.ravel()], {(i,): share[i] for i in (0, 2, 3, 4, 6)})


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
    assert_follows(tuples(rows), successive(weight, k))


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [-1, 2, 4, 6])
def test_zero_weights_are_never_drawn(replace, fanout):
    """The fanout may exceed the positive weights or the degree, and all weights may be 0."""
    weight = np.array([0.0, 1e-38, 0.0, 3e38, 0.0], np.float32)
    graph, targets = star(5, copies=40, weight=weight)
    edges = np.asarray(graph.edge_weight).copy()
    edges[:5] = 0  # all the neighbours of the first target have weight 0
    graph = jgs.Graph(graph.indptr, graph.indices, edges)
    batch = sample_neighbors(
        jax.random.key(0), graph, targets, (fanout,), replace=replace, weighted=True
    )
    drawn = np.asarray(batch.nodes)[
        np.asarray(batch.blocks[0].indices)[: batch.blocks[0].num_edges]
    ]
    assert set(drawn.tolist()) <= {1, 3}
    degree = np.diff(np.asarray(batch.blocks[0].indptr))
    each = fanout if replace and fanout > 0 else 2
    assert degree.tolist() == [0] + [each] * 39


def assert_independent(a: np.ndarray, b: np.ndarray) -> None:
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    assert stats.chi2_contingency(table).pvalue > P_VALUE, table


def test_hops_nodes_and_steps_are_independent():
    graph, targets = star(6)
    key = jax.random.key(9)
    two_hops = sample_neighbors(key, graph, targets, (1, 1))
    nodes = np.asarray(two_hops.nodes)
    first, second = (
        nodes[np.asarray(block.indices)[: targets.size]] for block in two_hops.blocks[::-1]
    )
    assert_independent(first, second)  # the same nodes draw anew at the next hop
    assert_independent(first[:-1], first[1:])  # nodes with neighbouring ids are independent
    assert_independent(first[::2], first[1::2])
    later = sample_neighbors(jax.random.fold_in(key, 1), graph, targets, (1,))
    # The same nodes draw anew at the next step.
    assert_independent(first, draws(later, 1)[:, 0])
    several = draws(sample_neighbors(key, graph, targets, (3,), replace=True), 3)
    assert_independent(several[:, 0], several[:, 1])
    assert_independent(several[:, 1], several[:, 2])
