"""Walks from roots with times: their law by enumeration, and that none follows a later edge."""

import itertools
from collections import defaultdict
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from jgs import Graph, InputError, kernels
from jgs.sampling import Metapath, Node2Vec, Seeds, Walk

P_VALUE = 1e-4  # keys are fixed: a correct version always passes
KEY = jax.random.key(5)
LENGTH = 3
# (source, target, time, weight): triangles, both ways, a self-loop, parallel edges at one time
# and at several, ties of different sources, a negative time, an edge of weight 0.
EDGES = [
    *[(1, 0, 9, 1.0), (2, 0, 9, 2.0), (3, 0, 5, 0.5), (1, 0, 3, 4.0), (1, 0, 9, 1.0)],
    *[(0, 1, 6, 1.0), (2, 1, 6, 3.0), (2, 1, 2, 1.0), (3, 1, 1, 1.0), (0, 1, 8, 2.0)],
    *[(0, 2, 4, 1.0), (1, 2, 7, 2.0), (1, 2, 0, 1.0), (2, 2, 5, 0.5), (3, 2, 8, 0.0)],
    *[(0, 3, 4, 1.0), (1, 3, 0, 2.0), (2, 3, 4, 1.0), (4, 3, -2, 1.0), (0, 3, 2, 3.0)],
    *[(3, 4, 4, 1.0), (3, 4, 3, 5.0), (3, 4, 1, 1.0), (0, 4, 1, 0.25)],
]
N = 5
ROOTS = [(0, 10), (0, 9), (3, 5), (4, 5), (2, 6), (1, -1)]  # nodes and their cutoffs
COPIES = 4000


def graph_of(edges, num_nodes=N):
    src, dst, time, weight = map(np.array, zip(*edges, strict=True))
    return Graph.from_edges(src, dst, num_nodes, np.float32(weight), edge_time=time)


@pytest.fixture(scope="module")
def graph():
    return graph_of(EDGES)


def weight_of(walker, cutoff, time, weight):
    """What a step draws an edge in proportion to, before it looks at the node before."""
    half_life = getattr(walker, "half_life", None)
    return weight if walker.weighted else 2 ** ((time - cutoff) / half_life) if half_life else 1


def steps(walker, edges, place):
    """(probability, next place) of every step, a place being (before, here, cutoff, root's)."""
    before, here, cutoff, root = place
    if here == N:
        return [(1.0, place)]
    since = cutoff - walker.window if walker.window else -np.inf
    known = [e for e in edges if since <= e[2] < cutoff]
    ways = [(e, weight_of(walker, cutoff, *e[2:])) for e in known if e[1] == here]
    latest = getattr(walker, "latest", None)
    if latest:
        ways = sorted(ways, key=lambda way: way[0][2])[-latest:]
    if isinstance(walker, Node2Vec) and before is not None:
        near = {e[0] for e in known if e[1] == before}
        bias = {x: 1.0 if x in near else 1 / walker.q for x in range(N)} | {
            before: 1 / walker.p
        }
        ways = [(e, w * bias[e[0]]) for e, w in ways]
    total, found = sum(w for _, w in ways), []
    restart = getattr(walker, "restart", 0) if before is not None else 0
    if restart:
        found.append((restart, (here, root[0], root[1], root)))
    if total == 0:
        return [*found, (1 - restart, (here, N, cutoff, root))]
    return found + [
        (w / total * (1 - restart), (here, e[0], e[2] if walker.causal else cutoff, root))
        for e, w in ways
        if w > 0
    ]


def law(walker, edges, root):
    """The probability of the nodes of each walk from `root`, (node, cutoff), whose steps go
    along the lists of `edges` in turn."""
    states = {((root[0],), (None, *root, root)): 1.0}
    for t in range(walker.length):
        after = defaultdict(float)
        for (path, place), chance in states.items():
            for share, there in steps(walker, edges[t % len(edges)], place):
                after[(*path, there[1]), there] += chance * share
        states = after
    found = defaultdict(float)
    for (path, _), chance in states.items():
        found[path] += chance
    return found


