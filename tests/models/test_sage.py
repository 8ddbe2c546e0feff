"""GraphSAGE against a dense float64 reference; what padding and dropout may change."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
from flax import nnx

import jgs
from jgs import Block, Graph, InputError, MiniBatch, kernels, ops
from jgs.models import GraphSAGE, SAGEConv, read_inputs

NUM_NODES, IN, HIDDEN, OUT = 30, 7, 12, 5


@pytest.fixture
def graph():
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, NUM_NODES, (2, 120))
    keep = dst != 4  # node 4 has no neighbours
    return Graph.from_edges(src[keep], dst[keep], NUM_NODES)


def full_batch(graph, num_layers, padding=0):
    """All neighbours of all nodes in every block, with `padding` more of each capacity."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    n, e = graph.num_nodes, graph.num_edges
    block = Block(
        indptr=jnp.asarray(np.r_[indptr, [e] * padding].astype(np.int32)),
        indices=jnp.asarray(np.r_[indices, [n + padding] * padding].astype(np.int32)),
        num_targets=jnp.int32(n),
        num_sources=jnp.int32(n),
        num_edges=jnp.int32(e),
    )
    nodes = jnp.asarray(np.r_[np.arange(n), [n] * padding].astype(np.int32))
    return MiniBatch(nodes, nodes, (block,) * num_layers, jnp.array(False), n)


def features(seed=0, rows=NUM_NODES):
    return np.random.default_rng(seed).standard_normal((rows, IN)).astype(np.float32)


def model(num_layers=2, reduce="mean", **options):
    options = {"dropout": 0.0, **options}
    return GraphSAGE(IN, HIDDEN, OUT, num_layers, reduce=reduce, rngs=nnx.Rngs(3), **options)


