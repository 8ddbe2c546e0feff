"""Draws against their laws: with fixed keys, so that a right version always passes."""

import jax
import numpy as np
from scipy import stats

P_VALUE = 1e-4


def assert_as_often(counts, weights, about=""):
    """Chi-square of draws in proportion to `weights`; returns the statistic and its freedom."""
    counts, weights = np.ravel(counts), np.ravel(np.asarray(weights, np.float64))
    assert (counts[weights == 0] == 0).all(), (about, counts, weights)
    some = weights > 0
    expected = weights[some] / weights.sum() * counts.sum()
    if some.sum() < 2:
        return 0.0, 0
    found = stats.chisquare(counts[some], expected)
    wrong = f"{about}: p={found.pvalue}, expected {expected}, actual {counts[some]}"
    assert found.pvalue > P_VALUE, wrong
    return found.statistic, some.sum() - 1


def assert_all_as_often(results):
    """Asserts that what `assert_as_often` returned for independent draws is likely together."""
    statistic, freedom = np.sum(results, axis=0)
    assert freedom > 3
    assert stats.chi2.sf(statistic, freedom) > P_VALUE


def assert_mean(found, exact, sigmas=4.5, slack=0.0):
    """Asserts that the mean of `found` `[draws, ...]` is `exact`, by a z-test of each entry,
    and returns the standard errors."""
    found = np.asarray(found, np.float64)
    error = found.std(axis=0) / np.sqrt(len(found))
    off = np.abs(found.mean(axis=0) - exact)
    assert (off <= sigmas * np.maximum(error, 1e-6) + slack).all(), (off, error)
    return error


def assert_independent(a, b):
    """Asserts that two rows of small numbers are independent of each other, by chi-square."""
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    assert stats.chi2_contingency(table).pvalue > P_VALUE, table


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
    """Asserts by a z-test of each row that `draw(key)` draws it with the chance `expected`."""
    keys = jax.random.split(jax.random.key(7), draws)
    times = np.asarray(jax.jit(lambda keys: jax.vmap(draw)(keys).sum(axis=0))(keys))
    deviation = np.sqrt(draws * expected * (1 - expected).clip(0))
    z = np.abs(times - draws * expected) / np.maximum(deviation, 0.2)
    assert (z < 4.5).all(), f"expected {expected}\nactual {times / draws}\nz {z}"
