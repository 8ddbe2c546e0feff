"""`Demand`: if needs are normal, hardly one step in a thousand exceeds its prediction."""

import numpy as np
import pytest

from jgs.dist.rows.demand import Demand, rounded


@pytest.mark.parametrize("trials", [5, 16, 54])
def test_one_step_in_a_thousand_at_most_needs_more(trials):
    rng, steps, exceeded = np.random.default_rng(0), 2000, []
    for _ in range(200):
        needs = rng.normal(26000, 400, trials + steps).astype(int)
        exceeded.append((needs[trials:] > Demand(needs[:trials].tolist()).most()).mean())
    assert np.mean(exceeded) < 1e-3, np.mean(exceeded)
    old = [(n[8:] > 1.02 * n[:8].max()).mean() for n in rng.normal(26000, 400, (200, 2008))]
    assert np.mean(old) > 1e-3  # a fixed margin of 2 % is not enough


def test_few_needs_and_none():
    demand = Demand()
    assert demand.most() == 0
    demand.add(100)
    assert demand.most() == 111  # the other steps are not known yet
    demand.add(100)
    assert demand.most() == 100
    assert [rounded(n) for n in (0, 1, 64, 65)] == [1, 64, 64, 128]
