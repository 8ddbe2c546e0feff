"""`VRGCN`: its estimate of a layer's mean, and the loop in which it learns."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from refusals import refused

from jgs.ops import aggregate, gather
from jgs.sampling import VRGCN, Feedback, Loader, worst_case

N, E, B, M = 120, 1500, 30, 3
SEEDS = np.arange(B, dtype=np.int32)


def test_unbiased_and_without_variance_once_the_history_is_true(make_graph):
    """With fixed parameters the messages `x` are fixed, and the history converges to them."""
    graph, trials = make_graph(N, E), 150
    sampler = VRGCN((2,), widths=(M,), edge_ids=True)
    capacity = worst_case(graph, B, sampler, distinct=True)
    x = jax.random.normal(jax.random.key(0), (N, M)) + 3
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
        nothing = np.zeros(M)
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
    graph = make_graph(N, E)
    options = {"key": jax.random.key(1), "shuffle": False}
    sampler = VRGCN((2,), widths=(M,))

    def feedback(batch):
        return Feedback((batch.nodes[:, None] * jnp.ones(M),), ())

    def loader(**more):
        return Loader(graph, np.arange(N), B, sampler, **options, **more)

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
