"""Every model of the table, what any stack of layers promises, what samplers observe of it."""

import dataclasses
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from flax import nnx
from modules import module
from refusals import refused

import jgs
from jgs import kernels
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import Control
from jgs.models import (
    DGCNN,
    GAT,
    GCN,
    GIN,
    GNN,
    MODELS,
    GATConv,
    GINConv,
    GraphSAGE,
    RelGT,
    SAGEConv,
    read_inputs,
)
from jgs.models.dgcnn import sort_pool
from jgs.ops import aggregate, gather, gather_aggregate
from jgs.sampling import Capacity, Seal, sample_neighbors
from jgs.train import exact_inference
from jgs.train.config import Config
from jgs.train.loop.model import Types, make_model

N, WIDTHS = 50, (6, 8, 3)
X = np.random.default_rng(1).normal(size=(N, WIDTHS[0])).astype(np.float32)
NORMS = {"sage": "layer", "gcn": "l2", "hgt": "layer"}
# The others: test_temporal_models.py, test_relgt.py and test_cells.py.
SAMPLED = "timed", "contextual"
WHOLE = [n for n, maker in MODELS.items() if not any(getattr(maker, a, False) for a in SAMPLED)]


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
        contextual = getattr(maker, "contextual", False)
        own |= {"sampler": "context"} if contextual else {}
        assert isinstance(made(types, model=name, **own), RelGT if contextual else GNN)
    model = made(sparse=True, model="gatv2", heads=4)
    first, last = model.layers
    assert (first.num_heads, first.version, last.num_heads) == (4, 2, 1)
    assert (model.input_dropout, model.attention_dropout) == (0.5, 0.5)
    refused("--reduce must be for --model sage or rgcn", made, model="gcn", reduce="max")
    refused("--heads must be for --model gat or gatv2 or tgat", made, heads=4)
    refused("a multiple of --heads; got 60 for 8", made, model="gat", hidden=60)


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


DROP_KEY = jax.random.key(1)


def test_sort_pool_by_its_definition():
    h = np.random.default_rng(0).normal(size=(13, 3)).astype(np.float32)
    groups = np.array([0, 4, 4, 9, 11], np.int32)  # two rows of padding follow
    found = np.asarray(jax.jit(sort_pool, static_argnums=2)(h, groups, 4))
    for b, (first, last) in enumerate([(0, 4), (4, 4), (4, 9), (9, 11)]):
        mine = h[first:last]
        want = np.zeros((4, 3), np.float32)
        best = mine[np.argsort(-mine[:, 2])][:4]
        want[: len(best)] = best
        np.testing.assert_array_equal(found[b], want)


def test_padding_and_the_other_pairs_change_nothing(make_graph):
    graph, sampler = make_graph(60, 300), Seal((-1,))
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 60, (6, 2)).astype(np.int32)
    padded = [np.full((9, 2), 60, np.int32) for _ in range(2)]
    places = np.arange(6), np.array([1, 2, 4, 5, 7, 8])
    for one, place in zip(padded, places, strict=True):
        one[place] = pairs
    model = module(lambda rngs: DGCNN(3, 12, hidden=8, rngs=rngs))
    features = rng.normal(size=(61, 3)).astype(np.float32)
    features[60] = np.nan  # the row that padding reads
    state, program = sampler.init(graph), jax.jit(sampler.sample, static_argnums=4)

    @nnx.jit
    def slopes_of(model, batch):
        def total(model):
            logits = model(batch, jnp.asarray(features)[batch.nodes], key=DROP_KEY)
            return jnp.sum(jnp.where(batch.seed_mask, jnp.sin(logits[:, 0]), 0)), logits

        of_model = nnx.value_and_grad(total, has_aux=True)(model)
        return *of_model, model(batch, jnp.asarray(features)[batch.nodes])

    found, rooms = [], (((200, 2000), (300, 300)), ((300, 3000), (400, 400)))
    for pairs, room in zip(padded, rooms, strict=True):
        with kernels.this_host_only():
            batch = program(DROP_KEY, graph, state, pairs, Capacity(*room))
        found.append(jax.device_get(slopes_of(model, batch)))
    ((_, some), slopes, kept), ((_, more), others, _) = found
    assert some.shape == (9, 1)
    np.testing.assert_allclose(more[places[1]], some[:6], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(jax.tree.leaves(slopes), jax.tree.leaves(others), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-6)
        assert np.abs(mine).max() > 0
    # Dropout depends on the pair and not on its place, with a key and without one.
    assert (kept[:6] != some[:6]).any()
    full = replace(batch, overflow=jnp.array(True))
    assert np.isnan(slopes_of(model, full)[-1]).all()
    refused("3 features", model, batch)
    refused("of pairs", model, sample_neighbors(DROP_KEY, graph, pairs[:, 0], (2,)), features)


@cases("wrong", {"pool_rows": 9}, {"in_features": -1}, {"dropout": 1.0}, {"hidden": 0})
def test_what_is_refused(wrong):
    options, (name,) = {"in_features": 0, "pool_rows": 10} | wrong, wrong
    refused(name, module, lambda rngs: DGCNN(**options, rngs=rngs))
