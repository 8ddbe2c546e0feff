"""What an exchange of rows is given: room for normal needs, and a cache by degree."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from jgs.dist.batches.plan import degree_counts, most_read
from jgs.dist.rows.demand import Demand, rounded


@pytest.mark.parametrize("num_rows", [0, 1, 37, 5000])
def test_the_rows_read_most_are_chosen_without_bytes_an_edge(monkeypatch, num_rows):
    monkeypatch.setattr("jgs.graph.rows._EDGES_AT_ONCE", 1 << 14)
    num_nodes, offsets = 1000, np.array([0, 400, 1000])
    indices = np.random.default_rng(0).binomial(num_nodes, 0.4, 1 << 20).astype(np.int32)
    comm, graph = SimpleNamespace(rank=0), SimpleNamespace(indices=indices)
    tracemalloc.start()
    found = most_read(*degree_counts(comm, offsets, [graph]), num_rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < indices.size  # less than a byte an edge; int64 takes eight
    count = np.bincount(indices, minlength=num_nodes)
    count[:400] = 0
    best = np.argsort(-count, kind="stable")[: np.count_nonzero(count)][:num_rows]
    expected = np.full(num_rows, num_nodes)
    expected[: best.size] = best
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("trials", [5, 16, 54])
def test_one_step_in_a_thousand_at_most_needs_more(trials):
    rng, steps, exceeded = np.random.default_rng(0), 2000, []
    for _ in range(200):
        needs = rng.normal(26000, 400, trials + steps).astype(int)
        exceeded.append((needs[trials:] > Demand(needs[:trials].tolist()).most()).mean())
    assert np.mean(exceeded) < 1e-3, np.mean(exceeded)


def test_few_needs_and_none():
    demand = Demand()
    assert demand.most() == 0
    demand.add(100)
    assert demand.most() == 111  # the other steps are not known yet
    demand.add(100)
    assert demand.most() == 100
    assert [rounded(n) for n in (0, 1, 64, 65)] == [1, 64, 64, 128]
