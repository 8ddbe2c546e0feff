"""Layers whose messages read their edges: their equations, padding, every form of a batch."""

from dataclasses import replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from columns import attention_model, batch_with_columns, dense_model, edge_graph, edge_model
from flax import nnx
from modules import module
from refusals import refused

from jgs import kernels
from jgs.graph import Control
from jgs.models import GNN, GINEConv, Placed, SAGEConv, read_inputs
from jgs.sampling import Labor, Ladies, Neighbors, sample_neighbors

N, WIDTHS = 50, (6, 8, 4)
GRAPH = edge_graph(N)
X = np.random.default_rng(1).normal(size=(N, 6)).astype(np.float32)
KEY, WEIGHTS = np.uint32([0, 3]), {"edge_weights": True}


def batch_of(seeds, fanouts=(-1, -1), fill=np.nan, **options):
    seeds = np.asarray(seeds, np.int32)
    options = {"return_edge_ids": True, **options}
    key = jax.random.key(0)
    key = jax.random.split(key, len(seeds)) if seeds.ndim == 2 else key
    batch = sample_neighbors(key, GRAPH, seeds, fanouts, **options)
    return batch_with_columns(GRAPH, batch, fill)


def rows_of(batch, fill=0.0):
    return np.vstack([X, np.full_like(X[:1], fill)])[batch.nodes]


@nnx.jit
def run(model, batch, x, key=None):
    return model(batch, x, key=key)


@cases("reduce, plain", ("sum", False), ("mean", True), ("max", False), ("max", True))
def test_over_all_neighbours_the_model_is_its_equation(reduce, plain):
    model = edge_model(reduce)
    want = dense_model(model, GRAPH, X)
    batch = batch_of(np.r_[np.arange(N), [N] * 3])
    with kernels.plain(plain):
        got = run(model, batch, rows_of(batch, np.nan))
    np.testing.assert_allclose(got[:N], want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
    assert model.edge_columns == ("dist", "time", "weight")
    assert batch.blocks[0].edge_time.dtype == np.int64  # beyond 32 bits


@pytest.mark.parametrize(("reduce", "norm"), [("mean", "layer"), ("max", None)])
def test_padding_changes_neither_loss_nor_gradient(reduce, norm):
    """Nor do its NaNs: in rows of nodes, in columns of edges, and where there is no edge."""
    model = edge_model(reduce, norm=norm)

    @nnx.jit
    def slopes(model, batch, x):
        def loss(model, x):
            out = model(batch, x, key=KEY)
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0))

        return nnx.value_and_grad(loss, argnums=(0, 1))(model, x)

    seeds, found = [7, 3, 49, 0], []
    for padding, fill in ((0, 0), (5, 0), (5, np.nan)):
        batch = batch_of(seeds + [N] * padding, (4, 4), fill)
        loss, (grads, grad_x) = jax.device_get(slopes(model, batch, rows_of(batch, fill)))
        real = np.asarray(batch.nodes) < N
        assert not grad_x[~real].any()
        found.append((loss, grads, grad_x[real]))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # noqa: E731
    jax.tree.map(close, found[0], found[1])
    jax.tree.map(np.testing.assert_array_equal, found[1], found[2])
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(found[0]))
    for lonely in ([48, 49] + [N] * 7, [N] * 9):  # no edges at all
        batch = batch_of(lonely, (4, 4))
        assert all(int(block.num_edges) == 0 for block in batch.blocks)
        leaves = jax.tree.leaves(slopes(model, batch, rows_of(batch, np.nan)))
        assert all(np.isfinite(leaf).all() for leaf in leaves)


def test_every_form_of_a_batch():
    """A super-batch, a square one, and rows that are read by their places."""
    model, seeds, whole = edge_model("mean"), np.arange(12).reshape(2, 6), np.arange(N)
    want = dense_model(model, GRAPH, X)
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(want).max()}
    supers, square = batch_of(seeds), replace(batch_of(whole, (-1,)), square=True)
    both = jax.jit(jax.vmap(model))
    np.testing.assert_allclose(both(supers, rows_of(supers)), want[seeds], **close)
    batch = batch_of(whole)
    for one, x in ((square, rows_of(square)), (batch, Placed((jnp.asarray(X),), batch.nodes))):
        np.testing.assert_allclose(run(model, one, x), want, **close)
    assert model.input_reduce is None


@pytest.mark.parametrize("kind", ["sum", "max", "version 1", "version 2"])
def test_masks_of_edges(kind):
    """A mask multiplies the message of its edge; padding of masks may hold anything."""
    model = attention_model(int(kind[-1])) if "version" in kind else edge_model(kind)
    batch = batch_of(np.arange(N))

    @nnx.jit
    def masked(model, x, masks):
        def total(masks):
            out = model.masked(batch, x, masks)
            return out.sum(), out

        (_, out), slopes = jax.value_and_grad(total, has_aux=True)(masks)
        return out, slopes, model(batch, x)

    def masks(of_real):
        real = [np.arange(b.edge_capacity) < int(b.num_edges) for b in batch.blocks]
        return [np.where(r, of_real, np.nan).astype(np.float32) for r in real]

    got, slopes, want = jax.device_get(masked(model, rows_of(batch, np.nan), masks(1)))
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(want).max()}
    np.testing.assert_allclose(got, want, **close)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    if kind == "sum":  # without messages each node sees itself alone

        @jax.jit
        def alone(x):
            near, gine = model.layers
            h = near.update(x, jnp.zeros((N, near.message_width)), relu=True)
            return gine.update(h, jnp.zeros((N, WIDTHS[1])))

        got = masked(model, rows_of(batch, np.nan), masks(0))[0]
        np.testing.assert_allclose(got, alone(X), **close)


