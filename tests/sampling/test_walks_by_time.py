"""Walks from roots with times: their law by enumeration, and plain JAX beside kernels."""

import dataclasses
import itertools
from collections import defaultdict

import jax
import numpy as np
import programs
import pytest
from cases import rarely
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_law import assert_all_as_often, assert_as_often

from jgs import Graph, kernels
from jgs.sampling import Metapath, Node2Vec, Seeds, Walk

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


@pytest.fixture(scope="module")
def graph():
    return graph_of(EDGES, N)


SECOND = [(2, 0.5), (100, 0.25), (0.1, 3), (100, 0.25, True), (0.1, 2, True)]
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
    assert_law(walker, graph, [EDGES], ROOTS)


def test_many_edges_back_keep_no_walk_waiting():
    """All ways but one of 2,000 lead back, at times all over the row, whatever p is."""
    many = [(1, 0, 2 * i, 1.0) for i in range(1999)] + [(2, 0, 1001, 1.0), (0, 1, 4000, 1.0)]
    graph = graph_of(many, 3)
    for weighted in (False, True):
        walker = Node2Vec(2, p=1e6, q=1e-6, weighted=weighted)
        roots = Seeds(np.ones(50, np.int32), np.full(50, 4001))
        nodes, _ = walker.sample(KEY, graph, walker.init(graph), roots)
        np.testing.assert_array_equal(nodes, [[1, 0, 2]] * 50)


SPLIT = [  # in a graph of two relations
    *(Walk(LENGTH, restart=0.3), Walk(LENGTH, causal=True)),
    Walk(LENGTH, weighted=True, causal=True, restart=0.2, window=6),
]


@pytest.mark.parametrize("walker", SPLIT, ids=repr)
def test_steps_draw_among_all_relations_together(walker, same_bits):
    """Their law is that of the edges without relations. Where the rows of both graphs have the
    same order, so that the relations are early and late edges, the walks are the same ones."""
    dropped, odd = np.array([2, 9, 15]), np.arange(len(EDGES)) % 2
    mixed, cut = split_of(EDGES, odd), split_of(EDGES, [time >= 4 for _, _, time, _ in EDGES])
    columns = (*mixed.edge_index(), mixed.edge_time, mixed.edge_weight)
    columns = [np.delete(np.asarray(column), dropped).tolist() for column in columns]
    assert_law(walker, mixed, [list(zip(*columns, strict=True))], ROOTS, excluded=dropped)
    nodes, cutoff = (np.tile(of, 50) for of in zip(*ROOTS, strict=True))
    seeds = Seeds(np.int32(nodes), cutoff, [0, 4, 11])
    walks = [walker.sample(KEY, g, walker.init(g), seeds) for g in (cut, graph_of(EDGES, N))]
    np.testing.assert_array_equal(cut.indices, graph_of(EDGES, N).indices)
    same_bits(*walks)


def split_of(edges, halves):
    """The graph of (source, target, time, weight)s in two relations, 0 and 1 of `halves`."""
    halves = np.array(halves)
    columns = [np.array(column) for column in zip(*edges, strict=True)]
    source, target, time, weight = (
        {("n", name, "n"): column[halves == i] for i, name in enumerate(("near", "far"))}
        for column in columns
    )
    ends = {name: (source[name], target[name]) for name in source}
    weight = {name: np.float32(of) for name, of in weight.items()}
    return Graph.from_relations({"n": N}, ends, weight, edge_time=time)


