"""Rows that are needed again first stay in memory, in C++ as in Python."""

from itertools import combinations

import numpy as np
import pytest

from jgs import kernels
from jgs.sampling.loading.row_pool import MOST_STEPS, Plain, row_pool

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")


def run(kind, num_rows, capacity, steps, window, pinned=(), resets=()):
    """What a pool takes step by step; checks that every place has the row it should."""
    pool = kind(num_rows, capacity, np.array(pinned, np.int32))
    seen, held, found = 0, dict(enumerate(pinned)), []
    for step, rows in enumerate(steps):
        while seen < len(steps) and seen <= step + window:
            pool.see(steps[seen], seen)
            seen += 1
        taken = pool.take(rows, step)
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
        if step in resets:
            pool.reset()
            seen = step + 1
    return found


@needs_kernels
@pytest.mark.parametrize("seed", range(20))
def test_kernel_and_plain_agree(seed):
    rng = np.random.default_rng(seed)
    num_rows = int(rng.integers(1, 60))
    capacity, window = int(rng.integers(0, num_rows + 3)), int(rng.integers(0, MOST_STEPS + 1))
    pinned = rng.choice(num_rows, min(seed % 3, capacity, num_rows), replace=False).tolist()
    sizes, ends = rng.integers(0, 30, 80), set(rng.integers(0, 80, 2).tolist())
    steps = [rng.integers(-1, num_rows + 2, size).astype(np.int32) for size in sizes]
    asked = num_rows, capacity, steps, window, pinned, ends
    both = [run(kind, *asked) for kind in (row_pool, Plain)]
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
            known = held | rows
            for kept in map(frozenset, combinations(known, min(capacity, len(known)))):
                after[kept] = min(after.get(kept, total), total)
        states = after
    return min(states.values())


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_reads_less(seed):
    """Belady's rule, checked against all choices."""
    rng = np.random.default_rng(seed)
    drawn = [rng.integers(0, 7, rng.integers(1, 5), np.int32) for _ in range(9)]
    steps = [np.unique(rows) for rows in drawn]
    for capacity in (0, 1, 2, 3):
        taken = run(row_pool, 7, capacity, steps, len(steps))
        read = sum(of_step.missing.size for of_step in taken)
        assert read == fewest(steps, capacity)


def test_without_a_window_the_oldest_leaves():
    steps = [np.array([row], np.int32) for row in (0, 1, 0, 2, 0, 1)]
    read = [taken.missing.tolist() for taken in run(row_pool, 10, 2, steps, 0)]
    assert read == [[0], [1], [], [2], [], [1]]


@needs_kernels
def test_memory_is_counted():
    pool = row_pool(1000, 100, np.zeros(0, np.int32))
    assert 8 * 1000 + 12 * 100 <= pool.nbytes <= 8 * 1000 + 12 * 100 + 300
