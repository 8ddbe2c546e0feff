"""Layers: their equations in NumPy, padding, derivatives."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from blocks import whole_batch
from cases import cases
from flax import nnx
from modules import arrays_of, assert_slopes, exact, module
from refusals import refused

from jgs import Graph, ops
from jgs.models import GCN, ConcatConv, GATConv, GCNConv, GINConv, GINEConv, SAGEConv
from jgs.sampling import sample_neighbors

NUM_NODES, ISOLATED, PADDING = 24, 5, 6
DIST = {"edge_columns": ("dist", "kind"), "edge_width": 3}


def counts(graph):
    """`[N, N]`: the number of edges into each node (row) from each."""
    src, dst = graph.edge_index()
    found = np.zeros((graph.num_nodes,) * 2)
    np.add.at(found, (dst, src), 1)
    return found


def gcn(conv, graph, x):
    """The normalised adjacency with self-loops."""
    adjacency = counts(graph) + np.eye(len(x))
    scale = 1 / np.sqrt(adjacency.sum(1))
    return scale[:, None] * adjacency * scale @ x @ exact(conv.kernel) + exact(conv.bias)


def concat(conv, graph, x):
    adjacency = counts(graph)
    mean = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    own, other = x @ exact(conv.self_kernel), mean @ x @ exact(conv.neighbor_kernel)
    return np.concatenate([own, other], axis=1) + exact(conv.bias)


def sage(conv, graph, x):
    (src, dst), reduced = graph.edge_index(), np.zeros(x.shape)
    for v in np.unique(dst):
        reduced[v] = getattr(x[src[dst == v]], conv.reduce)(0)
    own, other = x @ exact(conv.self_kernel), reduced @ exact(conv.neighbor_kernel)
    return own + other + exact(conv.bias)


def gin(conv, graph, x):
    """An MLP of the sum."""
    return mlp(conv, counts(graph) @ x, x)


def mlp(conv, total, x):
    eps = exact(conv.eps) if isinstance(conv.eps, nnx.Param) else conv.eps
    hidden = (total + (1 + eps) * x) @ exact(conv.hidden_kernel) + exact(conv.hidden_bias)
    return np.maximum(hidden, 0) @ exact(conv.kernel) + exact(conv.bias)


def of_edges(graph):
    return np.hstack([graph.edge_columns["dist"], graph.edge_columns["kind"][:, None]])


def gine(conv, graph, x):
    """The edges are added before the ReLU."""
    (src, dst), total = graph.edge_index(), np.zeros(x.shape)
    messages = x[src] + of_edges(graph) @ exact(conv.edge_kernel) + exact(conv.edge_bias)
    np.add.at(total, dst, np.maximum(messages, 0))
    return mlp(conv, total, x)


def gat(conv, graph, x):
    """One target and head at a time. A self-loop has no edge features."""
    heads, (src, dst) = conv.num_heads, graph.edge_index()
    values = (x @ exact(conv.kernel)).reshape(len(x), heads, -1)
    edges = np.zeros((len(src), *values.shape[1:]))
    if conv.edge_columns:
        edges = (of_edges(graph) @ exact(conv.edge_kernel)).reshape(edges.shape)
    leaky = lambda a: np.where(a > 0, a, 0.2 * a)  # noqa: E731
    if conv.version == 2:
        queries = (x @ exact(conv.target_kernel)).reshape(values.shape)
    out = np.zeros(values.shape)
    for v in range(len(x)):
        own = [v] if conv.self_loops else []
        sources = np.r_[src[dst == v], own].astype(int)
        of_edge = np.concatenate([edges[dst == v], np.zeros((len(own), *values.shape[1:]))])
        for h in range(heads if len(sources) else 0):
            source, edge = values[sources, h], of_edge[:, h]
            if conv.version == 2:
                logits = leaky(source + queries[v, h] + edge) @ exact(conv.attention)[h]
            else:
                logits = source @ exact(conv.source_attention)[h]
                logits += values[v, h] @ exact(conv.target_attention)[h]
                if conv.edge_columns:
                    logits += edge @ exact(conv.edge_attention)[h]
                logits = leaky(logits)
            weights = np.exp(logits - logits.max())
            out[v, h] = weights / weights.sum() @ source
    out = out.reshape(len(x), -1) if conv.concat else out.mean(1)
    return out + exact(conv.bias)


def of(kind, *sizes, **options):
    return lambda rngs: kind(7, *sizes, **options, rngs=rngs)


# Widths with which layers project before they aggregate, and widths with which they do not.
CONVS = {
    "sage-mean-narrows": (of(SAGEConv, 4), sage),
    "sage-sum": (of(SAGEConv, 9, reduce="sum"), sage),
    "sage-max": (of(SAGEConv, 9, reduce="max"), sage),
    "gcn-narrows": (of(GCNConv, 4), gcn),
    "gcn-widens": (of(GCNConv, 9), gcn),
    "concat-narrows": (of(ConcatConv, 5), concat),
    "concat-widens": (of(ConcatConv, 16), concat),
    "gin": (of(GINConv, 4, 9, eps=0.5), gin),
    "gin-eps-narrows": (of(GINConv, 9, 4, train_eps=True), gin),
    "gine": (of(GINEConv, 4, 9, train_eps=True, **DIST), gine),
    "gat1": (of(GATConv, 12, 3), gat),
    "gat1-mean": (of(GATConv, 4, 3, concat=False, self_loops=False), gat),
    "gat1-edges": (of(GATConv, 12, 3, **DIST), gat),
    "gat2-edges": (of(GATConv, 12, 3, version=2, **DIST), gat),
    "gat2-mean": (of(GATConv, 4, 2, version=2, concat=False), gat),
}


@pytest.fixture(scope="module")
def graph():
    """It has edge columns of two numbers and of one. One node has no edges."""
    network = networkx.gnm_random_graph(NUM_NODES, 60, seed=1)
    network.remove_edges_from(list(network.edges(ISOLATED)))
    plain, rng = Graph.from_networkx(network.to_directed()), np.random.default_rng(8)
    columns = {
        "dist": rng.normal(size=(plain.num_edges, 2)).astype(np.float32),
        "kind": rng.integers(1, 4, plain.num_edges),
    }
    return Graph(plain.indptr, plain.indices, edge_columns=columns)


def features(width=7):
    rows = np.random.default_rng(0).standard_normal((NUM_NODES, width))
    return rows.astype(np.float32)


def rows_of(x, nodes, fill=0.0):
    return np.vstack([x, np.full_like(x[:1], fill)])[nodes]


@pytest.mark.parametrize("name", CONVS)
def test_a_layer_is_its_equation(name, graph):
    """In any order of the targets. What padding holds changes no output and no gradient."""
    make, equation = CONVS[name]
    conv, order = module(make), np.random.default_rng(7).permutation(NUM_NODES)
    batch = whole_batch(graph, padding=PADDING, order=order)
    nodes, block, degree = np.asarray(batch.nodes), batch.blocks[0], batch.degrees
    real, scale = nodes < NUM_NODES, np.sin(np.arange(nodes.size * conv.out_features))
    scale = scale.reshape(nodes.size, -1).astype(np.float32)

    @nnx.jit
    def run(conv, x):
        mask = ops.dropout_mask(np.uint32([1, 2]), nodes, 1, 0.5)
        keep = mask.keep(conv.out_features)

        def loss(conv, x):
            masked, bare = conv(block, x, real, degree=degree), conv(block, x, degree=degree)
            relu = partial(conv, block, x, real, degree=degree, relu=True)
            after = relu(), relu(drop=mask)
            total = sum(jnp.sum(scale * rows[: nodes.size] ** 2) for rows in (masked, bare))
            return total, (masked, bare, *after)

        return nnx.value_and_grad(loss, argnums=(0, 1), has_aux=True)(conv, x), keep

    filled = (rows_of(features(), nodes, fill) for fill in (0, np.nan, np.inf))
    result, *others = (jax.device_get(run(conv, x)) for x in filled)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, result, other)
    ((_, (masked, bare, rectified, dropped)), (grads, grad_x)), keep = result
    want = equation(conv, graph, np.float64(features()))[order]
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(masked[:NUM_NODES], want, **close)
    np.testing.assert_allclose(bare[:NUM_NODES], want, **close)
    np.testing.assert_allclose(rectified[:NUM_NODES], np.maximum(want, 0), **close)
    np.testing.assert_array_equal(dropped, np.where(keep[: len(dropped)], 2 * rectified, 0))
    assert not grad_x[~real].any()
    # The isolated node is among them; its rows of edges are empty.
    assert np.isfinite(grad_x).all()
    for leaf in jax.tree.leaves(grads):
        assert np.isfinite(leaf).all()
        assert np.abs(leaf).max() > 0
    assert ("eps" in nnx.state(grads)) == isinstance(getattr(conv, "eps", 0), nnx.Param)


@pytest.mark.parametrize("name", CONVS)
def test_derivatives_are_the_slopes_of_the_equation(name, graph):
    make, equation = CONVS[name]
    conv, batch, x = module(make), whole_batch(graph), features()

    def loss(rows):
        return (np.sin(np.arange(rows.size)).reshape(rows.shape) * rows**2).sum()

    def of_layer(conv, x):
        return loss(conv(batch.blocks[0], x, degree=batch.degrees))

    def of_equation(operands):
        params, x = operands
        return loss(equation(SimpleNamespace(**{**vars(conv), **params}), graph, x))

    grads, grad_x = nnx.jit(nnx.grad(of_layer, argnums=(0, 1)))(conv, x)
    operands = arrays_of(nnx.state(conv)), np.float64(x)
    assert_slopes(of_equation, operands, (nnx.to_pure_dict(grads), grad_x))


def test_gcn_with_concatenation(graph):
    """A row lies beside its neighbours' mean; the last layer adds them."""
    model = module(lambda rngs: GCN(7, 5, 3, 3, concat=True, dropout=0.0, rngs=rngs))
    assert not model.uses_degrees
    want = np.float64(features())
    for layer in model.layers[:-1]:
        want = np.maximum(concat(layer, graph, want), 0)
    adjacency, last = counts(graph), model.layers[-1]
    mean = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    kernels = exact(last.self_kernel), exact(last.neighbor_kernel)
    want = want @ kernels[0] + mean @ want @ kernels[1] + exact(last.bias)
    got = nnx.jit(lambda model, *of: model(*of))(model, whole_batch(graph, 3), features())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_gcn_over_drawn_neighbours_estimates_the_sum_over_all(graph):
    conv = module(CONVS["gcn-narrows"][0])
    rounds, seeds = 4000, jnp.arange(NUM_NODES, dtype=jnp.int32)
    x = np.vstack([features(), np.zeros((1, 7), np.float32)])
    degrees = np.r_[np.diff(graph.indptr), 0].astype(np.int32)

    def one(key):
        batch = sample_neighbors(key, graph, seeds, (2,))
        rows, degree = (jnp.asarray(a)[batch.nodes] for a in (x, degrees))
        return conv(batch.blocks[0], rows, degree=degree)

    @jax.jit
    def run(key):
        drawn = jax.lax.map(one, jax.random.split(key, rounds))
        return drawn.mean(0), drawn.std(0)

    mean, standard = (np.asarray(a) for a in run(jax.random.key(2)))
    error, standard = np.abs(mean - gcn(conv, graph, x[:-1])), standard / np.sqrt(rounds)
    assert (standard > 1e-4).mean() > 0.5  # the samples do estimate
    assert (error <= 5 * standard + 1e-5).all(), f"{(error / (standard + 1e-9)).max()} sigma"


