"""Evaluation by several ranks against evaluation on one machine."""

from functools import partial
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import scipy.sparse
from cases import cases
from flax import nnx
from refusals import refused
from small_runs import comm_of

from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.models import GAT, GCN, GraphSAGE
from jgs.train import exact_inference

N = 120
OFFSETS = {1: [0, N], 2: [0, 50, N], 4: [0, 31, 31, 80, N]}
ASKED = np.array([0, 3, 30, 31, 49, 50, 79, 81, 110, N - 1], np.int32)[::-1]
MODELS = {name: partial(GraphSAGE, reduce=name) for name in ("mean", "max")}
MODELS |= {"gcn": GCN, "gat": partial(GAT, heads=2)}


@cases(
    "size, name, memory",
    (2, "gcn", 40_000),
    (2, "gat", 40_000),
    (4, "max", 40_000),
)
def test_equals_one_machine(make_graph, size, name, memory, tmp_path):
    x = np.random.default_rng(size).standard_normal((N, 7)).astype(np.float32)
    # A rank's rows may lie in several tables, one for each part.
    rows = [np.split(x[a:b], [9]) for a, b in pairwise(OFFSETS[size])]
    check(make_graph(N, 900), jnp.asarray(x), rows, name, size, memory, tmp_path)


def test_sparse_features_and_weights(make_graph, tmp_path):
    x = scipy.sparse.random(N, 30, 0.1, "csr", np.float32, np.random.default_rng(1))
    rows = [SparseFeatures.from_scipy(x[a:b]) for a, b in pairwise(OFFSETS[2])]
    whole = SparseFeatures.from_scipy(x)
    check(make_graph(N, 900), whole, rows, "mean", 2, 256 << 20, tmp_path, True)


def check(graph, x, rows, name, size, memory, scratch, weighted=False):
    comm = comm_of(size)
    # The last layer is narrower than its input: it projects before it aggregates.
    model = MODELS[name](x.shape[1], 12, 3, 3, rngs=nnx.Rngs(0))
    params, offsets = nnx.state(model), np.array(OFFSETS[size])
    want = exact_inference(model, graph, x, weighted=weighted)(params, ASKED)
    owner = np.searchsorted(offsets, ASKED, side="right") - 1
    nodes = [ASKED[owner == rank] for rank in range(size)]
    options = (memory, scratch, weighted)
    infer = exact_inference(model, [graph] * size, rows, *options, comm=comm, offsets=offsets)
    before = comm.counters.rounds
    for _ in range(2):  # the second time reuses programs and shapes
        for rank, got in enumerate(infer(params, nodes)):
            np.testing.assert_allclose(got, want[owner == rank], rtol=1e-4, atol=1e-5)
    assert (comm.counters.rounds == before) == (size == 1)  # one rank has no other to ask
    if size == 2:
        refused("ids from 0 to 49; got 50", infer, params, [np.array([50]), np.array([51])])


def test_a_disk_that_nobody_chose_is_named(make_graph, tmp_path, caplog):
    graph, x = make_graph(N, 900), np.zeros((N, 7), np.float32)
    model = GraphSAGE(7, 64, 3, 2, rngs=nnx.Rngs(0))
    rows = [x[a:b] for a, b in pairwise(OFFSETS[2])]
    for memory, scratch, said in ((15 << 10, None, 1), (20 << 10, None, 0), (1, tmp_path, 0)):
        caplog.clear()
        with caplog.at_level("INFO", "jgs"):
            ranks = {"comm": comm_of(2), "offsets": OFFSETS[2]}
            exact_inference(model, [graph] * 2, rows, memory, scratch, **ranks)
        assert caplog.text.count("1 MiB a rank in files, on ranks 0, 1 in the system's") == said
