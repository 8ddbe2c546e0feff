"""Models that see how long ago an edge was: their equations edge by edge, and padding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jgs import Graph, InputError
from jgs.models import RSAGE, TGAT, Mixer, MixerConv, TemporalRSAGE, TGATConv, TimeEncoding
from jgs.sampling import Loader, Neighbors, Seeds
from jgs.train import exact_inference

N, DAY = 40, 86_400
RNG = np.random.default_rng(0)
SRC, DST = RNG.integers(0, N, (2, 400))
TIME = RNG.integers(0, 30, 400) * DAY + (1 << 40)
GRAPH = Graph.from_edges(
    SRC, DST, N, edge_time=TIME, edge_columns={"price": RNG.normal(size=(400, 2))}
)
BOUGHT = (RNG.integers(0, 25, 300), RNG.integers(0, 15, 300))
TYPED = Graph.from_relations(
    {"user": 25, "item": 15},
    {
        ("user", "bought", "item"): BOUGHT,
        ("item", "like", "item"): (BOUGHT[1], BOUGHT[1][::-1]),
    },
    edge_time={("user", "bought", "item"): TIME[:300], ("item", "like", "item"): TIME[100:]},
    node_time={"user": TIME[:25]},
    both_ways=True,
)
X = RNG.normal(size=(N, 5)).astype(np.float32)
CUTOFF = int(np.median(TIME))


def batch_of(nodes, cutoffs, edges, fanouts=(-1,), **options):
    sampler = Neighbors(fanouts, edges=edges, **options)
    seeds = Seeds(nodes, cutoffs)
    graph = TYPED if "type" in edges else GRAPH
    return sampler.sample(jax.random.key(1), graph, sampler.init(graph), seeds, None)


def rows_of(batch, fill=0.0):
    return jnp.asarray(np.vstack([X, np.full_like(X[:1], fill)]))[batch.nodes]


def history(node, cutoff):
    """The edges into a node before the cutoff, in order of time."""
    ids = np.arange(int(GRAPH.indptr[node]), int(GRAPH.indptr[node + 1]))
    ids = ids[np.asarray(GRAPH.edge_time)[ids] < cutoff]
    return np.asarray(GRAPH.indices)[ids], (
        cutoff - np.asarray(GRAPH.edge_time)[ids],
        np.asarray(GRAPH.edge_columns["price"])[ids],
    )


def test_encodings():
    learned, fixed = TimeEncoding(4, unit=10.0), TimeEncoding(9, learned=False)
    t = np.array([0, 3, 50, 1e6], np.float32)
    w = 10.0 ** -(9 * np.arange(4) / 3)
    np.testing.assert_allclose(learned(t), np.cos(t[:, None] / 10 * w), atol=0.02)
    np.testing.assert_allclose(learned(t[:3]), np.cos(t[:3, None] / 10 * w), atol=1e-5)
    w = 3.0 ** (-np.arange(9) / 3)
    np.testing.assert_allclose(fixed(t[:3]), np.cos(t[:3, None] * w), atol=1e-4)
    assert not nnx.state(fixed, nnx.Param)
    for width, unit in ((0, 1.0), (3, 0.0), (3, np.inf)):
        with pytest.raises(InputError):
            TimeEncoding(width, unit=unit)


def dense_tgat(conv, x_own, x, elapsed, price):
    """Section 3.3, for one node and its edges, in float64."""
    value = {
        n: np.asarray(p[...], np.float64)
        for n, p in nnx.state(conv, nnx.Param).items()
        if n != "time"
    }
    heads, width = conv.num_heads, conv.attention_features
    frequency = np.exp(np.asarray(conv.time.log_frequency[...], np.float64))

    def phi(t):
        return np.cos(np.asarray(t, np.float64)[:, None] / conv.time.unit * frequency)

    query = np.r_[x_own, phi([0])[0]] @ value["query_kernel"]
    rows = (
        x @ value["kernel"] + phi(elapsed) @ value["time_kernel"] + price @ value["edge_kernel"]
    )
    keys, values = np.split(rows, 2, axis=1)
    found = np.zeros(width)
    for h in range(heads if len(x) else 0):
        part = slice(h * width // heads, (h + 1) * width // heads)
        scores = keys[:, part] @ query[part] / np.sqrt(width // heads)
        weight = np.exp(scores - scores.max())
        found[part] = weight / weight.sum() @ values[:, part]
    inner = np.maximum(np.r_[found, x_own] @ value["inner_kernel"] + value["inner_bias"], 0)
    return inner @ value["outer_kernel"] + value["outer_bias"]


def dense_mixer(conv, x_own, x, elapsed, price):
    """GraphMixer's section 3, for one node, by the modules of the layer alone."""
    phi = np.asarray(conv.time(jnp.asarray(elapsed, jnp.float32)))
    token = np.hstack([phi, price, x]) @ conv.token_kernel[...] + conv.token_bias[...]
    tokens = np.zeros((conv.num_latest, conv.hidden_features), np.float32)
    latest = token[-conv.num_latest :]
    tokens[conv.num_latest - len(latest) :] = latest
    tokens = jnp.asarray(tokens)
    for mixer in conv.mixers:
        tokens = tokens + mixer.places(mixer.norms[0](tokens).T).T
        tokens = tokens + mixer.units(mixer.norms[1](tokens))
    near = x_own + (x.mean(0) if len(x) else 0)
    both = np.r_[conv.norm(tokens).mean(0), near]
    return both @ conv.out_kernel[...] + conv.out_bias[...]


