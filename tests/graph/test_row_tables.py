"""The contract of feature rows, tried on every form of `FORMS`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from refusals import refused

from jgs import Graph, kernels, ops
from jgs.errors import InputError
from jgs.graph import Block, QuantizedFeatures, SparseFeatures, TypedFeatures, as_device
from jgs.graph.row_tables.table import (
    as_one,
    as_table,
    kept_as,
    of_host,
    opened_table,
    plain,
)
from jgs.graph.schema import Schema
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.tables import DTYPES
from jgs.tables import ROW_TABLES as FORMS

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(60, 33)).astype(np.float32) * (RNG.random((60, 33)) < 0.7)
ROWS[:, 5], ROWS[:, 6] = 7.5, ROWS[:, 6] * 1e-3 + 1000  # one number, and far from 0
CODED = DTYPES[3:]  # the forms that are made of others
MADE = {
    "float32": lambda x: as_device(x),
    "float16": lambda x: as_device(x.astype(np.float16)),
    "sparse": lambda x: SparseFeatures.from_scipy(scipy.sparse.csr_array(x)),
} | {name: FORMS[name].of for name in CODED}
IDS = jnp.array([0, 59, -1, 17, 60, 17, 3], jnp.int32)
EVERY = pytest.mark.parametrize("kind", MADE)


def tolerance(kind):
    """How far a number of the form may be from the one that was given."""
    spread = (ROWS.max(axis=0) - ROWS.min(axis=0)) / 255 * 1.01 + 1e-4
    most = np.abs(ROWS).max(axis=0)
    known = {"float32": 1e-6, "sparse": 1e-6, "float16": most / 1024, "int8": spread}
    return known.get(kind, most / 100)


def block(weighted):
    indptr = jnp.array([0, 2, 2, 7, 12, 12], jnp.int32)
    indices = jnp.asarray(RNG.integers(0, 60, 14), jnp.int32)
    weight = jnp.asarray(RNG.random(14), jnp.float32) if weighted else None
    return Block(
        indptr, indices, jnp.int32(4), jnp.int32(60), jnp.int32(12), edge_weight=weight
    )


def test_all_forms_are_tried():
    assert {as_table(make(ROWS)).form for make in MADE.values()} == set(FORMS)
    assert all(FORMS[name].form == name for name in FORMS)


@EVERY
def test_numbers(kind):
    table = as_table(MADE[kind](ROWS))
    assert table.shape == (60, 33)
    off = np.abs(table.numbers() - ROWS)
    assert (off <= tolerance(kind)).all()
    if kind == "int8":
        assert (table.numbers()[ROWS == 0][:, None] == 0).all()  # in columns that have 0
    some = slice(4, 20), np.array([3, 0, 32])
    np.testing.assert_array_equal(table.numbers(*some), table.numbers()[4:20][:, some[1]])


@EVERY
def test_gather(kind):
    table = MADE[kind](ROWS)
    real = np.array([0, 1, 3, 5, 6])
    with kernels.plain():
        slow = np.asarray(ops.gather(table, IDS))
    wanted = np.zeros((7, 33), np.float32)
    wanted[real] = as_table(table).numbers()[[0, 59, 17, 17, 3]]
    np.testing.assert_allclose(slow, wanted, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(ops.gather(table, IDS)), slow, rtol=1e-6, atol=1e-6)


@EVERY
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("weighted", [False, True])
def test_aggregation_is_that_of_gathered_rows(kind, reduce, weighted):
    table, of = MADE[kind](ROWS), block(weighted)
    wanted = ops.aggregate(of, ops.gather(table, jnp.arange(60)), reduce)
    wanted = np.where(np.isinf(wanted), 0, wanted)
    each = {"rtol": 2e-5, "atol": 1e-4}
    np.testing.assert_allclose(ops.gather_aggregate(table, of, reduce), wanted, **each)
    with kernels.plain():
        np.testing.assert_allclose(ops.gather_aggregate(table, of, reduce), wanted, **each)
    if as_table(table).by_entries:
        return
    place = jnp.asarray(RNG.permutation(60) - 1, jnp.int32)  # one of them is no row
    wanted = ops.aggregate(of, ops.gather(table, place), reduce)
    found = ops.gather_aggregate(table, of, reduce, place)
    np.testing.assert_allclose(found, wanted, **each)


def test_sums_of_many_codes_are_exact():
    """A sum of codes is taken in 16 bits for a while: 1,000 of the largest exceed them."""
    codes = as_device(np.full((1000, 70), 127, np.int8))
    table = QuantizedFeatures(codes, jnp.full(70, 0.5), jnp.ones(70))
    of = Block(
        jnp.array([0, 1000], jnp.int32),
        jnp.arange(1000, dtype=jnp.int32),
        jnp.int32(1),
        jnp.int32(1000),
        jnp.int32(1000),
    )
    assert (np.asarray(ops.gather_aggregate(table, of, "sum")) == 1000 * 64.5).all()


@EVERY
def test_files(kind):
    """What a table is stored as says all, and is not another form's."""
    table = as_table(MADE[kind](ROWS))
    found = as_table(opened_table(table.arrays(), 33))
    assert (type(found), found.kind) == (type(table), table.kind)
    np.testing.assert_array_equal(found.numbers(), table.numbers())
    assert tuple(table.arrays()) == table.names
    assert all(len(table.arrays()[name]) == 60 for name in table.row_names)


