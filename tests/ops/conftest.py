"""What the tests of `jgs.ops` share: both implementations, blocks, and the definition."""

import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Block, kernels


@pytest.fixture(params=["plain", "kernel"])
def implementation(request, monkeypatch):
    if request.param == "kernel" and not kernels.available():
        pytest.skip("kernels are not in use")
    monkeypatch.setattr(kernels, "available", lambda: request.param == "kernel")
    return request.param


@pytest.fixture(scope="session")
def make_block():
    return _make_block


@pytest.fixture(scope="session")
def random_block():
    return _random_block


@pytest.fixture(scope="session")
def reference():
    return _reference


def _make_block(rows, weights=None, num_sources=None, capacities=(0, 0), pad_weight=np.nan):
    """A Block from a list of source lists; `capacities` (T, E) are added to its own."""
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
        # Padding that points at a real row must not do harm either.
        indices=jnp.asarray(np.r_[indices, [0] * capacities[1]].astype(np.int32)),
        num_targets=jnp.int32(len(rows)),
        num_sources=jnp.int32(num_sources),
        num_edges=jnp.int32(num_edges),
        edge_weight=weight,
    )


def _random_block(rng, weighted, num_targets=30, num_sources=50, max_degree=9):
    degrees = rng.integers(0, max_degree + 1, num_targets)
    degrees[::7] = 0
    rows = [rng.integers(0, num_sources, d) for d in degrees]
    weights = [rng.standard_normal(d) for d in degrees] if weighted else None
    return _make_block(rows, weights, num_sources, capacities=(4, 11))


def _reference(block, x, grad_out, reduce):
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
            # Of equal products argmax takes the first.
            share = np.arange(len(edges))[:, None] == products.argmax(0)
        else:
            share = np.full(products.shape, 1 / len(edges) if reduce == "mean" else 1.0)
        out[t] = (share * products).sum(0)
        for e, s in zip(edges, share, strict=True):
            grad_x[indices[e]] += weight[e] * s * grad_out[t]
            grad_weight[e] = (s * x[indices[e]] * grad_out[t]).sum()
    return out, grad_x, grad_weight
