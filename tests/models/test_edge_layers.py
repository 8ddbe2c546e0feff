"""Layers whose messages read their edges: their equations, padding, every form of a batch."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns import attention_model, batch_with_columns, dense_model, edge_graph, edge_model
from flax import nnx

from jgs import InputError
from jgs.graph import Control
from jgs.models import GNN, GINEConv, Placed, SAGEConv, read_inputs
from jgs.ops import gather
from jgs.sampling import Labor, Ladies, Neighbors, sample_neighbors

N, WIDTHS = 50, (6, 8, 4)
GRAPH = edge_graph(N)
X = np.random.default_rng(1).normal(size=(N, 6)).astype(np.float32)


def batch_of(seeds, fanouts=(-1, -1), fill=np.nan, **options):
    seeds = np.asarray(seeds, np.int32)
    options = {"return_edge_ids": True, **options}
    key = jax.random.key(0)
    key = jax.random.split(key, len(seeds)) if seeds.ndim == 2 else key
    batch = sample_neighbors(key, GRAPH, seeds, fanouts, **options)
    return batch_with_columns(GRAPH, batch, fill)


def rows_of(batch, fill=0.0):
    return jnp.asarray(np.vstack([X, np.full_like(X[:1], fill)]))[batch.nodes]


@nnx.jit
def run(model, batch, x, key=None):
    return model(batch, x, key=key)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_over_all_neighbours_the_model_is_its_equation(reduce, kernels, implemented):
    implemented(kernels)
    model = edge_model(reduce)
    want = dense_model(model, GRAPH, X)
    batch = batch_of(np.r_[np.arange(N), [N] * 3])
    got = run(model, batch, rows_of(batch, np.nan))
    np.testing.assert_allclose(got[:N], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    assert model.edge_columns == ("dist", "time", "weight")
    assert batch.blocks[0].edge_time.dtype == np.int64  # beyond 32 bits


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_padding_changes_neither_loss_nor_gradient(reduce, norm):
    """Nor do its NaNs: in rows of nodes, in columns of edges, and where there is no edge."""
    model, key = edge_model(reduce, norm=norm), jax.random.key(3)

    @nnx.jit
    def slopes(model, batch, x):
        def loss(model, x):
            out = model(batch, x, key=key)
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0))

        return nnx.value_and_grad(loss, argnums=(0, 1))(model, x)

    seeds, found = [7, 3, 49, 0], []
    for padding, fill in ((0, 0), (5, 0), (5, np.nan)):
        batch = batch_of(seeds + [N] * padding, (4, 4), fill)
        loss, (grads, grad_x) = slopes(model, batch, rows_of(batch, fill))
        real = batch.nodes < N
        assert not np.asarray(grad_x)[~real].any()
        found.append((loss, grads, grad_x[real]))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # noqa: E731
    jax.tree.map(close, found[0], found[1])
    jax.tree.map(np.testing.assert_array_equal, found[1], found[2])
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(found[0]))
    for lonely in ([48, 49], [N, N]):  # no edges at all
        batch = batch_of(lonely, (4, 4))
        assert all(int(block.num_edges) == 0 for block in batch.blocks)
        leaves = jax.tree.leaves(slopes(model, batch, rows_of(batch, np.nan)))
        assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_every_form_of_a_batch():
    model, seeds = edge_model("mean", dropout=0.0), np.arange(12).reshape(2, 6)
    want = dense_model(model, GRAPH, X)
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(want).max()}
    supers = batch_of(seeds)  # a super-batch
    graphdef, state = nnx.split(model)
    both = jax.jit(jax.vmap(lambda batch, x: nnx.merge(graphdef, state)(batch, x)))
    np.testing.assert_allclose(both(supers, rows_of(supers)), want[seeds], **close)
    batch = batch_of(np.arange(N), (-1,))
    square = replace(batch, square=True)
    np.testing.assert_allclose(run(model, square, rows_of(square)), want, **close)
    batch = batch_of(np.arange(N))
    placed = Placed((jnp.asarray(X),), batch.nodes)
    np.testing.assert_allclose(run(model, batch, placed), want, **close)
    direct = batch_of(np.arange(N), relabel_inputs=False)
    assert model.input_reduce is None
    with pytest.raises(InputError, match="Near needs the rows of all input nodes"):
        model(direct, read_inputs(jnp.asarray(X), direct))


@pytest.mark.parametrize("kind", ["mean", "version 2"])
def test_gradients_on_a_mesh(kind):
    """Each device has a batch, as a rank has; their gradients are added."""
    model = attention_model(2) if "version" in kind else edge_model(kind)
    graphdef, state = nnx.split(model)
    batch = batch_of(np.arange(12).reshape(2, 6))
    x, kinds = rows_of(batch), (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((2,), ("ranks",), devices=jax.devices()[:2], axis_types=kinds)

    def gradient(state, batch, x):
        return jax.grad(lambda state: (nnx.merge(graphdef, state)(batch, x) ** 2).sum())(state)

    def of_rank(state, *own):
        own = jax.tree.map(lambda a: a[0], own)
        state = jax.tree.map(lambda a: jax.lax.pcast(a, ("ranks",), to="varying"), state)
        return jax.lax.psum(gradient(state, *own), "ranks")

    own, same = jax.P("ranks"), jax.P()
    specs = {"in_specs": (same, own, own), "out_specs": same}
    got = jax.jit(jax.shard_map(of_rank, mesh=mesh, **specs))(state, batch, x)
    each = jax.jit(jax.vmap(gradient, (None, 0, 0)))(state, batch, x)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(each), strict=True):
        np.testing.assert_allclose(a, b.sum(0), rtol=1e-3, atol=1e-3 * np.abs(b).max())


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "version 1", "version 2"])
def test_masks_of_edges(reduce):
    """A mask multiplies the message of its edge; padding of masks may hold anything."""
    if reduce in ("sum", "mean", "max"):
        model = edge_model(reduce)
    else:
        model = attention_model(int(reduce[-1]))
    batch = batch_of(np.arange(N))
    x, blocks = rows_of(batch, np.nan), batch.blocks

    @nnx.jit
    def masked(model, x, masks):
        return model.masked(batch, x, masks)

    def masks(of_real):
        real = [jnp.arange(b.edge_capacity) < b.num_edges for b in blocks]
        return [jnp.where(r, of_real, jnp.nan) for r in real]

    want = run(model, batch, x)
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(want).max()}
    np.testing.assert_allclose(masked(model, x, masks(1.0)), want, **close)
    if reduce in ("sum", "mean"):  # without messages each node sees itself alone
        near, gine = model.layers
        alone = near.update(jnp.asarray(X), jnp.zeros((N, near.message_width)), relu=True)
        alone = gine.update(alone, jnp.zeros((N, WIDTHS[1])))
        np.testing.assert_allclose(masked(model, x, masks(0.0)), alone, **close)
    slopes = nnx.jit(nnx.grad(lambda model, m: model.masked(batch, x, m).sum()))
    for leaf in jax.tree.leaves(slopes(model, masks(1.0))):
        assert np.isfinite(leaf).all()


def test_adaptive_samplers_observe_the_means_over_a_sources_edges():
    model, batch, key = edge_model("mean", dropout=0.3), batch_of([7, 3, 49, N], (4, 4)), None
    x, widths = rows_of(batch, np.nan), model.message_widths
    assert widths == (3, 8)
    sizes = [(b.target_capacity, m) for b, m in zip(batch.blocks, widths, strict=True)]
    probes, key = [jnp.zeros(size) for size in sizes], jax.random.key(1)

    @nnx.jit
    def observed(model, probes):
        def loss(probes):
            outputs, messages = model.observed(batch, x, probes, key=key)
            real = jnp.where(batch.seed_mask[:, None], outputs, 0)
            return jnp.sum(real**2), (outputs, messages)

        return jax.value_and_grad(loss, has_aux=True)(probes)

    (_, (outputs, messages)), gradients = observed(model, probes)
    np.testing.assert_allclose(outputs[:3], run(model, batch, x, key)[:3], rtol=1e-4, atol=1e-4)
    near, block = model.layers[0], batch.blocks[0]
    num = int(block.num_edges)
    edge = {name: block.edge_arrays()[name][:num] for name in near.edge_columns}
    of_edges = near.edge_message(near.message(x, block.num_sources)[block.indices[:num]], edge)
    for u in range(len(x)):
        own = np.asarray(of_edges)[np.asarray(block.indices[:num]) == u]
        want = own.mean(0) if len(own) else np.zeros(3)
        np.testing.assert_allclose(messages[0][u], want, rtol=1e-4, atol=1e-5)
    for i, gradient in enumerate(gradients):
        assert messages[i].shape == (batch.blocks[i].source_capacity, widths[i])
        assert np.isfinite(messages[i]).all()
        step = [jnp.zeros(size) for size in sizes]
        step[i] = 1e-2 * gradient / jnp.linalg.norm(gradient)
        change = observed(model, step)[0][0] - observed(model, [-s for s in step])[0][0]
        np.testing.assert_allclose(change, 2e-2 * jnp.linalg.norm(gradient), rtol=0.05)


def test_control_variates_are_those_of_the_edges_sources():
    layer, batch = edge_model("mean").layers[0], batch_of([7, 3, 0], (3,))
    block, x, key = batch.blocks[0], rows_of(batch), jax.random.key(2)
    width = layer.message_width
    layer.update = lambda own, rows, *_, **options: rows  # the reduced rows themselves
    known = jax.random.normal(key, (block.target_capacity, width))
    stored = jax.random.normal(key, (len(x), width))
    got = layer(replace(block, control=Control(stored, known)), x)
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    means = [np.asarray(stored)[indices[a:b]].mean(0) for a, b in pairwise(indptr)]
    np.testing.assert_allclose(got, known + layer(block, x) - np.stack(means), atol=1e-5)


@pytest.mark.parametrize(
    "sampler",
    [
        Neighbors((-1,), edge_weights=True),
        Labor((3,), edge_weights=True, unbiased=True),
        Ladies((20,)),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_blocks_weights_multiply_and_the_column_weight_is_the_graphs(sampler, same_bits):
    layer = GINEConv(6, 4, edge_columns=("dist", "weight"), edge_width=2, rngs=nnx.Rngs(0))
    asked = replace(sampler, edges=("id", *layer.edge_columns))
    draw = lambda one: one.sample(jax.random.key(0), GRAPH, (), np.arange(N), None)  # noqa: E731
    batch = draw(asked)
    block, x = batch.blocks[0], gather(jnp.asarray(X), batch.nodes)
    same_bits(block.edge_weight, draw(sampler).blocks[0].edge_weight)
    num = int(block.num_edges)
    ids, weight = np.asarray(block.edge_id[:num]), np.asarray(block.edge_weight[:num])
    edge = {"dist": GRAPH.edge_columns["dist"][ids], "weight": GRAPH.edge_weight[ids]}
    same_bits(block.edge_columns["weight"][:num], edge["weight"])
    rows = layer.edge_message(x[block.indices[:num]], edge) * weight[:, None]
    want = np.zeros((block.target_capacity, 6), np.float32)
    np.add.at(want, np.repeat(np.arange(len(want)), np.diff(block.indptr)), rows)
    layer.update = lambda own, rows, *_, **options: rows
    np.testing.assert_allclose(layer(block, x), want, rtol=1e-4, atol=1e-3)


def test_what_is_refused_in_one_line():
    model, plain = edge_model("mean"), sample_neighbors(jax.random.key(0), GRAPH, [7], (2, 2))
    batch = batch_of([7], (2, 2))
    block = batch.blocks[1]
    wide = block.edge_arrays() | {"dist": jnp.zeros((block.edge_capacity, 2))}
    wide = replace(batch, blocks=(batch.blocks[0], block.with_edge_arrays(wide)))
    layer = edge_model("mean").layers[0]
    layer.message_width = 5
    for call, said in (
        (
            lambda: model(plain, rows_of(plain)),
            "the edge column 'dist', which Near reads; got no edge columns. Ask the sampler "
            r"for it: edges=\('dist',\)",
        ),
        (lambda: model(wide, rows_of(wide)), "an edge in dist, weight together, 3; got 2"),
        (lambda: layer(batch.blocks[0], rows_of(batch)), "edge_message of Near must return"),
    ):
        with pytest.raises(InputError, match=said) as error:
            call()
        assert "\n" not in str(error.value)


def test_other_layers_read_no_edges():
    model = GNN([SAGEConv(6, 4, rngs=nnx.Rngs(0))], rngs=nnx.Rngs(0))
    assert model.edge_columns == ()
    batch = sample_neighbors(jax.random.key(0), GRAPH, np.arange(4), (2,))
    assert np.isfinite(model(batch, gather(jnp.asarray(X), batch.nodes))).all()