@EVERY
def test_some_rows_and_several_tables(kind):
    table = as_table(MADE[kind](ROWS))
    parts = [as_table(table.take(slice(0, 25))), as_table(table.take(np.arange(25, 60)))]
    one = as_one(parts)
    assert one.kind == table.kind
    np.testing.assert_array_equal(one.numbers(), table.numbers())
    found = np.asarray(ops.gather(plain(one), IDS))
    np.testing.assert_allclose(found, ops.gather(plain(table), IDS), rtol=1e-6, atol=1e-6)
    assert np.array_equal(as_table(of_host(table.host())).numbers(), table.numbers())


@EVERY
def test_statistics(kind):
    squares, filled = as_table(MADE[kind](ROWS)).squares(1 << 20)
    numbers = as_table(MADE[kind](ROWS)).numbers().astype(np.float64)
    if kind == "sparse":
        np.testing.assert_allclose(
            (squares[0], filled[0]), ((numbers**2).sum(), (numbers != 0).sum())
        )
    else:
        np.testing.assert_allclose(squares, (numbers**2).sum(axis=0), rtol=1e-6)
        np.testing.assert_array_equal(filled, (numbers != 0).sum(axis=0))


@pytest.mark.parametrize("kind", ["float32", "float16", *CODED])
def test_rows_that_travel(kind):
    """A table of the rows of others, which were sent, reads as they do where they come from."""
    table = as_table(MADE[kind](ROWS))
    sent = tuple(np.asarray(rows)[30:] for rows in table.rows)
    own = tuple(np.asarray(rows)[:30] for rows in table.rows)
    both = table.with_rows(tuple(map(as_device, own + sent)))
    wanted = ops.gather(plain(table), IDS)
    np.testing.assert_array_equal(ops.gather(both, IDS), wanted)
    with kernels.plain():
        np.testing.assert_allclose(ops.gather(both, IDS), wanted, rtol=1e-6, atol=1e-6)
    encoded = table.encoded(table.numbers())
    np.testing.assert_array_equal(encoded, np.asarray(table.rows[0]))


@pytest.mark.parametrize("kind", CODED)
def test_tables_of_other_scales_are_joined_by_their_numbers(kind):
    tables = [FORMS[kind].of(ROWS[:20]), FORMS[kind].of(3 * ROWS[20:])]
    found = as_one(tables).numbers()
    numbers = np.concatenate([table.numbers() for table in tables])
    np.testing.assert_allclose(found, numbers, atol=3 * np.max(tolerance(kind)))


def test_other_numbers_are_cut_to_the_range():
    table = QuantizedFeatures.of(ROWS)
    codes = table.encoded(np.array([[1e9] * 33, [-1e9] * 33], np.float32))
    assert set(codes[0][ROWS.std(axis=0) > 0]) == {127}
    assert set(codes[1][ROWS.std(axis=0) > 0]) == {-128}


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (1, 1)])
def test_small_tables(shape):
    table = QuantizedFeatures.of(np.ones(shape, np.float32))
    found = ops.gather(table, jnp.array([0, 5], jnp.int32))
    assert found.shape == (2, shape[1])
    assert np.asarray(found).sum() == (shape[0] > 0) * shape[1]


def test_refusals():
    with pytest.raises(InputError, match=r"features must be finite.*row 7"):
        QuantizedFeatures.of(np.where(np.arange(60)[:, None] == 7, np.nan, ROWS))
    with pytest.raises(InputError, match=r"dtype must be one of .*int8.*got 'int4'"):
        kept_as(as_device(ROWS), "int4")
    large = as_device(np.where(np.arange(60)[:, None] == 9, 1e5, ROWS))
    with pytest.raises(InputError, match=r"kept as float16 must be within its range.*row 9"):
        kept_as(large, "float16")
    with pytest.raises(InputError, match="features in several tables must be JAX arrays"):
        ops.gather((QuantizedFeatures.of(ROWS), as_device(ROWS)), IDS)


def test_jit_grad_and_pickle():
    import pickle

    table = QuantizedFeatures.of(ROWS)
    again = pickle.loads(pickle.dumps(table))
    np.testing.assert_array_equal(again.numbers(), table.numbers())
    of = block(True)

    @jax.jit
    def loss(scale, weight):
        rows = QuantizedFeatures(table.codes, scale, table.offset)
        edges = Block(
            *(getattr(of, n) for n in ("indptr", "indices")),
            jnp.int32(4),
            jnp.int32(60),
            jnp.int32(12),
            edge_weight=weight,
        )
        return ops.gather_aggregate(rows, edges, "sum").sum()

    slope = jax.grad(loss, (0, 1))(table.scale, of.edge_weight)
    assert all(np.isfinite(s).all() and np.abs(s).sum() > 0 for s in slope)


def test_a_typed_graph_mixes_forms():
    schema = Schema((("a", 30), ("b", 30), ("c", 4)), ())
    tables = {"a": QuantizedFeatures.of(ROWS[:30]), "b": as_device(ROWS[30:])}
    typed = TypedFeatures.from_dict(schema, tables)
    assert typed.widths == (33, 33, 0)
    assert "int8" in repr(typed)
    assert len(typed.scales()[0]) == 33


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
