"""Moving nodes, those first that add the least to the cut, until no part exceeds a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jgs.graph.adjacency import Adjacency, neighbors_per_part
from jgs.partition.weights import part_loads, pieces

_ROUNDS = 500
_STEEPNESS = 2.0, 50.0  # the factor `k`, far from the limits and near them
# A round looks at so many nodes of a part, or at one 128th of the graph's if that is more.
_LOOKED_AT, _SHARE = 1 << 18, 128
_AT_LEAST = 1000  # a round moves at least one 1000th of a limit, if so much is above the limit


def rebalance(
    graph: Adjacency, weights: Any, parts: np.ndarray, num_parts: int, limit: np.ndarray
) -> np.ndarray:
    """`parts` int32 `[N]`, with nodes moved until no part holds more than `limit` int64 `[C]`.

    The cost of a move are the edges of the node into the part that it leaves, minus those into
    the part that it joins. The imbalance is the sum of `exp(k load / limit)` over all parts and
    constraints, where `k` grows as the loads come near the limits. In each of at most 500
    rounds the part that exceeds a limit the most gives nodes away, those first with the
    smallest cost for the imbalance that their move takes away. If none of its nodes helps, the
    next part does. The imbalance must fall, so parts may also swap, as a hub for many leaves.

    In a large part a round looks at some of the nodes and moves their share of what must go.
    The next round continues behind these nodes. So the edges of a part are read a few times,
    however many rounds there are.

    Where no move helps any part, the exceeded constraint with the heaviest node is given up:
    parts may keep what they hold of it, and the others can still be met. `weights` are
    `NodeWeights`, or integers `[N, C]`, none negative.
    """
    parts = parts.copy()
    load = part_loads(parts, weights, num_parts)
    limit = np.maximum(limit, 1)
    heaviest = np.max([weights[some].max(axis=0) for some in pieces(parts.size)], axis=0)
    most = np.tile(limit, (num_parts, 1))
    begin: np.ndarray = np.zeros(num_parts, np.int64)  # where each part's next round looks
    for _ in range(_ROUNDS):
        over = load / most
        if over.max() <= 1:
            break
        if not _move(graph, weights, parts, load, most, begin):
            given_up = np.argmax(np.where((over > 1).any(axis=0), heaviest / limit, -1))
            most[:, given_up] = np.maximum(most, load)[:, given_up]
    return parts


def _move(graph, weights, parts, load, limit, begin) -> bool:
    """Moves nodes out of the worst part that has nodes whose move helps. Changes `parts`,
    `load` and `begin`. Returns False if there is no such part. `limit` is `[P, C]`."""
    worst = (load / limit).max(axis=1)
    scale = np.clip(2 / (worst.max() - 1), *_STEEPNESS) / limit
    for source in np.argsort(-worst, kind="stable")[: np.count_nonzero(worst > 1)]:
        for least in (0.5, 0.0):  # at first no moves between parts that are equally full
            for nodes, stop in _candidates(parts, source, begin[source], len(load)):
                counts = weights[nodes]
                counting = counts.any(axis=1)  # nodes of no weight would only take memory
                nodes, counts = nodes[counting], counts[counting]
                near = neighbors_per_part(graph, nodes, parts, len(load))
                targets, score = _best_moves(near, counts, load, scale, source, least)
                order = np.argsort(score, kind="stable")[: np.count_nonzero(score < np.inf)]
                if order.size == 0:
                    continue
                share = counts.sum(axis=0) / np.maximum(load[source], 1)
                count = _useful(
                    counts[order], targets[order], load, limit, scale, source, share
                )
                moved = order[:count]
                parts[nodes[moved]] = targets[moved]
                load[source] -= counts[moved].sum(axis=0)
                np.add.at(load, targets[moved], counts[moved])
                begin[source] = stop
                return True
    return False


def _candidates(
    parts: np.ndarray, source: int, begin: int, num_parts: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Yields some nodes of the part `source` at a time, and the id behind them. It starts at
    the id `begin` and goes once around all nodes."""
    size = max(_LOOKED_AT, parts.size // _SHARE) * num_parts
    for low, high in ((begin, parts.size), (0, begin)):
        for first in range(low, high, size):
            stop = min(first + size, high)
            nodes = first + np.flatnonzero(parts[first:stop] == source)
            if nodes.size:
                yield nodes, stop % parts.size


def _best_moves(near, weights, load, scale, source, least) -> tuple[np.ndarray, np.ndarray]:
    """Each node's best target part, and the score of its move: the cost over the fall of the
    imbalance.

    The score is infinite where the imbalance falls by at most `least` of its fall in the
    source.
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
        # Among moves that cost nothing, the one that evens out the most comes first.
        score = np.where(lost > 0, lost / np.maximum(gain, 1e-300), lost * 1.0 - gain)
        score[~(gain > np.maximum(least * relief, 1e-12))] = np.inf
        better = score < lowest
        best[better], lowest[better] = target, score[better]
    return best, lowest


def _useful(weights, targets, load, limit, scale, source: int, share: np.ndarray) -> int:
    """How many of the moves to make at once: enough to move `share` `[C]` of what the source
    must lose, or a little more. The number is halved until the imbalance falls: each move alone
    lowers it, but together they may overshoot."""
    excess = np.maximum(load[source] - limit[source], 0)
    given = np.maximum(np.ceil(share * excess), limit[source] // _AT_LEAST)
    enough = (np.cumsum(weights, axis=0) >= np.minimum(excess, given)).all(axis=1)
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
