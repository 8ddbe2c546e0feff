"""`Run.explain` of typed graphs: dense users, sparse items, and shops with learned rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import rarely
from flax import nnx
from refusals import refused
from trained import untrained

from jgs import Graph
from jgs.graph import TypedFeatures
from jgs.models import MODELS
from jgs.train.config import Config
from jgs.train.loop.model import Types, shape_of_types

RNG = np.random.default_rng(0)
COUNTS = {"user": 12, "item": 9, "shop": 3}
EDGES = {
    ("user", "buys", "item"): (RNG.integers(0, 12, 40), RNG.integers(0, 9, 40)),
    ("item", "at", "shop"): (np.arange(9), np.arange(9) % 3),
}
GRAPH = Graph.from_relations(COUNTS, EDGES, both_ways=True)
ITEMS = scipy.sparse.random(9, 6, 0.5, "csr", np.float32, RNG)
USERS = RNG.normal(size=(12, 2)).astype(np.float32)
FEATURES = TypedFeatures.from_dict(GRAPH.schema, {"user": USERS, "item": ITEMS})
OF = {"graph": GRAPH, "features": FEATURES}
NODE = 4  # an item
ALL = (-1, -1)


def run_of(name, **options):
    own = {"heads": 2} if name in ("hgt", "rgat") else {}
    model = MODELS[name](FEATURES.widths, 8, 3, 2, schema=GRAPH.schema, rngs=nnx.Rngs(0), **own)
    biases = jax.random.normal(jax.random.key(1), model.inputs.bias.shape)
    model.inputs.bias[...] = biases  # which begin as zeros
    of_types = shape_of_types(Types(FEATURES.widths, GRAPH.schema))
    return untrained(model, 8, 3, Config(**options), sparse=True, **of_types)


def changed(run, by):
    """The run's outputs for `NODE`, with a number added to each feature or learned row."""
    tables = {"user": USERS + by.get("user", 0), "item": ITEMS.toarray() + by.get("item", 0)}
    features = TypedFeatures.from_dict(GRAPH.schema, tables)
    table = run.model.inputs.embedding
    kept = table[...]
    table[...] = kept + by.get("shop", 0)
    found = run.logits([NODE], node_type="item", graph=GRAPH, features=features)[0]
    table[...] = kept
    return found


@pytest.mark.parametrize("name", rarely(["rsage", "rgat"], 0))
def test_gradients_are_those_of_finite_differences(name):
    """What each feature adds: the slope of the output by it, times the feature."""
    run, step = run_of(name), 2e-2
    of = {"node_type": "item", "target": 1, "fanouts": ALL}
    found = run.explain(NODE, **of, **OF)
    assert found.output == pytest.approx(run.logits([12 + NODE], **OF)[0, 1], abs=1e-4)
    widths = {kind: rows.shape[1] for kind, rows in found.features.items()}
    assert widths == {"user": 2, "item": 6, "shop": 8}
    table = found.node_table()
    learned = np.asarray(run.model.inputs.embedding[...])
    values = {"user": USERS, "item": ITEMS.toarray(), "shop": learned}
    for kind, rows in found.features.items():
        ids = table["id"][table["type"] == kind]
        assert rows.shape[0] == ids.size > 0
        np.testing.assert_allclose(table["value"][table["type"] == kind], rows.sum(1))
        assert np.abs(rows).max() > 0
        place, column = np.unravel_index(np.abs(rows).argmax(), rows.shape)
        one = np.zeros_like(values[kind])
        one[ids[place], column] = step
        more, less = (changed(run, {kind: sign * one})[1] for sign in (1, -1))
        want = (more - less) / (2 * step) * values[kind][ids[place], column]
        assert rows[place, column] == pytest.approx(want, abs=2e-2, rel=5e-2)


@pytest.mark.parametrize("name", rarely(["rgcn", "hgt"], 1))
def test_integrated_gradients_are_complete(name):
    run = run_of(name)
    of = {"node_type": "item", "fanouts": ALL, "method": "integrated", "steps": 200}
    found = run.explain(NODE, **of, **OF)
    nothing = {"user": -USERS, "item": -ITEMS.toarray()}
    nothing["shop"] = -np.asarray(run.model.inputs.embedding[...])
    zeros = changed(run, nothing)[found.target]
    total = sum(rows.sum() for rows in found.features.values())
    assert total == pytest.approx(found.output - zeros, abs=0.02, rel=0.02)
    relations = found.edge_table()["relation"]
    assert {*relations[found.hop == 0]} == {"buys", "rev_at"}  # into an item
    assert {*relations[found.hop == 1]} == {"buys", "rev_at", "rev_buys", "at"}  # and into all
    none = {triple: (np.zeros(0, int),) * 2 for triple in EDGES}
    lonely = Graph.from_relations(COUNTS, none, both_ways=True)
    silent = run.logits([12 + NODE], graph=lonely, features=FEATURES)[0, found.target]
    if name == "rgcn":  # HGT's residual has a GELU, of nothing where there are no messages
        assert found.edges.sum() == pytest.approx(found.output - silent, abs=0.02, rel=0.02)
    assert np.abs(found.edges).max() > 0


def test_features_that_do_not_fit_are_refused():
    run = run_of("rgcn")
    fewer = COUNTS | {"shop": 2}
    other = Graph.from_relations(fewer, {("user", "buys", "item"): ([0], [0])}, both_ways=True)
    less = {
        triple: (ends[0], ends[1] % 2) if triple[2] == "shop" else ends
        for triple, ends in EDGES.items()
    }
    small = Graph.from_relations(fewer, less, both_ways=True)
    own = {"user": USERS, "item": ITEMS}

    def of(graph, tables):
        return {"graph": graph, "features": TypedFeatures.from_dict(graph.schema, tables)}

    for given, said in (
        (of(GRAPH, {"user": USERS}), "widths [2, 6, 0]*got user 2, item none"),
        (of(small, own), "as many nodes, [3]*and [2] nodes"),
        (of(other, own), "the relations that the run was trained with"),
        (of(GRAPH, own) | {"graph": small}, "the node types of the graph"),
        (
            {"graph": GRAPH, "features": jnp.zeros((24, 5))},
            "features must be [N, 8], with the run's columns",
        ),
    ):
        refused(said, run.explain, 0, **given)
