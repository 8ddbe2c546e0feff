"""`FeatureExchange`: rows, rounds and bytes against the whole matrix, on a mesh of 1 to 4."""

import itertools
import tracemalloc
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from cases import cases
from check_training import in_file
from refusals import refused
from small_ranks import OFFSETS, ranks_of

from jgs import InputError, kernels
from jgs.dist.batches.plan import RemoteNodes, degree_counts, most_read
from jgs.dist.communicators.comm import Alone
from jgs.dist.rows import split_table as module
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.owners import Demand, rounded
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.models import Placed

N = 50
RNG = np.random.default_rng(0)
DENSE = RNG.standard_normal((N, 6)).astype(np.float32)
SPARSE = scipy.sparse.random(N, 40, 0.1, "csr", np.float32, np.random.default_rng(1))


def dense(offsets):
    return [[DENSE[a:b]] for a, b in itertools.pairwise(offsets)]


def sparse(offsets):
    pieces = itertools.pairwise(offsets)
    return [SparseFeatures.from_scipy(SPARSE[a:b]) for a, b in pieces]


def matrix_of(make):
    return DENSE if make is dense else SPARSE.toarray()


def batches(size, seed=0):
    """The nodes of a batch for each rank, with padding in between; none on the last rank."""
    rng = np.random.default_rng(seed)
    nodes = [
        np.insert(rng.permutation(N)[:30], [0, 7], N).astype(np.int32) for _ in range(size)
    ]
    if size > 1:
        nodes[-1][:] = N
    return nodes


def most_asked(nodes, offsets):
    """The most rows that one rank asks another one for."""
    return max(
        sum(a <= n < b for n in ids)
        for r, ids in enumerate(nodes)
        for p, (a, b) in enumerate(itertools.pairwise(offsets))
        if p != r
    )


def counted(comm):
    return np.array([comm.counters.rounds, comm.counters.bytes])


def check(exchange, comm, matrix, nodes):
    x, _ = exchange(comm.own([jnp.asarray(n) for n in nodes]))
    x = comm.local(x)
    matrix = np.vstack([matrix, np.zeros((1, matrix.shape[1]))])
    for rows, ids in zip(x, nodes, strict=True):
        assert rows.dtype == jnp.float32
        np.testing.assert_array_equal(rows, matrix[ids])


