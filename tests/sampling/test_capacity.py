"""`plan_capacity`: its result is tight, large enough, and a function of its arguments alone."""

import jax
import numpy as np
import pytest

from jgs import Graph, InputError
from jgs.sampling import Capacity, Loader, plan_capacity, sample_neighbors, worst_case

KEY = jax.random.key(100)


def test_plan_capacity_is_tight_and_says_so(make_graph, caplog):
    graph = make_graph(20_000, 400_000)
    with caplog.at_level("INFO", "jgs"):
        capacity = plan_capacity(graph, 256, (5, 5, 5))
    first, second = caplog.messages
    assert first.startswith("capacity planned from 10 batches")
    assert str(capacity.edges) in second
    seeds = np.stack([np.random.default_rng(i).permutation(20_000)[:256] for i in range(5)])
    batch = sample_neighbors(jax.random.split(KEY, 5), graph, seeds, (5, 5, 5))
    need = int(batch.blocks[0].num_edges.max())
    assert need <= capacity.edges[2] < 1.25 * need
    assert plan_capacity(graph, 256, (5, 5, 5)) == capacity


def test_bad_plans_are_refused():
    good = {"graph": Graph.from_edges([0, 1], [1, 2], 30), "batch_size": 2, "fanouts": (2, 2)}
    for change in (
        *({"batch_size": size} for size in (-1, 2.5)),
        *({"seeds": seeds} for seeds in ([30], [], [[1], [2, 3]])),
        *({"key": 3}, {"graph": None}, {"trials": 0}, {"margin": -0.5}),
        *({"fanouts": np.array(3)}, {"weighted": True}),
    ):
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
    batch = sample_neighbors(KEY, graph, np.arange(size), (fanout,), capacity)
    assert batch.overflow
    assert int(batch.blocks[0].num_edges) == 0


def test_a_loader_measures_only_where_the_bound_is_large(make_graph):
    """A small bound is the capacity, so nothing overflows there."""
    small = Loader(make_graph(60, 700), np.arange(40), 8, (3, 2), key=KEY)
    assert small.capacity == worst_case(make_graph(60, 700), 8, (3, 2), distinct=True)
    graph = make_graph(20_000, 400_000)
    large = Loader(graph, np.arange(20_000), 256, (5, 5, 5), key=KEY)
    assert large.capacity == plan_capacity(graph, 256, (5, 5, 5))
