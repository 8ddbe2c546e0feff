"""Samplers with learned edge weights: the values to which the weights converge."""

import jax
import jax.numpy as jnp
import numpy as np
from rows_law import assert_mean

from jgs import Graph
from jgs.ops import aggregate, gather
from jgs.sampling import GCNBS, Feedback, Thanos, worst_case

DEGREE = 10


def star():
    """A node 0 with ten neighbours: eight small messages, two large ones; other edges too."""
    source = np.r_[np.arange(1, DEGREE + 1), 0, 0]
    target = np.r_[np.zeros(DEGREE, int), 1, 2]
    graph = Graph.from_edges(source, target, DEGREE + 1)
    norms = np.r_[0, np.ones(8), 5, 5].astype(np.float32)
    direction = jax.random.normal(jax.random.key(0), (DEGREE + 1, 3))
    x = norms[:, None] * direction / jnp.linalg.norm(direction, axis=1, keepdims=True)
    return graph, x, norms[np.asarray(graph.indices[:DEGREE])]


def learned(sampler, graph, x, steps):
    """The state after so many steps on node 0, and each step's estimate of the node's mean."""
    seeds = jnp.zeros(1, jnp.int32)
    capacity = worst_case(graph, 1, sampler, distinct=True)

    @jax.jit
    def run(keys, graph, x, state):
        def step(state, key):
            batch = sampler.sample(key, graph, state, seeds, capacity)
            messages = gather(x, batch.nodes)
            estimate = aggregate(batch.blocks[0], messages)[0]
            return sampler.update(state, batch, Feedback((messages,), ())), estimate

        return jax.lax.scan(step, state, keys)

    keys = jax.random.split(jax.random.key(1), steps)
    return run(keys, graph, x, sampler.init(graph))


def test_gcnbs_goes_to_the_probabilities_of_least_variance():
    graph, x, norms = star()
    sampler = GCNBS((2,), delta=0.005)
    state, estimates = learned(sampler, graph, x, 4000)
    assert (state[DEGREE:] == 0).all()  # edges into nodes that no batch had stay at 0
    weights = np.exp(np.asarray(state[:DEGREE], np.float64))
    q = 0.6 * weights / weights.sum() + 0.4 / DEGREE
    best = norms / norms.sum()  # proportional to the norms: alpha is the same for all
    np.testing.assert_allclose(q, best, rtol=0.25)

    def bound(q):
        return (norms**2 / (DEGREE**2 * 2 * q)).sum()

    assert bound(best) <= bound(q) < 1.03 * bound(best) < 0.6 * bound(np.full(DEGREE, 0.1))
    late, mean = np.asarray(estimates[1000:], np.float64), np.asarray(x)[1:].mean(axis=0)
    assert_mean(late, mean, 5)  # unbiased whatever the weights are
    variance = ((late - mean) ** 2).sum(axis=1).mean()
    expected = bound(q) - (mean**2).sum() / 2
    np.testing.assert_allclose(variance, expected, rtol=0.1)


def test_thanos_goes_to_the_edges_nearest_to_the_mean():
    """Eight neighbours lie around a point. The mean of the two outliers is that point, too."""
    graph, x, _ = star()
    around = 0.1 * np.asarray(x) + [2, 0, 0]
    around[-2:] = [[2, 3, 0], [2, -3, 0]]
    x = jnp.asarray(around, jnp.float32)
    sampler = Thanos((2,), gamma=0.1, eta=1.0)
    state, estimates = learned(sampler, graph, x, 1500)
    outlier = np.asarray(graph.indices[:DEGREE]) > 8
    weights = np.asarray(state.edges, np.float64)
    assert (weights[DEGREE:] == 0).all()
    np.testing.assert_allclose(state.sums[0], np.logaddexp.reduce(weights[:DEGREE]), rtol=1e-4)
    share = np.exp(weights[:DEGREE] - state.sums[0])
    assert share[outlier].sum() < 1e-3
    mean = np.asarray(x)[1:].mean(axis=0)
    error = ((np.asarray(estimates) - mean) ** 2).sum(axis=1)
    assert error[-500:].mean() < 0.3 * error[:50].mean()

    again, _ = learned(Thanos((2,), eta=1.0, restart=1500), graph, x, 1500)
    fresh = sampler.init(graph)
    np.testing.assert_array_equal(again.edges, fresh.edges)
    np.testing.assert_array_equal(again.sums, fresh.sums)


def test_thanos_counts_every_edges_reward_alike():
    """Orthogonal messages: a reward depends on its edge alone, however seldom it is drawn."""
    graph, _, norms = star()
    k, keys = 3, jax.random.split(jax.random.key(2), 20000)
    sampler = Thanos((k,), eta=0.01)
    x = np.zeros((DEGREE + 1, DEGREE), np.float32)
    x[np.asarray(graph.indices[:DEGREE]), np.arange(DEGREE)] = norms
    edges, sums = map(np.array, sampler.init(graph)[:2])
    edges[:DEGREE] = np.linspace(-1, 1, DEGREE)
    sums[0] = np.logaddexp.reduce(edges[:DEGREE])
    state = sampler.init(graph)._replace(edges=jnp.asarray(edges), sums=jnp.asarray(sums))
    seeds = jnp.array([0, 0], jnp.int32)  # a repeated seed counts once
    capacity = worst_case(graph, 2, sampler)

    @jax.jit
    def gains(keys, graph, x, state):
        def one(key):
            batch = sampler.sample(key, graph, state, seeds, capacity)
            feedback = Feedback((gather(x, batch.nodes),), ())
            return sampler.update(state, batch, feedback).edges - state.edges

        return jax.lax.map(one, keys)

    found = np.asarray(gains(keys, graph, x, state)[:, :DEGREE], np.float64)
    expected = 0.01 * (2 / k - 1) * norms**2 / DEGREE**2
    deviation = found.std(axis=0) / np.sqrt(len(keys))
    assert (np.abs(found.mean(axis=0) - expected) < 5 * deviation).all(), (found, expected)
    assert (5 * deviation < 0.2 * np.abs(expected)).all()
