"""Matrix programs: the laws of their draws, what is computed once, arrays of their own."""

import dataclasses
import functools
from decimal import Decimal, localcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows_law import assert_as_often, assert_included, assert_mean, inclusion

from jgs import Graph, InputError, kernels
from jgs.graph.foreign import drawn_edges
from jgs.ops import aggregate
from jgs.sampling import (
    ASGCN,
    Capacity,
    FastGCN,
    Ladies,
    Neighbors,
    plan_capacity,
    worst_case,
)
from jgs.sampling.edges.random import LOGARITHMS, exponential
from jgs.sampling.matrix import Matrix, MatrixSampler, choose_layout

SEEDS = np.arange(0, 40, 2, dtype=np.int32)


def _mean_over_neighbours(graph, x):
    (src, dst), total = graph.edge_index(), np.zeros((graph.num_nodes, x.shape[1]))
    np.add.at(total, dst, x[src])
    return (total / np.maximum(graph.degrees(), 1)[:, None])[SEEDS]


def _estimates(graph, sampler, x, draws):
    """`[draws, B, F]`: the first layer's means of the drawn neighbours."""
    capacity = plan_capacity(graph, SEEDS.size, sampler, seeds=SEEDS, margin=0.5)
    state = sampler.init(graph)

    @jax.jit
    def every(keys, graph, state):
        def one(key):
            batch = sampler.sample(key, graph, state, SEEDS, capacity)
            own = jnp.take(x, batch.nodes, axis=0, mode="fill", fill_value=0)
            return batch.of_seeds(aggregate(batch.blocks[0], own, "mean"))

        return jax.lax.map(one, keys)

    found = np.asarray(every(jax.random.split(jax.random.key(8), draws), graph, state))
    whole = ~np.isnan(found).any((1, 2))  # a batch that overflowed gives no estimate
    assert whole.mean() > 0.98
    return found[whole]


def test_estimates_are_unbiased_and_ladies_varies_less(make_graph):
    graph = make_graph(200, 3000)
    x = np.random.default_rng(0).standard_normal((200, 3)).astype(np.float32)
    x[:, 2] = 1
    exact = _mean_over_neighbours(graph, x)
    variance = {}
    for sampler in (FastGCN((60,)), Ladies((60,), normalize=False), Ladies((60,))):
        found = _estimates(graph, sampler, x, 1500)
        if getattr(sampler, "normalize", False):  # a weighted mean keeps a constant
            ones = found[:, :, 2]
            assert (np.isclose(ones, 1, atol=1e-5) | (ones == 0)).all()
            assert (ones[:, np.asarray(graph.degrees())[SEEDS] == 0] == 0).all()
        else:
            assert_mean(found, exact)
        variance[sampler] = found[:, :, :2].var(0).mean()
    of_fastgcn, of_ladies, normalized = variance.values()
    assert of_ladies < of_fastgcn
    assert normalized < of_fastgcn


@dataclasses.dataclass(frozen=True)
class ByEdges(MatrixSampler):
    """Draws rows of the whole graph by the default, their numbers of edges."""

    def layer(self, A, frontier, k):
        return A.collective_sample(k)[:, frontier]


def test_what_depends_on_the_graph_alone_is_computed_once(make_graph, same_bits):
    graph = make_graph(100, 900)
    assert jax.tree.leaves(Ladies((9,)).init(graph))[0].shape == (100,)
    for sampler in (FastGCN((30, 20)), Ladies((9, 8)), ByEdges((30, 20))):
        state = sampler.init(graph)
        shapes = {a.shape for a in jax.tree.leaves(state)}
        assert shapes <= {(100,), ()}  # arrays of nodes are kept, arrays of edges are not
        assert all(a is b for a, b in zip(state[0], state[1], strict=False))
        key, capacity = jax.random.key(1), plan_capacity(graph, SEEDS.size, sampler, margin=0.5)
        draw = jax.jit(sampler.sample, static_argnums=4)
        same_bits(*(draw(key, graph, of, SEEDS, capacity) for of in (state, ())))
        # the work for each batch reads only the edges of the frontier
        programs = [draw.lower(key, graph, of, SEEDS, capacity) for of in (state, ())]
        assert len(programs[0].as_text()) < len(programs[1].as_text())


def test_the_layout_changes_no_sample(make_graph, same_bits, caplog):
    graph = make_graph(150, 1200)
    key, sampler = jax.random.key(6), Ladies((20, 10), edge_ids=True)
    capacity = plan_capacity(graph, SEEDS.size, sampler, margin=0.5)
    drawn = [
        jax.jit(one.sample, static_argnums=4)(key, graph, one.init(graph), SEEDS, capacity)
        for one in (sampler, dataclasses.replace(sampler, compact=True))
    ]
    same_bits(*drawn)
    with caplog.at_level("INFO", "jgs"):
        chosen = [choose_layout(graph, SEEDS.size, sampler) for _ in range(2)]
    assert chosen[0] == chosen[1]
    assert dataclasses.replace(chosen[0], compact=False) == sampler
    assert caplog.text.count("layout of Ladies") == 1  # the choice is made once and kept


