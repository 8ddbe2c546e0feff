"""`load`: names and options, and the data set `synthetic`."""

import operator
import os
import tracemalloc

import numpy as np
import pytest
import scipy.sparse
from folders import cases, refused

from jgs.data import LOADERS, load


@pytest.mark.parametrize("name", sorted(LOADERS.keys() - {"synthetic"}))
def test_every_loader_names_the_place_where_nothing_is(name, tmp_path):
    refused(str(tmp_path), load, name, tmp_path)  # no file there, and no network


def test_unknown_names_and_options_list_the_known(arrays, tmp_path):
    refused("synthetic, cora*snap, or a path; got 'corra'", load, "corra")
    np.savez(tmp_path / "ring.npz", **arrays)
    refused("num_nodes, num_edges*got nois", load, "synthetic", nois=1)
    says = "normalize_features, symmetric, split, label_kind; got nois"
    refused(says, load, tmp_path / "ring.npz", nois=1)
    refused("options", load, "synthetic", path="x")


@cases(
    "name, option, value, kind",
    ("ogbn-arxiv", "symmetric", 0, "bool"),
    ("ogbn-arxiv", "cache", 1, "str or PathLike or None"),
    ("cora", "normalize_features", None, "bool"),
    ("ring.npz", "normalize_features", "maybe", "bool or None"),
    ("synthetic", "num_nodes", 50.0, "int"),
    ("synthetic", "num_nodes", True, "int"),
    ("synthetic", "noise", "two\nlines", "float"),
    ("synthetic", "noise", False, "float"),
)
def test_options_must_be_of_their_type(name, option, value, kind, arrays, tmp_path):
    np.savez(tmp_path / "ring.npz", **arrays)
    says = f"option {option} of the data set {name} must be of type {kind}; got"
    refused(says, load, name, tmp_path, **{option: value})


def test_options_of_their_type_are_taken(arrays, tmp_path):
    sizes = {"num_nodes": np.int64(50), "num_edges": 100}
    for noise in (1, 0.5, np.float32(0.5)):
        assert load("synthetic", **sizes, noise=noise).graph.num_nodes == 50
    np.savez(tmp_path / "ring.npz", **arrays)
    for value in (True, np.True_, None):
        assert load("ring.npz", tmp_path, normalize_features=value).name == "ring"


def test_paths_that_are_no_data_set(tmp_path, monkeypatch):
    (tmp_path / "x.bin").touch()
    refused("must end in", load, "x.bin", tmp_path)
    (folder := tmp_path / "folder").mkdir()
    refused("got 0 of them", load, folder)
    for name in ("features.npy", "ind.cora.graph"):  # two layouts, of which none is guessed
        (folder / name).touch()
    refused("got 2 of them", load, folder)
    monkeypatch.setattr("jgs.data.formats.synthetic._check_memory", lambda *sizes: None)
    sizes = {"num_nodes": 100, "num_edges": 10, "num_features": 2**45}
    refused("synthetic must fit in memory *Unable", load, "synthetic", **sizes)


# -- synthetic ---------------------------------------------------------------------------------

SMALL = {"num_nodes": 8000, "num_edges": 160_000}


@pytest.fixture(scope="module")
def small():
    return load("synthetic", **SMALL)


def adjacency(dataset):
    graph = dataset.graph
    ones = np.ones(graph.num_edges, np.float32)
    return scipy.sparse.csr_matrix((ones, np.asarray(graph.indices), np.asarray(graph.indptr)))


def accuracy(dataset, x):
    """The accuracy of a linear classifier on `x`, fitted to the training split."""
    x = np.c_[(x - x.mean(0)) / x.std(0), np.ones(len(x))]
    train, test, y = dataset.train_idx, dataset.test_idx, dataset.labels
    weight = np.linalg.lstsq(x[train], np.eye(dataset.num_classes)[y[train]])[0]
    return float((np.argmax(x[test] @ weight, axis=1) == y[test]).mean())


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
    names = ("graph.indptr", "graph.indices", "features", "labels", "train_idx", "test_idx")
    for read in map(operator.attrgetter, names):
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


def test_bad_options():
    wrong = {
        "num_nodes": (0, 2.5, 4),
        "num_edges": (3, -2, 9902, 10**18),
        "num_classes": (0, 2**63),
        "num_features": (True, 2**45),
        "seed": (-1,),
        "noise": (float("nan"), -1, "much"),
        "homophily": (1.5,),
        "exponent": (2,),
    }
    for option, values in wrong.items():
        for value in values:
            options = {"num_nodes": 100, "num_edges": 200} | {option: value}
            refused("", load, "synthetic", **options)


@cases(
    "sizes",
    {"num_nodes": 50_000, "num_edges": 1000, "num_features": 1},
    {"num_nodes": 5_000, "num_edges": 200_000, "num_features": 8},
    {"num_nodes": 5_000, "num_edges": 10_000, "num_features": 200},
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
    refused("must fit in memory", load, "synthetic", **sizes)
