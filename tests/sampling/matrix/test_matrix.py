"""`Matrix` beside NumPy's dense matrices: slices, edge maps, reductions, blocks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.ops import aggregate
from jgs.sampling.matrix import Matrix, Room, stack

N, E = 40, 300
KEY = jax.random.key(5)
COLUMNS = np.array([7, 3, 3, N, 30, 11], np.int32)  # two repeated nodes, and padding
both = pytest.mark.parametrize("compact", [False, True])


@pytest.fixture(scope="module")
def graph():
    """Distinct edges, weighted; node 11 has no in-edges, node 12 no out-edges."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation(N * N)[:E]
    src, dst = pairs // N, pairs % N
    keep = (dst != 11) & (src != 12)
    src, dst = src[keep], dst[keep]
    return Graph.from_edges(src, dst, N, rng.random(src.size).astype(np.float32) + 0.1)


def dense_of(matrix):
    """The values as `[N + 1, C]`: a row for each node, a column for each slot."""
    matrix = matrix.aligned().built()
    rows, values, edges = np.asarray(matrix.row()), np.asarray(matrix.values), matrix.edges
    found = np.zeros((N + 1, matrix.shape[1], *values.shape[1:]))
    count = int(edges.indptr[-1])
    row, column = (np.asarray(a)[:count] for a in (edges.row, edges.column))
    found[rows[row], column] = values[:count]
    return found


def whole(graph):
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    dense = np.zeros((N + 1, N + 1))
    dense[indices, np.repeat(np.arange(N), np.diff(indptr))] = np.asarray(graph.edge_weight)
    return dense


def by_node(vector, ids):
    found = np.zeros(N + 1)
    for node, value in zip(np.asarray(ids), np.asarray(vector), strict=True):
        if node < N:
            assert found[node] == 0
            found[node] = value
    return found


@both
def test_slices(graph, compact):
    dense, A = whole(graph), Matrix(graph, compact=compact)
    rows = np.array([30, N, 2, 5, 12], np.int32)
    np.testing.assert_array_equal(A.column(), np.arange(N))
    np.testing.assert_allclose(dense_of(A)[:, :N], dense[:, :N])
    only = np.zeros((N + 1, 1))
    only[rows[rows < N]] = 1
    for part, expected in (
        (A[:, COLUMNS], dense[:, COLUMNS]),
        (A[rows, :], (dense * only)[:, :N]),
        (A[rows, COLUMNS], dense[:, COLUMNS] * only),
        (A[:, COLUMNS][rows, :], dense[:, COLUMNS] * only),
        (A[rows, :][:, COLUMNS], dense[:, COLUMNS] * only),
        (A[:, [3, 7, 9]][:, COLUMNS], dense[:, COLUMNS] * np.isin(COLUMNS, [3, 7, 9])),
        (A[rows, :][[2, 30], :], dense[:, :N] * np.isin(np.arange(N + 1), [2, 30])[:, None]),
    ):
        assert not part.overflow
        np.testing.assert_allclose(dense_of(part), expected, rtol=1e-6)
        assert int(part.num_edges) == np.count_nonzero(expected)
    np.testing.assert_array_equal(A[rows, COLUMNS].row(), rows)
    np.testing.assert_array_equal(A[rows, COLUMNS].column(), COLUMNS)
    for index in (3, (3, 4), (slice(1, 2), slice(None)), ([0.5], slice(None))):
        with pytest.raises(InputError):
            A[index]


@both
def test_edge_maps_and_reductions(graph, compact):
    dense, A = whole(graph)[:, COLUMNS], Matrix(graph, compact=compact)
    sub, there = A[:, COLUMNS], dense > 0
    rng = np.random.default_rng(1)
    of_row = rng.random(N + 1).astype(np.float32) + 1
    of_column = rng.random(COLUMNS.size).astype(np.float32) + 1
    row = of_row[np.asarray(sub.row())]
    for found, expected in (
        (sub**2, dense**2),
        (2**sub, 2**dense),
        (1 - sub, 1 - dense),
        (sub * 3 + 1, dense * 3 + 1),
        (jnp.float32(2) / sub, 2 / np.where(there, dense, 1)),
        (sub.div(of_column, axis=0), dense / of_column),
        (sub.add(of_column, axis=0), dense + of_column),
        (sub.mul(row, axis=1), dense * of_row[:, None]),
        (sub.sub(row, axis=1), dense - of_row[:, None]),
        (sub * sub, dense**2),
        (
            (sub + 1).mul(row, axis=1) / sub,
            (dense + 1) * of_row[:, None] / np.where(there, dense, 1),
        ),
        (sub.map(jnp.exp), np.exp(dense)),
        (A.div(A.sum(axis=0), axis=0)[:, COLUMNS], dense / np.maximum(dense.sum(0), 1e-9)),
        (sub.softmax(0), np.exp(dense) / np.where(there, np.exp(dense), 0).sum(0).clip(1e-9)),
        (
            sub.softmax(1),
            np.exp(dense) / np.where(there, np.exp(dense), 0).sum(1, keepdims=True).clip(1e-9),
        ),
    ):
        np.testing.assert_allclose(dense_of(found), np.where(there, expected, 0), rtol=1e-5)
    two = stack([sub, sub**2])
    np.testing.assert_allclose(dense_of(two), np.stack([dense, dense**2], -1), rtol=1e-6)
    counts = there.sum(0), there.sum(1)
    for axis in (0, 1):
        ids = COLUMNS if axis == 0 else sub.row()

        def same(vector, expected, axis=axis, ids=ids):
            if axis == 0:
                np.testing.assert_allclose(vector, expected, rtol=1e-5)
            else:
                np.testing.assert_allclose(by_node(vector, ids), expected, rtol=1e-5)

        same(sub.sum(axis), dense.sum(axis))
        same((sub**2).sum(axis), (dense**2).sum(axis))
        same(sub.mean(axis), dense.sum(axis) / np.maximum(counts[axis], 1))
        same(sub.max(axis), dense.max(axis))
        same(sub.count(axis), counts[axis])
        np.testing.assert_array_equal(two.sum(axis)[:, 0], sub.sum(axis))
    np.testing.assert_allclose(
        (sub * np.ones(sub.shape, np.float32) * 2).values, sub.values * 2, rtol=1e-6
    )
    for mistake in (
        lambda: sub.div(of_column[:3], axis=0),
        lambda: sub.sum(2),
        lambda: sub + np.ones((2, 3), np.float32),
        lambda: sub * A,
        lambda: sub.with_values(jnp.ones(3)),
        lambda: sub.dot(np.ones((3, 2), np.float32), np.ones((COLUMNS.size, 2), np.float32)),
        lambda: sub @ np.ones((3, 3), np.float32),
    ):
        with pytest.raises(InputError):
            mistake()


