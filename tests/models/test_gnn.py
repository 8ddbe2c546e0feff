"""Every model of the table, and what a stack of any layers promises."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jgs
from jgs import InputError
from jgs.dist.communicators.mesh import Mesh
from jgs.models import GNN, MODELS, GATConv, GINConv, SAGEConv, read_inputs
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.train import exact_inference
from jgs.train.config import Config
from jgs.train.loop.model import Types, make_model

N, WIDTHS = 50, (6, 8, 3)


WHOLE = [name for name, maker in MODELS.items() if not getattr(maker, "timed", False)]


def hub_graph():
    """A random graph with a hub (node 7, 300 in-edges) and isolated nodes (the last five). Its
    edges are of two relations."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N - 5, (2, 150))
    src, dst = np.r_[src, rng.integers(0, N - 5, 300)], np.r_[dst, np.full(300, 7)]
    first = np.arange(src.size) % 3 == 0
    edges = {
        ("node", name, "node"): (src[of], dst[of]) for name, of in (("a", first), ("b", ~first))
    }
    return jgs.Graph.from_relations({"node": N}, edges)


def model_of(name, **options):
    own = {"heads": 2} if name.startswith("gat") else {}
    maker, (width, *others) = MODELS[name], WIDTHS
    if getattr(maker, "typed", False):
        own, width = {"schema": hub_graph().schema}, (width,)
    return maker(width, *others, 2, rngs=nnx.Rngs(0), **own, **options)


def batch_of(graph, seeds, fanouts=(-1, -1), **options):
    batch = sample_neighbors(jax.random.key(0), graph, seeds, fanouts, **options)
    degrees = np.diff(np.asarray(graph.indptr)).astype(np.int32)
    return batch.with_degrees(jnp.asarray(degrees))


@nnx.jit
def outputs_of(model, batch, x, masks=None):
    rows = gather(x, batch.nodes)
    return model(batch, rows) if masks is None else model.masked(batch, rows, masks)


@pytest.mark.parametrize("name", WHOLE)
def test_over_all_neighbours_a_batch_is_exact(name, tmp_path):
    """Also in pieces, many of which share the hub, and on two ranks."""
    graph, model = hub_graph(), model_of(name, dropout=0.3)
    x = np.random.default_rng(1).normal(size=(N, WIDTHS[0])).astype(np.float32)
    seeds, params = np.arange(N, dtype=np.int32), nnx.state(model)
    batch = batch_of(graph, seeds, edges=model.edge_columns)
    want = np.asarray(outputs_of(model, batch, x))
    close = {"rtol": 1e-3, "atol": 1e-5 * np.abs(want).max()}
    ones = [jnp.ones(block.edge_capacity) for block in batch.blocks]
    masked = outputs_of(model, batch, x, ones)
    np.testing.assert_allclose(masked, want, **close)
    infer = exact_inference(model, graph, jnp.asarray(x), 4000, tmp_path)
    np.testing.assert_allclose(infer(params, seeds), want, **close)
    ranks = {"comm": Mesh(jax.devices()[:2]), "offsets": [0, 20, N]}
    infer = exact_inference(model, [graph] * 2, [[x[:20]], [x[20:]]], 20_000, **ranks)
    got = infer(params, [seeds[:20], seeds[20:]])
    np.testing.assert_allclose(np.concatenate(got), want, **close)