SECOND = [
    (2, 0.5, False),
    (100, 0.25, False),
    (0.1, 3, False),
    (100, 0.25, True),
    (0.1, 2, True),
]
CASES = [
    Walk(LENGTH, causal=True),
    Walk(LENGTH, weighted=True, causal=True, restart=0.3),
    Walk(LENGTH, causal=True, window=4),
    Walk(LENGTH, causal=True, latest=2),
    Walk(LENGTH, causal=True, half_life=2),
    Walk(LENGTH, half_life=3, window=6),
    *[Node2Vec(LENGTH, *one, causal=True) for one in SECOND],
    *[Node2Vec(LENGTH, *one) for one in SECOND[1:4]],
    Node2Vec(LENGTH, 100, 0.25, weighted=True, causal=True, window=4),
    Node2Vec(LENGTH, 2, 0.5, window=5),
]


@pytest.mark.parametrize("walker", CASES, ids=repr)
def test_walks_have_the_law_of_their_enumeration(walker, graph):
    roots = np.tile(np.array(ROOTS), (COPIES, 1))
    seeds = Seeds(roots[:, 0].astype(np.int32), roots[:, 1])
    nodes = np.asarray(jax.jit(walker.sample)(KEY, graph, walker.init(graph), seeds).nodes)
    statistic = freedom = 0.0
    for i, root in enumerate(ROOTS):
        expected = law(walker, [EDGES], root)
        assert sum(expected.values()) == pytest.approx(1)
        paths, counts = np.unique(nodes[i :: len(ROOTS)], axis=0, return_counts=True)
        drawn = dict(zip(map(tuple, paths.tolist()), counts.tolist(), strict=True))
        assert drawn.keys() <= expected.keys(), drawn.keys() - expected.keys()
        rare = {path for path, chance in expected.items() if chance * COPIES < 5}
        kinds = [[path] for path in sorted(expected.keys() - rare)] + [sorted(rare)] * any(rare)
        some = np.array([COPIES * sum(expected[p] for p in kind) for kind in kinds])
        actual = np.array([sum(drawn.get(p, 0) for p in kind) for kind in kinds])
        if len(kinds) > 1:
            found = stats.chisquare(actual, some)
            wrong = f"{root}: {kinds}: expected {some}, actual {actual}"
            assert found.pvalue > P_VALUE, wrong
            statistic, freedom = statistic + found.statistic, freedom + len(kinds) - 1
    assert freedom >= 10
    assert stats.chi2.sf(statistic, freedom) > P_VALUE


def test_with_p_and_q_of_1_it_is_a_walk(graph):
    """No draw is refused, so even the bits are those of `Walk`."""
    nodes, cutoffs = np.array(ROOTS * 9).T
    for options in ({}, {"causal": True}, {"causal": True, "window": 4, "weighted": True}):
        mine = Node2Vec(LENGTH, **options)
        walks = mine.sample(KEY, graph, mine.init(graph), Seeds(nodes, cutoffs))
        same = Walk(LENGTH, **options).sample(KEY, graph, (), Seeds(nodes, cutoffs))
        np.testing.assert_array_equal(walks.nodes, same.nodes)


def test_many_edges_back_keep_no_walk_waiting():
    """All ways but one of 2,000 lead back, at times all over the row, whatever p is."""
    many = [(1, 0, 2 * i, 1.0) for i in range(1999)] + [(2, 0, 1001, 1.0), (0, 1, 4000, 1.0)]
    graph = graph_of(many, 3)
    for weighted in (False, True):
        walker = Node2Vec(2, p=1e6, q=1e-6, weighted=weighted)
        roots = Seeds(np.ones(50, np.int32), np.full(50, 4001))
        nodes, _ = walker.sample(KEY, graph, walker.init(graph), roots)
        np.testing.assert_array_equal(nodes, [[1, 0, 2]] * 50)


def assert_follows(edges, num_nodes, walker, cutoffs, nodes):
    """Fails for walks `nodes` `[B, L+1]` that cannot have followed `edges`, each before the
    cutoff of its step. Of the edges that lead to the next node the latest leaves the most to
    the steps after."""
    times = defaultdict(list)
    for source, target, time in edges:
        times[source, target].append(time)
    for cutoff, row in zip(cutoffs.tolist(), nodes.tolist(), strict=True):
        own = cutoff
        for t, (here, there) in enumerate(itertools.pairwise(row)):
            if there == num_nodes:
                break
            since = own - walker.window if walker.window else -np.inf
            known = [time for time in times[there, here] if since <= time < own]
            back = t > 0 and getattr(walker, "restart", 0) > 0 and there == row[0]
            assert known or back, (row, t, own, times[there, here])
            if walker.causal:
                own = cutoff if back else max(known)


