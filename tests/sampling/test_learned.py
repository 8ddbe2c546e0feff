"""Samplers that gradients train: `PASS` and `ASGCN`."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from jgs import Graph, InputError
from jgs.graph import SparseFeatures
from jgs.ops import aggregate, gather
from jgs.sampling import ASGCN, PASS, Feedback, worst_case
from jgs.sampling.algorithms.nodewise.pass_ import Policy
from jgs.sampling.edges import project as projecting
from jgs.sampling.edges.project import project

N, F, M = 40, 3, 2


def many(function, trials):
    """Calls `function` with many keys, in one program: the results have an axis of trials."""
    keys = jax.random.split(jax.random.key(5), trials)
    found = jax.jit(lambda keys: jax.lax.map(function, keys))(keys)
    return jax.tree.map(lambda a: np.asarray(a, np.float64), found)


def agrees(found, expected, slack=0.0):
    """Asserts that each entry of the trials' mean is within 5 standard errors of `expected`."""
    error = np.abs(found.mean(axis=0) - expected)
    deviation = found.std(axis=0) / np.sqrt(len(found))
    assert (error <= 5 * deviation + slack + 1e-6).all(), (found.mean(axis=0), expected)
    return deviation


def dense(graph):
    """float64 `[N, N]`: entry (u, v) is 1 where there is an edge u -> v."""
    found = np.zeros((graph.num_nodes, graph.num_nodes))
    found[tuple(graph.edge_index())] = 1
    return found


def descends(sampler, state, parameters, gradient, batch, feedback, graph):
    """The product of the gradient and an update's step, which is not positive."""
    both = sampler.update(state, batch, feedback, graph), state
    new, old = (getattr(of, parameters) for of in both)
    steps = jax.tree.map(lambda a, b, g: jnp.sum((a - b) * g), new, old, gradient)
    return sum(jax.tree.leaves(steps))


def assert_descent(moved):
    assert (moved <= 1e-9).all()
    assert (moved < 0).mean() > 0.9


def random_graph():
    rng = np.random.default_rng(2)
    every = np.array([(u, v) for u in range(N) for v in range(N) if u != v])
    edges = every[rng.permutation(len(every))[: 6 * N]]
    graph = Graph.from_edges(*edges.T, N)
    x = rng.normal(size=(N, F)).astype(np.float32)
    return graph.with_node_columns(features=x), x, rng


def test_pass_draws_by_its_policy_and_its_gradient_is_that_of_the_expected_loss():
    graph, x, rng = random_graph()
    seeds, sampler = jnp.arange(4, dtype=jnp.int32), PASS((3,), width=2, edge_ids=True)
    capacity = worst_case(graph, 4, sampler, distinct=True)
    x_messages = jnp.asarray(rng.normal(size=(N, M)), jnp.float32)
    weights = rng.normal(size=(4, M)).astype(np.float32)  # the loss is linear in the rows
    weight = jnp.asarray(rng.normal(size=(F, 4)) / 3, jnp.float32)
    policy = Policy(weight, jnp.array([0.5, 0.2, 0.1]))
    state = sampler.init(graph)._replace(policy=policy)

    def trial(key):
        batch = sampler.sample(key, graph, state, seeds, capacity)
        block = batch.blocks[0]
        slope = jnp.zeros((block.target_capacity, M)).at[:4].set(weights)
        feedback = Feedback((gather(x_messages, batch.nodes),), (slope,))
        drawn = jnp.zeros(graph.num_edges)
        drawn = drawn.at[block.edge_id.astype(jnp.int32)].add(1, mode="drop")
        gradient = sampler.gradient(policy, batch, feedback, graph)
        moved = descends(sampler, state, "policy", gradient, batch, feedback, graph)
        return drawn, gradient, moved

    def probabilities(policy):
        """The docstring's `q` for each edge into the seeds, by loops over nodes."""
        s, found = jax.nn.softmax(policy.attention), []
        for v, (a, b) in enumerate(itertools.pairwise(np.asarray(graph.indptr[:5]))):
            bias = []
            for u in np.asarray(graph.indices[a:b]):
                weights = policy.weight[:, :2], policy.weight[:, 2:]
                heads = ((x[u] @ of_head) @ (x[v] @ of_head) for of_head in weights)
                parts = jnp.stack([*heads, jnp.float32(1 / (b - a))])
                bias.append(jax.nn.relu(s @ parts) + 1e-9)
            found.append(jnp.stack(bias) / sum(bias))
        return found

    def expected_loss(policy):
        parts, begin = [], 0
        for v, q in enumerate(probabilities(policy)):
            rows = x_messages[np.asarray(graph.indices[begin : begin + q.size])]
            parts.append(weights[v] @ (q @ rows))
            begin += q.size
        return sum(parts)

    drawn, gradient, moved = many(trial, 4000)
    assert_descent(moved)
    q = np.concatenate([np.asarray(p, np.float64) for p in probabilities(policy)])
    agrees(drawn[:, : q.size], 3 * q)
    assert (drawn[:, q.size :] == 0).all()
    expected = jax.grad(expected_loss)(policy)
    for found, true in zip(gradient, expected, strict=True):
        deviation = agrees(found, np.asarray(true))
        assert (np.abs(true) > 10 * deviation).any()  # the gradient is clearly not zero


