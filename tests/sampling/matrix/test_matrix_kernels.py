"""Every kernel of the matrix API gives the result of its plain JAX twin, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph
from jgs.sampling.edges.project import project
from jgs.sampling.matrix import Matrix, Room
from jgs.sampling.matrix.edge_arrays import (
    EdgeArrays,
    distinct,
    expand,
    extract,
    inner,
    places,
    rearrange,
)
from jgs.sampling.matrix.select import running_weights, smallest_ranks
from jgs.sampling.matrix.sums import exact_sum

N, HUB, ALONE = 3000, 17, 2999  # HUB has most of the edges, ALONE has none
RNG = np.random.default_rng(0)
WORDS = np.array([3, 2**31 + 5], np.uint32)
# With padding, repetitions, the hub, and a node without edges.
COLUMNS = np.r_[HUB, N, ALONE, 3, 3, HUB, RNG.integers(0, N, 394)].astype(np.int32)
ROWS = RNG.permutation(N)[:300].astype(np.int32)
ROWS[100:110], ROWS[200:205] = N, ROWS[:5]


@pytest.fixture(scope="module")
def graph():
    """A hub of 30,000 edges, some of them parallel; the last 1000 nodes are no source."""
    src = RNG.integers(0, 2000, 60_000)
    dst = np.where(RNG.random(src.size) < 0.5, HUB, RNG.integers(0, N - 1, src.size))
    weight = 10.0 ** RNG.uniform(-30, 30, src.size)
    weight[RNG.random(src.size) < 0.1] = 0
    return Graph.from_edges(src, dst, N, weight.astype(np.float32))


def test_smallest_ranks(alike):
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

    each, small = alike(program, WORDS, nodes, *weights)
    counts = [int((slot < some).sum()) for slot, _ in each]
    assert counts[:4] == [1, 300, 1, 300]
    assert counts[5] == (few > 1e-38).sum() > 0 == counts[7]
    slot, probs = each[3]
    assert (np.diff(nodes[np.asarray(slot)]) > 0).all()
    assert 0 < probs[0] < 1
    np.testing.assert_array_equal(small[0][7:], [7, 7])


def test_edges_of_columns_and_rows(alike, graph):
    """Also with too little room."""
    columns, rows, none = COLUMNS, ROWS, np.full(5, N, np.int32)

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

    slices, parts, moved, place, (nodes, few) = alike(program, graph, columns, rows, none)
    assert int(slices[0][3]) == np.append(graph.degrees(), 0)[columns].sum() > 60_000
    edges, looked, needed = parts[0]
    assert (looked, needed) == (slices[0][3], edges.indptr[-1])
    assert moved[2][4] == 2 * edges.indptr[1] > 0
    assert (parts[1][2], parts[1][0].indptr[-1]) == (needed, 0)
    assert (parts[2][1], parts[2][2]) == (looked, 0)
    first = {int(v): i for i, v in reversed(list(enumerate(rows)))}
    assert place.tolist() == [first[v] if v in first and v < N else 300 for v in columns]
    np.testing.assert_array_equal(nodes[: len(first)], sorted(first))
    np.testing.assert_array_equal(few, sorted(first)[:10])


def test_excluded_edges_are_in_no_slice(alike, graph):
    """Nor are they counted. A third of all edges is excluded, and all of node 3."""
    columns, whole, num_edges = COLUMNS, graph.unweighted(), graph.num_edges
    by_row = (RNG.random(N) + 0.5).astype(np.float32)
    row = np.arange(*np.asarray(graph.indptr)[[3, 4]])
    holes = np.union1d(np.flatnonzero(RNG.random(num_edges) < 1 / 3), row)
    with jax.enable_x64(True):
        excluded = jnp.asarray(np.r_[holes, np.full(7, num_edges)])

    def program(graph, columns, rows, by_row, excluded):
        with jax.enable_x64(True):
            of = graph.indptr, graph.indices, columns, rows
            slices = [expand(graph.indptr, columns, n, excluded) for n in (80_000, 99)]
            parts = [extract(*of, 80_000, n, excluded) for n in (20_000, 50)]
        A = Matrix(graph, room=Room(90_000, 80_000), excluded=excluded, key=jax.random.key(1))
        sub = A[:, columns]
        sums = [m.sum(a) for m in (sub, sub.mul(by_row, axis=1) ** 2) for a in (0, 1)]
        counts = sub.count(0), A.sum(1), A.count(0), sub.count(1)
        return slices, parts, sums, counts, A.built()[:, columns].edges.edge_id

    slices, parts, sums, counts, ids = alike(program, whole, columns, ROWS, by_row, excluded)
    (indices, target), left = graph.edge_index(), ~np.isin(np.arange(num_edges), holes)
    degrees, near = (
        np.bincount(target[edges], minlength=N + 1)[columns]
        for edges in (left, left & np.isin(indices, ROWS))
    )
    for found in (np.diff(slices[0][0]), sums[0], counts[0]):
        np.testing.assert_array_equal(found, degrees)
    assert slices[0][3] == slices[1][3] == (ids < num_edges).sum() == degrees.sum() > 40_000
    assert parts[0][2] == parts[1][2] == near.sum() > 0 == slices[1][0][-1]
    assert not np.isin(ids, holes).any()
    # Of the whole graph nothing is left out.
    np.testing.assert_array_equal(counts[1], np.bincount(indices, minlength=N))
    np.testing.assert_array_equal(counts[2], graph.degrees())


def test_exact_sums(alike):
    """One slot has 30 % of the edges. Values include NaN and infinity, also several an edge."""
    edges, slots = 50_000, 700
    slot = np.where(RNG.random(edges) < 0.3, 5, RNG.integers(0, slots - 9, edges))
    slot[RNG.random(edges) < 0.1] = slots  # these edges are left out
    slot = slot.astype(np.int32)
    values = (RNG.normal(size=edges) * 10.0 ** RNG.uniform(-42, 37, edges)).astype(np.float32)
    values[np.flatnonzero(slot == 8)[:2]] = np.nan, 1
    values[np.flatnonzero(slot == 9)[0]] = -np.inf
    heads, order = RNG.normal(size=(edges, 3)).astype(np.float32), RNG.permutation(edges)

    def program(values, heads, slot):
        none = exact_sum(values[:0], slot[:0], 4)
        sums = exact_sum(values, slot, slots), exact_sum(values[order], slot[order], slots)
        return *sums, exact_sum(heads, slot, slots), none

    one, turned, several, none = alike(program, values, heads, slot, optimised=True)
    np.testing.assert_array_equal(one, turned)
    exact = np.bincount(slot, values.astype(np.float64), slots + 1)[:-1]
    scale = np.array([np.abs(values[slot == s]).max(initial=0) for s in range(slots)])
    near = np.abs(one - exact) <= edges * 2.0**-30 * scale + np.abs(exact) * 2.0**-23
    assert np.delete(near, [8, 9]).all()
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


def test_sums_of_chains(alike, graph):
    """By row and by column, and with too little room."""
    by_row, by_column = ((RNG.random(n) + 0.5).astype(np.float32) for n in (N, COLUMNS.size))

    def program(graph, columns, by_row, by_column):
        A = Matrix(graph, room=Room(90_000, 10))
        parts = chains(A, columns, by_row, by_column)
        weighted = [part.sum(axis) for part in parts for axis in (0, 1)]
        A = Matrix(graph.unweighted(), room=Room(90_000, 10))
        part = A.div(by_row, axis=1)[:, columns] ** 2
        ones = A[:, columns], A, part
        unweighted = [m.sum(1) for m in ones], [m.count(1) for m in ones], part.sum(0)
        short = Matrix(graph, room=Room(10, 10))[:, columns]
        return weighted, unweighted, short.sum(1), short.sum(0), short.count(1)

    found = alike(program, graph, COLUMNS, by_row, by_column)
    weighted, (ones, counts, _), *short, count = found
    assert all(np.isfinite(found).any() for found in weighted)
    np.testing.assert_array_equal(ones[0], counts[0])
    np.testing.assert_array_equal(ones[1], counts[1])
    np.testing.assert_allclose(ones[2], counts[0] / by_row**2, rtol=1e-5)
    assert 60_000 < counts[0].sum() < 90_000
    assert all(np.isnan(found).all() for found in short)
    assert count.sum() == 0


def slots_of(graph, room):
    """The edges into COLUMNS, with their rows."""
    with jax.enable_x64(True):
        indptr, column, at, _ = expand(graph.indptr, COLUMNS, room)
        row = jnp.where(column < len(COLUMNS), graph.indices[at], N)
    return EdgeArrays(indptr, column, row, at)


@pytest.mark.parametrize(("heads", "width"), [(1, 3), (2, 64), (3, 37)])
def test_inner_products_of_edges(alike, graph, heads, width):
    """Large products that cancel: another order of the sums would have other bits."""
    edges, wide = slots_of(graph, 70_000), 10.0 ** RNG.uniform(-3, 3, (N, heads, width))
    left = (wide * RNG.choice([-1, 1], wide.shape)).astype(np.float32)
    left[:50, :, :2] = 1e-40  # subnormal: XLA takes it as 0
    right = (RNG.standard_normal((len(COLUMNS), heads, width)) / 3).astype(np.float32)
    products = alike(inner, left, right, edges)
    exact = np.einsum(
        "ehd,ehd->eh",
        *(
            a[np.asarray(slot)[: int(edges.indptr[-1])]].astype(np.longdouble)
            for a, slot in ((left, edges.row), (right, edges.column))
        ),
    )
    np.testing.assert_allclose(products[: len(exact)], exact, rtol=2e-7, atol=1e-33)
    assert not np.asarray(products[len(exact) :]).any()


@pytest.mark.parametrize("width", [(), (1, 1), (43,), (2, 64)])
def test_project(alike, width):
    """Rows of no node among them, subnormal numbers, sums that cancel."""
    features = (RNG.standard_normal((N, 37)) * 10.0 ** RNG.uniform(-3, 3, (N, 37))).astype("f4")
    features[:50, :9] = 1e-40
    weight = RNG.standard_normal((37, *width)).astype(np.float32)
    nodes = np.r_[RNG.integers(0, 60, 30), RNG.integers(-2, N + 2, 600), 1, [N] * 40]
    last = 631 if width else len(nodes)

    def program(features, nodes, weight):
        return project(features, nodes, weight)[:last]

    found = alike(program, features, nodes.astype(np.int32), weight)
    real = (nodes >= 0) & (nodes < N)
    rows = features.astype(float)[np.where(real, nodes, 0)]
    wanted = np.einsum("nf,f...->n...", rows, weight)
    wanted *= real.reshape(-1, *[1] * len(width))
    np.testing.assert_allclose(found, wanted[:last], rtol=2e-7, atol=1e-9)


def test_running_weights(alike, graph):
    """Of weights over sixty orders of magnitude, without positive ones, and of bad ones."""
    edges, num = slots_of(graph, 70_000), int(slots_of(graph, 70_000).indptr[-1])
    wide = (10.0 ** RNG.uniform(-30, 30, 70_000)).astype(np.float32)
    wide[RNG.random(wide.size) < 0.3] = 0
    weights = [wide, np.zeros_like(wide)]
    for value in (-1, np.nan, np.inf):
        weights.append(wide.copy())
        weights[-1][num // 2] = value
    weights.append(wide.copy())
    weights[-1][num:] = -1  # padding is not looked at

    def program(edges, *weights):
        with jax.enable_x64(True):
            return [running_weights(weight, edges) for weight in weights]

    found = alike(program, edges, *weights)
    assert [bool(bad) for _, bad in found] == [False, False, True, True, True, False]
    running, indptr = np.asarray(found[0][0]), np.asarray(edges.indptr)
    for c in (0, 3, 7):
        own = wide[indptr[c] : indptr[c + 1]].astype(float)
        unit = 2.0 ** (np.floor(np.log2(own.max())) + 1 - 30)
        wanted = np.where(own > 0, np.maximum(np.rint(own / unit), 1), 0).cumsum()
        np.testing.assert_array_equal(running[indptr[c] : indptr[c + 1]], wanted)
    assert not running[num:].any()
    assert not np.asarray(found[1][0]).any()