ANY = [  # and whether the graph has two relations
    (Walk(LENGTH, causal=True), False),
    (Walk(LENGTH, weighted=True, causal=True, restart=0.2), False),
    (Walk(LENGTH, half_life=2, window=9), False),
    (Node2Vec(LENGTH, 2, 0.5, causal=True), False),
    (Node2Vec(LENGTH, 0.1, 20, weighted=True, window=4), False),
    (Node2Vec(LENGTH, 50, 0.5, causal=True), False),
    (Metapath(("near", "far"), LENGTH, causal=True, window=20), True),
    (Walk(LENGTH, restart=0.2), True),
    (Walk(LENGTH, weighted=True, causal=True, window=20), True),
]
NUM_EDGES, NUM_ROOTS, NUM_HOLES = 30, 24, 5
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@st.composite
def events(draw, typed):
    """A multigraph with late births, ties and extreme times; cutoffs' ends; excluded edges."""
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
    weight = np.float32(np.arange(NUM_EDGES) % 4)
    if not typed:
        graph = Graph.from_edges(src, dst, N, weight, **options)
    else:
        halves = {("n", "near", "n"): slice(0, 15), ("n", "far", "n"): slice(15, 30)}
        graph = Graph.from_relations(
            {"n": N},
            {name: (src[half], dst[half]) for name, half in halves.items()},
            {name: weight[half] for name, half in halves.items()},
            edge_time={name: time[half] for name, half in halves.items()},
            node_time={"n": born},
        )
    return graph, (middle - span, min(middle + span + 1, MOST)), holes


@pytest.mark.parametrize("causal", [False, True])
def test_excluded_edges_and_cutoffs_together(causal, graph):
    """The law is that of the edges that are left."""
    dropped = np.array([0, 3, 7, 12, 13])
    holes = np.asarray(graph.edge_order)[dropped]
    left = [e for i, e in enumerate(EDGES) if i not in holes]
    for half_life in (3, None):
        walker = Walk(LENGTH, causal=causal, half_life=half_life)
        assert_law(walker, graph, [left], ROOTS, excluded=dropped)


@pytest.mark.parametrize("timed", [False, True])
def test_steps_go_along_their_relations(timed):
    """The law is that of `Walk` on the graphs of the relations in turn."""
    columns = {  # sources, targets, times, weights
        ("user", "bought", "item"): [
            *([0, 1, 1, 2, 0, 2], [0, 0, 1, 1, 1, 0], [1, 4, 2, 4, 6, 3], [1, 2, 1, 0, 3, 1]),
        ],
        ("user", "saw", "item"): [[1, 0, 2, 2], [0, 1, 0, 1], [5, 5, 0, 7], [1, 4, 1, 0.5]],
    }
    graph = Graph.from_relations(
        {"user": 3, "item": 2},
        {name: (np.array(of[0]), np.array(of[1])) for name, of in columns.items()},
        {name: np.float32(of[3]) for name, of in columns.items()},
        edge_time={name: np.array(of[2]) for name, of in columns.items()} if timed else None,
        both_ways=True,
    )
    bought, seen = (list(zip(*of, strict=True)) for of in columns.values())
    there = [(user, item + 3, *rest) for user, item, *rest in bought]
    back = [(item + 3, user, *rest) for user, item, *rest in seen]
    if timed:
        walker = Metapath(("bought", "rev_saw"), 3, causal=True, window=5)
        assert_law(walker, graph, (there, back), [(3, 7), (4, 7), (3, 3), (0, 9), (4, 3)])
    else:
        walker = Metapath((("user", "bought", "item"), "rev_saw"), weighted=True)
        assert walker.length == 2
        walker = dataclasses.replace(walker, length=3)
        assert_law(walker, graph, (there, back), [(v, None) for v in range(5)])


# Without edges, of one node, and with a self-loop alone.
TINY = Graph([0] * 5, []), Graph([0, 0], []), Graph([0, 1], [0])


def test_walks_of_a_graph_without_edges():
    empty = Graph.from_edges([], [], 3, edge_time=np.zeros(0, int))
    for walker in (Walk(2, causal=True), Walk(2, half_life=3), Node2Vec(2, causal=True)):
        nodes, _ = walker.sample(KEY, empty, walker.init(empty), Seeds([2, 3], [5, 5]))
        np.testing.assert_array_equal(nodes, [[2, 3, 3], [3, 3, 3]])
    for walker, graph in itertools.product((Walk(2), Node2Vec(2, 2, 0.5)), TINY):
        nodes, _ = walker.sample(KEY, graph, walker.init(graph), [0, graph.num_nodes])
        assert graph.num_edges or (np.asarray(nodes)[:, 1:] == graph.num_nodes).all()
        assert np.asarray(nodes)[1].tolist() == [graph.num_nodes] * 3


