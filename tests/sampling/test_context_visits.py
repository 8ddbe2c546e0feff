"""Contexts by visits: `ByVisits` beside a count of the walks that `Walk` makes."""

import itertools
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from test_walks_by_time import NUM_EDGES, events
from test_walks_by_time import N as FEW

from jgs import Graph, kernels
from jgs.errors import InputError
from jgs.graph import Live
from jgs.graph.device import as_device
from jgs.sampling import Context, Seeds, Walk
from jgs.sampling.checks import checked_seeds
from jgs.sampling.contexts import ByVisits
from jgs.settings import exact_integers

KEY = jax.random.key(5)
N, SIZE, WIDE = 40, 12, 60
HOLES = np.arange(0, 300, 7)
A, B = ("n", "a", "n"), ("n", "b", "n")
CASES = [  # a way, whether the seeds have times, whether edges are excluded, a graph
    *((ByVisits(50, 6, 0.3), True, False, "few"), (ByVisits(1, 1), True, False, "few")),
    *((ByVisits(50, 6, 0.1, window=9), True, True, g) for g in ("few", "many", "plain")),
    (ByVisits(50, 6, 1.0), False, True, "few"),
    (ByVisits(50, 6, 0.2, weighted=True), True, True, "few"),
    *((ByVisits(50, 6), True, False, "many"), (ByVisits(50, 6, 0.2), False, True, "plain")),
]


