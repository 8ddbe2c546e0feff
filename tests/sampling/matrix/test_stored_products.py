"""Edge values of the whole graph that slices read: the samples stay, `init` has the arrays, and
timing decides."""

import dataclasses
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jgs import Graph, InputError, kernels
from jgs.sampling import Capacity, Seeds, worst_case
from jgs.sampling.matrix import Matrix, MatrixSampler, choose_stored, layout, stack

N, E, SEEDS = 120, 2000, np.arange(0, 40, 2, dtype=np.int32)
KEY = jax.random.key(3)


def features(A):
    return A.graph.node_columns["features"]


VALUES = {
    "power": lambda A: A**2,
    "mean": lambda A: A.div(A.count(axis=0), axis=0),
    "dot": lambda A: A.dot(features(A), features(A)),
    "chain": lambda A: (2 - A.div(A.sum(axis=1), axis=1)).dot(features(A), features(A)) ** 2,
    "narrow": lambda A: A.dot(features(A)[:, :18], features(A)[:, :18]),
    "exp": lambda A: A.dot(features(A), features(A)).map(jnp.exp),
}


@dataclasses.dataclass(frozen=True)
class Sliced(MatrixSampler):
    """Values of the whole graph, sliced afterwards."""

    values: str = "power"
    node_wise: bool = False

    def layer(self, A, frontier, k):
        sub = VALUES[self.values](A)[:, frontier]
        if self.node_wise:
            return sub.individual_sample(k, sub.map(jnp.abs))
        sample = sub.collective_sample(k, (sub**2).sum(axis=1))
        return sample.div(sample.row_probs, axis=1)


@dataclasses.dataclass(frozen=True)
class OfTheBatch(MatrixSampler):
    """Values of the whole graph that the batch decides."""

    def layer(self, A, frontier, k):
        near = jnp.ones(A.graph.num_nodes, jnp.float32).at[frontier].add(1, mode="drop")
        return A.mul(near, axis=1)[:, frontier].individual_sample(k)


@dataclasses.dataclass(frozen=True)
class RowsFirst(MatrixSampler):
    """Draws rows of the whole graph by the batch, and slices their edges."""

    def layer(self, A, frontier, k):
        near = jnp.ones(A.graph.num_nodes, jnp.float32).at[frontier].add(1, mode="drop")
        return VALUES["dot"](A).collective_sample(k, near)[:, frontier]


@dataclasses.dataclass(frozen=True)
class WithArrays(MatrixSampler):
    def arrays(self, graph):
        return jnp.ones(3)

    def layer(self, A, frontier, k, state):
        return (A**2)[:, frontier].individual_sample(k)


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, N, (2, E))
    weight = rng.random(E, np.float32) + 0.1
    x = rng.standard_normal((N, 19), np.float32) / 4
    return Graph.from_edges(src, dst, N, weight).with_node_columns(features=x)


def both(sampler):
    return [dataclasses.replace(sampler, stored=stored) for stored in (False, True)]


def without_weights(batch):
    """The batch without its weights, and these."""
    blocks = [dataclasses.replace(block, edge_weight=None) for block in batch.blocks]
    weights = [block.edge_weight for block in batch.blocks]
    return dataclasses.replace(batch, blocks=tuple(blocks)), weights


def edge_arrays(state):
    """The distinct arrays of the state that have an entry for each edge."""
    return {id(a): a for a in jax.tree.leaves(state) if a.shape[:1] == (E,)}.values()


def drawn(sampler, graph, seeds=SEEDS):
    capacity = worst_case(graph, SEEDS.size, dataclasses.replace(sampler, stored=False))
    draw = jax.jit(sampler.sample, static_argnums=4)
    batch = draw(KEY, graph, sampler.init(graph), seeds, capacity)
    assert not batch.overflow
    return batch


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("values", sorted(set(VALUES) - {"narrow"}))
def test_what_is_stored_changes_no_bit_of_a_sample(
    graph, implemented, same_bits, values, kernel
):
    if kernel and not kernels.available():
        pytest.skip("needs the kernels")
    implemented(kernel)
    excluded = Seeds(SEEDS, excluded=np.arange(0, E, 5))
    cases = (False, False, SEEDS), (True, True, excluded)
    for node_wise, compact, seeds in cases[: 1 + kernel]:
        sampler = Sliced(
            (9, 8), weighted=not node_wise, compact=compact, values=values, node_wise=node_wise
        )
        one, other = (drawn(each, graph, seeds) for each in both(sampler))
        assert int(one.blocks[0].num_edges) > 0
        if values == "mean":  # XLA makes `a / (b * c)` of the two divisions of a weight
            (one, weights), (other, others) = map(without_weights, (one, other))
            for a, b in zip(weights, others, strict=True):
                np.testing.assert_allclose(a, b, rtol=3e-7)
        same_bits(one, other)


