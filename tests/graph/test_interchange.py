"""Conversions from and to edge indices, jraph, igraph, tables, SciPy and NetworkX."""

import sys
from dataclasses import replace

import igraph
import jax
import jax.numpy as jnp
import jraph
import networkx
import numpy as np
import pandas
import pyarrow
import pytest
import scipy.sparse
from cases import cases
from refusals import refused

import jgs
from jgs import Graph, NodeIds

SRC, DST, WEIGHT = np.array([0, 0, 2, 3, 0]), np.array([1, 2, 1, 3, 1]), [1.5, 2, 0, 4, 0.5]
INDEX = np.stack([SRC, DST])
KEY, SEEDS = jax.random.key(0), np.array([1, 3, 4], np.int32)  # the last one is padding


class Exported:
    """An array that has DLPack and nothing else: a library may offer no `__array__`."""

    def __init__(self, array, device=None):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        if self.device is not None:
            raise BufferError("it lies\non a GPU")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


@pytest.fixture
def expected():
    return Graph.from_edges(SRC, DST, 4, WEIGHT, edge_columns={"time": SRC * 10})


@pytest.mark.parametrize("form", [np.asarray, jnp.asarray, Exported, np.ndarray.tolist])
def test_an_edge_index_of_any_library(form, expected, same_bits):
    weight = form(np.float32(WEIGHT))
    own = {"edge_weight": weight, "edge_columns": {"time": Exported(SRC * 10)}}
    graph = Graph.from_edge_index(form(INDEX), **own)
    same_bits(graph, expected)
    assert Graph.from_edge_index(form(INDEX), 9).num_nodes == 9
    back = Graph.from_edge_index(graph.edge_index(), 4, graph.edge_weight)
    same_bits(back.indices, expected.indices)
    assert Graph.from_edge_index(np.empty((2, 0), int)).num_nodes == 0


def test_ids_are_compared_as_text_where_one_table_has_text():
    """7 is "7". Without text "07" is a number, and so is 7; beside text neither is."""
    for ids, names, nodes in (
        (["10", "-3", "x"], [-3, 10, 10], [1, 0, 0]),
        (["10", "010"], ["010", "10"], [1, 0]),
        ([10, -3, 0], ["0", "-3"], [2, 1]),
        ([10, -3], np.array([], object), []),
        (["10"], [], []),
    ):
        assert NodeIds(ids).nodes(names).tolist() == nodes
    assert NodeIds.of_edges([10, 2], ["x", "2"]).values.tolist() == ["10", "2", "x"]
    assert NodeIds.of_edges([], [2, 1]).values.tolist() == [1, 2]
    assert len(NodeIds.of_edges([], [])) == 0


def test_tables_and_their_ids(expected, same_bits, tmp_path):
    columns = {"src": SRC, "dst": DST, "edge_weight": WEIGHT, "time": SRC * 10}
    frame = pandas.DataFrame(columns)
    frame.to_parquet(tmp_path / "edges.parquet")
    frame.to_csv(tmp_path / "edges.csv", index=False)
    for table in (columns, frame, tmp_path / "edges.parquet", str(tmp_path / "edges.csv")):
        same_bits(Graph.from_table(table), expected)
    renamed = frame.rename(columns={"src": "a", "edge_weight": "w"})
    chosen = Graph.from_table(renamed, 5, src="a", weight="w", columns=[])
    assert (chosen.num_nodes, chosen.edge_columns) == (5, {})
    assert np.array_equal(chosen.edge_weight, expected.edge_weight)

    for names in (np.array(["b", "d", "a", "c"]), np.array([7, 10**12, -3, 20])):
        named = frame.assign(src=names[SRC], dst=names[DST])
        ids = NodeIds.of_edges(named["src"], named["dst"])
        graph = Graph.from_table(named, ids=ids)
        assert ids.values.tolist() == sorted(names.tolist())
        assert ids.nodes(names).tolist() == np.argsort(np.argsort(names)).tolist()
        pairs = zip(*ids[graph.edge_index()].tolist(), strict=True)
        named = zip(names[SRC].tolist(), names[DST].tolist(), strict=True)
        assert sorted(pairs) == sorted(named)
        assert ids[0] == min(names)


