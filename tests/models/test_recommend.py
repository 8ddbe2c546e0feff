"""`top_k` is the sort of all scores, in whatever blocks."""

import jax
import numpy as np
from cases import cases
from modules import module
from refusals import refused

from jgs import Graph
from jgs.models import BilinearDecoder, DistMult, DotDecoder, top_k

RNG = np.random.default_rng(0)
N, F = 50, 4
ROWS = RNG.normal(size=(N, F)).astype(np.float32)
GRAPH = Graph.from_edges(*RNG.integers(0, N, (2, 600)), N)


def all_scores(decoder, nodes, candidates, end, relation=None):
    given = None if relation is None else np.full(len(nodes), relation)
    side = 0 if end == "src" else 1
    run = jax.jit(lambda rows, others: decoder.against(rows, others, side, given))
    return np.asarray(run(ROWS[nodes], ROWS[candidates]))


@cases(
    "at_once, end, known",
    (1 << 22, "src", GRAPH),
    (64, "dst", GRAPH),
    (7, "src", None),
    (7, "dst", GRAPH),
)
def test_it_is_the_sort_of_all_scores(at_once, end, known, monkeypatch):
    """It fails if edges of the other direction are left out, or padding is a candidate."""
    monkeypatch.setattr("jgs.models.recommend.AT_ONCE", at_once)
    decoder = module(lambda rngs: BilinearDecoder(F, rngs=rngs))
    nodes, candidates = np.array([7, 3, 7, 49, 0]), RNG.permutation(np.arange(5, 42))
    found, scores = top_k(decoder, ROWS, nodes, candidates, 6, end=end, known=known)
    every = all_scores(decoder, nodes, candidates, end).copy()
    if known is not None:
        pairs = {*map(tuple, GRAPH.edge_index().T.tolist())}
        for i, v in enumerate(nodes):
            for j, c in enumerate(candidates):
                if ((v, c) if end == "src" else (c, v)) in pairs:
                    every[i, j] = -np.inf
    order = np.argsort(-every, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(found, candidates[order])
    np.testing.assert_allclose(scores, np.take_along_axis(every, order, 1), rtol=1e-5)


def test_ties_keep_the_order_of_the_candidates_and_lists_may_be_short():
    rows = np.ones((6, F), np.float32)
    found, scores = top_k(DotDecoder(), rows, [2], [4, 1, 5], 5)
    assert found.tolist() == [[4, 1, 5, -1, -1]]
    assert scores[0, 3] == -np.inf
    known = Graph.from_edges([2, 2, 5], [4, 5, 2], 6)
    found, _ = top_k(DotDecoder(), rows, [2], [4, 1, 5], 3, known=known)
    assert found.tolist() == [[1, -1, -1]]


def test_relations_and_refusals():
    decoder = module(lambda rngs: DistMult(F, 3, rngs=rngs))
    nodes, candidates = np.arange(4), np.arange(20, 40)
    found, _ = top_k(decoder, ROWS, nodes, candidates, 3, relation=2)
    every = all_scores(decoder, nodes, candidates, "src", 2)
    np.testing.assert_array_equal(found, candidates[np.argsort(-every, axis=1)[:, :3]])
    refused("ids in [0, 50); got 50 at", top_k, decoder, ROWS, [50], [1], 3, relation=0)
    refused("ids in [0, 50); got -1 at", top_k, decoder, ROWS, [1, -1], [1], 3, relation=0)
    refused("distinct", top_k, decoder, ROWS, [1], [2, 2], 3, relation=0)
    refused("must be integers [n]", top_k, decoder, ROWS, [1], [], 3, relation=0)
    refused("end must be", top_k, decoder, ROWS, [1], [2], 3, end="left")
