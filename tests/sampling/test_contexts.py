"""Contexts by hops: what they hold beside a search in NumPy, their order, and what is not for
them to see. `test_protocol.py` tries the contract of samplers."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal
from test_by_relation import graph_of

from jgs import Graph, InputError
from jgs.sampling import Context, Labor, Loader, Neighbors, Seeds
from jgs.sampling.contexts import ByHops

N, E, B, T = 6, 24, 4, 8
KEY = jax.random.key(5)
node, time = st.integers(0, N - 1), st.integers(-3, 3)
edges = st.lists(st.tuples(node, node, st.integers(0, 1), time), min_size=E, max_size=E)
seeds = st.lists(st.tuples(st.integers(0, N), time), min_size=B, max_size=B)
holes = st.sets(st.integers(0, E - 1), max_size=6)


def typed(edges):
    src, dst, kind, times = np.array(edges).T
    pairs = {("a", name, "a"): kind == i for i, name in enumerate("xy")}
    return Graph.from_relations(
        {"a": N},
        {r: (src[some], dst[some]) for r, some in pairs.items()},
        edge_time={r: times[some] for r, some in pairs.items()},
    )


def searched(graph, seed, cutoff, excluded, hops, latest):
    """Everything within so many hops of a seed, breadth first: each node with its hop, its
    parent and its edge; by the definition of `ByHops`, with widths that nothing exceeds."""
    indptr, sources, times = map(np.asarray, (graph.indptr, graph.indices, graph.edge_time))
    found, oldest = [(seed, 0, N, E)], {seed: np.inf}
    for hop in range(1, hops + 1):
        for by in [one[0] for one in found if one[1] == hop - 1]:
            for edge in range(indptr[by], indptr[by + 1]):
                source = int(sources[edge])
                if times[edge] < cutoff and edge not in excluded and source not in oldest:
                    found.append((source, hop, by, edge))
                    oldest[source] = min(times[edge], oldest[by])
    return sorted(found, key=lambda one: -oldest[one[0]]) if latest else found


DRAWS = {order: ByHops(({"*": E},) * 2, order) for order in ("hop", "latest")}
SAMPLERS = {order: Context(T, way) for order, way in DRAWS.items()}
PROGRAMS = {order: jax.jit(sampler.sample) for order, sampler in SAMPLERS.items()}


@pytest.mark.parametrize("order", SAMPLERS)
@settings(max_examples=40, deadline=None)
@given(edges=edges, seeds=seeds, excluded=holes)
def test_contexts_of_all_neighbours_are_a_search(order, edges, seeds, excluded):
    """No token is of the future, excluded or twice; each has its way from the seed."""
    graph, (nodes, cutoffs) = typed(edges), np.array(seeds).T
    padded = np.array([*sorted(excluded), *[E] * (6 - len(excluded))])
    of = Seeds(nodes.astype(np.int32), cutoffs, padded)
    batch = jax.device_get(PROGRAMS[order](KEY, graph, (), of))
    tokens, drawn = batch.tokens, batch.nodes.reshape(B, T)
    for b, (seed, cutoff) in enumerate(seeds):
        wanted = []
        if seed < N:
            wanted = searched(graph, seed, cutoff, excluded, 2, order == "latest")[:T]
        number, found = len(wanted), [one[0] for one in wanted]
        assert drawn[b].tolist() == found + [N] * (T - number)
        assert tokens.mask[b].tolist() == [True] * number + [False] * (T - number)
        assert tokens.hop[b, :number].tolist() == [one[1] for one in wanted]
        parents = [found.index(one[2]) if one[1] else T for one in wanted]
        assert tokens.parent[b].tolist() == parents + [T] * (T - number)
        along = np.array([one[3] for one in wanted[1:]], int)
        kinds, ages = (
            np.asarray(graph.edge_type)[along],
            cutoff - np.asarray(graph.edge_time)[along],
        )
        none = [-1] * (T - number)
        assert tokens.relation[b].tolist() == [*[-1] * (seed < N), *kinds.tolist(), *none]
        assert tokens.age[b, 1:number].tolist() == ages.tolist()
        assert not tokens.age[b, number:].any()
    assert (batch.cutoff == np.where(drawn < N, cutoffs[:, None], 0).reshape(-1)).all()


WAYS = [
    ByHops(({"*": 3}, {"*": 2, "cites": 4})),
    ByHops(Neighbors(({"*": 3},) * 3, latest=True), "latest"),
    ByHops(Neighbors(({"*": 4},) * 2, half_life=9), "latest"),
    ByHops(Neighbors(({"*": 3},) * 2, replace=True)),
]


def asked(graph, excluded=True, number=40):
    rng = np.random.default_rng(3)
    nodes = np.r_[rng.permutation(180)[:number], 180, 0, 0].astype(np.int32)
    holes = np.unique(rng.integers(0, graph.num_edges, 200)) if excluded else None
    return Seeds(nodes, rng.choice([5, 20, 60], number + 3), holes)


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_the_kernel_finds_what_plain_jax_finds(way, alike):
    graph, sampler = graph_of(timed=True), Context(20, way, edges=("id", "elapsed"))
    batch = alike(
        lambda state, graph, seeds: sampler.sample(KEY, graph, state, seeds),
        *(sampler.init(graph), graph, asked(graph)),
    )
    assert batch.tokens.mask.sum() > 200
    (block,) = batch.blocks
    real = slice(0, int(block.num_edges))
    sources, targets = block.edge_index()[:, real]
    parent = batch.tokens.parent.reshape(-1)[sources]
    np.testing.assert_array_equal(parent, targets % 20)
    np.testing.assert_array_equal(batch.nodes[sources], graph.indices[block.edge_id[real]])
    np.testing.assert_array_equal(
        block.edge_columns["elapsed"][real], batch.tokens.age.reshape(-1)[sources]
    )


@pytest.mark.parametrize("way", WAYS, ids=repr)
def test_a_context_begins_with_a_smaller_one(way):
    """And does not depend on the other seeds, or their order."""
    graph = graph_of(timed=True)
    few, many = (
        np.asarray(s.sample(KEY, graph, s.init(graph), asked(graph)).nodes).reshape(-1, s.size)
        for s in (Context(7, way), Context(30, way))
    )
    np.testing.assert_array_equal(many[:, :7], few)
    of, sampler = asked(graph), Context(7, way)
    some = Seeds(of.nodes[5:3:-1], of.time[5:3:-1], of.excluded)
    alone = sampler.sample(KEY, graph, sampler.init(graph), some)
    np.testing.assert_array_equal(np.asarray(alone.nodes).reshape(2, 7), few[5:3:-1])
    twice = sampler.sample(KEY, graph, sampler.init(graph), Seeds([0, 0], [60, 60]))
    one, other = np.asarray(twice.nodes).reshape(2, 7)
    np.testing.assert_array_equal(one, other)


def test_a_node_draws_what_neighbors_draws():
    """The law of contexts is that of `Neighbors`: the same bits, at the node's own hop."""
    graph, draws = graph_of(timed=True), Neighbors(({"*": 3}, {"*": 2}), edges=("id",))
    sampler, of = Context(64, draws, edges=("id",)), asked(graph)
    batch = jax.device_get(sampler.sample(KEY, graph, sampler.init(graph), of))
    tokens, block, checked = batch.tokens, batch.blocks[0], 0
    every, mask = batch.nodes.reshape(-1, 64), tokens.mask
    for hop in (0, 1):
        row, place = np.nonzero(mask & (tokens.hop == hop))
        nodes, time = every[row, place], np.asarray(of.time)[row]
        drawn = draws.draw_hop(
            jax.random.key_data(KEY), graph, nodes, hop, 9000, excluded=of.excluded, time=time
        )
        for i, (b, at) in enumerate(zip(row, place, strict=True)):
            own = np.asarray(drawn.neighbors[drawn.indptr[i] : drawn.indptr[i + 1]])
            children = block.indices[block.indptr[b * 64 + at] : block.indptr[b * 64 + at + 1]]
            mine = batch.nodes[children]
            new = [n for n in dict.fromkeys(own.tolist()) if n in mine]
            assert mine.tolist() == new  # what is left out was found before
            before = every[b][mask[b]].tolist()
            assert set(own.tolist()) <= set(before)
            checked += len(own)
    assert checked > 200