@both
def test_products_and_blocks(graph, compact):
    dense, sub = whole(graph)[:, COLUMNS], Matrix(graph, compact=compact)[:, COLUMNS]
    rng = np.random.default_rng(2)
    x = rng.standard_normal((N + 1, 5)).astype(np.float32)
    y = rng.standard_normal((COLUMNS.size, 5)).astype(np.float32)
    rows = np.asarray(sub.row())
    here = rows < N
    np.testing.assert_allclose((sub @ y)[here], (dense @ y)[rows[here]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sub.T @ x[rows], dense.T @ x, rtol=1e-4, atol=1e-5)
    inner = dense * (x @ y.T)
    np.testing.assert_allclose(dense_of(sub.dot(x[rows], y)), inner, rtol=1e-4, atol=1e-5)
    block, nodes = sub.to_block()
    own = jnp.take(x, nodes, axis=0, mode="fill", fill_value=0)
    messages = aggregate(block, own, "sum")
    real = np.flatnonzero(COLUMNS < N)
    np.testing.assert_allclose(messages[real], (dense.T @ x)[real], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(nodes[: COLUMNS.size], COLUMNS)
    assert int(block.num_edges) == np.count_nonzero(dense)
    small, _ = sub.to_block(num_sources=COLUMNS.size)
    assert int(small.num_sources) == COLUMNS.size + 1


def test_what_does_not_fit_is_said(graph):
    @partial(jax.jit, static_argnums=1)
    def program(graph, looked):
        A = Matrix(graph, room=Room(looked), key=KEY)
        sub = A[:, COLUMNS].built()
        selected = sub.collective_sample(3, sub.sum(1)), sub.individual_sample(3, sub)
        overflows = [sub.overflow, jnp.isnan(sub.sum(1)).all()]
        overflows += [part.overflow for part in selected]
        return overflows, sub.needs.looked, sub.num_edges

    needed = int(np.asarray(graph.degrees())[COLUMNS[COLUMNS < N]].sum())
    for looked, fits in ((needed, True), (needed - 1, False)):
        overflows, *counts = program(graph, looked)
        assert [bool(each) for each in overflows] == [not fits] * 4
        assert [int(count) for count in counts] == [needed, needed if fits else 0]
    outside = Matrix(graph)[:, np.array([1, N + 7])].built()
    assert outside.overflow


def test_gradients_reach_the_edge_values(graph):
    dense = whole(graph)[:, COLUMNS]

    def loss(weight):
        sub = Matrix(graph).with_values(weight)[:, COLUMNS]
        return jnp.sum((sub**2).sum(axis=1) ** 2) + jnp.sum(sub.softmax().values ** 2)

    def plain(weight):
        full = jnp.zeros((N + 1, N + 1)).at[graph.indices, target].set(weight)[:, COLUMNS]
        there = dense > 0
        soft = jnp.where(there, jnp.exp(full), 0)
        soft = soft / jnp.maximum(soft.sum(0), 1e-9)
        return jnp.sum((full**2).sum(1) ** 2) + jnp.sum(soft**2)

    target = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    weight = graph.edge_weight
    (found, slopes), (wanted, wanted_slopes) = (
        jax.jit(jax.value_and_grad(f))(weight) for f in (loss, plain)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=1e-4, atol=1e-6)


def test_sums_do_not_depend_on_the_order():
    rng = np.random.default_rng(4)
    values = (rng.standard_normal(5000) * 10.0 ** rng.integers(-6, 6, 5000)).astype(np.float32)
    slot = rng.integers(0, 7, 5000).astype(np.int32)
    from jgs.sampling.matrix.exact import exact_sum

    one = np.asarray(exact_sum(values, slot, 7))
    order = rng.permutation(5000)
    np.testing.assert_array_equal(exact_sum(values[order], slot[order], 7), one)
    exact = np.bincount(slot, values.astype(np.float64), 7)
    scale = np.array([np.abs(values[slot == s]).max() for s in range(7)])
    assert (np.abs(one - exact) <= 5000 * 2.0**-30 * scale + np.abs(exact) * 2.0**-23).all()
    values[3] = np.nan
    assert np.isnan(exact_sum(values, slot, 7)[slot[3]])
    assert np.isfinite(np.delete(exact_sum(values, slot, 7), slot[3])).all()
