"""The columns of edges by relation, in `Graph.from_relations`; times in an archive."""

import numpy as np
import pytest
from cases import cases
from refusals import refused

from jgs import Graph

COUNTS = {"user": 3, "item": 2}
BUYS, SEES = ("user", "buys", "item"), ("user", "sees", "item")
EDGES = {BUYS: ([2, 0, 1], [1, 0, 1]), SEES: ([1, 1], [0, 0])}
COLUMNS = {
    BUYS: {"label": np.array([5, 6, 7], np.int32), "at": np.eye(3)},
    SEES: {"label": np.array([8, 9], np.int32), "at": np.zeros((2, 3))},
}


def entries(graph, relation):
    """The (source, target, label, first of `at`) of the edges of a relation."""
    kept = np.asarray(graph.edge_type) == graph.schema.relation(relation)
    columns = (*graph.edge_index(), graph.edge_columns["label"], graph.edge_columns["at"][:, 0])
    return sorted(zip(*(np.asarray(column)[kept].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("times", [None, {BUYS: [3, 2, 1], SEES: [0, 9]}])
def test_every_edge_and_its_reverse_have_the_columns_of_the_relation(times):
    own = {"edge_columns": COLUMNS, "edge_time": times}
    graph = Graph.from_relations(COUNTS, EDGES, both_ways=True, **own)
    assert entries(graph, "buys") == [(0, 3, 6, 0.0), (1, 4, 7, 0.0), (2, 4, 5, 1.0)]
    assert entries(graph, "rev_buys") == [(3, 0, 6, 0.0), (4, 1, 7, 0.0), (4, 2, 5, 1.0)]
    assert entries(graph, "sees") == [(1, 3, 8, 0.0), (1, 3, 9, 0.0)]
    assert graph.edge_columns["label"].dtype == np.int32
    assert graph.edge_columns["at"].shape == (10, 3)


@cases(
    "columns, says",
    ({BUYS: COLUMNS[BUYS]}, "all relations must have an edge column or none; got no 'at'"),
    ({BUYS: {"label": [1, 2]}}, "must be an array of numbers, 3 rows of them"),
    ({BUYS: {"edge_time": [1, 2, 3]}}, "no field of Graph; got 'edge_time'"),
    ({("a", "b", "c"): {}}, "edge_columns must be a dict by relations of the edges"),
    ({BUYS: [1, 2, 3]}, "edge_columns must be a dict of arrays by name; got a list"),
)
def test_columns_that_do_not_fit_are_refused(columns, says):
    refused(says, Graph.from_relations, COUNTS, EDGES, edge_columns=columns)


def test_an_archive_s_times_are_those_of_its_edges(tmp_path):
    ends, times = np.array([[0, 1, 2, 0], [1, 1, 1, 2]]), np.array([7, 5, 6, 2**40])
    np.savez(tmp_path / "a.npz", edge_index=ends, num_nodes=3, edge_time=times)
    graph = Graph.from_npz(tmp_path / "a.npz")
    assert graph.indices.tolist() == [1, 2, 0, 0]
    assert np.asarray(graph.edge_time).tolist() == [5, 6, 7, 2**40]
    rows = {"indptr": graph.indptr, "indices": graph.indices}
    np.savez(tmp_path / "b.npz", **rows, edge_time=graph.edge_time)
    again = Graph.from_npz(tmp_path / "b.npz")
    assert np.asarray(again.edge_time).tolist() == [5, 6, 7, 2**40]
    np.savez(tmp_path / "b.npz", **rows, edge_time=times)
    refused("must be sorted by edge_time", Graph.from_npz, tmp_path / "b.npz")