@cases(
    "size, make, use_kernels",
    (1, sparse, True),
    (2, dense, True),
    (3, dense, True),
    (3, sparse, False),
)
def test_rows_are_those_of_the_whole_matrix(size, make, use_kernels, monkeypatch):
    """In one exchange, and in several where the capacity is too small."""
    if use_kernels and not kernels.available():
        pytest.skip("kernels are not in use")
    monkeypatch.setattr(kernels, "available", lambda: use_kernels)
    comm, offsets, nodes = ranks_of(size), OFFSETS[size], batches(size)
    exchange, before = FeatureExchange(comm, offsets, make(offsets), 40), counted(comm)
    check(exchange, comm, matrix_of(make), nodes)
    row = 6 if make is dense else 2 * int(np.diff(SPARSE.indptr).max())
    two = 0 if size == 1 else 2
    sent = (size - 1) * 4 * (41 + 40 * row)
    np.testing.assert_array_equal(counted(comm) - before, (two, sent))
    if make is dense:  # of sparse rows a small capacity is tried below
        exchange = FeatureExchange(comm, offsets, make(offsets), 4)
        before = comm.counters.rounds
        check(exchange, comm, DENSE, nodes)
        assert comm.counters.rounds - before == 2 * -(-most_asked(nodes, offsets) // 4)
        assert exchange.extra_rounds == comm.counters.rounds - before - 2
    before = comm.counters.rounds
    flags = comm.own([np.array(r == size - 1) for r in range(size)])
    assert exchange(comm.own([jnp.asarray(n) for n in nodes]), flags)[1]
    assert comm.counters.rounds - before == two  # one rank's overflow is told to all at once


@pytest.mark.parametrize(("wire", "make"), [("float16", dense), ("bfloat16", sparse)])
def test_all_rows_are_rounded_to_the_wire_whoever_owns_them(wire, make):
    matrix = matrix_of(make)
    nodes, rounded = batches(2), matrix.astype(jnp.dtype(wire)).astype(np.float32)
    assert not np.array_equal(rounded, matrix)
    entries = -(-int(np.diff(SPARSE.indptr).max()) // 2) * 2
    row = 2 * 6 if make is dense else (4 + 2) * entries
    for size in (1, 2):
        comm, offsets = ranks_of(size), OFFSETS[size]
        exchange = FeatureExchange(comm, offsets, make(offsets), 40, wire)
        for cached in ([30, 31, 40, 49], []):
            exchange.cache([np.array(cached, np.int32)] * size)
            before = comm.counters.bytes
            check(exchange, comm, rounded, nodes[:size])
            sent = comm.counters.bytes - before
            assert sent == (0 if size == 1 else 41 * 4 + 40 * row)


def test_rows_stay_where_they_lie_and_are_read_there(tmp_path):
    """Two files with matrices for each rank."""
    rng = np.random.default_rng(4)
    sizes = [[300, 800], [700, 700]]
    features, matrices = [], []
    for r, of_rank in enumerate(sizes):
        for i, num in enumerate(of_rank):
            matrices.append(rng.standard_normal((num, 6)).astype(np.float32))
            np.save(tmp_path / f"{r}{i}.npy", matrices[-1])
        files = [tmp_path / f"{r}{i}.npy" for i in range(len(of_rank))]
        features.append([np.load(file, mmap_mode="r") for file in files])
    comm, whole = ranks_of(2), np.vstack([*matrices, np.zeros((1, 6))])
    nodes = [rng.permutation(2500)[:400].astype(np.int32) for _ in range(2)]
    for capacity in (300, 40):  # 300 is enough; with 40 the rows are put together
        exchange = FeatureExchange(comm, [0, 1100, 2500], features, capacity, in_place=True)
        x, _ = exchange(comm.own(nodes))
        assert isinstance(x, Placed) == (capacity == 300)
        for local, ids in zip(comm.local(x), nodes, strict=True):
            rows = local.rows() if capacity == 300 else local
            np.testing.assert_array_equal(rows, whole[ids])
        if capacity == 300:
            for table in x.tables[: len(sizes[0])]:
                assert all(in_file(table, tmp_path))


def test_several_tables_and_float16_rows_are_read_where_they_lie():
    comm = Alone()
    tables = [[DENSE[:20].astype(np.float16), DENSE[20:21].astype(np.float16), DENSE[21:]]]
    matrix = np.vstack([DENSE[:21].astype(np.float16).astype(np.float32), DENSE[21:]])
    check(FeatureExchange(comm, [0, N], tables, 1), comm, matrix, batches(1))


@pytest.mark.parametrize("make", [dense, sparse])
def test_rows_kept_before_are_not_asked_for_again(make):
    comm, offsets, matrix = ranks_of(4), OFFSETS[4], matrix_of(make)
    exchange = FeatureExchange(comm, offsets, make(offsets), 5)
    everything = [np.arange(N, dtype=np.int32)] * 4
    check(exchange, comm, matrix, everything)
    without = exchange.extra_rounds

    def rounds(*nodes):
        """The rounds that filling took: the owner with most new rows sends 5 at a time."""
        before = comm.counters.rounds
        exchange.cache([np.array(nodes, np.int32)] * 4)
        took, before = comm.counters.rounds - before, exchange.extra_rounds
        check(exchange, comm, matrix, everything)
        assert exchange.extra_rounds - before <= without
        return (took - 1) // 2

    assert rounds(*range(1, 11), *range(20, 29), N) == 2  # of two owners at once
    assert rounds(*range(1, 11), *[N] * 10) == 0
    assert rounds(*range(10, 0, -1), *[N] * 10) == 0  # the same rows at other places
    assert rounds(N, *range(5, 17), *[N] * 7) == 2  # 11 to 16 are new
    assert rounds(*range(1, 11), *[N] * 10) == 1  # 1 to 4 had been dropped
    assert rounds(*range(1, 9), *range(20, 32)) == 3
    before = exchange.extra_rounds
    check(exchange, comm, matrix, everything)
    assert exchange.extra_rounds - before < without  # fewer are asked for
    exchange.replace(
        [[2 * t for t in own] for own in make(offsets)] if make is dense else make(offsets)
    )
    matrix = matrix * (2 if make is dense else 1)
    assert rounds(*range(1, 11), *[N] * 10) == 2  # the rows themselves are new
    exchange.cache([np.zeros(0, np.int32)] * 4)  # and then none again
    exchange.resize(50)
    check(exchange, comm, matrix, everything)


def test_bad_input_is_refused():
    refused("wire", FeatureExchange, Alone(), [0, N], dense([0, N]), 3, "int8")
    refused("offsets must be 2 ints", FeatureExchange, Alone(), [0, 10, N], dense([0, N]), 3)
    comm, parts = ranks_of(2), OFFSETS[2]
    for offsets in ([0, N, 29], [1, 29, N], [0, 28.7, N], [0, 29, 2**31]):
        refused("offsets must be 3 ints", FeatureExchange, comm, offsets, dense(parts), 3)
    for make in (dense, sparse):
        few = [make(parts)[0], make([0, 5])[0]]
        with pytest.raises(InputError, match="rank 1 must have a row for each of its 21 nodes"):
            FeatureExchange(comm, parts, few, 3)
        exchange = FeatureExchange(comm, parts, make(parts), 3)
        refused("got 5 rows", exchange.replace, few)
        check(exchange, comm, matrix_of(make), batches(2))


@pytest.mark.parametrize("num_rows", [0, 1, 37, 5000])
def test_the_rows_read_most_are_chosen_without_bytes_an_edge(monkeypatch, num_rows):
    monkeypatch.setattr("jgs.graph.rows._EDGES_AT_ONCE", 1 << 14)
    num_nodes, offsets = 1000, np.array([0, 400, 1000])
    indices = np.random.default_rng(0).binomial(num_nodes, 0.4, 1 << 20).astype(np.int32)
    comm, graph = SimpleNamespace(rank=0), SimpleNamespace(indices=indices)
    tracemalloc.start()
    remote = RemoteNodes(comm, offsets, None, [])
    found = most_read(*degree_counts(remote, [graph]), num_rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < indices.size  # less than a byte an edge; int64 takes eight
    count = np.bincount(indices, minlength=num_nodes)
    count[:400] = 0
    best = np.argsort(-count, kind="stable")[: np.count_nonzero(count)][:num_rows]
    expected = np.full(num_rows, num_nodes)
    expected[: best.size] = best
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("trials", [5, 16, 54])
def test_one_step_in_a_thousand_at_most_needs_more(trials):
    rng, steps, exceeded = np.random.default_rng(0), 2000, []
    for _ in range(200):
        needs = rng.normal(26000, 400, trials + steps).astype(int)
        exceeded.append((needs[trials:] > Demand(needs[:trials].tolist()).most()).mean())
    assert np.mean(exceeded) < 1e-3, np.mean(exceeded)


def test_few_needs_and_none():
    demand = Demand()
    assert demand.most() == 0
    demand.add(100)
    assert demand.most() == 111  # the other steps are not known yet
    demand.add(100)
    assert demand.most() == 100
    assert [rounded(n) for n in (0, 1, 64, 65)] == [1, 64, 64, 128]


def test_few_rows_are_asked_for_in_a_small_round():
    comm, offsets = ranks_of(2), OFFSETS[2]
    exchange = FeatureExchange(comm, offsets, dense(offsets), 40)
    everything = [np.arange(N, dtype=np.int32)] * 2
    for first, new, room in ((0, 0, 0), (0, 1, 1), (3, 3, 4), (0, 29, 32)):
        nodes = np.append(np.arange(first, first + new), [N] * (30 - new)).astype(np.int32)
        before = comm.counters.bytes
        exchange.cache([nodes] * 2)
        sent = comm.counters.bytes - before
        assert sent == 256 + (room > 0) * 4 * (1 + room) + 4 * 6 * room
        check(exchange, comm, DENSE, everything)


def test_a_rank_may_have_more_than_2_to_the_31_sparse_entries(monkeypatch):
    num = 2**31 + 5
    # 4 bytes for each array.
    huge = [np.broadcast_to(x, num) for x in (np.int32(0), np.float32(1))]
    own = SparseFeatures(np.array([0, 3, num]), *huge, 40, 9)
    monkeypatch.setattr(module, "as_device", lambda array: array)
    tables, _, _, longest = module.own_rows(ranks_of(2), [own] * 2, np.arange(3) * 2)
    assert [(t.indices.size, longest) for t in tables] == [(num, 9)] * 2
