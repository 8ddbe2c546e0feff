"""Dealing nodes out evenly: nodes without edges, and training seeds."""

from __future__ import annotations

import numpy as np


def fill(load: np.ndarray, count: int) -> np.ndarray:
    """int64 `[P]`: how many of `count` equal things each part gets, so that the sums with
    `load` are as even as possible. What does not divide goes to the first parts."""
    order = np.argsort(load, kind="stable")
    level = load[order].astype(np.int64)
    # Raising the i emptiest parts to the level of the next takes `used[i]` things.
    used = np.arange(level.size) * level - (np.cumsum(level) - level)
    raised = max(1, int(np.searchsorted(used, count, "right")))
    height, rest = divmod(int(level[:raised].sum()) + count, raised)
    added = np.zeros(level.size, np.int64)
    added[order[:raised]] = height - level[:raised]
    added[np.sort(order[:raised])[:rest]] += 1
    return added


def deal_seeds(owner: np.ndarray, num_parts: int) -> np.ndarray:
    """int32 `[T]`: the part that trains on each seed. The numbers of the parts' seeds differ by
    at most 1.

    This is DistDGL's two-level split (section 5.6.1). A part keeps its own seeds, those whose
    `owner` int `[T]` it is. If it has too many, its last ones go to parts that lack some, in
    order.
    """
    count = np.bincount(owner, minlength=num_parts)
    share, rest = divmod(owner.size, num_parts)
    quota = np.full(num_parts, share)
    # Parts with the most seeds get one more, so that the fewest seeds move.
    quota[np.argsort(-count, kind="stable")[:rest]] += 1
    order = np.argsort(owner, kind="stable")
    rank = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    surplus = order[rank >= quota[owner[order]]]
    dealt = owner.astype(np.int32)
    dealt[surplus] = np.repeat(np.arange(num_parts), np.maximum(quota - count, 0))
    return dealt
