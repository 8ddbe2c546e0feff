"""The features of typed graphs, and the nodes of a batch by their type."""

import jax
import numpy as np
import scipy.sparse
from cases import cases
from refusals import refused

from jgs import Graph
from jgs.graph import Schema, SparseFeatures, TypedFeatures
from jgs.ops import gather
from jgs.sampling import sample_neighbors


def typed():
    counts = {"user": 5, "item": 7, "shop": 2}
    edges = {
        ("user", "buys", "item"): ([0, 1, 4, 4], [0, 6, 3, 3]),
        ("shop", "sells", "item"): ([0, 1, 1], [0, 0, 3]),
        ("item", "bought_by", "user"): ([2, 3], [1, 1]),
    }
    return Graph.from_relations(counts, edges)


def test_rows_say_the_type_and_the_place_of_each_node():
    graph = typed()
    items = scipy.sparse.random(7, 30, 0.3, format="csr", rng=np.random.default_rng(0))
    features = TypedFeatures.from_dict(
        graph.schema, {"user": np.eye(5, 3, dtype=np.float16), "item": items}
    )
    assert features.widths == (3, 30, 0)
    assert features.table("user").dtype == np.float16
    assert isinstance(features.table("item"), SparseFeatures)
    ids = np.array([13, 0, 5, 11, 14, -1, 4], np.int32)
    rows = jax.jit(gather)(features, ids)
    assert rows.kind.tolist() == [2, 0, 1, 1, -1, -1, 0]
    assert rows.place.tolist() == [1, 0, 0, 6, -1, -1, 4]
    assert rows.tables[2] is None
    assert rows.learned is None


def test_the_repr_has_shapes_and_no_numbers():
    tables = {"a": np.zeros((3, 2), np.float32), "c": scipy.sparse.csr_array((2, 9))}
    schema = Graph.from_relations({"a": 3, "b": 1, "c": 2}, {("a", "r", "b"): ([], [])}).schema
    shown = repr(TypedFeatures.from_dict(schema, tables))
    assert shown == "TypedFeatures(a=float32[3, 2], b=none, c=sparse float32[2, 9])"


def test_places_count_on_through_the_parts_of_a_partitioned_graph():
    schema = Schema((("a", 5), ("b", 4)), (), ((2, 3), (0, 1), (3, 0)))
    ids = np.arange(-1, 10)
    kind, place = schema.type_and_place(ids)
    assert kind.tolist() == [-1, 0, 0, 1, 1, 1, 1, 0, 0, 0, -1]
    assert place.tolist() == [-1, 0, 1, 0, 1, 2, 3, 2, 3, 4, -1]


@cases(
    "tables, says",
    ({"buyer": np.eye(5)}, "must be one of user, item, shop"),
    ({"user": np.eye(4)}, "must be [5, F], one row for each of its nodes"),
    ({"user": np.ones(5)}, "must be numbers [n, F]; got float64[5]"),
    ({"user": np.full((5, 1), np.nan)}, "finite"),
    (np.eye(14), "a dict by node type"),
)
def test_features_that_do_not_fit_their_types_are_refused(tables, says):
    refused(says, TypedFeatures.from_dict, typed().schema, tables)


def test_scales_make_features_of_any_unit_alike():
    """Powers of two; zeros of sparse features, and columns of zeros, count not."""
    schema = typed().schema
    ages = np.random.default_rng(0).uniform(18, 80, (5, 2)).astype(np.float32)
    ages[:, 1] = ages[:, 1] > 50  # a column of 0 and 1
    words = scipy.sparse.random(7, 9, 0.2, "csr", np.float32, np.random.default_rng(1))
    words.data[:] = 1 / 120
    found = TypedFeatures.from_dict(schema, {"user": ages, "item": words})
    assert found.scales() == ((1 / 64, 1.0), (128.0,), ())
    pieces = (ages[:2], ages[2:].astype(np.float16))
    apart = TypedFeatures((pieces, SparseFeatures.from_scipy(words), None), found.schema)
    assert apart.scales() == found.scales()
    nothing = TypedFeatures.from_dict(schema, {"user": np.zeros((5, 2)), "item": words * 0})
    assert nothing.scales() == ((1.0, 1.0), (1.0,), ())
    huge = TypedFeatures.from_dict(schema, {"user": np.full((5, 1), 3e38, np.float32)})
    assert huge.scales() == ((2.0**-60,), (), ())


def test_a_batch_gives_its_nodes_by_type():
    graph = typed()
    batch = sample_neighbors(jax.random.key(0), graph, np.array([5, 8, 1, 14]), (-1,))
    nodes = batch.nodes.tolist()
    found = []
    for name, count in graph.schema.node_types:
        of_type = jax.jit(lambda batch, name=name: batch.of_type(name))(batch)
        num = int(of_type.num)
        rows = of_type.rows[:num].tolist()
        assert rows == sorted(rows)
        assert set(of_type.rows[num:].tolist()) <= {len(nodes)}
        first = graph.schema.nodes(name).start
        assert [nodes[r] - first for r in rows] == of_type.ids[:num].tolist()
        assert set(of_type.ids[num:].tolist()) <= {count}
        found += rows
    assert sorted(found) == [i for i, v in enumerate(nodes) if v < graph.num_nodes]
    refused("must be one of user, item, shop", batch.of_type, "author")
    plain = Graph.from_edges([0, 1], [1, 2], 3)
    batch = sample_neighbors(jax.random.key(0), plain, np.array([1]), (1,))
    refused("without a schema", batch.of_type, "author")
