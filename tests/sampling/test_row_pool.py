"""Which rows stay in memory: those that are needed again first, in C++ as in Python, and with
all steps known as few are read as can be."""

import numpy as np
import pytest

from jgs import kernels
from jgs.sampling.loading.row_pool import MOST_STEPS, Plain, row_pool


def steps_of(rng, num_rows, number, most):
    sizes = rng.integers(0, most, number)
    return [rng.integers(-1, num_rows + 2, size).astype(np.int32) for size in sizes]


def run(pool, steps, window, pinned=(), reset=lambda step: False):
    """What the pool takes step by step; checks that every place has the row it should."""
    seen, held, found = 0, dict(enumerate(pinned)), []
    for step, rows in enumerate(steps):
        while seen < len(steps) and seen <= step + window:
            pool.see(steps[seen], seen)
            seen += 1
        taken = pool.take(rows, step)
        num_rows, capacity = pool.sizes
        for row, place in zip(rows.tolist(), taken.place.tolist(), strict=True):
            if not 0 <= row < num_rows:
                assert place == -1
            elif place < capacity:
                assert held[place] == row
            else:
                assert taken.missing[place - capacity] == row
        assert (np.diff(taken.missing) > 0).all()
        assert np.unique(taken.target).size == taken.target.size
        assert (taken.target >= len(pinned)).all()
        held |= dict(zip(taken.target.tolist(), taken.missing[taken.source], strict=True))
        found.append(taken)
        if reset(step):
            pool.reset()
            seen = step + 1
    return found


def make(kind, num_rows, capacity, pinned=()):
    pool = kind(num_rows, capacity, np.array(pinned, np.int32))
    pool.sizes = num_rows, capacity
    return pool


@pytest.mark.parametrize("seed", range(30))
def test_kernel_and_plain_agree(seed):
    if not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 60))
    capacity, window = int(rng.integers(0, num_rows + 3)), int(rng.integers(0, MOST_STEPS + 1))
    pinned = rng.choice(num_rows, min(seed % 3, capacity, num_rows), replace=False).tolist()
    steps, ends = steps_of(rng, num_rows, 80, 30), set(rng.integers(0, 80, 2).tolist())
    both = [
        run(make(kind, num_rows, capacity, pinned), steps, window, pinned, ends.__contains__)
        for kind in (row_pool, Plain)
    ]
    for a, b in zip(*both, strict=True):
        for mine, theirs in zip(a, b, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def fewest(steps, capacity):
    """How many rows the best of all choices reads, tried one by one."""
    states = {frozenset(): 0}
    for step in steps:
        rows, after = frozenset(step.tolist()), {}
        for held, reads in states.items():
            total = reads + len(rows - held)
            for kept in subsets(held | rows, capacity):
                after[kept] = min(after.get(kept, total), total)
        states = after
    return min(states.values())


def subsets(rows, size):
    from itertools import combinations  # of at most so many; more never read more

    return map(frozenset, combinations(sorted(rows), min(size, len(rows))))


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_reads_less(seed):
    """Belady's rule, checked against all choices."""
    rng = np.random.default_rng(seed)
    steps = [
        np.unique(rng.integers(0, 7, rng.integers(1, 5))).astype(np.int32) for _ in range(9)
    ]
    for capacity in (0, 1, 2, 3):
        pool = make(row_pool, 7, capacity)
        read = sum(taken.missing.size for taken in run(pool, steps, len(steps)))
        assert read == fewest(steps, capacity)


def test_without_a_window_the_oldest_leaves():
    pool = make(row_pool, 10, 2)
    steps = [np.array([row], np.int32) for row in (0, 1, 0, 2, 0, 1)]
    read = [taken.missing.tolist() for taken in run(pool, steps, 0)]
    assert read == [[0], [1], [], [2], [], [1]]


def test_memory_is_counted():
    pool = row_pool(1000, 100, np.zeros(0, np.int32))
    if kernels.available():
        assert 8 * 1000 + 12 * 100 <= pool.nbytes <= 8 * 1000 + 12 * 100 + 300
