"""Edges with times: rows are sorted by type and time, and copies of edges keep both."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from cases import cases
from refusals import refused

from jgs import Graph
from jgs.graph.grouping import order_by_time
from jgs.sampling import Context, Seeds

SRC, DST = np.array([0, 1, 2, 0, 1]), np.array([2, 2, 2, 1, 2])
TIME = np.array([2**40, 5, 5, 7, -3])


def rows(graph):
    """(source, time) of the in-edges of each node."""
    indptr, src, time = map(np.asarray, (graph.indptr, graph.indices, graph.edge_time))
    pairs = list(zip(src.tolist(), time.tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(indptr)]


def test_rows_are_sorted_by_time_and_keep_the_order_of_equal_times(tmp_path):
    graph = Graph.from_edges(SRC, DST, 3, edge_time=TIME, edge_columns={"place": np.arange(5)})
    want = [[], [(0, 7)], [(1, -3), (1, 5), (2, 5), (0, 2**40)]]
    assert rows(graph) == want
    assert graph.edge_time.dtype == np.int64  # also outside x64
    np.testing.assert_array_equal(graph.edge_order, [3, 4, 1, 2, 0])
    np.testing.assert_array_equal(graph.edge_columns["place"], graph.edge_order)
    graph.save(tmp_path / "g")
    assert rows(Graph.open(tmp_path / "g")) == want
    assert rows(jax.jit(lambda g: g)(graph)) == want
    assert rows(graph.subgraph([0, 2])) == [[], [(1, 5), (0, 2**40)]]
    given = Graph(graph.indptr, graph.indices, edge_time=np.asarray(graph.edge_time))
    assert rows(given) == want


def test_edges_at_different_times_are_different_edges():
    graph = Graph.from_edges([0, 0, 1, 0], [1, 1, 0, 1], 2, edge_time=[3, 4, 3, 4])
    assert rows(graph.symmetrized()) == [[(1, 3), (1, 4)], [(0, 3), (0, 4)]]
    same = Graph.from_edges([2, 1, 0], [3, 3, 3], 4, edge_time=[1, 1, 0])
    assert rows(same.sorted())[3] == [(0, 0), (1, 1), (2, 1)]
    refused("self-loops must have no edge times", graph.with_self_loops)


def test_a_typed_graph_is_sorted_by_relation_and_then_by_time():
    edges = {("a", "to", "b"): ([0, 1, 0], [0, 0, 1]), ("b", "to", "b"): ([1, 0], [0, 0])}
    times = {("a", "to", "b"): [9, 2, 1], ("b", "to", "b"): [4, 3]}
    graph = Graph.from_relations({"a": 2, "b": 2}, edges, edge_time=times, both_ways=True)
    assert rows(graph)[2] == [(1, 2), (0, 9), (2, 3), (3, 4), (2, 3)]
    types = np.asarray(graph.edge_type)
    np.testing.assert_array_equal(types[graph.indptr[2] : graph.indptr[3]], [0, 0, 1, 1, 3])
    every = np.r_[9, 2, 1, 4, 3, 9, 2, 1, 4, 3]
    np.testing.assert_array_equal(np.asarray(graph.edge_time), every[graph.edge_order])
    wrong = {("a", "to", "b"): "all relations must have times or none"}
    for relation, said in (wrong | {"to": "dict by relations"}).items():
        own = {"edge_time": {relation: [9, 2, 1]}}
        refused(said, Graph.from_relations, {"a": 2, "b": 2}, edges, **own)


def test_no_edge_is_before_its_ends(tmp_path):
    """Node times raise those of the edges, which are then sorted; and are kept by edits."""
    born = np.array([0, 6, 8])
    graph = Graph.from_edges(SRC, DST, 3, edge_time=TIME, node_time=born)
    assert rows(graph) == [[], [(0, 7)], [(1, 8), (2, 8), (1, 8), (0, 2**40)]]
    np.testing.assert_array_equal(graph.edge_order, [3, 1, 2, 4, 0])
    alone = Graph.from_edges(SRC, DST, 3, node_time=born)
    assert rows(alone) == [[], [(0, 6)], [(0, 8), (1, 8), (2, 8), (1, 8)]]
    graph.save(tmp_path / "g")
    saved = np.load(tmp_path / "g" / "node_time.npy")
    np.testing.assert_array_equal(saved, born)
    kept = np.asarray(graph.edge_time) < 2**40
    times = {"edge_time": np.asarray(graph.edge_time), "node_time": born}
    copies = [Graph.open(tmp_path / "g"), graph.symmetrized(), graph.sorted()]
    copies += [graph.edge_subgraph(kept), Graph(graph.indptr, graph.indices, **times)]
    for other in (*copies, jax.jit(lambda g: g)(graph)):
        np.testing.assert_array_equal(other.node_time, born)
    np.testing.assert_array_equal(graph.subgraph([2, 0]).node_time, [8, 0])
    edges = {("a", "to", "b"): ([0, 1, 0], [0, 0, 1])}
    typed = Graph.from_relations({"a": 2, "b": 2}, edges, node_time={"b": [5, 3]})
    least = np.iinfo(np.int64).min
    np.testing.assert_array_equal(typed.node_time, [least, least, 5, 3])
    assert rows(typed)[2:] == [[(0, 5), (1, 5)], [(0, 3)]]
    np.savez(tmp_path / "g.npz", edge_index=[SRC, DST], num_nodes=3, node_time=born)
    np.testing.assert_array_equal(Graph.from_npz(tmp_path / "g.npz").node_time, born)


SECONDS = np.arange(5).astype("datetime64[s]")
NOT_A_TIME = np.array([0, 1, "NaT", 3, 4], "datetime64[s]")


@cases(
    "times, said",
    ({"edge_time": [1.0] * 5}, "integers, in a unit of your choice; got float64"),
    ({"edge_time": NOT_A_TIME}, "none may be missing; got NaT at position 2"),
    ({"edge_time": SECONDS}, "got datetime64[s][5]. Conv"),
    ({"edge_time": [1, 2, 3, 4, np.nan]}, "may be missing; got nan at position 4"),
    ({"edge_time": [1] * 4}, "one entry for every edge; got int64[4]"),
    ({"edge_time": [1, 2, 3, 4, 2**63 - 1]}, "edge_time must be below 2**63 - 1"),
    ({"node_time": [1, 2]}, "[3], one entry for every node; got int64[2]"),
    ({"node_time": [1.5, 2, 3]}, "node_time must be integers"),
)
def test_bad_times_are_refused_in_one_line(times, said):
    refused(said, Graph.from_edges, SRC, DST, 3, **times)
    refused("3 after 4 in the row of node 1", Graph, [0, 1, 3], [0, 0, 1], edge_time=[9, 4, 3])


@pytest.mark.parametrize("far", [1, 2**40, 2**60])
@pytest.mark.parametrize("typed", [False, True])
def test_edges_are_ordered_by_type_and_time_stably(typed, far):
    rng = np.random.default_rng(0)
    times = rng.integers(-5, 5, 1000) * far
    times[:100] = np.iinfo(np.int64).min
    types = np.sort(rng.integers(0, 4, 1000)).astype(np.int16) if typed else None
    found = order_by_time(times, types)
    assert found.dtype == np.int32
    by = (times,) if types is None else (times, types)
    np.testing.assert_array_equal(found, np.lexsort(by))
    assert order_by_time(times[:0]).size == 0
    if types is not None:  # relations that have the times of others, as reverses do
        twice, types = np.tile(times, 2), np.concatenate([types, types + 4])
        np.testing.assert_array_equal(order_by_time(twice, types), np.lexsort((twice, types)))


def seen(graph, seed, cutoff, **how):
    """(type, place) of what a context of all neighbours has beside its seed."""
    sampler = Context(64, ({"*": 32},) * 2)
    batch = sampler.sample(jax.random.key(0), graph, (), Seeds([seed], [cutoff], **how))
    kind, place = (np.asarray(a) for a in graph.schema.type_and_place(batch.nodes))
    return {(k, p) for k, p in zip(kind.tolist(), place.tolist(), strict=True) if k >= 0}


@pytest.mark.parametrize("born", [True, False])
def test_types_count_at_their_own_moments_where_one_says_so(born):
    """Users, of all times, have events and notes; a note may name an event."""
    rng, counts = np.random.default_rng(3), {"user": 4, "event": 40, "note": 40}
    times = {name: rng.integers(0, 6, 40) for name in ("event", "note")}
    of = {name: rng.integers(0, 4, 40) for name in times}
    edges = {(name, "of", "user"): (np.arange(40), of[name]) for name in times}
    own = {relation: times[relation[0]] for relation in edges}
    if born:
        edges["event", "in", "note"] = np.arange(40), np.arange(40)
        own["event", "in", "note"] = np.maximum(*times.values())
    given = {"edge_time": own, "both_ways": True}
    given |= {"node_time": times} if born else {}
    graph = Graph.from_relations(counts, edges, **given)
    some = graph.inclusive("event")
    assert seen(graph.inclusive(), 0, 3) == seen(graph, 0, 3)
    for user, cutoff in ((0, 3), (1, 0), (2, 5), (3, np.iinfo(np.int64).min)):
        for now, found in ((0, seen(graph, user, cutoff)), (1, seen(some, user, cutoff))):
            events, notes = (
                np.flatnonzero((of[name] == user) & (times[name] < cutoff + equal))
                for name, equal in (("event", now and cutoff >= 0), ("note", 0))
            )
            wanted = {(0, user)} | {(1, int(e)) for e in events} | {(2, int(n)) for n in notes}
            more = {(0, user)}
            if born:  # both ends of a pair are there
                before = times["event"] < cutoff + (now and cutoff >= 0)
                before &= times["note"] < cutoff
                more |= {(1, int(n)) for n in notes if before[n]}
                more |= {(2, int(e)) for e in events if before[e]}
            assert found == wanted | more
    every = graph.inclusive("event", "note")
    assert seen(every, 1, 4) == seen(graph, 1, 4, inclusive=True)
    refused("must have edge times", Graph.from_edges([0], [1], 2).inclusive)
    refused("user, event, note", graph.inclusive, "events")
