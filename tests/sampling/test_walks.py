"""`Walk` and `Node2Vec`: the law of their steps, what a walk depends on, where walks end."""

from functools import cache

import jax
import numpy as np
import pytest
from refusals import refused
from rows_law import assert_as_often
from test_walks_by_time import KEY, assert_law, graph_of

import jgs
from jgs import kernels
from jgs.sampling import Node2Vec, Walk

RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)
# The in-neighbours of each node and their weights. The rows have a self-loop, an edge of weight
# 0, parallel edges, a dead end, a dead end by weight only, and an isolated node.
ROWS = [
    [(0, 0.5), (1, 1.0), (2, 2.0), (3, 0.0)],
    [(0, 1.0), (2, 1.0), (2, 3.0)],
    [(0, 1.0), (1, 1.0), (3, 1.0), (4, 2.0)],
    [(0, 1.0), (2, 2.0), (6, 1.0)],
    [(2, 4.0), (5, 1.0)],
    [],
    [(0, 0.0), (1, 0.0)],
    [],
]
EDGES = [(u, v, 0, weight) for v, row in enumerate(ROWS) for u, weight in row]
N, COPIES, LENGTH = len(ROWS), 1600, 9
ROOTS = np.tile(np.arange(N, dtype=np.int32), COPIES)
CASES = [
    *(Walk(4), Walk(4, weighted=True), Walk(4, restart=0.3, stop=0.1)),
    *(Walk(3, restart=1), Walk(3, stop=1)),
    *(Node2Vec(4, 2, 0.5), Node2Vec(4, 0.1, 2, True), Node2Vec(4, 100, 0.25, True)),
    Node2Vec(4, 0.25, 4),
]


@pytest.fixture(scope="module")
def graph():
    return graph_of(EDGES, N, timed=False)


@pytest.mark.parametrize("walker", CASES, ids=repr)
def test_walks_have_the_law_of_their_enumeration(walker, graph):
    assert_law(walker, graph, [EDGES], [(v, None) for v in (0, 2, 3, 4, 6, 7)])


@cache
def program(walker):
    return jax.jit(walker.sample)


def walks(walker, graph, key=KEY):
    """int `[B, L+1]`: the nodes of the walks from `ROOTS`."""
    return np.asarray(program(walker)(key, graph, walker.init(graph), ROOTS).nodes)


def test_walks_that_meet_part_again(graph):
    """Pairs of walks at one node at one step: of one root, of two roots, of two keys."""
    walker, nodes = Walk(LENGTH), walks(Walk(LENGTH), graph)
    of_root = nodes[ROOTS == 0]
    pairs = {
        "walks": (of_root[: COPIES // 2], of_root[COPIES // 2 :]),
        "roots": (nodes[ROOTS == 0], nodes[ROOTS == 1]),
        "keys": (nodes, walks(walker, graph, jax.random.key(6))),
    }
    for name, (a, b) in pairs.items():
        for v in (0, 2):
            move = np.bincount([u for u, _ in ROWS[v]], minlength=N)
            together = (a[:, :-1] == v) & (b[:, :-1] == v)
            after = np.stack([a[:, 1:][together], b[:, 1:][together]])
            counts = np.zeros((N, N))
            np.add.at(counts, tuple(after), 1)
            assert after.shape[1] > 200, name
            assert_as_often(counts, np.outer(move, move), (name, v))


def test_a_longer_walk_begins_with_the_same_steps(graph):
    nodes, longer = (walks(Walk(length), graph) for length in (LENGTH, LENGTH + 3))
    np.testing.assert_array_equal(longer[:, : LENGTH + 1], nodes)


def test_user_faults(graph, monkeypatch):
    refused("seeds must be node ids", Walk(4).sample, KEY, graph, (), [1, N + 1])
    roots = np.int32([1, N + 1, -1, N])  # known only when the program runs
    if kernels.available():
        with pytest.raises(RUNTIME_ERRORS, match="got 9 at position 1"):
            program(Walk(LENGTH))(KEY, graph, (), roots)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_AVAILABLE", False)
        nodes, lengths = jax.jit(Walk(5).sample)(KEY, graph, (), roots)
        assert (nodes[1:] == N).all()
        assert lengths.tolist()[1:] == [-1, -1, 0]


def test_extreme_parameters_keep_no_walk_waiting():
    """A leaf's only way is back, whatever p; a path's ways are back and on, whatever q."""
    path = jgs.Graph.from_edges([0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2], 4).sorted()
    back = [[0, 1, 0, 1, 0, 1, 0], [3, 2, 3, 2, 3, 2, 3]]
    onwards = [[0, 1, 2, 3, 2, 1, 0], [3, 2, 1, 0, 1, 2, 3]]
    for options, wanted in (({"p": 1e6}, onwards), ({"p": 1e-6}, back), ({"q": 1e4}, back)):
        walker = Node2Vec(6, **options)
        nodes, _ = walker.sample(KEY, path, walker.init(path), [0, 3])
        np.testing.assert_array_equal(nodes, wanted)
