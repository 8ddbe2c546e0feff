"""Several heads: `aggregate` with a weight for each, dots, scores and softmax of edges."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import aggregated, make_block, random_block, with_weight
from cases import cases
from derivatives import pulled, twins
from refusals import refused

from jgs import kernels, ops


def arrays(rng, block, num_heads, width, num_sources=60):
    """`x`, edge weights and a gradient of the result; NaN in what must not be read."""
    x = rng.standard_normal((num_sources, num_heads * width), np.float32)
    read = np.asarray(block.indices)[: int(block.num_edges)]
    x[~np.isin(np.arange(num_sources), read)] = np.nan
    weight = rng.standard_normal((block.edge_capacity, num_heads), np.float32)
    weight[int(block.num_edges) :] = np.nan
    grad = rng.standard_normal((block.target_capacity, num_heads * width), np.float32)
    return x, weight, grad


def one_by_one(block, x, weight, grad, reduce):
    """`(out, grad_x, grad_weight)`, computed for each head by itself."""
    heads, weights = weight.shape[1], np.nan_to_num(weight).T
    parts = (np.split(a, heads, axis=1) for a in (np.nan_to_num(x), grad))
    blocks = [with_weight(block, of_head) for of_head in weights]
    found = [aggregated(*of, reduce) for of in zip(blocks, *parts, strict=True)]
    out, grad_x, grad_weight = zip(*found, strict=True)
    return np.hstack(out), np.hstack(grad_x), np.stack(grad_weight, axis=1)


def assert_close(found, want, **close):
    for got, exact in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(got, exact, **({"rtol": 1e-5, "atol": 1e-5} | close))


@cases(
    "num_heads, width, reduce",
    (1, 5, "sum"),
    (2, 1, "mean"),
    (3, 7, "sum"),
    (4, 16, "mean"),
    (8, 8, "sum"),
)
def test_each_head_has_its_weights(num_heads, width, reduce):
    rng = np.random.default_rng(num_heads)
    block = random_block(rng, weighted=True)  # the block's own weights are not read
    x, weight, grad = arrays(rng, block, num_heads, width)
    want = one_by_one(block, x, weight, grad, reduce)
    f = pulled(lambda x, weight: ops.aggregate(block, x, reduce, edge_weight=weight))
    for found in twins(f)(grad, x, weight):
        assert_close(found, want)


def edges_of(block):
    """`(target, edge, source)` of each real edge."""
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    for t in range(int(block.num_targets)):
        for e in range(indptr[t], indptr[t + 1]):
            yield t, e, indices[e]


@pytest.mark.parametrize(("num_heads", "width"), [(1, 5), (4, 3), (2, 16)])
def test_edge_dot_and_edge_scores_equal_their_definitions(num_heads, width):
    rng = np.random.default_rng(9)
    block = random_block(rng, weighted=False)
    x, grad, y = arrays(rng, block, num_heads, width)
    attention = rng.standard_normal((num_heads, width), np.float32)
    wide = [np.float64(a) for a in (x, y, attention)]
    dots, of_x, of_y = (np.zeros(a.shape) for a in (grad, x, y))
    scores, *slopes = (np.zeros(a.shape) for a in (grad, *wide))
    for t, e, s in edges_of(block):
        source, target = (a.reshape(num_heads, width) for a in (wide[0][s], wide[1][t]))
        g = np.float64(grad[e])[:, None]
        dots[e] = (source * target).sum(1)
        of_x[s] += (g * target).ravel()
        of_y[t] += (g * source).ravel()
        slope = np.where(source + target >= 0, 1, 0.1)
        scores[e] = (wide[2] * slope * (source + target)).sum(1)
        of_total = g * wide[2] * slope
        slopes[0][s] += of_total.ravel()
        slopes[1][t] += of_total.ravel()
        slopes[2] += g * slope * (source + target)

    def run(grad, x, y, attention):
        dot = pulled(lambda *of: ops.edge_dot(block, *of, num_heads))
        score = pulled(lambda *of: ops.edge_scores(block, *of, 0.1))
        return dot(grad, x, y), score(grad, x, y, attention)

    y[int(block.num_targets) :] = np.nan
    for found in twins(run)(grad, x, y, attention):
        assert_close(found, ((dots, (of_x, of_y)), (scores, slopes)), atol=5e-5)


def test_second_derivatives_of_an_attention():
    """An attention made of all operations, against the same one over a dense matrix."""
    rng = np.random.default_rng(4)
    block = random_block(rng, weighted=False, num_targets=4, num_sources=6, max_degree=3)
    width, targets = 2, block.target_capacity
    count, own = np.zeros((targets, 8)), np.zeros((targets, 1, 2))
    for t, _, s in edges_of(block):
        count[t, s] += 1
    own[: int(block.num_targets)] = 1  # the self-loops of the real rows
    x = rng.standard_normal((8, 2 * width)).astype(np.float32)

    def of_jgs(x):
        logits = ops.edge_dot(block, x, x[:targets], 2)
        logits += ops.edge_scores(block, x, x[:targets], x[:2, :width])
        of_own = (x[:targets] ** 2).reshape(targets, 2, width).sum(2)
        weights, of_own = ops.edge_softmax(block, logits, of_own)
        own_rows = x[:targets] * jnp.repeat(of_own, width, axis=1)
        return own_rows + ops.aggregate(block, x, "sum", weights)

    def dense(x):
        parts = x.reshape(8, 2, width)
        dots = jnp.einsum("shd,thd->tsh", parts, parts[:targets])
        leaky = jax.nn.leaky_relu(parts[None] + parts[:targets, None], 0.2)
        logits = dots + jnp.einsum("tshd,hd->tsh", leaky, x[:2, :width])
        loops = np.eye(targets, 8)[:, :, None] * own
        values = count[:, :, None] * jnp.exp(logits) + loops * jnp.exp(dots)
        total = values.sum(1, keepdims=True)
        weights = values / jnp.where(total == 0, 1, total)
        return jnp.einsum("tsh,shd->thd", weights, parts).reshape(targets, -1)

    @jax.jit
    def run(x):
        loss = lambda x, f: jnp.sin(f(x)).sum()  # noqa: E731
        return [(f(x), jax.hessian(loss)(x, f)) for f in (of_jgs, dense)]

    with kernels.this_host_only(False):
        (out, got), (wanted, want) = jax.device_get(run(x))
    assert_close(out, wanted)
    assert np.abs(want).max() > 0.1
    assert_close(got, want, rtol=1e-4)


SIX = np.ones((2, 6), np.float32)


@cases(
    "operation, operands, said",
    (ops.aggregate, (SIX, "sum", np.ones(3)), "edge_weight must be floats"),
    (ops.aggregate, (SIX, "sum", SIX[:, :4]), "the 6 columns * float32[2, 4]"),
    (ops.aggregate, (SIX, "sum", [1.0, 2.0]), "list"),
    (ops.aggregate, (SIX, "max", np.ones((2, 3))), "a maximum takes one weight"),
    (ops.edge_dot, (SIX, SIX, 1), "edge_dot takes"),
    (ops.edge_dot, (SIX, np.ones((1, 5)), 1), "edge_dot takes"),
    (ops.edge_dot, (SIX, np.ones((1, 6), jnp.bfloat16), 1), "edge_dot takes"),
    (ops.edge_dot, (SIX[:, 0], SIX[:1], 1), "x must be floats [N, F]"),
    (ops.edge_dot, (SIX, SIX[:1], 4), "equal parts"),
    (ops.edge_dot, (SIX[:1], SIX[:1], 1), "1 rows for 2 or more sources"),
    (ops.edge_scores, (SIX[:1], SIX[:1], SIX[:1]), "1 rows for 2 or more sources"),
    (ops.edge_scores, (SIX, np.ones((1, 5)), SIX[:, :3]), "edge_scores takes"),
    (ops.edge_scores, (SIX, SIX[:1], SIX[:, :2]), "2 heads of 2"),
    (ops.edge_scores, (SIX, SIX[:1], SIX[0]), "attention must be floats [N, F]"),
    (ops.edge_softmax, (np.ones((3, 2)),), "logits must be floats"),
    (ops.edge_softmax, (np.ones((2, 2)), np.ones((2, 2))), "own must be floats"),
    (ops.edge_softmax, (np.ones((2, 2)), np.ones((1, 3))), "as many heads"),
)
def test_operations_of_heads_refuse_other_shapes(operation, operands, said):
    refused(said, operation, make_block([[0, 1]]), *operands)


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


def logits_of(rng, block, num_heads):
    """Logits of edges and of targets, then a gradient of each; NaN in padding."""
    edges = block.edge_capacity, int(block.num_edges)
    targets, out = (block.target_capacity, int(block.num_targets)), []
    for scale, (capacity, real) in itertools.product((30.0, 1.0), (edges, targets)):
        a = scale * rng.standard_normal((capacity, num_heads))
        a[real:] = np.nan
        out.append(a.astype(np.float32))
    return out


def both(block):
    return pulled(lambda *logits: ops.edge_softmax(block, *logits))


@cases("num_heads, with_own", (1, True), (1, False), (3, False), (4, True), (8, True))
def test_equals_the_definition(num_heads, with_own):
    rng = np.random.default_rng(num_heads)
    block = random_block(rng, weighted=False)
    logits, own, grad, grad_own = logits_of(rng, block, num_heads)
    if with_own:
        want = definition(block, logits, own, (grad, grad_own))
        found = twins(both(block))((grad, grad_own), logits, own)
    else:
        none = np.full(own.shape, -1e9)  # its weight becomes 0
        want = definition(block, logits, none, (grad, none * 0))[::2]
        found = twins(both(block))(grad, logits)
    for results in found:
        for a, b in zip(jax.tree.leaves(results), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_one_head_may_be_a_vector():
    rng = np.random.default_rng(0)
    block = random_block(rng, weighted=False)
    logits, own, *_ = logits_of(rng, block, 1)

    def both(*of):
        return ops.edge_softmax(block, *of), ops.edge_softmax(block, of[0])

    for want, got in twins(lambda *of: (both(*of), both(*(a[:, 0] for a in of))))(logits, own):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:, 0]), got, want)


def test_logits_that_are_large_infinite_or_nan():
    block = make_block([[0, 0], [0], [0, 0], [0, 0], []], capacities=(1, 2))
    inf, nan = np.inf, np.nan
    logits = np.float32([3e38, -3e38, -inf, -inf, 1e4, nan, 1, nan, nan])
    grads = np.float32([1, 2, 3, 4, 5, 6, 7, nan, nan])
    own = np.float32([-inf, -inf, 0, 0, 5, nan])

    def run(logits, own):
        return both(block)(grads, logits), ops.edge_softmax(block, logits, own)

    for (weights, (grad,)), (with_own, own_weights) in twins(run)(logits, own):
        np.testing.assert_array_equal(weights, [1, 0, 0, 0, 1, nan, nan, 0, 0])
        np.testing.assert_array_equal(grad, [0, 0, 0, 0, 0, nan, nan, 0, 0])
        np.testing.assert_array_equal(with_own, [1, 0, 0, 0, 1, nan, nan, 0, 0])
        np.testing.assert_array_equal(own_weights, [0, 0, 0, nan, 1, 0])
