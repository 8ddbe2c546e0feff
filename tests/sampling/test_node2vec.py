"""`Node2Vec` against its formula, by exact enumeration, and what it requires of a graph."""

import jax
import numpy as np
import pytest
from scipy import stats

import jgs
from jgs import InputError
from jgs.sampling import Node2Vec, Walk

P_VALUE = 1e-4  # keys are fixed: a correct version always passes
KEY = jax.random.key(5)
# The in-neighbours of each node and their weights. The rows have triangles, a self-loop,
# parallel edges, edges of weight 0, one-way edges, a leaf (5), a dead end (6), an isolated node
# (7).
ROWS = [
    [(1, 1.0), (2, 2.0), (3, 0.5), (4, 4.0)],
    [(0, 1.0), (2, 1.0), (2, 3.0), (3, 0.0), (5, 2.0)],
    [(0, 2.0), (1, 1.0), (2, 0.5), (3, 1.0)],
    [(0, 0.5), (2, 1.0), (4, 1.0), (6, 0.25)],
    [(0, 4.0), (1, 1.0), (3, 1.0)],
    [(1, 2.0)],
    [],
    [],
]
N, COPIES, LENGTH = len(ROWS), 2000, 9
ROOTS = np.tile(np.arange(N, dtype=np.int32), COPIES)


@pytest.fixture(scope="module")
def graph():
    src, dst, weight = zip(
        *[(u, v, w) for v, row in enumerate(ROWS) for u, w in row], strict=True
    )
    return jgs.Graph.from_edges(src, dst, N, np.float32(weight))


def drawn(walker, graph, roots):
    return walker.sample(KEY, graph, walker.init(graph), roots)


def after(t, v, walker):
    """The probability of each next node, and last of an end, for a walk from t to v."""
    chance = np.zeros(N + 1)
    near = {u for u, _ in ROWS[t]} if t < N else set()
    for x, weight in ROWS[v] if v < N else ():
        bias = 1 / walker.p if x == t else 1 if x in near or t == N else 1 / walker.q
        chance[x] += bias * (weight if walker.weighted else 1)
    chance[N] = chance.sum() == 0
    return chance / chance.sum()


@pytest.mark.parametrize(
    "walker",
    [
        Node2Vec(LENGTH, 2, 0.5),
        Node2Vec(LENGTH, 0.1, 2, weighted=True),
        Node2Vec(LENGTH, 100, 0.25, weighted=True),
        Node2Vec(LENGTH, 0.25, 4),
    ],
    ids=repr,
)
def test_steps_of_second_order_follow_the_formula(walker, graph):
    nodes, _ = jax.jit(walker.sample)(KEY, graph, walker.init(graph), ROOTS)
    nodes = np.asarray(nodes)
    before = np.concatenate([np.full((len(ROOTS), 1), N), nodes[:, :-2]], axis=1)
    counts = np.zeros((N + 1, N + 1, N + 1))
    np.add.at(counts, (before, nodes[:, :-1], nodes[:, 1:]), 1)
    statistic = freedom = 0.0
    for t, v in np.argwhere(counts.sum(2) > 0):
        expected = counts[t, v].sum() * after(t, v, walker)
        assert (counts[t, v][expected == 0] == 0).all(), (t, v)
        some = expected > 0
        if some.sum() > 1:
            found = stats.chisquare(counts[t, v][some], expected[some])
            wrong = f"{t} {v}: expected {expected}, actual {counts[t, v]}"
            assert found.pvalue > P_VALUE, wrong
            statistic, freedom = statistic + found.statistic, freedom + some.sum() - 1
    assert freedom > 40
    assert stats.chi2.sf(statistic, freedom) > P_VALUE


def test_with_p_and_q_of_1_it_is_a_walk(graph):
    """No draw is refused, so even the bits are those of `Walk`."""
    roots = ROOTS[:80]
    mine = drawn(Node2Vec(LENGTH, weighted=True), graph, roots)
    walk = Walk(LENGTH, weighted=True).sample(KEY, graph, (), roots)
    np.testing.assert_array_equal(mine.nodes, walk.nodes)
    np.testing.assert_array_equal(mine.lengths, walk.lengths)


def test_extreme_parameters_keep_no_walk_waiting():
    """A leaf's only way is back, whatever p; a path's ways are back and on, whatever q."""
    ends = np.array([0, 1, 1, 2, 2, 3])
    path = jgs.Graph.from_edges(ends, np.array([1, 0, 2, 1, 3, 2]), 4).sorted()
    onwards, _ = drawn(Node2Vec(6, p=1e6), path, [0])
    np.testing.assert_array_equal(onwards, [[0, 1, 2, 3, 2, 1, 0]])
    back, _ = drawn(Node2Vec(6, p=1e-6), path, [0, 3])
    np.testing.assert_array_equal(back, [[0, 1, 0, 1, 0, 1, 0], [3, 2, 3, 2, 3, 2, 3]])
    back, _ = drawn(Node2Vec(6, q=1e4), path, [0, 3])
    np.testing.assert_array_equal(back, [[0, 1, 0, 1, 0, 1, 0], [3, 2, 3, 2, 3, 2, 3]])


def test_user_faults(graph):
    for wrong in ({"p": 0}, {"q": float("inf")}, {"q": "1"}, {"p": True}, {"length": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Node2Vec(**{"length": 4} | wrong)
    unsorted = jgs.Graph([0, 2, 2, 5], [1, 1, 0, 2, 1])
    with pytest.raises(InputError, match=r"1 after 2 in the row of node 2\. Use graph.sorted"):
        Node2Vec(4).init(unsorted)
    with pytest.raises(InputError, match="Give what `init` returned"):
        Node2Vec(4).sample(KEY, unsorted, (), [0])
    Node2Vec(4).init(unsorted.sorted())
    with pytest.raises(InputError, match="weighted sampling needs"):
        Node2Vec(4, weighted=True).init(unsorted.sorted())
