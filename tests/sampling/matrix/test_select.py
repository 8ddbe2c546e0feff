"""What selections draw: the fused kernel's sample, unbiased, by the stated probabilities."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jgs import Graph, InputError
from jgs.ops import gather
from jgs.sampling import sample_neighbors
from jgs.sampling.matrix import Matrix, Room

N = 30
KEY = jax.random.key(11)
COLUMNS = np.array([0, 1, 2, N, 3, 4], np.int32)  # degrees 12, 5, 3, none, 1, 0


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(3)
    dst = np.repeat(np.arange(4), [12, 5, 3, 1])
    src = np.concatenate([rng.permutation(N)[:d] for d in (12, 5, 3, 1)])
    weight = rng.random(src.size).astype(np.float32) + 0.05
    weight[1] = 0
    return Graph.from_edges(src, dst, N, weight)


def edges_of(matrix):
    """The ids of the edges of each column slot, in order."""
    edges = matrix.built().edges
    indptr, ids = np.asarray(edges.indptr), np.asarray(edges.edge_id)
    return [ids[indptr[c] : indptr[c + 1]].tolist() for c in range(indptr.size - 1)]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_slice_never_built_draws_as_one_that_is(graph, replace, weighted):
    """Extract-select fusion changes no bit, and `sample_neighbors` draws the same edges."""

    @jax.jit
    def draw(key, graph):
        A = Matrix(graph, key=key)
        sub = A[:, COLUMNS]
        fused = sub.individual_sample(3, sub if weighted else None, replace)
        built = sub.built()
        separate = built.individual_sample(3, built if weighted else None, replace)
        batch = sample_neighbors(
            key, graph, COLUMNS, (3,), None, replace, weighted, return_edge_ids=True
        )
        return fused, separate, batch.blocks[0]

    for seed in range(5):
        fused, separate, block = draw(jax.random.key(seed), graph)
        indptr, ids = np.asarray(block.indptr), np.asarray(block.edge_id)
        whole = [ids[indptr[t] : indptr[t + 1]].tolist() for t in range(COLUMNS.size)]
        assert edges_of(fused) == whole
        assert [len(e) for e in edges_of(separate)] == [len(e) for e in whole]
        if not weighted:  # weighted draws round differently
            assert edges_of(separate) == whole
        for one in (fused, separate):
            sampled = np.asarray(one.row())
            nodes = np.asarray(graph.indices)[sorted(itertools.chain(*edges_of(one)))]
            assert sorted(sampled[sampled < N]) == sorted(set(nodes.tolist()))


def test_selections_are_unbiased_by_their_probabilities(graph):
    """Sums over the columns' edges, divided by `edge_probs` and `row_probs`, on average."""
    x = np.random.default_rng(5).standard_normal(graph.num_edges).astype(np.float32)
    # positive for every edge that may be drawn; an edge of weight 0 never is
    x[np.asarray(graph.edge_weight) == 0] = 0

    def estimates(key):
        A = Matrix(graph, key=key)
        sub = A.with_values(x)[:, COLUMNS]
        bias = A[:, COLUMNS]
        built = sub.built()
        own = bias.values
        nodes = jnp.arange(N, dtype=jnp.float32) ** 2 + 1
        drawn = [
            sub.individual_sample(3),
            sub.individual_sample(2, replace=True),
            built.individual_sample(3, own),
            built.individual_sample(2, own, replace=True),
            _fused_weighted(A, x),
        ]
        sums = [m.with_values(m.values / m.edge_probs).sum(axis=0) for m in drawn]
        rows = [sub.collective_sample(4), sub.collective_sample(5, nodes[sub.row()])]
        sums += [m.div(m.row_probs, axis=1).sum(axis=0) for m in rows]
        whole = A.with_values(x).collective_sample(8, nodes)[:, COLUMNS]
        sums.append(whole.div(whole.row_probs, axis=1).sum(axis=0))
        return jnp.stack(sums)

    draws = 6000
    found = jax.jit(lambda keys: jax.lax.map(estimates, keys, batch_size=500))(
        jax.random.split(KEY, draws)
    )
    exact = Matrix(graph).with_values(x)[:, COLUMNS].sum(axis=0)
    error = np.std(found, axis=0) / np.sqrt(draws)
    z = np.abs(np.mean(found, axis=0) - exact) / np.maximum(error, 1e-6)
    assert (z < 4.5).all(), z
    assert np.std(found, axis=0)[:, 0].min() > 0  # the first column is sampled, not taken whole


def _fused_weighted(A, x):
    sub = A[:, COLUMNS]
    drawn = sub.individual_sample(3, sub)
    return drawn.with_values(gather(jnp.asarray(x)[:, None], drawn.edges.edge_id)[:, 0])


def test_rows_are_drawn_successively(graph):
    """All subsets of two rows appear as often as two draws in proportion to `node_probs`."""
    weight = np.array([1.0, 2.0, 3.0, 4.0, 0.0], np.float32)
    A = Matrix(Graph.from_edges([0, 1, 2, 3, 4], [0] * 5, 5), key=KEY)
    draw = jax.jit(jax.vmap(lambda key: A.collective_sample(2, weight, key=key).row()))
    rows = np.asarray(draw(jax.random.split(KEY, 40000)))
    expected = {}
    for a in range(4):
        for b in range(a + 1, 4):
            one, other = float(weight[a]), float(weight[b])
            expected[a, b] = one * other / 10 * (1 / (10 - one) + 1 / (10 - other))
    seen = {pair: 0 for pair in expected}
    for pair in map(tuple, rows.tolist()):
        seen[pair] += 1
    counts, want = (np.array([d[p] for p in expected]) for d in (seen, expected))
    _, p = scipy.stats.chisquare(counts, want / want.sum() * counts.sum())
    assert p > 1e-4, (counts, want * len(rows))


def test_all_where_there_are_no_more_and_what_is_refused(graph):
    A = Matrix(graph, key=KEY)
    sub = A[:, COLUMNS]
    everything = sub.collective_sample(50)
    assert int(everything.num_edges) == int(sub.num_edges)
    np.testing.assert_array_equal(everything.row_probs, 1)
    rows = np.asarray(everything.row())
    assert rows.size == 50
    assert (np.diff(rows[rows < N]) > 0).all()
    all_of_them = sub.individual_sample(-1)
    assert edges_of(all_of_them) == edges_of(sub)
    tight = Matrix(graph, key=KEY, room=Room(100, 3))
    for part in (
        tight[:, COLUMNS].individual_sample(3),
        tight[:, COLUMNS].collective_sample(8),
    ):
        assert part.built().overflow
        assert int(part.built().needs.selected) > 3
    firsts = [
        edges_of(A[:, COLUMNS].individual_sample(3, key=k).individual_sample(1, key=k))[0]
        == edges_of(A[:, COLUMNS].individual_sample(1, key=k))[0]
        for k in jax.random.split(KEY, 8)
    ]
    assert not all(firsts)  # a second selection draws anew
    for mistake in (
        lambda: Matrix(graph)[:, COLUMNS].individual_sample(3),
        lambda: sub.individual_sample(0),
        lambda: sub.individual_sample(3, np.ones(3)),
        lambda: sub.collective_sample(-1),
        lambda: sub.collective_sample(3, np.ones(N + 1)),
    ):
        with pytest.raises(InputError):
            mistake()
    bad = np.ones(N, np.float32)
    bad[4] = np.nan
    assert A.collective_sample(3, bad).overflow
    assert sub.collective_sample(3, -jnp.ones(N)).overflow