class Lazy:
    """A table that a method makes, as polars' lazy frames and DuckDB's relations are."""

    columns = ("src",)

    def __init__(self, method, table):
        setattr(self, method, lambda: table)

    def __getitem__(self, name):
        raise TypeError


@pytest.mark.parametrize("method", ["collect", "to_arrow_table"])
def test_lazy_tables_and_numbers_of_128_bits(method, expected, same_bits):
    """DuckDB's HUGEINT and its sums of integers are decimals in Arrow."""
    columns = {"src": SRC, "dst": DST, "edge_weight": WEIGHT, "time": SRC * 10}
    table = pyarrow.table(columns)
    for name, places in (("src", 0), ("time", 0), ("edge_weight", 3)):
        at = table.schema.get_field_index(name)
        made = table[name].cast(pyarrow.decimal128(38, places))
        table = table.set_column(at, name, made)
    same_bits(Graph.from_table(Lazy(method, table)), expected)
    missing = pyarrow.array([1, None, 3, 4, 5], pyarrow.decimal128(38, 0))
    column = Graph.from_table(table.append_column("x", missing)).edge_columns["x"]
    assert np.isnan(column).sum() == 1


def test_whole_numbers_beside_gaps_keep_their_digits():
    for number in (2**53 + 1, 2**63 - 1):
        columns = {"src": [0, 1], "dst": [1, 0], "n": [number, None]}
        masked = np.ma.array([number, 0], mask=[False, True])
        of_pandas = pandas.DataFrame({"src": [0, 1], "dst": [1, 0]})
        of_pandas["n"] = pandas.array([number, None], "Int64")
        decimals = pyarrow.array([number, None], pyarrow.decimal128(38, 0))
        tables = [pyarrow.table(columns), of_pandas, columns | {"n": masked}]
        for table in (*tables, pyarrow.table(columns | {"n": decimals})):
            said = f"the column 'n' must keep its digits; got {number} beside missing values"
            refused(said, Graph.from_table, table)
    exact = pyarrow.table({"src": [0, 1], "dst": [1, 0], "n": [2**53, None]})
    np.testing.assert_array_equal(Graph.from_table(exact).edge_columns["n"], [np.nan, 2**53])


