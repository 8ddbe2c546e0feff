"""Metrics of rankings, against their definitions written out."""

import numpy as np
import pytest

from jgs.train.evaluation.ranking import (
    average_precision,
    hits,
    hits_of_all,
    mrr,
    ndcg,
    ranks,
    recall,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("values", [3, 1000])
def test_average_precision_counts_ties_as_one_step(values):
    scores, links = RNG.integers(0, values, 200), RNG.random(200) < 0.3
    want = 0.0
    for score in scores[links]:
        among = scores >= score
        want += (links & among).sum() / among.sum() / links.sum()
    assert average_precision(scores, links) == pytest.approx(want)


def test_ranks_count_ties_half_and_leave_out_what_does_not_count():
    positive = np.array([2.0, 1.0, 0.0])
    negative = np.array([[3.0, 2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, np.nan]])
    assert ranks(positive, negative).tolist() == [3, 1, 5]
    mask = np.array([[False, True, True, True], [True] * 4, [True, False, False, False]])
    found = ranks(positive, negative, mask)
    assert found.tolist() == [2, 1, 2]
    assert mrr(found) == pytest.approx((1 / 2 + 1 + 1 / 2) / 3)
    assert hits(found, 1) == pytest.approx(1 / 3)
    assert hits(ranks(np.zeros(1), np.zeros((1, 9))), 5) == 0  # all equal: rank 5.5


def test_a_score_that_is_no_number_is_no_success():
    bad = np.array([[0.0, 1.0], [np.nan, 1.0]])
    assert ranks([np.nan, 2.0], bad).tolist() == [3, 2]


def test_hits_among_all_negatives():
    positive, negative = np.array([5.0, 3.0, 2.0, 1.0]), np.array([4.0, 3.0, 1.0])
    assert hits_of_all(positive, negative, 2) == (1 + 0.5) / 4
    assert hits_of_all(positive, negative, 4) == 1


def test_recall_and_ndcg_of_lists():
    scores = RNG.random((20, 30))
    relevant = [np.flatnonzero(RNG.random(30) < 0.2) for _ in range(20)]
    relevant[3] = np.array([], int)
    best = np.argsort(-scores, axis=1)[:, :10]
    some, gained = np.arange(20) != 3, []
    for row, wanted in zip(best, relevant, strict=True):
        gains = [1 / np.log2(2 + i) for i in range(10) if row[i] in wanted]
        most = [1 / np.log2(2 + i) for i in range(min(10, len(wanted)))]
        gained += [sum(gains) / sum(most)] if len(wanted) else []
    assert ndcg(best, relevant) == pytest.approx(np.mean(gained))
    want = [
        len(set(best[i]) & set(relevant[i])) / len(relevant[i]) for i in range(20) if some[i]
    ]
    assert recall(best, relevant) == pytest.approx(np.mean(want))
    assert recall(best[:1], [np.array([], int)]) == ndcg(best[:1], [np.array([], int)]) == 0
