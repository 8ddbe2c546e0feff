"""Exact evaluation of layers that read their edges, against NumPy and against whole blocks."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from columns import attention_model, batch_with_columns, dense_model, edge_graph, edge_model
from flax import nnx

from jgs import Graph, InputError
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.models import GNN, GATConv, GINEConv, GraphSAGE, SAGEConv
from jgs.models.dense import Conv
from jgs.ops import gather
from jgs.sampling import Neighbors, sample_neighbors
from jgs.train import exact_inference
from jgs.train.evaluation import edges as evaluate_edges

N = 50
GRAPH = edge_graph(N)
X = np.random.default_rng(1).normal(size=(N, 6)).astype(np.float32)
KINDS = ["sum", "mean", "max", "version 1", "version 2"]


def model_of(kind):
    return attention_model(int(kind[-1])) if "version" in kind else edge_model(kind)


def over_all_neighbours(model, graph, **options):
    """The model on blocks of all edges."""
    seeds, fanouts = np.arange(N, dtype=np.int32), (-1,) * len(model.layers)
    options = {"return_edge_ids": True, **options}
    batch = sample_neighbors(jax.random.key(0), graph, seeds, fanouts, **options)
    batch = batch_with_columns(graph, batch)
    rows = gather(jnp.asarray(X), batch.nodes)
    return np.asarray(nnx.jit(lambda m, b, x: m(b, x))(model, batch, rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [1 << 30, 4000], ids=["one chunk", "many pieces"])
def test_equals_blocks_of_all_neighbours(kind, memory, tmp_path, monkeypatch):
    sizes, pieces = set(), evaluate_edges.pieces

    def spy(*args):
        sizes.add(args[-2])
        return pieces(*args)

    monkeypatch.setattr(evaluate_edges, "pieces", spy)
    model = model_of(kind)
    want = over_all_neighbours(model, GRAPH)
    close = {"rtol": 1e-3, "atol": 1e-4 * np.abs(want).max()}
    if "version" not in kind:
        np.testing.assert_allclose(dense_model(model, GRAPH, X), want, **close)
    infer = exact_inference(model, GRAPH, jnp.asarray(X), memory, tmp_path)
    np.testing.assert_allclose(infer(nnx.state(model), np.arange(N)), want, **close)
    some = np.array([7, 49, 3, 7, 0])  # the hub twice, and an isolated node
    np.testing.assert_allclose(infer(nnx.state(model), some), want[some], **close)
    assert (max(sizes) < 200) == (memory == 4000)  # the hub is in several pieces


@pytest.mark.parametrize("kind", ["max", "version 2"])
def test_edges_of_weight_0_are_left_out_with_their_columns(kind):
    weight = np.random.default_rng(3).choice([0, 0, 0.5, 3], GRAPH.num_edges)
    graph = Graph(
        GRAPH.indptr, GRAPH.indices, weight, GRAPH.edge_columns, edge_time=GRAPH.edge_time
    )
    model = model_of(kind)
    want = over_all_neighbours(model, graph, weighted=True)
    for memory in (1 << 30, 4000):
        infer = exact_inference(model, graph, jnp.asarray(X), memory, weighted=True)
        got = infer(nnx.state(model), np.arange(N))
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def reads_weight(conv, width, out):
    options = {"edge_columns": ("weight",), "edge_width": 1, "rngs": nnx.Rngs(0)}
    return conv(width, out, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("first", [SAGEConv, GINEConv, GATConv])
@pytest.mark.parametrize("last", [SAGEConv, GINEConv, GATConv])
def test_a_column_of_weights_that_a_layer_reads_changes_no_other_layer(first, last, weighted):
    weight = np.random.default_rng(3).choice([0, 0.5, 3], GRAPH.num_edges)
    graph = Graph(GRAPH.indptr, GRAPH.indices, weight)
    layers = [
        conv(*width, rngs=nnx.Rngs(1)) if conv is SAGEConv else reads_weight(conv, *width)
        for conv, width in ((first, (6, 8)), (last, (8, 4)))
    ]
    model = GNN(layers, rngs=nnx.Rngs(0))
    sampler = Neighbors((-1, -1), weighted=weighted, edges=model.edge_columns)
    batch = sampler.sample(jax.random.key(0), graph, (), np.arange(N), None)
    got = np.asarray(model(batch, gather(jnp.asarray(X), batch.nodes)))
    exact = exact_inference(model, graph, jnp.asarray(X), weighted=weighted)
    want = exact(nnx.state(model), np.arange(N))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("kind", ["mean", "version 1"])
@pytest.mark.parametrize("size", [1, 2])
def test_ranks_have_the_columns_of_their_own_edges(kind, size, tmp_path):
    model, offsets = model_of(kind), [0, 20, N] if size == 2 else [0, N]
    want = over_all_neighbours(model, GRAPH)
    owned, indptr = list(pairwise(offsets)), np.asarray(GRAPH.indptr)
    graphs = []
    for a, b in owned:  # the in-edges of the rank's own nodes
        own = slice(indptr[a], indptr[b])
        arrays = {name: np.asarray(array)[own] for name, array in GRAPH.edge_arrays().items()}
        starts = np.clip(indptr, indptr[a], indptr[b]) - indptr[a]
        graphs.append(Graph.from_edge_arrays(starts, arrays))
    comm = Mesh(jax.devices()[:2]) if size == 2 else Alone()
    rows = [[X[a:b]] for a, b in owned]
    options = {"comm": comm, "offsets": offsets}
    for memory in (256 << 20, 20_000):
        infer = exact_inference(model, graphs, rows, memory, tmp_path, **options)
        got = infer(nnx.state(model), [np.arange(a, b) for a, b in owned])
        got, atol = np.concatenate(got), 1e-4 * np.abs(want).max()
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=atol)


class ByRelation(Conv):
    """A sum of `x_u` times a gain of the edge's relation, and of its number modulo 5."""

    reduce, edge_columns = "sum", ("type", "id")
    in_features = out_features = message_width = 6

    def __init__(self):
        self.gain = nnx.Param(jnp.array([1.0, -2.0, 0.5]))

    def message(self, x, num_sources=None, degree=None):
        return x

    def edge_message(self, message, edge):
        with jax.enable_x64(True):
            number = (edge["id"] % 5).astype(jnp.float32)
        return message * self.gain[...][edge["type"], None] + number[:, None]

    def update(self, own, aggregated, num_targets=None, degree=None, **options):
        return own[: len(aggregated)] + aggregated


