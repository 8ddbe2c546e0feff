import os
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize

from jgs import InputError
from jgs.data import load

SMALL = {"num_nodes": 8000, "num_edges": 160_000}


@pytest.fixture(scope="module")
def small():
    return load("synthetic", **SMALL)


def adjacency(dataset):
    graph = dataset.graph
    ones = np.ones(graph.num_edges, np.float32)
    return scipy.sparse.csr_matrix((ones, np.asarray(graph.indices), np.asarray(graph.indptr)))


def accuracy(dataset, x):
    """The accuracy of logistic regression on `x`, trained on the training split."""
    x = np.asarray(x, np.float64)
    x = np.c_[(x - x.mean(0)) / x.std(0), np.ones(len(x))]
    train, test, y = dataset.train_idx, dataset.test_idx, dataset.labels
    target = np.eye(dataset.num_classes)[y[train]]

    def loss(flat):
        w = flat.reshape(x.shape[1], -1)
        logits = x[train] @ w
        logits -= logits.max(1, keepdims=True)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        value = -np.log((p * target).sum(1)).mean() + 5e-3 * (w**2).sum()
        return value, (x[train].T @ (p - target) / len(train) + 1e-2 * w).ravel()

    start = np.zeros(x.shape[1] * dataset.num_classes)
    w = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
    return float((np.argmax(x[test] @ w.reshape(x.shape[1], -1), 1) == y[test]).mean())


def test_shape_and_symmetry(small):
    matrix = adjacency(small)
    assert small.graph.num_nodes == 8000
    assert small.graph.num_edges == 160_000
    assert matrix.has_canonical_format  # no edge is repeated
    assert matrix.diagonal().sum() == 0
    assert (matrix != matrix.T).nnz == 0
    assert (small.features.shape, small.features.dtype) == ((8000, 64), np.float32)
    assert small.num_classes == 16
    parts = np.concatenate([small.train_idx, small.val_idx, small.test_idx])
    np.testing.assert_array_equal(np.sort(parts), np.arange(8000))
    assert (len(small.train_idx), len(small.val_idx)) == (1600, 1600)


def test_degrees_have_a_power_law_tail(small):
    degree = np.sort(np.diff(np.asarray(small.graph.indptr)))[::-1]
    assert degree[0] > 20 * degree.mean()
    # Hill's estimate of the tail's exponent, over the top 2 %; 2.5 was asked for.
    top = degree[:160]
    exponent = 1 + 1 / np.log(top / top[-1]).mean()
    assert 2.1 < exponent < 2.9


def test_features_alone_know_half_and_neighbours_much_more(small):
    matrix, x = adjacency(small), np.asarray(small.features)
    degree = np.maximum(np.asarray(matrix.sum(1)), 1)
    alone = accuracy(small, x)
    with_neighbours = accuracy(small, np.c_[x, matrix @ x / degree])
    assert 0.4 < alone < 0.6
    assert with_neighbours > 0.8


def test_the_same_options_give_the_same_data(small):
    again = load("synthetic", **SMALL)
    other = load("synthetic", **SMALL, seed=1)
    for read in (
        lambda d: d.graph.indptr,
        lambda d: d.graph.indices,
        lambda d: d.features,
        lambda d: d.labels,
        lambda d: d.train_idx,
        lambda d: d.test_idx,
    ):
        np.testing.assert_array_equal(read(small), read(again))
        assert not np.array_equal(read(small), read(other))


def test_options_mean_what_they_say():
    options = {"num_nodes": 500, "num_edges": 3000, "num_features": 3, "num_classes": 4}
    dataset = load("synthetic", **options, noise=0.0, homophily=1.0)
    assert dataset.features.shape == (500, 3)  # fewer features than classes
    assert len(np.unique(np.asarray(dataset.features), axis=0)) == 4
    matrix = adjacency(dataset).tocoo()
    assert (dataset.labels[matrix.row] == dataset.labels[matrix.col]).all()
    assert load("synthetic", num_nodes=5, num_edges=0).graph.num_edges == 0


@pytest.mark.parametrize(
    "options",
    [
        {"num_nodes": 0},
        {"num_nodes": 2.5},
        {"num_nodes": 4},
        {"num_edges": 3},
        {"num_edges": -2},
        {"num_nodes": 10, "num_edges": 92},
        {"num_classes": 0},
        {"num_classes": 2**63},
        {"num_edges": 10**18},
        {"num_features": True},
        {"num_features": 10**6, "num_nodes": 2 * 10**9},
        {"seed": -1},
        {"noise": float("nan")},
        {"noise": -1},
        {"noise": "much"},
        {"homophily": 1.5},
        {"exponent": 2},
    ],
)
def test_bad_options(options):
    with pytest.raises(InputError):
        load("synthetic", **({"num_nodes": 100, "num_edges": 200} | options))


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_nodes": 50_000, "num_edges": 1000, "num_features": 1},
        {"num_nodes": 10_000, "num_edges": 400_000, "num_features": 8},
        {"num_nodes": 10_000, "num_edges": 20_000, "num_features": 200},
    ],
    ids=["nodes", "edges", "features"],
)
def test_what_exceeds_the_memory_is_refused_and_nothing_else(monkeypatch, sizes):
    load("synthetic", **sizes)
    tracemalloc.start()
    try:
        load("synthetic", **sizes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": peak}.get)
    load("synthetic", **sizes)
    less = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": int(0.6 * peak)}
    monkeypatch.setattr(os, "sysconf", less.get)
    with pytest.raises(InputError, match="must fit in memory"):
        load("synthetic", **sizes)
