"""Dealing things out evenly: what has no neighbours to be near to, and training seeds."""

from __future__ import annotations

import numpy as np


def fill(load: np.ndarray, count: int) -> np.ndarray:
    """int64 `[P]`: how `count` equal things are added to `load` so that the parts end as even
    as they can; the first parts get what does not divide."""
    order = np.argsort(load, kind="stable")
    level = load[order].astype(np.int64)
    # With the i emptiest raised to the level of the next, this many things are used up.
    used = np.arange(level.size) * level - (np.cumsum(level) - level)
    raised = max(1, int(np.searchsorted(used, count, "right")))
    height, rest = divmod(int(level[:raised].sum()) + count, raised)
    added = np.zeros(level.size, np.int64)
    added[order[:raised]] = height - level[:raised]
    added[np.sort(order[:raised])[:rest]] += 1
    return added


def deal_seeds(owner: np.ndarray, num_parts: int) -> np.ndarray:
    """int32 `[T]`: the part that trains on each seed; the parts' numbers differ by 1 at most.

    DistDGL's two-level split (section 5.6.1): a part keeps its own seeds, `owner` int `[T]`;
    the last of those that are too many for it go to the parts that lack some, in order.
    """
    count = np.bincount(owner, minlength=num_parts)
    share, rest = divmod(owner.size, num_parts)
    quota = np.full(num_parts, share)
    # One more for those that have the most: the fewest move.
    quota[np.argsort(-count, kind="stable")[:rest]] += 1
    order = np.argsort(owner, kind="stable")
    rank = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    surplus = order[rank >= quota[owner[order]]]
    dealt = owner.astype(np.int32)
    dealt[surplus] = np.repeat(np.arange(num_parts), np.maximum(quota - count, 0))
    return dealt
