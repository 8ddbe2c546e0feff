"""The layers beside SAGEConv: their contract, dense references, padding, derivatives."""

import dataclasses

import jax
import jax.numpy as jnp
import networkx
import numpy as np
import pytest
from columns import with_columns
from flax import nnx

from jgs import Graph, InputError, ops
from jgs.models import GCN, ConcatConv, GATConv, GCNConv, GINConv, GINEConv
from jgs.sampling import sample_neighbors

NUM_NODES, ISOLATED = 24, 5


def rngs():
    return nnx.Rngs(3)


DIST = {"edge_columns": ("dist", "kind"), "edge_width": 3}

# Widths with which layers project before they aggregate, and widths with which they do not.
CONVS = {
    "gcn-narrows": lambda: GCNConv(7, 4, rngs=rngs()),
    "gcn-widens": lambda: GCNConv(7, 9, rngs=rngs()),
    "concat-narrows": lambda: ConcatConv(7, 5, rngs=rngs()),
    "concat-widens": lambda: ConcatConv(7, 16, rngs=rngs()),
    "gin": lambda: GINConv(7, 4, 9, eps=0.5, rngs=rngs()),
    "gin-eps-narrows": lambda: GINConv(7, 9, 4, eps=0.5, train_eps=True, rngs=rngs()),
    "gine": lambda: GINEConv(7, 4, 9, eps=0.5, train_eps=True, **DIST, rngs=rngs()),
    "gat1": lambda: GATConv(7, 12, 3, rngs=rngs()),
    "gat1-mean": lambda: GATConv(7, 4, 3, concat=False, self_loops=False, rngs=rngs()),
    "gat2": lambda: GATConv(7, 12, 3, version=2, rngs=rngs()),
    "gat1-edges": lambda: GATConv(7, 12, 3, **DIST, rngs=rngs()),
    "gat2-edges": lambda: GATConv(7, 12, 3, version=2, **DIST, rngs=rngs()),
    "gat2-mean": lambda: GATConv(7, 4, 2, version=2, concat=False, rngs=rngs()),
}


@pytest.fixture(params=CONVS)
def conv(request):
    made = CONVS[request.param]()
    made.bias[...] = jnp.linspace(-1, 1, made.out_features)
    return made


@pytest.fixture(scope="module")
def nx_graph():
    graph = networkx.gnm_random_graph(NUM_NODES, 60, seed=1)
    graph.remove_edges_from(list(graph.edges(ISOLATED)))
    return graph


@pytest.fixture(scope="module")
def graph(nx_graph):
    """It has edge columns of two numbers and of one, which a logarithm takes."""
    plain, rng = Graph.from_networkx(nx_graph.to_directed()), np.random.default_rng(8)
    columns = {
        "dist": rng.normal(size=(plain.num_edges, 2)).astype(np.float32),
        "kind": rng.integers(1, 4, plain.num_edges),
    }
    return Graph(plain.indptr, plain.indices, edge_columns=columns)


def all_neighbours(graph, padding=0, order=None):
    """A block of all edges into the nodes, in that order; its nodes and their in-degrees. The
    padding of its columns is NaN."""
    order = np.arange(NUM_NODES) if order is None else order
    seeds = jnp.asarray(np.r_[order, [NUM_NODES] * padding].astype(np.int32))
    batch = sample_neighbors(jax.random.key(0), graph, seeds, (-1,), return_edge_ids=True)
    degree = np.r_[np.diff(graph.indptr), -7].astype(np.int32)
    return with_columns(graph, batch.blocks[0]), batch.nodes, jnp.asarray(degree)[batch.nodes]


def features(width=7, seed=0):
    rows = np.random.default_rng(seed).standard_normal((NUM_NODES, width))
    return rows.astype(np.float32)


def rows_of(x, nodes, fill=0.0):
    return jnp.asarray(np.vstack([x, np.full_like(x[:1], fill)]))[nodes]