def test_adaptive_samplers_observe_the_means_over_a_sources_edges():
    """`test_gnn.py` has the derivatives."""
    model, batch = edge_model("mean", dropout=0.3), batch_of([7, 3, 49, N], (4, 4))
    x, widths, near = rows_of(batch, np.nan), model.message_widths, model.layers[0]
    assert widths == (3, 8)

    @nnx.jit
    def observed(model, x):
        sizes = zip(batch.blocks, widths, strict=True)
        probes = [jnp.zeros((block.target_capacity, width)) for block, width in sizes]
        block = batch.blocks[0]
        rows = near.message(x, block.num_sources)[block.indices]
        edge = {name: block.edge_arrays()[name] for name in near.edge_columns}
        of_edges = near.edge_message(rows, edge)
        return model.observed(batch, x, probes, key=KEY), model(batch, x, key=KEY), of_edges

    (outputs, messages), want, of_edges = jax.device_get(observed(model, x))
    np.testing.assert_allclose(outputs[:3], want[:3], rtol=1e-4, atol=1e-4)
    num = int(batch.blocks[0].num_edges)
    sources = np.asarray(batch.blocks[0].indices)[:num]
    for u in range(len(x)):
        own = of_edges[:num][sources == u]
        want = own.mean(0) if len(own) else np.zeros(3)
        np.testing.assert_allclose(messages[0][u], want, rtol=1e-4, atol=1e-5)
    for rows, block, width in zip(messages, batch.blocks, widths, strict=True):
        assert rows.shape == (block.source_capacity, width)
        assert np.isfinite(rows).all()


@cases(
    "sampler",
    Neighbors((-1,), **WEIGHTS),
    Labor((3,), **WEIGHTS, unbiased=True),
    Ladies((20,)),
    ids=lambda sampler: type(sampler).__name__,
)
def test_a_blocks_weights_multiply_and_the_column_weight_is_the_graphs(sampler, same_bits):
    columns = {"edge_columns": ("dist", "weight"), "edge_width": 2}
    layer = module(lambda rngs: GINEConv(6, 4, **columns, rngs=rngs))
    asked = replace(sampler, edges=("id", *layer.edge_columns))
    draw = lambda one: one.sample(jax.random.key(0), GRAPH, (), np.arange(N), None)  # noqa: E731
    batch = draw(asked)
    block, x = batch.blocks[0], rows_of(batch)
    same_bits(block.edge_weight, draw(sampler).blocks[0].edge_weight)
    num = int(block.num_edges)
    arrays = block.edge_id, block.edge_weight, block.indices
    ids, weight, sources = (np.asarray(a)[:num] for a in arrays)
    edge = {"dist": GRAPH.edge_columns["dist"][ids], "weight": GRAPH.edge_weight[ids]}
    same_bits(np.asarray(block.edge_columns["weight"])[:num], np.asarray(edge["weight"]))
    layer.update = lambda own, rows, *_, **options: rows

    @jax.jit
    def both(block, x):
        rows = layer.edge_message(x[sources], edge)
        return layer(block, x), rows

    got, rows = jax.device_get(both(block, x))
    want = np.zeros((block.target_capacity, 6), np.float32)
    targets = np.repeat(np.arange(len(want)), np.diff(block.indptr))
    np.add.at(want, targets, rows * weight[:, None])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_what_is_refused_in_one_line():
    model, plain = edge_model("mean"), sample_neighbors(jax.random.key(0), GRAPH, [7], (2, 2))
    batch = batch_of([7], (2, 2))
    block = batch.blocks[1]
    wide = block.edge_arrays() | {"dist": np.zeros((block.edge_capacity, 2), np.float32)}
    wide = replace(batch, blocks=(batch.blocks[0], block.with_edge_arrays(wide)))
    layer = edge_model("mean").layers[0]
    layer.message_width = 5
    direct = batch_of([7], (2, 2), relabel_inputs=False)
    inputs = jax.eval_shape(lambda x: read_inputs(x, direct), jnp.asarray(X))
    bare = "'dist', which Near reads; got no edge columns. Ask the sampler *edges=('dist',)"
    for call, operands, said in (
        (model, (plain, rows_of(plain)), bare),
        (model, (wide, rows_of(wide)), "an edge in dist, weight together, 3; got 2"),
        (
            layer,
            (batch.blocks[0], rows_of(batch)),
            "what edge_message of Near returns must be [6, 5]",
        ),
        (model, (direct, inputs), "Near needs the rows of all input nodes"),
    ):
        refused(said, jax.eval_shape, lambda *of, call=call: call(*of), *operands)
    other = module(lambda rngs: GNN([SAGEConv(6, 4, rngs=rngs)], rngs=rngs))
    assert other.edge_columns == ()


def test_control_variates_are_those_of_the_edges_sources():
    layer, batch = edge_model("mean").layers[0], batch_of([7, 3, 0], (3,))
    block, x, rng = batch.blocks[0], rows_of(batch), np.random.default_rng(2)
    layer.update = lambda own, rows, *_, **options: rows  # the reduced rows themselves
    sizes, width = (block.target_capacity, len(x)), layer.message_width
    known, stored = (rng.standard_normal((size, width), np.float32) for size in sizes)

    @jax.jit
    def both(block, x, stored, known):
        return layer(replace(block, control=Control(stored, known)), x), layer(block, x)

    got, plain = jax.device_get(both(block, x, stored, known))
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    means = [stored[indices[a:b]].mean(0) for a, b in pairwise(indptr)]
    np.testing.assert_allclose(got, known + plain - np.stack(means), atol=1e-5)
