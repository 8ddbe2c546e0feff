"""The benchmark of learned samplers draws by the formulas that DGL's side has, with the same
parameters: here beside dense NumPy."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import contenders, learned, learned_jgs
from jgs import Graph
from jgs.sampling.matrix import Matrix

N, F, FRONTIER = 50, 12, np.arange(0, 40, 3, dtype=np.int32)


def inputs():
    """A graph with features; the features and the dense matrix of edges, in float64."""
    rng = np.random.default_rng(3)
    key = rng.permutation(N * N)[:500]
    dst, src = key // N, key % N
    x = rng.standard_normal((N, F), np.float32)
    dense = np.zeros((N, N))
    dense[src, dst] = 1
    return Graph.from_edges(src, dst, N).with_node_columns(features=x), x.astype(float), dense


def test_asgcn_draws_rows_by_the_benchmarks_formula(monkeypatch):
    graph, x, dense = inputs()
    part = dense[:, FRONTIER]
    means = part / np.maximum(part.sum(axis=0), 1)
    size = 1 + np.abs(x @ learned.asgcn(F).astype(float))
    wanted = size * np.sqrt((means**2).sum(axis=1))
    given = []
    original = Matrix.collective_sample

    def recorded(self, k, node_probs=None, **rest):
        given.append((np.asarray(self.row()), np.asarray(node_probs)))
        return original(self, k, node_probs, **rest)

    monkeypatch.setattr(Matrix, "collective_sample", recorded)
    sampler = learned_jgs.SAMPLERS["asgcn"]((5,))
    A = Matrix(graph, key=jax.random.key(0))
    sampler.layer(A, jnp.asarray(FRONTIER), 5, sampler.init(graph))
    ((rows, probs),) = given
    found = np.zeros(N + 1)
    found[rows] = probs
    np.testing.assert_allclose(found[:N], wanted, rtol=1e-5)
    assert np.ptp(size) > 0.5  # the parameters matter


def test_pass_draws_edges_by_the_benchmarks_formula():
    graph, x, dense = inputs()
    weight, attention = learned.pass_(F)
    share = np.exp(attention) / np.exp(attention).sum()
    bias = share[2] / np.maximum(dense.sum(axis=0), 1)
    for part, each in zip(share, np.split(weight.astype(float), 2, axis=1), strict=False):
        bias = bias + part * (x @ each) @ (x @ each).T
    bias = (np.maximum(bias, 0) + 1e-9) * dense
    wanted = bias / np.maximum(bias.sum(axis=0), 1e-30)
    sampler, draws = learned_jgs.SAMPLERS["pass"]((400,)), 400
    A = Matrix(graph, key=jax.random.key(0))
    drawn = sampler.layer(A, jnp.asarray(FRONTIER), draws, sampler.init(graph)).aligned()
    number = int(drawn.num_edges)
    assert number == draws * (dense[:, FRONTIER].sum(axis=0) > 0).sum()
    row = np.asarray(drawn.row())[np.asarray(drawn.edges.row)[:number]]
    column = FRONTIER[np.asarray(drawn.edges.column)[:number]]
    found = np.asarray(drawn.edge_probs)[:number] / draws
    np.testing.assert_allclose(found, wanted[row, column], rtol=1e-4, atol=1e-7)
    positive = (wanted[:, FRONTIER] > 1e-6).sum()
    assert 0.2 < positive / dense[:, FRONTIER].sum() < 0.8  # the ReLU matters


def test_both_sides_have_the_benchmarks_samplers():
    (benchmark,) = [b for b in contenders.BENCHMARKS if b.key == "learned"]
    assert [c.module for c in benchmark.contenders] == ["learned_jgs", "learned_dgl"]
    assert {s["sampler"] for s in benchmark.settings} == set(learned_jgs.SAMPLERS)
