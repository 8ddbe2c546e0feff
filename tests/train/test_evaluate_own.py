"""Exact evaluation of a user's own model: attention, degrees, and the rest of the contract."""

import errno
import os
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import Graph, InputError
from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.train import exact_inference

N, WIDTHS, HEADS = 60, (5, 6, 4, 3), 2


class Attend(nnx.Module):
    """Dot-product attention with several heads; its raw scores overflow an exponential."""

    reduce, uses_degrees, takes_inputs, projects_first = "attention", False, False, True
    edge_columns, num_heads = (), HEADS

    def __init__(self, width, out, self_loops, rngs):
        self.in_features, self.out_features, self.self_loops = width, out, self_loops
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (width, out)))
        self.asking = nnx.Param(60 * jax.random.normal(rngs.params(), (width, out)))

    def message(self, x, num_sources=None):
        return x @ self.kernel[...]

    def query(self, own):
        return own @ self.asking[...]

    def scores(self, message, query):
        return (message * query).reshape(-1, HEADS, self.out_features // HEADS).sum(2)

    def values(self, message):
        return message

    def update(self, own, aggregated, num_targets=None):
        return aggregated


class ByDegree(nnx.Module):
    """A sum over the square roots of degrees, as in a GCN: both steps read the degrees."""

    reduce, uses_degrees, takes_inputs, projects_first = "sum", True, False, True
    edge_columns = ()

    def __init__(self, width, out, rngs):
        self.in_features, self.out_features = width, out
        self.kernel = nnx.Param(jax.random.normal(rngs.params(), (width, out)))

    def message(self, x, num_sources=None, degree=None):
        return (x @ self.kernel[...]) / jnp.sqrt(degree[:, None] + 1)

    def update(self, own, aggregated, num_targets=None, degree=None):
        return aggregated / jnp.sqrt(degree[:, None] + 1)


class Own(nnx.Module):
    def __init__(self, self_loops=True):
        rngs = nnx.Rngs(0)
        self.layers = nnx.List(
            [
                Attend(WIDTHS[0], WIDTHS[1], self_loops, rngs),
                ByDegree(WIDTHS[1], WIDTHS[2], rngs),
                Attend(WIDTHS[2], WIDTHS[2], self_loops, rngs),
            ]
        )
        self.out = nnx.Linear(WIDTHS[2], WIDTHS[3], rngs=rngs)

    def activate(self, i, h, nodes=None, key=None):
        return jnp.tanh(h) if i < 2 else self.out(h)


def hub_graph():
    """A hub (node 7, 400 in-edges), isolated nodes (the last five), and a self-loop."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N - 5, (2, 200))
    src = np.r_[src, rng.integers(0, N - 5, 400), 3]
    return Graph.from_edges(src, np.r_[dst, np.full(400, 7), 3], N)


def features():
    return np.random.default_rng(1).normal(size=(N, WIDTHS[0])).astype(np.float32)


def dense(model, graph, num_layers=3):
    """The model by its definition, in float64."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    degree = np.diff(indptr)
    h = features().astype(np.float64)
    for i, layer in enumerate([*model.layers][:num_layers]):
        kernel = np.asarray(layer.kernel[...], np.float64)
        message = h @ kernel
        out = np.zeros_like(message)
        for v in range(N):
            sources = indices[indptr[v] : indptr[v + 1]]
            if layer.reduce == "sum":
                roots = np.sqrt(degree[sources] + 1)[:, None]
                out[v] = (message[sources] / roots).sum(0) / np.sqrt(degree[v] + 1)
                continue
            sources = np.r_[sources, [v] * layer.self_loops].astype(int)
            if not len(sources):
                continue
            query = h[v] @ np.asarray(layer.asking[...], np.float64)
            each = (len(sources), HEADS, -1)
            scores = (message[sources] * query).reshape(each).sum(2)
            weight = np.exp(scores - scores.max(0))
            weight /= weight.sum(0)
            out[v] = (weight[:, :, None] * message[sources].reshape(each)).sum(0).ravel()
        h = np.asarray(model.activate(i, jnp.asarray(out, jnp.float32)), np.float64)
    return h


@pytest.mark.parametrize("self_loops", [True, False])
def test_attention_and_degrees_equal_their_definitions(self_loops, tmp_path):
    model, graph, x = Own(self_loops), hub_graph(), features()
    params, some = nnx.state(model), np.array([7, 59, 3, 7, 0])
    for num_layers in (3, 2):  # the logits, and the rows of the last hidden layer
        expected = dense(model, graph, num_layers)
        for memory in (1 << 30, 3000):  # in one piece, or in many that share the hub
            infer = exact_inference(model, graph, jnp.asarray(x), memory, tmp_path)
            got = infer(params, np.arange(N), num_layers)
            np.testing.assert_allclose(got, expected, atol=2e-4)
            np.testing.assert_allclose(
                infer(params, some, num_layers), expected[some], atol=2e-4
            )


@pytest.mark.parametrize("size", [1, 2])
def test_ranks_equal_one_machine(size, tmp_path):
    model, graph, x = Own(), hub_graph(), features()
    comm = Mesh(jax.devices()[:2]) if size == 2 else Alone()
    offsets = [0, 23, N] if size == 2 else [0, N]
    owned = list(pairwise(offsets))
    # A rank's rows may lie in several tables, one for each part.
    rows = [[x[a : a + 9], x[a + 9 : b]] for a, b in owned]
    nodes = [np.arange(a, b)[::-2] for a, b in owned]
    want = dense(model, graph)
    options = {"comm": comm, "offsets": offsets}
    infer = exact_inference(model, [graph] * size, rows, 20_000, tmp_path, **options)
    before = comm.counters.rounds
    for got, asked in zip(infer(nnx.state(model), nodes), nodes, strict=True):
        np.testing.assert_allclose(got, want[asked], atol=2e-4)
    assert (comm.counters.rounds == before) == (size == 1)  # one rank has no other to ask
    if size == 2:
        with pytest.raises(InputError, match="ids from 0 to 22; got 23"):
            infer(nnx.state(model), [np.array([23]), np.array([24])])


def test_what_no_model_can_be_asked():
    graph, x = hub_graph(), jnp.asarray(features())
    model = Own()
    infer, params = exact_inference(model, graph, x), nnx.state(model)
    for nodes in ([N], [-1], [0.5], [[0]]):
        with pytest.raises(InputError, match="nodes must be"):
            infer(params, np.array(nodes))
    assert infer(params, np.array([], np.int32)).shape == (0, WIDTHS[3])
    for num_layers in (0, 4):
        with pytest.raises(InputError, match="num_layers must be one of 1 to 3"):
            infer(params, np.arange(3), num_layers)
    with pytest.raises(InputError, match="edge weights"):
        exact_inference(model, graph, x, weighted=True)
    model.layers[0].reduce = "median"
    with pytest.raises(InputError, match=r"reduce must be one of .*'median'"):
        exact_inference(model, graph, x)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_a_full_disk_is_an_error_that_says_what_to_do(code, tmp_path, monkeypatch):
    """Writing through a map would end in SIGBUS instead."""
    model = Own()
    infer = exact_inference(model, hub_graph(), jnp.asarray(features()), 1000, tmp_path)

    def refuse(file, offset, size):
        assert size > 1000
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    monkeypatch.setattr("jgs.files.writing.free_space", lambda _: 1000)
    with pytest.raises(InputError) as raised:
        infer(nnx.state(model), np.arange(N))
    said = str(raised.value)
    assert str(tmp_path) in said
    assert ("MiB too few" in said) == (code == errno.ENOSPC)
    assert all(word in said for word in ("--eval-memory 1 ", "--scratch", "TMPDIR"))
