"""Metrics of rankings: of links among negatives, and of recommended lists. Ties count half."""

from __future__ import annotations

from typing import Any

import numpy as np


def average_precision(scores: np.ndarray, links: np.ndarray) -> float:
    """The mean over the links of the share of links among the pairs that score at least as
    much: the area under the steps of precision over recall. All pairs of one score are one
    step.

    Args:
      scores: float `[n]`, finite.
      links: bool `[n]`, whether each pair is a link; at least one is.
    """
    order = np.argsort(-np.asarray(scores), kind="stable")
    ranked, links = np.asarray(scores)[order], np.asarray(links, bool)[order]
    last = np.append(ranked[1:] != ranked[:-1], True)
    found = np.cumsum(links)[last]
    precision = found / (np.flatnonzero(last) + 1)
    return float(np.sum(precision * np.diff(found, prepend=0)) / found[-1])


def ranks(positive: Any, negative: Any, mask: Any = None) -> np.ndarray:
    """float64 `[n]`: the rank of each link among its negatives, from 1 on. A negative of the
    same score counts half a place, and where a score is NaN a whole one.

    Args:
      positive: float `[n]`.
      negative: float `[n, K]`.
      mask: bool `[n, K]`, which negatives count, or None for all. A *filtered* metric leaves
        out those that are links.
    """
    positive, negative = np.asarray(positive)[:, None], np.asarray(negative)
    counts = np.ones(negative.shape, bool) if mask is None else np.asarray(mask)
    above, equal = (
        np.count_nonzero(found & counts, axis=1)
        for found in (~(negative <= positive), negative == positive)
    )
    return 1 + above + equal / 2


def mrr(rank: np.ndarray) -> float:
    """The mean reciprocal rank; `rank` is what `ranks` returned."""
    return float(np.mean(1 / rank))


def hits(rank: np.ndarray, k: int) -> float:
    """The share of links whose rank is at most `k`."""
    return float(np.mean(rank <= k))


def hits_of_all(positive: Any, negative: Any, k: int) -> float:
    """OGB's Hits@k: the share of links that score more than the `k`-th best of all negatives,
    which are float `[m]` and the same for every link; 1 if there are fewer than `k`. Equal
    scores count half."""
    positive, negative = np.asarray(positive), np.asarray(negative).reshape(-1)
    if negative.size < k:
        return 1.0
    least = np.partition(negative, -k)[-k]
    return float(np.mean(positive > least) + np.mean(positive == least) / 2)


def recall(recommended: np.ndarray, relevant: list[np.ndarray]) -> float:
    """Recall@k: the mean over queries of the share of the relevant items that are recommended.

    Args:
      recommended: int `[n, k]`, a list of distinct items for each query, the best first; what
        is -1 is no item.
      relevant: for each query the distinct items that are relevant. Queries without any do not
        count; with no query left the result is 0.
    """
    found = [
        np.isin(wanted, row).mean()
        for row, wanted in zip(recommended, relevant, strict=True)
        if len(wanted)
    ]
    return float(np.mean(found)) if found else 0.0


def ndcg(recommended: np.ndarray, relevant: list[np.ndarray]) -> float:
    """NDCG@k with items that are relevant or not: the mean over queries of the sum of
    `1 / log2(1 + place)` of the relevant items, divided by the largest possible sum (Järvelin
    and Kekäläinen 2002). The arguments are those of `recall`."""
    gain = 1 / np.log2(2 + np.arange(recommended.shape[1]))
    found = [
        gain[np.isin(row, wanted)].sum() / gain[: len(wanted)].sum()
        for row, wanted in zip(recommended, relevant, strict=True)
        if len(wanted)
    ]
    return float(np.mean(found)) if found else 0.0


def mean_average_precision(recommended: np.ndarray, relevant: list[np.ndarray]) -> float:
    """MAP@k, as RelBench has it: the mean over queries of the sum of the precision at the place
    of each relevant item in the list, divided by the number of relevant items or `k`, whichever
    is less. The arguments are those of `recall`."""
    found = []
    for row, wanted in zip(recommended, relevant, strict=True):
        if len(wanted):
            right = np.isin(row, wanted)
            precision = np.cumsum(right) / np.arange(1, row.size + 1)
            found.append((precision * right).sum() / min(len(wanted), row.size))
    return float(np.mean(found)) if found else 0.0


LISTS = {"recall": recall, "ndcg": ndcg, "map": mean_average_precision}