def made(num: int) -> Graph:
    """Two relations; no two edges have the same ends, some have weight 0 or a common time."""
    rng = np.random.default_rng(1)
    ends = np.unravel_index(rng.permutation(N * (N - 4))[:num], (N, N - 4))  # 4 dead ends
    halves = {A: slice(0, num // 2), B: slice(num // 2, num)}
    return Graph.from_relations(
        {"n": N},
        {name: tuple(of[half] for of in ends) for name, half in halves.items()},
        {name: np.float32(rng.integers(0, 3, num // 2)) for name in halves},
        edge_time={name: rng.integers(0, 20, num // 2) for name in halves},
    )


@pytest.fixture(scope="module")
def graphs() -> dict[str, Graph]:
    """Rows of a few edges, of 39 on average, and these without types."""
    few, many = made(300), made(1400)
    times = np.asarray(many.edge_time)
    plain = Graph.from_edges(*map(np.asarray, many.edge_index()), N, edge_time=times)
    return {"few": few, "many": many, "plain": plain}


@pytest.fixture(scope="module")
def graph(graphs) -> Graph:
    return graphs["few"]


def seeds_of(graph, timed=True, holes=False):
    """Checked seeds: two are the same, one has the same node with another cutoff."""
    nodes, cutoff = np.int32([3, 39, 7, 3, N, 3, 11, 0]), np.array([15, 15, 8, 15, 3, 9, 20, 1])
    seeds = Seeds(nodes, cutoff if timed else None, HOLES if holes else None)
    return checked_seeds(Walk(1), graph, seeds)


def find(way, size, key, graph, state, seeds):
    with exact_integers():
        return way.find(jax.random.key_data(key), graph, state, seeds, size)


def counted(way, graph, state, seeds, i):
    """[(node, hop, parent)] of a context, from the walks of roots that are its seed."""
    seed, time = int(seeds.nodes[i]), None
    if seeds.time is not None:
        time = np.full(way.num_walks, int(seeds.time[i]))
    walk = Walk(way.length, way.weighted, way.restart, window=way.window)
    roots = Seeds(np.full(way.num_walks, seed, np.int32), time, seeds.excluded)
    counts, first = Counter(), {}
    for number, row in enumerate(np.asarray(walk.sample(KEY, graph, state.walk, roots).nodes)):
        hop = 0
        for step, (parent, node) in enumerate(itertools.pairwise(row.tolist())):
            hop = 0 if node == seed else hop + 1
            if node in (seed, N):
                continue
            counts[node] += 1
            visit = (hop, number, step, parent)
            first[node] = min(first.get(node, visit), visit)
    order = sorted(counts, key=lambda node: (-counts[node], first[node][:3]))
    return [(node, first[node][0], first[node][3]) for node in order]


@pytest.mark.parametrize(("way", "timed", "holes", "name"), CASES, ids=repr)
def test_contexts_are_a_count_of_walks(way, timed, holes, name, graphs, alike):
    graph = graphs[name]
    state, seeds = way.init(graph), seeds_of(graph, timed, holes)
    found = alike(partial(find, way, SIZE), KEY, graph, state, seeds, threads=(1, 2, 4))
    target = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    for i, (nodes, hop, parent, edge) in enumerate(zip(*found, strict=True)):
        seed = int(seeds.nodes[i])
        wanted = counted(way, graph, state, seeds, i) if seed < N else []
        rows = [(seed, 0, N), *wanted][:SIZE] + [(N, 0, N)] * (SIZE - 1 - len(wanted))
        assert list(zip(nodes.tolist(), hop.tolist(), parent.tolist(), strict=True)) == rows
        real = (np.arange(SIZE) > 0) & (nodes < N)
        assert (edge[~real] == graph.num_edges).all()
        edge = edge[real]
        np.testing.assert_array_equal(np.asarray(graph.indices)[edge], nodes[real])
        np.testing.assert_array_equal(target[edge], parent[real])
    assert way.length == 1 or (found.hop > 1).any() == (way.restart < 1)


@pytest.mark.parametrize("name", ["few", "many"])
def test_rows_are_where_edges_begin_and_their_latest_time(name, graphs):
    graph = graphs[name]
    rows = np.asarray(ByVisits(5, 3).init(graph).rows)
    np.testing.assert_array_equal(rows[:, 0] >> 24, graph.indptr)
    for v, (begin, end) in enumerate(itertools.pairwise(np.asarray(graph.indptr).tolist())):
        own = np.asarray(graph.edge_time)[begin:end].tolist()
        assert rows[v, 0] % 2**24 == len(own)
        assert rows[v, 1] == max(own, default=-(2**63))
    assert ByVisits(5, 3, window=4).init(graph).rows == ()


def test_a_context_depends_on_its_seed_alone(graph, same_bits):
    """Not on the others or their order; it begins with a smaller one. Also under `vmap`."""
    way, seeds = ByVisits(50, 6, 0.2), seeds_of(graph)
    state = way.init(graph)
    found, small = (jax.jit(partial(find, way, s))(KEY, graph, state, seeds) for s in (WIDE, 5))
    same_bits(jax.tree.map(lambda a: a[:, :5], found), small)
    same_bits(*(jax.tree.map(lambda a, i=i: a[i], found) for i in (0, 3)))
    assert (np.asarray(found.nodes[0]) != np.asarray(found.nodes[5])).any()
    turned = jax.tree.map(lambda a: a[::-1], seeds)
    with exact_integers():
        both = jax.tree.map(lambda *of: jnp.stack(of), seeds, turned)
    mapped = jax.vmap(lambda s: find(way, 5, KEY, graph, state, s))
    several = jax.jit(mapped)(both)
    same_bits(jax.tree.map(lambda a: a[0], several), small)
    same_bits(jax.tree.map(lambda a: a[1][::-1], several), small)


def test_context_draws_by_visits(graph, alike):
    """Two batches at once, of which one is the first one turned round."""
    sampler, seeds = Context(5, ByVisits(50, 6, 0.2)), seeds_of(graph)
    with exact_integers():
        both = jax.tree.map(lambda a: jnp.stack([a, a[::-1]]), seeds)
    keys, state = jnp.stack([KEY, KEY]), sampler.init(graph)
    batch = alike(sampler.sample, keys, graph, state, both, threads=(2,))
    found = find(sampler.way, 5, KEY, graph, state, seeds)
    nodes = batch.nodes.reshape(2, -1, 5)
    np.testing.assert_array_equal(nodes, np.stack([found.nodes, found.nodes[::-1]]))
    np.testing.assert_array_equal(batch.tokens.hop[0], found.hop)
    types = np.asarray(graph.edge_type)
    reached = np.asarray(found.edge) < graph.num_edges
    relation = np.where(reached, types[np.minimum(found.edge, types.size - 1)], -1)
    np.testing.assert_array_equal(batch.tokens.relation[0], relation)


def test_graphs_without_edges_and_contexts_of_one_token(graph, alike):
    bare = Graph.from_relations({"n": N}, {A: ([], []), B: ([], [])}, edge_time={A: [], B: []})
    for of, size in ((bare, 3), (graph, 1)):
        way, seeds = ByVisits(5, 3, 0.5), seeds_of(of)
        found = alike(partial(find, way, size), KEY, of, way.init(of), seeds, threads=(2,))
        np.testing.assert_array_equal(found.nodes[:, 0], seeds.nodes)
        assert (found.nodes[:, 1:] == N).all()
        assert (found.edge == of.num_edges).all()


def test_threads_share_the_walks_of_a_seed(graph, alike):
    way, seeds = ByVisits(3000, 4, 0.2), jax.tree.map(lambda a: a[:1], seeds_of(graph))
    found = alike(
        partial(find, way, WIDE), KEY, graph, way.init(graph), seeds, threads=(1, 2, 4)
    )
    assert (found.nodes < N).sum() > 20


def test_no_token_is_at_or_after_its_cutoff(same_bits):
    """Of events with ties, births, and excluded edges."""
    way = ByVisits(40, 3, 0.2)
    draw = jax.jit(partial(find, way, FEW))

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(events(True))
    def check(made):
        graph, ends, holes = made
        nodes, state = np.arange(24, dtype=np.int32) % (FEW + 1), way.init(graph)
        cutoff = np.random.default_rng(0).integers(*ends, nodes.shape, endpoint=True)
        seeds = checked_seeds(way, graph, Seeds(nodes, cutoff, holes))
        found = draw(KEY, graph, state, seeds)
        with kernels.plain():
            same_bits(draw(KEY, graph, state, seeds), found)
        row, at = np.nonzero(np.asarray(found.edge) < NUM_EDGES)
        edge = np.asarray(found.edge)[row, at]
        assert (np.asarray(graph.edge_time)[edge] < cutoff[row]).all()
        assert not np.isin(edge, holes).any()

    check()


@pytest.mark.skipif(not kernels.available(), reason="no compiled kernels")
def test_bad_input_is_an_error(graphs):
    """Seeds that are no nodes, and arrays of the graph or of its index that are damaged."""
    graph = graphs["many"]  # of short rows the index is not read
    way, seeds = ByVisits(50, 6, 0.2), seeds_of(graph)
    state = way.init(graph)
    program = jax.jit(partial(find, way, SIZE))
    for wrong in (-1, N + 1):
        bad = seeds.replace(nodes=seeds.nodes.at[2].set(wrong))
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=f"got {wrong} at"):
            jax.block_until_ready(program(KEY, graph, state, bad))
    index, (indptr, runs) = state.walk, map(np.asarray, state.walk)
    damaged = [(graph, index._replace(indptr=as_device(indptr + by))) for by in (1, -1, 2**40)]
    damaged += [(graph, index._replace(runs=as_device(runs + by))) for by in (2**40, -(2**40))]
    damaged += [(graph, index._replace(runs=as_device(runs[::-1].copy())))]
    for by in (N, -N):
        arrays = graph.edge_arrays() | {"indices": as_device(np.asarray(graph.indices) + by)}
        other = Graph.from_edge_arrays(graph.indptr, arrays, schema=graph.schema)
        damaged.append((other, index))
    walk, seen = jax.jit(Walk(6).sample), "be valid|what init returned"
    for other, wrong in damaged:
        for draw, of in ((program, state._replace(walk=wrong)), (walk, wrong)):
            with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=seen):
                jax.block_until_ready(draw(KEY, other, of, seeds))
    arrays = graph.edge_arrays()
    arrays |= {"edge_time": as_device(np.asarray(graph.edge_time) + 1)}
    other = Graph.from_edge_arrays(graph.indptr, arrays, schema=graph.schema)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="what init returned"):
        jax.block_until_ready(program(KEY, other, state, seeds))
    rows = np.asarray(state.rows)
    for wrong in (rows + 2**40, rows - 2**40, rows[::-1], rows * [2**20, 1]):
        of = state._replace(rows=as_device(wrong.copy()))
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=seen):
            jax.block_until_ready(program(KEY, graph, of, seeds))
    for wrong in (index, state._replace(rows=as_device(rows[1:].copy()))):
        with pytest.raises(InputError, match="state that init returns"):
            Context(SIZE, way).sample(KEY, graph, wrong, seeds)
    live, of = Live(graphs["plain"]).graph, way.init(graphs["plain"])
    with pytest.raises(InputError, match="state that init returns"):
        Context(SIZE, way).sample(KEY, live, of, seeds)
