"""`GNN.observed`, from which adaptive samplers learn, and means with control variates."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from modules import module
from refusals import refused

from jgs.graph import Control
from jgs.models import GAT, GCN, GIN, GraphSAGE
from jgs.ops import aggregate, gather_aggregate
from jgs.sampling import sample_neighbors

SEEDS = np.array([3, 60, 7, 60, 21, 5], np.int32)  # with padding
KEY = np.uint32([0, 1])


@pytest.fixture(scope="module")
def batch(make_graph):
    graph = make_graph(60, 500)
    batch = sample_neighbors(jax.random.key(0), graph, SEEDS, (3, 2))
    return batch.with_degrees(graph.degrees())


@pytest.mark.parametrize("kind", [GraphSAGE, GCN, GIN])
def test_observed_is_the_model_and_its_derivatives_by_aggregated_rows(batch, kind):
    widths = (5, 8, 3)  # the first layer aggregates before its product, the second after it
    model = module(lambda rngs: kind(*widths, 2, dropout=0.3, norm="layer", rngs=rngs))
    nodes = np.asarray(batch.nodes)
    x = np.random.default_rng(1).standard_normal((nodes.size, widths[0])).astype(np.float32)
    x[nodes == batch.num_nodes] = np.nan
    of_messages = model.message_widths
    sizes = [(b.target_capacity, m) for b, m in zip(batch.blocks, of_messages, strict=True)]
    probes = [np.zeros(size, np.float32) for size in sizes]

    @nnx.jit
    def slopes(model, probes):
        def loss(probes):
            outputs, messages = model.observed(batch, x, probes, key=KEY)
            total = jnp.sum(jnp.where(batch.seed_mask[:, None], outputs, 0) ** 2)
            return total, (outputs, messages)

        first = model.layers[0].message(np.nan_to_num(x), None, batch.degrees)
        whole = model(batch, x, key=KEY), first
        return jax.value_and_grad(loss, has_aux=True)(probes), whole

    found = jax.device_get(slopes(model, probes))
    ((_, (outputs, messages)), gradients), (want, first) = found
    mask, count = np.asarray(batch.seed_mask), int(batch.blocks[0].num_sources)
    np.testing.assert_allclose(outputs[mask], want[mask], atol=1e-5)
    np.testing.assert_allclose(messages[0][:count], first[:count], atol=1e-5)
    for i, (block, gradient) in enumerate(zip(batch.blocks, gradients, strict=True)):
        assert messages[i].shape == (block.source_capacity, of_messages[i])
        assert np.isfinite(messages[i]).all()
        assert (gradient[int(block.num_targets) :] == 0).all()
        length = np.linalg.norm(gradient)
        step = 1e-2 * gradient / (length + 1e-9)
        moved = [[*probes[:i], way * step, *probes[i + 1 :]] for way in (1, -1)]
        ahead, behind = (slopes(model, probes)[0][0][0] for probes in moved)
        np.testing.assert_allclose(ahead - behind, 2e-2 * length, rtol=0.05, atol=1e-4)


def test_control_variates_of_a_mean(batch):
    block, rng = batch.blocks[0], np.random.default_rng(2)
    x, stored = rng.standard_normal((2, block.source_capacity, 4)).astype(np.float32)
    known = rng.standard_normal((block.target_capacity, 4)).astype(np.float32)
    controlled = replace(block, control=Control(jnp.asarray(stored), jnp.asarray(known)))

    @jax.jit
    def run(controlled, block):
        total = lambda block: lambda x: aggregate(block, x)[:, 0].sum()  # noqa: E731
        slopes = [jax.grad(total(b))(x) for b in (controlled, block)]
        return (aggregate(controlled, x), known + aggregate(block, x - stored)), slopes

    pairs = jax.device_get(run(controlled, block))
    for got, want in pairs:
        np.testing.assert_allclose(got, want, atol=1e-6)
    refused("mean", aggregate, controlled, x, "sum")
    refused("message_widths", aggregate, controlled, x[:, :3])
    refused("aggregate", gather_aggregate, jnp.asarray(x), controlled)


def test_attention_is_not_observed(batch):
    model = module(lambda rngs: GAT(4, 8, 3, 2, rngs=rngs))
    refused("attention", lambda: model.message_widths)
    refused("attention", model.observed, batch, np.zeros((len(batch.nodes), 4)), ())