def test_a_graphs_tuple_and_back(expected, same_bits):
    given = jraph.GraphsTuple(
        senders=SRC, receivers=DST, n_node=np.array([3, 1]), n_edge=np.array([3, 2]),
        nodes=np.ones((4, 2)), edges={"time": SRC * 10}, globals=None,
    )  # fmt: skip
    graph = Graph.from_graphs_tuple(given)
    same_bits(graph.indices, expected.indices)
    same_bits(graph.edge_columns, expected.edge_columns)
    assert graph.node_columns["features"].shape == (4, 2)

    @jax.jit
    def both(graph):
        draw, sums = jgs.sampling.sample_neighbors, []
        batch = draw(KEY, graph, SEEDS, (2, 3), return_edge_ids=True)
        for block in batch.blocks:
            (source, target), capacity = block.edge_index(), block.source_capacity
            x = jnp.ones((capacity, 3))
            summed = jax.ops.segment_sum(x[source], target, capacity)
            sums.append((summed[: block.target_capacity], jgs.ops.aggregate(block, x, "sum")))
        index, made = [block.edge_index() for block in batch.blocks], batch.to_graphs_tuple()
        return batch, index, sums, made, batch.to_graphs_tuple({"x": 2 * batch.nodes})

    batch, indices, sums, made, with_x = both(expected)
    named = replace(batch.block(0), edge_columns={"layer": batch.block(0).indices})
    refused("must have another name", replace(batch, blocks=(named,)).to_graphs_tuple)
    edges = set(zip(SRC.tolist(), DST.tolist(), strict=True))
    joined = []
    for layer, (block, index) in enumerate(zip(batch.blocks, indices, strict=True)):
        index, real, capacity = np.asarray(index), int(block.num_edges), block.source_capacity
        assert 0 < real < block.edge_capacity
        assert (index[:, real:] == capacity).all()
        ends = np.asarray(batch.source_nodes(layer))[index[:, :real]]
        assert set(zip(*ends.tolist(), strict=True)) <= edges
        joined += [(*map(int, pair), layer) for pair in ends.T]
    for pair in sums:
        np.testing.assert_array_equal(*pair)
    made = jax.device_get(made)
    count, num_nodes = int(made.n_edge[0]), int(made.n_node[0])
    assert jax.tree.map(lambda a: a.shape, with_x.nodes) == {"x": made.nodes.shape}
    assert made.n_edge.sum() == made.senders.size
    assert made.n_node.sum() == made.nodes.size > num_nodes
    assert (made.senders[count:] == num_nodes).all()
    assert (made.receivers[count:] == num_nodes).all()
    ends = made.nodes[np.stack([made.senders, made.receivers])[:, :count]]
    layers = made.edges["layer"][:count]
    assert list(zip(*ends.tolist(), layers.tolist(), strict=True)) == joined
    assert made.edges["edge_id"].dtype == np.int64
    assert np.array_equal(expected.indices[made.edges["edge_id"][:count]], ends[0])
    unpadded = jraph.unpad_with_graphs(made)
    assert (unpadded.nodes.size, unpadded.senders.size) == (num_nodes, count)
    hidden = jraph.GraphNetwork(None, lambda nodes, *_: nodes)(made._replace(edges=None))
    assert hidden.nodes.shape == made.nodes.shape


def test_a_block_in_the_arrays_of_dgl_and_gsampler(expected):
    """Without padding: SciPy makes one matrix of both, which multiplies as the block does."""
    draw = jgs.sampling.Neighbors((2, 3), edge_ids=True, edge_weights=True).sample
    weighted = Graph.from_edges(SRC, DST, 4, edge_weight=np.arange(1, SRC.size + 1))
    batch = draw(KEY, weighted, (), SEEDS, None)
    for block in batch.blocks:
        coo, csc, real = block.coo(), block.csc(), int(block.num_edges)
        shape = (csc.num_rows, csc.num_cols)
        assert shape == (coo.num_rows, coo.num_cols)
        assert shape == (int(block.num_sources), int(block.num_targets))
        assert len(csc.indices) == len(coo.col) == len(csc.edge_ids) == real > 0
        of_pairs = scipy.sparse.coo_array((coo.values, (coo.row, coo.col)), shape)
        of_columns = scipy.sparse.csc_array((csc.values, csc.indices, csc.indptr), shape)
        np.testing.assert_array_equal(of_pairs.toarray(), of_columns.toarray())
        x = np.random.default_rng(0).random((block.source_capacity, 3), np.float32)
        summed = np.asarray(jgs.ops.aggregate(block, x, "sum"))[: shape[1]]
        np.testing.assert_allclose(of_columns.T @ x[: shape[0]], summed, rtol=1e-6)
        ends = weighted.edge_index()[:, coo.edge_ids]
        nodes = np.asarray(batch.nodes)
        np.testing.assert_array_equal(nodes[np.stack([coo.row, coo.col])], ends)
    plain = jgs.sampling.sample_neighbors(KEY, expected, SEEDS, (2,)).blocks[0]
    assert plain.csc()[2:4] == (None, None)
    several = jax.tree.map(lambda a: np.stack([a, a]), block)
    refused("one block can be exported at a time", several.coo)


