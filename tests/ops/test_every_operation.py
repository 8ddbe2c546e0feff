"""What all operations promise: threads, float types, `vmap`, `shard_map`, broken blocks."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from blocks import make_block, random_block, with_weight
from cases import cases
from derivatives import pulled, twins
from jax.sharding import PartitionSpec as P

from jgs import kernels, ops
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.ops import dropout_mask, linear

NUM_NODES, WIDTH, HEADS = 50, 16, 4
SPARSE = SparseFeatures.from_scipy(
    scipy.sparse.random(NUM_NODES, WIDTH, 0.3, "csr", np.float32, np.random.default_rng(1))
)


def aggregate(reduce):
    return lambda block, x, w: ops.aggregate(with_weight(block, w), x, reduce)


def gather_aggregate(reduce):
    return lambda block, x, w: ops.gather_aggregate(x, with_weight(block, w), reduce)


def with_values(values):
    return SparseFeatures(**{**vars(SPARSE), "values": values})


def layer(block, x, kernel):
    drop = dropout_mask(np.uint32([0, 1]), jnp.arange(len(x)), 0, 0.5)
    return linear([x], [kernel], None, block.num_sources, relu=True, drop=drop)


# Each takes a block and some of `arrays`, which are named.
OPERATIONS = {
    **{f"aggregate, {r}": (aggregate(r), "x weight") for r in ops.REDUCTIONS},
    "aggregate, heads": (lambda b, x, w: ops.aggregate(b, x, "sum", edge_weight=w), "x heads"),
    "aggregate, mean of heads": (lambda b, x, w: ops.aggregate(b, x, "mean", w), "x heads"),
    "dot": (lambda b, x, y: ops.edge_dot(b, x, y, HEADS), "x y"),
    "scores": (lambda b, x, y, a: ops.edge_scores(b, x, y, a), "x y attention"),
    "softmax": (lambda b, logits, own: ops.edge_softmax(b, logits, own), "heads own"),
    **{f"gather_aggregate, {r}": (gather_aggregate(r), "x weight") for r in ops.REDUCTIONS},
    "gather_aggregate, sparse": (
        lambda b, v, w: ops.gather_aggregate(with_values(v), with_weight(b, w)),
        "values weight",
    ),
    "gather": (lambda b, x: ops.gather(x, b.indices), "x"),
    "gather, sparse": (lambda b, values: ops.gather(with_values(values), b.indices), "values"),
    "linear": (layer, "x kernel"),
}


NOT_OF_BLOCKS = {"gather", "gather, sparse", "gather_aggregate, sparse", "linear"}


def operands(name, block, num_sources, width=WIDTH):
    """The operation's arrays, random and finite."""
    rng, slots, targets = np.random.default_rng(2), block.edge_capacity, block.target_capacity
    shapes = {
        "x": (num_sources, width),
        "y": (targets, width),
        "weight": (slots,),
        "heads": (slots, HEADS),
        "own": (targets, HEADS),
        "kernel": (width, 5),
        "attention": (HEADS, width // HEADS),
        "values": SPARSE.values.shape,
    }
    return [rng.standard_normal(shapes[n], np.float32) for n in OPERATIONS[name][1].split()]


@pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")
@pytest.mark.parametrize("name", OPERATIONS)
def test_kernel_equals_plain_and_has_the_same_bits_on_any_number_of_threads(name):
    f = OPERATIONS[name][0]
    sources = NUM_NODES if "gather_aggregate" in name else 9000
    # Enough work for several threads to share.
    block = random_block(np.random.default_rng(3), True, 6000, sources)

    def run(block, *operands):
        cosines = lambda out: jnp.cos(jnp.arange(out.size)).reshape(out.shape)  # noqa: E731
        slopes = lambda out: jax.tree.map(cosines, out)  # noqa: E731
        return pulled(lambda *of: f(block, *of))(slopes, *operands)

    arrays = operands(name, block, sources)
    assert "jgs_" in jax.jit(run).lower(block, *arrays).as_text()  # it is the kernel
    one, *others, plain = twins(run, (1, 2, 4))(block, *arrays)
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, one, other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(plain), strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n not in NOT_OF_BLOCKS])
def test_where_nothing_is_real_results_and_derivatives_are_0(name):
    """Whatever the arrays hold."""
    cases = [  # rows, nodes, width, more capacity
        ([], 4, 8, (0, 2)),  # no targets
        ([], 0, 8, (0, 0)),  # nothing at all
        ([[], []], 2, 8, (0, 0)),  # no edges
        ([[], []], 3, 8, (1, 4)),  # no real edges
        ([], 2, 8, (2, 5)),  # an overflowed batch: all capacity, nothing real
        ([[0, 1]], 2, 0, (0, 0)),  # no features
    ]
    cases = cases[:-1] if name in ("dot", "scores", "softmax") else cases
    blocks = [make_block(rows, None, num, more) for rows, num, _, more in cases]
    sizes = [(num, width) for _, num, width, _ in cases]
    every = [operands(name, b, *size) for b, size in zip(blocks, sizes, strict=True)]

    def run(blocks, every):
        f, ones = OPERATIONS[name][0], lambda out: jax.tree.map(jnp.ones_like, out)
        of_block = lambda block: pulled(lambda *of: f(block, *of))  # noqa: E731
        return [of_block(b)(ones, *of) for b, of in zip(blocks, every, strict=True)]

    for arrays in every:
        for array in arrays[: 1 if name == "softmax" else 2]:  # not the attention's own
            array[:] = np.nan
    for results in twins(run)(blocks, every):
        for (out, grads), block, arrays in zip(results, blocks, every, strict=True):
            if name == "softmax":  # a real target has itself
                out, own = out
                real = np.arange(len(own)) < int(block.num_targets)
                np.testing.assert_array_equal(own[:, 0], np.where(real, 1, 0))
            assert not out.any()
            for grad, array in zip(grads, arrays, strict=True):
                assert grad.shape == array.shape
                assert not grad.any()