def loss_of(sage, batch, x, **options):
    """A masked loss in which each output of each real row has its own weight."""
    out = sage(batch, x, **options)
    weights = jnp.sin(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
    return jnp.sum(jnp.where(batch.seed_mask[:, None], weights * out**2, 0))


def dense_reference(graph, sage, x, reduce):
    """The loss, and the gradients of the matrices of the last and first layer, in float64."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    n = len(indptr) - 1
    degree = np.diff(indptr)
    count = np.zeros((n, n))
    np.add.at(count, (np.repeat(np.arange(n), degree), indices), 1)
    if reduce == "mean":
        count /= np.maximum(degree, 1)[:, None]
    layers = [
        [np.asarray(p[...], np.float64) for p in (c.self_kernel, c.neighbor_kernel, c.bias)]
        for c in sage.layers
    ]

    def reduced(h):
        if reduce != "max":
            return count @ h, None
        choice = np.zeros((n, n, h.shape[1]))  # [target, source, unit]
        for t in range(n):
            row = indices[indptr[t] : indptr[t + 1]]
            for u in range(h.shape[1] if len(row) else 0):
                choice[t, row[h[row, u].argmax()], u] = 1
        return np.einsum("tsu,su->tu", choice, h), choice

    h, saved = np.asarray(x, np.float64), []
    for i, (w_self, w_neigh, bias) in enumerate(layers):
        agg, choice = reduced(h)
        z = h @ w_self + agg @ w_neigh + bias
        saved.append((h, agg, choice, z))
        h = np.maximum(z, 0) if i < len(layers) - 1 else z
    weights = np.sin(np.arange(h.size)).reshape(h.shape)
    loss, grad, grads = (weights * h**2).sum(), 2 * weights * h, []
    for i in reversed(range(len(layers))):
        w_self, w_neigh, _ = layers[i]
        h, agg, choice, z = saved[i]
        if i < len(layers) - 1:
            grad = grad * (z > 0)
        grads.insert(0, (h.T @ grad, agg.T @ grad, grad.sum(0)))
        down = grad @ w_neigh.T
        back = count.T @ down if choice is None else np.einsum("tsu,tu->su", choice, down)
        grad = grad @ w_self.T + back
    return loss, grads


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_a_step_over_all_neighbours_equals_the_dense_reference(graph, reduce):
    sage, x = model(3, reduce), features()
    batch = full_batch(graph, 3)
    assert [c.projects_first for c in sage.layers] == [False, False, reduce != "max"]
    want_loss, want = dense_reference(graph, sage, x, reduce)
    loss, grads = nnx.jit(nnx.value_and_grad(loss_of))(sage, batch, jnp.asarray(x))
    close(loss, want_loss)
    for i, layer in enumerate(want):
        got = grads["layers"][i]
        for name, value in zip(("self_kernel", "neighbor_kernel", "bias"), layer, strict=True):
            close(got[name][...], value)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize("widths", [(IN, 3), (IN, 9)])
def test_a_conv_is_its_message_aggregated_and_updated(graph, reduce, widths):
    conv = SAGEConv(*widths, reduce=reduce, rngs=nnx.Rngs(0))
    assert conv.projects_first == (reduce != "max" and widths[1] < IN)
    block, x = full_batch(graph, 1).blocks[0], jnp.asarray(features())
    got = conv.update(x[:NUM_NODES], ops.aggregate(block, conv.message(x), conv.reduce))
    np.testing.assert_array_equal(conv(block, x), got)


@pytest.mark.parametrize("norm", [None, "layer", "l2"])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_nan_in_padding_changes_no_output_and_no_gradient(graph, reduce, norm):
    # Hidden is narrower than the input, so the first conv projects before it aggregates.
    sage = GraphSAGE(
        IN, 4, OUT, 2, reduce=reduce, norm=norm, input_dropout=0.2, rngs=nnx.Rngs(0)
    )
    key, x = jax.random.key(1), features()
    results = []
    for padding, fill in ((0, 0), (6, 0), (6, np.nan), (6, np.inf)):
        padded = np.vstack([x, np.full((padding, IN), fill, np.float32)])
        batch = full_batch(graph, 2, padding)
        f = nnx.jit(nnx.value_and_grad(lambda m, b, x: loss_of(m, b, x, key=key)))
        results.append(f(sage, batch, jnp.asarray(padded)))
    # The same shapes give the same bits. With other shapes XLA may sum in another order.
    for other in results[2:]:
        jax.tree.map(np.testing.assert_array_equal, results[1], other)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *results[:2]
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results))


def test_dropout_is_on_with_a_key_and_belongs_to_the_node(graph):
    sage, x = model(dropout=0.5, input_dropout=0.3), jnp.asarray(features())
    batch, padded = full_batch(graph, 2), full_batch(graph, 2, padding=9)
    key = jax.random.key(0)
    plain, dropped = sage(batch, x), sage(batch, x, key=key)
    np.testing.assert_array_equal(plain, sage(batch, x))
    assert not np.allclose(plain, dropped)
    assert not np.allclose(dropped, sage(batch, x, key=jax.random.key(1)))
    wide = sage(padded, jnp.pad(x, ((0, 9), (0, 0))), key=key)
    np.testing.assert_allclose(wide[:NUM_NODES], dropped, rtol=1e-5, atol=1e-6)


def test_l2_norm_gives_unit_rows_and_leaves_zero_rows(graph):
    sage = model(norm="l2")
    h = jnp.asarray(np.r_[[[-1.0] * HIDDEN], np.ones((2, HIDDEN))])
    out, pull = jax.vjp(lambda h: sage.activate(0, h), h)
    np.testing.assert_allclose(jnp.linalg.norm(out, axis=1), [0, 1, 1], rtol=1e-6)
    assert np.isfinite(pull(jnp.ones_like(out))[0]).all()
    np.testing.assert_array_equal(sage.activate(1, h), h)  # no activation after the last layer


def test_weights_start_like_dgls():
    conv = SAGEConv(400, 200, rngs=nnx.Rngs(0))
    limit = np.sqrt(2) * np.sqrt(6 / 600)
    for kernel in (conv.self_kernel[...], conv.neighbor_kernel[...]):
        assert np.abs(kernel).max() <= limit
        np.testing.assert_allclose(np.std(kernel), limit / np.sqrt(3), rtol=0.02)
    assert not np.array_equal(conv.self_kernel[...], conv.neighbor_kernel[...])
    assert np.all(conv.bias[...] == 0)


@pytest.mark.parametrize("style", ["split and merge", "nnx.jit"])
def test_training_lowers_the_loss_in_either_style_and_traces_once(graph, style):
    sage, batch, x = model(), full_batch(graph, 2), jnp.asarray(features())
    labels = jnp.asarray(np.arange(NUM_NODES) % OUT)
    traces = 0

    def loss_fn(m, batch, x, key):
        nonlocal traces
        traces += 1
        loss = optax.softmax_cross_entropy_with_integer_labels(m(batch, x, key=key), labels)
        return loss.mean()

    losses, key = [], jax.random.key(0)
    if style == "nnx.jit":
        optimizer = nnx.Optimizer(sage, optax.adam(0.05), wrt=nnx.Param)

        @nnx.jit
        def nnx_step(sage, optimizer, batch, x, key):
            loss, grads = nnx.value_and_grad(loss_fn)(sage, batch, x, key)
            optimizer.update(sage, grads)
            return loss

        losses = [nnx_step(sage, optimizer, batch, x, key) for _ in range(30)]
    else:
        definition, params = nnx.split(sage)
        tx = optax.adam(0.05)
        state = tx.init(params)

        @jax.jit
        def step(params, state, batch, x, key):
            f = jax.value_and_grad(lambda p: loss_fn(nnx.merge(definition, p), batch, x, key))
            loss, grads = f(params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        for _ in range(30):
            params, state, loss = step(params, state, batch, x, key)
            losses.append(loss)
    assert losses[-1] < 0.6 * losses[0], [float(v) for v in losses]
    assert traces == 1


def test_bad_arguments_are_refused(graph):
    sage, x = model(), jnp.asarray(features())
    for batch, rows, said in (
        (full_batch(graph, 1), x, "1 blocks for 2 layers"),
        (full_batch(graph, 2), x[:, 1:], f"{IN} input features"),
        (full_batch(graph, 2), x[:-1], "one row for each"),
    ):
        with pytest.raises(InputError, match=said):
            sage(batch, rows)
    with pytest.raises(InputError, match="nodes"):
        sage.activate(0, jnp.ones((3, HIDDEN)), None, jax.random.key(0))
    for options in ({"reduce": "min"}, {"norm": "batch"}, {"dropout": 1.0}, {"num_layers": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            model(**options)


# -- the first layer's inputs, without the rows of all input nodes


def both_batches(graph, seeds, fanouts=(3, 2)):
    """A batch, and the same batch with its input side by node id."""
    key = jax.random.key(5)
    return [
        jgs.sampling.sample_neighbors(key, graph, seeds, fanouts, relabel_inputs=relabel)
        for relabel in (True, False)
    ]


@pytest.mark.parametrize("reduce", ["mean", "sum", "max"])
@pytest.mark.parametrize("hidden", [4, 12])  # narrower and wider than the features
@pytest.mark.parametrize("kernels_on", [True, False])
def test_inputs_equal_the_rows_of_all_input_nodes(
    graph, reduce, hidden, kernels_on, monkeypatch
):
    monkeypatch.setattr(kernels, "_AVAILABLE", kernels_on and kernels.available())
    sage = GraphSAGE(IN, hidden, OUT, 2, reduce=reduce, dropout=0.4, rngs=nnx.Rngs(1))
    graphdef, params = nnx.split(sage)
    seeds = np.array([3, 4, NUM_NODES, 9, 20, 7, NUM_NODES])  # padded in the middle too
    full, direct = both_batches(graph, seeds)
    x, key = jnp.asarray(features()), jax.random.key(8)

    def result(batch, inputs):
        def loss(params, inputs):
            return loss_of(nnx.merge(graphdef, params), batch, inputs, key=key)

        return jax.jit(jax.value_and_grad(loss))(params, inputs)

    wanted = result(full, ops.gather(x, full.nodes))
    got = result(
        direct, jax.jit(read_inputs, static_argnames="reduce")(x, direct, reduce=reduce)
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_inputs_of_sparse_features(graph):
    dense = features() * (features(1) > 0.5)
    sparse = jgs.SparseFeatures.from_scipy(scipy.sparse.csr_array(dense))
    _, direct = both_batches(graph, np.arange(9))
    for a, b in zip(
        read_inputs(sparse, direct), read_inputs(jnp.asarray(dense), direct), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_inputs_refuse_what_they_cannot_be(graph):
    full, direct = both_batches(graph, np.arange(9))
    x = jnp.asarray(features())
    with pytest.raises(InputError, match="relabel_inputs=False"):
        read_inputs(x, full)
    inputs = read_inputs(x, direct)
    with pytest.raises(InputError, match="input_dropout needs the rows"):
        model(input_dropout=0.5)(direct, inputs, key=jax.random.key(0))
    assert np.isfinite(model(input_dropout=0.5)(direct, inputs)).all()  # no key: no dropout
    with pytest.raises(InputError, match="Inputs must have one row"):
        model()(direct, jax.tree.map(lambda rows: rows[1:], inputs))
    # A batch that lists its sources too takes the inputs of its targets as they are.
    np.testing.assert_array_equal(model()(full, inputs), model()(direct, inputs))
    with pytest.raises(InputError, match="7 input features"):
        model()(direct, jax.tree.map(lambda rows: rows[:, 1:], inputs))
