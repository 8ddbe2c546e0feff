"""Edge columns, also by relation: their entries stay with the edges in every operation."""

import copy
import pickle

import jax
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from refusals import refused

from jgs import Graph, SparseFeatures
from jgs.sampling import sample_neighbors

RNG = np.random.default_rng(3)
NUM_EDGES = 200
SRC, DST = RNG.integers(0, 30, (2, NUM_EDGES))
WEIGHT = RNG.random(NUM_EDGES).astype(np.float32)
COLUMNS = {
    "time": np.arange(NUM_EDGES) + 2**40,
    "feat": RNG.random((NUM_EDGES, 3)).astype(np.float32),
    "exact": RNG.random(NUM_EDGES),
    "kind": RNG.integers(0, 5, NUM_EDGES).astype(np.uint8),
    "wide": np.empty((NUM_EDGES, 0), np.float16),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph.from_edges(SRC, DST, 30, WEIGHT, edge_columns=COLUMNS)


def test_columns_follow_the_edges(graph):
    order = np.asarray(graph.edge_order)
    assert order.dtype == np.int32
    assert (np.sort(order) == np.arange(NUM_EDGES)).all()
    np.testing.assert_array_equal(graph.indices, SRC[order])
    np.testing.assert_array_equal(np.diff(DST[order]) >= 0, True)
    np.testing.assert_array_equal(graph.edge_weight, WEIGHT[order])
    assert set(graph.edge_columns) == set(COLUMNS)
    for name, column in COLUMNS.items():
        # 64 bits too, although x64 is off.
        assert graph.edge_columns[name].dtype == column.dtype
        np.testing.assert_array_equal(graph.edge_columns[name], column[order])
    names = "exact, feat, kind, time, wide"
    assert repr(graph) == f"Graph(num_nodes=30, num_edges=200, weighted, columns {names})"


def test_arrays_in_csc_form_keep_their_order():
    graph = Graph([0, 2, 2], [1, 0], edge_columns={"time": np.array([7, 5], ">i8")})
    assert graph.edge_order is None
    assert np.asarray(graph.edge_columns["time"]).tolist() == [7, 5]


def test_a_graph_with_columns_is_a_pytree(graph, same_bits):
    same_bits(jax.jit(lambda g: g)(graph), graph)
    time = jax.jit(lambda g: g.edge_columns["time"])(graph)
    np.testing.assert_array_equal(time, graph.edge_columns["time"])
    paths = [jax.tree_util.keystr(p) for p, _ in jax.tree_util.tree_leaves_with_path(graph)]
    assert ".edge_columns['time']" in paths
    traces = []
    count = jax.jit(lambda g: traces.append(1) or g.num_edges)
    turned = dict(reversed(COLUMNS.items()))
    for columns in (COLUMNS, turned):
        count(Graph.from_edges(SRC, DST, 30, WEIGHT, edge_columns=columns))
    assert len(traces) == 1


def test_saved_and_opened_and_padded(graph, tmp_path, same_bits):
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    same_bits(opened, graph)
    padded = Graph.from_edge_arrays(opened.indptr, opened.edge_arrays(), NUM_EDGES + 9)
    assert padded.num_edges == NUM_EDGES + 9
    for name, array in graph.edge_arrays().items():
        kept = np.asarray(padded.edge_arrays()[name])
        np.testing.assert_array_equal(kept[:NUM_EDGES], array)
        assert not kept[NUM_EDGES:].any()


WORDS = (
    "the edge column 'a' must be numbers; got 'x' in row 0. Leave it out (a table's by "
    "columns=, or delete it there), or write a number for each word"
)


@cases(
    "columns, says",
    ([1], "must be a dict of arrays by name; got a list"),
    ({"a b": [1, 2]}, "must be an identifier, and no field of Graph; got 'a b'"),
    ({3: [1, 2]}, "got 3"),
    ({"indices": [1, 2]}, "got 'indices'"),
    ({"a": [1]}, "'a' must be an array of numbers, 2 rows of them, one an edge; got int"),
    ({"a": 1}, "got int64[]"),
    ({"a": ["x", "y"]}, WORDS),
    ({"a": [[1], [1, 2]]}, "got sequences of unequal lengths"),
    ({"a": np.zeros(2, np.longdouble)}, "got float128[2]"),
    ({"a": np.zeros(2, "M8[s]")}, "got 1970-01-01T00:00:00 in row 0. Leave it out"),
    ({"a": np.array([1.5, {}])}, "got {} in row 1. Leave it out"),
    ({"a": np.array([1, 2], object)}, "got object[2]. Give one row"),
)
def test_other_columns_are_refused(columns, says):
    refused(says, Graph.from_edges, [0, 1], [1, 0], 2, edge_columns=columns)
    refused(says, Graph, [0, 1, 2], [1, 0], None, columns)


def test_words_are_refused_as_columns_of_nodes_and_as_weights():
    graph = Graph.from_edges([0, 1], [1, 0], 2)
    said = "must be numbers; got 'x' in row 0. Leave"
    refused(f"the node column 'kind' {said}", graph.with_node_columns, kind=["x", "y"])
    refused(f"edge_weight {said}", Graph.from_edges, [0, 1], [1, 0], 2, ["x", "y"])


def test_a_copy_keeps_every_bit(graph, tmp_path, same_bits):
    features = SparseFeatures.from_scipy(scipy.sparse.eye_array(4))
    seeds, options = np.arange(4), {"return_edge_ids": True}
    batch = sample_neighbors(jax.random.key(0), graph, seeds, (3, 2), **options)
    graph.save(tmp_path / "graph")
    for value in (graph, Graph([0, 1], [0]), Graph.open(tmp_path / "graph"), batch, features):
        pickled = [pickle.loads(pickle.dumps(value, protocol=p)) for p in (None, 2)]
        for copied in (*pickled, copy.copy(value), copy.deepcopy(value)):
            assert type(copied) is type(value)
            same_bits(copied, value)
    assert copy.copy(graph) is not graph
    shown = []  # within a program, and of what holds no arrays
    jax.eval_shape(lambda batch: shown.append(repr(batch)), batch)
    assert shown[0].startswith("MiniBatch(seeds=?/4, nodes=?/")
    assert repr(jax.tree.map(lambda a: None, batch)) == "MiniBatch(...)"
    jax.jit(lambda g: copy.deepcopy(g).indices)(graph)
    pickle.loads(pickle.dumps(graph)).save(tmp_path / "graph")
    same_bits(Graph.open(tmp_path / "graph"), graph)


def test_a_graph_whose_arrays_were_cut_destroys_no_folder(graph, tmp_path, same_bits):
    graph.save(tmp_path / "graph")
    for field, change in (
        ("indptr", lambda a: a.astype(np.int32)),
        ("indptr", lambda a: a[:-1]),
        ("edge_weight_prefix", lambda a: a.astype(np.int32)),
        ("edge_weight", lambda a: None),
        ("edge_order", lambda a: a[1:]),
        ("edge_columns", lambda c: {**c, "time": c["time"][1:]}),
        ("edge_columns", lambda c: {**c, "time": np.array(["x"] * NUM_EDGES)}),
    ):
        cut = copy.copy(graph)
        vars(cut)[field] = change(jax.tree.map(np.asarray, vars(cut)[field]))
        refused("must ", cut.save, tmp_path / "graph")
        same_bits(Graph.open(tmp_path / "graph"), graph)


def test_node_columns_travel_with_the_graph_and_are_arguments():
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], 3, edge_weight=np.ones(3))
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_array(x))
    both = graph.with_node_columns(x=x).with_node_columns(y=sparse)
    assert graph.node_columns == {} == both.sorted().node_columns
    again = pickle.loads(pickle.dumps(both.unweighted()))
    assert again.edge_weight is None
    for one in (both, again):
        np.testing.assert_array_equal(one.node_columns["x"], x)
        np.testing.assert_array_equal(one.node_columns["y"].values, sparse.values)
    total = jax.jit(lambda graph: graph.node_columns["x"].sum())
    assert total(both) == total(both.with_node_columns(x=x[::-1])) == x.sum()
    assert total._cache_size() == 1
    for bad in (x[:2], np.array(["a"] * 3), 1.0, sparse.from_scipy(scipy.sparse.eye(4))):
        refused("node column 'x'", graph.with_node_columns, x=bad)


COUNTS = {"user": 3, "item": 2}
BUYS, SEES = ("user", "buys", "item"), ("user", "sees", "item")
EDGES = {BUYS: ([2, 0, 1], [1, 0, 1]), SEES: ([1, 1], [0, 0])}
BY_RELATION = {
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
    own = {"edge_columns": BY_RELATION, "edge_time": times}
    graph = Graph.from_relations(COUNTS, EDGES, both_ways=True, **own)
    assert entries(graph, "buys") == [(0, 3, 6, 0.0), (1, 4, 7, 0.0), (2, 4, 5, 1.0)]
    assert entries(graph, "rev_buys") == [(3, 0, 6, 0.0), (4, 1, 7, 0.0), (4, 2, 5, 1.0)]
    assert entries(graph, "sees") == [(1, 3, 8, 0.0), (1, 3, 9, 0.0)]
    assert graph.edge_columns["label"].dtype == np.int32
    assert graph.edge_columns["at"].shape == (10, 3)


@cases(
    "columns, says",
    ({BUYS: BY_RELATION[BUYS]}, "all relations must have an edge column or none; got no 'at'"),
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
