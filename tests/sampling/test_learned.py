"""Samplers that learn: by gradients (`PASS`, `ASGCN`), from messages (`VRGCN`), as bandits."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from refusals import refused
from rows_law import assert_mean

from jgs import Graph, InputError, kernels
from jgs.graph import SparseFeatures
from jgs.ops import aggregate, gather
from jgs.sampling import ASGCN, GCNBS, PASS, VRGCN, Feedback, Loader, Thanos, worst_case
from jgs.sampling.algorithms.by_features import Policy
from jgs.sampling.edges import project as projecting
from jgs.sampling.edges.project import project

N, F, M = 40, 3, 2


def many(function, trials):
    """Calls `function` with many keys, in one program: the results have an axis of trials."""
    keys = jax.random.split(jax.random.key(5), trials)
    found = jax.jit(lambda keys: jax.lax.map(function, keys))(keys)
    return jax.tree.map(lambda a: np.asarray(a, np.float64), found)


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
    assert_mean(drawn[:, : q.size], 3 * q)
    assert (drawn[:, q.size :] == 0).all()
    expected = jax.grad(expected_loss)(policy)
    for found, true in zip(gradient, expected, strict=True):
        deviation = assert_mean(found, np.asarray(true))
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
        assert_mean(means[:, i], true)
    # The variance at each W, and its differences. All W draw with the same random numbers.
    squares = ((means - true) ** 2).sum(axis=-1).mean(axis=-1)
    differences = (squares[:, 1::2] - squares[:, 2::2]) / (2 * step)
    both = assert_mean(along_variance - differences, 0)
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
    deviation = assert_mean(along_weights, -score, 5, 0.05 * np.abs(score).max())
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
        some = project(features, nodes[:4], weight)  # a row's bits depend on that row alone
        np.testing.assert_array_equal(some, project(features, nodes, weight)[:4])
        vector = project(features, nodes, weight[:, 0])
        np.testing.assert_allclose(vector, expected[:, 0], rtol=1e-5)


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


NODES, E, B, WIDTH = 120, 1500, 30, 3
SEEDS = np.arange(B, dtype=np.int32)


def test_unbiased_and_without_variance_once_the_history_is_true(make_graph):
    """With fixed parameters the messages `x` are fixed, and the history converges to them."""
    graph, trials = make_graph(NODES, E), 150
    sampler = VRGCN((2,), widths=(WIDTH,), edge_ids=True)
    capacity = worst_case(graph, B, sampler, distinct=True)
    x = jax.random.normal(jax.random.key(0), (NODES, WIDTH)) + 3
    seeds = jnp.asarray(SEEDS)

    @jax.jit
    def draw(key, history):
        batch = sampler.sample(key, graph, history, seeds, capacity)
        messages = gather(x, batch.nodes)
        learned = sampler.update(history, batch, Feedback((messages,), ()))
        return aggregate(batch.blocks[0], messages)[:B], learned

    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    rows = [indices[a:b] for a, b in itertools.pairwise(indptr[: B + 1])]
    true = np.stack([np.asarray(x)[row].mean(axis=0) for row in rows])
    history, variances = sampler.init(graph), []
    for step in range(4):
        keys = jax.random.split(jax.random.key(step), trials)
        # 2 of d drawn without replacement: (1 - 2 / d) / 2 times the neighbours' variance.
        wrong = np.asarray(x - history[0], np.float64)
        nothing = np.zeros(WIDTH)
        among = [wrong[row].var(0, ddof=1) if row.size > 2 else nothing for row in rows]
        parts = [max(1 - 2 / row.size, 0) / 2 for row in rows]
        variance = np.stack(among) * np.array(parts)[:, None]
        variances.append(variance.mean())
        found = [np.asarray(draw(key, history)[0], np.float64) for key in keys]
        error = np.abs(np.mean(found, axis=0) - true)
        assert (error < 5 * np.sqrt(variance / trials) + 1e-5).all(), error.max()
        measured = np.var(found, axis=0).mean()
        assert 0.7 < (measured + 1e-9) / (variances[-1] + 1e-9) < 1.4, (measured, variances)
        for key in keys[:6]:
            history = draw(key, history)[1]
    assert variances[1] < 0.7 * variances[0], variances
    assert variances[-1] < 0.2 * variances[0], variances
    found = [draw(key, (x,))[0] for key in keys[:20]]
    np.testing.assert_allclose(np.stack(found), np.stack([true] * 20), atol=1e-5)


def test_a_loop_that_does_not_update_is_told_so(make_graph):
    graph = make_graph(NODES, E)
    options = {"key": jax.random.key(1), "shuffle": False}
    sampler = VRGCN((2,), widths=(WIDTH,))

    def feedback(batch):
        return Feedback((batch.nodes[:, None] * jnp.ones(WIDTH),), ())

    def loader(**more):
        return Loader(graph, np.arange(NODES), B, sampler, **options, **more)

    one = loader()
    assert one.learns
    refused("loader.update", list, one)
    options["capacity"] = one.capacity
    frozen = loader(age=None)
    assert not any(batch.blocks[0].control.sources.any() for batch in frozen)
    refused("adaptive", frozen.update, None, None)

    def run(age, prefetch):
        """Every batch's history of the inputs."""
        one, found = loader(age=age, prefetch=prefetch), []
        for batch in itertools.chain(one, one):
            found.append(np.asarray(batch.blocks[0].control.sources))
            one.update(batch, feedback(batch))
        return found, np.asarray(one.sampler_state[0])

    for age, prefetch in ((0, 2), (2, 3)):
        plain, state = run(age, 0)
        assert [bool(rows.any()) for rows in plain[: age + 2]] == [False] * (age + 1) + [True]
        again, end = run(age, prefetch)
        np.testing.assert_array_equal(end, state)
        for mine, theirs in zip(plain, again, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_project_in_blocks_has_the_bits_of_one_block(monkeypatch):
    """Rows of padding are anywhere; a last block of padding alone is left out."""
    rng = np.random.default_rng(1)
    features = jnp.asarray(rng.normal(size=(50, 37)), jnp.float32)
    weight = jnp.asarray(rng.normal(size=(37, 2, 3)), jnp.float32)
    nodes = jnp.array([*rng.integers(0, 50, 11), 50, 3, -1, *[50] * 9], jnp.int32)
    last = 13  # rows after the last node are as they are in memory
    whole = project(features, nodes, weight)[:last]
    wanted = np.einsum("nf,fab->nab", features[nodes[:11]], weight)
    np.testing.assert_allclose(whole[:11], wanted, rtol=1e-4, atol=1e-5)
    assert not whole[11].any()
    assert not project(features, nodes, weight[:, 0, 0])[last:].any()
    monkeypatch.setattr(projecting, "_ROWS", 4)
    jax.clear_caches()
    for plain in (False, True):
        with kernels.plain(plain):
            np.testing.assert_array_equal(project(features, nodes, weight)[:last], whole)
            found = jax.jit(project)(features, nodes, weight)
            np.testing.assert_array_equal(found[:last], whole)
            assert not project(features, nodes, weight.at[0].set(jnp.inf))[11].any()
    many = jax.vmap(project, (None, 0, None))(features, nodes[None].repeat(2, 0), weight)
    np.testing.assert_array_equal(many[1, :last], whole)
    assert project(features, nodes[:0], weight).shape == (0, 2, 3)