@dataclasses.dataclass(frozen=True)
class ByScore(MatrixSampler):
    """Draws neighbours in proportion to a score of each node."""

    def arrays(self, graph):
        return {"score": np.ones(graph.num_nodes)}

    def layer(self, A, frontier, k, state):
        sub = A[:, frontier]
        score = state["score"].at[sub.row()].get(mode="fill", fill_value=0)
        assert score.dtype == jnp.float32
        return sub.individual_sample(k, sub.mul(score, axis=1))


def star(copies):
    """`copies` targets, from 4 on, whose neighbours are the nodes 0 to 3."""
    targets = 4 + np.arange(copies, dtype=np.int32)
    graph = Graph.from_edges(np.tile(np.arange(4), copies), np.repeat(targets, 4), 4 + copies)
    return graph, targets


def drawn_of_four(batch):
    """How often each of the nodes 0 to 3 was drawn by a batch of one layer."""
    return np.bincount(drawn_edges(batch).src, minlength=4)


def test_a_samplers_arrays_are_its_state():
    """Two equal samplers share a compiled program, and each draws with the arrays it is given:
    those of `init`, new ones, and new ones as 64-bit NumPy arrays."""
    graph, targets = star(6000)
    traces = []

    @functools.partial(jax.jit, static_argnums=0)
    def draw(sampler, key, graph, state):
        traces.append(sampler)
        return sampler.sample(key, graph, state, targets, None)

    first, second = ByScore((1,)), ByScore((1,))
    for sampler, score in ((first, [1] * 4), (second, [1, 2, 3, 0]), (first, [0, 5, 1, 1])):
        new = np.zeros(graph.num_nodes, np.float32)
        new[:4] = score
        state = first.init(graph) if score == [1] * 4 else {"score": new}
        times = drawn_of_four(draw(sampler, jax.random.key(0), graph, state))
        assert times.sum() == targets.size
        assert_as_often(times, score)
    assert len(traces) == 1
    wide = {"score": new.astype(np.float64)}
    again = first.sample(jax.random.key(0), graph, wide, targets, None)
    np.testing.assert_array_equal(drawn_of_four(again), times)


def test_arrays_elsewhere_are_refused():
    graph, targets = star(3)
    with pytest.raises(InputError, match=r"ByScore must be given its arrays.*\(\)"):
        ByScore((1,)).sample(jax.random.key(0), graph, (), targets, None)
    sampler = ByEdges((1,))
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.first = jnp.ones(3)
    object.__setattr__(sampler, "first", jnp.ones(3))
    with pytest.raises(InputError, match=r"not be arrays.*first.*arrays\(graph\)"):
        sampler.sample(jax.random.key(0), graph, (), targets, None)


@dataclasses.dataclass(frozen=True)
class Repeated(MatrixSampler):
    """Draws with replacement: by the kernel of `Neighbors`, or from edges built before."""

    fused: bool = False

    def layer(self, A, frontier, k):
        sub = A[:, frontier]
        return (sub if self.fused else sub.built()).individual_sample(k, replace=True)


class Said(Repeated):
    repeats = True


@pytest.mark.parametrize("fused", [False, True])
def test_draws_with_replacement_fit_the_bound(fused):
    """Every node has one in-edge, which is drawn as often as the bound allows."""
    ring = np.arange(6)
    graph = Graph.from_edges(ring, (ring + 1) % 6, 6)
    seeds = np.array([1, 2, 1, 6], np.int32)  # a repeated seed, and padding
    with pytest.raises(InputError, match="repeats = True"):
        Repeated((4, 3), fused=fused).sample(jax.random.key(0), graph, (), seeds, None)
    sampler = Said((4, 3), fused=fused)
    capacity = worst_case(graph, seeds.size, sampler)
    draw = jax.jit(sampler.sample, static_argnums=4)
    batch = draw(jax.random.key(0), graph, (), seeds, capacity)
    assert not batch.overflow
    assert [int(block.num_edges) for block in batch.blocks] == [4 * 3, 3 * 4]


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


# In-degrees of the nodes 0 to 7: 12, 1, 2, 3, 1, 0, 2, 1. Node 12 has the most out-edges, 3.
SOURCES = [range(1, 13), [13], [12, 14], [10, 11, 12], [1], [], [14, 15], [2]]
GRAPH = Graph.from_edges(
    np.concatenate(SOURCES).astype(int),
    np.repeat(np.arange(8), list(map(len, SOURCES))),
    16,
    np.linspace(0.5, 1.5, 22, dtype=np.float32),
)
FRONTIER = np.array([5, 0, 3, 16, 1, 2, 4], np.int32)  # not 6 and 7; 16 is padding
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
        batch = sampler.sample(key, graph, state, FRONTIER, None)
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


