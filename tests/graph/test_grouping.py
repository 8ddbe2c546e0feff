"""How edges are grouped by target, and the fixed-point sums of their weights."""

from fractions import Fraction

import numpy as np
import pytest

from jgs import kernels
from jgs.graph import weights
from jgs.graph.grouping import group, group_kernel, group_plain, taken
from jgs.graph.rows import row_offsets

CASES = [  # groups, keys, edges in a bucket and in a chunk
    (0, 0, 8, 8),
    (1, 50, 8, 16),
    (1000, 0, 8, 8),
    (7, 1000, 16, 100),
    (1000, 3, 1, 1),
    (5000, 20_000, 64, 3000),
    (3, 20_000, 1 << 17, 1 << 22),
]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("case", CASES)
def test_kernel_plain_and_numpy_agree(case, dtype):
    num_groups, size, bucket, chunk = case
    rng = np.random.default_rng(size)
    keys = (num_groups * rng.random(size) ** 3).astype(dtype)  # skewed, with empty groups
    values = rng.permutation(size).astype(dtype) % max(1, num_groups)
    order = np.argsort(keys, kind="stable")
    results = [group_plain(keys, values, num_groups)]
    if kernels.available():
        sizes = {"bucket_edges": bucket, "chunk_edges": chunk}
        results.append(group_kernel(keys, values, num_groups, **sizes))
        assert group_kernel(keys, None, num_groups, **sizes).values is None
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "NUM_THREADS", 3)
            results.append(group_kernel(keys, values, num_groups, **sizes))
    for result in results:
        assert (result.indptr.dtype, result.order.dtype) == (np.int64, np.int32)
        offsets = row_offsets(np.bincount(keys, minlength=num_groups))
        assert np.array_equal(result.indptr, offsets)
        assert np.array_equal(result.order, order)
        assert np.array_equal(result.values, values[order])
    assert np.array_equal(group(keys.astype(np.int16), num_groups)[1], order)


def test_rows_are_taken_piece_by_piece(monkeypatch):
    monkeypatch.setattr(kernels, "NUM_THREADS", 3)
    order = np.random.default_rng(0).integers(0, 1000, (1 << 21) + 5).astype(np.int32)
    for values in (np.arange(1000, dtype=np.int16), np.arange(2000).reshape(-1, 2)):
        rows = taken(values, order)
        assert rows.dtype == values.dtype
        assert np.array_equal(rows, values[order])
    assert taken(values, order[:0]).shape == (0, 2)


@pytest.mark.parametrize("wrong", [-1, 10, 2**33])
def test_what_is_out_of_range_is_seen(wrong):
    good, bad = np.arange(10), np.arange(10)
    bad[7] = wrong
    for implementation in (group_plain, *([group_kernel] if kernels.available() else [])):
        assert implementation(bad, good, 10) is None
        assert implementation(good, bad, 10) is None
        assert implementation(good, good, 10) is not None


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
