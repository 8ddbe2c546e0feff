"""Neighbours by visits: `PinSage` and `HetGNN` against `Walk` and against linear algebra."""

from collections import Counter

import jax
import numpy as np
import pytest

from jgs import Graph, InputError, Schema, kernels
from jgs.sampling import HetGNN, PinSage, Walk
from jgs.sampling.algorithms.walks import visits

KEY = jax.random.key(5)
BUYS, LIKES = ("user", "buys", "item"), ("user", "likes", "item")


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Twelve nodes; 10 is a dead end and 11 has no edges."""
    rng = np.random.default_rng(2)
    src, dst = rng.integers(0, 11, 40), rng.integers(0, 10, 40)
    made = Graph.from_edges(src, dst, 12)
    return Graph(made.indptr, made.indices, schema=Schema((("a", 5), ("b", 7))))


def rows(batch, hop):
    """For each of the first targets of a hop: (node, [(neighbour, weight), ...])."""
    block, nodes = batch.blocks[-1 - hop], np.asarray(batch.nodes)
    indptr, indices = np.asarray(block.indptr), np.asarray(block.indices)
    weight = np.asarray(block.edge_weight).tolist()
    return [
        (
            int(nodes[t]),
            [(int(nodes[indices[e]]), weight[e]) for e in range(*indptr[t : t + 2])],
        )
        for t in range(int(block.num_targets))
    ]


def by_walks(graph, key, node, sampler, groups):
    """One node's [(neighbour, weight), ...], from the walks that `Walk` makes from it."""
    walk = Walk(sampler.length, stop=sampler.restart)
    found = walk.sample(key, graph, (), np.full(sampler.num_walks, node)).nodes
    order = np.asarray(found)[:, 1:].T.reshape(-1)  # all first steps, then all second ones
    counts = Counter(u for u in order.tolist() if u not in (node, graph.num_nodes))
    ranked = counts.most_common()  # of equal counts the one met first comes first
    return [
        pair
        for (first, last), k in groups
        for pair in [(u, c) for u, c in ranked if first <= u < last][:k]
    ]


@pytest.mark.parametrize(("kernel", "at_once"), [(False, 1 << 22), (False, 100), (True, 0)])
def test_the_most_visited_of_the_walks(graph, kernel, at_once, implemented, monkeypatch):
    if kernel and not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    implemented(kernel)
    # Counts a part of the targets at a time.
    monkeypatch.setattr(visits, "_VISITS_AT_ONCE", at_once)
    seeds = np.array([3, 11, 12, 3, 10, 0, 7, 12])
    cases = [
        (PinSage((3, 2), 9, 4, counts=True), [[((0, 12), k)] for k in (3, 2)]),
        (
            HetGNN((2, (1, 3)), 9, 4, 0.3, counts=True),
            [[((0, 5), a), ((5, 12), b)] for a, b in ((2, 2), (1, 3))],
        ),
    ]
    for sampler, groups in cases:
        batch = jax.jit(sampler.sample, static_argnums=4)(KEY, graph, (), seeds, None)
        assert not batch.overflow
        assert all(block.edge_id is None for block in batch.blocks)
        for hop in range(2):
            found, hop_key = rows(batch, hop), jax.random.fold_in(KEY, hop)
            assert {node for node, _ in found} >= {3, 11, 10, 0, 7}
            for node, row in found:
                if node < 12:
                    assert row == by_walks(graph, hop_key, node, sampler, groups[hop])
    assert dict(rows(batch, 0))[11] == dict(rows(batch, 0))[10] == []


def test_weights_have_the_mean_one_and_the_ratio_of_the_counts(graph):
    sampler = PinSage((4,), 9, 4)
    (weighted, counted) = (
        rows(PinSage((4,), 9, 4, counts=counts).sample(KEY, graph, (), np.arange(10), None), 0)
        for counts in (False, True)
    )
    for (node, row), (_, counts) in zip(weighted, counted, strict=True):
        total = sum(c for _, c in counts)
        expected = [(u, pytest.approx(c * len(counts) / total)) for u, c in counts]
        assert row == expected, node
    assert sampler == PinSage([4], 9, 4)


def law(steps: np.ndarray, node: int, length: int, stop: float) -> np.ndarray:
    """The expected visits of each node by one walk; `steps[v, u]` is the chance of v to u."""
    at, visits = np.eye(len(steps))[node], np.zeros(len(steps))
    for step in range(length):
        at = at @ steps * (1 - stop if step else 1)
        visits += at
    visits[node] = 0
    return visits


def transitions(graph, relation=None) -> np.ndarray:
    count = np.zeros((graph.num_nodes, graph.num_nodes))
    row = np.repeat(np.arange(graph.num_nodes), np.asarray(graph.degrees()))
    taken = slice(None) if relation is None else np.asarray(graph.edge_type) == relation
    np.add.at(count, (row[taken], np.asarray(graph.indices)[taken]), 1)
    return count / np.maximum(count.sum(axis=1, keepdims=True), 1)


