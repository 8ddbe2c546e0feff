"""Metrics by their definitions: those of classes on any number of ranks, and of rankings."""

from itertools import pairwise, product

import jax
import numpy as np
import pytest
from refusals import refused
from small_runs import measured

from jgs.dist.communicators.mesh import Mesh
from jgs.train.evaluation.metrics import METRICS, make_metric
from jgs.train.evaluation.ranking import (
    average_precision,
    hits,
    hits_of_all,
    mrr,
    ndcg,
    ranks,
    recall,
)

N = 60
RNG = np.random.default_rng(0)


def outputs_and_labels(num_classes, several):
    """Some outputs are equal, and one class has no row."""
    rng = np.random.default_rng(num_classes)
    outputs = rng.integers(-3, 4, (N, num_classes)).astype(np.float32)
    if several:
        labels = (rng.random((N, num_classes)) < 0.4).astype(np.float32)
        labels[:, -1] = 0
        return outputs, labels
    return outputs, rng.integers(0, max(2, num_classes - 1), N).astype(np.int32)


def by_definition(name, outputs, labels):
    num_classes = outputs.shape[1]
    if labels.ndim == 2:
        true, given, scores = labels > 0.5, outputs > 0, outputs
    else:
        true, given = (np.eye(num_classes, dtype=bool)[a] for a in (labels, outputs.argmax(1)))
        scores = np.exp(outputs.astype(float))
        scores /= scores.sum(axis=1, keepdims=True)
    found, right, wrong = [], 0, 0
    for c in range(num_classes):
        if name == "auc":
            pairs = list(product(scores[true[:, c], c], scores[~true[:, c], c]))
            above = [
                1.0 if abs(a - b) > 1e-9 and a > b else 0.5 * np.isclose(a, b) for a, b in pairs
            ]
            found += [np.mean(above)] if pairs else []
            continue
        hits, misses = (true & given)[:, c].sum(), (true != given)[:, c].sum()
        found += [2 * hits / (2 * hits + misses)] if hits + misses else []
        right, wrong = right + 2 * hits, wrong + misses
    return right / (right + wrong) if name == "f1_micro" else np.mean(found)


@pytest.mark.parametrize(("num_classes", "several"), [(2, False), (5, False), (4, True)])
@pytest.mark.parametrize("name", ["f1_macro", "f1_micro", "auc"])
def test_a_metric_is_what_it_is_called_on_any_number_of_ranks(name, num_classes, several):
    outputs, labels = outputs_and_labels(num_classes, several)
    want = measured(name, outputs, labels)
    assert want == pytest.approx(by_definition(name, outputs, labels), abs=1e-6)
    for ends in ([0, 50, N], [0, 31, 31, 55, N]):  # one of these ranks has no row
        comm = Mesh(jax.devices()[: len(ends) - 1])
        pieces = [[array[a:b] for a, b in pairwise(ends)] for array in (outputs, labels)]
        assert METRICS[name].measure(comm, *pieces) == want


def test_what_cannot_be_measured():
    logits = np.array([[1.0, 2], [3, 1], [0, 1]])
    assert measured("accuracy", logits, np.array([1, 1, 1])) == pytest.approx(2 / 3)
    assert measured("f1_micro", -np.ones((2, 2)), np.zeros((2, 2))) == 0
    assert measured("auc", np.ones((3, 2), np.float32), np.array([1, 1, 1])) == 0.5
    assert make_metric(None, True) is METRICS["f1_micro"]
    assert make_metric(None, False) is METRICS["accuracy"]
    refused("one label a node", make_metric, "accuracy", True)


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
