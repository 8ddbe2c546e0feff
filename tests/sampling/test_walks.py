"""`Walk`: the distribution of its steps, what a walk depends on, and where walks end."""

from functools import cache

import jax
import numpy as np
import pytest
from scipy import stats

import jgs
from jgs import InputError, kernels
from jgs.sampling import Metapath, Node2Vec, Walk

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
P_VALUE = 1e-4  # keys are fixed: a correct version always passes
KEY = jax.random.key(5)
# The in-neighbours of each node and their weights. The rows have a self-loop, an edge of weight
# 0, parallel edges, a dead end, a dead end by weight only, and an isolated node.
ROWS = [
    [(1, 1.0), (2, 2.0), (3, 0.0), (0, 0.5)],
    [(0, 1.0), (2, 1.0), (2, 3.0)],
    [(0, 1.0), (1, 1.0), (3, 1.0), (4, 2.0)],
    [(0, 1.0), (2, 2.0), (6, 1.0)],
    [(5, 1.0), (2, 4.0)],
    [],
    [(0, 0.0), (1, 0.0)],
    [],
]
N, COPIES, LENGTH = len(ROWS), 700, 12
ROOTS = np.tile(np.arange(N, dtype=np.int32), COPIES)


@pytest.fixture(scope="module")
def graph():
    src, dst, weight = zip(
        *[(u, v, w) for v, row in enumerate(ROWS) for u, w in row], strict=True
    )
    return jgs.Graph.from_edges(src, dst, N, np.float32(weight))


@cache
def program(walker):
    return jax.jit(walker.sample)


def walks(walker, graph, roots=ROOTS, key=KEY):
    """int `[B, L+1]` nodes and `[B]` lengths, which must agree."""
    nodes, lengths = map(np.asarray, program(walker)(key, graph, walker.init(graph), roots))
    taken = np.arange(walker.length + 1) <= lengths[:, None]
    assert ((nodes < N) == (taken & (np.asarray(roots) < N)[:, None])).all()
    return nodes, lengths


def probabilities(weighted):
    """`[N, N]`: the probability of each next node. A row of zeros is a dead end."""
    move = np.zeros((N, N))
    for v, row in enumerate(ROWS):
        for u, w in row:
            move[v, u] += w if weighted else 1
    return move / np.maximum(move.sum(1, keepdims=True), 1e-9)


def assert_fits(counts, expected, name=""):
    counts, expected = np.ravel(counts), np.ravel(expected)
    assert (counts[expected == 0] == 0).all(), name
    some = expected > 0
    if some.sum() == 1:
        assert (counts == expected).all(), name
        return
    p = stats.chisquare(counts[some], expected[some]).pvalue
    assert p > P_VALUE, f"{name}: p={p}, expected {expected[some]}, actual {counts[some]}"


@pytest.mark.parametrize("weighted", [False, True])
def test_every_step_follows_its_row(graph, weighted):
    nodes, lengths = walks(Walk(LENGTH, weighted), graph)
    move = probabilities(weighted)
    here, there = nodes[:, :-1], nodes[:, 1:]
    for v in range(N):
        after = there[here == v]
        counts = np.bincount(after, minlength=N + 1)
        ends = move[v].sum() == 0
        assert_fits(counts, after.size * np.r_[move[v], float(ends)], v)
    assert (lengths[ROOTS == 7] == 0).all()
    assert lengths.max() == LENGTH


