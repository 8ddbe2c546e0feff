"""`GNN.observed`, from which adaptive samplers learn, and means with control variates."""

import copy
import pickle
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import InputError
from jgs.graph import Control
from jgs.models import GAT, GCN, GIN, GraphSAGE
from jgs.ops import aggregate, gather_aggregate
from jgs.sampling import sample_neighbors

SEEDS = np.array([3, 60, 7, 60, 21, 5], np.int32)  # with padding


@pytest.fixture
def batch(make_graph):
    graph = make_graph(60, 500)
    batch = sample_neighbors(jax.random.key(0), graph, SEEDS, (3, 2))
    return batch.with_degrees(graph.degrees())


@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GIN])
def test_observed_is_the_model_and_its_derivatives_by_aggregated_rows(batch, kind):
    widths = (5, 8, 3)  # the first layer aggregates before its product, the second after it
    model = kind(*widths, 2, dropout=0.3, norm="layer", rngs=nnx.Rngs(0))
    key, real = jax.random.key(1), (batch.nodes < batch.num_nodes)[:, None]
    x = jnp.where(real, jax.random.normal(key, (len(batch.nodes), widths[0])), jnp.nan)
    of_messages = model.message_widths
    sizes = [(b.target_capacity, m) for b, m in zip(batch.blocks, of_messages, strict=True)]
    probes = [jnp.zeros(size) for size in sizes]

    def loss(probes):
        outputs, messages = model.observed(batch, x, probes, key=key)
        return jnp.sum(jnp.where(batch.seed_mask[:, None], outputs, 0) ** 2), (
            outputs,
            messages,
        )

    slopes = jax.jit(jax.value_and_grad(loss, has_aux=True))
    (_, (outputs, messages)), gradients = slopes(probes)
    mask = np.asarray(batch.seed_mask)
    np.testing.assert_allclose(
        outputs[mask], nnx.jit(model)(batch, x, key=key)[mask], atol=1e-5
    )
    first = model.layers[0].message(jnp.nan_to_num(x), None, batch.degrees)
    count = int(batch.blocks[0].num_sources)
    np.testing.assert_allclose(messages[0][:count], first[:count], atol=1e-5)
    for i, (block, gradient) in enumerate(zip(batch.blocks, gradients, strict=True)):
        assert messages[i].shape == (block.source_capacity, of_messages[i])
        assert np.isfinite(messages[i]).all()
        assert (gradient[int(block.num_targets) :] == 0).all()
        step = [jnp.zeros(size) for size in sizes]
        step[i] = 1e-2 * gradient / (jnp.linalg.norm(gradient) + 1e-9)
        change = slopes(step)[0][0] - slopes([-s for s in step])[0][0]
        expected = 2e-2 * jnp.linalg.norm(gradient)
        np.testing.assert_allclose(change, expected, rtol=0.05, atol=1e-4)


def test_control_variates_of_a_mean(batch):
    block, key = batch.blocks[0], jax.random.key(2)
    x, stored = jax.random.normal(key, (2, block.source_capacity, 4))
    known = jax.random.normal(key, (block.target_capacity, 4))
    controlled = replace(block, control=Control(stored, known))
    found = aggregate(controlled, x)
    np.testing.assert_allclose(found, known + aggregate(block, x - stored), atol=1e-6)
    gradient = jax.grad(lambda x: aggregate(controlled, x)[:, 0].sum())(x)
    plain = jax.grad(lambda x: aggregate(block, x)[:, 0].sum())(x)
    np.testing.assert_allclose(gradient, plain, atol=1e-6)
    for other in (pickle.loads(pickle.dumps(controlled)), copy.deepcopy(controlled)):
        np.testing.assert_array_equal(aggregate(other, x), found)
    with pytest.raises(InputError, match="mean"):
        aggregate(controlled, x, "sum")
    with pytest.raises(InputError, match="message_widths"):
        aggregate(controlled, x[:, :3])
    with pytest.raises(InputError, match="aggregate"):
        gather_aggregate(x, controlled)


def test_attention_is_not_observed(batch):
    model = GAT(4, 8, 3, 2, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="attention"):
        _ = model.message_widths
    with pytest.raises(InputError, match="attention"):
        model.observed(batch, jnp.zeros((len(batch.nodes), 4)), ())
