"""What the benchmarks of embeddings print of several seeds."""

import numpy as np

from benchmarks.embeddings import RANDOM_SPLITS, random_splits, summary
from benchmarks.embeddings_gensim import SHARES, cells


def test_means_have_their_standard_errors():
    assert summary([0.25]) == "0.250"
    # Squares from the mean add up to 14: the variance is 14 / 3, that of the mean 14 / 12.
    assert summary([1.0, 2.0, 3.0, 6.0], "+") == "+3.000 ± 1.080"
    assert summary([-1.0, -2.0], "+") == "-1.500 ± 0.500"


def test_a_cell_has_both_scores_of_its_share():
    seed = np.arange(2 * len(SHARES)).reshape(len(SHARES), 2) / 10
    assert cells(seed[None]) == "0.000 / 0.100 | 0.200 / 0.300 | 0.400 / 0.500"
    found = cells(np.stack([seed, seed + 0.02]), "+")
    first, *_ = found.split(" | ")
    assert first == "+0.010 ± 0.010 / +0.110 ± 0.010"


def test_random_splits_know_as_many_nodes_of_each_class():
    labels = np.r_[np.full(5, -1), np.arange(60) % 3]
    train_idx = np.array([5, 8, 6, 7, 10, 13])  # classes 0, 0, 1, 2, 2, 2
    splits = list(random_splits(labels, train_idx))
    assert len({tuple(known) for known, _ in splits}) == RANDOM_SPLITS
    for known, others in splits:
        np.testing.assert_array_equal(
            np.bincount(labels[known]), np.bincount(labels[train_idx])
        )
        np.testing.assert_array_equal(np.sort(np.r_[known, others]), np.arange(5, 65))
