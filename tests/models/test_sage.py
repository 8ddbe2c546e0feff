"""GraphSAGE: its norm, its first weights, and its first layer's inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import whole_batch
from flax import nnx
from modules import module
from refusals import refused

import jgs
from jgs import Graph, kernels, ops
from jgs.models import GraphSAGE, SAGEConv, read_inputs

NUM_NODES, IN, HIDDEN, OUT = 30, 7, 12, 5


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, NUM_NODES, (2, 120))
    keep = dst != 4  # node 4 has no neighbours
    return Graph.from_edges(src[keep], dst[keep], NUM_NODES)


def features():
    return np.random.default_rng(0).standard_normal((NUM_NODES, IN)).astype(np.float32)


def model(num_layers=2, reduce="mean", hidden=HIDDEN, **options):
    options = {"dropout": 0.0, "reduce": reduce, **options}
    return module(lambda rngs: GraphSAGE(IN, hidden, OUT, num_layers, **options, rngs=rngs))


def loss_of(sage, batch, x, **options):
    """A masked loss in which each output of each real row has its own weight."""
    out = sage(batch, x, **options)
    weights = jnp.sin(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
    return jnp.sum(jnp.where(batch.seed_mask[:, None], weights * out**2, 0))


def test_l2_norm_gives_unit_rows_and_leaves_zero_rows():
    sage = model(norm="l2")
    h = np.r_[[[-1.0] * HIDDEN], np.ones((2, HIDDEN))].astype(np.float32)

    @jax.jit
    def run(h):
        out, pull = jax.vjp(lambda h: sage.activate(0, h), h)
        return out, pull(jnp.ones_like(out))[0]

    out, grad = jax.device_get(run(h))
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), [0, 1, 1], rtol=1e-6)
    assert np.isfinite(grad).all()
    np.testing.assert_array_equal(sage.activate(1, h), h)  # no activation after the last layer


def test_weights_start_like_dgls():
    conv = SAGEConv(400, 200, rngs=nnx.Rngs(0))
    limit = np.sqrt(2) * np.sqrt(6 / 600)
    for kernel in (conv.self_kernel[...], conv.neighbor_kernel[...]):
        assert np.abs(kernel).max() <= limit
        np.testing.assert_allclose(np.std(kernel), limit / np.sqrt(3), rtol=0.02)
    assert not np.array_equal(conv.self_kernel[...], conv.neighbor_kernel[...])
    assert not np.any(conv.bias[...])


def test_bad_arguments_are_refused(graph):
    sage, x = model(), features()
    refused("1 blocks for 2 layers", sage, whole_batch(graph, 1), x)
    refused(f"[S, {IN}], with the layer's input", sage, whole_batch(graph, 2), x[:, 1:])
    refused("one row for each", sage, whole_batch(graph, 2), x[:-1])
    h, key = np.ones((3, HIDDEN), np.float32), np.uint32([0, 1])
    refused("nodes", jax.eval_shape, lambda h: sage.activate(0, h, None, key), h)
    for options in ({"reduce": "min"}, {"norm": "batch"}, {"dropout": 1.0}, {"num_layers": 0}):
        refused(next(iter(options)), model, **options)


# -- the first layer's inputs, without the rows of all input nodes


def both_batches(graph):
    """A batch, and the same batch with its input side by node id."""
    seeds = np.array([3, 4, NUM_NODES, 9, 20, 7, NUM_NODES])  # padded in the middle too
    draw, key = jgs.sampling.sample_neighbors, jax.random.key(5)
    return [draw(key, graph, seeds, (3, 2), relabel_inputs=yes) for yes in (True, False)]


@pytest.mark.parametrize(
    ("reduce", "hidden", "plain"),  # narrower and wider than the features
    [("mean", 4, False), ("sum", 12, False), ("max", 12, True), ("mean", 12, True)],
)
def test_inputs_equal_the_rows_of_all_input_nodes(graph, reduce, hidden, plain):
    sage = model(2, reduce, hidden, dropout=0.4)
    full, direct = both_batches(graph)
    key = np.uint32([0, 8])

    @nnx.jit
    def run(sage, full, direct, x):
        inputs = ops.gather(x, full.nodes), read_inputs(x, direct, reduce=reduce)
        f = nnx.value_and_grad(lambda sage, *of: loss_of(sage, *of, key=key), argnums=(0, 2))
        wanted, got = (f(sage, *of) for of in zip((full, direct), inputs, strict=True))
        return wanted[0], wanted[1][0], got[0], got[1][0]

    with kernels.plain(plain):
        *wanted, loss, grads = jax.device_get(run(sage, full, direct, jnp.asarray(features())))
    for a, b in zip(jax.tree.leaves((loss, grads)), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_inputs_refuse_what_they_cannot_be(graph):
    full, direct = both_batches(graph)
    x, run = jnp.asarray(features()), nnx.jit(lambda sage, *of: sage(*of))
    refused("relabel_inputs=False", read_inputs, x, full)
    inputs, drops = jax.device_get(read_inputs(x, direct)), model(input_dropout=0.5)
    refused("input_dropout needs the rows", drops, direct, inputs, key=jax.random.key(0))
    assert np.isfinite(run(drops, direct, inputs)[0]).all()  # no key: no dropout
    fewer = jax.tree.map(lambda rows: rows[1:], inputs)
    refused("Inputs must be [28, ...], one row", model(), direct, fewer)
    # A batch that lists its sources too takes the inputs of its targets as they are.
    np.testing.assert_array_equal(*(run(model(), one, inputs) for one in (full, direct)))
    refused("x must be [S, 7]", model(), direct, jax.tree.map(lambda rows: rows[:, 1:], inputs))
