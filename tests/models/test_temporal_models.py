"""Models that see how long ago an edge was: their equations edge by edge, and padding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import rarely
from flax import nnx
from modules import exact, module
from refusals import refused

from jgs import Graph, kernels
from jgs.models import TGAT, Mixer, MixerConv, TemporalRSAGE, TGATConv, TimeEncoding
from jgs.sampling import Loader, Neighbors, Seeds
from jgs.train import exact_inference

N, DAY = 40, 86_400
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, 400))
TIME = RNG.integers(0, 30, 400) * DAY + (1 << 40)
PRICES = {"price": RNG.normal(size=(400, 2))}
GRAPH = Graph.from_edges(SRC, DST, N, edge_time=TIME, edge_columns=PRICES)
USERS, ITEMS = RNG.integers(0, 25, 300), RNG.integers(0, 15, 300)
BOUGHT, LIKE = ("user", "bought", "item"), ("item", "like", "item")
TYPED = Graph.from_relations(
    {"user": 25, "item": 15},
    {BOUGHT: (USERS, ITEMS), LIKE: (ITEMS, ITEMS[::-1])},
    edge_time={BOUGHT: TIME[:300], LIKE: TIME[100:]},
    node_time={"user": TIME[:25]},
    both_ways=True,
)
X = RNG.normal(size=(N, 5)).astype(np.float32)
CUTOFF = int(np.median(TIME))


def batch_of(nodes, cutoffs, edges, fanouts=(-1,), **options):
    sampler = Neighbors(fanouts, edges=edges, **options)
    graph = TYPED if "type" in edges else GRAPH
    seeds = Seeds(nodes, cutoffs)
    return sampler.sample(jax.random.key(1), graph, sampler.init(graph), seeds, None)


def rows_of(batch, fill=0.0):
    return np.vstack([X, np.full_like(X[:1], fill)])[batch.nodes]


@nnx.jit
def run(model, batch, x):
    return model(batch, x)


def history(node, cutoff):
    """The edges into a node before the cutoff, in order of time."""
    ids = np.arange(int(GRAPH.indptr[node]), int(GRAPH.indptr[node + 1]))
    ids = ids[np.asarray(GRAPH.edge_time)[ids] < cutoff]
    elapsed = cutoff - np.asarray(GRAPH.edge_time)[ids]
    return np.asarray(GRAPH.indices)[ids], elapsed, np.asarray(GRAPH.edge_columns["price"])[ids]


def test_encodings():
    learned, fixed = TimeEncoding(4, unit=10.0), TimeEncoding(9, learned=False)
    t = np.array([0, 3, 50, 1e6], np.float32)
    w = 10.0 ** -(9 * np.arange(4) / 3)
    np.testing.assert_allclose(learned(t), np.cos(t[:, None] / 10 * w), atol=0.02)
    np.testing.assert_allclose(learned(t[:3]), np.cos(t[:3, None] / 10 * w), atol=1e-5)
    w = 3.0 ** (-np.arange(9) / 3)
    np.testing.assert_allclose(fixed(t[:3]), np.cos(t[:3, None] * w), atol=1e-4)
    assert not nnx.state(fixed, nnx.Param)
    for width, unit, said in ((0, 1.0, "width"), (3, 0.0, "above 0"), (3, np.inf, "above 0")):
        refused(said, TimeEncoding, width, unit=unit)


def test_what_was_always_there_has_no_age():
    """Its time is the least int64: a cosine of that would be noise, and its derivative huge."""
    long_ago = np.full(3, np.iinfo(np.int64).min)
    graph = Graph.from_edges([1, 2, 3], [0, 0, 0], 4, edge_time=[5, *long_ago[:2]])
    sampler = Neighbors((-1,), edges=("elapsed",))
    for cutoff in (-7, 9):
        seeds = Seeds(np.zeros(1, int), np.full(1, cutoff))
        block = sampler.sample(jax.random.key(1), graph, (), seeds, None).block(0)
        found = np.asarray(block.edge_columns["elapsed"])[: int(block.num_edges)].tolist()
        assert sorted(found) == [4.0] * (cutoff > 5) + [2.0**63] * 2
    ages, learned = jnp.array([4.0, 2.0**63]), TimeEncoding(4)
    for encode in (learned, TimeEncoding(4, learned=False)):
        assert np.asarray(encode(ages)).any(axis=1).tolist() == [True, False]
    slopes = nnx.grad(lambda encode: encode(ages).sum())(learned)
    assert all(abs(np.asarray(each)).max() < 10 for each in jax.tree.leaves(slopes))


def dense_tgat(conv, x_own, x, elapsed, price):
    """Section 3.3, for one node and its edges, in float64."""
    heads, width = conv.num_heads, conv.attention_features

    def phi(t):
        scaled = np.asarray(t, np.float64)[:, None] / conv.time.unit
        return np.cos(scaled * np.exp(exact(conv.time.log_frequency)) + exact(conv.time.phase))

    query = np.r_[x_own, phi([0])[0]] @ exact(conv.query_kernel)
    rows = x @ exact(conv.kernel) + phi(elapsed) @ exact(conv.time_kernel)
    keys, values = np.split(rows + price @ exact(conv.edge_kernel), 2, axis=1)
    found = np.zeros(width)
    for h in range(heads if len(x) else 0):
        part = slice(h * width // heads, (h + 1) * width // heads)
        scores = keys[:, part] @ query[part] / np.sqrt(width // heads)
        weight = np.exp(scores - scores.max())
        found[part] = weight / weight.sum() @ values[:, part]
    inner = np.r_[found, x_own] @ exact(conv.inner_kernel) + exact(conv.inner_bias)
    return np.maximum(inner, 0) @ exact(conv.outer_kernel) + exact(conv.outer_bias)


def dense_mixer(conv, x_own, x, elapsed, price):
    """GraphMixer's section 3, for one node, by the modules of the layer alone."""
    token = np.hstack([conv.time(elapsed.astype(np.float32)), price, x])
    token = (token @ exact(conv.token_kernel) + exact(conv.token_bias))[-conv.num_latest :]
    tokens = np.zeros((conv.num_latest, conv.hidden_features), np.float32)
    tokens[conv.num_latest - len(token) :] = token
    mixed = _mix(conv, tokens)
    both = np.r_[mixed, x_own + (x.mean(0) if len(x) else 0)]
    return both @ exact(conv.out_kernel) + exact(conv.out_bias)


