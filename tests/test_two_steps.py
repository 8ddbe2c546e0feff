"""The baseline of two steps draws what `Neighbors` draws. Nothing is timed."""

import jax
import numpy as np
import pytest
from cases import cases

import jgs
from benchmarks import two_steps
from jgs import kernels
from jgs.sampling import Capacity, Neighbors
from jgs.sampling.capacity import GraphShape

pytestmark = pytest.mark.slow
NUM_NODES = 300


@pytest.fixture(scope="module", autouse=True)
def registered(tmp_path_factory):
    if not two_steps.register(tmp_path_factory.mktemp("programs")):
        pytest.skip("no C++ compiler, or no kernels")


@pytest.fixture(scope="module")
def graph():
    """Some nodes have no edges, node 0 has many, and there are parallel edges and loops."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, NUM_NODES, 2500), rng.integers(0, NUM_NODES // 2, 2500)
    dst[:500] = 0
    return jgs.Graph.from_edges(src, dst, NUM_NODES)


@pytest.fixture(params=[1, 3], ids=lambda threads: f"{threads} threads")
def threads(request, monkeypatch):
    monkeypatch.setattr(kernels, "NUM_THREADS", request.param)  # read while tracing


def drawn(graph, seeds, fanouts, capacity=None, **options):
    sampler, seeds = Neighbors(fanouts, **options), np.asarray(seeds, np.int32)
    capacity = capacity or sampler.bound(GraphShape.of(graph), len(seeds), True)
    key = jax.random.key(3)
    two = two_steps.TwoSteps(graph, len(seeds), sampler, capacity)
    expected = sampler.sample(key, graph, (), seeds, capacity)
    return two(jax.random.key_data(key), seeds), expected


@pytest.mark.usefixtures("threads")
@cases(
    "fanouts, replace",
    ((15, 10, 5), False),
    ((-1,), False),
    ((4, -1, 2), False),
    ((4, 3), True),
    ids=str,
)
def test_two_steps_draw_the_sample_of_the_fused_kernel(graph, fanouts, replace, same_bits):
    some = np.random.default_rng(1).permutation(NUM_NODES)[:20]
    padded = some.copy()
    padded[[0, 7, 18, 19]] = NUM_NODES  # at the start, between seeds, and at the end
    without_edges = np.arange(NUM_NODES - 5, NUM_NODES)
    for seeds in (some, padded, without_edges, [0], np.full(3, NUM_NODES)):
        found, expected = drawn(graph, seeds, fanouts, replace=replace)
        assert not expected.overflow
        same_bits(found, expected)


def test_what_does_not_fit_says_what_it_needs(graph, same_bits):
    """Too few edges at the first hop or the second, or too few sources."""
    few_edges = Capacity((60, 400), (200, 300)), Capacity((200, 100), (200, 300))
    for capacity in (*few_edges, Capacity((200, 400), (60, 300))):
        found, expected = drawn(graph, np.arange(40), (4, 3), capacity)
        assert found.overflow
        assert expected.overflow
        same_bits(found.needed, expected.needed)