@pytest.mark.parametrize("version", [1, 2])
def test_attention_dropout_belongs_to_the_two_nodes_of_an_edge(graph, version):
    conv = module(lambda rngs: GATConv(7, 12, 3, version=version, rngs=rngs))
    rate, order = 0.5, np.random.default_rng(7).permutation(NUM_NODES)

    @jax.jit
    def run(batch, x, key):
        mask, block = ops.dropout_mask(key, batch.nodes, 2, rate), batch.blocks[0]
        out = conv(block, x, batch.nodes < NUM_NODES, attention_drop=mask)
        return out, ops.edge_mask(block, mask).keep(64)

    def outputs(order, key):
        batch = whole_batch(graph, padding=PADDING, order=order)
        out, keep = run(batch, rows_of(features(), batch.nodes), np.uint32([0, key]))
        return np.asarray(out)[:NUM_NODES], np.asarray(keep)[: graph.num_edges]

    out, keep = outputs(None, 4)
    np.testing.assert_allclose(outputs(order, 4)[0], out[order], rtol=1e-5, atol=1e-5)
    assert np.abs(outputs(None, 5)[0] - out).max() > 0.1
    # Edges, their reverses and heads are each dropped by themselves.
    assert abs(keep.mean() - (1 - rate)) < 5 * 0.5 / np.sqrt(keep.size)
    correlation = np.corrcoef(keep)[np.triu_indices(len(keep), 1)]
    assert np.abs(correlation).max() < 6 / np.sqrt(64)
    assert abs(correlation.mean()) < 0.01