CONVS = {
    "tgat": (TGATConv(5, 6, 2, attention_features=8, time_width=7, time_unit=DAY,
                      edge_columns=("price",), edge_width=2, rngs=nnx.Rngs(0)), dense_tgat),
    "mixer": (MixerConv(5, 6, 4, hidden_features=8, time_width=7, time_unit=DAY,
                        edge_columns=("price",), edge_width=2, rngs=nnx.Rngs(0)), dense_mixer),
}  # fmt: skip


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("name", CONVS)
def test_layers_are_their_equations(name, kernels, implemented):
    """For many nodes, two cutoffs of one node, one without history, and NaN in padding."""
    implemented(kernels)
    conv, dense = CONVS[name]
    nodes = np.r_[np.arange(12), 3, 3, N]
    cutoffs = np.r_[np.full(12, CUTOFF), CUTOFF + 3 * DAY, 0, 5]
    options = {"latest": True} if name == "mixer" else {}
    batch = batch_of(nodes, cutoffs, conv.edge_columns, (-1,), **options)
    block = batch.blocks[0]
    got = nnx.jit(lambda conv, block, x: conv(block, x, batch.nodes < N))(
        conv, block, rows_of(batch, np.nan)
    )
    for i in range(14):
        source, columns = history(nodes[i], cutoffs[i])
        want = dense(conv, X[nodes[i]], X[source], *columns)
        np.testing.assert_allclose(got[i], want, rtol=2e-4, atol=2e-4)
    assert (np.diff(block.indptr)[:12] > 4).sum() > 5
    assert np.diff(block.indptr)[13] == 0


def test_where_no_edge_is_before_any_seed_planned_batches_have_none():
    """A plan never has room for none: an empty array cannot be indexed."""
    items = {"nodes": np.arange(8), "time": np.full(8, -(10**9))}
    for make, graph in ((MODELS["mixer"], GRAPH), (MODELS["trsage"], TYPED)):
        model = make()
        fanouts = ({"*": 2},) * 2 if graph is TYPED else (2,)
        sampler = Neighbors(fanouts, latest=True, edges=model.edge_columns)
        (batch,) = Loader(graph, items, 8, sampler, key=jax.random.key(0), shuffle=False)
        x = jnp.ones((batch.nodes.size, 5))
        assert np.isfinite(model(batch, x)).all()
        assert int(batch.blocks[0].num_edges) == 0


def typed(kind, layers, **options):
    return kind((5, 5), 8, 3, layers, schema=TYPED.schema, **options, rngs=nnx.Rngs(1))


