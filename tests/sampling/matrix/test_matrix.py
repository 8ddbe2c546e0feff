"""`Matrix` beside NumPy's dense matrices."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, InputError, kernels
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


def raw(matrix):
    """The arrays of a matrix that `dense_of` takes."""
    matrix = matrix.aligned().built()
    edges = matrix.edges
    return matrix.row(), matrix.values, edges.indptr, edges.row, edges.column


def dense_of(found):
    """The values as `[N + 1, C]`: a row for each node, a column for each slot."""
    rows, values, indptr, row, column = map(np.asarray, found)
    dense = np.zeros((N + 1, indptr.size - 1, *values.shape[1:]))
    dense[rows[row[: indptr[-1]]], column[: indptr[-1]]] = values[: indptr[-1]]
    return dense


def whole(graph):
    dense = np.zeros((N + 1, N + 1))
    dense[tuple(graph.edge_index())] = graph.edge_weight
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
    rows, some, two = map(np.array, ([30, N, 2, 5, 12], [3, 7, 9], [2, 30]))

    @jax.jit
    def program(graph):
        A = Matrix(graph, compact=compact)
        parts = [A, A[:, COLUMNS], A[rows, :], A[rows, COLUMNS], A[:, COLUMNS][rows, :]]
        parts += [A[rows, :][:, COLUMNS], A[:, some][:, COLUMNS], A[rows, :][two, :]]
        slots = A.column(), A[rows, COLUMNS].row(), A[rows, COLUMNS].column()
        return [(raw(part), part.overflow, part.num_edges) for part in parts], slots

    dense = whole(graph)
    of_rows, of_two = (np.isin(np.arange(N + 1), r)[:, None] for r in (rows[rows < N], two))
    both_ways = dense[:, COLUMNS] * of_rows
    wanted = [dense[:, :N], dense[:, COLUMNS], (dense * of_rows)[:, :N], *[both_ways] * 3]
    wanted += [dense[:, COLUMNS] * np.isin(COLUMNS, some), dense[:, :N] * of_two]
    parts, slots = program(graph)
    for (part, overflow, count), expected in zip(parts, wanted, strict=True):
        assert not overflow
        np.testing.assert_allclose(dense_of(part), expected, rtol=1e-6)
        assert int(count) == np.count_nonzero(expected)
    for found, expected in zip(slots, (np.arange(N), rows, COLUMNS), strict=True):
        np.testing.assert_array_equal(found, expected)


@both
def test_edge_maps(graph, compact):
    dense, rng = whole(graph)[:, COLUMNS], np.random.default_rng(1)
    there = dense > 0
    of_row = rng.random(N + 1).astype(np.float32) + 1
    of_column = rng.random(COLUMNS.size).astype(np.float32) + 1
    x = rng.standard_normal((N, 19)).astype(np.float32)

    @jax.jit
    def program(graph, of_row, of_column, x):
        A = Matrix(graph, compact=compact)
        sub = A[:, COLUMNS]
        row = of_row[sub.row()]
        maps = [sub**2, 2**sub, 1 - sub, sub * 3 + 1, jnp.float32(2) / sub, sub * sub]
        maps += [sub.div(of_column, axis=0), sub.add(of_column, axis=0)]
        maps += [sub.mul(row, axis=1), sub.sub(row, axis=1), (sub + 1).mul(row, axis=1) / sub]
        maps += [sub.map(jnp.exp), A.div(A.sum(axis=0), axis=0)[:, COLUMNS]]
        maps += [sub.softmax(0), sub.softmax(1), sub * jnp.ones(sub.shape) * 2]
        maps += [(A + 1).dot(x, x)[:, COLUMNS], A.map(lambda v: v / v.max())[:, COLUMNS]]
        maps += [A.softmax()[:, COLUMNS]]
        return [raw(part) for part in (*maps, stack([sub, sub**2]))]

    *found, two = program(graph, of_row, of_column, x)
    inverse, exp = 1 / np.where(there, dense, 1), np.where(there, np.exp(dense), 0)
    wanted = [dense**2, 2**dense, 1 - dense, dense * 3 + 1, 2 * inverse, dense**2]
    wanted += [dense / of_column, dense + of_column]
    wanted += [dense * of_row[:, None], dense - of_row[:, None]]
    wanted += [(dense + 1) * of_row[:, None] * inverse, exp]
    wanted += [dense / dense.sum(0).clip(1e-9), exp / exp.sum(0).clip(1e-9)]
    wanted += [exp / exp.sum(1, keepdims=True).clip(1e-9), dense * 2]
    inner = np.pad(x @ x.T, ((0, 1), (0, 1)))[:, COLUMNS]
    wanted += [(dense + 1) * inner, dense / whole(graph).max(), wanted[13]]
    for one, expected in zip(found, wanted, strict=True):
        expected = np.where(there, expected, 0)
        np.testing.assert_allclose(dense_of(one), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dense_of(two), np.stack([dense, dense**2], -1), rtol=1e-6)


@both
def test_reductions(graph, compact):
    @jax.jit
    def program(graph):
        sub = Matrix(graph, compact=compact)[:, COLUMNS]
        two = stack([sub, sub**2])
        return sub.row(), [
            (sub.sum(i), (sub**2).sum(i), sub.mean(i), sub.max(i), sub.count(i), two.sum(i))
            for i in (0, 1)
        ]

    dense = whole(graph)[:, COLUMNS]
    rows, found = program(graph)
    for axis, ids in ((0, None), (1, rows)):
        count, total = (dense > 0).sum(axis), dense.sum(axis)
        wanted = total, (dense**2).sum(axis), total / count.clip(1), dense.max(axis), count
        *sums, two = found[axis]
        for vector, expected in zip(sums, wanted, strict=True):
            vector = vector if ids is None else by_node(vector, ids)
            np.testing.assert_allclose(vector, expected, rtol=1e-5)
        np.testing.assert_array_equal(two[:, 0], sums[0])


@both
def test_products_and_blocks(graph, compact):
    rng = np.random.default_rng(2)
    x = rng.standard_normal((N + 1, 5)).astype(np.float32)
    y = rng.standard_normal((COLUMNS.size, 5)).astype(np.float32)

    @jax.jit
    def program(graph, x, y):
        sub = Matrix(graph, compact=compact)[:, COLUMNS]
        own = x[sub.row()]
        block, nodes = sub.to_block()
        sources = jnp.take(x, nodes, axis=0, mode="fill", fill_value=0)
        messages = aggregate(block, sources, "sum")
        small, _ = sub.to_block(num_sources=COLUMNS.size)
        counts = block.num_edges, small.num_sources
        return sub.row(), sub @ y, sub.T @ own, raw(sub.dot(own, y)), nodes, messages, counts

    dense, close = whole(graph)[:, COLUMNS], {"rtol": 1e-4, "atol": 1e-5}
    rows, product, transposed, inner, nodes, messages, counts = program(graph, x, y)
    here, real = np.asarray(rows) < N, np.flatnonzero(COLUMNS < N)
    np.testing.assert_allclose(product[here], (dense @ y)[rows[here]], **close)
    np.testing.assert_allclose(transposed, dense.T @ x, **close)
    np.testing.assert_allclose(dense_of(inner), dense * (x @ y.T), **close)
    np.testing.assert_allclose(messages[real], (dense.T @ x)[real], **close)
    np.testing.assert_array_equal(nodes[: COLUMNS.size], COLUMNS)
    assert [int(c) for c in counts] == [np.count_nonzero(dense), COLUMNS.size + 1]


def test_gradients_reach_the_edge_values(graph):
    dense = whole(graph)[:, COLUMNS]

    def loss(weight):
        """Of given values, and of vectors in a chain of maps, whose sum is a kernel."""
        sub = Matrix(graph).with_values(weight)[:, COLUMNS]
        chain = Matrix(graph.unweighted())[:, COLUMNS].mul(weight[:N], axis=1) ** 2
        of_mean = Matrix(graph).div(graph.degrees(), axis=0)[:, COLUMNS] * weight[0]
        roots = (of_mean**0.5).values  # in padding, 0 / 0 and the root of 0 are no numbers
        parts = (sub**2).sum(axis=1), sub.softmax().values, chain.sum(axis=0), roots
        return sum(jnp.sum(part**2) for part in parts)

    def plain(weight):
        ends = tuple(graph.edge_index())
        full = jnp.zeros((N + 1, N + 1)).at[ends].set(weight)[:, COLUMNS]
        there = dense > 0
        soft = jnp.where(there, jnp.exp(full), 0)
        soft = soft / jnp.maximum(soft.sum(0), 1e-9)
        chain = jnp.sum((there[:N] * weight[:N, None]) ** 2, 0)
        means = jnp.sum(dense.sum(0) / np.maximum(there.sum(0), 1)) * weight[0]
        return jnp.sum((full**2).sum(1) ** 2) + jnp.sum(soft**2) + jnp.sum(chain**2) + means

    weight = graph.edge_weight
    mine, other = (jax.jit(jax.value_and_grad(f))(weight) for f in (loss, plain))
    np.testing.assert_allclose(mine[0], other[0], rtol=1e-5)
    np.testing.assert_allclose(mine[1], other[1], rtol=1e-4, atol=1e-6)


@both
def test_what_is_refused(graph, compact):
    A = Matrix(graph, key=KEY, compact=compact)
    sub, ones = A[:, COLUMNS], partial(np.ones, dtype=np.float32)
    for mistake in (
        lambda: A[3],
        lambda: A[3, 4],
        lambda: A[1:2, :],
        lambda: A[[0.5], :],
        lambda: sub.div(ones(3), axis=0),
        lambda: sub.sum(2),
        lambda: sub + ones((2, 3)),
        lambda: sub * A,
        lambda: sub.with_values(jnp.ones(3)),
        lambda: sub.dot(ones((3, 2)), ones((COLUMNS.size, 2))),
        lambda: sub @ ones((3, 3)),
        lambda: Matrix(graph)[:, COLUMNS].individual_sample(3),
        lambda: sub.individual_sample(0),
        lambda: sub.individual_sample(3, np.ones(3)),
        lambda: sub.collective_sample(-1),
        lambda: sub.collective_sample(3, np.ones(N + 1)),
    ):
        with pytest.raises(InputError):
            mistake()


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
    for wrong in (N + 7, 2**32 + 1, np.uint64(2**63)):
        assert Matrix(graph)[:, np.array([1, wrong], type(wrong))].built().overflow


ROOM = 4099  # edges; no other array has this size
whole_arrays = re.compile(rf"= \(?(?:[^=]*, )?(\w+)\[{ROOM}[,\]].* ([\w-]+)\(")


def arrays_of_edges(function, graph):
    """`(dtype, operation)` of each array of edges that the compiled program has in memory."""
    program = jax.jit(function).lower(graph, jnp.ones(50), jnp.ones(graph.num_nodes))
    text = program.compile().as_text()
    fused = set(re.findall(r"fusion\(.*calls=%?([\w.-]+)", text))
    found, inside = [], False
    for line in text.splitlines():
        if header := re.match(r"(?:ENTRY )?%?([\w.-]+) .*\{$", line):
            inside = header[1] in fused
        elif not inside and (array := whole_arrays.search(line)):
            found.append((array[1], array[2]))
    return found, text


def test_a_chain_of_edge_maps_is_one_loop_and_its_sum_has_no_array_of_edges(make_graph):
    graph, columns = make_graph(300, 4000).unweighted(), np.arange(50, dtype=np.int32)

    def chain(graph, by_column, by_row):
        sub = Matrix(graph, room=Room(ROOM))[:, columns].built()
        return 2 * ((sub.div(by_column, axis=0) ** 2 + 1).mul(by_row, axis=1) - 3)

    def summed(graph, by_column, by_row):
        sub = Matrix(graph, room=Room(ROOM)).mul(by_row, axis=1)[:, columns]
        return [(sub.div(by_column, axis=0) ** 2).sum(axis) for axis in (0, 1)]

    alone, _ = arrays_of_edges(lambda *args: chain(*args).edges.row, graph)
    mapped, _ = arrays_of_edges(lambda *args: chain(*args).values, graph)
    assert sum(kind == "s32" for kind, _ in alone) > 0  # the pattern does match such arrays
    assert [operation for kind, operation in mapped if kind == "f32"] == ["fusion"]
    if kernels.available():  # XLA alone sums an array
        arrays, text = arrays_of_edges(summed, graph)
        assert arrays == []
        assert text.count('"jgs_sum_chain"') == 2