@pytest.mark.parametrize("values", VALUES)
def test_the_state_has_an_array_of_edges_only_if_it_is_stored(graph, values):
    computed, stored = (each.init(graph) for each in both(Sliced((9, 8), values=values)))
    (found,) = edge_arrays(stored)  # both layers share it
    assert (found.shape, found.dtype) == ((E,), jnp.float32)
    wanted = jax.jit(lambda graph: VALUES[values](Matrix(graph)).values)(graph.unweighted())
    np.testing.assert_array_equal(found, wanted)
    if values == "exp":  # a map of all edges is an array already
        assert len(edge_arrays(computed)) == 1
    else:
        assert not edge_arrays(computed)
    # Nothing else is kept for each edge, such as the edges' ends.
    assert sum(a.nbytes for a in jax.tree.leaves(stored[0])) <= 4 * E + 4


def test_rows_that_the_batch_draws_read_what_is_stored(graph, same_bits):
    computed, stored = both(RowsFirst((60,)))
    state, capacity = stored.init(graph), Capacity((700, 300), (20, 80))
    assert len(edge_arrays(state)) == 1
    draw = jax.make_jaxpr(stored.sample, static_argnums=4)
    text = str(draw(KEY, graph, state, SEEDS, capacity))
    assert f"f32[{E}]" in text  # it is read,
    assert not re.search(rf"f32\[{E}\] = ", text)  # and nothing is computed of all edges
    assert not edge_arrays(computed.init(graph))
    same_bits(drawn(computed, graph), drawn(stored, graph))


def test_super_batches_read_what_is_stored(graph, same_bits, implemented):
    keys = jax.random.key_data(jax.random.split(KEY, 6))
    seeds = np.stack([SEEDS + i for i in range(6)])
    sampler = Sliced((9, 8), values="dot", stored=True)
    capacity, state = worst_case(graph, SEEDS.size, sampler), sampler.init(graph)
    together = jax.jit(sampler.sample_separately, static_argnums=4)
    one = jax.jit(dataclasses.replace(sampler, stored=False).sample, static_argnums=4)
    alone = [one(key, graph, (), each, capacity) for key, each in zip(keys, seeds, strict=True)]
    same_bits(together(keys, graph, state, seeds, capacity), alone)
    implemented(False)  # in plain JAX they are drawn under `jax.vmap`
    same_bits(together(keys, graph, state, seeds, capacity), alone)


def test_values_of_the_whole_graph_keep_their_results(graph):
    """A slice of such values is what the slice's own edges have of a dense matrix."""
    columns = np.array([5, N, 3, 80], np.int32)
    A = Matrix(graph)
    values, x = np.asarray(A.values), np.asarray(graph.node_columns["features"])
    target = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
    inner = (x[np.asarray(graph.indices)] * x[target]).sum(1)
    largest = np.full(N, -np.inf, np.float32)
    np.maximum.at(largest, target, values)
    shifted = np.exp(values - largest[target])
    at = np.concatenate([np.flatnonzero(target == c) for c in columns])
    for store in (False, True):
        A = Matrix(graph, store=store)
        for found, wanted in (
            (A.dot(x, x), values * inner),
            (A.map(lambda v: v / v.max()), values / values.max()),
            (A.softmax(), shifted / np.bincount(target, shifted, N)[target]),
            (stack([A, A**2]), np.stack([values, values**2], 1)),
            ((A + 1).dot(x, x) / 2, (values + 1) * inner / 2),
        ):
            np.testing.assert_allclose(found.values, wanted, rtol=2e-5, atol=1e-6)
            part = found[:, columns]
            assert int(part.num_edges) == at.size
            assert not part.overflow
            np.testing.assert_allclose(part.values[: at.size], wanted[at], rtol=2e-5, atol=1e-6)
            rows = part[[7, 9, 80], :]
            kept = np.isin(np.asarray(graph.indices)[at], [7, 9, 80])
            np.testing.assert_allclose(
                rows.values[: kept.sum()], wanted[at][kept], rtol=2e-5, atol=1e-6
            )
        none = A.dot(x, x)[np.zeros(0, np.int32), :]
        assert int(none.num_edges) == 0
        assert float(none.sum(axis=0).sum()) == 0
    for wrong in (x[:3], x[:, 0]):
        with pytest.raises(InputError, match="dot takes matrices"):
            A.dot(wrong, wrong)
    with pytest.raises(InputError, match="one row for each of 2000 edges"):
        A.with_values(jnp.ones(3))


