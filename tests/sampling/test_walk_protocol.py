"""The contract of `jgs.sampling.walks`, for every walker: a walker that is missing here fails.

A new walker needs a line in `jgs.tables.WALKERS` and one in `CASES`.
"""

import itertools
from functools import cache

import jax
import numpy as np
import programs
import pytest
from every_sampler import HOLES, assert_contract, assert_lowers

from jgs import Graph, Schema, kernels
from jgs.sampling import Metapath, Node2Vec, Walk, Walker, Walks
from jgs.sampling.seeds import Seeds

N, E, SLOTS, LENGTH = 300, 4000, 24, 9
KERNELS = kernels.available()
KEY = jax.random.key(3)
ROOTS = np.random.default_rng(1).integers(0, N, 20).astype(np.int32)
ROOTS[[3, 7, 11]] = ROOTS[0]
# For each walker: settings to test, and other settings that draw differently.
CASES = {
    "walk": [
        (Walk(LENGTH), Walk(LENGTH, stop=0.1)),
        (Walk(LENGTH, weighted=True, restart=0.2, stop=0.05), Walk(LENGTH)),
    ],
    "node2vec": [
        (Node2Vec(LENGTH, 2, 0.5), Node2Vec(LENGTH)),
        (Node2Vec(LENGTH, 0.1, 3, weighted=True), Node2Vec(LENGTH, 0.1, weighted=True)),
    ],
    "metapath": [(Metapath(("on", "up"), LENGTH, True), Metapath(("on", "up"), LENGTH))],
}
EVERY = [case for cases in CASES.values() for case in cases]
each = pytest.mark.parametrize(("walker", "other"), EVERY, ids=repr)


@pytest.fixture(scope="module")
def graph(make_graph):
    """Nodes of one type. Rows are sorted by source, which puts one relation's edges first."""
    graph = make_graph(N, E).sorted()
    source, target = graph.edge_index()
    schema = Schema((("node", N),), (("node", "on", "node"), ("node", "up", "node")))
    weight = np.asarray(graph.edge_weight)
    up = (source > target).astype(np.int16)
    return Graph(graph.indptr, source, weight, edge_type=up, schema=schema)


@cache
def _program(walker):
    """The walker's jitted `sample`, and a list that grows with every trace."""
    traces = []

    def sample(key, graph, state, seeds):
        traces.append(None)
        return walker.sample(key, graph, state, seeds)

    return jax.jit(sample), traces


def slots(roots):
    return np.r_[roots, np.full(SLOTS - len(roots), N)].astype(np.int32)


def draw(walker, graph, roots, key=KEY):
    """The walks of `roots`, padded to `SLOTS`, so that one compiled program serves all."""
    return _program(walker)[0](key, graph, walker.init(graph), slots(roots))


def of(walks, count):
    return np.asarray(walks.nodes)[:count]


@each
def test_the_parts_of_the_contract(walker, other, graph):
    assert isinstance(walker, Walker)
    assert walker.length == LENGTH
    assert_contract(walker, other, graph, ROOTS)


@each
def test_walks_go_along_edges(walker, other, graph):
    walks = draw(walker, graph, ROOTS)
    nodes, lengths = map(np.asarray, walks)
    assert isinstance(walks, Walks)
    assert nodes.shape == (SLOTS, LENGTH + 1)
    assert nodes.dtype == lengths.dtype == np.int32
    np.testing.assert_array_equal(nodes[:, 0], slots(ROOTS))
    steps = (nodes[:, 1:] < N).sum(1)
    np.testing.assert_array_equal(lengths, steps)
    assert lengths[:20].max() == LENGTH
    assert not lengths[20:].any()
    assert_follows(walker, graph, ROOTS, nodes)
    assert (draw(other, graph, ROOTS).nodes != nodes).any()


@each
def test_a_function_of_the_key_and_the_roots(walker, other, graph, same_bits):
    """The program is traced once for all keys and roots."""
    one, traces = draw(walker, graph, ROOTS), _program(walker)[1]
    before = len(traces)
    assert (draw(walker, graph, ROOTS, jax.random.key(9)).nodes != one.nodes).any()
    twins = of(one, 20)[ROOTS[0] == ROOTS]
    assert len({tuple(row) for row in twins}) == 4 == len(twins)
    order = np.argsort(ROOTS, kind="stable")
    padded = np.r_[N, ROOTS[order], N]
    np.testing.assert_array_equal(of(draw(walker, graph, padded), 21)[1:], of(one, 20)[order])
    np.testing.assert_array_equal(of(draw(walker, graph, ROOTS[:9]), 9), of(one, 9))
    assert len(traces) == before
    same_bits(draw(walker, graph, ROOTS, jax.random.key_data(KEY)), one)


@each
def test_a_program_lowers_everywhere(walker, other, graph):
    assert_lowers(_program(walker)[0], KEY, graph, walker.init(graph), slots(()))


def assert_follows(walker, graph, roots, nodes, left=slice(None)):
    """Each step follows an edge that is `left`, or jumps back to its root."""
    edges = {*map(tuple, graph.edge_index()[::-1, left].T.tolist())}
    for root, row in zip(roots.tolist(), np.asarray(nodes).tolist(), strict=False):
        for here, there in itertools.pairwise(row):
            back = there == root and getattr(walker, "restart", 0) > 0
            assert there == N or back or (here, there) in edges


@each
def test_plain_and_kernel_are_equal(walker, other, graph, same_bits, implemented):
    """Alone, together and under `vmap`; batches exclude edges of their own, the last none."""
    keys, roots = jax.random.split(KEY, 3), np.stack([ROOTS, ROOTS[::-1], np.roll(ROOTS, 3)])
    roots[1, 4:] = N
    seeds = Seeds(roots, excluded=HOLES if walker.takes_excluded else None)
    whole = [of(draw(walker, graph, roots[i], keys[i]), 20) for i in (0, 2)]
    inputs = keys, graph, walker.init(graph), seeds

    def one(keys, graph, state, seeds):
        return walker.sample(keys[0], graph, state, seeds.batch(0))

    def separate(keys, graph, state, seeds):
        return walker.sample(keys, graph, state, seeds)

    def mapped(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: walker.sample(k, graph, state, s))(keys, seeds)

    with kernels.plain():  # how weights are rounded decides the walks
        several = jax.jit(separate, compiler_options=programs.OPTIMISED)
        plain = jax.device_get(several(*inputs))
    for threads, program in ((4, mapped), (1, separate), (2, one)):
        implemented(KERNELS, threads)
        wanted = jax.tree.map(lambda a: a[0], plain) if program is one else plain
        same_bits(jax.jit(program)(*inputs), wanted)
    if walker.takes_excluded:
        for i, holes in enumerate(HOLES):
            assert_follows(walker, graph, roots[i], plain.nodes[i], ~np.isin(range(E), holes))
        assert (plain.nodes[0] != whole[0]).any()
    np.testing.assert_array_equal(plain.nodes[2], whole[1])