@cases(
    "make, said",
    (lambda rngs: GCNConv(0, 3, rngs=rngs), "in_features must"),
    (lambda rngs: ConcatConv(3, 1, rngs=rngs), "out_features must"),
    (lambda rngs: GINConv(3, 3, 0, rngs=rngs), "hidden_features must"),
    (lambda rngs: GINEConv(3, 3, edge_columns=(), edge_width=1, rngs=rngs), "edge_width"),
    (lambda rngs: GINEConv(3, 3, edge_columns="a", edge_width=1, rngs=rngs), "a tuple of"),
    (lambda rngs: GATConv(3, 3, 0, rngs=rngs), "num_heads must"),
    (lambda rngs: GATConv(3, 3, 2, rngs=rngs), "multiple of num_heads"),
    (lambda rngs: GATConv(3, 3, edge_columns=("a",), rngs=rngs), "edge_width must"),
    (lambda rngs: GATConv(3, 3, edge_width=2, rngs=rngs), "edge_width must"),
    (lambda rngs: GATConv(3, 4, 2, version=3, rngs=rngs), "version must be 1 or 2"),
)
def test_refuses_other_sizes(make, said):
    refused(said, module, make)


def test_refuses_another_width_and_missing_degrees(graph):
    batch, x = whole_batch(graph), features()
    block = batch.blocks[0]
    said, narrow = "x must be [S, 7], with the layer's input features", features(6)
    for make, _ in CONVS.values():
        refused(said, module(make), block, narrow, degree=batch.degrees)
    conv = module(CONVS["gcn-narrows"][0])
    refused("with_degrees", conv, block, x)
    refused("one number for each", conv, block, x, degree=np.ones(3))