@pytest.mark.parametrize("name", WHOLE)  # the others: test_temporal_models.py
def test_dropout_padding_and_overflow(name):
    graph, model = hub_graph(), model_of(name, dropout=0.5)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(N, WIDTHS[0])), jnp.float32)
    seeds, key = np.array([7, 3, 49, 0], np.int32), jax.random.key(3)
    batch = batch_of(graph, seeds, (4, 4), edges=model.edge_columns)
    slots = np.r_[seeds[:2], [N] * 5, seeds[2:]].astype(np.int32)  # padding in the middle
    padded = batch_of(graph, slots, (4, 4), edges=model.edge_columns)

    @nnx.jit
    def loss_and_grads(model, batch, key, fill):
        rows = jnp.where((batch.nodes < N)[:, None], gather(x, batch.nodes), fill)

        def loss(model):
            out = model(batch, rows, key=key)
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0))

        return nnx.value_and_grad(loss)(model)

    def run(batch, key=key, fill=0.0):
        return jax.tree.leaves(loss_and_grads(model, batch, key, fill))

    plain = run(batch)
    for other in (run(padded), run(padded, fill=jnp.nan)):
        for a, b in zip(plain, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert not np.allclose(plain[0], run(batch, jax.random.key(4))[0])
    full = dataclasses.replace(batch, overflow=jnp.array(True))
    assert np.isnan(outputs_of(model, full, x)).all()


def test_layers_of_several_kinds():
    graph, rngs = hub_graph(), nnx.Rngs(0)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(N, 6)), jnp.float32)
    layers = [SAGEConv(6, 8, rngs=rngs), GATConv(8, 4, 2, rngs=rngs), GINConv(4, 3, rngs=rngs)]
    model = GNN(layers, norm="layer", activation="elu", rngs=rngs)
    seeds = np.arange(N, dtype=np.int32)
    batch = batch_of(graph, seeds, (-1, -1, -1), relabel_inputs=False)
    want = model(batch, read_inputs(x, batch, model.input_reduce))
    got = exact_inference(model, graph, x)(nnx.state(model), seeds)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert not model.uses_degrees


def test_what_a_stack_refuses():
    rngs, graph = nnx.Rngs(0), hub_graph()
    with pytest.raises(InputError, match="at least one layer"):
        GNN([], rngs=rngs)
    with pytest.raises(InputError, match="5 after 4, layer 1"):
        GNN([SAGEConv(3, 4, rngs=rngs), SAGEConv(5, 4, rngs=rngs)], rngs=rngs)
    older = type("Older", (), {"in_features": 4, "out_features": 4})()
    named = SAGEConv(4, 4, rngs=rngs)
    named.edge_columns = "dist"
    for layer, found in ((older, "None in Older"), (named, "'dist' in SAGEConv")):
        said = f"edge_columns, a tuple of names; got {found}, layer 1. Write edge_columns"
        with pytest.raises(InputError, match=said):
            GNN([SAGEConv(3, 4, rngs=rngs), layer], rngs=rngs)
    for options in ({"activation": "gelu"}, {"attention_dropout": 1.0}):
        with pytest.raises(InputError, match=next(iter(options))):
            GNN([SAGEConv(3, 4, rngs=rngs)], **options, rngs=rngs)
    x = jnp.zeros((N, WIDTHS[0]))
    direct = batch_of(graph, np.arange(4), (2, 2), relabel_inputs=False)
    with pytest.raises(InputError, match="GATConv needs the rows of all input nodes"):
        model_of("gat")(direct, read_inputs(x, direct))
    batch = sample_neighbors(jax.random.key(0), graph, np.arange(4), (2, 2))
    with pytest.raises(InputError, match="with_degrees"):
        model_of("gcn")(batch, gather(x, batch.nodes))


def test_the_command_makes_each_model_with_its_own_options():
    for name, maker in MODELS.items():
        types = Types((6,), hub_graph().schema) if getattr(maker, "typed", False) else None
        own = {"fanouts": (5,)} if name == "mixer" else {}
        if getattr(maker, "timed", False):  # no task without times takes it
            own |= {"task": "links", "temporal": True}
        model = make_model(Config(model=name, **own), 6, 3, False, jax.random.key(0), types)
        assert isinstance(model, GNN)
    model = make_model(Config(model="gatv2", heads=4), 6, 3, True, jax.random.key(0))
    first, last = model.layers
    assert (first.num_heads, first.version, last.num_heads) == (4, 2, 1)
    assert (model.input_dropout, model.attention_dropout) == (0.5, 0.5)
    for given, said in (
        ({"model": "gcn", "reduce": "max"}, "--reduce must be for --model sage or rgcn"),
        ({"heads": 4}, "--heads must be for --model gat or gatv2 or tgat"),
        (
            {"model": "gat", "hidden": 60},
            "a multiple of --heads; got 60 for 8",
        ),
    ):
        with pytest.raises(InputError, match=said):
            make_model(Config(**given), 6, 3, False, jax.random.key(0))
