"""Exact evaluation against the models on blocks of all neighbours."""

import errno
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from columns import edge_graph
from flax import nnx
from refusals import refused
from small_runs import on_all_neighbours

from jgs import Graph, InputError
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.models import GAT, GCN, GraphSAGE
from jgs.train import exact_inference
from jgs.train.evaluation import edge_pieces as evaluate_edges
from jgs.train.evaluation import exact
from jgs.train.evaluation import layer as evaluate_layer

N = 50
EVERY = np.arange(N, dtype=np.int32)
ONE_CHUNK, PIECES = 1 << 30, 3000
MODELS = {name: partial(GraphSAGE, reduce=name) for name in ("mean", "sum", "max")}
MODELS |= {"gcn": GCN, "gat": partial(GAT, heads=2)}


def hub_graph():
    """Node 7 is a hub of 200 in-edges, and the last five are isolated."""
    graph = edge_graph(N)
    return Graph(graph.indptr, graph.indices)


def features():
    return jnp.asarray(np.random.default_rng(1).normal(size=(N, 6)), jnp.float32)


def model_of(name, widths=(6, 9, 4), layers=2):
    """With these widths layer 1 aggregates before its projection, and layer 2 after it."""
    widths = (widths[0], widths[1] + widths[1] % 2 * (name == "gat"), widths[2])
    return MODELS[name](*widths, layers, rngs=nnx.Rngs(3))


def close(got, want):
    np.testing.assert_allclose(got, want, atol=2e-5 * max(1, np.abs(want).max()))


@cases(
    "name, memory",
    ("mean", PIECES),
    ("sum", ONE_CHUNK),
    ("max", PIECES),
    ("gcn", PIECES),
    ("gat", PIECES),
    ("gat", ONE_CHUNK),
)
def test_equals_the_model_on_all_neighbours(name, memory, tmp_path):
    graph, x, model = hub_graph(), features(), model_of(name)
    if name == "gat":  # scores whose exponentials overflow
        model = nnx.merge(nnx.graphdef(model), jax.tree.map(lambda p: 9 * p, nnx.state(model)))
    infer, params = exact_inference(model, graph, x, memory, tmp_path), nnx.state(model)
    want = on_all_neighbours(model, graph, x)
    close(infer(params, EVERY), want)
    some = np.array([7, 49, 3, 7, 0])  # the hub twice, and an isolated node
    close(infer(params, some), want[some])


def test_other_parameters_need_no_other_program():
    graph, x, model = hub_graph(), features(), model_of("mean")
    infer, params = exact_inference(model, graph, x), nnx.state(model)
    infer(params, EVERY)
    before = evaluate_layer.combine._cache_size()
    doubled = jax.tree.map(lambda p: 2 * p, params)
    want = on_all_neighbours(nnx.merge(nnx.graphdef(model), doubled), graph, x)
    close(infer(doubled, EVERY[3:20]), want[3:20])
    assert evaluate_layer.combine._cache_size() == before


@cases(
    "kind, widths, name, memory",
    ("sparse", (30, 8, 3), "mean", PIECES),  # each layer projects first
    ("sparse", (6, 9, 4), "max", ONE_CHUNK),
    ("float16", (30, 8, 3), "max", ONE_CHUNK),
    ("float16", (6, 9, 4), "mean", PIECES),
)
def test_sparse_and_half_precision_features(kind, widths, name, memory):
    graph, model = hub_graph(), model_of(name, widths)
    matrix = scipy.sparse.random(N, widths[0], 0.3, random_state=0, dtype=np.float32)
    x = matrix.toarray().astype(np.float16)
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(x.astype(np.float32)))
    given = sparse if kind == "sparse" else jnp.asarray(x)
    got = exact_inference(model, graph, given, memory)(nnx.state(model), EVERY)
    close(got, on_all_neighbours(model, graph, jnp.asarray(x, jnp.float32)))


def test_layers_that_stay_on_the_host_are_fetched_piece_by_piece(monkeypatch):
    """As on an accelerator whose memory is smaller than a layer's output."""
    graph, x, some = hub_graph(), features(), np.array([7, 0, 49])
    monkeypatch.setattr(exact, "computes_on_cpu", lambda: False)
    for name in ("mean", "max"):
        model = model_of(name, layers=3)
        got = exact_inference(model, graph, x, 1000)(nnx.state(model), some)
        close(got, on_all_neighbours(model, graph, x)[some])


def test_chunks_and_pieces_bound_the_memory(noted):
    graph, model, calls = hub_graph(), model_of("mean"), noted(evaluate_edges, "pieces")
    exact_inference(model, graph, features(), 1500)(nnx.state(model), EVERY)
    seen = [(len(targets), rows, size) for *_, targets, rows, size, _ in calls]
    assert {(rows, size) for _, rows, size in seen} == {(seen[0][1], seen[0][2])}
    assert all(t <= rows < N and size < 200 for t, rows, size in seen)


@cases("name, memory", ("mean", PIECES), ("sum", PIECES), ("max", ONE_CHUNK))
def test_edges_of_weight_0_are_never_drawn(name, memory):
    """Some rows here have only such edges."""
    plain, x, model = hub_graph(), features(), model_of(name)
    weight = np.random.default_rng(1).choice([0, 0, 0.5, 3], plain.num_edges)
    graph = Graph(plain.indptr, plain.indices, weight)
    for weighted in (True, False):
        infer = exact_inference(model, graph, x, memory, weighted=weighted)
        want = on_all_neighbours(model, graph, x, weighted=weighted)
        close(infer(nnx.state(model), EVERY), want)


def test_what_no_model_can_be_asked():
    graph, model = hub_graph(), model_of("mean")
    infer, params = exact_inference(model, graph, features()), nnx.state(model)
    for nodes in ([N], [-1], [0.5], [[0]]):
        refused("nodes must be", infer, params, np.array(nodes))
    assert infer(params, np.array([], np.int32)).shape == (0, 4)
    for num_layers in (0, 3):
        refused("num_layers must be one of 1 to 2", infer, params, np.arange(3), num_layers)
    refused("edge weights", exact_inference, model, graph, features(), weighted=True)
    model.layers[0].reduce = "median"
    refused("reduce must be one of *'median'", exact_inference, model, graph, features())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_is_an_error_that_says_what_to_do(code, tmp_path, monkeypatch):
    """Writing through a map would end in SIGBUS instead."""
    model = model_of("mean")
    infer = exact_inference(model, hub_graph(), features(), 1000, tmp_path)

    def refuse(file, offset, size):
        assert size > 1000
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    monkeypatch.setattr("jgs.files.writing.free_space", lambda _: 1000)
    with pytest.raises(InputError) as raised:
        infer(nnx.state(model), EVERY)
    said = str(raised.value)
    assert str(tmp_path) in said
    assert ("MiB too few" in said) == (code == errno.ENOSPC)
    assert all(word in said for word in ("--eval-memory 1 ", "--scratch", "TMPDIR"))
