"""Rows drawn jointly are drawn as often as their law says: z-tests with fixed keys."""

from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows_law import assert_included, inclusion

from jgs import Graph
from jgs.sampling import ASGCN, FastGCN, Ladies
from jgs.sampling.edges.random import LOGARITHMS, exponential
from jgs.sampling.matrix import Matrix

# Nodes 0 to 10, and 11 without edges. Node 0 has 9 of the 18 out-edges, the next nine have one.
HUB = Graph.from_edges(np.r_[[0] * 9, 1:10], np.r_[0:9, [10] * 9], 12)
VALUES = jnp.linspace(0, 5, 18)
COLUMNS = np.array([3, 12, 4, 10, 3, 12], np.int32)  # 12 is padding, and 3 comes twice
ROWS = np.array([12, 0, 11, 5, 7, 8, 12], np.int32)


def drawn(rows, num_nodes):
    """bool `[num_nodes]`: whether each node is among `rows`."""
    return jnp.zeros(num_nodes, bool).at[rows].set(True, mode="drop")


SELECTIONS = {
    "whole graph": (lambda A: A, np.r_[9, np.ones(9), 0, 0]),
    "columns": (lambda A: A[:, COLUMNS], np.r_[3, np.ones(9), 0, 0]),
    "built columns": (lambda A: A[:, COLUMNS].built(), np.r_[3, np.ones(9), 0, 0]),
    "rows": (lambda A: A[ROWS, :], np.r_[9, np.zeros(4), 1, 0, 1, 1, 0, 0, 0]),
    "rows of columns": (lambda A: A[ROWS, COLUMNS], np.r_[3, np.zeros(4), 1, 0, 1, 1, 0, 0, 0]),
    "a selection": (lambda A: A[:, COLUMNS].individual_sample(-1), np.r_[3, np.ones(9), 0, 0]),
}


@pytest.mark.parametrize(("k", "compact"), [(1, True), (3, False)])
@pytest.mark.parametrize("name", SELECTIONS)
def test_by_default_rows_are_drawn_by_their_number_of_edges(name, k, compact):
    """gSampler's default, a bias of 1 an edge (section 3.1). Values change nothing."""
    part, edges = SELECTIONS[name]

    def draw(key):
        A = Matrix(HUB, VALUES, key, compact=compact)
        return drawn(part(A).collective_sample(k).row(), 12)

    assert_included(draw, inclusion(edges, k))


def test_a_slice_of_rows_has_no_draws_of_rows_without_edges():
    """Node 11 and the padding have none. Nothing is built before the draw."""

    def draw(key):
        part = Matrix(HUB, key=key)[ROWS, :]
        return drawn(part.collective_sample(2, np.ones(ROWS.size)).row(), 12)

    assert_included(draw, inclusion(SELECTIONS["rows"][1] > 0, 2))


# In-degrees of the nodes 0 to 7: 12, 1, 2, 3, 1, 0, 2, 1. Node 12 has the most out-edges, 3.
SOURCES = [range(1, 13), [13], [12, 14], [10, 11, 12], [1], [], [14, 15], [2]]
GRAPH = Graph.from_edges(
    np.concatenate(SOURCES).astype(int),
    np.repeat(np.arange(8), list(map(len, SOURCES))),
    16,
    np.linspace(0.5, 1.5, 22, dtype=np.float32),
)
SEEDS = np.array([5, 0, 3, 16, 1, 2, 4], np.int32)  # not 6 and 7; 16 is padding
FEATURES = np.stack([np.arange(16) % 3, np.arange(16) % 2], axis=1).astype(np.float32)


def by_degree(weighted):
    """float64 `[16, 8]`: `P[u, v]`, which is 1 / d_v, times the edge's weight."""
    P, at = np.zeros((16, 8)), 0
    for v, sources in enumerate(SOURCES):
        for u in sources:
            P[u, v] = (GRAPH.edge_weight[at] if weighted else 1) / len(sources)
            at += 1
    return P


def sources_of(sampler, graph, state):
    """A function of a key: bool `[16]`, the sources of the edges drawn into the seeds."""

    def draw(key):
        batch = sampler.sample(key, graph, state, SEEDS, None)
        block = batch.blocks[0]
        real = np.arange(block.edge_capacity) < block.num_edges
        return drawn(jnp.where(real, batch.nodes.at[block.indices].get(mode="clip"), 16), 16)

    return draw


@pytest.mark.parametrize("weighted", [False, True])
def test_ladies_draws_rows_by_their_squared_norms_in_the_frontier(weighted):
    """In proportion to the sum over v in the frontier of P[u, v]**2 (Algorithm 1)."""
    sampler = Ladies((4,), weighted=weighted)
    bias = (by_degree(weighted)[:, :6] ** 2).sum(axis=1)
    draw = sources_of(sampler, GRAPH, sampler.init(GRAPH))
    assert_included(draw, inclusion(bias, 4))


@pytest.mark.parametrize("weighted", [False, True])
def test_fastgcn_draws_rows_by_their_squared_norms(weighted):
    """By the sum over all v of P[u, v]**2 (equation 10). Rows without edges are not seen."""
    sampler, P = FastGCN((6,), weighted=weighted), by_degree(weighted)
    seen = (P[:, :6] > 0).any(axis=1)
    draw = sources_of(sampler, GRAPH, sampler.init(GRAPH))
    assert_included(draw, np.where(seen, inclusion((P**2).sum(axis=1), 6), 0))


def test_asgcn_draws_rows_by_their_norms_and_their_features():
    """By (1 + |W x[u]|) sqrt(sum of P[u, v]**2) (equation 10, and the authors' code)."""
    graph, weight = GRAPH.with_node_columns(features=FEATURES), np.float32([1.5, -4])
    sampler = ASGCN((4,))
    state = sampler.init(graph)._replace(weight=jnp.asarray(weight))
    size = 1 + np.abs(FEATURES @ weight)
    bias = size * np.sqrt((by_degree(False)[:, :6] ** 2).sum(axis=1))
    assert_included(sources_of(sampler, graph, state), inclusion(bias, 4))


def test_exponential_numbers_are_logarithms():
    """From bits of all sizes, the smallest and the largest among them."""
    rng = np.random.default_rng(0)
    shift = rng.integers(0, 64, 200_000, np.uint64)
    bits = rng.integers(0, 1 << 64, 200_000, np.uint64) >> shift
    bits = np.r_[bits, ~bits, np.uint64(0), ~np.uint64(0)]
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(exponential)(jnp.asarray(bits)))
    u = ((bits >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    left = ((~bits >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52  # 1 - u, exactly
    exact = np.where(u < 0.5, -np.log1p(-u), -np.log(left))
    np.testing.assert_allclose(found, exact, rtol=2.0**-22, atol=0)


def test_no_logarithm_of_the_table_depends_on_the_mathematical_library():
    """Each entry is the exact one, rounded, and none is near to a half."""
    with localcontext() as context:
        context.prec = 40
        for i in range(1, LOGARITHMS.size):
            t = Decimal(i) / 2048
            exact = -(1 - t).ln() / t * 2**30
            assert abs(exact - int(LOGARITHMS[i])) < Decimal(1) / 2 - Decimal(2) ** -20