ANY = [
    Walk(LENGTH, causal=True),
    Walk(LENGTH, weighted=True, causal=True, restart=0.2),
    Walk(LENGTH, half_life=2, window=9),
    Node2Vec(LENGTH, 2, 0.5, causal=True),
    Node2Vec(LENGTH, 0.1, 20, weighted=True, window=4),
    Node2Vec(LENGTH, 50, 0.5, causal=True),
    Metapath(("near", "far"), LENGTH, causal=True, window=20),
]
NUM_EDGES, NUM_ROOTS, NUM_HOLES = 30, 24, 5
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@st.composite
def events(draw, typed):
    """A random multigraph of 5 nodes, some born late, with ties, equal, negative and extreme
    times; ends of cutoffs, from before the first edge on; and edges to exclude."""
    span = draw(st.sampled_from([1, 3, 9, 60]))
    middle = draw(st.sampled_from([0, LEAST + 60, MOST - 61]))
    nodes = st.integers(0, N - 1)
    times = st.integers(middle - span, middle + span)
    src, dst = (np.array(draw(st.lists(nodes, min_size=30, max_size=30))) for _ in range(2))
    time = np.array(draw(st.lists(times, min_size=30, max_size=30)))
    born = np.array(draw(st.lists(times, min_size=N, max_size=N)))
    if draw(st.booleans()):
        born[:] = LEAST
    holes = draw(st.sets(st.integers(0, NUM_EDGES - 1), max_size=NUM_HOLES))
    holes = np.array(sorted(holes) + [NUM_EDGES] * (NUM_HOLES - len(holes)))
    options = {"edge_time": time, "node_time": born}
    if not typed:
        weight = np.arange(NUM_EDGES) % 4
        graph = Graph.from_edges(src, dst, N, np.float32(weight), **options)
    else:
        halves = {("n", "near", "n"): slice(0, 15), ("n", "far", "n"): slice(15, 30)}
        graph = Graph.from_relations(
            {"n": N},
            {name: (src[half], dst[half]) for name, half in halves.items()},
            edge_time={name: time[half] for name, half in halves.items()},
            node_time={"n": born},
        )
    return graph, (middle - span, min(middle + span + 1, MOST)), holes


@pytest.mark.parametrize("walker", ANY, ids=repr)
def test_no_walk_follows_an_edge_at_or_after_its_cutoff(walker, implemented, same_bits):
    """Nor one before a node is born, nor one that is excluded. Plain and kernel are equal."""
    kinds, programs = ([False, True] if kernels.available() else [False]), {}

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(events(walker.by_relation))
    def check(made):
        graph, ends, holes = made
        roots = np.arange(NUM_ROOTS, dtype=np.int32) % (N + 1)
        cutoff = np.random.default_rng(0).integers(*ends, NUM_ROOTS, endpoint=True)
        seeds = Seeds(roots, cutoff, holes if walker.takes_excluded else None)
        drawn = []
        for kind in kinds:
            implemented(kind)
            if kind not in programs:
                programs[kind] = jax.jit(lambda *args: walker.sample(*args))
            drawn.append(programs[kind](KEY, graph, walker.init(graph), seeds))
        for other in drawn[1:]:
            same_bits(other, drawn[0])
        left = ~np.isin(range(NUM_EDGES), holes) | (not walker.takes_excluded)
        source, time, indptr = map(np.asarray, (graph.indices, graph.edge_time, graph.indptr))
        target = np.repeat(np.arange(N), np.diff(indptr))
        born = np.asarray(graph.node_time)
        left &= time >= np.maximum(born[source], born[target])
        edges = zip(*(a[left].tolist() for a in (source, target, time)), strict=True)
        assert_follows(edges, N, walker, cutoff, np.asarray(drawn[0].nodes))

    check()


@pytest.mark.parametrize("causal", [False, True])
def test_excluded_edges_and_cutoffs_together(causal, graph):
    """Walks in the graph without the excluded edges are these, but for their bits: so their
    law is that of the edges that are left."""
    walker = Walk(LENGTH, causal=causal, half_life=3)
    for one in (walker, replace(walker, half_life=None)):
        dropped = np.array([0, 3, 7, 12, 13])
        order = np.asarray(graph.edge_order)
        left = [e for i, e in enumerate(EDGES) if i not in order[dropped]]
        roots = np.tile(np.array(ROOTS), (COPIES, 1))
        seeds = Seeds(roots[:, 0].astype(np.int32), roots[:, 1], dropped)
        nodes = np.asarray(one.sample(KEY, graph, one.init(graph), seeds).nodes)
        for i, root in enumerate(ROOTS):
            expected = law(one, [left], root)
            paths, counts = np.unique(nodes[i :: len(ROOTS)], axis=0, return_counts=True)
            chance = np.array([expected.get(tuple(path), 0) for path in paths.tolist()])
            assert (chance > 0).all()
            apart = (counts - COPIES * chance) / np.sqrt(COPIES * chance + 1)
            assert np.abs(apart).max() < 5


