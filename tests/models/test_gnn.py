"""Every model of the table, and what a stack of any layers promises."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from modules import module
from refusals import refused

import jgs
from jgs.dist.communicators.mesh import Mesh
from jgs.models import GNN, MODELS, GATConv, GINConv, SAGEConv, read_inputs
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.train import exact_inference
from jgs.train.config import Config
from jgs.train.loop.model import Types, make_model

N, WIDTHS = 50, (6, 8, 3)
X = np.random.default_rng(1).normal(size=(N, WIDTHS[0])).astype(np.float32)
NORMS = {"sage": "layer", "gcn": "l2", "hgt": "layer"}
# The others: test_temporal_models.py.
WHOLE = [name for name, maker in MODELS.items() if not getattr(maker, "timed", False)]


def hub_graph():
    """A random graph of two relations with a hub (node 7); the last five nodes are isolated."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N - 5, (2, 150))
    src, dst = np.r_[src, rng.integers(0, N - 5, 300)], np.r_[dst, np.full(300, 7)]
    first = np.arange(src.size) % 3 == 0
    ends = {"a": (src[first], dst[first]), "b": (src[~first], dst[~first])}
    edges = {("node", name, "node"): pair for name, pair in ends.items()}
    return jgs.Graph.from_relations({"node": N}, edges)


GRAPH = hub_graph()


def model_of(name, **options):
    own = {"heads": 2} if name.startswith("gat") else {}
    own |= {"norm": NORMS.get(name)}
    maker, (width, *others) = MODELS[name], WIDTHS
    if getattr(maker, "typed", False):
        own, width = {**own, "schema": GRAPH.schema}, (width,)
    return module(lambda rngs: maker(width, *others, 2, rngs=rngs, **own, **options))


def batch_of(seeds, fanouts=(-1, -1), **options):
    batch = sample_neighbors(jax.random.key(0), GRAPH, seeds, fanouts, **options)
    degrees = np.append(np.diff(GRAPH.indptr), 0).astype(np.int32)
    return dataclasses.replace(batch, degrees=jnp.asarray(degrees[batch.nodes]))


@pytest.mark.parametrize("name", WHOLE)
def test_over_all_neighbours_a_batch_is_exact(name, tmp_path):
    """Also in pieces, many of which share the hub, on one rank or on two."""
    model, seeds = model_of(name, dropout=0.3), np.arange(N, dtype=np.int32)
    batch = batch_of(seeds, edges=model.edge_columns)

    @nnx.jit
    def run(model, batch, x):
        rows = gather(x, batch.nodes)
        ones = [jnp.ones(block.edge_capacity) for block in batch.blocks]
        return model(batch, rows), model.masked(batch, rows, ones)

    want, masked = jax.device_get(run(model, batch, jnp.asarray(X)))
    close = {"rtol": 1e-3, "atol": 1e-5 * np.abs(want).max()}
    np.testing.assert_allclose(masked, want, **close)
    if WHOLE.index(name) % 2:
        infer = exact_inference(model, GRAPH, jnp.asarray(X), 4000, tmp_path)
        got = infer(nnx.state(model), seeds)
    else:
        ranks = {"comm": Mesh(jax.devices()[:2]), "offsets": [0, 20, N]}
        infer = exact_inference(model, [GRAPH] * 2, [[X[:20]], [X[20:]]], 20_000, **ranks)
        got = np.concatenate(infer(nnx.state(model), [seeds[:20], seeds[20:]]))
    np.testing.assert_allclose(got, want, **close)


