"""`jgs.ops.edge_softmax`, kernel and plain, against float64 NumPy, one target at a time."""

import itertools

import jax
import numpy as np
from blocks import make_block, random_block
from cases import cases
from derivatives import pulled, twins

from jgs import ops


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
    logits, own, grad, grad_own = arrays(rng, block, num_heads)
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
    logits, own, *_ = arrays(rng, block, 1)

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
