"""Typed graphs: what `Graph.from_relations` makes and refuses, and what keeps the types."""

import itertools
import pickle

import jax
import numpy as np
import pytest
from cases import cases
from refusals import refused

from jgs import Graph, Schema
from jgs.files import storage

COUNTS = {"author": 3, "paper": 4}  # authors 0 to 2, papers 3 to 6
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
EDGES = {CITES: ([3, 0, 2], [0, 1, 0]), WRITES: ([2, 0, 1, 0], [0, 0, 3, 1])}


@pytest.fixture(scope="module")
def graph() -> Graph:
    weight = {WRITES: [2, 3, 4, 5]}
    return Graph.from_relations(COUNTS, EDGES, weight, both_ways=True)


def rows(graph) -> list[list[tuple[int, int]]]:
    """For each node (type, source) of its edges, in order."""
    types = zip(np.asarray(graph.edge_type).tolist(), np.asarray(graph.indices), strict=True)
    edges = [(t, int(s)) for t, s in types]
    indptr = np.asarray(graph.indptr)
    return [edges[a:b] for a, b in itertools.pairwise(indptr)]


def test_relations_become_one_graph(graph):
    expected = [
        [(3, 3), (3, 4)],  # author 0 wrote the papers 3 and 4
        [(3, 6)],
        [(3, 3)],
        [(0, 6), (0, 5), (1, 2), (1, 0), (2, 4)],  # the row of paper 3
        [(0, 3), (1, 0)],
        [(2, 3)],
        [(1, 1), (2, 3)],
    ]
    assert rows(graph) == expected
    assert graph.edge_type.dtype == np.int16
    np.testing.assert_array_equal(graph.edge_order[5:7], [2, 3 + 0])
    np.testing.assert_array_equal(graph.edge_weight[:3], [3, 5, 4])
    assert Graph(graph.indptr, graph.indices, graph.edge_weight).edge_type is None
    found = graph.sorted()
    assert rows(found) == [sorted(row) for row in expected]
    assert found.schema == graph.schema
    shown = "Graph(num_nodes=7, num_edges=14, weighted, 2 node types, 4 relations)"
    assert repr(graph) == shown


def test_the_schema_names_types_and_relations(graph):
    schema = graph.schema
    back = ("paper", "rev_writes", "author")
    assert schema.relations == (CITES, WRITES, ("paper", "rev_cites", "paper"), back)
    assert schema.offsets == (0, 3, 7)
    assert schema.num_nodes == 7
    assert schema.nodes("paper") == range(3, 7)
    assert schema.relation("writes") == schema.relation(WRITES) == 1
    assert schema.relation(list(back)) == 3
    assert hash(schema) == hash(Schema(list(COUNTS.items()), list(schema.relations)))
    many = Schema((("a", 1), ("b", 2)), (("a", "x", "b"), ("b", "x", "a")))
    assert many.relation(("b", "x", "a")) == 1
    for which, says in (("x", "Name it by its triple"), ("y", "one of (a, x, b), (b, x, a)")):
        refused(says, many.relation, which)
    refused("one of a, b; got 'c'", many.nodes, "c")


def test_types_pass_through_files_pickles_and_programs(graph, tmp_path, same_bits):
    graph.save(tmp_path / "graph")
    traces = []
    again = jax.jit(lambda g: traces.append(g.schema) or g)
    stacked = jax.vmap(lambda _, g: g, in_axes=(0, None), out_axes=None)(np.arange(2), graph)
    own = {"edge_type": graph.edge_type, "schema": graph.schema}
    for other in (
        Graph.open(tmp_path / "graph"),
        pickle.loads(pickle.dumps(graph)),
        again(graph),
        stacked,
        graph.with_node_columns(x=np.zeros(7)).unweighted(),
        Graph.from_edge_arrays(graph.indptr, graph.edge_arrays(), 14, graph.schema),
        Graph(graph.indptr, graph.indices, graph.edge_weight, **own),
    ):
        assert other.schema == graph.schema
        assert rows(other) == rows(graph)
    again(Graph.open(tmp_path / "graph"))
    assert traces == [graph.schema]  # compiled only once
    parted = Schema(graph.schema.node_types, graph.schema.relations, ((1, 4), (2, 0)))
    assert parted.ranges("author") == (range(1), range(5, 7))
    assert Schema.from_bytes("it", parted.as_bytes()) == parted
    arrays = storage.open_arrays(tmp_path / "graph", "jgs.graph")
    sound = arrays["schema"].tobytes()
    for field, array in (
        ("schema", np.frombuffer(sound[:-1], np.uint8)),
        ("schema", np.frombuffer(sound.replace(b"4]]", b"5]]"), np.uint8)),
        ("edge_type", arrays["edge_type"][1:]),
        ("edge_type", arrays["edge_type"].astype(np.int32)),
    ):
        storage.save_arrays(tmp_path / "other", "jgs.graph", {**arrays, field: array})
        refused(field, Graph.open, tmp_path / "other")
    arrays.pop("edge_type")
    storage.save_arrays(tmp_path / "other", "jgs.graph", arrays)
    refused("relations where edges have types", Graph.open, tmp_path / "other")


