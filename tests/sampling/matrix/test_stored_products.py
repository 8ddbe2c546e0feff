"""Edge values of the whole graph that slices read: the samples stay, and timing decides."""

import dataclasses
import itertools
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases, rarely
from refusals import refused

from jgs import Graph, kernels
from jgs.sampling import Capacity, Seeds, choices, worst_case
from jgs.sampling.matrix import Matrix, MatrixSampler, choose_stored

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


def near(A, frontier):
    return jnp.ones(A.graph.num_nodes, jnp.float32).at[frontier].add(1, mode="drop")


class OfTheBatch(MatrixSampler):
    """Values of the whole graph that the batch decides."""

    def layer(self, A, frontier, k):
        return A.mul(near(A, frontier), axis=1)[:, frontier].individual_sample(k)


class RowsFirst(MatrixSampler):
    """Draws rows of the whole graph by the batch, and slices their edges."""

    def layer(self, A, frontier, k):
        return VALUES["dot"](A).collective_sample(k, near(A, frontier))[:, frontier]


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


@pytest.fixture
def same_sample(same_bits):
    """Asserts that two batches have the same bits, but for how sums of weights are rounded."""

    def check(batch, other):
        blocks = []
        for mine, theirs in zip(batch.blocks, other.blocks, strict=True):
            weight = mine.edge_weight
            np.testing.assert_allclose(weight, theirs.edge_weight, rtol=1e-5, atol=1e-5)
            blocks.append(dataclasses.replace(theirs, edge_weight=weight))
        same_bits(batch, dataclasses.replace(other, blocks=tuple(blocks)))

    return check


def edge_arrays(state):
    """The distinct arrays of the state that have an entry for each edge."""
    return {id(a): a for a in jax.tree.leaves(state) if a.shape[:1] == (E,)}.values()


def drawn(sampler, graph, seeds=SEEDS):
    capacity = worst_case(graph, SEEDS.size, dataclasses.replace(sampler, stored=False))
    draw = jax.jit(sampler.sample, static_argnums=4)
    batch = draw(KEY, graph, sampler.init(graph), seeds, capacity)
    assert not batch.overflow
    return batch


BY_NODE = {"node_wise": True, "compact": True}


STORED = [
    (Sliced((9, 8), **BY_NODE), False),
    (Sliced((9,), values="mean", weighted=True), False),
    (Sliced((9,), values="dot", weighted=True), False),
    (Sliced((9,), values="chain", weighted=True), True),
    (Sliced((9,), values="chain", **BY_NODE), False),
    (Sliced((9,), values="exp", **BY_NODE), False),
    (RowsFirst((60,)), False),
    (OfTheBatch((5, 4)), False),
]


@cases("sampler, plain", *rarely(STORED, 1, 2, 4, 7), ids=repr)
def test_what_is_stored_changes_no_sample(graph, same_sample, sampler, plain):
    """In the compact layout with excluded edges."""
    seeds = Seeds(SEEDS, excluded=np.arange(0, E, 5)) if sampler.compact else SEEDS
    with kernels.plain(plain):
        one, other = (drawn(each, graph, seeds) for each in both(sampler))
    assert int(one.blocks[0].num_edges) > 0
    same_sample(one, other)


@pytest.mark.parametrize("values", VALUES)
def test_the_state_has_an_array_of_edges_only_if_it_is_stored(graph, values):
    computed, stored = (each.init(graph) for each in both(Sliced((9, 8), values=values)))
    (found,) = edge_arrays(stored)  # both layers share it
    assert (found.shape, found.dtype) == ((E,), jnp.float32)
    wanted = jax.jit(lambda graph: VALUES[values](Matrix(graph)).values)(graph.unweighted())
    np.testing.assert_array_equal(found, wanted)
    # A map of all edges is an array already.
    assert len(edge_arrays(computed)) == (values == "exp")
    # Nothing else is kept for each edge, such as the edges' ends.
    assert sum(a.nbytes for a in jax.tree.leaves(stored[0])) <= 4 * E + 4


def test_a_graph_without_edges_stores_nothing(same_sample):
    empty = Graph.from_edges([], [], N).with_node_columns(features=np.ones((N, 2), np.float32))
    for values in ("chain", "exp"):
        same_sample(*(drawn(each, empty) for each in both(Sliced((3,), values=values))))