def test_steps_go_along_their_relations_by_time():
    """Each relation's edges of a node are sorted by time. The law is that of `Walk` on the
    graphs of the relations in turn."""
    counts = {"user": 3, "item": 2}
    bought = np.array([[0, 1, 1, 2, 0, 2], [0, 0, 1, 1, 1, 0], [1, 4, 2, 4, 6, 3]])
    seen = np.array([[1, 0, 2, 2], [0, 1, 0, 1], [5, 5, 0, 7]])
    names = [("user", "bought", "item"), ("user", "saw", "item")]
    graph = Graph.from_relations(
        counts,
        {name: tuple(ends[:2]) for name, ends in zip(names, (bought, seen), strict=True)},
        edge_time={name: ends[2] for name, ends in zip(names, (bought, seen), strict=True)},
        both_ways=True,
    )
    back = [(i + 3, u, t, 1.0) for u, i, t in seen.T.tolist()]
    there = [(u, i + 3, t, 1.0) for u, i, t in bought.T.tolist()]
    walker = Metapath(("bought", "rev_saw"), 3, causal=True, window=5)
    roots = [(3, 7), (4, 7), (3, 3), (0, 9)]
    tiled = np.tile(np.array(roots), (COPIES, 1))
    seeds = Seeds(tiled[:, 0].astype(np.int32), tiled[:, 1])
    nodes = np.asarray(walker.sample(KEY, graph, walker.init(graph), seeds).nodes)
    for i, root in enumerate(roots):
        expected = law(walker, (there, back), root)
        paths, counts = np.unique(nodes[i :: len(roots)], axis=0, return_counts=True)
        drawn = dict(zip(map(tuple, paths.tolist()), counts.tolist(), strict=True))
        assert drawn.keys() == expected.keys()
        chance = np.array([expected[path] for path in drawn]) * COPIES
        if len(drawn) > 1:
            assert stats.chisquare(list(drawn.values()), chance).pvalue > P_VALUE


def test_user_faults(graph):
    for walker in (Walk(3, causal=True), Node2Vec(3, causal=True), Node2Vec(3, window=2)):
        with pytest.raises(InputError, match="causal walks are counted from the cutoffs"):
            walker.sample(KEY, graph, walker.init(graph), [0])
    for wrong in ({"window": 0}, {"half_life": -1}, {"window": 1.5}):
        with pytest.raises(InputError, match=next(iter(wrong)).replace("_", "-")):
            Walk(3, **wrong)
    for two in ({"weighted": True, "latest": 2}, {"latest": 2, "half_life": 3}):
        with pytest.raises(InputError, match="or from the latest edges"):
            Walk(3, **two)
    plain = Graph.from_edges([0], [1], 2)
    with pytest.raises(InputError, match="a graph without edge_time"):
        Walk(3, half_life=2).init(plain)
    with pytest.raises(InputError, match="a graph without edge_time"):
        Walk(3, causal=True).sample(KEY, plain, (), Seeds([0], [3]))
    with pytest.raises(InputError, match=r"Call walker\.init"):
        Walk(3, half_life=2).sample(KEY, graph, (), Seeds([0], [3]))
    with pytest.raises(InputError, match="an index of its edges by source"):
        Node2Vec(3).sample(KEY, graph, np.True_, Seeds([0], [3]))
    empty = Graph.from_edges([], [], 3, edge_time=np.zeros(0, int))
    for walker in (Walk(2, causal=True), Walk(2, half_life=3), Node2Vec(2, causal=True)):
        nodes, _ = walker.sample(KEY, empty, walker.init(empty), Seeds([2, 3], [5, 5]))
        np.testing.assert_array_equal(nodes, [[2, 3, 3], [3, 3, 3]])


def test_a_walker_of_before_has_the_same_name():
    """Checkpoints know walkers by their `repr`."""
    assert (
        repr(Node2Vec(4, 2, weighted=True)) == "Node2Vec(length=4, p=2.0, q=1.0, weighted=True)"
    )
    assert "causal" not in repr(Metapath(("a",), 3)) + repr(Walk(3))
    assert "causal=True" in repr(Walk(3, causal=True))
