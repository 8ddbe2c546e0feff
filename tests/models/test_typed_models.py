"""Models of typed graphs: inputs of several widths, learned rows, and the whole model."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse
from derivatives import vjp
from flax import nnx

from jgs import Graph, InputError, kernels
from jgs.graph import TypedFeatures
from jgs.models import HGT, RGAT, RGCN, RSAGE, TypedInputs, typed_inputs
from jgs.ops import gather
from jgs.sampling import sample_neighbors

COUNTS = {"user": 90, "item": 60, "shop": 25, "tag": 8}
WIDTHS = (3, 40, 0, 0)


@pytest.fixture(params=["kernel", "plain"])
def path(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(kernels, "_AVAILABLE", False)
    elif not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    return request.param


def typed_graph():
    rng = np.random.default_rng(0)
    edges = {
        ("user", "buys", "item"): (rng.integers(0, 90, 400), rng.integers(0, 60, 400)),
        ("shop", "sells", "item"): (rng.integers(0, 25, 200), rng.integers(0, 60, 200)),
        ("tag", "of", "item"): (rng.integers(0, 8, 90), rng.integers(0, 60, 90)),
    }
    return Graph.from_relations(COUNTS, edges, both_ways=True)


def typed_features(schema):
    rng = np.random.default_rng(1)
    items = scipy.sparse.random(60, 40, 0.3, format="csr", rng=rng)
    users = rng.standard_normal((90, 3)).astype(np.float16)
    return TypedFeatures.from_dict(schema, {"user": users, "item": items}), items.toarray()


def test_inputs_equal_a_product_for_each_node(path, monkeypatch):
    monkeypatch.setattr(typed_inputs, "_CHUNK_ROWS", 32)  # several chunks for a type
    schema = typed_graph().schema
    features, items = typed_features(schema)
    inputs = TypedInputs(features.widths, 7, schema=schema, rngs=nnx.Rngs(0))
    graphdef, params = nnx.split(inputs)
    params = jax.tree.map(lambda p: p + 0.1, params)
    ids = np.random.default_rng(2).permutation(183).astype(np.int32)
    ids[[0, 17, 150, 182]] = [183, -1, 183, 999]  # padding anywhere
    probe = np.random.default_rng(3).standard_normal((183, 7)).astype(np.float32)

    def wanted(params):
        of = nnx.merge(graphdef, params)
        users, bias = features.table("user"), of.bias[...]
        rows = [users @ of.kernels["0"][...] + bias[0], items @ of.kernels["1"][...] + bias[1]]
        table = jnp.concatenate([*rows, of.embedding[...]])
        return table.at[ids].get(mode="fill", fill_value=0, wrap_negative_indices=False)

    def found(params):
        return nnx.merge(graphdef, params)(gather(features, ids))

    out, (grads,) = vjp(found, params, grads=probe)
    want, (want_grads,) = vjp(wanted, params, grads=probe)
    np.testing.assert_allclose(out, want, atol=2e-5)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(want_grads), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_scaled_features_are_those_of_another_unit():
    """To the bit, for powers of two."""
    schema = typed_graph().schema
    features, _ = typed_features(schema)
    ids, scales = (
        np.array([4, 160, 176, 183, 100], np.int32),
        ((0.25, 2.0, 1.0), (8.0,), (), ()),
    )
    inputs, scaled = (
        TypedInputs(WIDTHS, 7, schema=schema, scales=each, rngs=nnx.Rngs(0))
        for each in (None, scales)
    )
    units = {
        "user": features.table("user") * np.array([0.25, 2.0, 1.0]),
        "item": features.table("item").to_scipy() * 8,
    }
    same = TypedFeatures.from_dict(schema, units)
    np.testing.assert_array_equal(scaled(gather(features, ids)), inputs(gather(same, ids)))
    for wrong in (scales[:2], ((0.0,), *scales[1:]), ((1.0, 2.0), *scales[1:]), (1.0,) * 4):
        with pytest.raises(InputError, match="scales must be 1 or F positive numbers for each"):
            TypedInputs(WIDTHS, 7, schema=schema, scales=wrong, rngs=nnx.Rngs(0))


def test_learned_rows_from_elsewhere():
    schema = typed_graph().schema
    features, _ = typed_features(schema)
    ids = np.array([4, 160, 176, 183, 100], np.int32)
    inputs = TypedInputs(WIDTHS, 7, schema=schema, embedding=False, rngs=nnx.Rngs(0))
    rows = gather(features, ids)
    with pytest.raises(InputError, match="must have learned rows"):
        inputs(rows)
    learned = jnp.zeros((5, 7)).at[1].set(1.0).at[2].set(2.0)
    out = inputs(rows._replace(learned=learned))
    np.testing.assert_array_equal(out[1:4], [[1.0] * 7, [2.0] * 7, [0.0] * 7])
    own = TypedInputs(WIDTHS, 7, schema=schema, rngs=nnx.Rngs(0))
    assert own.embedding.shape == (33, 7)
    assert not hasattr(inputs, "embedding")
    with pytest.raises(InputError, match=r"the widths \(3, 40, 0, 0\).*\(3, 40, 5, 0\)"):
        own(rows._replace(tables=(*rows.tables[:2], jnp.zeros((25, 5)), None)))


@pytest.mark.parametrize("model", [RGCN, RSAGE, RGAT, HGT])
def test_a_model_learns_without_compiling_again(model):
    graph = typed_graph()
    features, _ = typed_features(graph.schema)
    made = model(features.widths, 8, 2, 2, schema=graph.schema, dropout=0.1, rngs=nnx.Rngs(0))
    assert made.typed
    assert made.edge_columns == ("type",)
    graphdef, params = nnx.split(made)
    items = graph.schema.nodes("item")
    label = jnp.asarray(np.arange(graph.num_nodes) // 2 % 2)
    optimizer = optax.adam(0.02)

    @jax.jit
    def step(params, state, batch, features, key):
        def loss(params):
            out = nnx.merge(graphdef, params)(batch, gather(features, batch.nodes), key=key)
            each = optax.softmax_cross_entropy_with_integer_labels(out, label[batch.seeds])
            return each.mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, value

    state, losses = optimizer.init(params), []
    seeds = np.arange(items.start, items.stop, 2, dtype=np.int32)
    for i in range(60):
        key = jax.random.key(i)
        batch = sample_neighbors(key, graph, seeds + i % 2, (4, 4), edges=("type",))
        params, state, loss = step(params, state, batch, features, key)
        losses.append(float(loss))
    assert step._cache_size() == 1
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])


@pytest.mark.parametrize("model", [RGCN, HGT])
def test_padding_and_its_place_change_nothing(model):
    """The same batch with seeds padded in the middle, and with more room."""
    graph = typed_graph()
    features, _ = typed_features(graph.schema)
    made = model(features.widths, 8, 2, 2, schema=graph.schema, rngs=nnx.Rngs(0))

    def outputs(seeds):
        key = jax.random.key(0)
        batch = sample_neighbors(key, graph, np.array(seeds, np.int32), (3, 3), edges=("type",))
        return made(batch, gather(features, batch.nodes))

    n = graph.num_nodes
    plain, padded = outputs([95, 3, 170]), outputs([n, 95, n, 3, 170, n, n, n, n, n])
    np.testing.assert_allclose(padded[np.array([1, 3, 4])], plain, atol=1e-5)


def test_a_batch_without_types_is_refused():
    graph = typed_graph()
    features, _ = typed_features(graph.schema)
    made = HGT(features.widths, 8, 2, 1, schema=graph.schema, rngs=nnx.Rngs(0))
    seeds = np.array([95], np.int32)
    batch = sample_neighbors(jax.random.key(0), graph, seeds, (3,), edges=("type",))
    rows = gather(features, batch.nodes)
    with pytest.raises(InputError, match=r"must have a schema, of which HGTConv reads"):
        made(replace(batch, schema=None), rows)
    with pytest.raises(InputError, match=r"must have some.*Pass the schema"):
        RGCN(WIDTHS, 8, 2, 1, schema=features.schema, rngs=nnx.Rngs(0))