MODELS = {
    "trsage": lambda: typed(TemporalRSAGE, 2, time_width=6, time_unit=DAY),
    "tgat": lambda: TGAT(5, 8, 3, 2, time_width=6, time_unit=DAY, rngs=nnx.Rngs(1)),
    "mixer": lambda: Mixer(
        5, 8, 3, num_latest=4, time_width=6, time_unit=DAY, rngs=nnx.Rngs(1)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_neither_outputs_nor_gradients(name):
    model = MODELS[name]()
    typed = "type" in model.edge_columns
    fanouts = ({"*": 4}, {"*": 3}) if typed else (4, 3)[: len(model.layers)]

    @nnx.jit
    def slopes(model, batch, x):
        def loss(model, x):
            out = model(batch, x, key=jax.random.key(2))
            return jnp.sum(jnp.where(batch.seed_mask[:, None], out**2, 0))

        return nnx.grad(loss, argnums=(0, 1))(model, x)

    found = []
    for padding, fill in ((0, 0.0), (6, np.nan)):
        nodes, cutoffs = (
            [3, 9, 3, *[N] * padding],
            [CUTOFF, CUTOFF, CUTOFF + DAY, *[7] * padding],
        )
        batch = batch_of(nodes, cutoffs, model.edge_columns, fanouts, latest=True)

        def filled(block):
            real = jnp.arange(block.edge_capacity) < block.num_edges
            elapsed = jnp.where(real, block.edge_columns["elapsed"], jnp.nan)
            return replace(block, edge_columns=block.edge_columns | {"elapsed": elapsed})

        if padding:
            batch = replace(batch, blocks=tuple(map(filled, batch.blocks)))
        of_model, of_x = slopes(model, batch, rows_of(batch, fill))
        found.append((of_model, of_x[: int(batch.blocks[0].num_sources)]))
    first, second = map(jax.tree.leaves, found)
    assert all(np.abs(a).max() > 0 for a in first[:3])
    for a, b in zip(first[:-1], second[:-1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_no_whole_graph_is_refused():
    model = MODELS["tgat"]()
    x = jnp.asarray(X)
    with pytest.raises(InputError, match="of samples, for seeds that have cutoffs"):
        exact_inference(model, GRAPH, x)(nnx.state(model), np.arange(5))
    batch = Neighbors((2, 2)).sample(jax.random.key(0), GRAPH, (), [1, 2], None)
    with pytest.raises(InputError, match="must have the edge column 'elapsed'"):
        model(batch, rows_of(batch))
    with pytest.raises(InputError, match="one layer"):
        Mixer(5, 8, 3, 2, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="multiple of num_heads"):
        TGATConv(5, 9, 2, rngs=nnx.Rngs(0))


def test_a_typed_model_sees_how_old_an_edge_is():
    """Of the same neighbours three days later R-SAGE says the same, and a temporal one does
    not."""
    items = np.arange(25, 40)
    late = int(TIME.max()) + 1
    cutoffs = np.repeat([late, late + 3 * DAY], 15)
    for kind, options in ((RSAGE, {}), (TemporalRSAGE, {"time_unit": DAY, "time_width": 6})):
        model = typed(kind, 1, **options)
        batch = batch_of(
            np.tile(items, 2), cutoffs, ("type", "elapsed"), ({"*": -1},), latest=True
        )
        block = batch.blocks[0]
        assert (np.diff(block.indptr)[:30] > 0).all()
        now, then = np.split(np.asarray(model(batch, rows_of(batch))), 2)
        if kind is RSAGE:
            np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-5)
        else:
            assert (np.abs(now - then).max(1) > 1e-3).all()


def test_a_typed_model_learns_the_age_of_an_edge():
    """Whether an item was bought within the last five days, for cutoffs of any day."""
    model = typed(TemporalRSAGE, 1, time_unit=DAY, time_width=8, dropout=0.0)
    optimizer = nnx.Optimizer(model, optax.adam(0.02), wrt=nnx.Param)
    seeds = np.tile(np.arange(25, 40), 20)
    cutoffs = np.repeat(np.arange(20) * DAY * 2 + int(TIME.min()) + DAY, 15)
    batch = batch_of(seeds, cutoffs, model.edge_columns, ({"bought": 1},), latest=True)
    block = batch.blocks[0]
    held = np.diff(block.indptr)[:300] > 0
    elapsed = np.asarray(block.edge_columns["elapsed"])[np.asarray(block.indptr)[:300] * held]
    label = jnp.asarray(held & (elapsed < 5 * DAY), jnp.int32)
    assert 0.2 < float(label.mean()) < 0.8
    x = jnp.zeros_like(rows_of(batch))

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            out = model(batch, x)[:300]
            return optax.softmax_cross_entropy_with_integer_labels(out, label).mean()

        value, slopes = nnx.value_and_grad(loss)(model)
        optimizer.update(model, slopes)
        return value

    for _ in range(300):
        step(model, optimizer)
    right = np.argmax(model(batch, x)[:300], 1) == np.asarray(label)
    assert right.mean() > 0.95, right.mean()


@pytest.mark.parametrize("name", ["tgat", "trsage"])
def test_a_masked_layer_is_the_layer(name):
    """Explanations: masks of ones change nothing."""
    model = MODELS[name]()
    fanouts = (4, 3) if name == "tgat" else ({"*": 4}, {"*": 3})
    batch = batch_of([3, 9], [CUTOFF] * 2, model.edge_columns, fanouts)
    x = rows_of(batch)
    masks = [jnp.ones(block.edge_capacity) for block in batch.blocks]
    np.testing.assert_allclose(
        model.masked(batch, x, masks), model(batch, x), rtol=1e-5, atol=1e-5
    )
