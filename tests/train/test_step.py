"""The training step, and what follows a gradient: clipping, accumulation and averages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jgs.ops
from jgs import Graph
from jgs.models import GraphSAGE
from jgs.sampling import Loader, sample_neighbors
from jgs.train.loop import step
from jgs.train.loop.step import (
    averaged,
    init_state,
    judged,
    make_optimizer,
    make_train_step,
    masked_loss,
)


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(*rng.integers(0, 60, (2, 400)), 60)
    return graph, jnp.asarray(rng.normal(size=(60, 5)), jnp.float32)


def build(graph, features, labels, lr=0.01):
    model = GraphSAGE(5, 8, 3, 2, dropout=0.5, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(lr, 1e-2)
    return make_train_step(graphdef, optimizer), init_state(params, optimizer)


@pytest.mark.parametrize("multilabel", [False, True])
def test_nan_in_the_batch_padding_changes_no_bit_of_the_state(small, multilabel):
    graph, features = small
    labels = jnp.arange(60, dtype=jnp.int32) % 3
    if multilabel:
        labels = jax.nn.one_hot(labels, 3)
    seeds = np.array([3, 60, 7, 9, 60, 60], np.int32)  # there is padding between seeds too
    batch = sample_neighbors(jax.random.key(1), graph, seeds, (3, 3))
    x = jgs.ops.gather(features, batch.nodes)
    real = np.asarray(batch.nodes) < 60
    assert not real.all()
    after = []
    for rows in (x, jnp.where(real[:, None], x, jnp.nan)):
        train_step, state = build(graph, features, labels)
        for _ in range(2):
            state = train_step(state, jax.random.key(2), batch, rows, labels)
        after.append(state)
    assert float(after[0].num_seeds) == 6
    assert np.isfinite(float(after[0].loss_sum))
    jax.tree.map(np.testing.assert_array_equal, after[1], after[0])


def test_weight_decay_is_an_l2_penalty_in_the_gradient():
    optimizer = make_optimizer(0.1, 0.5)
    params, gradient = jnp.array([2.0, -4.0]), jnp.array([1.0, 1.0])
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    adam = optax.adam(0.1)
    expected, _ = adam.update(gradient + 0.5 * params, adam.init(params), params)
    np.testing.assert_allclose(updates, expected, rtol=1e-6)


def test_dropout_differs_from_step_to_step_and_repeats_with_the_key(small):
    graph, features = small
    labels = jnp.zeros(60, jnp.int32)
    batch = sample_neighbors(jax.random.key(1), graph, np.arange(8, dtype=np.int32), (3, 3))
    x = jgs.ops.gather(features, batch.nodes)
    train_step, first = build(graph, features, labels)

    def loss_at(number, key):
        state = jax.tree.map(jnp.copy, first)._replace(step=jnp.int32(number))
        return float(train_step(state, jax.random.key(key), batch, x, labels).loss_sum)

    assert loss_at(0, 2) == loss_at(0, 2)
    assert len({loss_at(0, 2), loss_at(1, 2), loss_at(0, 3)}) == 3


def test_one_trace_in_three_shuffled_epochs(small, monkeypatch):
    graph, features = small
    traces = []
    monkeypatch.setattr(step, "masked_loss", lambda *a: traces.append(1) or masked_loss(*a))
    labels = jnp.arange(60, dtype=jnp.int32) % 3
    train_step, state = build(graph, features, labels)
    seeds = np.arange(50, dtype=np.int32)
    batches = 0
    with Loader(graph, seeds, 8, (3, 3), key=jax.random.key(0)) as loader:
        for _ in range(3):
            for batch in loader:
                x = jgs.ops.gather(features, batch.nodes)
                state = train_step(state, jax.random.key(1), batch, x, labels)
                batches += 1
            state = step.start_epoch(state)
    assert batches == int(state.step) == 21
    assert len(traces) == 1


PARAMS = {"a": jnp.array([1.0, -2.0]), "b": jnp.array([[3.0]])}


def gradients(count):
    rng = np.random.default_rng(0)
    return [
        jax.tree.map(lambda a: 5 * rng.standard_normal(a.shape).astype(np.float32), PARAMS)
        for _ in range(count)
    ]


def stepped(optimizer, given):
    """The parameters after each step, and what is judged then."""
    params, state, found = PARAMS, optimizer.init(PARAMS), []
    for gradient in given:
        updates, state = jax.jit(optimizer.update)(gradient, state, params)
        params = optax.apply_updates(params, updates)
        found.append((params, judged(params, state)))
    return found


def close(one, other):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other
    )


def test_accumulated_gradients_are_those_of_a_larger_batch():
    given = gradients(6)
    means = [jax.tree.map(lambda *g: sum(g) / 3, *given[at : at + 3]) for at in (0, 3)]
    norms = [float(optax.global_norm(mean)) for mean in means]
    limit = min(norms) * 0.7
    clipped = [
        jax.tree.map(lambda g, n=norm: g * min(1, limit / n), mean)
        for mean, norm in zip(means, norms, strict=True)
    ]
    schedule = optax.cosine_decay_schedule(0.1, 2)
    want = stepped(make_optimizer(schedule, 0.3), clipped)
    found = stepped(make_optimizer(schedule, 0.3, limit, 3), given)
    close([found[at][0] for at in (2, 5)], [params for params, _ in want])
    close([found[at][0] for at in (1, 4)], [PARAMS, want[0][0]])


@pytest.mark.parametrize("decay", [None, 0.6])
def test_averages_by_definition(decay):
    """Of the parameters after every second step from the third on."""
    found = stepped(averaged(make_optimizer(0.1), decay, every=2, begin=3), gradients(9))
    mean, number = None, 0
    for at, (params, average) in enumerate(found, 1):
        if at > 3 and at % 2 == 0:
            number += 1
            share = 1 / number if decay is None else max(1 / number, 1 - decay)
            mean = params if number == 1 else jax.tree.map(
                lambda old, new, s=share: old + s * (new - old), mean, params
            )  # fmt: skip
        close(average, params if mean is None else mean)
