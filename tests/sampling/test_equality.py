"""Threads, `jit`, `vmap`, `shard_map`, names of inputs, other batches change no sample."""

import dataclasses
import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases, rarely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

import jgs
from jgs import kernels
from jgs.sampling import Capacity, sample_neighbors
from jgs.sampling.edges import draw

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
def test_kernel_is_plain(mode, fanouts, alike, assert_direct, monkeypatch):
    monkeypatch.setattr(draw, "_PIECE", 12)  # in plain JAX a hop has many pieces
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


def test_the_sample_of_a_key_is_fixed_for_ever():
    """A change of these values changes every published run, so it needs a new major version."""
    graph = jgs.Graph.from_edges(np.arange(20) * 7 % 10, np.arange(20) % 4, 10)
    with kernels.plain():
        batch = sample_neighbors(jax.random.key(2026), graph, np.array([0, 1, 2, 3]), (2, 2))
    assert np.asarray(batch.blocks[-1].indices).tolist() == [4, 0, 3, 5, 0, 2, 6, 5]
    nodes = np.asarray(batch.nodes)[: int(batch.blocks[0].num_sources)]
    assert nodes.tolist() == [0, 1, 2, 3, 8, 5, 7, 4]


@cases("plain, mode", (True, MODES[0]), (False, MODES[3]), ids=str)
def test_shard_map_changes_nothing(make_graph, same_bits, plain, mode):
    graph, seeds = make_graph(50, 400), np.arange(8, dtype=np.int32)
    keys = jax.random.split(jax.random.key(0), 2)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("rank",))
    ours, everyones = jax.sharding.PartitionSpec("rank"), jax.sharding.PartitionSpec()

    def sample(key, graph, seeds):
        with kernels.plain(plain):
            return sample_neighbors(key, graph, seeds, (3, -1), **mode, **EXTRAS)

    def each(keys, graph, seeds):
        return jax.tree.map(lambda a: a[None], sample(keys[0], graph, seeds))

    specs = (ours, everyones, ours)
    shards = jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=ours))
    batches = shards(keys, graph, seeds)
    for rank in range(2):
        mine = sample(keys[rank], graph, seeds[4 * rank : 4 * rank + 4])
        same_bits(mine, jax.tree.map(lambda a, r=rank: a[r], batches))


KEYS = jax.random.split(jax.random.key(8), 5)
RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)  # depends on JAX's version


def seeds_of(num_batches: int, batch_size: int, num_nodes: int = 300) -> np.ndarray:
    """Seeds with repetitions, and with padding anywhere."""
    rng = np.random.default_rng(num_batches)
    return rng.integers(0, num_nodes + 1, (num_batches, batch_size)).astype(np.int32)


def batch_of(batches: jgs.MiniBatch, i: int) -> jgs.MiniBatch:
    return jax.tree.map(lambda array: array[i], batches)


@pytest.mark.parametrize("options", [{}, {"replace": True, "relabel_inputs": False}], ids=str)
def test_each_batch_is_a_call_of_its_own(options, implemented, same_bits, make_graph):
    """At parallel sizes, with fewer batches than threads, one of them padding alone."""
    graph, seeds = make_graph(20_000, 400_000), seeds_of(3, 2000, 20_000)
    seeds[1] = 20_000
    sample = partial(sample_neighbors, fanouts=(4, 6), **options, **EXTRAS)
    for threads in (1, 2, 4) if kernels.available() else ():
        implemented(True, threads)
        together = jax.device_get(sample(KEYS[:3], graph, seeds))
        assert together.blocks[0].num_edges.astype(bool).tolist() == [True, False, True]
        for i in range(3):
            alone = jax.device_get(sample(KEYS[i], graph, seeds[i]))
            same_bits(batch_of(together, i), alone)
            for layer in range(2):
                nodes = together.target_nodes(layer)[i]
                np.testing.assert_array_equal(nodes, alone.target_nodes(layer))


def test_one_batch_raw_keys_jit_and_vmap(same_bits, make_graph):
    graph, seeds, traces = make_graph(300, 4000), seeds_of(4, 8), []

    def sample(keys, graph, seeds):
        traces.append(None)
        return sample_neighbors(keys, graph, seeds, (3, 2))

    jitted, together = jax.jit(sample), jax.device_get(sample(KEYS[:4], graph, seeds))
    same_bits(jitted(KEYS[:4], graph, seeds), together)
    jitted(KEYS[1:], graph, seeds[::-1])
    assert len(traces) == 2
    same_bits(sample(jax.random.key_data(KEYS[:4]), graph, seeds), together)
    first = jax.device_get(jitted(KEYS[:1], graph, seeds[:1]))
    same_bits(first, jax.tree.map(lambda array: array[:1], together))

    def one(key, seeds):
        return sample(key, graph, seeds)

    same_bits(jax.jit(jax.vmap(one))(KEYS[:4], seeds), together)
    for mapped in (jax.vmap(jax.vmap(one)), jax.vmap(one)):
        pairs = jax.jit(mapped)(KEYS[:4].reshape(2, 2), seeds.reshape(2, 2, 8))
        pairs = jax.tree.map(lambda a: a.reshape(4, *a.shape[2:]), jax.device_get(pairs))
        same_bits(pairs, together)
    shared = jax.jit(jax.vmap(one, in_axes=(None, 0)))(KEYS[0], seeds)  # one key for all
    same_bits(batch_of(shared, 3), jax.device_get(jitted(KEYS[0], graph, seeds[3])))
    if kernels.available():
        text = jax.jit(jax.vmap(one)).lower(KEYS[:4], seeds).as_text()
        assert text.count("jgs_sample_uniform") == 1
        assert "stablehlo.while" not in text


def test_a_graph_for_each_batch(same_bits, make_graph):
    graphs = [make_graph(300, 4000, seed) for seed in (0, 1)]
    seeds = seeds_of(2, 8)

    sample = partial(sample_neighbors, fanouts=(3, 2), weighted=True)
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *graphs)
    together = jax.device_get(jax.jit(jax.vmap(sample))(KEYS[:2], stacked, seeds))
    for i in range(2):
        alone = jax.jit(sample)(KEYS[i], graphs[i], seeds[i])
        same_bits(batch_of(together, i), jax.device_get(alone))


def test_bad_seeds_name_their_batch(make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(4, 8)
    seeds[2, 5] = seeds[3, 1] = 301
    rule = "batch 2: seeds must be node ids in [0, 300), or 300 for padding"
    refused(f"{rule}; got 301 at position 5", sample_neighbors, KEYS[:4], graph, seeds, (3, 2))
    if kernels.available():  # plain JAX cannot raise an error here
        sample = jax.jit(lambda s: sample_neighbors(KEYS[:4], graph, s, (3, 2)).nodes)
        with pytest.raises(RUNTIME_ERRORS, match=r"batch 2: .* got 301 at position 5"):
            sample(seeds).block_until_ready()