@nnx.jit
def _mix(conv, tokens):
    for mixer in conv.mixers:
        tokens = tokens + mixer.places(mixer.norms[0](tokens).T).T
        tokens = tokens + mixer.units(mixer.norms[1](tokens))
    return conv.norm(tokens).mean(0)


EDGES = {"time_width": 7, "time_unit": DAY, "edge_columns": ("price",), "edge_width": 2}
CONVS = {
    "tgat": (TGATConv, {"num_heads": 2, "attention_features": 8}, dense_tgat),
    "mixer": (MixerConv, {"num_latest": 4, "hidden_features": 8}, dense_mixer),
}


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", CONVS)
def test_layers_are_their_equations(name, plain):
    """For many nodes, two cutoffs of one node, one without history, and NaN in padding."""
    kind, own, dense = CONVS[name]
    conv = module(lambda rngs: kind(5, 6, **own, **EDGES, rngs=rngs))
    nodes = np.r_[np.arange(12), 3, 3, N]
    cutoffs = np.r_[np.full(12, CUTOFF), CUTOFF + 3 * DAY, 0, 5]
    batch = batch_of(nodes, cutoffs, conv.edge_columns, latest=name == "mixer")
    block, x = batch.blocks[0], rows_of(batch, np.nan)
    with kernels.plain(plain):
        layer = nnx.jit(lambda conv, block, x, nodes: conv(block, x, nodes < N))
        got = np.asarray(layer(conv, block, x, batch.nodes))
    for i in range(14):
        source, *columns = history(nodes[i], cutoffs[i])
        want = dense(conv, X[nodes[i]], X[source], *columns)
        np.testing.assert_allclose(got[i], want, rtol=2e-4, atol=2e-4)
    assert (np.diff(block.indptr)[:12] > 4).sum() > 5
    assert np.diff(block.indptr)[13] == 0


