"""`jgs.ops.gather`, kernel and plain, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

from jgs import InputError, kernels, ops
from jgs.graph import as_device
from jgs.graph.features import SparseFeatures

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_gather_widens_and_fills_padding_with_zeros(implementation, dtype):
    features = jnp.asarray(np.arange(1, 7).reshape(3, 2).astype(dtype))
    want = [[5, 6], [0, 0], [1, 2], [0, 0], [0, 0]]
    for ids in (
        jnp.array([2, 3, 0, -1, 2**31 - 1], jnp.int32),
        np.array([2, 3, 0, -1, 2**32]),  # int64: 2**32 must not become node 0
    ):
        out = ops.gather(features, ids)
        assert out.dtype == jnp.float32
        np.testing.assert_array_equal(out, want)


def test_gather_derivative_adds_up_repeated_rows(implementation):
    ids = jnp.array([1, 1, 3, 0], jnp.int32)
    grad = jax.grad(lambda x: (ops.gather(x, ids) * jnp.arange(1, 5)[:, None]).sum())
    assert grad(jnp.ones((3, 2))).tolist() == [[4, 4], [3, 3], [0, 0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_gather_from_more_than_2_to_the_31_elements(tmp_path, implementation, dtype):
    rows, width = 2**25 + 100, 80  # a sparse file: only touched pages exist
    shape = (rows, width)
    store = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", dtype, shape)
    ids = np.array([0, rows - 1, rows, 2**25, 2**31 // width], np.int32)
    for i in ids[ids < rows]:
        store[i] = i % 1000 + np.arange(width)
    out = jax.jit(lambda *args: ops.gather(*args))(as_device(store), ids)  # traced anew
    want = np.where(ids[:, None] < rows, ids[:, None] % 1000 + np.arange(width), 0)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (3, 4)])
@pytest.mark.parametrize("num_ids", [0, 3])
def test_gather_of_nothing(implementation, shape, num_ids):
    out = ops.gather(jnp.ones(shape), np.array([0, 1, 9], np.int32)[:num_ids])
    inside = (np.array([0, 1, 9]) < shape[0])[:num_ids]
    np.testing.assert_array_equal(out, np.repeat(inside[:, None], shape[1], 1))


@needs_kernels
def test_bits_of_many_rows_do_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    features = jnp.asarray(rng.standard_normal((500, 33), np.float32))
    ids = rng.integers(-100, 700, 9000).astype(np.int32)  # enough rows for threads to share
    inside = ((ids >= 0) & (ids < 500))[:, None]
    want = np.where(inside, np.asarray(features)[np.where(inside[:, 0], ids, 0)], 0)
    for num_threads in (1, 2, 4):
        monkeypatch.setattr(kernels, "NUM_THREADS", num_threads)
        np.testing.assert_array_equal(ops.gather(features, ids), want)


def sparse_matrix(rng, rows=40, columns=23):
    dense = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.2)
    dense[5] = 0
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


@pytest.mark.parametrize("jit", [False, True])
def test_gather_from_sparse_features(implementation, jit):
    rng = np.random.default_rng(1)
    matrix = sparse_matrix(rng)
    ids = np.r_[rng.integers(0, 40, 30), 5, 40, -1, 2**31 - 1, 0].astype(np.int32)
    gather = jax.jit(lambda *args: ops.gather(*args)) if jit else ops.gather  # traced anew
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