@pytest.mark.parametrize("name", WHOLE)
def test_dropout_padding_and_overflow(name):
    model, seeds = model_of(name, dropout=0.5), [7, 3, 49, 0]

    @nnx.jit
    def run(model, batch, rows, key):
        def loss(model):
            out = model(batch, rows, key=key)
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0)), out

        return nnx.value_and_grad(loss, has_aux=True)(model)

    results = []
    # The same seeds among others of padding, after them and in the middle.
    for slots, key, fill in (
        (seeds + [N] * 5, 3, 0),
        (seeds[:2] + [N] * 5 + seeds[2:], 3, 0),
        (seeds[:2] + [N] * 5 + seeds[2:], 3, np.nan),
        (seeds + [N] * 5, 4, 0),
    ):
        batch = batch_of(np.int32(slots), (4, 4), edges=model.edge_columns)
        rows = np.vstack([X, np.full_like(X[:1], fill)])[batch.nodes]
        (loss, _), grads = run(model, batch, rows, np.uint32([0, key]))
        results.append(jax.tree.leaves((loss, grads)))
    for other in results[1:3]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert not np.allclose(results[0][0], results[3][0])
    full = dataclasses.replace(batch, overflow=jnp.array(True))
    assert np.isnan(run(model, full, rows, np.uint32([0, key]))[0][1]).all()


def test_layers_of_several_kinds():
    def make(rngs):
        layers = [SAGEConv(6, 8, rngs=rngs), GATConv(8, 4, 2, rngs=rngs)]
        layers.append(GINConv(4, 3, rngs=rngs))
        return GNN(layers, norm="layer", activation="elu", rngs=rngs)

    model, x, seeds = module(make), jnp.asarray(X), np.arange(N, dtype=np.int32)
    batch = batch_of(seeds, (-1, -1, -1), relabel_inputs=False)
    run = nnx.jit(lambda model, b, x: model(b, read_inputs(x, b, model.input_reduce)))
    got = exact_inference(model, GRAPH, x)(nnx.state(model), seeds)
    np.testing.assert_allclose(got, run(model, batch, x), rtol=1e-3, atol=1e-4)
    assert not model.uses_degrees


def test_what_a_stack_refuses():
    def stack(*sizes, more=(), **options):
        def make(rngs):
            layers = [SAGEConv(*of, rngs=rngs) for of in sizes]
            return GNN([*layers, *more], **options, rngs=rngs)

        return module(make)

    refused("at least one layer", stack)
    refused("5 after 4, layer 1", stack, (3, 4), (5, 4))
    older = type("Older", (), {"in_features": 4, "out_features": 4})()
    named = module(lambda rngs: SAGEConv(4, 4, rngs=rngs))
    named.edge_columns = "dist"
    for layer, found in ((older, "None in Older"), (named, "'dist' in SAGEConv")):
        said = f"edge_columns, a tuple of names; got {found}, layer 1. Write edge_columns"
        refused(said, stack, (3, 4), more=[layer])
    for options in ({"activation": "gelu"}, {"attention_dropout": 1.0}):
        refused(next(iter(options)), stack, (3, 4), **options)
    direct = batch_of(np.arange(4), (2, 2), relabel_inputs=False)
    inputs = jax.eval_shape(lambda x: read_inputs(x, direct), jnp.asarray(X))
    refused("GATConv needs the rows of all input nodes", model_of("gat"), direct, inputs)
    batch = sample_neighbors(jax.random.key(0), GRAPH, np.arange(4), (2, 2))
    x = np.zeros((batch.nodes.size, WIDTHS[0]), np.float32)
    refused("with_degrees", model_of("gcn"), batch, x)


def test_the_command_makes_each_model_with_its_own_options():
    def made(types=None, sparse=False, **given):
        of = Config(**given), 6, 3, sparse, jax.random.key(0), types
        return nnx.eval_shape(lambda: make_model(*of))

    for name, maker in MODELS.items():
        types = Types((6,), GRAPH.schema) if getattr(maker, "typed", False) else None
        own = {"fanouts": (5,)} if name == "mixer" else {}
        if getattr(maker, "timed", False):  # no task without times takes it
            own |= {"task": "links", "temporal": True}
        assert isinstance(made(types, model=name, **own), GNN)
    model = made(sparse=True, model="gatv2", heads=4)
    first, last = model.layers
    assert (first.num_heads, first.version, last.num_heads) == (4, 2, 1)
    assert (model.input_dropout, model.attention_dropout) == (0.5, 0.5)
    refused("--reduce must be for --model sage or rgcn", made, model="gcn", reduce="max")
    refused("--heads must be for --model gat or gatv2 or tgat", made, heads=4)
    refused("a multiple of --heads; got 60 for 8", made, model="gat", hidden=60)