def test_walks_that_meet_part_again(graph):
    """Pairs of walks at one node at one step: of one root, of two roots, of two keys."""
    walker, move = Walk(LENGTH), probabilities(False)
    nodes, _ = walks(walker, graph)
    of_root = nodes[ROOTS == 0]
    pairs = {
        "walks": (of_root[: COPIES // 2], of_root[COPIES // 2 :]),
        "roots": (nodes[ROOTS == 0], nodes[ROOTS == 1]),
        "keys": (nodes, walks(walker, graph, key=jax.random.key(6))[0]),
    }
    for name, (a, b) in pairs.items():
        for v in (0, 2):
            together = (a[:, :-1] == v) & (b[:, :-1] == v)
            after = np.stack([a[:, 1:][together], b[:, 1:][together]])
            counts = np.zeros((N, N))
            np.add.at(counts, tuple(after), 1)
            assert after.shape[1] > 200, name
            assert_fits(counts, after.shape[1] * np.outer(move[v], move[v]), (name, v))


def test_a_walk_that_comes_back_draws_anew(graph):
    nodes, _ = walks(Walk(LENGTH), graph)
    counts = np.zeros((N, N))
    for row in nodes:
        at = np.flatnonzero(row[:-1] == 2)
        if at.size > 1:
            counts[row[at[0] + 1], row[at[1] + 1]] += 1
    assert_fits(counts, counts.sum(1, keepdims=True) * probabilities(False)[2])


def test_repeated_roots_walk_on_their_own_and_order_changes_nothing(graph):
    roots = np.int32([2, 0, N, 2, 3, 2, 0])
    nodes, lengths = walks(Walk(LENGTH), graph, roots)
    for root in (2, 0):
        assert len({tuple(row) for row in nodes[roots == root]}) == (roots == root).sum()
    order = np.argsort(-roots, kind="stable")  # stable: equal roots keep their order
    moved, moved_lengths = walks(Walk(LENGTH), graph, roots[order])
    np.testing.assert_array_equal(moved, nodes[order])
    np.testing.assert_array_equal(moved_lengths, lengths[order])
    # A longer walk begins with the same steps.
    longer, _ = walks(Walk(LENGTH + 3), graph, roots)
    np.testing.assert_array_equal(longer[:, : LENGTH + 1], nodes)


def test_restart_and_stop(graph):
    """Rates of restart and stop, the probability of other steps, and restarts at dead ends."""
    walker, move = Walk(LENGTH, restart=0.3, stop=0.1), probabilities(False)
    nodes, _ = walks(walker, graph)
    for root, v in ((0, 2), (3, 1), (4, 5), (6, 0)):
        mine = nodes[root == ROOTS]
        after = mine[:, 2:][mine[:, 1:-1] == v]
        expected = 0.9 * 0.7 * np.r_[move[v], 1 - move[v].sum()]
        expected[root] += 0.9 * 0.3
        expected[N] += 0.1
        assert_fits(np.bincount(after, minlength=N + 1), after.size * expected, (root, v))
    at_once = nodes[ROOTS == 0, 1]  # no restart or stop before the first step
    assert_fits(np.bincount(at_once, minlength=N + 1)[:N], at_once.size * move[0])
    nodes, _ = walks(Walk(LENGTH, restart=1), graph, ROOTS[:80])
    assert (nodes[:, 2] == np.where(nodes[:, 1] < N, ROOTS[:80], N)).all()
    assert (walks(Walk(LENGTH, stop=1), graph)[1] <= 1).all()


def test_a_graph_without_edges():
    empty = jgs.Graph.from_edges([], [], 3, np.float32([]))
    for walker in (Walk(4), Walk(4, weighted=True, restart=0.5)):
        nodes, lengths = walker.sample(KEY, empty, (), [2, 3, 0])
        np.testing.assert_array_equal(nodes, [[r, 3, 3, 3, 3] for r in (2, 3, 0)])
        assert not lengths.any()


def test_user_faults(graph, monkeypatch):
    for wrong in ({"length": 0}, {"length": 2.5}, {"restart": 1.1}, {"stop": float("nan")}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Walk(**{"length": 4} | wrong)
    with pytest.raises(InputError, match="weighted sampling needs"):
        Walk(4, weighted=True).init(graph.unweighted())
    with pytest.raises(InputError, match="seeds must be node ids"):
        Walk(4).sample(KEY, graph, (), [1, N + 1])
    roots = np.int32([1, N + 1, -1, N])  # known only when the program runs
    if kernels.available():
        with pytest.raises(RUNTIME_ERRORS, match="got 9 at position 1"):
            program(Walk(LENGTH))(KEY, graph, (), roots)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_AVAILABLE", False)
        nodes, lengths = jax.jit(Walk(5).sample)(KEY, graph, (), roots)
        assert (nodes[1:] == N).all()
        assert lengths.tolist()[1:] == [-1, -1, 0]


@pytest.mark.skipif(not kernels.available(), reason="the compiled kernels are not installed")
def test_a_damaged_graph_is_refused(graph):
    indptr, arrays = np.array(graph.indptr), graph.edge_arrays()
    arrays["indices"] = np.array(graph.indices)
    damaged = []
    for where, value in ((3, 50), (2, -9)):
        wrong = indptr.copy()
        wrong[where] = value
        damaged.append(jgs.Graph.from_edge_arrays(wrong, arrays))
    arrays["indices"] = arrays["indices"] + N - 2
    damaged.append(jgs.Graph.from_edge_arrays(indptr, arrays))
    for one in damaged:
        for walker, state in ((Walk(LENGTH), ()), (Node2Vec(LENGTH, 0.1, 0.5), np.array(True))):
            with pytest.raises(RUNTIME_ERRORS, match="damaged"):
                program(walker)(KEY, one, state, ROOTS)


# Papers 0 to 2; authors 3 to 6, where 6 wrote nothing; subjects 7 and 8.
WRITES = [(3, 0, 1.0), (4, 0, 2.0), (4, 1, 1.0), (5, 1, 0.0), (5, 2, 3.0)]
IS_ABOUT = [(0, 7, 1.0), (1, 7, 4.0), (2, 8, 1.0), (1, 8, 0.5)]


def typed_graph():
    """Authors write papers, and papers are about subjects. Each relation has its reverse."""
    papers, authors, subjects = 3, 4, 2
    writes, about = np.array(WRITES), np.array(IS_ABOUT)
    edges = {
        ("author", "writes", "paper"): (writes[:, 0] - papers, writes[:, 1]),
        ("paper", "about", "subject"): (about[:, 0], about[:, 1] - papers - authors),
    }
    edges = {
        name: tuple(np.asarray(ends, int) for ends in both) for name, both in edges.items()
    }
    weight = dict(zip(edges, (np.float32(writes[:, 2]), np.float32(about[:, 2])), strict=True))
    counts = {"paper": papers, "author": authors, "subject": subjects}
    return jgs.Graph.from_relations(counts, edges, weight, both_ways=True)


PATH = ("writes", "rev_writes", "rev_about", "about")  # paper, author, paper, subject, paper


@pytest.mark.parametrize("weighted", [False, True])
def test_steps_go_along_their_relations(weighted):
    graph, walker = typed_graph(), Metapath(PATH, 9, weighted)
    size = graph.num_nodes
    roots = np.tile(np.arange(size + 1, dtype=np.int32), 600)
    nodes, lengths = map(
        np.asarray, jax.jit(walker.sample)(KEY, graph, walker.init(graph), roots)
    )
    assert not lengths[roots > 2].any()
    for t in range(9):
        edges = (WRITES, IS_ABOUT)[t % 4 > 1]
        move = np.zeros((size, size))
        for a, b, weight in edges:
            here, there = (b, a) if t % 4 in (0, 3) else (a, b)
            move[here, there] += weight if weighted else 1
        for v in range(size):
            after = nodes[:, t + 1][(nodes[:, t] == v) & (roots < 3)]
            if after.size == 0:
                continue
            share = np.r_[move[v] / max(move[v].sum(), 1e-9), float(move[v].sum() == 0)]
            assert_fits(np.bincount(after, minlength=size + 1), after.size * share, (t, v))
    assert lengths.max() == 9


def test_metapaths_must_fit_together():
    graph = typed_graph()
    assert Metapath(PATH).length == 4
    assert Metapath(["writes", ["paper", "rev_writes", "author"]], 7).init(graph).shape == (
        2,
        9,
        2,
    )
    for wrong in ("writes", (), None):
        with pytest.raises(InputError, match="relations must be names or triples"):
            Metapath(wrong)
    for relations, length in ((("writes", "about"), None), (("writes",), 2)):
        with pytest.raises(InputError, match="target type of the next"):
            Metapath(relations, length).init(graph)
    with pytest.raises(InputError, match="a relation must be one of"):
        Metapath(("cites",)).sample(KEY, graph, (), [0])
    with pytest.raises(InputError, match="Give what `init` returned"):
        Metapath(PATH).sample(KEY, graph, (), [0])
    with pytest.raises(InputError, match="need a typed graph"):
        Metapath(PATH).init(jgs.Graph.from_edges([0], [1], 2))
