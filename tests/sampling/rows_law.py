"""The law of rows drawn jointly, computed without drawing, and a test of draws against it."""

import jax
import numpy as np


def inclusion(weight, k):
    """float64 `[R]`: the probability that each row is among the `k` smallest `U / weight`.

    Row `u` is drawn at the rank `t` if fewer than `k` others have smaller ranks. Between two
    of the points `1 / weight` this is a polynomial in `t`, which Gauss's rule integrates
    exactly.
    """
    weight = np.asarray(weight, np.float64)
    real = np.flatnonzero(weight > 0)
    w = weight[real]
    ends = np.unique(np.r_[0, 1 / w])
    x, share = np.polynomial.legendre.leggauss(w.size // 2 + 1)
    half = np.diff(ends)[:, None] / 2
    t, share = (ends[:-1, None] + half * (x + 1)).ravel(), (half * share).ravel()
    below = np.minimum(w[:, None] * t, 1)  # P(the rank of a row is below t)
    found = np.zeros(weight.shape)
    for u in range(w.size):
        number = np.zeros((k, t.size))  # P(so many of the others are below t), fewer than k
        number[0] = 1
        for other in np.delete(below, u, axis=0):
            fewer = np.r_[np.zeros((1, t.size)), number[:-1]]
            number = number * (1 - other) + fewer * other
        found[real[u]] = share[t < 1 / w[u]] @ number.sum(axis=0)[t < 1 / w[u]] * w[u]
    return found


def assert_included(draw, expected, draws=20_000):
    """Asserts that `draw(key)`, bool `[N]`, draws each row with the probability `expected`,
    float `[N]`: a z-test of each row, with a fixed key."""
    keys = jax.random.split(jax.random.key(7), draws)
    times = np.asarray(jax.jit(lambda keys: jax.vmap(draw)(keys).sum(axis=0))(keys))
    deviation = np.sqrt(draws * expected * (1 - expected).clip(0))
    z = np.abs(times - draws * expected) / np.maximum(deviation, 0.2)
    assert (z < 4.5).all(), f"expected {expected}\nactual {times / draws}\nz {z}"
