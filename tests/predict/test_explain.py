"""`Run.explain` against closed forms, completeness, and predictions from sampled neighbours."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from refusals import refused
from trained import untrained

import jgs
from jgs.models import MODELS, GraphSAGE
from jgs.train.config import Config

N, F, C = 20, 4, 3
_RNG = np.random.default_rng(0)
GRAPH = jgs.Graph.from_edges(*_RNG.integers(0, N - 1, (2, 70)), N)  # the last node is alone
X = jnp.asarray(_RNG.normal(size=(N, F)), jnp.float32)
OF = {"graph": GRAPH, "features": X}
NODE = 3


def run_of(model, **options):
    return untrained(model, F, C, Config(**options))


def neighbors():
    indptr, indices = np.asarray(GRAPH.indptr), np.asarray(GRAPH.indices)
    return np.arange(*indptr[NODE : NODE + 2]), indices[indptr[NODE] : indptr[NODE + 1]]


@pytest.mark.parametrize("method", ["gradient", "integrated"])
def test_a_linear_model_in_closed_form(method):
    """For one layer `W_self x_v + W_neigh mean(x_u) + b` both methods give its terms."""
    model = GraphSAGE(F, 8, C, 1, rngs=nnx.Rngs(0))
    (layer,), x = model.layers, np.asarray(X)
    ids, sources = neighbors()
    own, neighbor = np.asarray(layer.self_kernel[...]), np.asarray(layer.neighbor_kernel[...])
    found = run_of(model).explain(NODE, target=1, fanouts=(-1,), method=method, steps=3, **OF)
    assert (found.node, found.target, found.nodes[0]) == (NODE, 1, NODE)
    assert found.output == pytest.approx(run_of(model).logits([NODE], **OF)[0, 1], rel=1e-5)
    want = dict.fromkeys([NODE, *sources.tolist()], 0)
    want[NODE] = x[NODE] * own[:, 1]
    for u in sources.tolist():
        want[u] = want[u] + x[u] * neighbor[:, 1] / sources.size
    assert sorted(found.nodes.tolist()) == sorted(want)
    rows = np.array([want[v] for v in found.nodes.tolist()])
    np.testing.assert_allclose(found.features, rows, rtol=1e-4, atol=1e-6)
    order = np.argsort(found.edge_id)
    np.testing.assert_array_equal(found.edge_id[order], ids)
    np.testing.assert_array_equal(found.src[order], sources)
    assert set(found.dst.tolist()) == {NODE}
    assert set(found.hop.tolist()) == {0}
    each = x[sources] @ neighbor[:, 1] / sources.size
    np.testing.assert_allclose(found.edges[order], each, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sage", "max", "gatv2"])
def test_integrated_gradients_are_complete(name):
    """They add up to the output less that of zero features, or without messages."""
    own = {"max": {"reduce": "max"}, "gatv2": {"heads": 2}}.get(name, {})
    make = MODELS["sage" if name == "max" else name]
    model = make(F, 8, C, 2, rngs=nnx.Rngs(1), **own)
    run, asked = run_of(model), {"fanouts": (-1, -1), "method": "integrated", "steps": 300}
    found = run.explain(NODE, **asked, **OF)
    logits = run.logits([NODE], **OF)[0]
    assert found.target == logits.argmax()
    assert found.output == pytest.approx(logits.max(), rel=1e-4)
    zeros = run.logits([NODE], graph=GRAPH, features=jnp.zeros_like(X))[0]
    assert found.features.sum() == pytest.approx(
        found.output - zeros[found.target], abs=0.02, rel=0.02
    )
    if name != "gatv2":  # gatv2's softmax counts a silent edge, too
        lonely = jgs.Graph(np.zeros(N + 1, np.int64), np.zeros(0, np.int32))
        silent = run.logits([NODE], graph=lonely, features=X)[0]
        assert found.edges.sum() == pytest.approx(
            found.output - silent[found.target], abs=0.02, rel=0.02
        )
    assert np.abs(found.edges).max() > 0
    assert set(found.hop.tolist()) == {0, 1}


def test_sampled_predictions_belong_to_key_and_node():
    model = MODELS["gcn"](F, 8, C, 2, rngs=nnx.Rngs(2))
    run = run_of(model, batch_size=8)
    nodes, key = np.array([5, 19, 5, 0, *range(7, 16)]), jax.random.key(1)
    exact = run.logits(nodes, **OF)
    every = run.logits(nodes, fanouts=(-1, -1), **OF)
    np.testing.assert_allclose(every, exact, rtol=1e-4, atol=1e-5)
    some = run.logits(nodes, fanouts=(2, 1), key=key, **OF)
    assert np.abs(some - exact).max() > 1e-3
    again = run.logits(nodes[::-1][3:9], fanouts=(2, 1), key=key, **OF)
    np.testing.assert_allclose(again, some[::-1][3:9], rtol=1e-4, atol=1e-5)
    told = run.predict(nodes, fanouts=(2, 1), key=key, **OF)
    np.testing.assert_array_equal(told.prediction, some.argmax(1))
    assert run.logits([], fanouts=(2, 1), **OF).shape == (0, C)
    found = run.explain(N - 1, **OF)  # this node is no one's neighbour
    assert (found.nodes.tolist(), found.edges.size) == ([N - 1], 0)


def test_what_cannot_be_explained():
    run = run_of(MODELS["gcn"](F, 8, C, 2, rngs=nnx.Rngs(2)))
    narrow = {"graph": GRAPH, "features": X[:, :3]}
    for call, said in (
        (lambda: run.explain(N, **OF), f"ids from 0 to {N - 1}; got {N}"),
        (lambda: run.explain([1, 2], **OF), "one node is explained at a time; got 2"),
        (lambda: run.explain(1.5, **OF), "nodes must be integers [n]; got float64[1]"),
        (lambda: run.explain(1, **narrow), "must be [N, 4], with the run's columns"),
        (lambda: run.explain(1, fanouts=(3,), **OF), "2 layers"),
        (lambda: run.explain(1, method="guess", **OF), "gradient, integrated"),
        (lambda: run.explain(1, target=C, **OF), "class from 0 to 2; got 3"),
        (lambda: run.explain(1, steps=0, method="integrated", **OF), "steps must be"),
        (lambda: run.predict([1], fanouts=(2, 0), **OF), "fanouts must be"),
    ):
        refused(said, call)
