"""jgs.ops, kernel and plain, against float64 NumPy loops that read like the docstrings."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.test_util import check_grads

from jgs import Block, InputError, kernels, ops
from jgs.features import SparseFeatures
from jgs.graph import as_device

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


@pytest.fixture(params=["plain", pytest.param("kernel", marks=needs_kernels)])
def implementation(request, monkeypatch):
    monkeypatch.setattr(kernels, "available", lambda: request.param == "kernel")
    return request.param


def make_block(rows, weights=None, num_sources=None, capacities=(0, 0), pad_weight=np.nan):
    """A Block from a list of source lists, with that much more capacity for (T, E)."""
    degrees = [len(r) for r in rows]
    num_edges = sum(degrees)
    indices = np.array([s for r in rows for s in r], np.int32)
    num_sources = num_sources or int(max([*indices, len(rows) - 1])) + 1
    indptr = np.r_[0, np.cumsum(degrees), [num_edges] * capacities[0]].astype(np.int32)
    weight = None
    if weights is not None:
        flat = [w for r in weights for w in r] + [pad_weight] * capacities[1]
        weight = jnp.asarray(np.array(flat, np.float32))
    return Block(
        indptr=jnp.asarray(indptr),
        # Padding that points at a real row must do no harm either.
        indices=jnp.asarray(np.r_[indices, [0] * capacities[1]].astype(np.int32)),
        num_targets=jnp.int32(len(rows)),
        num_sources=jnp.int32(num_sources),
        num_edges=jnp.int32(num_edges),
        edge_weight=weight,
    )


def random_block(rng, weighted, num_targets=30, num_sources=50, max_degree=9):
    degrees = rng.integers(0, max_degree + 1, num_targets)
    degrees[::7] = 0
    rows = [rng.integers(0, num_sources, d) for d in degrees]
    weights = [rng.standard_normal(d) for d in degrees] if weighted else None
    return make_block(rows, weights, num_sources, capacities=(4, 11))


def reference(block, x, grad_out, reduce):
    """`(out, grad_x, grad_weight)` in float64, one edge at a time."""
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    x, grad_out = np.asarray(x, np.float64), np.asarray(grad_out, np.float64)
    weight = np.ones(len(indices))
    if block.edge_weight is not None:
        weight = np.asarray(block.edge_weight, np.float64)
    out = np.zeros((len(indptr) - 1, x.shape[1]))
    grad_x, grad_weight = np.zeros_like(x), np.zeros(len(indices))
    for t in range(int(block.num_targets)):
        edges = np.arange(indptr[t], indptr[t + 1])
        if len(edges) == 0:
            continue
        products = weight[edges, None] * x[indices[edges]]
        if reduce == "max":
            share = np.arange(len(edges))[:, None] == products.argmax(0)  # argmax: the first
        else:
            share = np.full(products.shape, 1 / len(edges) if reduce == "mean" else 1.0)
        out[t] = (share * products).sum(0)
        for e, s in zip(edges, share, strict=True):
            grad_x[indices[e]] += weight[e] * s * grad_out[t]
            grad_weight[e] = (s * x[indices[e]] * grad_out[t]).sum()
    return out, grad_x, grad_weight


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_aggregate_and_its_derivatives_equal_the_definition(implementation, reduce, weighted):
    rng = np.random.default_rng(3)
    block = random_block(rng, weighted)
    used = np.unique(np.asarray(block.indices)[: int(block.num_edges)])
    x = rng.standard_normal((60, 13)).astype(np.float32)
    grad_out = rng.standard_normal((block.target_capacity, 13)).astype(np.float32)
    want = reference(block, x, grad_out, reduce)
    x[~np.isin(np.arange(60), used)] = np.nan  # rows that no edge reads

    def f(x, weight):
        changed = Block(
            block.indptr, block.indices, block.num_targets, block.num_sources,
            block.num_edges, edge_weight=weight,
        )  # fmt: skip
        return ops.aggregate(changed, x, reduce)

    out, pull = jax.vjp(f, jnp.asarray(x), block.edge_weight)
    grad_x, grad_weight = pull(jnp.asarray(grad_out))
    np.testing.assert_allclose(out, want[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad_x, want[1], rtol=1e-5, atol=1e-5)
    if weighted:
        np.testing.assert_allclose(grad_weight, want[2], rtol=1e-5, atol=1e-5)
    assert np.all(np.asarray(out)[int(block.num_targets) :] == 0)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_gradient_equals_finite_differences_in_float64(reduce):
    rng = np.random.default_rng(5)
    block = random_block(rng, True, num_targets=6, num_sources=12)
    with jax.enable_x64(True):
        x = jnp.asarray(rng.standard_normal((12, 3)))

        def f(x):
            return ops.aggregate(block, x, reduce)

        assert f(x).dtype == jnp.float64
        check_grads(f, (x,), order=2, modes=["rev"])


def test_mean_of_weighted_messages_divides_by_the_degree(implementation):
    block = make_block([[0, 1]], [[1.0, 3.0]])
    out = ops.aggregate(block, jnp.array([[10.0], [2.0]]), "mean")
    assert out.tolist() == [[(1 * 10 + 3 * 2) / 2]]


def test_max_gradient_goes_to_the_first_edge_that_attains_it(implementation):
    block = make_block([[1, 2, 0, 2]])
    x = jnp.array([[5.0, -1.0], [5.0, -2.0], [3.0, -1.0]])
    grad = jax.grad(lambda x: ops.aggregate(block, x, "max").sum())(x)
    assert grad.tolist() == [[0, 0], [1, 0], [0, 1]]


def test_max_of_negative_infinite_and_nan_messages(implementation):
    x = jnp.array([[-3.0], [-jnp.inf], [jnp.nan]])
    block = make_block([[0], [1, 1], [0, 2, 1, 2], []], num_sources=4)
    x = jnp.concatenate([x, x[:1]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, "max"), x)
    np.testing.assert_array_equal(out, [[-3], [-np.inf], [np.nan], [0]])
    (grad,) = pull(jnp.array([[1.0], [2.0], [4.0], [8.0]]))
    assert grad.tolist() == [[1], [2], [4], [0]]


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize(
    ("rows", "num_sources", "width", "capacities"),
    [
        ([], 0, 3, (0, 0)),  # nothing at all
        ([], 4, 3, (0, 2)),  # no targets
        ([[], []], 2, 3, (0, 0)),  # no edges
        ([[], []], 3, 3, (1, 4)),  # no real edges
        ([[0, 1]], 2, 0, (0, 0)),  # no features
        ([], 2, 3, (2, 5)),  # an overflowed batch: all capacity, nothing real
    ],
)
def test_empty_blocks_give_zeros(implementation, reduce, rows, num_sources, width, capacities):
    block = make_block(rows, num_sources=num_sources, capacities=capacities)
    x = jnp.full((num_sources, width), jnp.nan)
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, reduce), x)
    assert out.shape == (len(rows) + capacities[0], width)
    (grad,) = pull(out + 1)
    assert grad.shape == x.shape
    if not rows or not rows[0]:
        assert np.all(np.asarray(out) == 0)
        assert np.all(np.asarray(grad) == 0)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_padded_edges_do_nothing_when_every_row_is_real(implementation, reduce):
    block = make_block([[1], [1]], capacities=(0, 3))  # the padding points at row 0
    x = jnp.array([[jnp.nan], [2.0]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, reduce), x)
    assert out.tolist() == [[2], [2]]
    assert pull(jnp.ones_like(out))[0].tolist() == [[0], [2]]


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_summed_in_float32(dtype):
    block = make_block([[0] * 5000, [1]])
    out, pull = jax.vjp(lambda x: ops.aggregate(block, x, "sum"), jnp.ones((2, 3), dtype))
    assert out.dtype == dtype
    np.testing.assert_allclose(out.astype(jnp.float32), [[5000] * 3, [1] * 3], rtol=0.01)
    (grad,) = pull(jnp.ones_like(out))
    assert grad.dtype == dtype
    np.testing.assert_allclose(grad.astype(jnp.float32), [[5000] * 3, [1] * 3], rtol=0.01)


def test_aggregate_under_vmap(implementation):
    rng = np.random.default_rng(0)
    block = random_block(rng, True)
    xs = jnp.asarray(rng.standard_normal((3, 50, 4), dtype=np.float32))
    for reduce in ops.REDUCTIONS:
        f = lambda x, r=reduce: ops.aggregate(block, x, r)  # noqa: E731
        got = jax.vmap(f)(xs)
        np.testing.assert_allclose(got, jnp.stack([f(x) for x in xs]), rtol=1e-6)
        grads = jax.vmap(jax.grad(lambda x, f=f: (f(x) ** 2).sum()))(xs)
        assert grads.shape == xs.shape


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reduce": "median"}, "sum, mean, max"),
        ({"x": jnp.ones(3)}, "matrix"),
        ({"x": jnp.ones((3, 2, 1))}, "matrix"),
        ({"x": jnp.ones((3, 2), jnp.int32)}, "float"),
        ({"x": jnp.ones((2, 2))}, "2 rows for 3"),
        ({"indptr": jnp.array([0.0, 1.0])}, "indptr must be"),
        ({"indptr": np.array([0, 1], np.int64)}, "indptr must be"),
        ({"indptr": np.array([], np.int32)}, r"indptr must be.* int32\[0\]"),
        ({"indptr": None}, "indptr must be.* NoneType"),
        ({"indptr": [0, 2]}, "indptr must be.* list"),
        ({"indices": None}, "indices must be.* NoneType"),
        ({"edge_weight": jnp.ones(1)}, "edge_weight must be"),
        ({"edge_weight": [1.0, 1.0]}, "edge_weight must be.* list"),
        ({"num_targets": 1.0}, "num_targets must be"),
        ({"num_targets": True}, "num_targets must be"),
        ({"num_edges": jnp.float32(2)}, "num_edges must be"),
        ({"num_edges": None}, "num_edges must be"),
        ({"num_sources": [3]}, r"num_sources must be.* int64\[1\]"),
    ],
)
def test_aggregate_refuses_bad_arguments(change, said):
    block = make_block([[0, 2]])
    fields = {k: v for k, v in change.items() if k not in ("x", "reduce")}
    block = Block(**{**vars(block), **fields})
    x, reduce = change.get("x", jnp.ones((3, 2))), change.get("reduce", "mean")
    with pytest.raises(InputError, match=said):
        ops.aggregate(block, x, reduce)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("integer", [int, np.int64, np.uint8, jnp.asarray])
def test_counts_may_be_integers_of_any_kind(implementation, integer, x64):
    with jax.enable_x64(x64):
        counts = (integer(1), integer(3), integer(2))
        block = Block(np.array([0, 2], np.int32), np.array([0, 2], np.int32), *counts)
        x = jnp.array([[1], [np.nan], [5]], jnp.float32)
        assert ops.aggregate(block, x).tolist() == [[3]]
        assert jax.jit(ops.aggregate)(block, x).tolist() == [[3]]
        grad = jax.grad(lambda x: ops.aggregate(block, x).sum())(x)
        assert grad.tolist() == [[0.5], [0], [0.5]]


@needs_kernels
def test_a_count_beyond_32_bits_does_not_become_another():
    for count in (2**32 + 2, -(2**32) + 2):  # both are 2 in their low bits
        fields = {**vars(make_block([[0, 1]])), "num_edges": count}
        with pytest.raises(jax.errors.JaxRuntimeError, match="num_edges must"):
            jax.block_until_ready(ops.aggregate(Block(**fields), jnp.ones((2, 1))))


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_the_plain_path_takes_each_edge_of_a_broken_block_at_most_once(monkeypatch, reduce):
    monkeypatch.setattr(kernels, "available", lambda: False)
    rng = np.random.default_rng(2)
    extreme = np.array([-(2**31), -5, -1, 0, 1, 2, 3, 4, 9, 2**31 - 1])
    for _ in range(60):
        indptr, indices = (rng.choice(extreme, n).astype(np.int32) for n in (5, 6))
        num_targets, num_edges = rng.choice(extreme, 2)
        block = Block(
            jnp.asarray(indptr), jnp.asarray(indices), num_targets, jnp.int32(3), num_edges
        )
        good = np.arange(6) < min(num_edges, indptr[-1])
        good &= (indices >= 0) & (indices < 4)
        # As many features as sources, and feature s is 1 for source s only.
        out, pull = jax.vjp(lambda x, b=block: ops.aggregate(b, x, reduce), jnp.eye(4))
        counts = np.bincount(indices[good], minlength=4)
        assert np.all((np.asarray(out) >= 0) & (np.asarray(out).sum(0) <= counts))
        assert not np.any(np.asarray(out)[np.clip(num_targets, 0, 4) :])
        (grad,) = pull(jnp.ones_like(out))
        assert np.all((np.asarray(grad) >= 0) & (np.asarray(grad) <= counts[:, None]))


@needs_kernels
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"indices": jnp.array([0, 3], jnp.int32)}, "block.indices must be"),
        ({"indices": jnp.array([-1, 0], jnp.int32)}, "block.indices must be"),
        ({"indptr": jnp.array([0, 2**30, 2], jnp.int32)}, "block.indptr must"),
        ({"indptr": jnp.array([0, -4, 2], jnp.int32)}, "block.indptr must"),
        ({"num_edges": jnp.int32(1)}, "block.indptr must"),
        ({"num_edges": jnp.int32(9)}, "block.num_edges must"),
        ({"num_targets": jnp.int32(3)}, "block.num_targets must"),
        ({"num_targets": jnp.int32(1)}, "must be empty"),
    ],
)
def test_the_kernel_refuses_a_broken_block(fields, said):
    block = Block(**{**vars(make_block([[0], [2]])), **fields})
    x = jnp.ones((3, 2))
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        jax.block_until_ready(ops.aggregate(block, x))


# -- gather


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_gather_widens_and_fills_padding_with_zeros(dtype):
    features = jnp.asarray(np.arange(1, 7).reshape(3, 2).astype(dtype))
    want = [[5, 6], [0, 0], [1, 2], [0, 0], [0, 0]]
    for ids in (
        jnp.array([2, 3, 0, -1, 2**31 - 1], jnp.int32),
        np.array([2, 3, 0, -1, 2**32]),  # int64: 2**32 must not become node 0
    ):
        out = ops.gather(features, ids)
        assert out.dtype == jnp.float32
        np.testing.assert_array_equal(out, want)


def test_gather_derivative_adds_up_repeated_rows():
    ids = jnp.array([1, 1, 3, 0], jnp.int32)
    grad = jax.grad(lambda x: (ops.gather(x, ids) * jnp.arange(1, 5)[:, None]).sum())
    assert grad(jnp.ones((3, 2))).tolist() == [[4, 4], [3, 3], [0, 0]]


def test_gather_from_more_than_2_to_the_31_elements(tmp_path):
    rows, width = 2**25 + 100, 80  # 5.4 GB of a sparse file: only what is touched exists
    shape = (rows, width)
    store = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float16, shape)
    ids = np.array([0, rows - 1, rows, 2**25, 2**31 // width], np.int32)
    for i in ids[ids < rows]:
        store[i] = i % 1000 + np.arange(width)
    out = jax.jit(ops.gather)(as_device(store), ids)
    want = np.where(ids[:, None] < rows, ids[:, None] % 1000 + np.arange(width), 0)
    np.testing.assert_array_equal(out, want)


def sparse_matrix(rng, rows=40, columns=23):
    dense = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.2)
    dense[5] = 0
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


@pytest.mark.parametrize("jit", [False, True])
def test_gather_from_sparse_features(implementation, jit):
    rng = np.random.default_rng(1)
    matrix = sparse_matrix(rng)
    ids = np.r_[rng.integers(0, 40, 30), 5, 40, -1, 2**31 - 1, 0].astype(np.int32)
    gather = jax.jit(ops.gather) if jit else ops.gather
    out = gather(SparseFeatures.from_scipy(matrix), ids)
    dense = np.vstack([matrix.toarray(), np.zeros((1, 23))])
    want = dense[np.where((ids < 0) | (ids > 40), 40, ids)]
    assert out.dtype == jnp.float32
    np.testing.assert_array_equal(out, want.astype(np.float32))


def test_gather_derivative_in_sparse_values(implementation):
    features = SparseFeatures.from_scipy(sparse_matrix(np.random.default_rng(1)))
    ids = np.array([3, 3, 0, 40], np.int32)

    def f(values):
        changed = SparseFeatures(**{**vars(features), "values": values})
        return (ops.gather(changed, ids) * jnp.arange(1.0, 24)).sum()

    times = np.zeros(40)
    times[[0, 3]] = 1, 2
    degrees = np.diff(np.asarray(features.indptr))
    want = np.repeat(times, degrees) * (1 + np.asarray(features.indices))
    np.testing.assert_array_equal(jax.grad(f)(features.values), want)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 4)])
def test_gather_from_sparse_features_without_entries(implementation, shape):
    features = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(shape, dtype=np.float32))
    out = ops.gather(features, np.array([0, 1, 9], np.int32))
    np.testing.assert_array_equal(out, np.zeros((3, shape[1])))


@needs_kernels
@pytest.mark.parametrize("field", ["indptr", "indices"])
def test_the_kernel_refuses_broken_sparse_features(field):
    fields = vars(SparseFeatures.from_scipy(sparse_matrix(np.random.default_rng(1))))
    broken = np.array(fields[field])
    broken[3] = 2**30
    features = SparseFeatures(**{**fields, field: as_device(broken)})
    with pytest.raises(jax.errors.JaxRuntimeError, match="rows of SparseFeatures must"):
        jax.block_until_ready(ops.gather(features, np.arange(40, dtype=np.int32)))


@pytest.mark.parametrize(
    ("features", "ids", "said"),
    [
        (np.ones((3, 2)), [0], "JAX array"),
        (jnp.ones(3), [0], "matrix"),
        (jnp.ones((3, 2)), [[0]], "ids must be"),
        (jnp.ones((3, 2)), [0.5], "ids must be"),
        (jnp.ones((3, 2)), np.array([0], np.uint8), "ids must be"),
    ],
)
def test_gather_refuses_bad_arguments(features, ids, said):
    with pytest.raises(InputError, match=said):
        ops.gather(features, ids)


def test_everything_works_with_the_kernels_switched_off():
    program = """
import jax, jax.numpy as jnp, numpy as np, scipy.sparse
from jgs import Block, kernels, ops
from jgs.features import SparseFeatures
assert not kernels.available()
block = Block(jnp.array([0, 2], jnp.int32), jnp.array([0, 1], jnp.int32),
              jnp.int32(1), jnp.int32(2), jnp.int32(2))
f = jax.jit(jax.value_and_grad(lambda x: ops.aggregate(block, x).sum()))
value, grad = f(jnp.array([[1.0], [4.0]]))
assert (float(value), grad.tolist()) == (2.5, [[0.5], [0.5]])
features = SparseFeatures.from_scipy(scipy.sparse.eye(3, format="csr"))
assert ops.gather(features, np.array([2, 3], np.int32)).tolist() == [[0, 0, 1], [0, 0, 0]]
assert "jgs_" not in f.lower(jnp.ones((2, 1))).as_text()
"""
    environment = {**os.environ, "JGS_KERNELS": "off", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # `off` was asked for: nothing to say about it
