"""`FeatureExchange` of node types: rows, rounds and bytes against `gather` of all features."""

from itertools import accumulate

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from small_ranks import dense_rows, ranks_of

from jgs import InputError
from jgs.dist.rows.exchange import FeatureExchange
from jgs.graph import Schema, TypedFeatures
from jgs.ops import gather

NAMES = ("dense", "half", "sparse", "none")
PARTS = {1: [(30, 21, 26, 9)], 2: [(13, 21, 20, 4), (17, 0, 6, 5)]}
PARTS[3] = [(10, 11, 6, 2), (3, 0, 9, 3), (17, 10, 11, 4)]
RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((30, 3)).astype(np.float32)
HALF = RNG.standard_normal((21, 5)).astype(np.float16)  # rows of an odd number of halves
SPARSE = scipy.sparse.random(26, 40, 0.1, "csr", np.float32, np.random.default_rng(1))
ENTRIES = int(np.diff(SPARSE.indptr).max())


def whole(size):
    """The features of all nodes, and those of the own nodes of each rank."""
    parts = PARTS[size]
    counts = np.sum(parts, axis=0).tolist()
    schema = Schema(tuple(zip(NAMES, counts, strict=True)), (), tuple(parts))
    given = dict(zip(NAMES, (DENSE, HALF, SPARSE), strict=False))
    ends = [list(accumulate(of_type, initial=0)) for of_type in zip(*parts, strict=True)]
    own = [
        TypedFeatures.from_dict(
            schema.of_parts(rank, rank + 1),
            {n: given[n][e[rank] : e[rank + 1]] for n, e in zip(given, ends, strict=False)},
        )
        for rank in range(size)
    ]
    return TypedFeatures.from_dict(schema, given), own


def make(size, capacities=(9, 8, 7, 3), wire="float32"):
    comm, (features, own) = ranks_of(size), whole(size)
    return (
        comm,
        features,
        FeatureExchange(comm, features.schema, own, capacities, wire, in_place=True),
    )


def batches(size, num=40, seed=0):
    """The nodes of each rank's batch, with padding in between; none on the last rank."""
    rng = np.random.default_rng(seed)
    padding = [0, 7, *[num] * 100]
    nodes = [np.insert(rng.permutation(86)[:num], padding, 86) for _ in range(size)]
    if size > 1:
        nodes[-1][:] = 86
    return [each.astype(np.int32) for each in nodes]


def in_full(rows):
    """A list of the rows, of the width of their type."""
    found = [np.zeros(0)] * rows.kind.size
    for number, table in enumerate(rows.tables):
        at = np.flatnonzero(np.asarray(rows.kind) == number)
        for i, row in zip(at, dense_rows(table, np.asarray(rows.place)[at]), strict=True):
            found[i] = row
    return found


def check(exchange, comm, features, nodes, dtype=None):
    x, lost = exchange(comm.own([jnp.asarray(n) for n in nodes]))
    assert not lost
    for rows, ids in zip(comm.local(x), nodes, strict=True):
        want = gather(features, ids)
        np.testing.assert_array_equal(rows.kind, want.kind)
        bare = np.isin(np.asarray(rows.kind), [-1, 3])  # without features: places in the type
        np.testing.assert_array_equal(rows.place[bare], want.place[bare])
        for got, row in zip(in_full(rows), in_full(want), strict=True):
            row = row if dtype is None else row.astype(dtype).astype(np.float32)
            assert got.tolist() == row.tolist()
    return x


def counted(comm):
    return np.array([comm.counters.rounds, comm.counters.bytes])


def sent(size, words, num_capacity):
    """What a call sends: the ids and `words` of rows, beside an overflow flag and for each of 3
    types its nodes and its most."""
    return [2 * (size > 1), (size - 1) * 4 * (1 + 3 + 3 + num_capacity + words)]


@pytest.mark.parametrize("size", [1, 3])
def test_rows_are_those_of_all_features_in_2_rounds(size):
    """A row costs the width of its own type: 3 words, 5 halves, or the fullest sparse row."""
    capacities = (30, 21, 26, 1)
    comm, features, exchange = make(size, capacities)
    nodes, before = batches(size), counted(comm)
    x = check(exchange, comm, features, nodes)
    words = 30 * 3 + (21 * 5 + 1) // 2 + 26 * 2 * ENTRIES
    assert (counted(comm) - before).tolist() == sent(size, words, 30 + 21 + 26)
    assert [isinstance(table, tuple) for table in x.tables] == [True, True, False, False]
    assert x.tables[2].shape[-2] == 64  # the nodes of this type, not all 142 of the batch
    assert x.tables[3] is None


def test_what_exceeds_a_capacity_comes_in_further_rounds():
    comm, features, exchange = make(3, (2, 9, 30, 1))
    before = comm.counters.rounds
    check(exchange, comm, features, nodes := batches(3))
    dense = features.schema.ranges("dense")
    asked = [
        sum(n in ids for n in own)
        for rank, own in enumerate(nodes)
        for owner, ids in enumerate(dense)
        if owner != rank
    ]
    assert comm.counters.rounds - before == 2 * -(-max(asked) // 2) > 2
    assert exchange.extra_rounds == comm.counters.rounds - before - 2
    exchange.fit_to_demand()
    assert exchange.capacity[0] == 64
    before = comm.counters.rounds
    check(exchange, comm, features, batches(3))
    assert comm.counters.rounds - before == 2


@pytest.mark.parametrize(("wire", "size"), [("float16", 2), ("bfloat16", 1)])
def test_rows_are_rounded_to_the_wire_whoever_owns_them(wire, size):
    comm, features, exchange = make(size, (30, 21, 26, 1), wire)
    before = counted(comm)
    x = check(exchange, comm, features, batches(size), jnp.dtype(wire))
    entries = -(-ENTRIES // 2) * 2
    words = 30 * 3 // 2 + (21 * 5 + 1) // 2 + 26 * entries * 3 // 2
    assert (counted(comm) - before).tolist() == sent(size, words, 30 + 21 + 26)
    assert isinstance(x.tables[1], tuple) == (wire == "float16")  # nothing is rounded


def test_one_ranks_overflow_is_told_to_all():
    comm, features, exchange = make(3)
    flags = comm.own([np.array(rank == 2) for rank in range(3)])
    assert exchange(comm.own([jnp.asarray(n) for n in batches(3)]), flags)[1]
    del features
    schema = Schema((("a", 4),), (), ((2,), (2,)))
    comm = ranks_of(2)
    none = [TypedFeatures((None,), schema.of_parts(r, r + 1)) for r in range(2)]
    exchange = FeatureExchange(comm, schema, none, (1,))
    nodes = comm.own([jnp.arange(3, dtype=jnp.int32)] * 2)
    assert exchange(nodes, comm.own([np.array(rank == 1) for rank in range(2)]))[1]
    rows, lost = exchange(nodes)
    assert (rows.tables, lost) == ((None,), False)


def test_bad_input_is_refused():
    features, own = whole(3)
    with pytest.raises(InputError, match="a multiple of the ranks"):
        FeatureExchange(ranks_of(2), features.schema, own[:2], (1, 1, 1, 1))
    comm = ranks_of(3)
    with pytest.raises(InputError, match="rank 1 must have a row for each of its 3 nodes"):
        FeatureExchange(comm, features.schema, [own[0], own[0], own[2]], (1, 1, 1, 1))
