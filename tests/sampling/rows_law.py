"""The law of rows drawn jointly, computed without drawing, and a test of draws against it."""

import jax
import numpy as np


def inclusion(weight, k):
    """float64 `[R]`: the probability that each row is among `k` successive draws in proportion
    to `weight`.

    The draws are those of the `k` smallest of numbers that have the exponential distribution
    with the rates `weight`. Row `u` is drawn at `t` if fewer than `k` others are below `t`.
    """
    weight = np.asarray(weight, np.float64)
    real = np.flatnonzero(weight > 0)
    w = weight[real]
    x, share = np.polynomial.legendre.leggauss(400)
    passed, share = (x + 1) / 2, share / 2  # the probability that row u is below t
    found = np.zeros(weight.shape)
    for u in range(w.size):
        others = np.delete(w, u)
        below = 1 - (1 - passed) ** (others[:, None] / w[u])
        number = np.zeros((k, passed.size))  # P(so many of the others are below t), up to k - 1
        number[0] = 1
        for other in below:
            fewer = np.r_[np.zeros((1, passed.size)), number[:-1]]
            number = number * (1 - other) + fewer * other
        found[real[u]] = share @ number.sum(axis=0)
    return found


def assert_included(draw, expected, draws=20_000):
    """Asserts that `draw(key)`, bool `[N]`, draws each row with the probability `expected`,
    float `[N]`: a z-test of each row, with a fixed key."""
    keys = jax.random.split(jax.random.key(7), draws)
    times = np.asarray(jax.jit(lambda keys: jax.vmap(draw)(keys).sum(axis=0))(keys))
    deviation = np.sqrt(draws * expected * (1 - expected).clip(0))
    z = np.abs(times - draws * expected) / np.maximum(deviation, 0.2)
    assert (z < 4.5).all(), f"expected {expected}\nactual {times / draws}\nz {z}"
