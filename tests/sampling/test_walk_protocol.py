"""The contract of `jgs.sampling.walks`, for every walker: a walker that is missing here fails.

A new walker needs a line in `jgs.tables.WALKERS` and one in `CASES`.
"""

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
from every_sampler import HOLES
from test_walks_by_time import assert_follows as assert_in_time

from jgs import Graph, InputError, Schema, kernels
from jgs.sampling import Metapath, Node2Vec, Walk, Walker, Walks, algorithms
from jgs.sampling.seeds import Seeds
from jgs.tables import WALKERS

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
    "metapath": [
        (Metapath(("on", "up"), LENGTH, True), Metapath(("on", "up"), LENGTH)),
    ],
}
EVERY = [case for cases in CASES.values() for case in cases]
each = pytest.mark.parametrize(("walker", "other"), EVERY, ids=repr)


@pytest.fixture(scope="module")
def graph(make_graph):
    """Nodes of one type. Rows are sorted by source, which puts one relation's edges first."""
    graph = make_graph(N, E).sorted()
    source, indptr = np.asarray(graph.indices), np.asarray(graph.indptr)
    up = source > np.repeat(np.arange(N), np.diff(indptr))
    schema = Schema((("node", N),), (("node", "on", "node"), ("node", "up", "node")))
    weight = np.asarray(graph.edge_weight)
    return Graph(indptr, source, weight, edge_type=up.astype(np.int16), schema=schema)


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


def test_every_walker_is_in_the_tables():
    found = set()
    prefix = f"{algorithms.__name__}."
    for name in (m.name for m in pkgutil.walk_packages(algorithms.__path__, prefix)):
        module = importlib.import_module(name)
        for value in vars(module).values():
            own = inspect.isclass(value) and value.__module__ == module.__name__
            if own and hasattr(value, "sample") and not hasattr(value, "bound"):
                found.add(value)
    assert found == set(WALKERS.values())
    assert set(CASES) == set(WALKERS)
    for name, cases in CASES.items():
        assert all(type(one) is WALKERS[name] for pair in cases for one in pair)


@each
def test_the_parts_of_the_contract(walker, other, graph):
    assert isinstance(walker, Walker)
    assert walker.length == LENGTH
    with pytest.raises(dataclasses.FrozenInstanceError):
        walker.length = 3
    assert hash(walker) == hash(dataclasses.replace(walker))
    assert walker == dataclasses.replace(walker) != other
    assert repr(walker) != repr(other)
    jax.tree.map(np.asarray, walker.init(graph))  # the state is a pytree of arrays
    for wrong in (None, graph.indptr):
        with pytest.raises(InputError):
            walker.init(wrong)
    for takes, name in ((walker.takes_excluded, "excluded"), (walker.takes_time, "time")):
        if not takes:  # what it does not know is refused, not ignored
            seeds = Seeds(ROOTS, **{name: ROOTS.astype(int)})
            with pytest.raises(InputError, match=f"{type(walker).__name__} must .* {name}"):
                walker.sample(KEY, graph, walker.init(graph), seeds)


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
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    edges = set(zip(np.repeat(np.arange(N), np.diff(indptr)), indices, strict=True))
    for root, row in zip(ROOTS, nodes, strict=False):
        for here, there in itertools.pairwise(row):
            assert there in (N, root) or (here, there) in edges
    assert (draw(other, graph, ROOTS).nodes != nodes).any()


@each
def test_a_function_of_the_key_and_the_roots(walker, other, graph, same_bits):
    one = draw(walker, graph, ROOTS)
    same_bits(draw(walker, graph, ROOTS, jax.random.key_data(KEY)), one)
    assert (draw(walker, graph, ROOTS, jax.random.key(9)).nodes != one.nodes).any()
    twins = of(one, 20)[ROOTS[0] == ROOTS]
    assert len({tuple(row) for row in twins}) == 4 == len(twins)
    order = np.argsort(ROOTS, kind="stable")
    padded = np.r_[N, ROOTS[order], N]
    np.testing.assert_array_equal(of(draw(walker, graph, padded), 21)[1:], of(one, 20)[order])
    np.testing.assert_array_equal(of(draw(walker, graph, ROOTS[:9]), 9), of(one, 9))


@each
def test_jit_traces_once_and_lowers_everywhere(walker, other, graph):
    program, traces = _program(walker)
    draw(walker, graph, ROOTS)
    before = len(traces)
    for i in range(3):
        draw(walker, graph, (ROOTS + i) % N, jax.random.key(i))
    assert len(traces) == before
    for platform in ("cuda", "tpu"):
        traced = program.trace(KEY, graph, walker.init(graph), slots(()))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "callback" not in text
        assert "jgs_" not in text  # the program has no kernel of this host


def assert_follows(walker, graph, roots, nodes, left):
    """Whether every step of the walks `nodes` follows an edge that is `left`, bool `[E]`, or
    jumps back to its root."""
    target = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))[left]
    edges = set(zip(target.tolist(), np.asarray(graph.indices)[left].tolist(), strict=True))
    for root, row in zip(roots.tolist(), np.asarray(nodes).tolist(), strict=True):
        for here, there in itertools.pairwise(row):
            back = there == root and getattr(walker, "restart", 0) > 0
            assert there == N or back or (here, there) in edges