def softmax(logits):
    values = np.exp(logits - logits.max(0))
    return values / values.sum(0)


def reduced(conv, block, x, degree):
    """The messages, reduced one target at a time in NumPy, `[T, ...]`."""
    indptr, num_targets = np.asarray(block.indptr), int(block.num_targets)
    num_edges, message = int(block.num_edges), conv.message(x, degree=degree)
    rows, ends = message[block.indices[:num_edges]], indptr[1:num_targets]
    columns = block.edge_arrays()
    edge = {name: columns[name][:num_edges] for name in conv.edge_columns}
    if conv.reduce != "attention":
        rows = conv.edge_message(rows, edge) if edge else rows
        parts = np.split(np.asarray(rows), ends)
        totals = np.stack([part.sum(0) for part in parts])
        counts = [[max(len(part), 1)] for part in parts]
        return jnp.asarray(totals / np.float32(counts) if conv.reduce == "mean" else totals)
    query = conv.query(x[:num_targets])
    target = np.repeat(np.arange(num_targets), np.diff(indptr[: num_targets + 1]))
    scores = conv.scores(rows, query[target], *([edge] if edge else []))
    scores, values = (np.split(np.asarray(a), ends) for a in (scores, conv.values(rows)))
    own_message = message[:num_targets]
    own = np.asarray(conv.scores(own_message, query)), np.asarray(conv.values(own_message))
    totals = []
    for t, (of_edges, mine) in enumerate(zip(scores, values, strict=True)):
        if conv.self_loops:  # a loop has no edge features
            of_edges, mine = np.vstack([of_edges, own[0][t]]), np.vstack([mine, own[1][t]])
        weight = softmax(of_edges) if len(of_edges) else of_edges
        weight = np.repeat(weight, mine.shape[1] // conv.num_heads, axis=1)
        totals.append((weight * mine).sum(0))
    return jnp.asarray(np.stack(totals))


def test_a_layer_is_its_messages_reduced_and_updated(conv, graph):
    block, nodes, degree = all_neighbours(graph)
    x = rows_of(features(), nodes)
    real = slice(int(block.num_targets))
    mask = ops.dropout_mask(jax.random.key(1), nodes[real], 1, 0.5)
    messages = reduced(conv, block, x, degree)
    for options in ({}, {"relu": True}, {"relu": True, "drop": mask}):
        got = jax.jit(lambda x, o=options: conv(block, x, degree=degree, **o))(x)
        update = jax.jit(lambda x, rows, o=options: conv.update(x, rows, None, degree, **o))
        want = update(x, messages)
        np.testing.assert_allclose(got[real], want, rtol=1e-5, atol=1e-5)
        assert want.shape[1] == conv.out_features
    assert conv.projects_first or conv.message(x, degree=degree) is x


def test_gcn_is_the_normalised_adjacency_with_self_loops(nx_graph, graph):
    adjacency = networkx.to_numpy_array(nx_graph, nodelist=range(NUM_NODES)) + np.eye(NUM_NODES)
    scale = 1 / np.sqrt(adjacency.sum(1))
    block, nodes, degree = all_neighbours(graph)
    for out in (4, 9):
        conv = GCNConv(7, out, rngs=rngs())
        want = scale[:, None] * adjacency * scale @ features() @ np.asarray(conv.kernel[...])
        got = conv(block, rows_of(features(), nodes), degree=degree)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gcn_with_concatenation(nx_graph, graph):
    """At depth 3 a layer puts a node's row beside its neighbours' mean; the last layer adds
    them."""
    adjacency = networkx.to_numpy_array(nx_graph, nodelist=range(NUM_NODES))
    mean = adjacency / np.maximum(adjacency.sum(1, keepdims=True), 1)
    model = GCN(7, 5, 3, 3, concat=True, dropout=0.0, rngs=rngs())
    assert not model.uses_degrees
    want = features()
    for i, layer in enumerate(model.layers):
        own, other = (np.asarray(k[...]) for k in (layer.self_kernel, layer.neighbor_kernel))
        parts = want @ own, mean @ want @ other
        want = sum(parts) if i == 2 else np.maximum(np.concatenate(parts, axis=1), 0)
    seeds = jnp.arange(NUM_NODES, dtype=jnp.int32)
    batch = sample_neighbors(jax.random.key(0), graph, seeds, (-1, -1, -1))
    got = model(batch, rows_of(features(), batch.nodes))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_gcn_over_drawn_neighbours_estimates_the_sum_over_all(graph):
    conv = GCNConv(7, 4, rngs=rngs())
    block, nodes, degree = all_neighbours(graph)
    want = conv(block, rows_of(features(), nodes), degree=degree)
    rounds, seeds = 4000, jnp.arange(NUM_NODES, dtype=jnp.int32)
    x = jnp.asarray(np.vstack([features(), np.zeros((1, 7), np.float32)]))
    degrees = jnp.asarray(np.r_[np.diff(graph.indptr), 0].astype(np.int32))

    @jax.jit
    def one(key):
        batch = sample_neighbors(key, graph, seeds, (2,))
        return conv(batch.blocks[0], x[batch.nodes], degree=degrees[batch.nodes])

    drawn = jax.lax.map(one, jax.random.split(jax.random.key(2), rounds))
    error = np.abs(np.asarray(drawn.mean(0)) - want)
    standard = np.asarray(drawn.std(0)) / np.sqrt(rounds)
    assert (standard > 1e-4).mean() > 0.5  # the samples do estimate
    assert (error <= 5 * standard + 1e-5).all(), f"{(error / (standard + 1e-9)).max()} sigma"


@pytest.mark.parametrize("train_eps", [False, True])
def test_gin_is_an_mlp_of_the_sum(nx_graph, graph, train_eps):
    adjacency = networkx.to_numpy_array(nx_graph, nodelist=range(NUM_NODES))
    adjacency = adjacency + 1.5 * np.eye(NUM_NODES)
    block, nodes, _ = all_neighbours(graph)
    for hidden in (3, 8):
        conv = GINConv(7, 5, hidden, eps=0.5, train_eps=train_eps, rngs=rngs())
        first, second = (np.asarray(k[...]) for k in (conv.hidden_kernel, conv.kernel))
        want = np.maximum(adjacency @ features() @ first, 0) @ second
        got = conv(block, rows_of(features(), nodes))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    learnt = jax.grad(lambda c: c(block, rows_of(features(), nodes)).sum(), allow_int=True)(
        conv
    )
    assert ("eps" in nnx.state(learnt)) == train_eps


def test_gine_adds_the_edges_before_the_relu(graph):
    conv = GINEConv(7, 5, 8, eps=0.5, **DIST, rngs=rngs())
    conv.edge_bias[...] = jnp.linspace(-1, 1, 7)
    block, nodes, _ = all_neighbours(graph)
    src, dst = graph.edge_index()
    edge = np.hstack([graph.edge_columns["dist"], graph.edge_columns["kind"][:, None]])
    kernels = (conv.edge_kernel, conv.edge_bias, conv.hidden_kernel, conv.kernel)
    of_edge, bias, first, second = (np.asarray(k[...]) for k in kernels)
    total = 1.5 * features()
    np.add.at(total, dst, np.maximum(features()[src] + edge @ of_edge + bias, 0))
    want = np.maximum(total @ first, 0) @ second
    got = conv(block, rows_of(features(), nodes))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("edges", [{}, {"edge_columns": ("dist",), "edge_width": 1}])
def test_gat_by_hand_on_a_path_of_three_nodes(version, edges):
    dist = {(0, 1): 1.5, (1, 0): -0.5, (1, 2): 2.5, (2, 1): 1.0}
    columns = {"dist": np.array([*dist.values()], np.float32)}
    graph = Graph.from_edges(*zip(*dist, strict=True), 3, edge_columns=columns)
    seeds = jnp.arange(3, dtype=jnp.int32)
    batch = sample_neighbors(jax.random.key(0), graph, seeds, (-1,), return_edge_ids=True)
    conv = GATConv(1, 1, version=version, **edges, rngs=rngs())
    conv.kernel[...] = jnp.array([[2.0]])
    if version == 1:
        conv.source_attention[...] = jnp.array([[0.5]])
        conv.target_attention[...] = jnp.array([[-1.0]])
    else:
        conv.target_kernel[...] = jnp.array([[-3.0]])
        conv.attention[...] = jnp.array([[0.5]])
    if edges:
        conv.edge_kernel[...] = jnp.array([[3.0]])
        if version == 1:
            conv.edge_attention[...] = jnp.array([[0.7]])
    x = {0: 1.0, 1: -1.0, 2: 3.0}
    rows = jnp.array([[x.get(int(v), 9.0)] for v in batch.nodes])
    leaky = lambda a: a if a > 0 else 0.2 * a  # noqa: E731
    want = []
    for v, sources in ((0, (0, 1)), (1, (0, 1, 2)), (2, (1, 2))):
        of_edges = [3 * dist.get((u, v), 0) if edges else 0 for u in sources]  # loops have 0
        pairs = [(x[u], of_edge) for u, of_edge in zip(sources, of_edges, strict=True)]
        if version == 1:
            logits = [leaky(0.5 * 2 * xu - 1.0 * 2 * x[v] + 0.7 * e) for xu, e in pairs]
        else:
            logits = [0.5 * leaky(2 * xu - 3 * x[v] + e) for xu, e in pairs]
        weights = np.exp(logits) / np.exp(logits).sum()
        want.append([sum(w * 2 * x[u] for w, u in zip(weights, sources, strict=True))])
    block = with_columns(graph, batch.blocks[0])
    np.testing.assert_allclose(conv(block, rows), want, rtol=1e-6)


def loss_of(conv, block, x, real, degree, scale):
    out = conv(block, x, real, degree=degree)
    return jnp.sum(jnp.where(real[: len(out), None], scale * out**2, 0))


def test_nan_in_padding_changes_no_output_and_no_gradient(conv, graph):
    f = nnx.jit(nnx.value_and_grad(loss_of, argnums=(0, 2)))
    scale = jnp.sin(jnp.arange((NUM_NODES + 6) * conv.out_features, dtype=jnp.float32))
    scale, x, results = scale.reshape(NUM_NODES + 6, -1), features(), []
    for padding, fill in ((0, 0), (6, 0), (6, np.nan), (6, np.inf)):
        block, nodes, degree = all_neighbours(graph, padding)
        rows, real = rows_of(x, nodes, fill), nodes < NUM_NODES
        loss, (grads, grad_x) = f(conv, block, rows, real, degree, scale[: NUM_NODES + padding])
        results.append((loss, grads, grad_x[real]))
        assert not np.asarray(grad_x)[~real].any()
    for other in results[2:]:
        jax.tree.map(np.testing.assert_array_equal, results[1], other)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)  # noqa: E731
    jax.tree.map(close, *results[:2])
    # The isolated node is among them; its rows of edges are empty.
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results))
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(results[0][1]))


