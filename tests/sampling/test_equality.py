"""Implementation, threads, `jit`, `shard_map` and names of inputs never change a sample."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from cases import cases, rarely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jgs
from jgs.sampling import Capacity, sample_neighbors

KEY = jax.random.key(4)
BOTH = (False, True)
MODES = [{"replace": replace, "weighted": weighted} for replace in BOTH for weighted in BOTH]
CASES = [(mode, (3, 2)) for mode in MODES]
CASES += [(mode, fanouts) for mode in MODES[:2] for fanouts in ((-1, 1), (70,))]  # a long scan
EXTRAS = {"return_edge_ids": True, "return_edge_weights": True}


def both(fanouts, capacity=None, **mode):
    """A program: a sample with local ids of its inputs, and with `relabel_inputs=False`."""

    def program(key, graph, seeds):
        args = key, graph, seeds, fanouts, capacity
        draw = functools.partial(sample_neighbors, *args, **mode, **EXTRAS)
        return draw(), draw(relabel_inputs=False)

    return program


def graph_from(num_nodes: int, degrees: list[int], seed: int, num_edges: int) -> jgs.Graph:
    """Rows of the given degrees, cut or filled up to exactly `num_edges`, so shapes recur."""
    rng = np.random.default_rng(seed)
    dst = np.repeat(np.arange(len(degrees)) % num_nodes, degrees)[:num_edges]
    dst = np.concatenate([dst, rng.integers(0, num_nodes, num_edges - dst.size)])
    weight = rng.choice([0.0, 1e-30, 0.5, 1.0, 3e8], num_edges)
    return jgs.Graph.from_edges(rng.integers(0, num_nodes, num_edges), dst, num_nodes, weight)


@pytest.fixture
def assert_direct(same_bits):
    """Asserts that `direct` is `full`, bit for bit, with its inputs named by node id."""

    def check(direct, full):
        block, padding, nodes = full.blocks[0], np.int32(full.num_nodes), np.asarray(full.nodes)
        real = np.arange(block.edge_capacity) < block.num_edges
        inputs = dataclasses.replace(
            block,
            indices=np.where(real, nodes[np.where(real, block.indices, 0)], padding),
            num_sources=np.where(full.overflow, np.int32(0), padding),
            source_capacity=full.num_nodes,
        )
        targets = np.arange(block.target_capacity)
        own = np.where(targets < block.num_targets, nodes[targets], padding)
        blocks, needed = (inputs, *full.blocks[1:]), direct.needed
        changed = {"nodes": own, "blocks": blocks, "needed": needed, "direct_inputs": True}
        same_bits(direct, dataclasses.replace(full, **changed))
        for layer in range(len(blocks)):
            np.testing.assert_array_equal(direct.target_nodes(layer), full.target_nodes(layer))

    return check


@pytest.mark.parametrize(("mode", "fanouts"), rarely(CASES, 3, 5, 6, 7), ids=str)
def test_kernel_is_plain(mode, fanouts, alike, assert_direct):
    # Room for all neighbours of repeated seeds, so that nothing overflows.
    capacity = Capacity((1024, 2048)[: len(fanouts)], (1100, 3200)[: len(fanouts)])
    program = both(fanouts, capacity, **mode)

    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.integers(0, 90), max_size=9), st.integers(0, 2**32 - 1), st.data())
    def check(degrees, seed, data):
        graph = graph_from(20, degrees, seed, num_edges=120)
        seeds = data.draw(st.lists(st.integers(0, 20), min_size=6, max_size=6))
        args = jax.random.key(seed), graph, np.int32(seeds)
        full, direct = alike(program, *args, threads=(2,), optimised=mode["weighted"])
        assert not full.overflow
        assert_direct(direct, full)

    check()


@pytest.mark.parametrize("mode", rarely(MODES, 0, 1, 3), ids=str)
def test_tiny_graphs_and_batches_of_padding(mode, alike, assert_direct):
    program, keys = both((2, 2), **mode), jax.random.split(KEY, 3)
    for n, num_edges in ((1, 0), (1, 4), (2, 1)):
        edges = np.zeros(num_edges, int)
        graph = jgs.Graph.from_edges(edges, edges, n, np.arange(num_edges))
        seeds = np.int32([[0, n - 1, n, n], [n, n, n, n], [n, 0, n, n]])
        full, direct = alike(program, keys, graph, seeds, threads=(0,))
        for i in range(3):
            assert_direct(*(jax.tree.map(lambda a, i=i: a[i], of) for of in (direct, full)))


@pytest.mark.parametrize("mode", rarely(MODES, 1, 2, 3), ids=str)
def test_parallel_sizes(mode, alike, assert_direct, make_graph):
    seeds = np.random.default_rng(1).permutation(20_000)[:3000].astype(np.int32)
    args = KEY, make_graph(20_000, 400_000), seeds
    full, direct = alike(both((4, 6), **mode), *args, threads=(1, 2, 4), optimised=True)
    assert full.blocks[0].num_edges > 40_000  # enough for several chunks and threads
    assert_direct(direct, full)


def test_the_last_hops_direct_inputs_need_no_room(alike, assert_direct, make_graph):
    """What does not fit elsewhere is flagged and empty."""
    args = KEY, make_graph(300, 4000), np.arange(6, dtype=np.int32)

    def drawn(edges, sources):
        return alike(both((4, 3), Capacity(edges, sources)), *args)

    few = int(sample_neighbors(*args, (4, 3)).blocks[1].num_sources)
    (short, direct), (full, _) = (drawn((99, 99), (few, room)) for room in (few, 9999))
    assert short.overflow
    assert not direct.overflow
    assert_direct(direct, full)
    for sizes in (((99, 5), (99, 99)), ((99, 99), (8, 99))):
        full, direct = drawn(*sizes)
        assert direct.overflow
        assert_direct(direct, full)


def test_the_sample_of_a_key_is_fixed_for_ever(sample_with):
    """A change of these values changes every published run, so it needs a new major version."""
    graph = jgs.Graph.from_edges(np.arange(20) * 7 % 10, np.arange(20) % 4, 10)
    batch = sample_with("plain", jax.random.key(2026), graph, np.array([0, 1, 2, 3]), (2, 2))
    assert np.asarray(batch.blocks[-1].indices).tolist() == [4, 0, 3, 5, 0, 2, 6, 5]
    nodes = np.asarray(batch.nodes)[: int(batch.blocks[0].num_sources)]
    assert nodes.tolist() == [0, 1, 2, 3, 8, 5, 7, 4]


@cases("implementation, mode", ("plain", MODES[0]), ("kernel", MODES[3]), ids=str)
def test_shard_map_changes_nothing(sample_with, make_graph, same_bits, implementation, mode):
    graph, seeds = make_graph(50, 400), np.arange(8, dtype=np.int32)
    keys = jax.random.split(jax.random.key(0), 2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rank",))
    ours, everyones = jax.sharding.PartitionSpec("rank"), jax.sharding.PartitionSpec()

    def sample(key, graph, seeds):
        return sample_with(implementation, key, graph, seeds, (3, -1), **mode, **EXTRAS)

    def each(keys, graph, seeds):
        return jax.tree.map(lambda a: a[None], sample(keys[0], graph, seeds))

    specs = (ours, everyones, ours)
    shards = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=ours))
    batches = shards(keys, graph, seeds)
    for rank in range(2):
        mine = sample(keys[rank], graph, seeds[4 * rank : 4 * rank + 4])
        same_bits(mine, jax.tree.map(lambda a, r=rank: a[r], batches))