def test_asgcn_is_unbiased_and_its_gradient_is_that_of_its_loss():
    """For every `W`. Both gradients: of the variance, and through the importance weights."""
    graph, x, rng = random_graph()
    k, targets = 8, 10
    seeds = jnp.arange(targets, dtype=jnp.int32)
    by_loss, by_variance = ASGCN((k,), variance=0), ASGCN((k,), variance=1)
    capacity = worst_case(graph, targets, by_loss, distinct=True)
    messages = jnp.asarray(rng.normal(size=(N, M)), jnp.float32)
    slope = rng.normal(size=(targets, M)).astype(np.float32)
    weight, step = np.array([0.6, -0.4, 0.9], np.float32), 0.2
    steps = [np.zeros(F), *(sign * row for row in np.eye(F) * step for sign in (1, -1))]
    state = by_loss.init(graph)
    parts = dense(graph)[:, :targets]
    parts /= parts.sum(axis=0)
    true = parts.T @ messages

    def trial(key):
        means, gradients = [], None
        for change in jnp.asarray(np.array(steps), jnp.float32):
            own = state._replace(weight=weight + change)
            batch = by_loss.sample(key, graph, own, seeds, capacity)
            block, rows = batch.blocks[0], gather(messages, batch.nodes)
            means.append(aggregate(block, rows)[:targets])
            if gradients is None:
                some = jnp.zeros((block.target_capacity, M)).at[:targets].set(slope)
                given = Feedback((rows,), (some,)), Feedback((rows,), (0 * some,))
                gradients = [
                    sampler.gradient(own.weight, batch, feedback, graph)
                    for sampler, feedback in zip((by_loss, by_variance), given, strict=True)
                ]
                moved = descends(by_loss, own, "weight", gradients[0], batch, given[0], graph)
        return jnp.stack(means), *gradients, moved

    means, along_weights, along_variance, moved = many(trial, 4000)
    assert_descent(moved)
    for i in range(len(steps)):  # each of the seven W
        agrees(means[:, i], true)
    # The variance at each W, and its differences. All W draw with the same random numbers.
    squares = ((means - true) ** 2).sum(axis=-1).mean(axis=-1)
    differences = (squares[:, 1::2] - squares[:, 2::2]) / (2 * step)
    both = agrees(along_variance - differences, 0)
    assert (np.abs(along_variance.mean(axis=0)) > 8 * both).any()
    # The expected loss is the same for every W. So its derivative through the weights is that
    # through the draws with the opposite sign: the two cancel.
    size = 1 + np.abs(x @ weight)
    bias = size * np.sqrt((parts**2).sum(axis=1))
    candidates = bias > 0
    threshold = k / bias.sum()
    for _ in range(50):  # the probabilities of inclusion, which sum to k
        inclusion = 1 - np.exp(-bias * threshold)
        threshold *= k / inclusion.sum()
    assert inclusion.max() < 0.9
    derivative = np.sign(x @ weight)[:, None] * x / size[:, None]
    change = (bias * threshold * np.exp(-bias * threshold))[:, None]
    centred = change * (derivative - (change * derivative).sum(0) / change.sum())
    centred /= np.where(inclusion > 0, inclusion, 1)[:, None]
    counts = ((parts @ slope) * messages).sum(axis=1)
    score = counts[candidates] @ centred[candidates]
    deviation = agrees(along_weights, -score, slack=0.05 * np.abs(score).max())
    assert (np.abs(score) > 10 * deviation).any()


