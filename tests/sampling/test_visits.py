"""Neighbours by visits: `PinSage` and `HetGNN` against walkers."""

from collections import Counter

import jax
import numpy as np
import pytest

from jgs import Graph, Schema
from jgs.sampling import HetGNN, Metapath, PinSage, Walk
from jgs.sampling.algorithms import visits

KEY = jax.random.key(5)
BUYS, LIKES = ("user", "buys", "item"), ("user", "likes", "item")


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Twelve nodes; 10 is a dead end and 11 has no edges."""
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, 11, 40), rng.integers(0, 10, 40)
    made = Graph.from_edges(src, dst, 12)
    return Graph(made.indptr, made.indices, schema=Schema((("a", 5), ("b", 7))))


@pytest.fixture(scope="module")
def shop() -> Graph:
    """Users 0 to 4 and items 5 to 12; two of the items were never bought."""
    rng = np.random.default_rng(0)
    edges = {
        BUYS: (rng.integers(0, 5, 20), rng.integers(0, 6, 20)),
        LIKES: (rng.integers(0, 5, 20), rng.integers(0, 8, 20)),
    }
    return Graph.from_relations({"user": 5, "item": 8}, edges, both_ways=True)


def rows(batch, hop):
    """For each of the first targets of a hop: (node, [(neighbour, weight), ...])."""
    block, nodes = batch.blocks[-1 - hop], np.asarray(batch.nodes)
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    weight = np.asarray(block.edge_weight).tolist()
    pairs = list(zip(nodes[indices[: indptr[-1]]].tolist(), weight, strict=False))
    targets = range(int(block.num_targets))
    return [(int(nodes[t]), pairs[indptr[t] : indptr[t + 1]]) for t in targets]


def by_walks(graph, key, node, sampler, groups):
    """One node's [(neighbour, weight), ...], from the walks that `Walk` or `Metapath` makes."""
    walk, per = Walk(sampler.length, stop=sampler.restart), 1
    if relations := getattr(sampler, "relations", None):
        per = len(relations)
        walk = Metapath(relations, per * (1 if sampler.restart else sampler.length))
    roots = np.full(sampler.num_walks, node)
    found = walk.sample(key, graph, walk.init(graph), roots).nodes
    # All first rounds, then all second ones.
    order = np.asarray(found)[:, per::per].T.reshape(-1)
    counts = Counter(u for u in order.tolist() if u not in (node, graph.num_nodes))
    ranked = counts.most_common()  # of equal counts the one met first comes first
    row = []
    for (first, last), k in groups:
        row += [(u, c) for u, c in ranked if first <= u < last][:k]
    # Weights are the counts, or have their ratios and the mean 1.
    unit = 1 if sampler.counts else sum(c for _, c in row) / max(len(row), 1)
    return [(u, pytest.approx(c / unit)) for u, c in row]


def test_the_most_visited_of_the_walks(graph, shop):
    seeds = np.array([3, 11, 12, 3, 10, 0, 7, 12])
    bought = BUYS, "rev_buys"  # from an item to a user, and to what else they bought
    by_type = [[((0, 5), a), ((5, 12), b)] for a, b in ((2, 2), (1, 3))]
    for of, sampler, groups in (
        (graph, PinSage((3, 2), 9, 4), [[((0, 12), k)] for k in (3, 2)]),
        (graph, HetGNN((2, (1, 3)), 9, 4, 0.3, counts=True), by_type),
        (shop, PinSage((4,), 9, 3, 0.0, bought, counts=True), [[((5, 11), 4)]]),
        (shop, PinSage((4,), 9, 3, 1.0, bought, counts=True), [[((5, 11), 4)]]),
    ):
        nodes = np.where(seeds == 12, of.num_nodes, seeds)
        draw = jax.jit(sampler.sample, static_argnums=4)
        batch = draw(KEY, of, sampler.init(of), nodes, None)
        assert not batch.overflow
        assert batch.schema == of.schema
        for hop in range(len(groups)):
            found, hop_key = rows(batch, hop), jax.random.fold_in(KEY, hop)
            assert {node for node, _ in found} >= {3, 11, 10, 0, 7}
            for node, row in found:
                if node < of.num_nodes:
                    assert row == by_walks(of, hop_key, node, sampler, groups[hop])
        drawn = dict(rows(batch, 0))
        assert drawn[11] == [] == drawn[10 if of is graph else 3]
        assert drawn[7]


def test_plain_and_kernel_visit_alike(shop, alike, monkeypatch):
    """More walks, neighbours and groups than the protocol's test, and rounds of relations.
    The plain form counts a part of the targets at a time."""
    monkeypatch.setattr(visits, "_VISITS_AT_ONCE", 1000)
    seeds = np.r_[np.arange(14), np.arange(5)]
    samplers = (
        PinSage((12,), 130, 6, 0.1, counts=True),
        PinSage((500,), 1, 2, 1.0),
        PinSage((3,), 70, 3, 0.2, ("buys", "rev_likes")),
        HetGNN(((1, 6),), 65, 3),
    )
    alike(lambda key: [s.sample(key, shop, (), seeds, None) for s in samplers], KEY)
