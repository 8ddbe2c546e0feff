"""Evaluation by several ranks against evaluation on one machine."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from flax import nnx

from jgs.dist.communicators.comm import Alone
from jgs.dist.communicators.mesh import Mesh
from jgs.graph.features import SparseFeatures
from jgs.models import GraphSAGE
from jgs.train import exact_inference

N = 120
OFFSETS = {1: [0, N], 2: [0, 50, N], 4: [0, 31, 31, 80, N]}


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.parametrize("memory", [256 << 20, 40_000])  # one piece, and many
def test_equals_one_machine(make_graph, size, reduce, memory, tmp_path):
    graph = make_graph(N, 900)
    rng = np.random.default_rng(size)
    x = rng.standard_normal((N, 7)).astype(np.float32)
    check(graph, [x], size, reduce, memory, tmp_path, 0)


@pytest.mark.parametrize("size", [1, 2])
def test_sparse_features_and_weights(make_graph, size, tmp_path):
    graph = make_graph(N, 900)
    x = scipy.sparse.random(N, 30, 0.1, "csr", np.float32, np.random.default_rng(1))
    check(graph, x, size, "mean", 256 << 20, tmp_path, 1)


def test_a_disk_that_nobody_chose_is_named(make_graph, tmp_path, caplog):
    graph, x = make_graph(N, 900), np.zeros((N, 7), np.float32)
    model = GraphSAGE(7, 64, 3, 2, rngs=nnx.Rngs(0))
    rows = [x[a:b] for a, b in pairwise(OFFSETS[2])]
    for memory, scratch, said in ((15 << 10, None, 1), (20 << 10, None, 0), (1, tmp_path, 0)):
        caplog.clear()
        with caplog.at_level("INFO", "jgs"):
            exact_inference(
                model, [graph] * 2, rows, memory, scratch,
                comm=Mesh(jax.devices()[:2]), offsets=OFFSETS[2],
            )  # fmt: skip
        assert caplog.text.count("1 MiB a rank in files, on ranks 0, 1 in the system's") == said


def check(graph, x, size, reduce, memory, scratch, weighted):
    comm = Mesh(jax.devices()[:size]) if size > 1 else Alone()
    offsets = np.array(OFFSETS[size])
    widths = (30, 12) if weighted else (7, 12)
    # The last layer is narrower than its input: it projects before it aggregates.
    model = GraphSAGE(*widths, 3, 3, reduce=reduce, rngs=nnx.Rngs(0))
    params = nnx.state(model)
    asked = np.array([0, 3, 30, 31, 49, 50, 79, 81, 110, N - 1], np.int32)
    parts = list(pairwise(offsets))
    if weighted:
        features = [SparseFeatures.from_scipy(x[a:b]) for a, b in parts]
        whole = SparseFeatures.from_scipy(x)
    else:
        features, whole = [[x[0][a:b]] for a, b in parts], jnp.asarray(x[0])
    want = exact_inference(model, graph, whole, weighted=bool(weighted))(params, asked)
    nodes = [asked[(asked >= a) & (asked < b)] for a, b in parts]
    options = (memory, scratch, bool(weighted))
    infer = exact_inference(
        model, [graph] * size, features, *options, comm=comm, offsets=offsets
    )
    for _ in range(2):  # the second time reuses programs and shapes
        got = np.concatenate(infer(params, nodes))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