@pytest.mark.parametrize("slow", ["computed", "stored"])
def test_the_faster_way_is_chosen(graph, monkeypatch, caplog, slow):
    """The clock says that one of the two, which are drawn in turn, takes a second more."""
    steps = (1, 1, 2, 1) if slow == "computed" else (2, 1, 1, 1)  # the first draws have no end
    clock = itertools.accumulate(itertools.cycle(steps), initial=0.0)
    monkeypatch.setattr(choices, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(choices, "_chosen", {})
    sampler = Sliced((5,), values="dot")
    with caplog.at_level("INFO", "jgs"):
        chosen = [choose_stored(graph, SEEDS.size, sampler) for _ in range(2)]
    assert chosen == [dataclasses.replace(sampler, stored=slow == "computed")] * 2
    assert caplog.text.count("whole-graph values of Sliced") == 1
    other = choices.choose_layout(graph, SEEDS.size, chosen[0])
    assert other.stored == chosen[0].stored  # the choices do not mix


def test_nothing_is_stored_without_reason_or_above_the_limit(graph, monkeypatch):
    monkeypatch.setattr(choices, "_chosen", {})
    monkeypatch.setattr(choices, "_of_samplers", lambda *_: (2.0, 1.0))  # to store is faster
    two = Sliced((5, 4), values="power")
    bytes_of = 2 * 4 * E  # of two layers, before they share
    for memory, stored in ((None, True), (bytes_of, True), (bytes_of - 1, False), (0, False)):
        assert choose_stored(graph, SEEDS.size, two, memory=memory).stored == stored
    # Without it `init` has the narrow features, which take more than the values.
    narrow = Sliced((5,), values="narrow")
    assert N * 18 > E
    for memory, stored in ((4 * E, True), (4 * E - 1, False)):
        assert choose_stored(graph, SEEDS.size, narrow, memory=memory).stored == stored
    monkeypatch.setattr(choices, "_chosen", {})
    monkeypatch.setattr(choices, "_of_samplers", lambda *_: (2.0, 1.9))  # not worth the memory
    assert not choose_stored(graph, SEEDS.size, two).stored
    already = dataclasses.replace(two, stored=True)
    assert not choose_stored(graph, SEEDS.size, already, memory=0).stored
    for other in (WithArrays((5,)), Sliced((5,), values="exp")):
        assert choose_stored(graph, SEEDS.size, other) == other  # there is nothing to choose
    refused("memory must not be negative", choose_stored, graph, SEEDS.size, two, memory=-1)
    refused("arrays of its own stores nothing", WithArrays, (5,), stored=True)


def test_rows_that_the_batch_draws_read_what_is_stored(graph):
    computed, stored = both(RowsFirst((60,)))
    state, capacity = stored.init(graph), Capacity((700, 300), (20, 80))
    assert len(edge_arrays(state)) == 1
    draw = jax.make_jaxpr(stored.sample, static_argnums=4)
    text = str(draw(KEY, graph, state, SEEDS, capacity))
    assert f"f32[{E}]" in text  # it is read,
    assert not re.search(rf"f32\[{E}\] = ", text)  # and nothing is computed of all edges
    assert not edge_arrays(computed.init(graph))


def test_super_batches_read_what_is_stored(graph, same_sample):
    keys = jax.random.key_data(jax.random.split(KEY, 6))
    seeds = np.stack([SEEDS + i for i in range(6)])
    sampler = Sliced((9,), values="dot", stored=True)
    capacity, state = worst_case(graph, SEEDS.size, sampler), sampler.init(graph)
    together = jax.jit(sampler.sample_separately, static_argnums=4)
    one = jax.jit(dataclasses.replace(sampler, stored=False).sample, static_argnums=4)
    alone = [one(key, graph, (), each, capacity) for key, each in zip(keys, seeds, strict=True)]
    for plain in (False, True):  # in plain JAX they are drawn under `jax.vmap`
        with kernels.plain(plain):
            batches = together(keys, graph, state, seeds, capacity)
        for batch, other in zip(batches, alone, strict=True):
            same_sample(batch, other)


def test_a_slice_of_inner_products_copies_no_matrix_of_all_nodes(graph):
    """Whatever the width: padding it to whole steps of a loop would copy `[N, D]` each time."""
    columns = np.array([0, 5, 9], np.int32)
    program = jax.make_jaxpr(lambda x: Matrix(graph).dot(x, x)[:, columns].values)
    for width in (16, 18, 35):
        assert not re.search(rf"f32\[{N},\d+\] = pad", str(program(jnp.ones((N, width)))))