def test_an_update_needs_the_graph():
    graph = Graph.from_edges([0, 1], [1, 0], 2).with_node_columns(features=np.ones((2, 1)))
    for sampler in (PASS(), ASGCN()):
        with pytest.raises(InputError, match="with_node_columns"):
            sampler.update(sampler.init(graph), None, Feedback((), ()))


def test_project_dense_and_sparse():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 5)).astype(np.float32) * (rng.random((9, 5)) < 0.5)
    rows[4] = 0
    weight = jnp.asarray(rng.normal(size=(5, 3)), jnp.float32)
    nodes = jnp.array([3, 9, 4, 0, 3, 8], jnp.int32)
    own = np.where((nodes < 9)[:, None], rows[np.minimum(nodes, 8)], 0)
    expected = own @ np.asarray(weight)
    slope = rng.normal(size=expected.shape).astype(np.float32)
    by_weight = own.T @ slope
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_array(rows))
    for features in (jnp.asarray(rows), sparse):
        np.testing.assert_allclose(project(features, nodes, weight), expected, rtol=1e-5)
        derivative = jax.grad(lambda w, f=features: jnp.sum(project(f, nodes, w) * slope))
        np.testing.assert_allclose(derivative(weight), by_weight, rtol=1e-4, atol=1e-6)
        some = project(features, nodes[:2], weight)  # a row's bits depend on that row alone
        np.testing.assert_array_equal(some, project(features, nodes, weight)[:2])
        vector = project(features, nodes, weight[:, 0])
        np.testing.assert_allclose(vector, expected[:, 0], rtol=1e-5)


def test_project_in_blocks_has_the_bits_of_one_block(monkeypatch):
    """Rows of padding are anywhere; a last block of padding alone is left out."""
    rng = np.random.default_rng(1)
    features = jnp.asarray(rng.normal(size=(50, 37)), jnp.float32)
    weight = jnp.asarray(rng.normal(size=(37, 2, 3)), jnp.float32)
    nodes = jnp.array([*rng.integers(0, 50, 11), 50, 3, -1, *[50] * 9], jnp.int32)
    whole = project(features, nodes, weight)
    wanted = np.einsum("nf,fab->nab", features[nodes[:11]], weight)
    np.testing.assert_allclose(whole[:11], wanted, rtol=1e-4, atol=1e-5)
    assert not whole[jnp.array([11, 13, 14, 22])].any()
    monkeypatch.setattr(projecting, "_ROWS", 4)
    jax.clear_caches()
    np.testing.assert_array_equal(project(features, nodes, weight), whole)
    np.testing.assert_array_equal(jax.jit(project)(features, nodes, weight), whole)
    many = jax.vmap(project, (None, 0, None))(features, nodes[None].repeat(2, 0), weight)
    np.testing.assert_array_equal(many[1], whole)
    assert project(features, nodes[:0], weight).shape == (0, 2, 3)