def test_super_batches_and_loaders_have_contexts():
    graph, sampler = graph_of(timed=True), Context(12, WAYS[0])
    of = asked(graph, number=61)
    pairs = Seeds(of.nodes.reshape(2, 32), of.time.reshape(2, 32))
    keys, state = jax.random.split(KEY, 2), sampler.init(graph)
    both = sampler.sample(keys, graph, state, pairs)
    for i in range(2):
        one = sampler.sample(keys[i], graph, state, pairs.batch(i))
        np.testing.assert_array_equal(both.nodes[i], one.nodes)
        np.testing.assert_array_equal(both.tokens.parent[i], one.tokens.parent)
    items = {"nodes": of.nodes[:60], "time": of.time[:60]}
    loader = Loader(graph, items, 16, sampler, key=KEY)
    batches = list(loader)
    assert len(batches) == 4
    assert all(b.nodes.shape == (16 * 12,) and not b.overflow for b in batches)


def test_wrong_contexts_are_refused():
    graph = graph_of(timed=True)
    for fanouts in ((-1,), ({"*": -1},), Labor((3,))):
        with refusal("drawn by Neighbors, with a width"):
            Context(8, fanouts)
    with refusal("the size of a context must be an int of at least 1"):
        Context(0, (3,))
    with refusal("order must be one of hop, latest"):
        ByHops((3,), "lates")
    late = Context(8, ByHops(({"*": 3},), "latest"))
    with refusal("counted from the cutoffs of the seeds"):
        late.sample(KEY, graph, (), np.arange(4))
    many = Context(8, ByHops(({"*": 50_000},) * 2, "latest"))
    with refusal("at most 2,147,483,647 tokens together before they are cut"):
        many.sample(KEY, graph, (), Seeds(np.arange(4), np.full(4, 9)))
    with pytest.raises(InputError, match="fanouts by relation"):
        Context(8, (3,)).sample(KEY, graph, (), Seeds(np.arange(4), np.full(4, 9)))
