"""What selections draw: the fused kernel's sample, unbiased, by the stated probabilities."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rows_law import assert_mean

from jgs import Graph
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


def edges_of(part):
    """The ids of the edges of each column slot of a matrix, or target of a block, in order."""
    edges = getattr(part, "edges", part)
    indptr, ids = np.asarray(edges.indptr), np.asarray(edges.edge_id)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(indptr)]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_slice_never_built_draws_as_one_that_is(graph, replace, weighted):
    """Extract-select fusion changes no bit, and `sample_neighbors` draws the same edges."""

    @jax.jit
    def draw(key, graph):
        A = Matrix(graph, key=key)
        sub = A[:, COLUMNS]
        built = sub.built()
        fused, separate = (
            one.individual_sample(3, one if weighted else None, replace).built()
            for one in (sub, built)
        )
        options = {"replace": replace, "weighted": weighted, "return_edge_ids": True}
        batch = sample_neighbors(key, graph, COLUMNS, (3,), **options)
        return fused, separate, batch.blocks[0]

    for seed in range(5):
        fused, separate, block = draw(jax.random.key(seed), graph)
        assert edges_of(fused) == (whole := edges_of(block))
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
        sub, weights = A.with_values(x)[:, COLUMNS], A[:, COLUMNS]
        built, own = sub.built(), weights.values
        fused = weights.individual_sample(3, weights)
        nodes = jnp.arange(N, dtype=jnp.float32) ** 2 + 1
        drawn = [
            sub.individual_sample(3),
            sub.individual_sample(2, replace=True),
            built.individual_sample(3, own),
            built.individual_sample(2, own, replace=True),
            fused.with_values(gather(jnp.asarray(x)[:, None], fused.edges.edge_id)[:, 0]),
        ]
        sums = [m.with_values(m.values / m.edge_probs).sum(axis=0) for m in drawn]
        rows = [sub.collective_sample(4), sub.collective_sample(5, nodes[sub.row()])]
        sums += [m.div(m.row_probs, axis=1).sum(axis=0) for m in rows]
        whole = A.with_values(x).collective_sample(8, nodes)[:, COLUMNS]
        sums.append(whole.div(whole.row_probs, axis=1).sum(axis=0))
        return jnp.stack(sums)

    every = jax.jit(lambda keys: jax.lax.map(estimates, keys, batch_size=500))
    found = every(jax.random.split(KEY, 6000))
    exact = Matrix(graph).with_values(x)[:, COLUMNS].sum(axis=0)
    assert_mean(found, exact)
    assert np.std(found, axis=0)[:, 0].min() > 0  # the first column is sampled, not taken whole


def test_all_where_there_are_no_more_and_what_does_not_fit(graph):
    bad = np.ones(N, np.float32)
    bad[4] = np.nan

    @jax.jit
    def program(graph, keys):
        A = Matrix(graph, key=KEY)
        sub = A[:, COLUMNS]
        rows = sub.collective_sample(50)
        all_of_them = sub.individual_sample(-1).built(), sub.built()
        tight = Matrix(graph, key=KEY, room=Room(100, 3))[:, COLUMNS]
        short = [tight.individual_sample(3).built(), tight.collective_sample(8).built()]
        wrong = A.collective_sample(3, bad), sub.collective_sample(3, -jnp.ones(N))
        first, again = [], []
        for key in keys:
            first.append(sub.individual_sample(1, key=key).built())
            three = sub.individual_sample(3, key=key)
            again.append(three.individual_sample(1, key=key).built())
        rows = rows.row(), rows.row_probs, rows.num_edges, sub.num_edges
        short = [(part.overflow, part.needs.selected) for part in short]
        return rows, all_of_them, short, [part.overflow for part in wrong], first, again

    rows, all_of_them, short, wrong, first, again = program(graph, jax.random.split(KEY, 8))
    row, probs, drawn, there = map(np.asarray, rows)
    assert drawn == there
    np.testing.assert_array_equal(probs, 1)
    assert row.size == 50
    assert (np.diff(row[row < N]) > 0).all()
    assert edges_of(all_of_them[0]) == edges_of(all_of_them[1])
    assert all(overflow and selected > 3 for overflow, selected in short)
    assert all(wrong)
    # A second selection draws anew.
    assert [edges_of(one)[0] for one in first] != [edges_of(one)[0] for one in again]