def test_rows_beyond_the_sources_may_hold_anything_without_a_mask(conv, graph):
    block, nodes, degree = all_neighbours(graph)
    x, more = features(), 4
    assert (np.asarray(nodes)[: int(block.num_sources)] < NUM_NODES).all()
    indptr = jnp.pad(block.indptr, (0, more), mode="edge")  # rows beyond the targets
    rows = {"source_capacity": block.source_capacity + more}
    block = dataclasses.replace(block, indptr=indptr, **rows)
    clean, bad = (
        jnp.vstack([rows_of(x, nodes, fill), jnp.full((more, 7), fill)]) for fill in (0, np.nan)
    )
    degree = jnp.pad(degree, (0, more))
    f = nnx.jit(nnx.value_and_grad(lambda c, x: (c(block, x, degree=degree) ** 2).sum()))
    jax.tree.map(np.testing.assert_array_equal, f(conv, clean), f(conv, bad))


def test_order_of_the_targets_changes_nothing(conv, graph):
    order = np.random.default_rng(7).permutation(NUM_NODES)
    outs = []
    for chosen in (np.arange(NUM_NODES), order):
        block, nodes, degree = all_neighbours(graph, order=chosen)
        outs.append(conv(block, rows_of(features(), nodes), degree=degree)[:NUM_NODES])
    np.testing.assert_allclose(outs[1], outs[0][order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("version", [1, 2])
def test_attention_dropout_belongs_to_the_two_nodes_of_an_edge(graph, version):
    conv = GATConv(7, 12, 3, version=version, rngs=rngs())
    key, rate = jax.random.key(4), 0.5

    def run(padding, order, key):
        block, nodes, _ = all_neighbours(graph, padding, order)
        mask = ops.dropout_mask(key, nodes, 2, rate)
        x = rows_of(features(), nodes)
        out = conv(block, x, nodes < NUM_NODES, attention_drop=mask)
        return np.asarray(out)[:NUM_NODES], block, mask

    order = np.random.default_rng(7).permutation(NUM_NODES)
    out, block, mask = run(0, None, key)
    np.testing.assert_allclose(run(5, order, key)[0], out[order], rtol=1e-5, atol=1e-5)
    assert np.abs(run(0, None, jax.random.key(5))[0] - out).max() > 0.1
    keep = np.asarray(ops.edge_mask(block, mask).keep(64))[: int(block.num_edges)]
    # Edges, their reverses and heads are each dropped by themselves.
    assert abs(keep.mean() - (1 - rate)) < 5 * 0.5 / np.sqrt(keep.size)
    correlation = np.corrcoef(keep)[np.triu_indices(len(keep), 1)]
    assert np.abs(correlation).max() < 6 / np.sqrt(64)
    assert abs(correlation.mean()) < 0.01


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GCNConv(0, 3, rngs=rngs()), "in_features must"),
        (lambda: ConcatConv(3, 1, rngs=rngs()), "out_features must"),
        (lambda: GINConv(3, 3, 0, rngs=rngs()), "hidden_features must"),
        (lambda: GINEConv(3, 3, edge_columns=(), edge_width=1, rngs=rngs()), "edge_width must"),
        (lambda: GINEConv(3, 3, edge_columns="dist", edge_width=1, rngs=rngs()), "a tuple of"),
        (lambda: GATConv(3, 3, 0, rngs=rngs()), "num_heads must"),
        (lambda: GATConv(3, 3, 2, rngs=rngs()), "multiple of num_heads"),
        (lambda: GATConv(3, 3, edge_columns=("a",), rngs=rngs()), "edge_width must"),
        (lambda: GATConv(3, 3, edge_width=2, rngs=rngs()), "edge_width must"),
        (lambda: GATConv(3, 4, 2, version=3, rngs=rngs()), "version must be 1 or 2"),
    ],
)
def test_refuses_other_sizes(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_refuses_another_width_and_missing_degrees(conv, graph):
    block, nodes, degree = all_neighbours(graph)
    with pytest.raises(InputError, match="the layer's 7 input features"):
        conv(block, rows_of(features(6), nodes), degree=degree)
    if conv.uses_degrees:
        x = rows_of(features(), nodes)
        with pytest.raises(InputError, match="with_degrees"):
            conv(block, x)
        with pytest.raises(InputError, match="one number for each"):
            conv(block, x, degree=degree[:3])
