"""Evaluation of rows that exceed the memory: read from files a few times, and in order."""

import os
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from refusals import refused

from jgs import Graph, InputError
from jgs.files import row_file
from jgs.models import GAT, GCN, GIN, GNN, GINEConv, GraphSAGE
from jgs.train import exact_inference
from jgs.train.evaluation import exact

N, WIDTH = 240, 24
MEMORY = N * WIDTH * 4 // 4  # a quarter of the rows


def gine(*widths_and_layers, rngs):
    first, hidden, out, num = widths_and_layers
    widths = [first, *[hidden] * (num - 1), out]
    edge = {"edge_columns": ("weight",), "edge_width": 1}
    return GNN([GINEConv(*pair, **edge, rngs=rngs) for pair in pairwise(widths)], rngs=rngs)


MODELS = {
    "mean": (GraphSAGE, {"reduce": "mean"}),
    "max": (GraphSAGE, {"reduce": "max"}),
    "sum": (GIN, {}),
    "gcn": (GCN, {}),
    "gat": (GAT, {"heads": 2}),
    "edges": (gine, {}),
}
IN_ORDER = ("mean", "max", "sum", "gcn")  # the others read the rows of a chunk's sources


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    """Files larger than evaluation's memory do not fit into the machine's either."""
    monkeypatch.setattr(exact, "mapped_at_most", lambda memory: memory)


@pytest.fixture
def read(monkeypatch):
    """The files that are read: for each the rows that were asked for, in each call."""
    asked, plain = {}, row_file.RowFiles.read

    def noting(self, rows, out):
        asked.setdefault(self, []).append(np.array(rows))
        plain(self, rows, out)

    monkeypatch.setattr(row_file.RowFiles, "read", noting)
    return asked


def hub_graph():
    """Node 7 has 400 in-edges, node 9 many out-edges, and the last five have none."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N - 5, (2, 2000))
    dst[:400], src[500:900] = 7, 9
    graph = Graph.from_edges(src, dst, N)
    weight = rng.choice([0, 0.5, 3], graph.num_edges).astype(np.float32)
    return Graph(graph.indptr, graph.indices, weight)


def mapped(folder, parts=1, dtype=np.float32):
    """Features in files, memory-mapped."""
    x = np.random.default_rng(1).normal(size=(N, WIDTH)).astype(dtype)
    tables = []
    for number, rows in enumerate(np.array_split(x, parts)):
        np.save(folder / f"{number}.npy", rows)
        tables.append(np.load(folder / f"{number}.npy", mmap_mode="r"))
    return x, tables[0] if parts == 1 else tables


def model_of(name, layers=2):
    """The last layer is narrower than its input, so means and sums are of products."""
    kind, options = MODELS[name]
    return kind(WIDTH, 32, 16, layers, **options, rngs=nnx.Rngs(0))


@pytest.mark.parametrize("name", MODELS)
def test_equals_the_evaluation_in_memory(name, tmp_path, monkeypatch, read):
    """And each row is read a few times, and in order."""
    graph, model = hub_graph(), model_of(name)
    x, features = mapped(tmp_path)
    some, done = np.array([7, N - 1, 3, 7, 0, 200]), []  # after each chunk of the two layers
    params, advance = nnx.state(model), {"advance": lambda *count: done.append(count)}
    infer = exact_inference(model, graph, features, MEMORY, tmp_path, **advance)
    got = infer(params, np.arange(N))
    is_read_in_order(read, name, len(done) // 2)
    got = got, infer(params, some)
    assert infer(params, some[:0]).shape == (0, 16)
    monkeypatch.setattr(exact, "mapped_at_most", lambda memory: 1 << 30)
    infer = exact_inference(model, graph, jnp.asarray(x), MEMORY, tmp_path)
    want = infer(params, np.arange(N)), infer(params, some)
    for mine, theirs in zip(got, want, strict=True):
        if name in IN_ORDER:
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5 * np.abs(theirs).max())
    assert not [file for file in os.listdir(tmp_path) if file != "0.npy"]


def is_read_in_order(read, name, chunks):
    for file, calls in read.items():
        assert all((np.diff(rows) > 0).all() for rows in calls)
        # Once as messages, once as the targets' own rows. The sources of a chunk are read once,
        # but for a hub with more edges than the memory holds.
        most = 2 if name in IN_ORDER else 2 + 2 * chunks
        times = np.bincount(np.concatenate(calls), minlength=N)
        assert times.max() <= most
        if name in IN_ORDER:
            assert times.min() >= 1
            passes = np.count_nonzero(np.diff(np.concatenate(calls)) <= 0)
            assert passes <= most - 1
        assert file.bytes >= N * file.row_bytes  # it was read
    # The features, the hidden rows, and of sums also the messages and sums, in parts.
    assert len(read) >= (5 if name in IN_ORDER else 2)


def test_several_files_of_half_precision_and_edges_that_are_left_out(tmp_path):
    graph, model = hub_graph(), model_of("mean")
    x, features = mapped(tmp_path, 3, np.float16)
    params, more = nnx.state(model), (tmp_path, True)
    got = exact_inference(model, graph, features, MEMORY, *more)(params, np.arange(N))
    want = exact_inference(model, graph, jnp.asarray(x), 1 << 30, *more)(params, np.arange(N))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_disk_that_fails_is_an_error(tmp_path, monkeypatch):
    """It refuses rows, or a file has shrunk."""
    graph, model = hub_graph(), model_of("mean")
    _, features = mapped(tmp_path)
    infer = exact_inference(model, graph, features, MEMORY, tmp_path)

    def refuse(*_):
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(InputError, match=r"write its rows.*Input/output error.*--scratch"):
            infer(nnx.state(model), np.arange(N))
    os.truncate(tmp_path / "0.npy", N * WIDTH * 2)
    refused("0.npy must stay readable*ends before", infer, nnx.state(model), np.arange(N))