@pytest.mark.parametrize("name", ["aggregate, sum", "softmax", "linear"])
def test_other_float_types(name):
    """Half precision is summed in float32, and float64 in float64."""
    block = make_block([[0] * 3000, [1, 2], [3]], num_sources=NUM_NODES)
    arrays = [np.abs(array) for array in operands(name, block, NUM_NODES)]
    dtypes = (jnp.float16, jnp.bfloat16, jnp.float64)

    @jax.jit
    def run(several):
        f = pulled(lambda *of: OPERATIONS[name][0](block, *of))
        return [f(lambda out: jax.tree.map(jnp.ones_like, out), *of) for of in several]

    def cast(dtype):  # a block's own weights are float32
        names = zip(OPERATIONS[name][1].split(), arrays, strict=True)
        return [array if n == "weight" else array.astype(dtype) for n, array in names]

    with jax.enable_x64(True):
        results = jax.device_get(run([cast(dtype) for dtype in dtypes]))
    want = results[-1]
    for found, dtype in zip(results, dtypes, strict=True):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
            assert a.dtype in (dtype, np.float32)
            np.testing.assert_allclose(np.float64(a), b, rtol=0.05, atol=0.05)
    assert want[0][0].dtype == np.float64
    assert (np.float32(want[0][0]) != want[0][0]).any()


@pytest.mark.parametrize("name", OPERATIONS)
def test_vmap_and_shard_map_over_a_mesh_of_one_device(name):
    """With derivatives. By default JAX checks over which axes of the mesh each value varies."""
    block = random_block(np.random.default_rng(3), True, 20, NUM_NODES)
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    arrays = operands(name, block, NUM_NODES)

    bare = lambda *of: OPERATIONS[name][0](block, *of)  # noqa: E731

    def run(*operands):
        found, several = [], [jnp.stack([2 * a, a]) for a in operands]
        for number in range(len(operands)):  # the operand that is split
            specs = tuple(P("data") if i == number else P() for i in range(len(operands)))
            shared = jax.shard_map(bare, mesh=mesh, in_specs=specs, out_specs=P("data"))
            found.append(pulled(shared)(lambda out: out, *operands))
        forward = jax.jvp(bare, operands, operands)[1] if "gather" in name else None
        own = lambda *of: pulled(bare)(lambda out: out, *of)  # noqa: E731
        return own(*operands), found, jax.vmap(own)(*several), forward

    run = twins(run, plain=False, everywhere=True)
    ((one, found, several, forward),) = run(*arrays)
    for shared in found:
        jax.tree.map(np.testing.assert_array_equal, shared, one)
    for a, b in zip(jax.tree.leaves(several), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-5, atol=1e-5)
    if forward is not None:  # these have derivatives in both modes
        backward = sum((grad * array).sum() for grad, array in zip(one[1], arrays, strict=True))
        np.testing.assert_allclose((forward * one[0]).sum(), backward, rtol=1e-3)


@pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")
@cases(
    "fields, said",
    ({"indices": np.int32([0, 3])}, "block.indices must be"),
    ({"indices": np.int32([-1, 0])}, "block.indices must be"),
    ({"indptr": np.int32([0, 2**30, 2])}, "block.indptr must"),
    ({"indptr": np.int32([0, -4, 2])}, "block.indptr must"),
    ({"num_edges": np.int32(1)}, "block.indptr must"),
    ({"num_edges": np.int32(9)}, "block.num_edges must"),
    ({"num_targets": np.int32(3)}, "block.num_targets must"),
    ({"num_targets": np.int32(1)}, "must be empty"),
    ({"num_sources": np.int32(2)}, "block.num_sources must.* relabel_inputs=False"),
)
def test_the_kernels_refuse_a_broken_block(fields, said):
    block, rows = replace(make_block([[0], [2]]), **fields), np.ones((3, 2), np.float32)
    sparse = SparseFeatures.from_scipy(scipy.sparse.csr_matrix(rows))
    calls = [(by_node, jnp.asarray(rows)), (by_node, sparse)]
    calls += [(by_source, rows)] * ("num_sources" not in fields)
    calls += [(softmax, rows[:2, 0])] * ({"num_sources", "indices"}.isdisjoint(fields))
    for operation, operand in calls:
        with pytest.raises(jax.errors.JaxRuntimeError, match=said):
            jax.block_until_ready(operation(block, operand))


by_node = jax.jit(lambda block, x: ops.gather_aggregate(x, block))
by_source, softmax = jax.jit(ops.aggregate), jax.jit(ops.edge_softmax)
