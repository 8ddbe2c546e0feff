"""`plan_capacity`: tight, enough, and a function of its arguments."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.sampling import plan_capacity, sample_neighbors


def test_plan_capacity_is_tight_and_says_so(make_graph, caplog):
    graph = make_graph(20_000, 400_000)
    with caplog.at_level("INFO", "jgs"):
        capacity = plan_capacity(graph, 256, (5, 5, 5))
    worst = 256 * 6 * 6 * 5
    assert capacity.edges[2] < worst
    assert "capacity planned from 10 batches" in caplog.text
    need = 0
    for i in range(5):
        seeds = np.random.default_rng(i).permutation(20_000)[:256]
        batch = sample_neighbors(jax.random.key(100 + i), graph, seeds, (5, 5, 5))
        need = max(need, int(batch.blocks[0].num_edges))
    assert need <= capacity.edges[2] < 1.25 * need
    assert plan_capacity(graph, 256, (5, 5, 5)) == capacity  # a function of its arguments
    hash(capacity)


@pytest.mark.parametrize(
    "mode", [{}, {"weighted": True}, {"replace": True, "weighted": True}], ids=str
)
@pytest.mark.parametrize("fanouts", [(4, 3), (-1, 3), (3, -1)], ids=str)
def test_planned_capacity_serves_samples_like_its_trials(mode, fanouts, make_graph):
    graph = make_graph(300, 4000)
    capacity = plan_capacity(graph, 50, fanouts, trials=20, margin=0.5, **mode)
    for i in range(20):
        seeds = np.random.default_rng(i).permutation(300)[:50]
        assert not sample_neighbors(
            jax.random.key(i), graph, seeds, fanouts, capacity, **mode
        ).overflow


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": -1},
        {"batch_size": 2.5},
        {"seeds": [30]},
        {"seeds": []},
        {"seeds": [[1], [2, 3]]},
        {"key": 3},
        {"graph": None},
        {"trials": 0},
        {"margin": -0.5},
        {"fanouts": np.array(3)},
        {"weighted": True},
    ],
    ids=str,
)
def test_bad_plans_are_refused(change):
    good = {
        "graph": Graph.from_edges([0, 1], [1, 2], 30),
        "batch_size": 2,
        "fanouts": (2, 2),
    }
    with pytest.raises(InputError):
        plan_capacity(**(good | change))
