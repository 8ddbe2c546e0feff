import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from flax import nnx
from small_runs import measured

import jgs.ops
from jgs import Graph
from jgs.graph.features import SparseFeatures
from jgs.models import GraphSAGE
from jgs.sampling import sample_neighbors
from jgs.train import exact_inference
from jgs.train.evaluation import edges as evaluate_edges
from jgs.train.evaluation import exact
from jgs.train.evaluation import layer as evaluate_layer

N = 50


def hub_graph(seed):
    """A random graph with a hub (node 7, 300 in-edges) and isolated nodes (the last five)."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N - 5, (2, 150))
    src, dst = np.r_[src, rng.integers(0, N - 5, 300)], np.r_[dst, np.full(300, 7)]
    return Graph.from_edges(src, dst, N)


def dense(model, graph, x):
    """The model by its definition, in float64 NumPy except for the layers' linear maps."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    h = np.asarray(x, np.float64)
    for i, conv in enumerate(model.layers):
        messages = np.asarray(conv.message(jnp.asarray(h, jnp.float32)), np.float64)
        total = np.zeros((N, messages.shape[1]))
        for v in range(N):
            rows = messages[indices[indptr[v] : indptr[v + 1]]]
            if len(rows):
                total[v] = {"mean": np.mean, "sum": np.sum, "max": np.max}[conv.reduce](rows, 0)
        h = conv.update(jnp.asarray(h, jnp.float32), jnp.asarray(total, jnp.float32))
        h = np.asarray(model.activate(i, h, jnp.arange(N, dtype=jnp.int32), None), np.float64)
    return h


def model_of(reduce, widths=(6, 9, 4), layers=2, **options):
    """A model with 9 hidden units: layer 1 aggregates before, layer 2 after its projection."""
    return GraphSAGE(*widths, layers, reduce=reduce, **options, rngs=nnx.Rngs(3))


@pytest.mark.parametrize("reduce", ["mean", "sum", "max"])
@pytest.mark.parametrize("memory", [1 << 30, 3000], ids=["one chunk", "many pieces"])
def test_equals_the_dense_evaluation(reduce, memory, tmp_path):
    for seed in range(2):
        graph = hub_graph(seed)
        x = np.random.default_rng(seed).normal(size=(N, 6)).astype(np.float32)
        model = model_of(reduce)
        infer = exact_inference(model, graph, jnp.asarray(x), memory, tmp_path)
        expected = dense(model, graph, x)
        params = nnx.split(model)[1]
        scale = np.abs(expected).max()
        got = infer(params, np.arange(N))
        np.testing.assert_allclose(got, expected, atol=2e-5 * scale)
        some = np.array([7, 49, 3, 7, 0])  # the hub twice, and an isolated node
        np.testing.assert_allclose(infer(params, some), expected[some], atol=2e-5 * scale)


@pytest.mark.parametrize("widths", [(30, 8, 3), (6, 9, 4)], ids=["projects", "identity"])
@pytest.mark.parametrize("kind", ["sparse", "float16"])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_sparse_and_half_precision_features(kind, widths, reduce):
    graph = hub_graph(0)
    matrix = scipy.sparse.random(N, widths[0], 0.3, random_state=0, dtype=np.float32)
    x = matrix.toarray().astype(np.float16).astype(np.float32)
    if kind == "sparse":
        features = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(x))
    else:
        features = jnp.asarray(x, jnp.float16)
    model = model_of(reduce, widths)
    for memory in (1 << 30, 2000):
        got = exact_inference(model, graph, features, memory)(nnx.split(model)[1], np.arange(N))
        np.testing.assert_allclose(got, dense(model, graph, x), atol=2e-5)


def test_layers_that_stay_on_the_host_are_fetched_piece_by_piece(monkeypatch):
    """As on an accelerator whose memory is smaller than a layer's output."""
    graph = hub_graph(1)
    x = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)
    monkeypatch.setattr(exact, "computes_on_cpu", lambda: False)
    for reduce in ("mean", "max"):
        model = model_of(reduce, layers=3)
        infer = exact_inference(model, graph, jnp.asarray(x), 1000)
        got = infer(nnx.split(model)[1], np.array([7, 0, 49]))
        np.testing.assert_allclose(
            got, dense(model, graph, x)[[7, 0, 49]], rtol=1e-4, atol=1e-5
        )


def test_chunks_and_pieces_bound_the_memory(monkeypatch):
    graph = hub_graph(2)
    seen = []
    pieces = evaluate_edges.pieces

    def spy(indptr, indices, weight, targets, num_rows, size, padding):
        seen.append((len(targets), num_rows, size))
        return pieces(indptr, indices, weight, targets, num_rows, size, padding)

    monkeypatch.setattr(evaluate_edges, "pieces", spy)
    model = model_of("mean")
    exact_inference(model, graph, jnp.zeros((N, 6)), 1500)(nnx.split(model)[1], np.arange(N))
    assert {(rows, size) for _, rows, size in seen} == {(seen[0][1], seen[0][2])}
    assert all(t <= rows < N and size < 300 for t, rows, size in seen)


@pytest.mark.parametrize("reduce", ["mean", "sum", "max"])
@pytest.mark.parametrize("memory", [1 << 30, 3000], ids=["one chunk", "many pieces"])
def test_weighted_equals_weighted_sampling_of_all_neighbours(reduce, memory):
    """Edges of weight 0 are never drawn; some rows here have only such edges."""
    plain = hub_graph(0)
    weight = np.random.default_rng(1).choice([0, 0, 0.5, 3], plain.num_edges)
    graph = Graph(plain.indptr, plain.indices, weight)
    x = jnp.asarray(np.random.default_rng(2).normal(size=(N, 6)), jnp.float32)
    model = model_of(reduce)
    params = nnx.split(model)[1]
    seeds = np.arange(N, dtype=np.int32)
    for weighted in (True, False):
        batch = sample_neighbors(jax.random.key(0), graph, seeds, (-1, -1), weighted=weighted)
        expected = np.asarray(model(batch, jgs.ops.gather(x, batch.nodes)))
        infer = exact_inference(model, graph, x, memory, weighted=weighted)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(infer(params, seeds), expected, atol=2e-5 * scale)


def test_other_parameters_and_compiles_once():
    graph = hub_graph(0)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(N, 6)), jnp.float32)
    model = model_of("mean")
    infer = exact_inference(model, graph, x)
    graphdef, params = nnx.split(model)
    infer(params, np.arange(N))
    before = evaluate_layer.combine._cache_size()
    doubled = jax.tree.map(lambda p: 2 * p, params)
    got = infer(doubled, np.arange(3, 20))
    expected = dense(nnx.merge(graphdef, doubled), graph, x)[3:20]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert evaluate_layer.combine._cache_size() == before


def test_accuracy():
    logits = np.array([[1.0, 2], [3, 1], [0, 1]])
    assert measured("accuracy", logits, np.array([1, 1, 1])) == pytest.approx(2 / 3)
    # micro-F1: 2 right, 1 predicted wrongly, 1 missed
    many = np.array([[1.0, -1], [1, -1], [1, -1]])
    labels = np.array([[1.0, 0], [1, 1], [0, 0]])
    assert measured("f1_micro", many, labels) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert measured("f1_micro", -np.ones((2, 2)), np.zeros((2, 2))) == 0