def assert_follows(sampler, graph, nodes, steps):
    """The counts' mean over many keys follows the law, within its standard error."""
    keys = jax.random.split(jax.random.key(8), 300)
    draw = jax.jit(jax.vmap(lambda key: sampler.sample(key, graph, (), nodes, None)))
    batch, counts = draw(keys), np.zeros((len(keys), len(nodes), graph.num_nodes))
    for i in range(len(keys)):
        for at, (_, row) in enumerate(rows(jax.tree.map(lambda a, i=i: a[i], batch), 0)):
            for neighbor, count in row:
                counts[i, at, neighbor] = count
    for at, node in enumerate(nodes):
        expected = sampler.num_walks * law(steps, node, sampler.length, sampler.restart)
        error = counts[:, at].std(axis=0) / np.sqrt(len(keys))
        np.testing.assert_array_less(
            abs(counts[:, at].mean(axis=0) - expected), 4.5 * error + 1e-6
        )
        assert (expected > 0).sum() > 1


def test_visits_follow_the_walks_law(graph):
    sampler = PinSage((12,), 20, 5, 0.4, counts=True)
    nodes = np.flatnonzero(graph.degrees())[[0, 3, 6]]
    assert_follows(sampler, graph, nodes, transitions(graph))


@pytest.fixture(scope="module")
def shop() -> Graph:
    """Users 0 to 4 and items 5 to 12; two of the items were never bought."""
    rng = np.random.default_rng(0)
    edges = {
        BUYS: (rng.integers(0, 5, 20), rng.integers(0, 6, 20)),
        LIKES: (rng.integers(0, 5, 20), rng.integers(0, 8, 20)),
    }
    return Graph.from_relations({"user": 5, "item": 8}, edges, both_ways=True)


def test_rounds_of_relations_follow_their_law(shop):
    """From an item to a user who bought it, then to another item that this user bought."""
    round_trip = (BUYS, "rev_buys")
    sampler = PinSage((13,), 15, 3, 0.3, round_trip, counts=True)
    there, back = (transitions(shop, shop.schema.relation(r)) for r in round_trip)
    assert_follows(sampler, shop, np.array([5, 8]), there @ back)
    batch = sampler.sample(KEY, shop, sampler.init(shop), np.array([0, 11, 12, 5]), None)
    assert [len(row) > 0 for _, row in rows(batch, 0)] == [False, False, False, True]
    assert all(5 <= u < 11 for u, _ in rows(batch, 0)[3][1])


def test_without_edges():
    schema = Schema((("a", 2), ("b", 1)), ())
    bare = Graph([0, 0, 0, 0], [], schema=schema)
    typed = Graph.from_relations({"a": 2, "b": 1}, {("a", "to", "b"): ([], [])}, both_ways=True)
    for sampler, graph in (
        (PinSage((2, 2), 3, 2), bare),
        (HetGNN((2, 2), 3, 2), bare),
        (PinSage((2,), 3, 2, relations=("to", "rev_to")), typed),
    ):
        batch = sampler.sample(KEY, graph, (), np.array([0, 2, 3]), None)
        assert not batch.overflow
        assert all(int(block.num_edges) == 0 for block in batch.blocks)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda g, s: PinSage(()), "a size for each hop; got ()"),
        (lambda g, s: PinSage(3), "a size for each hop; got 3"),
        (lambda g, s: PinSage((0,)), "each size must be an int of at least 1; got 0"),
        (lambda g, s: PinSage(((1, 2),)), "each size must be an int; got ((1, 2),)"),
        (lambda g, s: PinSage((1,), 0), "num_walks must be an int of at least 1; got 0"),
        (lambda g, s: PinSage((1,), 1, 1.5), "length must be an int of at least 1; got 1.5"),
        (lambda g, s: PinSage((1,), 1 << 16, 1 << 16), "must be below 2**31"),
        (lambda g, s: HetGNN((1,), restart=1.5), "restart must be a probability"),
        (
            lambda g, s: PinSage((1,), relations=()),
            "a tuple of relations, at least one; got ()",
        ),
        (lambda g, s: PinSage((1,), relations="buys"), "at least one; got 'buys'"),
        (lambda g, s: PinSage((1,), relations=("a",)).init(g), "whose edges have no types"),
        (
            lambda g, s: PinSage((1,), relations=("rev_buy",)).init(s),
            "one of (user, buys, item), (user, likes, item), (item, rev_buys, user), ",
        ),
        (
            lambda g, s: PinSage((1,), relations=("buys",)).init(s),
            "type of the next; got (user, buys, item) before (user, buys, item)",
        ),
        (lambda g, s: HetGNN((1,)).init(Graph([0, 0], [])), "got one without a schema"),
        (lambda g, s: HetGNN(((1, 2, 3),)).init(g), "each of 2 node types; got (1, 2, 3)"),
    ],
)
def test_wrong_fields_are_refused_in_one_line(make, says, graph, shop):
    with pytest.raises(InputError) as error:
        make(graph, shop)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_plain_and_kernel_visit_alike(shop, same_bits, implemented):
    """More walks, neighbours and groups than the protocol's test, and rounds of relations."""
    if not kernels.available():
        pytest.skip("the compiled kernels are not installed")
    seeds = np.r_[np.arange(14), np.arange(5)]
    samplers = (
        PinSage((12,), 130, 6, 0.1, counts=True),
        PinSage((500,), 1, 2, 1.0),
        PinSage((3,), 70, 3, 0.0, ("buys", "rev_likes")),
        HetGNN(((1, 6),), 65, 3),
    )
    found = []
    for available, threads in ((False, 1), (True, 1), (True, 4)):
        implemented(available, threads)
        draw = jax.jit(lambda key: [s.sample(key, shop, (), seeds, None) for s in samplers])
        found.append(draw(KEY))
    same_bits(found[0], found[1])
    same_bits(found[0], found[2])