def test_a_walker_of_before_has_the_same_name():
    """Checkpoints know walkers by their `repr`."""
    assert repr(Node2Vec(4, 2)) == "Node2Vec(length=4, p=2.0, q=1.0, weighted=False)"
    assert "causal" not in repr(Metapath(("a",), 3)) + repr(Walk(3))
    assert "causal=True" in repr(Walk(3, causal=True))


KEY = jax.random.key(5)
COPIES = 4000


def graph_of(edges, num_nodes, timed=True):
    """The graph of (source, target, time, weight)s."""
    src, dst, time, weight = map(np.array, zip(*edges, strict=True))
    time = time if timed else None
    return Graph.from_edges(src, dst, num_nodes, np.float32(weight), edge_time=time)


def weight_of(walker, cutoff, time, weight):
    """What a step draws an edge in proportion to, before it looks at the node before."""
    half_life = getattr(walker, "half_life", None)
    return weight if walker.weighted else 2 ** ((time - cutoff) / half_life) if half_life else 1


def steps(walker, edges, place, end):
    """(probability, next place) of every step; a place is (before, here, cutoff, root's)."""
    before, here, cutoff, root = place
    if here == end:
        return [(1.0, place)]
    known = edges
    if cutoff is not None:
        since = cutoff - walker.window if walker.window else -np.inf
        known = [e for e in edges if since <= e[2] < cutoff]
    ways = [(e, weight_of(walker, cutoff, *e[2:])) for e in known if e[1] == here]
    latest = getattr(walker, "latest", None)
    if latest:
        ways = sorted(ways, key=lambda way: way[0][2])[-latest:]
    if isinstance(walker, Node2Vec) and before is not None:
        near = {e[0] for e in known if e[1] == before}
        bias = {e[0]: 1.0 if e[0] in near else 1 / walker.q for e in known}
        bias[before] = 1 / walker.p
        ways = [(e, w * bias[e[0]]) for e, w in ways]
    total, first = sum(w for _, w in ways), before is None
    stop, restart = (0 if first else getattr(walker, name, 0) for name in ("stop", "restart"))
    found = [(stop, (here, end, cutoff, root))]
    found.append(((1 - stop) * restart, (here, *root, root)))
    on = (1 - stop) * (1 - restart)
    if total == 0:
        return [*found, (on, (here, end, cutoff, root))]
    return found + [
        (w / total * on, (here, e[0], e[2] if walker.causal else cutoff, root)) for e, w in ways
    ]


def law(walker, edges, root, end):
    """The probability of each walk from `root`, whose steps go along the `edges` in turn."""
    states = {((root[0],), (None, *root, root)): 1.0}
    for t in range(walker.length):
        after = defaultdict(float)
        for (path, place), chance in states.items():
            for share, there in steps(walker, edges[t % len(edges)], place, end):
                if share > 0:
                    after[(*path, there[1]), there] += chance * share
        states = after
    found = defaultdict(float)
    for (path, _), chance in states.items():
        found[path] += chance
    return found


