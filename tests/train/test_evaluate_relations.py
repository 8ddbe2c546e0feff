"""Exact evaluation of models of typed graphs: equal to the model applied to all neighbours."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import cases, rarely
from flax import nnx
from small_runs import comm_of, on_all_neighbours

from jgs import Graph, InputError
from jgs.graph import TypedFeatures
from jgs.models import HGT, RGAT, RGCN, RSAGE, GraphSAGE, RSAGEConv, TypedGNN, TypedInputs
from jgs.ops import gather
from jgs.train import exact_inference
from jgs.train.evaluation import edge_pieces, exact

COUNTS = {"paper": 40, "author": 30, "topic": 9}


def hub_graph():
    """A hub (paper 7), a relation of one edge, papers without edges; all edges have prices."""
    rng = np.random.default_rng(0)
    many = (rng.integers(0, 30, 300), np.full(300, 7))
    writes = (np.r_[rng.integers(0, 30, 90), many[0]], np.r_[rng.integers(0, 35, 90), many[1]])
    cites = (rng.integers(0, 40, 200), np.r_[rng.integers(0, 35, 80), np.full(120, 7)])
    edges = {
        ("author", "writes", "paper"): writes,
        ("paper", "cites", "paper"): cites,
        ("paper", "about", "topic"): (rng.integers(0, 40, 60), rng.integers(0, 9, 60)),
        ("topic", "names", "author"): ([3], [4]),
    }
    prices = {r: {"price": rng.random(len(ends[0]))} for r, ends in edges.items()}
    return Graph.from_relations(COUNTS, edges, edge_columns=prices)


def features_of(graph):
    rng = np.random.default_rng(1)
    papers = rng.standard_normal((40, 5)).astype(np.float32)
    topics = scipy.sparse.random(9, 30, 0.3, format="csr", rng=rng)
    return TypedFeatures.from_dict(graph.schema, {"paper": papers, "topic": topics})


class PricedConv(RSAGEConv):
    """A layer of a user's, whose messages read other columns beside the relation."""

    edge_columns, message_width = ("type", "price", "id"), 12

    def edge_message(self, message, edge):
        priced = message * edge["price"].astype(jnp.float32)[:, None]
        with jax.enable_x64(True):
            number = (edge["id"] % 5).astype(jnp.float32)
        return jnp.hstack([priced, jnp.sin(message[:, :4]) + (edge["type"] + number)[:, None]])

    def kernels(self):  # rows of 12 for the 4 units more
        return jnp.concatenate([super().kernels(), super().kernels()[:, :4]], axis=1)


def priced(widths, hidden, out, num_layers, schema, rngs):
    inputs = TypedInputs(widths, hidden, schema=schema, rngs=rngs)
    shapes = [(hidden, hidden)] * (num_layers - 1) + [(hidden, out)]
    layers = [
        PricedConv(*shape, len(schema.relations), reduce=reduce, rngs=rngs)
        for shape, reduce in zip(shapes, ("mean", "max"), strict=True)
    ]
    return TypedGNN(inputs, layers, rngs=rngs)


PRICE = {"edge_columns": ("price",), "edge_width": 1, "edge_scales": ((0.5, 3.0),)}
MODELS = {
    "priced": priced,
    "rgcn": lambda *of, **options: RGCN(*of, bases=2, **options),
    "rsage max": lambda *of, **options: RSAGE(*of, reduce="max", **options),
    "rgat priced": lambda *of, **options: RGAT(*of, heads=2, out_heads=3, **PRICE, **options),
    "hgt": lambda *of, **options: HGT(*of, heads=2, **options),
}


def model_of(name, graph, widths, **options):
    return MODELS[name](widths, 8, 4, 2, schema=graph.schema, **options, rngs=nnx.Rngs(2))


@cases("name, memory", *((name, 6_000) for name in MODELS), ("rgcn", 256 << 20))
def test_equals_the_model_on_all_neighbours(name, memory, tmp_path, monkeypatch, noted):
    graph = hub_graph()
    features = features_of(graph)
    model = model_of(name, graph, features.widths)
    nodes = np.array([7, 0, 44, 36, 39, 75, 78, 44], np.int32)
    want = on_all_neighbours(model, graph, features, nodes)
    pieces = noted(edge_pieces, "rows_by_relation")
    monkeypatch.setattr(exact, "mapped_at_most", lambda memory: memory)
    infer = exact_inference(model, graph, features, memory, tmp_path)
    np.testing.assert_allclose(infer(nnx.state(model), nodes), want, rtol=2e-4, atol=2e-5)
    if memory == 6_000:  # the hub's edges are in several pieces
        assert max(len(relations) for _, relations, _ in pieces) < graph.degrees()[7] / 2


@pytest.mark.parametrize("name", rarely(["rgcn", "hgt"], 1))
def test_ranks_equal_one_machine(name, tmp_path):
    """Each rank has the features of its own nodes, in tables of their types."""
    graph = hub_graph()
    features = features_of(graph)
    model, offsets = model_of(name, graph, features.widths), np.array([0, 25, 79])
    nodes = np.array([0, 7, 24, 25, 36, 44, 75, 78], np.int32)
    want = exact_inference(model, graph, features)(nnx.state(model), nodes)
    own = []
    for first, last in pairwise(offsets):
        ids = np.arange(first, last)
        tables = {}
        for kind, table in (("paper", features.table("paper")), ("topic", None)):
            of = graph.schema.nodes(kind)
            mine = ids[(ids >= of.start) & (ids < of.stop)] - of.start
            rows = table[mine] if table is not None else gather(features.table("topic"), mine)
            tables[kind] = np.asarray(rows)
        own.append(TypedFeatures.from_dict(graph.schema.of_nodes(ids), tables))
    parts = [nodes[(nodes >= a) & (nodes < b)] for a, b in pairwise(offsets)]
    options = {"comm": comm_of(2), "offsets": offsets}
    infer = exact_inference(model, [graph] * 2, own, 20_000, tmp_path, **options)
    for _ in range(2):
        got = np.concatenate(infer(nnx.state(model), parts))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_other_models_are_refused():
    graph = hub_graph()
    with pytest.raises(InputError, match=r"one of typed graphs.*GraphSAGE"):
        exact_inference(GraphSAGE(5, 8, 4, 2, rngs=nnx.Rngs(0)), graph, features_of(graph))