def test_edits_keep_the_types_that_remain_true(graph):
    # Authors may be reordered among themselves, types may not.
    part = graph.subgraph([2, 0, 6, 3, 4])
    assert part.schema.node_types == (("author", 2), ("paper", 3))
    assert rows(part) == [
        [(3, 3)],
        [(3, 3), (3, 4)],
        [(2, 3)],
        [(0, 2), (1, 0), (1, 1), (2, 4)],
        [(0, 3), (1, 1)],
    ]
    mixed = graph.subgraph([3, 0])
    assert mixed.schema is None
    assert rows(mixed) == [[(1, 1)], [(3, 0)]]
    assert rows(mixed.sorted()) == rows(mixed)
    for other in (graph.symmetrized(), graph.with_self_loops()):
        assert other.schema == Schema(tuple(COUNTS.items()))
        assert other.edge_type is None
    assert graph.with_self_loops().num_edges == 14 + 7


def test_without_relations_and_without_edges(tmp_path):
    nothing = Graph.from_relations({"a": 2}, {})
    empty = Graph.from_relations({"a": 2, "b": 0}, {("a", "to", "b"): ([], [])})
    assert nothing.edge_type is None
    assert empty.edge_type.shape == (0,)
    for graph in (nothing, empty):
        graph.save(tmp_path / "g")
        assert Graph.open(tmp_path / "g").schema == graph.schema
        assert graph.sorted().num_edges == 0


TWO = Schema((("a", 1), ("b", 2)), (("a", "x", "b"), ("b", "y", "b")))
PARTED = Schema((("b", 2), ("a", 1)), TWO.relations, ((1, 1), (1, 0)))  # nodes 0 and 2 are of b


def typed(types, indptr=(0, 0, 2, 2), indices=(0, 1), schema=TWO):
    return Graph(indptr, indices, edge_type=types, schema=schema)


def related(*args):
    return Graph.from_relations(COUNTS, *args)


@cases(
    "make, says",
    (lambda: typed([0, 2]), "edge_type must be in [0, 2); got 2 at edge 1"),
    (lambda: typed([0]), "must be integers [2], one entry for every edge; got int16[1]"),
    (lambda: typed([1, 0], schema=None), "sorted by edge_type; got 1 before a lower one"),
    (lambda: typed([0, 0]), "source of (a, x, b) must be a node in [0, 1); got 1 at"),
    (lambda: typed([0, 1], (0, 2, 2, 2)), "a node in [1, 3); got 0 at edge 0"),
    (
        lambda: typed([0, 1], indices=(1, 1), schema=PARTED),
        "source of (b, y, b) must be a node in [0, 1) or [2, 3); got 1 at edge 1",
    ),
    (lambda: typed(None), "relations where edges have types, and only there; got 2 rel"),
    (lambda: typed([0, 1], schema=Schema((("a", 3),))), "got 0 relations and an edge_type"),
    (lambda: typed([0, 1], schema=Schema((("a", 2),))), "as many nodes as the graph tog"),
    (lambda: typed([0, 1], schema={}), "must be a jgs.Schema; got a dict"),
    (lambda: Schema((("a", 1), ("a", 2))), "node types must be distinct; got 'a' twice"),
    (lambda: Schema((("a", 1),), (("a", "x", "b"),)), "one of a; got 'b'"),
    (lambda: Schema((("a", 1),), (("a", "x"),)), "pairs (node type, count) and triples"),
    (lambda: Schema((("a", 2**31 - 2), ("b", 1))), "number of nodes must be an int"),
    (lambda: Schema((("a", 3),), (), ((1,), (1,))), "and all nodes; got ((1,), (1,)) for"),
    (lambda: Schema((("a", 3),), (), ((1, 2),)), "a count of each node type, and all"),
    (lambda: Schema(((1, 2),)), "names of node types and relations must be text; got 1"),
    (lambda: Schema(3), "pairs (node type, count)"),
    (lambda: related({CITES: ([0], [4])}), "dst of (paper, cites, paper) must be node ids"),
    (lambda: related({CITES: ([0, 1], [1])}), "got 2 and 1"),
    (lambda: related({CITES: [1]}), "must be a pair (sources, targ"),
    (lambda: related({"cites": ([0], [1])}), "triples"),
    (lambda: related([CITES]), "edges must be a dict; got a list"),
    (lambda: related(EDGES, {"x": [1]}), "a dict by relations of the edges; got ['x']"),
    (lambda: related(EDGES, {CITES: [1]}), "edge_weight must be numbers [3], one an edge"),
)
def test_bad_types_are_refused_in_one_line(make, says):
    refused(says, make)
