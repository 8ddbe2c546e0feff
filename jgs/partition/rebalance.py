"""Moving the nodes that cost the least cut until every part is within its limits."""

from __future__ import annotations

import numpy as np

from jgs.graph.adjacency import Adjacency, neighbors_per_part

_ROUNDS = 500
_STEEPNESS = 2.0, 50.0  # the sum's exponents, far from the limits and near them
_BESIDE = 25  # a part with a node above a limit may hold a 25th of the limit besides


def part_loads(parts: np.ndarray, weights: np.ndarray, num_parts: int) -> np.ndarray:
    """int64 `[num_parts, C]`: what each part's nodes count in each constraint."""
    columns = [np.bincount(parts, w, num_parts) for w in weights.T]
    return np.stack(columns, axis=1).astype(np.int64)


def limits(total: np.ndarray, num_parts: int, tolerance: float) -> np.ndarray:
    """int64 `[C]`: the most a part may hold of each constraint; even when that is few."""
    return np.maximum(total * tolerance // num_parts, -(-total // num_parts)).astype(np.int64)


def capped(weights: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """`weights`, those above `limit` a little below it: with such a node its part is as good as
    full. What cannot be divided must not keep the rest from being evened out."""
    return np.where(weights > limit, limit - limit // _BESIDE, weights)


def rebalance(
    graph: Adjacency, weights: np.ndarray, parts: np.ndarray, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """`parts` int32 `[N]` with nodes moved until no part holds more than `limit`.

    Args:
      graph: what a move costs: the edges that its node sees in the part it leaves, less
        those in the part it joins.
      weights: int64 `[N, C]`, none negative.
      limit: int64 `[C]`.

    Each round the part that exceeds a limit the most gives nodes away (the next one where no
    node helps), those first that lose the fewest edges by what they even out: the sum of
    `exp(k load / limit)` over all parts and constraints falls, so that parts may also swap,
    hubs for many leaves say. `k` grows with nearness to the limits. At most 500 rounds.

    Where no move helps any part, of the constraints that are exceeded the one with the
    heaviest node is given up, so that the others can still be kept: parts may hold of it what
    they hold.
    """
    parts = parts.copy()
    load = part_loads(parts, weights, num_parts)
    limit = np.maximum(limit, 1)
    heaviest = weights.max(axis=0, initial=0) / limit
    most = np.tile(limit, (num_parts, 1))
    for _ in range(_ROUNDS):
        over = load / most
        if over.max() <= 1:
            break
        moves = _moves(graph, weights, parts, load, most)
        if moves is None:
            given_up = np.argmax(np.where((over > 1).any(axis=0), heaviest, -1))
            most[:, given_up] = np.maximum(most, load)[:, given_up]
            continue
        nodes, targets = moves
        parts[nodes] = targets
        load = part_loads(parts, weights, num_parts)
    return parts


def _moves(graph, weights, parts, load, limit) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes of the worst part that can be helped, and their targets; `limit` is `[P, C]`."""
    worst = (load / limit).max(axis=1)
    scale = np.clip(2 / (worst.max() - 1), *_STEEPNESS) / limit
    for source in np.argsort(-worst, kind="stable")[: np.count_nonzero(worst > 1)]:
        nodes = np.flatnonzero((parts == source) & weights.any(axis=1))
        near = neighbors_per_part(graph, nodes, parts, len(load))
        for least in (0.5, 0.0):  # first no shuffling between parts that are full alike
            targets, score = _best_moves(near, weights[nodes], load, scale, source, least)
            order = np.argsort(score, kind="stable")[: np.count_nonzero(score < np.inf)]
            if order.size:
                nodes, targets = nodes[order], targets[order]
                count = _useful(weights[nodes], targets, load, limit, scale, source)
                return nodes[:count], targets[:count]
    return None


def _best_moves(near, weights, load, scale, source, least) -> tuple[np.ndarray, np.ndarray]:
    """Each node's best target, and the edges lost by how much it evens out.

    Infinite where the sum falls by no more than `least` of what the source is relieved of.
    """
    top = (load * scale).max()  # keeps the exponentials finite
    had = np.exp(load * scale - top)
    left = had[source] - np.exp((load[source] - weights) * scale[source] - top)
    relief = left.sum(axis=1)
    best, lowest = np.zeros(len(near), np.int32), np.full(len(near), np.inf)
    for target in range(len(load)):
        if target == source:
            continue
        joined = np.exp((load[target] + weights) * scale[target] - top)
        gain = relief - (joined - had[target]).sum(axis=1)
        lost = near[:, source] - near[:, target]
        # Losing nothing, the move that evens out the most comes first.
        score = np.where(lost > 0, lost / np.maximum(gain, 1e-300), lost * 1.0 - gain)
        score[~(gain > np.maximum(least * relief, 1e-12))] = np.inf
        better = score < lowest
        best[better], lowest[better] = target, score[better]
    return best, lowest


def _useful(weights, targets, load, limit, scale, source: int) -> int:
    """How many of the moves to make at once: no more than the source must lose, and halved
    until the sum falls (each alone lets it fall, together they may overshoot)."""
    excess = np.maximum(load[source] - limit[source], 0)
    enough = (np.cumsum(weights, axis=0) >= excess).all(axis=1)
    count = int(np.argmax(enough)) + 1 if enough.any() else targets.size
    top = (load * scale).max()
    before = np.exp(load * scale - top).sum()
    while count > 1:
        after = load.copy()
        after[source] -= weights[:count].sum(axis=0)
        np.add.at(after, targets[:count], weights[:count])
        if np.exp(after * scale - top).sum() < before:
            break
        count //= 2
    return count