def typed(kind, layers, **options):
    return lambda rngs: kind((5, 5), 8, 3, layers, schema=TYPED.schema, **options, rngs=rngs)


TIMES = {"time_width": 6, "time_unit": DAY}
MODELS = {
    "trsage": typed(TemporalRSAGE, 2, **TIMES),
    "tgat": lambda rngs: TGAT(5, 8, 3, 2, **TIMES, rngs=rngs),
    "mixer": lambda rngs: Mixer(5, 8, 3, num_latest=4, **TIMES, rngs=rngs),
}


@pytest.mark.parametrize(("name", "graph"), [("mixer", GRAPH), ("trsage", TYPED)])
def test_where_no_edge_is_before_any_seed_planned_batches_have_none(name, graph):
    """A plan never has room for none: an empty array cannot be indexed."""
    items = {"nodes": np.arange(8), "time": np.full(8, -(10**9))}
    model = module(MODELS[name])
    fanouts = ({"*": 2},) * 2 if graph is TYPED else (2,)
    sampler = Neighbors(fanouts, latest=True, edges=model.edge_columns)
    (batch,) = Loader(graph, items, 8, sampler, key=jax.random.key(0), shuffle=False)
    x = np.ones((batch.nodes.size, 5), np.float32)
    assert np.isfinite(run(model, batch, x)).all()
    assert int(batch.blocks[0].num_edges) == 0


@pytest.mark.parametrize("name", rarely(MODELS, 1))
def test_padding_changes_neither_outputs_nor_gradients(name):
    """And masks of ones, by which explanations are made, change nothing."""
    model = module(MODELS[name])
    fanouts = ({"*": 4}, {"*": 3}) if name == "trsage" else (4, 3)[: len(model.layers)]

    @nnx.jit
    def slopes(model, batch, x):
        def loss(model, x):
            out = model(batch, x, key=np.uint32([0, 2]))
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0))

        return nnx.grad(loss, argnums=(0, 1))(model, x)

    found, late = [], CUTOFF + DAY
    # The seeds are followed by padding, and mixed with it.
    for nodes, cutoffs, fill in (
        ([3, 9, 3, N, N, N], [CUTOFF, CUTOFF, late, 7, 7, 7], 0.0),
        ([N, 3, 9, N, N, 3], [7, CUTOFF, CUTOFF, 7, 7, late], np.nan),
    ):
        batch = batch_of(nodes, cutoffs, model.edge_columns, fanouts, latest=True)

        def filled(block, fill=fill):
            real = np.arange(block.edge_capacity) < int(block.num_edges)
            elapsed = np.where(real, block.edge_columns["elapsed"], fill)
            columns = block.edge_columns | {"elapsed": jnp.asarray(elapsed, jnp.float32)}
            return replace(block, edge_columns=columns)

        batch = replace(batch, blocks=tuple(map(filled, batch.blocks)))
        of_model, of_x = jax.device_get(slopes(model, batch, rows_of(batch, fill)))
        of_nodes = np.zeros((N + 1, 5))
        np.add.at(of_nodes, batch.nodes, of_x)
        assert not of_nodes[N].any()
        found.append([*jax.tree.leaves(of_model), of_nodes])
    assert all(np.abs(a).max() > 0 for a in found[0][:3])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    if name != "mixer":
        masks = [np.ones(block.edge_capacity, np.float32) for block in batch.blocks]
        masked = nnx.jit(lambda model, *of: model.masked(*of))
        x = rows_of(batch)
        got = masked(model, batch, x, masks)
        np.testing.assert_allclose(got, run(model, batch, x), rtol=1e-5, atol=1e-5)


def test_what_is_no_whole_graph_is_refused():
    model = module(MODELS["tgat"])
    refused("for seeds that have cutoffs", exact_inference, model, GRAPH, jnp.asarray(X))
    batch = Neighbors((2, 2)).sample(jax.random.key(0), GRAPH, (), [1, 2], None)
    refused("must have the edge column 'elapsed'", jax.eval_shape, model, batch, rows_of(batch))
    refused("one layer", module, lambda rngs: Mixer(5, 8, 3, 2, rngs=rngs))
    refused("multiple of num_heads", module, lambda rngs: TGATConv(5, 9, 2, rngs=rngs))