def test_numbers_and_types_of_edges():
    model = GNN([ByRelation()], rngs=nnx.Rngs(0))
    types = np.random.default_rng(4).integers(0, 3, GRAPH.num_edges).astype(np.int16)
    types = np.concatenate([np.sort(types[a:b]) for a, b in pairwise(np.asarray(GRAPH.indptr))])
    graph = Graph(GRAPH.indptr, GRAPH.indices, edge_type=types)
    src, dst = graph.edge_index()
    want, gain = X.copy(), np.array([1.0, -2.0, 0.5], np.float32)
    number = (np.arange(graph.num_edges) % 5)[:, None]
    np.add.at(want, dst, X[src] * gain[types][:, None] + number)
    for memory in (1 << 30, 3000):
        got = exact_inference(model, graph, jnp.asarray(X), memory)(nnx.state(model), range(N))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(over_all_neighbours(model, graph), want, rtol=1e-4, atol=1e-3)


def test_a_graph_without_the_column_is_refused():
    plain = Graph(GRAPH.indptr, GRAPH.indices, GRAPH.edge_weight)
    said = "the graph must have an edge column 'dist'; got columns weight. Give it"
    with pytest.raises(InputError, match=said) as error:
        exact_inference(edge_model("mean"), plain, jnp.asarray(X))
    assert "\n" not in str(error.value)
    other = GraphSAGE(6, 8, 3, 2, rngs=nnx.Rngs(0))  # it reads no edges
    infer = exact_inference(other, plain, jnp.asarray(X))
    assert np.isfinite(infer(nnx.state(other), [3])).all()