def assert_law(walker, graph, edges, roots, excluded=None):
    """`COPIES` walks from each (node, cutoff) have the law of those along `edges` in turn."""
    nodes, cutoffs = zip(*roots, strict=True)
    cutoffs = None if cutoffs[0] is None else np.tile(cutoffs, COPIES)
    seeds = Seeds(np.tile(np.int32(nodes), COPIES), cutoffs, excluded)
    nodes = np.asarray(jax.jit(walker.sample)(KEY, graph, walker.init(graph), seeds).nodes)
    results = []
    for i, root in enumerate(roots):
        expected = law(walker, edges, root, graph.num_nodes)
        assert sum(expected.values()) == pytest.approx(1)
        paths, counts = np.unique(nodes[i :: len(roots)], axis=0, return_counts=True)
        drawn = dict(zip(map(tuple, paths.tolist()), counts.tolist(), strict=True))
        assert drawn.keys() <= expected.keys(), drawn.keys() - expected.keys()
        rare = {path for path, chance in expected.items() if chance * COPIES < 5}
        kinds = [*([path] for path in sorted(expected.keys() - rare)), rare]
        counts = [sum(drawn.get(path, 0) for path in kind) for kind in kinds]
        chances = [sum(expected[path] for path in kind) for kind in kinds]
        results.append(assert_as_often(counts, chances, root))
    assert_all_as_often(results)


def assert_follows(edges, num_nodes, walker, cutoffs, nodes):
    """Fails for walks that cannot have followed `edges`, each before the cutoff of its step."""
    times = defaultdict(list)
    for source, target, time in edges:
        times[source, target].append(time)
    for cutoff, row in zip(cutoffs.tolist(), nodes.tolist(), strict=True):
        owns = {cutoff}  # what the step's cutoff may be: parallel edges have several times
        for t, (here, there) in enumerate(itertools.pairwise(row)):
            if there == num_nodes:
                break
            known = {
                time
                for time, own in itertools.product(times[there, here], owns)
                if time < own and not (walker.window and time < own - walker.window)
            }
            back = t > 0 and getattr(walker, "restart", 0) > 0 and there == row[0]
            assert known or back, (row, t, owns, times[there, here])
            if walker.causal:
                owns = known | ({cutoff} if back else set())


@pytest.mark.parametrize(("walker", "typed"), rarely(ANY, 0, 4, 5, 7), ids=repr)
def test_no_walk_follows_an_edge_at_or_after_its_cutoff(walker, typed, same_bits):
    """Nor one before a birth or excluded. Kernels are plain JAX; roots keep their walks."""
    floats = isinstance(walker, Node2Vec) or getattr(walker, "half_life", None)
    options = programs.OPTIMISED if floats else None  # for the weights' bits
    draw = jax.jit(walker.sample, compiler_options=options)
    keys, kinds = jax.random.split(KEY), set()

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(events(typed))
    def check(made):
        graph, ends, holes = made
        state, rng = walker.init(graph), np.random.default_rng(0)
        roots = np.int32([np.arange(NUM_ROOTS) % (N + 1), np.arange(NUM_ROOTS) % 2])
        cutoff = rng.integers(*ends, roots.shape, endpoint=True)
        cutoff[1, ::2] = ends[1]
        holes = np.stack([holes, holes]) if walker.takes_excluded else None
        of = keys, graph, state, Seeds(roots, cutoff, holes)
        walks = draw(*of)
        with kernels.plain():
            same_bits(draw(*of), walks)
        order = np.lexsort((cutoff[1], roots[1]))  # stable
        moved = draw(keys, graph, state, Seeds(roots[:, order], cutoff[:, order], holes))
        np.testing.assert_array_equal(moved.nodes[1], walks.nodes[1][order])
        kinds.update(map(tuple, walks.nodes[1][::2].tolist()))
        left = ~np.isin(range(NUM_EDGES), () if holes is None else holes)
        (source, target), time = graph.edge_index(), np.asarray(graph.edge_time)
        born = np.asarray(graph.node_time)
        left &= time >= np.maximum(born[source], born[target])
        edges = list(zip(*(a[left].tolist() for a in (source, target, time)), strict=True))
        for own, nodes in zip(cutoff, np.asarray(walks.nodes), strict=True):
            assert_follows(edges, N, walker, own, nodes)

    check()
    assert len(kinds) > 2  # roots that are the same part
