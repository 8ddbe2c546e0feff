"""A memory-mapped graph may have been damaged since it was checked: the kernels say so."""

import jax
import numpy as np
import pytest

from jgs import Graph, kernels
from jgs.graph import as_device
from jgs.sampling import Capacity, Frontier, Labor, Neighbors, Node2Vec, Seeds, Walk

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
KEY, N = jax.random.key(3), 500
SAMPLERS = [
    *(Neighbors(k, relabel_inputs=yes) for k in ((-1,), (1, 2)) for yes in (True, False)),
    *(Frontier(100, 400), Walk(9), Node2Vec(9, 0.1, 0.5)),
]


def damaged(graph):
    """With rows that end before they begin or beyond the edges, and sources out of range."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    for inner in (indptr[-2:0:-1], 7000, -9, 2**40):
        wrong = indptr.copy()
        wrong[1:-1] = inner
        yield wrong, indices
    yield from ((indptr, indices + N - 2), (indptr, indices - N + 1))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_a_damaged_graph_is_refused(sampler, make_graph):
    graph = make_graph(N, 6000).sorted().unweighted()
    state, seeds = sampler.init(graph), np.arange(N, dtype=np.int32)
    room = () if isinstance(sampler, Walk | Node2Vec) else (None,)
    draw = jax.jit(lambda graph: sampler.sample(KEY, graph, state, seeds, *room))
    for arrays in damaged(graph):
        wrong = Graph._unchecked(*map(as_device, arrays))
        with pytest.raises(RUNTIME_ERRORS, match=r"damaged|arrays must be valid"):
            jax.block_until_ready(draw(wrong))


def test_a_damaged_edge_that_is_excluded_is_found():
    """LABOR's importances are computed of whole rows, holes too."""
    indices = np.zeros(64, np.int32)
    indices[10] = -(2**31)
    wrong = Graph._unchecked(as_device(np.array([0, 64, 64, 64])), as_device(indices))
    seeds = Seeds([0], excluded=[10, 64])
    with pytest.raises(RUNTIME_ERRORS, match="must be valid"):
        Labor((4,), importance=1).sample(KEY, wrong, (), seeds, Capacity((64,), (3,)))
