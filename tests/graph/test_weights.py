"""Fixed-point prefix sums: exact where possible, and never zero for a positive weight."""

from fractions import Fraction

import numpy as np
import pytest
from refusals import refused

from jgs.graph import weights


def fixed_point(weight: list[float]) -> np.ndarray:
    weight = np.array(weight, np.float32)
    prefix = weights.weight_prefix_sums(np.array([0, weight.size]), weight)
    return np.diff(prefix, prepend=0)


@pytest.mark.parametrize(
    "weight",
    [
        [1.0],
        [1.0, 2.0, 0.0, 0.5],
        [0.1, 0.2, 0.3, 1e-2, 7e3],
        [3e38, 3e38, 3e38],
        [1e-45, 3e-45, 0.0],  # subnormal
        list(np.random.default_rng(0).random(1000)),
    ],
)
def test_ratios_are_exact(weight):
    units = fixed_point(weight)
    assert units.sum() <= 2**62
    exact = [Fraction(float(np.float32(w))) for w in weight]
    ratios = {Fraction(int(u)) / e for u, e in zip(units, exact, strict=True) if e}
    assert len(ratios) == 1
    assert all(u == 0 for u, e in zip(units, exact, strict=True) if not e)


def test_the_smallest_weights_stay_positive():
    units = fixed_point([3e38, 1e-45, 0.0])
    assert units[1] == 1
    assert units[2] == 0
    assert units.sum() <= 2**62


def test_a_weight_that_float32_would_lose_is_refused():
    assert weights.check_weights(np.array([0.0, 2e-45, 1.0]), 3)[1] > 0
    refused("1e-46 at edge 2*ratios", weights.check_weights, np.array([0.0, 1.0, 1e-46]), 3)


def test_rows_are_separate_and_pieces_make_no_difference(monkeypatch):
    rng = np.random.default_rng(1)
    degree = rng.integers(0, 40, 300)
    degree[:3] = degree[-3:] = 0
    indptr = np.concatenate([[0], np.cumsum(degree)])
    number = indptr[-1]
    weight = np.float32(rng.random(number) * 10.0 ** rng.integers(-8, 8, number))
    whole = weights.weight_prefix_sums(indptr, weight)
    for v in np.flatnonzero(degree)[:50]:
        row = slice(indptr[v], indptr[v + 1])
        np.testing.assert_array_equal(np.diff(whole[row], prepend=0), fixed_point(weight[row]))
    monkeypatch.setattr("jgs.graph.rows._EDGES_AT_ONCE", 64)
    monkeypatch.setattr("jgs.graph.rows._ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(weights.weight_prefix_sums(indptr, weight), whole)
