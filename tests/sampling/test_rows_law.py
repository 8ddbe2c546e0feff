"""Rows drawn jointly are drawn as often as their law says: z-tests with fixed keys."""

import jax.numpy as jnp
import numpy as np
import pytest
from rows_law import assert_included

from jgs import Graph
from jgs.sampling.matrix import Matrix

# Nodes 0 to 10, and 11 without edges. Node 0 has 9 of the 18 out-edges, the next nine have one.
HUB = Graph.from_edges(np.r_[[0] * 9, 1:10], np.r_[0:9, [10] * 9], 12)
VALUES = jnp.linspace(0, 5, 18)
COLUMNS = np.array([3, 12, 4, 10, 3, 12], np.int32)  # 12 is padding, and 3 comes twice
ROWS = np.array([12, 0, 11, 5, 7, 8, 12], np.int32)

SELECTIONS = {
    "whole graph": (lambda A: A, np.r_[9, np.ones(9), 0, 0]),
    "columns": (lambda A: A[:, COLUMNS], np.r_[3, np.ones(9), 0, 0]),
    "built columns": (lambda A: A[:, COLUMNS].built(), np.r_[3, np.ones(9), 0, 0]),
    "rows": (lambda A: A[ROWS, :], np.array([9, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0])),
    "rows of columns": (
        lambda A: A[ROWS, COLUMNS],
        np.array([3, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0]),
    ),
    "a selection": (
        lambda A: A[:, COLUMNS].individual_sample(-1),
        np.r_[3, np.ones(9), 0, 0],
    ),
}


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("name", SELECTIONS)
def test_by_default_rows_are_drawn_by_their_number_of_edges(name, compact, k):
    """gSampler's default is a bias of 1 an edge, summed over each row (section 3.1). In the
    whole graph node 0 has half of all edges, and is drawn first with a chance of 0.62, by the
    ranks `u / 9` and `u / 1`. If all rows were equally likely, it would have 0.1. The edges'
    values change nothing."""
    part, edges = SELECTIONS[name]

    def draw(key):
        A = Matrix(HUB, VALUES, key, compact=compact)
        return part(A).collective_sample(k).row()

    assert_included(draw, edges, k, 12)
