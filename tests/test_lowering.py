"""Programs for GPU and TPU lower on this machine, without host callbacks or CPU kernels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import ops
from jgs.models import GAT, GCN, GraphSAGE, read_inputs
from jgs.sampling import Loader, Neighbors, sample_neighbors
from jgs.train.step import init_state, make_optimizer, make_train_step

KEY = jax.random.key(0)


def lowered(function, *arguments):
    """The programs lowered for both platforms."""
    traced = jax.jit(function).trace(*arguments)
    for platform in ("cuda", "tpu"):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # the names of kernels have it
        yield text


@pytest.fixture(scope="module")
def graph(make_graph):
    return make_graph(60, 500)


def test_the_loaders_step(graph):
    sampler = Neighbors((3, 2), relabel_inputs=False)
    loader = Loader(graph, np.arange(40), 8, sampler, key=KEY, super_batch=2, prefetch=0)
    (schedule,) = loader.source.schedules
    key_data, seeds = schedule.batches(0)
    capacity = loader.capacity

    def draw(key_data, graph, seeds):
        return loader.source._draw_separately(key_data, graph, (), seeds, capacity)

    assert len(list(lowered(draw, key_data[:2], graph, seeds[:2]))) == 2


@pytest.mark.parametrize("model", ["sage", "sage, direct", "gcn", "gat"])
def test_sampling_features_and_a_training_step(model, graph):
    """One program leads from the key to the new parameters."""
    direct = model == "sage, direct"
    make = {"gcn": GCN, "gat": GAT}.get(model, GraphSAGE)
    widths = {"heads": 2} if model == "gat" else {}
    network = make(6, 8, 3, 2, dropout=0.5, rngs=nnx.Rngs(0), **widths)
    graphdef, params = nnx.split(network)
    optimizer = make_optimizer(0.01)
    step = make_train_step(graphdef, optimizer, jit=False)
    features, labels = jnp.ones((60, 6)), jnp.zeros(60, jnp.int32)

    def train(state, key, graph, features, labels, seeds):
        batch = sample_neighbors(key, graph, seeds, (3, 2), relabel_inputs=not direct)
        batch = batch if direct else batch.with_degrees(graph.degrees())
        x = read_inputs(features, batch) if direct else ops.gather(features, batch.nodes)
        return step(state, key, batch, x, labels)

    state = init_state(params, optimizer)
    list(lowered(train, state, KEY, graph, features, labels, jnp.arange(8)))
