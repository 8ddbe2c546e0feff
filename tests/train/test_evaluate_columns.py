"""Exact evaluation of layers that read their edges, against NumPy and against whole blocks."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from columns import attention_model, dense_model, edge_graph, edge_model
from flax import nnx
from refusals import refused
from small_runs import comm_of, on_all_neighbours

from jgs import Graph
from jgs.models import GNN, GATConv, GINEConv, GraphSAGE, SAGEConv
from jgs.train import exact_inference
from jgs.train.evaluation import edge_pieces as evaluate_edges

N = 50
GRAPH = edge_graph(N)
X = jnp.asarray(np.random.default_rng(1).normal(size=(N, 6)), jnp.float32)
KINDS = ["sum", "mean", "max", "version 1", "version 2"]


def model_of(kind):
    return attention_model(int(kind[-1])) if "version" in kind else edge_model(kind)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


@cases("kind, memory", *((kind, 4000) for kind in KINDS), ("mean", 1 << 30))
def test_equals_blocks_of_all_neighbours(kind, memory, tmp_path, noted):
    model, pieces = model_of(kind), noted(evaluate_edges, "pieces")
    want = on_all_neighbours(model, GRAPH, X)
    if "version" not in kind:
        close(dense_model(model, GRAPH, X), want)
    infer = exact_inference(model, GRAPH, X, memory, tmp_path)
    close(infer(nnx.state(model), np.arange(N)), want)
    some = np.array([7, 49, 3, 7, 0])  # the hub twice, and an isolated node
    close(infer(nnx.state(model), some), want[some])
    # The hub is in several pieces.
    assert (max(size for *_, size, _ in pieces) < 200) == (memory == 4000)


@pytest.mark.parametrize("kind", ["max", "version 2"])
def test_edges_of_weight_0_are_left_out_with_their_columns(kind):
    weight = np.random.default_rng(3).choice([0, 0, 0.5, 3], GRAPH.num_edges)
    graph = Graph(
        GRAPH.indptr, GRAPH.indices, weight, GRAPH.edge_columns, edge_time=GRAPH.edge_time
    )
    model = model_of(kind)
    want = on_all_neighbours(model, graph, X, weighted=True)
    infer = exact_inference(model, graph, X, 4000, weighted=True)
    close(infer(nnx.state(model), np.arange(N)), want)


def reads_weight(conv, width, out):
    options = {"edge_columns": ("weight",), "edge_width": 1, "rngs": nnx.Rngs(0)}
    return conv(width, out, **options)


@cases(
    "first, last, weighted",
    (SAGEConv, GINEConv, False),
    (GINEConv, GATConv, True),
    (GATConv, SAGEConv, True),
    (GATConv, GINEConv, False),
)
def test_a_column_of_weights_that_a_layer_reads_changes_no_other_layer(first, last, weighted):
    weight = np.random.default_rng(3).choice([0, 0.5, 3], GRAPH.num_edges)
    graph = Graph(GRAPH.indptr, GRAPH.indices, weight)
    layers = [
        conv(*width, rngs=nnx.Rngs(1)) if conv is SAGEConv else reads_weight(conv, *width)
        for conv, width in ((first, (6, 8)), (last, (8, 4)))
    ]
    model = GNN(layers, rngs=nnx.Rngs(0))
    infer = exact_inference(model, graph, X, weighted=weighted)
    want = on_all_neighbours(model, graph, X, weighted=weighted)
    close(infer(nnx.state(model), np.arange(N)), want)


@cases(
    "kind, size, memory",
    ("mean", 2, 20_000),
    ("version 1", 2, 256 << 20),
    ("version 1", 1, 20_000),
)
def test_ranks_have_the_columns_of_their_own_edges(kind, size, memory, tmp_path):
    model, offsets = model_of(kind), [0, 20, N] if size == 2 else [0, N]
    want = on_all_neighbours(model, GRAPH, X)
    owned, indptr = list(pairwise(offsets)), np.asarray(GRAPH.indptr)
    graphs = []
    for a, b in owned:  # the in-edges of the rank's own nodes
        own = slice(indptr[a], indptr[b])
        arrays = {name: np.asarray(array)[own] for name, array in GRAPH.edge_arrays().items()}
        starts = np.clip(indptr, indptr[a], indptr[b]) - indptr[a]
        graphs.append(Graph.from_edge_arrays(starts, arrays))
    rows = [[np.asarray(X)[a:b]] for a, b in owned]
    options = {"comm": comm_of(size), "offsets": offsets}
    infer = exact_inference(model, graphs, rows, memory, tmp_path, **options)
    got = infer(nnx.state(model), [np.arange(a, b) for a, b in owned])
    close(np.concatenate(got), want)


def test_a_graph_without_the_column_is_refused():
    plain = Graph(GRAPH.indptr, GRAPH.indices, GRAPH.edge_weight)
    said = "the graph must have an edge column 'dist'; got columns weight. Give it"
    refused(said, exact_inference, edge_model("mean"), plain, X)
    other = GraphSAGE(6, 8, 3, 2, rngs=nnx.Rngs(0))  # it reads no edges
    infer = exact_inference(other, plain, X)
    assert np.isfinite(infer(nnx.state(other), [3])).all()