def test_a_slice_of_inner_products_copies_no_matrix_of_all_nodes(graph):
    """Whatever the width: padding it to whole steps of a loop would copy `[N, D]` each time."""
    columns = np.array([0, 5, 9], np.int32)
    for width in (16, 18, 35):
        x = jnp.asarray(np.random.default_rng(width).normal(size=(N, width)), jnp.float32)
        program = jax.make_jaxpr(lambda x: Matrix(graph).dot(x, x)[:, columns].values)
        assert not re.search(rf"f32\[{N},\d+\] = pad", str(program(x)))
        found = Matrix(graph).dot(x, x)[:, columns]
        target = np.repeat(np.arange(N), np.diff(np.asarray(graph.indptr)))
        edges = np.concatenate([np.flatnonzero(target == c) for c in columns])
        inner = (x[np.asarray(graph.indices)[edges]] * x[target[edges]]).sum(1)
        wanted = np.asarray(Matrix(graph).values)[edges] * inner
        np.testing.assert_allclose(found.values[: edges.size], wanted, rtol=1e-4, atol=1e-5)


def test_a_graph_without_edges_stores_nothing(same_bits):
    empty = Graph.from_edges([], [], N).with_node_columns(features=np.ones((N, 2), np.float32))
    for values in ("chain", "exp"):
        same_bits(*(drawn(each, empty) for each in both(Sliced((3,), values=values))))


@pytest.mark.parametrize("slow", ["computed", "stored"])
def test_the_faster_way_is_chosen(graph, monkeypatch, caplog, slow):
    """The clock says that one of the two, which are drawn in turn, takes a second more."""
    now, calls = [0.0], itertools.count()

    def clock():
        number = next(calls)
        of_computed = number % 4 < 2
        now[0] += 1 + (number % 2 and of_computed == (slow == "computed"))
        return now[0]

    monkeypatch.setattr(layout.time, "perf_counter", clock)
    monkeypatch.setattr(layout, "_chosen", {})
    sampler = Sliced((5,), values="dot")
    with caplog.at_level("INFO", "jgs"):
        chosen = [choose_stored(graph, SEEDS.size, sampler) for _ in range(2)]
    assert chosen == [dataclasses.replace(sampler, stored=slow == "computed")] * 2
    assert caplog.text.count("whole-graph values of Sliced") == 1
    layout_too = layout.choose_layout(graph, SEEDS.size, chosen[0])
    assert layout_too.stored == chosen[0].stored  # the choices do not mix


def test_nothing_is_stored_without_reason_or_above_the_limit(graph, monkeypatch):
    monkeypatch.setattr(layout, "_chosen", {})
    monkeypatch.setattr(layout, "_medians", lambda *_: (2.0, 1.0))  # to store is faster
    two = Sliced((5, 4), values="power")
    bytes_of = 2 * 4 * E  # of two layers, before they share
    for memory, stored in ((None, True), (bytes_of, True), (bytes_of - 1, False), (0, False)):
        assert choose_stored(graph, SEEDS.size, two, memory=memory).stored == stored
    # Without it `init` has the narrow features, which take more than the values.
    narrow = Sliced((5,), values="narrow")
    assert N * 18 > E
    for memory, stored in ((4 * E, True), (4 * E - 1, False)):
        assert choose_stored(graph, SEEDS.size, narrow, memory=memory).stored == stored
    monkeypatch.setattr(layout, "_chosen", {})
    monkeypatch.setattr(layout, "_medians", lambda *_: (2.0, 1.9))  # not worth the memory
    assert not choose_stored(graph, SEEDS.size, two).stored
    already = dataclasses.replace(two, stored=True)
    assert not choose_stored(graph, SEEDS.size, already, memory=0).stored
    for other in (WithArrays((5,)), Sliced((5,), values="exp")):
        assert choose_stored(graph, SEEDS.size, other) == other  # there is nothing to choose
    with pytest.raises(InputError, match="memory must not be negative"):
        choose_stored(graph, SEEDS.size, two, memory=-1)
    with pytest.raises(InputError, match="arrays of its own stores nothing"):
        WithArrays((5,), stored=True)


def test_values_that_the_batch_decides_are_right_when_stored(graph, same_bits):
    same_bits(*(drawn(each, graph) for each in both(OfTheBatch((5, 4)))))