def test_the_unit_of_the_weights_changes_no_draw(same_bits):
    """Their squares would be 0, or infinite."""
    draw = jax.jit(MatrixSampler.sample, static_argnums=0)
    for sampler in (Ladies((4,), True, False, edge_ids=True), FastGCN((6,), True)):
        found = []
        for unit in (1, 2.0**-90, 2.0**90):
            graph = Graph(GRAPH.indptr, GRAPH.indices, np.asarray(GRAPH.edge_weight) * unit)
            batch = draw(sampler, jax.random.key(0), graph, sampler.init(graph), FRONTIER)
            (block,) = batch.blocks
            assert block.num_edges > 0
            found.append((batch.nodes, block.indptr, block.indices, block.edge_weight / unit))
        same_bits(found[1], found[0])
        same_bits(found[2], found[0])


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


def test_a_target_of_which_only_edges_without_weight_are_drawn():
    ends, weight = ([2, 3, 4, 2, 3, 4, 5], [0, 0, 0, 1, 1, 1, 1]), [0, 1, 1, 1, 1, 1, 1]
    graph, alone = Graph.from_edges(*ends, 6, np.array(weight, np.float32)), 0
    sampler = Ladies((2,), weighted=True)
    draw, state = jax.jit(sampler.sample), sampler.init(graph)
    for seed in range(60):
        (block,) = draw(jax.random.key(seed), graph, state, np.arange(2)).blocks
        sums = np.add.reduceat(np.append(block.edge_weight, 0), np.asarray(block.indptr)[:2])
        own = np.diff(block.indptr) > 0
        alone += (zeros := own & (sums == 0)).sum()
        np.testing.assert_allclose(sums[own & ~zeros], np.diff(block.indptr)[own & ~zeros])
    assert alone


@dataclasses.dataclass(frozen=True)
class GraphSAGE(MatrixSampler):
    def layer(self, A, frontier, k):
        return A[:, frontier].individual_sample(k)


def test_a_program_that_samples_neighbours_is_one_kernel(make_graph):
    """`matrix/test_select.py` compares its draws with those from edges that are built."""
    graph, key = make_graph(150, 1200), jax.random.key(2)
    seeds = np.r_[SEEDS, graph.num_nodes, SEEDS[:2]].astype(np.int32)
    program = GraphSAGE((3, 2), edge_ids=True)
    capacity = plan_capacity(graph, seeds.size, program, margin=0.5, distinct=False)
    of_neighbors = Capacity(capacity.edges[1::2], capacity.sources[1::2])
    draw = jax.jit(program.sample, static_argnums=4)
    batch = draw(key, graph, (), seeds, capacity)
    whole = Neighbors((3, 2), edge_ids=True).sample(key, graph, (), seeds, of_neighbors)
    np.testing.assert_array_equal(batch.needed[:, 1::2], whole.needed)
    np.testing.assert_array_equal(batch.nodes, whole.nodes)
    jax.tree.map(np.testing.assert_array_equal, drawn_edges(batch), drawn_edges(whole))
    for mine, block in zip(batch.blocks, whole.blocks, strict=True):
        count = int(mine.num_edges)
        np.testing.assert_array_equal(mine.edge_id[:count], block.edge_id[:count])
    text = draw.lower(key, graph, (), seeds, capacity).as_text()
    if kernels.available():
        assert text.count("custom_call @jgs_") == text.count("@jgs_sample_uniform") == 1


@dataclasses.dataclass(frozen=True)
class OfItsOwn(MatrixSampler):
    own: int = 7

    def layer(self, A, frontier, k):
        part, key = A[:, frontier], jax.random.key(self.own)
        return part.individual_sample(k, key=key)


@dataclasses.dataclass(frozen=True)
class MadeAnew(OfItsOwn):
    def layer(self, A, frontier, k):
        of = dataclasses.replace(A, key=jax.random.key_data(jax.random.key(self.own)))
        return of[:, frontier].individual_sample(k)


@pytest.mark.parametrize("made", [OfItsOwn, MadeAnew])
def test_a_program_with_a_key_of_its_own_draws_by_it(make_graph, made):
    graph, own = make_graph(150, 1200), jax.random.key(7)
    wanted = GraphSAGE((3, 2), edge_ids=True).sample(own, graph, (), SEEDS)
    for key in map(jax.random.key, range(2)):
        batch = made((3, 2), edge_ids=True).sample(key, graph, (), SEEDS)
        assert drawn_edges(batch)[0][0].size
        jax.tree.map(np.testing.assert_array_equal, drawn_edges(batch), drawn_edges(wanted))


def test_a_slice_of_rows_has_no_draws_of_rows_without_edges():
    """Node 11 and the padding have none. Nothing is built before the draw."""

    def draw(key):
        part = Matrix(HUB, key=key)[ROWS, :]
        return drawn(part.collective_sample(2, np.ones(ROWS.size)).row(), 12)

    assert_included(draw, inclusion(SELECTIONS["rows"][1] > 0, 2))
