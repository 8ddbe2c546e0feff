"""The metrics of `--metric` by their definitions, and equal on any number of ranks."""

from itertools import pairwise, product

import jax
import numpy as np
import pytest
from small_runs import measured

from jgs import InputError
from jgs.dist.communicators.mesh import Mesh
from jgs.train.evaluation.metrics import METRICS, make_metric

N = 60


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
    assert measured("auc", np.ones((3, 2), np.float32), np.array([1, 1, 1])) == 0.5
    assert make_metric(None, True) is METRICS["f1_micro"]
    assert make_metric(None, False) is METRICS["accuracy"]
    with pytest.raises(InputError, match="one label a node"):
        make_metric("accuracy", True)