def test_igraph_scipy_networkx_and_bcoo(expected, same_bits):
    for directed in (True, False):
        pairs = list(zip(SRC[:4].tolist(), DST[:4].tolist(), strict=True))
        theirs = igraph.Graph(4, pairs, directed=directed)
        theirs.es["w"] = WEIGHT[:4]
        other = networkx.DiGraph() if directed else networkx.Graph()
        other.add_nodes_from(range(4))
        weighted = zip(pairs, WEIGHT, strict=False)
        other.add_weighted_edges_from((*pair, weight) for pair, weight in weighted)
        one, two = Graph.from_igraph(theirs, "w"), Graph.from_networkx(other, "weight")
        dense = networkx.to_numpy_array(other)
        for graph in (one, two):
            assert np.array_equal(graph.to_scipy().toarray(), dense)
            assert np.array_equal(graph.to_bcoo().todense(), dense)
            assert networkx.utils.graphs_equal(graph.to_networkx(), other.to_directed())
    assert isinstance(expected.to_networkx(), networkx.MultiDiGraph)
    back = Graph.from_scipy(expected.to_scipy(), weighted=True)
    same_bits(back.edge_weight, expected.edge_weight)
    assert np.array_equal(expected.unweighted().to_scipy().data, np.ones(5))


TEXT = {"src": ["a", "b"], "dst": ["b", "a"]}
index, table = Graph.from_edge_index, Graph.from_table
one_edge = igraph.Graph(edges=[(0, 1)])


@cases(
    "make, says",
    (lambda: index(INDEX.T), "edge_index must be [2, E]; got int64[5, 2]"),
    (lambda: index(INDEX, 3), "[0, 3); got 3 at position 3"),
    (lambda: index(Exported(INDEX, (2, 0))), "Exported: it lies on a GPU"),
    (lambda: index(INDEX * 0.5), "src must be integers [n]; got float64[5]"),
    (lambda: Graph.from_graphs_tuple(INDEX), "must have the fields senders, receivers"),
    (lambda: Graph.from_igraph(INDEX), "must be an igraph graph; got a ndarray"),
    (lambda: Graph.from_igraph(one_edge, "w"), "must have the attribute"),
    (lambda: table(INDEX), "a data frame, an Arrow table or a dict"),
    (lambda: table("edges.parquet"), "edges.parquet must exist"),
    (lambda: table("edges.xlsx"), "must end in .parquet"),
    (lambda: table({"from": [1], "dst": [2]}), "'src'; got columns 'from'"),
    (lambda: table(TEXT), "jgs.NodeIds"),
    (
        lambda: table(TEXT | {"w": ["x", "y"]}, ids=NodeIds(["b", "a"])),
        "column 'w' must be numbers; got 'x' in row 0. Leave it out (a table's by columns=",
    ),
    (lambda: table(TEXT, ids=NodeIds(["a"])), "'b' at position 1"),
    (lambda: table(TEXT, ids=NodeIds([1, 2])), "are integers; got 'a' at position 0"),
    (lambda: NodeIds(["1", "2"]).nodes([1, 3]), "which are text; got 3 at position 1"),
    (lambda: NodeIds(["1", "02"]).nodes([1, 1]), "written alike; got '02' among the text"),
    (lambda: NodeIds.of_edges([1, 2], ["+1", "2"]), "got '+1' among the text"),
    (lambda: NodeIds(["a", "b", "a"]), "an id of its own; got 2 different ones of 3"),
    (lambda: NodeIds([1.0, np.nan]), "integers of at most 64 bits, or text"),
    (lambda: NodeIds(["a", None]), "some perhaps missing"),
    (
        lambda: Graph.from_edges([0], [1], 2, edge_time=np.array([2**63], np.uint64)),
        "must fit in int64; got 9223372036854775808. Count from another moment",
    ),
)
def test_bad_input_is_refused_in_one_line(make, says):
    refused(says, make)


def test_what_is_not_installed_is_named(monkeypatch, tmp_path, expected):
    for name in ("jraph", "networkx", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "edges.csv").write_text("src,dst\n0,1\n")
    batch = jgs.sampling.sample_neighbors(KEY, expected, SEEDS, (2,))
    refused("jgs[jraph]", batch.to_graphs_tuple)
    refused("pip install 'networkx'", expected.to_networkx)
    refused("jgs[tables]", Graph.from_table, tmp_path / "edges.csv")
