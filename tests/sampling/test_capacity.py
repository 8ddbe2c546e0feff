"""`plan_capacity`: its result is tight, large enough, and a function of its arguments alone."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.sampling import Capacity, plan_capacity, sample_neighbors
from jgs.sampling.edges.relabel import relabel_edges


def test_plan_capacity_is_tight_and_says_so(make_graph, caplog):
    graph = make_graph(20_000, 400_000)
    with caplog.at_level("INFO", "jgs"):
        capacity = plan_capacity(graph, 256, (5, 5, 5))
    worst = 256 * 6 * 6 * 5
    assert capacity.edges[2] < worst
    first, second = caplog.messages
    assert first.startswith("capacity planned from 10 batches")
    assert str(capacity.edges) in second
    assert max(map(len, caplog.messages)) <= 80
    need = 0
    for i in range(5):
        seeds = np.random.default_rng(i).permutation(20_000)[:256]
        batch = sample_neighbors(jax.random.key(100 + i), graph, seeds, (5, 5, 5))
        need = max(need, int(batch.blocks[0].num_edges))
    assert need <= capacity.edges[2] < 1.25 * need
    # The same arguments give the same result.
    assert plan_capacity(graph, 256, (5, 5, 5)) == capacity
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fanout", [1, 3])
def test_a_sample_far_beyond_its_sources_overflows(fanout):
    """Every chunk of the kernel finds some new nodes, and no chunk finds many."""
    size = 47_000
    src, dst = np.arange(size * fanout) + size, np.repeat(np.arange(size), fanout)
    graph = Graph.from_edges(src, dst, size * (fanout + 1))
    capacity = Capacity((size * fanout,), (size,))
    batch = sample_neighbors(
        jax.random.key(0), graph, np.arange(size), (fanout,), capacity=capacity
    )
    assert batch.overflow
    assert int(batch.blocks[0].num_edges) == 0


@pytest.mark.timeout(60)
def test_relabelling_far_beyond_its_sources_overflows():
    edge = np.arange(1 << 20)
    # 900 new nodes in each chunk.
    neighbors = (edge // 32768 * 900 + edge % 900).astype(np.int32)
    one = np.zeros(1, np.int32)
    _, count, *_ = relabel_edges(one, np.int32(1), neighbors, np.int32(edge.size), 1000, 10**6)
    assert int(count) == 1001
