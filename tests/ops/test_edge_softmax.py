"""`jgs.ops.edge_softmax`, kernel and plain, against float64 NumPy, one target at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import vjp
from jax.test_util import check_grads

from jgs import Block, InputError, kernels, ops

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="kernels are not in use")


def definition(block, logits, own, grads):
    """The weights, then the gradients of the logits; each as edges, then targets."""
    indptr = np.asarray(block.indptr)
    logits, own, *grads = (np.asarray(a, np.float64) for a in (logits, own, *grads))
    out = [np.zeros_like(a) for a in (logits, own, logits, own)]
    for t in range(int(block.num_targets)):
        edges = slice(indptr[t], indptr[t + 1])
        every = np.concatenate([own[t : t + 1], logits[edges]])
        values = np.exp(every - every.max(0))
        weights = values / values.sum(0)
        grad = np.concatenate([grads[1][t : t + 1], grads[0][edges]])
        back = weights * (grad - (weights * grad).sum(0))
        for (of_edges, of_own), a in (((out[0], out[1]), weights), ((out[2], out[3]), back)):
            of_own[t], of_edges[edges] = a[0], a[1:]
    return out


def arrays(rng, block, num_heads):
    """Logits of edges and of targets, then a gradient of each; NaN in padding."""
    edges, targets = int(block.num_edges), int(block.num_targets)
    out = []
    for scale in (30.0, 1.0):
        for capacity, real in (
            (block.edge_capacity, edges),
            (block.target_capacity, targets),
        ):
            a = scale * rng.standard_normal((capacity, num_heads))
            a[real:] = np.nan
            out.append(jnp.asarray(a, jnp.float32))
    return out


@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("num_heads", [1, 3, 4, 8])
def test_equals_the_definition(implementation, random_block, num_heads, with_own):
    rng = np.random.default_rng(num_heads)
    block = random_block(rng, weighted=False)
    logits, own, grad, grad_own = arrays(rng, block, num_heads)
    if with_own:
        want = definition(block, logits, own, (grad, grad_own))
        f = lambda logits, own: ops.edge_softmax(block, logits, own)  # noqa: E731
        out, grads = vjp(f, logits, own, grads=(grad, grad_own))
        got = [*out, *grads]
    else:
        none = np.full(own.shape, -1e9)  # its weight becomes 0
        want = definition(block, logits, none, (grad, none * 0))[::2]
        out, grads = vjp(lambda logits: ops.edge_softmax(block, logits), logits, grads=grad)
        got = [out, *grads]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    total = np.asarray(jax.ops.segment_sum(got[0], row_of(block), block.target_capacity))
    total = total + (np.asarray(got[1]) if with_own else 0)
    real = np.arange(block.target_capacity) < int(block.num_targets)
    real &= with_own | (np.diff(block.indptr) > 0)
    np.testing.assert_allclose(total, np.broadcast_to(real[:, None], total.shape), atol=1e-6)


def row_of(block):
    rows = np.arange(block.target_capacity).repeat(np.diff(block.indptr))
    padding = np.full(block.edge_capacity - len(rows), block.target_capacity)
    return jnp.asarray(np.r_[rows, padding])


def test_one_head_may_be_a_vector(implementation, random_block):
    rng = np.random.default_rng(0)
    block = random_block(rng, weighted=False)
    logits, own, *_ = arrays(rng, block, 1)
    want = ops.edge_softmax(block, logits, own)
    got = ops.edge_softmax(block, logits[:, 0], own[:, 0])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b[:, 0])
    np.testing.assert_array_equal(
        ops.edge_softmax(block, logits[:, 0]), ops.edge_softmax(block, logits)[:, 0]
    )


def test_logits_that_are_large_infinite_or_nan(implementation, make_block):
    block = make_block([[0, 0], [0], [0, 0], [0, 0], []], capacities=(1, 2))
    inf, nan = np.inf, np.nan
    logits = jnp.array([3e38, -3e38, -inf, -inf, 1e4, nan, 1, nan, nan], jnp.float32)
    weights, pull = jax.vjp(lambda x: ops.edge_softmax(block, x), logits)
    np.testing.assert_array_equal(weights, [1, 0, 0, 0, 1, nan, nan, 0, 0])
    (grad,) = pull(jnp.array([1, 2, 3, 4, 5, 6, 7, nan, nan], jnp.float32))
    np.testing.assert_array_equal(grad, [0, 0, 0, 0, 0, nan, nan, 0, 0])
    own = jnp.array([-inf, -inf, 0, 0, 5, nan], jnp.float32)
    weights, own = ops.edge_softmax(block, logits, own)
    np.testing.assert_array_equal(weights, [1, 0, 0, 0, 1, nan, nan, 0, 0])
    np.testing.assert_array_equal(own, [0, 0, 0, nan, 1, 0])


@pytest.mark.parametrize("with_own", [True, False])
def test_gradients_equal_finite_differences_in_float64(random_block, with_own):
    rng = np.random.default_rng(5)
    block = random_block(rng, weighted=False, num_targets=5, num_sources=6, max_degree=4)
    with jax.enable_x64(True):
        logits = jnp.asarray(rng.standard_normal((block.edge_capacity, 2)))
        own = jnp.asarray(rng.standard_normal((block.target_capacity, 2)))
        operands = (logits, own) if with_own else (logits,)
        assert jax.tree.leaves(ops.edge_softmax(block, *operands))[0].dtype == jnp.float64
        check_grads(lambda *a: ops.edge_softmax(block, *a), operands, order=2, modes=["rev"])


@pytest.mark.parametrize(
    ("rows", "capacities"), [([], (0, 0)), ([[], []], (1, 0)), ([[], []], (0, 3)), ([], (2, 3))]
)
def test_empty_blocks(implementation, rows, capacities, make_block):
    block = make_block(rows, num_sources=2, capacities=capacities)
    for heads in ((), (2,), (0,)):
        logits = jnp.full((block.edge_capacity, *heads), jnp.nan)
        own = jnp.full((block.target_capacity, *heads), 7.0)
        weights, own_weights = ops.edge_softmax(block, logits, own)
        assert weights.shape == logits.shape
        assert not np.asarray(weights).any()
        real = np.arange(block.target_capacity) < len(rows)
        want = np.broadcast_to(real.reshape(-1, *(1 for _ in heads)), own.shape)
        np.testing.assert_array_equal(own_weights, want)


@needs_kernels
def test_same_bits_with_any_number_of_threads(monkeypatch, random_block):
    rng = np.random.default_rng(1)
    block = random_block(rng, weighted=False, num_targets=9000, num_sources=9000)
    logits, own, grad, grad_own = arrays(rng, block, 4)

    def run(num_threads):
        monkeypatch.setattr(kernels, "NUM_THREADS", num_threads)
        out, pull = jax.vjp(lambda x, y: ops.edge_softmax(block, x, y), logits, own)
        return jax.tree.leaves((out, pull((grad, grad_own))))

    one = run(1)
    assert all(np.isfinite(a).all() for a in one)
    for num_threads in (2, 4):
        for a, b in zip(one, run(num_threads), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_computed_in_float32(dtype, make_block):
    block = make_block([[0] * 3000, [0]])
    weights, pull = jax.vjp(
        lambda x: ops.edge_softmax(block, x), jnp.zeros(block.edge_capacity, dtype)
    )
    assert weights.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(weights, np.float64)[[0, -1]], [1 / 3000, 1], rtol=0.01
    )
    (grad,) = pull(jnp.ones(weights.shape, dtype).at[0].set(2))
    assert grad.dtype == dtype
    np.testing.assert_allclose(np.asarray(grad, np.float64)[0], 1 / 3000, rtol=0.02)


def test_vmap_and_shard_map(implementation, random_block):
    rng = np.random.default_rng(6)
    block = random_block(rng, weighted=False)
    logits, own, *_ = arrays(rng, block, 2)
    f = lambda x, y: ops.edge_softmax(block, x, y)  # noqa: E731
    want = f(logits, own)
    both = jax.vmap(f)(jnp.stack([logits, 2 * logits]), jnp.stack([own, 2 * own]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b, rtol=1e-6), both, want)
    mesh = jax.make_mesh((1,), ("rank",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("rank")
    none = jax.sharding.PartitionSpec()
    shared = jax.shard_map(f, mesh=mesh, in_specs=(spec, none), out_specs=spec)
    jax.tree.map(np.testing.assert_array_equal, shared(logits, own), want)


@pytest.mark.parametrize(
    ("logits", "own", "said"),
    [
        (jnp.ones((3, 2)), None, "logits must be floats"),
        (jnp.ones((2, 2, 1)), None, "logits must be floats"),
        (jnp.ones(2, jnp.int32), None, r"logits must be .* int32\[2\]"),
        ([1.0, 2.0], None, r"logits must be .* list"),
        (jnp.ones((2, 2)), jnp.ones((2, 2)), "own must be floats"),
        (jnp.ones((2, 2)), jnp.ones((1, 3)), "as many heads"),
        (jnp.ones((2, 1)), jnp.ones(1), "as many heads"),
    ],
)
def test_refuses_other_shapes(make_block, logits, own, said):
    with pytest.raises(InputError, match=said):
        ops.edge_softmax(make_block([[0, 1]]), logits, own)


@needs_kernels
def test_the_kernel_refuses_a_broken_block(make_block):
    block = Block(**{**vars(make_block([[0], [2]])), "num_edges": jnp.int32(9)})
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"block.num_edges must be"):
        jax.block_until_ready(ops.edge_softmax(block, jnp.ones(2)))


@needs_kernels
def test_the_kernels_are_what_runs_on_the_cpu(make_block):
    block = make_block([[0, 1]])
    f = jax.jit(jax.grad(lambda x: (ops.edge_softmax(block, x) ** 2).sum()))
    text = f.lower(jnp.ones(2)).compile().as_text()
    assert "jgs_edge_softmax" in text
    assert "jgs_edge_softmax_grad" in text