@each
def test_plain_and_kernel_are_equal(walker, other, graph, same_bits, implemented):
    """Also one batch, `vmap` and several batches; each implementation compiles them once. If
    the walker can, each batch excludes edges of its own, and the last one none."""
    keys, roots = jax.random.split(KEY, 3), np.stack([ROOTS, ROOTS[::-1], np.roll(ROOTS, 3)])
    roots[1, 4:] = N
    seeds = Seeds(roots, excluded=HOLES if walker.takes_excluded else None)
    inputs = (keys, graph, walker.init(graph), seeds)

    def one(keys, graph, state, seeds):
        return walker.sample(keys[0], graph, state, seeds.batch(0))

    def separate(keys, graph, state, seeds):
        return walker.sample(keys, graph, state, seeds)

    def mapped(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: walker.sample(k, graph, state, s))(keys, seeds)

    implemented(False)
    plain = jax.jit(separate)(*inputs)
    first = jax.tree.map(lambda a: a[0], plain)
    same_bits(jax.jit(one)(*inputs), first)
    if walker.takes_excluded:
        for i, holes in enumerate(HOLES):
            assert_follows(walker, graph, roots[i], plain.nodes[i], ~np.isin(range(E), holes))
        np.testing.assert_array_equal(
            plain.nodes[2], of(draw(walker, graph, roots[2], keys[2]), 20)
        )
        assert (plain.nodes[0] != of(draw(walker, graph, roots[0], keys[0]), 20)).any()
    for threads in (1, 2, 4) if KERNELS else ():
        implemented(True, threads)
        same_bits(jax.jit(one)(*inputs), first)
    implemented(KERNELS, 2)
    same_bits(jax.jit(separate)(*inputs), plain)
    same_bits(jax.jit(mapped)(*inputs), plain)


TIMED = [
    replace(walker, causal=causal)
    for walker, _ in EVERY
    if walker.takes_time
    for causal in (False, True)
] + [replace(EVERY[0][0], half_life=4, window=30), replace(EVERY[2][0], window=5)]


@pytest.mark.parametrize("walker", TIMED, ids=repr)
def test_cutoffs(walker, graph, same_bits, implemented):
    """Every step follows an edge before its cutoff, also among equal times. A walk depends on
    the number of earlier roots that are the same node with the same cutoff. Plain and kernel
    are equal, also for several batches."""
    indptr, source = np.asarray(graph.indptr), np.asarray(graph.indices)
    target = np.repeat(np.arange(N), np.diff(indptr))
    kind = np.asarray(graph.edge_type) if walker.by_relation else np.zeros(E, int)
    first = np.searchsorted(2 * target + kind, 2 * target + kind)
    time = (np.arange(E) - first) // 2 - 3  # every two edges of a run have the same time
    types = {"edge_type": graph.edge_type, "schema": graph.schema} if walker.by_relation else {}
    timed = Graph(indptr, source, np.asarray(graph.edge_weight), edge_time=time, **types)
    roots, cutoffs = ROOTS.copy(), np.resize([0, 3, 40], 20)
    roots[[0, 3, 7, 11]], cutoffs[[0, 3, 7, 11]] = 2, [3, 3, 40, 40]  # of a node of many edges
    holes = HOLES[:2] if walker.takes_excluded else None
    seeds = Seeds(np.stack([roots, roots[::-1]]), np.stack([cutoffs, cutoffs + 1]), holes)
    inputs = jax.random.split(KEY), timed, walker.init(timed), seeds

    def one(keys, graph, state, seeds):
        return walker.sample(keys[0], graph, state, seeds.batch(0))

    def separate(keys, graph, state, seeds):
        return walker.sample(keys, graph, state, seeds)

    def mapped(keys, graph, state, seeds):
        return jax.vmap(lambda k, s: walker.sample(k, graph, state, s))(keys, seeds)

    implemented(False)
    plain = jax.jit(separate)(*inputs)
    first = jax.tree.map(lambda a: a[0], plain)
    for threads in (1, 2, 4) if KERNELS else ():
        implemented(True, threads)
        same_bits(jax.jit(one)(*inputs), first)
    implemented(KERNELS, 2)
    for several in (separate, mapped):
        same_bits(jax.jit(several)(*inputs), plain)
    for i in (0, 1):
        left = ~np.isin(range(E), HOLES[i]) if walker.takes_excluded else slice(None)
        edges = zip(*(a[left].tolist() for a in (source, target, time)), strict=True)
        nodes = np.asarray(plain.nodes[i])
        assert_in_time(edges, N, walker, np.asarray(seeds.time[i]), nodes)
    nodes = np.asarray(first.nodes)
    if not walker.by_relation:  # this node has few edges of the first relation
        assert len({tuple(nodes[i]) for i in (0, 3, 7, 11)}) > 2  # more than cutoffs
    apart = np.r_[7, 11, np.delete(np.arange(20), [7, 11])]
    own = Seeds(*(a[:, apart] for a in (seeds.nodes, seeds.time)), holes)
    moved = jax.jit(one)(*inputs[:3], own)
    np.testing.assert_array_equal(moved.nodes, nodes[apart])
