"""`Seal` against the paper: what is in a pair's subgraph, and its double-radius labels."""

from itertools import pairwise

import jax
import networkx
import numpy as np
import pytest
from refusals import refused

from jgs import Graph, InputError
from jgs.sampling import Capacity, Loader, Seal, worst_case

KEY = jax.random.key(5)


def draw(sampler, graph, pairs, key=KEY):
    return sampler.sample(key, graph, sampler.init(graph), pairs, None)


def symmetric(edges, num_nodes):
    """A graph with both directions of each edge, in the networkx form too."""
    src, dst = np.array(edges).T
    both = np.r_[src, dst], np.r_[dst, src]
    network = networkx.Graph(edges)
    network.add_nodes_from(range(num_nodes))
    return Graph.from_edges(*both, num_nodes), network


def by_definition(network, pair, hops):
    """Section 3 of the paper: the subgraph without the pair's edge, and its nodes' labels."""
    x, y = pair
    near = [networkx.single_source_shortest_path_length(network, end, hops) for end in pair]
    inside = network.subgraph({*near[0], *near[1]}).copy()
    inside.remove_edges_from([(x, y)] if inside.has_edge(x, y) else [])
    alone = [inside.copy(), inside.copy()]
    alone[0].remove_node(y)
    alone[1].remove_node(x)
    ends = zip(alone, pair, strict=True)
    away = [networkx.single_source_shortest_path_length(one, end) for one, end in ends]
    labels = {x: 1, y: 1}
    for node in set(inside) - {x, y}:
        dx, dy = (one.get(node, np.inf) for one in away)
        d = dx + dy
        labels[node] = 0 if np.isinf(d) else 1 + min(dx, dy) + (d // 2) * (d // 2 + d % 2 - 1)
    return inside, labels


def parts_of(batch):
    """For each pair: its nodes in order, their labels, and its edges as pairs of node ids."""
    nodes, labels = np.asarray(batch.nodes), np.asarray(batch.node_labels)
    (block,), groups = batch.blocks, np.asarray(batch.groups)
    row = np.repeat(np.arange(nodes.size), np.diff(block.indptr))
    source = np.asarray(block.indices)[: row.size]
    for first, last in pairwise(groups):
        mine = (row >= first) & (row < last)
        assert ((source[mine] >= first) & (source[mine] < last)).all()
        edges = zip(nodes[row[mine]].tolist(), nodes[source[mine]].tolist(), strict=True)
        yield nodes[first:last].tolist(), labels[first:last].tolist(), sorted(edges)


def test_subgraphs_and_labels_are_networkx_ones():
    """Also of pairs in both orders, of a node without edges, and of padding between them."""
    rng = np.random.default_rng(2)
    num_nodes, edges = 41, []
    while len(edges) < 60:
        a, b = sorted(rng.integers(0, 40, 2).tolist())
        if a != b and (a, b) not in edges:
            edges.append((a, b))
    graph, network = symmetric(edges, num_nodes)
    others = [p for p in rng.integers(0, num_nodes, (40, 2)).tolist() if p[0] != p[1]][:20]
    turned = [(b, a) for a, b in edges[:5]]
    pairs = np.array([*edges[:20], (41, 41), *turned, (40, 3), (3, 40), *others], np.int32)
    for hops in (1, 2):
        sampler = Seal((-1,) * hops)
        capacity = worst_case(graph, len(pairs), sampler)
        sample = jax.jit(sampler.sample, static_argnums=4)
        batch = sample(KEY, graph, sampler.init(graph), pairs, capacity)
        assert not batch.overflow
        assert batch.pair_labels.tolist() == [network.has_edge(*p) for p in pairs.tolist()]
        assert batch.seed_mask.tolist() == (pairs[:, 0] < 41).tolist()
        for pair, (nodes, labels, found) in zip(pairs.tolist(), parts_of(batch), strict=True):
            if pair[0] == 41:
                assert nodes == labels == found == []
                continue
            inside, want = by_definition(network, pair, hops)
            assert nodes[:2] == pair
            assert nodes[2:] == sorted(set(inside) - set(pair))
            assert dict(zip(nodes, labels, strict=True)) == want
            assert found == sorted([*inside.edges, *((b, a) for a, b in inside.edges)])
        real, rows = pairs < 41, np.asarray(batch.seed_rows)
        np.testing.assert_array_equal(np.asarray(batch.nodes)[rows[real]], pairs[real])


def test_drawn_neighbours_loops_and_repeated_edges():
    """And a pair of a node with itself. Each edge keeps its id and weight."""
    src = np.array([1, 2, 3, 4, 5, 0, 0, 6, 0, 6, 6])
    dst = np.array([0, 0, 0, 0, 0, 6, 6, 0, 0, 5, 4])
    weight = np.arange(1, 12, dtype=np.float32)
    graph = Graph.from_edges(src, dst, 7, weight)
    pairs = np.array([[0, 6], [0, 0], [5, 4]], np.int32)
    whole = draw(Seal(edge_ids=True, edge_weights=True), graph, pairs)
    star, loop, both = parts_of(whole)
    assert whole.pair_labels.tolist() == [1, 1, 0]
    assert star[0] == [0, 6, 1, 2, 3, 4, 5]
    joined = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (4, 6), (5, 6)]
    assert star[2] == joined  # the loop stays, the pair's three edges are left out
    assert loop[0] == [0, 1, 2, 3, 4, 5, 6]
    assert (0, 0) not in loop[2]
    assert loop[2].count((6, 0)) == 2
    assert loop[1] == [1, 0, 0, 0, 0, 0, 0]
    assert both == ([5, 4, 6], [1, 1, 2], [(4, 6), (5, 6)])
    count, (block,) = int(whole.blocks[0].num_edges), whole.blocks
    ids = np.asarray(block.edge_id)
    assert (ids[count:] == 11).all()
    np.testing.assert_array_equal(block.edge_weight, np.r_[graph.edge_weight, 0][ids])
    sizes = set()
    for seed in range(8):
        few = draw(Seal((2,)), graph, pairs[:1], jax.random.key(seed))
        ((nodes, _, _),) = parts_of(few)
        sizes.add(len(nodes))
        assert set(nodes[2:]) <= {1, 2, 3, 4, 5}
    assert sizes <= {2, 3, 4}
    assert 4 in sizes


def test_wrong_pairs_are_refused():
    graph, _ = symmetric([(i, i + 1) for i in range(19)], 20)
    for wrong in (np.arange(4), np.zeros((3, 3), int), [[0, 20]]):
        with pytest.raises(InputError):
            Loader(graph, wrong, 2, Seal(), key=KEY)
    refused("B, 2", draw, Seal(), graph, np.arange(4))
    for half in np.array([[[0, 20]], [[0, 21]]]):  # known only when the program runs
        state, room = Seal().init(graph), Capacity((8, 8), (8, 8))
        batch = jax.jit(Seal().sample, static_argnums=4)(KEY, graph, state, half, room)
        assert batch.overflow
        assert (np.asarray(batch.needed) == -1).all()
