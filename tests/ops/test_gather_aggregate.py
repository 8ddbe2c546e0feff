"""`jgs.ops.gather_aggregate`, kernel and plain, against `gather`, `aggregate` and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

from jgs import Block, InputError, kernels, ops
from jgs.graph import as_device
from jgs.graph.features import SparseFeatures

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")
NUM_NODES, WIDTH = 50, 13


def with_weight(block, weight):
    return Block(**{**vars(block), "edge_weight": weight})


def make_features(rng, kind):
    """`(features, the same in dense float32)`"""
    dense = np.round(rng.standard_normal((NUM_NODES, WIDTH)) * 4)
    if kind == "sparse":
        dense[rng.random(dense.shape) < 0.7] = 0
        dense[5] = 0
        return SparseFeatures.from_scipy(scipy.sparse.csr_matrix(dense)), dense
    dense = np.abs(dense) if kind == "uint8" else dense
    return jnp.asarray(dense.astype(kind)), dense


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "uint8", "sparse"])
def test_it_is_aggregate_after_gather(
    implementation, kind, reduce, weighted, random_block, reference
):
    rng = np.random.default_rng(3)
    block = random_block(rng, weighted, num_sources=NUM_NODES)
    features, dense = make_features(rng, kind)
    out = ops.gather_aggregate(features, block, reduce)
    assert out.dtype == jnp.float32
    grad_out = np.zeros(out.shape)
    np.testing.assert_allclose(
        out, reference(block, dense, grad_out, reduce)[0], rtol=1e-5, atol=1e-5
    )
    in_two = ops.aggregate(block, ops.gather(features, np.arange(NUM_NODES)), reduce)
    np.testing.assert_allclose(out, in_two, rtol=1e-6, atol=1e-6)
    jitted = jax.jit(lambda *args: ops.gather_aggregate(*args, reduce))  # traced anew
    np.testing.assert_array_equal(jitted(features, block), out)


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_derivatives_are_those_of_the_definition(
    implementation, reduce, random_block, reference
):
    rng = np.random.default_rng(5)
    block = random_block(rng, True, num_sources=NUM_NODES)
    features, dense = make_features(rng, "float32")
    grad_out = rng.standard_normal((block.target_capacity, WIDTH)).astype(np.float32)
    want = reference(block, dense, grad_out, reduce)

    def f(features, weight):
        return ops.gather_aggregate(features, with_weight(block, weight), reduce)

    grads = jax.vjp(f, features, block.edge_weight)[1](jnp.asarray(grad_out))
    for got, expected in zip(grads, want[1:], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["float32", "sparse"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_derivatives_in_both_modes(implementation, reduce, kind, random_block):
    rng = np.random.default_rng(6)
    block = random_block(rng, True, num_targets=6, num_sources=NUM_NODES)
    weight = jnp.nan_to_num(block.edge_weight)
    features, _ = make_features(rng, kind)

    def f(values, weight):
        changed = jnp.asarray(values)
        if kind == "sparse":
            changed = SparseFeatures(**{**vars(features), "values": values})
        return ops.gather_aggregate(changed, with_weight(block, weight), reduce)

    values = features.values if kind == "sparse" else features
    check_grads(f, (values, weight), order=1, modes=["fwd", "rev"], atol=0.05, rtol=0.05)


def test_weights_that_are_not_finite(implementation, make_block):
    block = make_block([[0, 1], [1]], [[np.inf, 1.0], [np.nan]], num_sources=3)
    features = SparseFeatures.from_scipy(scipy.sparse.csr_matrix([[2.0, 0], [0, 3], [0, 0]]))
    for reduce in ops.REDUCTIONS:
        np.testing.assert_array_equal(
            ops.gather_aggregate(features, block, reduce)[0], [np.inf, np.nan]
        )
        assert jnp.isnan(ops.gather_aggregate(features, block, reduce)[1]).all()


def test_max_sees_the_zeros_of_sparse_rows(implementation, make_block):
    block = make_block([[0, 1], [0], []], num_sources=4)
    features = SparseFeatures.from_scipy(
        scipy.sparse.csr_matrix([[-2.0, -1], [0, -3]] + 2 * [[0, 0]])
    )
    out = ops.gather_aggregate(features, block, "max")
    assert out.tolist() == [[0, -1], [-2, -1], [0, 0]]


@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("rows", "num_nodes", "width", "capacities"),
    [
        ([], 0, 3, (0, 0)),
        ([], 4, 3, (0, 2)),
        ([[], []], 0, 3, (1, 4)),  # no nodes
        ([[], []], 3, 3, (1, 4)),
        ([[0, 1]], 2, 0, (0, 0)),
        ([], 2, 3, (2, 5)),
    ],
)
def test_empty_blocks_give_zeros(
    implementation, reduce, sparse, rows, num_nodes, width, capacities, make_block
):
    block = make_block(rows, num_sources=max(num_nodes, 1), capacities=capacities)
    features = jnp.full((num_nodes, width), jnp.nan)
    if sparse:
        features = SparseFeatures.from_scipy(scipy.sparse.csr_matrix((num_nodes, width)))
    out = ops.gather_aggregate(features, block, reduce)
    assert out.shape == (len(rows) + capacities[0], width)
    assert np.all(np.asarray(out) == 0)


def test_an_overflowed_batch_gives_zeros_whatever_it_says(implementation, make_block):
    block = Block(**{**vars(make_block([], capacities=(3, 5))), "num_sources": jnp.int32(0)})
    out = jax.jit(lambda *args: ops.gather_aggregate(*args))(jnp.ones((4, 2)), block)
    assert out.tolist() == [[0, 0]] * 3


def test_more_targets_than_nodes(implementation, make_block):
    block = make_block([[0]], num_sources=1, capacities=(3, 0))
    assert ops.gather_aggregate(jnp.ones((1, 1)), block).tolist() == [[1], [0], [0], [0]]


def test_from_more_than_2_to_the_31_elements(tmp_path, implementation, make_block):
    rows, width = 2**25 + 100, 80  # 10.7 GB as a sparse file: only touched pages exist
    shape = (rows, width)
    store = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, shape)
    ids = [0, rows - 1, 2**25, 2**31 // width]
    for i in ids:
        store[i] = i % 1000 + np.arange(width)
    block = make_block([ids[:2], ids[2:]], num_sources=rows)
    out = jax.jit(lambda *args: ops.gather_aggregate(*args))(as_device(store), block)
    mean = [np.mean([i % 1000 for i in pair]) for pair in (ids[:2], ids[2:])]
    np.testing.assert_array_equal(out, np.asarray(mean)[:, None] + np.arange(width))


def test_ids_outside_the_graph_read_zeros_in_the_plain_path(monkeypatch, make_block):
    monkeypatch.setattr(kernels, "available", lambda: False)
    fields = {**vars(make_block([[0, 1]])), "indices": jnp.array([0, 2], jnp.int32)}
    features = jnp.array([[-4.0], [6.0]])
    for reduce, want in (("sum", -4), ("mean", -2), ("max", 0)):
        assert ops.gather_aggregate(features, Block(**fields), reduce).tolist() == [[want]]


@needs_kernels
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"indices": jnp.array([0, 3], jnp.int32)}, "block.indices must be.* rows of features"),
        ({"indices": jnp.array([-1, 0], jnp.int32)}, "block.indices must be"),
        ({"indptr": jnp.array([0, 2**30, 2], jnp.int32)}, "block.indptr must"),
        ({"num_edges": jnp.int32(9)}, "block.num_edges must"),
        ({"num_targets": jnp.int32(3)}, "block.num_targets must"),
        ({"num_sources": jnp.int32(2)}, "block.num_sources must.* relabel_inputs=False"),
    ],
)
def test_the_kernel_refuses_a_broken_block(sparse, fields, said, make_block):
    block = Block(**{**vars(make_block([[0], [2]])), **fields})
    features = jnp.ones((3, 2))
    if sparse:
        features = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(np.ones((3, 2))))
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        jax.block_until_ready(
            jax.jit(lambda *args: ops.gather_aggregate(*args))(features, block)
        )


@needs_kernels
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
@pytest.mark.parametrize("field", ["indptr", "indices"])
def test_the_kernel_refuses_broken_sparse_features(field, reduce, random_block):
    rng = np.random.default_rng(1)
    fields = vars(make_features(rng, "sparse")[0])
    broken = np.array(fields[field])
    broken[:] = 2**30
    features = SparseFeatures(**{**fields, field: as_device(broken)})
    with pytest.raises(jax.errors.JaxRuntimeError, match="rows of SparseFeatures must"):
        jax.block_until_ready(ops.gather_aggregate(features, random_block(rng, False), reduce))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reduce": "median"}, "sum, mean, max"),
        ({"features": np.ones((3, 2))}, "JAX array or SparseFeatures"),
        ({"features": jnp.ones(3)}, "matrix"),
        ({"features": jnp.ones((3, 2), jnp.complex64)}, "matrix"),
        ({"features": jnp.ones((4, 2))}, "num_sources must be .* 3 for 4 rows"),
        ({"indices": None}, "indices must be.* NoneType"),
        ({"edge_weight": jnp.ones(1)}, "edge_weight must be"),
        ({"num_edges": None}, "num_edges must be"),
    ],
)
def test_it_refuses_bad_arguments(change, said, make_block):
    fields = {k: v for k, v in change.items() if k not in ("features", "reduce")}
    block = Block(**{**vars(make_block([[0, 2]])), **fields})
    features, reduce = change.get("features", jnp.ones((3, 2))), change.get("reduce", "mean")
    with pytest.raises(InputError, match=said):
        ops.gather_aggregate(features, block, reduce)


@pytest.mark.parametrize("kind", ["float32", "sparse"])
def test_in_shard_map_over_a_mesh_of_one_device(implementation, kind, random_block):
    rng = np.random.default_rng(8)
    block = random_block(rng, True, num_sources=NUM_NODES)
    features, _ = make_features(rng, kind)

    def f(features, weight):
        return ops.gather_aggregate(features, with_weight(block, weight))

    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    shared = jax.shard_map(f, mesh=mesh, in_specs=(P(), P("data")), out_specs=P("data"))
    out = jax.jit(shared)(features, block.edge_weight)
    np.testing.assert_array_equal(out, f(features, block.edge_weight))


@needs_kernels
@pytest.mark.parametrize("kind", ["float32", "sparse"])
@pytest.mark.parametrize("reduce", ops.REDUCTIONS)
def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch, kind, reduce, random_block):
    rng = np.random.default_rng(9)
    block = random_block(rng, True, num_targets=9000, num_sources=NUM_NODES)  # threads share it
    features = make_features(rng, kind)[0]
    outs = []
    for num_threads in (1, 2, 4):
        monkeypatch.setattr(kernels, "NUM_THREADS", num_threads)
        outs.append(np.asarray(ops.gather_aggregate(features, block, reduce)))
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])


@needs_kernels
def test_the_kernel_runs_on_the_cpu_and_builds_no_matrix_of_inputs(random_block):
    block = random_block(np.random.default_rng(0), True, num_sources=50_000)
    features = jnp.ones((50_000, 64))
    compiled = (
        jax.jit(lambda *args: ops.gather_aggregate(*args)).lower(features, block).compile()
    )
    assert "jgs_gather_aggregate" in compiled.as_text()
    out = block.target_capacity * 64 * 4
    assert compiled.memory_analysis().temp_size_in_bytes <= out + 10_000


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_several_tables_are_read_by_their_place(
    implementation, weighted, random_block, reference
):
    """The result equals, bit for bit, that of the whole matrix, which is never built."""
    rng = np.random.default_rng(9)
    block = random_block(rng, weighted, num_sources=NUM_NODES)
    sizes = (20, 0, 15, 25)
    tables = tuple(jnp.asarray(rng.standard_normal((n, WIDTH)), jnp.float32) for n in sizes)
    place = rng.permutation(60)[:NUM_NODES].astype(np.int32)
    place[[3, 7]] = -1, 60
    for reduce in ops.REDUCTIONS:
        out = ops.gather_aggregate(tables, block, reduce, place)
        built = ops.aggregate(block, ops.gather(tables, place), reduce)
        np.testing.assert_array_equal(out, built)
    known = Block(**vars(block) | {"source_capacity": NUM_NODES})
    with pytest.raises(InputError, match="place"):
        ops.gather_aggregate(tables, known, "sum", place[:-1])
