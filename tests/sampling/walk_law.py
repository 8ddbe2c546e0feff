"""The law of walks, by enumeration of all of them, and walks drawn against it."""

from collections import defaultdict

import jax
import numpy as np
import pytest
from rows_law import assert_all_as_often, assert_as_often

from jgs import Graph
from jgs.sampling import Node2Vec, Seeds

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
