"""`LearnedRows`: the rows of nodes without features, which a run trains sparsely."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jgs import Graph, Schema
from jgs.dist.communicators.comm import Alone
from jgs.graph import TypedFeatures
from jgs.models import RGCN
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.train import exact_inference
from jgs.train.loop.learned import LearnedRows, rows_by_type
from jgs.train.loop.step import init_state, make_optimizer, make_train_step

COUNTS, WIDTHS = {"author": 12, "paper": 15, "venue": 4}, (0, 3, 0)
PARTS = ((5, 8, 1), (7, 7, 3))  # ids of a partitioned graph: part by part, then by type
SCHEMAS = {
    "whole": Schema(tuple(COUNTS.items())),
    "parts": Schema(tuple(COUNTS.items()), (), PARTS),
}
DECAY, KEY = 0.01, jax.random.key(7)
RATE = optax.cosine_decay_schedule(0.1, 8)


def typed_graph():
    rng = np.random.default_rng(0)
    edges = {
        ("author", "writes", "paper"): (rng.integers(0, 12, 60), rng.integers(0, 15, 60)),
        ("venue", "prints", "paper"): (rng.integers(0, 4, 15), np.arange(15)),
    }
    return Graph.from_relations(COUNTS, edges, both_ways=True)


def model_of(schema, embedding):
    model = RGCN(
        WIDTHS, 4, 3, 2, schema=schema, embedding=embedding, dropout=0.0, rngs=nnx.Rngs(0)
    )
    model.layers = RGCN(WIDTHS, 4, 3, 2, schema=schema, rngs=nnx.Rngs(1)).layers
    return model


def rows_of(schema):
    inputs = model_of(typed_graph().schema, False).inputs
    return LearnedRows(Alone(), inputs, schema, [0, schema.num_nodes], KEY, DECAY)


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_node_without_features_has_a_row_of_its_own(name):
    schema = SCHEMAS[name]
    nodes = np.arange(-1, schema.num_nodes + 2, dtype=np.int32)
    rows = rows_of(schema)
    ids = np.asarray(rows._place.of(jnp.asarray(nodes)))
    real = (nodes >= 0) & (nodes < schema.num_nodes)
    bare = np.zeros(nodes.size, bool)
    bare[real] = schema.numbers(nodes[real]) != 1
    np.testing.assert_array_equal(ids[bare], np.arange(16))  # in the order of their ids
    assert (ids[~bare] == 16).all()  # none
    before = rows._place.before(np.arange(schema.num_nodes + 1))
    np.testing.assert_array_equal(before, np.r_[0, np.cumsum(bare[real])])
    # By type, as the models have them: each type's in the order of their ids.
    by_type = rows_by_type(schema, WIDTHS, ids[bare])
    want = [ids[1:-2][schema.numbers(nodes[real]) == t] for t in (0, 2)]
    np.testing.assert_array_equal(by_type, np.concatenate(want))


def trained(schema_rows, seeds_of, steps):
    """A model that has its rows, and one with `LearnedRows`: rows by type, and parameters."""
    graph = typed_graph()
    features = TypedFeatures.from_dict(
        graph.schema, {"paper": np.random.default_rng(1).normal(size=(15, 3))}
    )
    labels = jnp.asarray(np.arange(graph.num_nodes) % 3, jnp.int32)
    dense, sparse = (model_of(graph.schema, embedding) for embedding in (True, False))
    first = rows_by_type(graph.schema, WIDTHS, schema_rows.table.own_rows()[0])
    dense.inputs.embedding[...] = jnp.asarray(first)
    optimizer = make_optimizer(RATE, DECAY)
    states, programs = [], []
    for model, learned in ((dense, False), (sparse, True)):
        graphdef, params = nnx.split(model)
        states.append(init_state(params, optimizer))
        programs.append(make_train_step(graphdef, optimizer, learned=learned))
    for step in range(steps):
        seeds = seeds_of(step).astype(np.int32)
        batch = sample_neighbors(KEY, graph, seeds, (-1, -1), edges=("type",))
        x = gather(features, batch.nodes)
        states[0] = programs[0](states[0], KEY, batch, x, labels)
        filled, token = schema_rows.fill(batch, x)
        states[1], gradient = programs[1](states[1], KEY, batch, filled, labels)
        schema_rows.push(token, gradient, RATE(step))
    found = rows_by_type(graph.schema, WIDTHS, schema_rows.table.own_rows()[0])
    return graph, features, (dense, sparse), states, first, found


def test_where_every_batch_has_all_rows_training_is_that_of_dense_adam():
    """With a schedule of the rate, and weight decay."""
    rows = rows_of(typed_graph().schema)
    graph, features, (dense, sparse), states, first, found = trained(
        rows, lambda step: np.arange(12, 27), 5
    )
    want = dict(nnx.to_flat_state(states[0].params))
    embedding = np.asarray(want.pop(("inputs", "embedding"))[...])
    assert np.abs(embedding - first).min() > 1e-4  # all have moved
    np.testing.assert_allclose(found, embedding, rtol=1e-3, atol=1e-5)
    for path, value in nnx.to_flat_state(states[1].params):
        np.testing.assert_allclose(value[...], want[path][...], rtol=1e-3, atol=1e-5)
    # Exact evaluation reads the rows as tables of their types.
    infer, seeds = exact_inference(dense, graph, features), np.arange(31)
    expected = infer(states[0].params, seeds)
    given = rows.features([features], rows.table.own_rows())[0]
    got = exact_inference(sparse, graph, features)(states[1].params, seeds, features=given)
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-4)


def test_rows_that_no_batch_reads_stay():
    rows = rows_of(typed_graph().schema)
    graph, *_, first, found = trained(rows, lambda step: np.array([14 + step]), 2)
    batch = sample_neighbors(KEY, graph, np.array([14, 15], np.int32), (-1, -1))
    read = np.asarray(batch.nodes)
    read = rows_by_type(graph.schema, WIDTHS, np.isin(np.r_[0:12, 27:31], read))
    assert 0 < read.sum() < 16
    np.testing.assert_array_equal(found[~read], first[~read])
    assert (np.abs(found - first).max(axis=1)[read] > 1e-3).all()
