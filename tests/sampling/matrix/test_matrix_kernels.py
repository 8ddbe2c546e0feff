"""Every kernel of the matrix API gives the result of its plain JAX twin, bit for bit."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, kernels
from jgs.sampling.matrix import Matrix, Room
from jgs.sampling.matrix.collective import smallest_ranks
from jgs.sampling.matrix.edges import distinct, expand, extract, places, rearrange
from jgs.sampling.matrix.exact import exact_sum

N, HUB, ALONE = 3000, 17, 2999  # HUB has most of the edges, ALONE has none
RNG = np.random.default_rng(0)
WORDS = np.array([3, 2**31 + 5], np.uint32)


@pytest.fixture(scope="module")
def graph():
    """A hub of 30,000 edges, some of them parallel; the last 1000 nodes are no source."""
    src = RNG.integers(0, 2000, 60_000)
    dst = np.where(RNG.random(src.size) < 0.5, HUB, RNG.integers(0, N - 1, src.size))
    weight = 10.0 ** RNG.uniform(-30, 30, src.size)
    weight[RNG.random(src.size) < 0.1] = 0
    return Graph.from_edges(src, dst, N, weight.astype(np.float32))


@pytest.fixture(scope="module")
def excluded(graph):
    """A third of the edges and all those of node 3, then padding."""
    row = np.arange(*np.asarray(graph.indptr)[[3, 4]])
    which = np.union1d(np.flatnonzero(RNG.random(graph.num_edges) < 1 / 3), row)
    return np.r_[which, np.full(7, graph.num_edges)]


@pytest.fixture
def equal(implemented, same_bits):
    """Runs `program(*operands)` in each implementation, compares, and returns the result."""

    def run(program, *operands):
        found = []
        threads = (1, 2, 4) if kernels.available() else ()
        for available, number in [(False, 0), *((True, t) for t in threads)]:
            implemented(available, number)
            traced = jax.jit(lambda *operands: program(*operands)).trace(*operands)
            assert ("jgs_" in traced.lower().as_text()) == available
            found.append(traced.lower().compile()(*operands))
        for other in found[1:]:
            same_bits(other, found[0])
        return found[0]

    return run


def test_smallest_ranks(equal):
    """Wide weights, equal ones, subnormal ones, padding, fewer candidates than `k`, none."""
    some = 40_000
    nodes = RNG.permutation(2 * some)[:some].astype(np.int32)
    wide = (10.0 ** RNG.uniform(-30, 30, some)).astype(np.float32)
    wide[RNG.random(some) < 0.2] = 0
    few = np.where(RNG.random(some) < 0.001, wide, 0)
    few[:3] = 1e-40  # subnormal: XLA takes it as 0
    weights = (wide, np.ones(some, np.float32), few, np.zeros(some, np.float32))

    def program(key_data, nodes, *weights):
        each = [smallest_ranks(key_data, nodes, w, k) for w in weights for k in (1, 300)]
        return each, smallest_ranks(key_data, nodes[:7], weights[1][:7], 9)

    each, small = equal(program, WORDS, nodes, *weights)
    counts = [int((slot < some).sum()) for slot, _ in each]
    assert counts[:4] == [1, 300, 1, 300]
    assert counts[5] == (few > 1e-38).sum() > 0 == counts[7]
    slot, probs = each[3]
    assert (np.diff(nodes[np.asarray(slot)]) > 0).all()
    assert 0 < probs[0] < 1
    np.testing.assert_array_equal(small[0][7:], [7, 7])


def test_edges_of_columns_and_rows(equal, graph):
    """Padding, repeated columns, the hub, a node without edges, and too little room."""
    columns = RNG.integers(0, N, 400).astype(np.int32)
    columns[:6] = [HUB, N, ALONE, 3, 3, HUB]
    rows = RNG.permutation(N)[:300].astype(np.int32)
    rows[100:110], rows[200:205] = N, rows[:5]
    none = np.full(5, N, np.int32)

    def program(graph, columns, rows, none):
        with jax.enable_x64(True):
            of = graph.indptr, graph.indices
            narrow = graph.indptr.astype(jnp.int32)
            slices = [expand(graph.indptr, columns, 80_000), expand(narrow, columns[1:], 999)]
            rooms = ((80_000, 20_000), (80_000, 50), (500, 500))
            parts = [extract(*of, columns, rows, *room) for room in rooms]
            parts.append(extract(*of, none, none, 9, 9))
            edges, slots = parts[0][0], jnp.arange(499, -3, -2, dtype=jnp.int32)
            moved = [rearrange(edges, each, slots, N, 60_000) for each in (rows, None)]
            moved.append(rearrange(edges, rows, jnp.zeros(2, jnp.int32), N, 60_000))
            nodes = distinct(rows, 500, N), distinct(rows, 10, N)
            return slices, parts, moved, places(rows, columns, N), nodes

    found = jax.device_get(equal(program, graph, columns, rows, none))
    slices, parts, moved, place, (nodes, few) = found
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    real = columns[columns < N]
    lists = [np.arange(indptr[v], indptr[v + 1]) for v in real]
    ids = np.concatenate(lists)
    assert int(slices[0][3]) == len(ids) > 60_000
    np.testing.assert_array_equal(slices[0][2][: len(ids)], ids)
    wanted = ids[np.isin(indices[ids], rows)]
    edges, looked, needed = parts[0]
    assert (looked, needed) == (len(ids), len(wanted))
    np.testing.assert_array_equal(edges.edge_id[:needed], wanted)
    first = {int(v): i for i, v in reversed(list(enumerate(rows)))}
    np.testing.assert_array_equal(edges.row[:needed], [first[v] for v in indices[wanted]])
    count = np.diff(edges.indptr)
    np.testing.assert_array_equal(np.diff(moved[0][0])[50:250], count[399::-2])
    at = np.asarray(moved[0][1])[: moved[0][4]]
    np.testing.assert_array_equal(moved[0][2][: len(at)], rows[np.asarray(edges.row)[at]])
    np.testing.assert_array_equal(moved[1][2][: len(at)], np.asarray(edges.row)[at])
    np.testing.assert_array_equal(moved[0][3][: len(at)], np.asarray(edges.edge_id)[at])
    assert moved[2][4] == 2 * count[0] > 0
    assert (parts[1][2], parts[1][0].indptr[-1]) == (needed, 0)
    assert (parts[2][1], parts[2][2]) == (looked, 0)
    np.testing.assert_array_equal(
        place, [first[v] if v in first and v < N else 300 for v in columns]
    )
    np.testing.assert_array_equal(nodes[: len(first)], sorted(first))
    np.testing.assert_array_equal(few, sorted(first)[:10])


def test_excluded_edges_are_in_no_slice(equal, graph, excluded):
    """Edges, counts and sums are those of the edges that are left, also of a row that has
    none. What does not fit is counted without the excluded ones. A slice of a matrix whose
    edges are built, and a selection, have none of them either."""
    columns = RNG.integers(0, N, 400).astype(np.int32)
    columns[:6] = [HUB, N, ALONE, 3, 3, HUB]
    rows = RNG.permutation(N)[:300].astype(np.int32)
    by_row = (RNG.random(N) + 0.5).astype(np.float32)
    whole = graph.unweighted()
    with jax.enable_x64(True):
        excluded = jnp.asarray(excluded)

    def program(graph, columns, rows, by_row, excluded):
        with jax.enable_x64(True):
            of = graph.indptr, graph.indices, columns, rows
            slices = [expand(graph.indptr, columns, n, excluded) for n in (80_000, 99)]
            parts = [extract(*of, 80_000, n, excluded) for n in (20_000, 50)]
        A = Matrix(graph, room=Room(90_000, 80_000), excluded=excluded, key=jax.random.key(1))
        sub = A[:, columns]
        sums = [m.sum(a) for m in (sub, sub.mul(by_row, axis=1) ** 2) for a in (0, 1)]
        counts = sub.count(0), sub.count(1), A.sum(1), A.count(0)
        ids = [A.built()[:, columns].edges.edge_id, A.mul(by_row, 1)[:, columns].built()]
        ids += [sub.individual_sample(4), A.individual_sample(4)[:, columns]]
        ids = [ids[0], *(m.edges.edge_id for m in ids[1:])]
        return slices, parts, sums, counts, ids

    found = jax.device_get(equal(program, whole, columns, rows, by_row, excluded))
    (offsets, column, at, _), short = found[0]
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    lists = [np.arange(indptr[v], indptr[v + 1]) if v < N else [] for v in columns]
    lists = [np.setdiff1d(edges, excluded) for edges in lists]
    ids, sizes = np.concatenate(lists).astype(int), [len(edges) for edges in lists]
    assert short[3] == len(ids) == offsets[-1] > 40_000
    assert short[0][-1] == sizes[3] == 0
    np.testing.assert_array_equal(np.diff(offsets), sizes)
    np.testing.assert_array_equal(at[: len(ids)], ids)
    np.testing.assert_array_equal(column[: len(ids)], np.repeat(np.arange(400), sizes))
    wanted = ids[np.isin(indices[ids], rows)]
    for edges, looked, needed in found[1]:
        assert (looked, needed) == (len(ids), len(wanted))
        count = edges.indptr[-1]  # 0 where they do not fit
        np.testing.assert_array_equal(edges.edge_id[:count], wanted[:count])
    square, source = by_row[indices[ids]] ** 2, indices[ids]
    by_slot, by_source = (
        partial(np.bincount, slot, minlength=size)
        for slot, size in ((np.repeat(np.arange(400), sizes), 400), (source, N))
    )
    expected = [f(weights=w) for w in (None, square) for f in (by_slot, by_source)]
    for one, other in zip(found[2], expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    every = np.bincount(indices, minlength=N), np.diff(indptr)
    for one, other in zip(found[3], (*expected[:2], *every), strict=True):
        np.testing.assert_array_equal(one, other)
    for one in found[4]:
        one = one[one < graph.num_edges]
        assert set(one) <= set(ids)
        if len(one) > 2000:
            np.testing.assert_array_equal(one, ids)


def test_exact_sums(equal):
    """One slot has 30 % of the edges. Values include NaN and infinity, also several an edge."""
    edges, slots = 50_000, 700
    slot = np.where(RNG.random(edges) < 0.3, 5, RNG.integers(0, slots - 9, edges))
    slot[RNG.random(edges) < 0.1] = slots  # these edges are left out
    slot = slot.astype(np.int32)
    values = (RNG.normal(size=edges) * 10.0 ** RNG.uniform(-42, 37, edges)).astype(np.float32)
    values[np.flatnonzero(slot == 8)[:2]] = np.nan, 1
    values[np.flatnonzero(slot == 9)[0]] = -np.inf
    heads = RNG.normal(size=(edges, 3)).astype(np.float32)

    def program(values, heads, slot):
        none = exact_sum(values[:0], slot[:0], 4)
        return exact_sum(values, slot, slots), exact_sum(heads, slot, slots), none

    one, several, none = equal(program, values, heads, slot)
    assert np.flatnonzero(np.isnan(one)).tolist() == [8, 9]
    np.testing.assert_array_equal(none, np.zeros(4))
    expected = np.stack([np.bincount(slot, heads[:, h], slots + 1)[:-1] for h in range(3)], 1)
    np.testing.assert_allclose(several, expected, atol=2e-4)


def chains(A, columns, by_row, by_column):
    """Matrices whose sums have a kernel; the last matrix has none and is left to XLA."""
    sub = A[:, columns]
    yield A.div(A.count(axis=0), axis=0)[:, columns] ** 2
    yield sub.mul(by_row, axis=1).mul(by_column, axis=0) ** 2
    yield 1 - sub.div(by_column, axis=0)
    yield sub.add(by_row, axis=1).sub(by_column, axis=0).mul(by_row, axis=1) * 3
    yield 2 / (sub.sub(by_row, axis=1) ** 2)
    yield sub.div(by_column, axis=0).div(by_row, axis=1)


def test_sums_of_chains(equal, graph):
    """By row and by column, with padding and repeated columns, and with too little room."""
    columns = RNG.integers(0, N, 600).astype(np.int32)
    columns[:5] = [HUB, N, ALONE, HUB, 3]
    by_row, by_column = (
        (RNG.random(size) + 0.5).astype(np.float32) for size in (N, columns.size)
    )

    def program(graph, columns, by_row, by_column):
        A = Matrix(graph, room=Room(90_000, 10))
        weighted = [
            part.sum(axis) for part in chains(A, columns, by_row, by_column) for axis in (0, 1)
        ]
        A = Matrix(graph.unweighted(), room=Room(90_000, 10))
        part = A.div(by_row, axis=1)[:, columns] ** 2
        ones = A[:, columns], A, part
        unweighted = [m.sum(1) for m in ones], [m.count(1) for m in ones], part.sum(0)
        short = Matrix(graph, room=Room(10, 10))[:, columns]
        return weighted, unweighted, short.sum(1), short.sum(0), short.count(1)

    weighted, (ones, counts, _), *short, count = equal(
        program, graph, columns, by_row, by_column
    )
    assert all(np.isfinite(found).any() for found in weighted)
    np.testing.assert_array_equal(ones[0], counts[0])
    np.testing.assert_array_equal(ones[1], counts[1])
    np.testing.assert_allclose(ones[2], counts[0] / by_row**2, rtol=1e-5)
    assert 60_000 < counts[0].sum() < 90_000
    assert all(np.isnan(found).all() for found in short)
    assert count.sum() == 0


def test_derivatives_are_of_the_plain_twin(graph):
    columns = RNG.integers(0, N, 50).astype(np.int32)
    graph = graph.unweighted()

    def loss(scale):
        sub = Matrix(graph, room=Room(70_000, 10))[:, columns].mul(scale, axis=1)
        return ((sub**2).sum(axis=0) ** 2).sum()

    scale = jnp.ones(N)
    gradient = jax.jit(jax.grad(loss))(scale)
    step = 1e-2 * np.arange(N) / N
    expected = (loss(scale + step) - loss(scale - step)) / 2
    np.testing.assert_allclose(gradient @ step, expected, rtol=1e-2)
    assert expected != 0
