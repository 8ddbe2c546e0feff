"""`jgs.ops.gather` and `gather_aggregate`, kernel and plain, against NumPy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from blocks import aggregated, make_block, random_block, with_weight
from cases import cases
from derivatives import twins
from refusals import refused

from jgs import kernels, ops
from jgs.graph import as_device
from jgs.graph.row_tables.sparse import SparseFeatures

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")
NUM_NODES, WIDTH = 50, 13


def make_features(kind):
    """`(features, the same in dense float64)`"""
    rng = np.random.default_rng(7)
    dense = np.round(rng.standard_normal((NUM_NODES, WIDTH)) * 4)
    if kind == "sparse":
        dense[rng.random(dense.shape) < 0.7] = 0
        dense[5] = 0
        return sparse_of(dense), dense
    dense = np.abs(dense) if kind == "uint8" else dense
    return jnp.asarray(dense.astype(kind)), dense


def sparse_of(rows):
    return SparseFeatures.from_scipy(scipy.sparse.csr_matrix(np.asarray(rows, np.float32)))


def every_reduction(features, block):
    return [ops.gather_aggregate(features, block, reduce) for reduce in ops.REDUCTIONS]


@cases(
    "kind, weighted",
    *((kind, weighted) for kind in ("float32", "sparse") for weighted in (False, True)),
    *(("float16", True), ("bfloat16", False), ("uint8", True)),
)
def test_rows_are_widened_and_padding_is_0(kind, weighted):
    """And the reductions of the rows are those that `aggregate` makes of them."""
    rng = np.random.default_rng(3)
    block = random_block(rng, weighted, num_sources=NUM_NODES)
    features, dense = make_features(kind)
    ids = np.r_[rng.integers(0, NUM_NODES, 30), 5, NUM_NODES, -1, 2**31 - 1, 0].astype(np.int32)
    real, nothing = (ids >= 0) & (ids < NUM_NODES), np.zeros((block.target_capacity, WIDTH))
    rows = np.where(real[:, None], dense[np.where(real, ids, 0)], 0)

    def run(features, block, ids):
        return ops.gather(features, ids), *every_reduction(features, block)

    for found, *outs in twins(run)(features, block, ids):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, rows)
        for out, reduce in zip(outs, ops.REDUCTIONS, strict=True):
            assert out.dtype == np.float32
            want = aggregated(block, dense, nothing, reduce)[0]
            np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    wide = np.where(ids == 2**31 - 1, 2**32, ids.astype(np.int64))  # 2**32 is not node 0
    np.testing.assert_array_equal(ops.gather(features, wide), rows)  # eagerly


def test_rows_beyond_2_to_the_31_elements(tmp_path):
    rows, width = 2**25 + 100, 80  # 10.7 GB as a sparse file: only touched pages exist
    shape = (rows, width)
    store = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, shape)
    ids = np.array([0, rows - 1, 2**25, 2**31 // width, rows], np.int32)
    for i in ids[:4]:
        store[i] = i % 1000 + np.arange(width)
    block = make_block([ids[:2], ids[2:4]], num_sources=rows)

    def run(features, block):
        return ops.gather(features, ids), ops.gather_aggregate(features, block)

    want = np.where(ids[:, None] < rows, ids[:, None] % 1000 + np.arange(width), 0)
    for found, mean in twins(run)(as_device(store), block):
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(mean, [want[:2].mean(0), want[2:4].mean(0)])


def test_rows_of_nothing():
    """And blocks with more targets than there are nodes."""
    ids, shapes = np.array([0, 1, 9], np.int32), [(3, 0), (0, 3), (3, 4)]
    dense = [jnp.asarray(np.ones(shape, np.float32)) for shape in shapes]
    sparse = [sparse_of(np.zeros(shape)) for shape in shapes]
    block = make_block([], num_sources=1, capacities=(3, 5))

    def run(tables, ids):
        found = [[ops.gather(table, some) for some in (ids, ids[:0])] for table in tables]
        return found, [every_reduction(table, block) for table in tables]

    for found, reduced in twins(run)(dense + sparse, ids):
        for i, (out, none) in enumerate(found):
            rows, width = shapes[i % 3]
            inside = (ids < rows) & (i < 3)
            np.testing.assert_array_equal(out, np.repeat(inside[:, None], width, 1))
            assert none.shape == (0, width)
            for empty in reduced[i]:
                assert empty.shape == (3, width)
                assert not empty.any()


def test_weights_that_are_not_finite_and_zeros_of_sparse_rows():
    """A maximum sees the zeros, too."""
    block = make_block([[0, 1], [1]], [[np.inf, 1.0], [np.nan]], num_sources=3)
    zeros = make_block([[0, 1], [0], []], num_sources=4)

    def run(first, second):
        found = every_reduction(first, block)
        return found, ops.gather_aggregate(second, zeros, "max")

    first, second = [[2.0, 0], [0, 3], [0, 0]], [[-2.0, -1], [0, -3], [0, 0], [0, 0]]
    for found, best in twins(run)(sparse_of(first), sparse_of(second)):
        for out in found:
            np.testing.assert_array_equal(out, [[np.inf, np.nan], [np.nan, np.nan]])
        assert best.tolist() == [[0, -1], [-2, -1], [0, 0]]


def test_the_plain_form_reads_zeros_for_ids_outside_the_graph():
    block = replace(make_block([[0, 1]]), indices=jnp.asarray(np.int32([0, 2])))
    with kernels.plain():
        outs = jax.jit(every_reduction)(np.float32([[-4.0], [6.0]]), block)
    assert [out.tolist() for out in outs] == [[[-4]], [[-2]], [[0]]]


@needs_kernels
@pytest.mark.parametrize("field", ["indptr", "indices"])
def test_the_kernels_refuse_broken_sparse_features(field):
    fields = vars(make_features("sparse")[0])
    wrong = {field: as_device(np.full_like(fields[field], 2**30))}
    features = SparseFeatures(**(fields | wrong))
    block = random_block(np.random.default_rng(1), False)
    for call in (
        lambda: ops.gather(features, np.arange(40, dtype=np.int32)),
        *(lambda r=r: ops.gather_aggregate(features, block, r) for r in ops.REDUCTIONS),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match="rows of SparseFeatures must"):
            jax.block_until_ready(call())


def rows(*shape, dtype=np.float32):
    return jnp.asarray(np.ones(shape, dtype))


@cases(
    "features, ids, said",
    (np.ones((3, 2)), [0], "JAX array"),
    (rows(3), [0], "must be floats or integers [N, F]"),
    (rows(3, 2), [[0]], "ids must be"),
    (rows(3, 2), [0.5], "ids must be"),
    (np.ones((3, 2)), {}, "JAX array or SparseFeatures"),
    (rows(3), {}, "must be floats or integers [N, F]"),
    (rows(3, 2, dtype=np.complex64), {}, "integers [N, F]"),
    (rows(4, 2), {}, "num_sources must be * 3 for 4 rows"),
    (rows(3, 2), {"reduce": "median"}, "sum, mean, max"),
    (rows(3, 2), {"indices": None}, "indices must be* none"),
    (rows(3, 2), {"edge_weight": np.ones(1)}, "edge_weight must be"),
    (rows(3, 2), {"num_edges": None}, "num_edges must be"),
    ((rows(3, 2),), {"place": np.arange(4), "source_capacity": 3}, "place must be [3]"),
)
def test_bad_arguments_are_refused(features, ids, said):
    """By `gather` with ids, and by `gather_aggregate` with options or fields of a block."""
    if not isinstance(ids, dict):
        return refused(said, ops.gather, features, ids)
    options = {name: ids[name] for name in ids if name in ("reduce", "place")}
    block = replace(make_block([[0, 2]]), **{n: v for n, v in ids.items() if n not in options})
    return refused(said, ops.gather_aggregate, features, block, **options)


def test_rows_of_several_tables_are_read_by_their_place():
    """The result equals, bit for bit, that of the whole matrix, which is never built."""
    rng = np.random.default_rng(9)
    block = random_block(rng, True, num_sources=NUM_NODES)
    tables = [rng.standard_normal((n, WIDTH)).astype(np.float32) for n in (20, 0, 15, 25)]
    place = rng.permutation(60)[:NUM_NODES].astype(np.int32)
    place[[3, 7]] = -1, 60

    def run(tables, place):
        found = []
        for reduce in ops.REDUCTIONS:
            one = block if reduce == "sum" else with_weight(block, None)
            built = ops.aggregate(one, ops.gather(tables, place), reduce)
            found.append((ops.gather_aggregate(tables, one, reduce, place), built))
        return found

    for pairs in twins(run)(tuple(map(jnp.asarray, tables)), place):
        for out, built in pairs:
            np.testing.assert_array_equal(out, built)


@needs_kernels
def test_the_kernel_runs_on_the_cpu_and_builds_no_matrix_of_inputs():
    block = random_block(np.random.default_rng(0), True, num_sources=50_000)
    features = jax.ShapeDtypeStruct((50_000, 64), np.float32)
    with kernels.this_host_only(False):
        compiled = jax.jit(ops.gather_aggregate).lower(features, block).compile()
    assert "jgs_gather_aggregate" in compiled.as_text()
    out = block.target_capacity * 64 * 4
    assert compiled.memory_analysis().temp_size_in_bytes <= out + 10_000
