"""Moving the nodes that cost the least cut until every part is within its limits."""

from __future__ import annotations

import numpy as np

from jgs.dist.adjacency import Adjacency, neighbors_per_part

_ROUNDS = 500
_STEEPNESS = 50.0  # a part 2 % fuller counts e times as much
_STEP = 0.01  # of a limit: what moves in a round, at least


def part_loads(parts: np.ndarray, weights: np.ndarray, num_parts: int) -> np.ndarray:
    """int64 `[num_parts, C]`: what each part's nodes count in each constraint."""
    columns = [np.bincount(parts, w, num_parts) for w in weights.T]
    return np.stack(columns, axis=1).astype(np.int64)


def limits(total: np.ndarray, num_parts: int, tolerance: float) -> np.ndarray:
    """int64 `[C]`: the most a part may hold of each constraint; even when that is few."""
    return np.maximum(total * tolerance // num_parts, -(-total // num_parts)).astype(np.int64)


def rebalance(
    graph: Adjacency, weights: np.ndarray, parts: np.ndarray, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """`parts` int32 `[N]` with nodes moved until no part holds more than `limit`.

    Args:
      graph: what a move costs: the edges that its node sees in the part it leaves, less
        those in the part it joins.
      weights: int64 `[N, C]`, none negative.
      limit: int64 `[C]`.

    Each round the part that exceeds a limit the most gives nodes away, those first that lose
    the fewest edges by what they even out: the sum of `exp(50 load / limit)` over all parts
    and constraints falls with every move, so that parts may also swap, hubs for many leaves
    say. It ends when no node helps (one may be heavier than a limit) or after 500 rounds.
    """
    parts = parts.copy()
    load = part_loads(parts, weights, num_parts)
    limit = np.maximum(limit, 1)
    for _ in range(_ROUNDS):
        source = int(np.argmax((load / limit).max(axis=1)))
        worst = (load[source] / limit).max()
        if worst <= 1:
            break
        nodes = np.flatnonzero((parts == source) & weights.any(axis=1))
        near = neighbors_per_part(graph, nodes, parts, num_parts)
        for least in (0.5, 0.0):  # first no shuffling between parts that are full alike
            targets, score = _best_moves(near, weights[nodes], load, limit, source, least)
            order = np.argsort(score, kind="stable")[: np.count_nonzero(score < np.inf)]
            if order.size:
                break
        else:
            break
        nodes, targets = nodes[order], targets[order]
        step = np.maximum(_STEP, (worst - 1) / 2) * limit
        moved = _up_to(weights[nodes], targets, step)
        parts[nodes[moved]] = targets[moved]
        load = part_loads(parts, weights, num_parts)
    return parts


def _best_moves(near, weights, load, limit, source, least) -> tuple[np.ndarray, np.ndarray]:
    """Each node's best target, and the edges lost by how much it evens out.

    Infinite where the sum falls by no more than `least` of what the source is relieved of.
    """
    scale = _STEEPNESS / limit
    top = (load * scale).max()  # keeps the exponentials finite
    left = np.exp(load[source] * scale - top) - np.exp((load[source] - weights) * scale - top)
    relief = left.sum(axis=1)
    best, lowest = np.zeros(len(near), np.int32), np.full(len(near), np.inf)
    for target in range(len(load)):
        if target == source:
            continue
        joined = np.exp((load[target] + weights) * scale - top)
        gain = relief - (joined - np.exp(load[target] * scale - top)).sum(axis=1)
        lost = near[:, source] - near[:, target]
        # Losing nothing, the move that evens out the most comes first.
        score = np.where(lost > 0, lost / np.maximum(gain, 1e-300), lost * 1.0 - gain)
        score[~(gain > np.maximum(least * relief, 1e-12))] = np.inf
        better = score < lowest
        best[better], lowest[better] = target, score[better]
    return best, lowest


def _up_to(weights: np.ndarray, targets: np.ndarray, step: np.ndarray) -> np.ndarray:
    """bool: the first moves, until one part would get more than `step`; at least the first."""
    total = np.zeros(targets.size, bool)
    for target in np.unique(targets):
        mine = np.flatnonzero(targets == target)
        total[mine] = (np.cumsum(weights[mine], axis=0) > step).any(axis=1)
    count = int(np.argmax(total)) if total.any() else total.size
    return np.arange(targets.size) < max(1, count)
