"""Invariants 1 and 3: implementation, thread count, order and padding never change a sample."""

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jgs
from jgs.sampling import Capacity, sample_neighbors

KERNELS = ("kernel, 1 thread", "kernel, 2 threads", "kernel, 4 threads")
MODES = [
    {"replace": replace, "weighted": weighted}
    for replace in (False, True)
    for weighted in (False, True)
]
FANOUTS = [(3, 2), (-1, 1), (70,)]  # 70 is beyond the kernel's scan
EXTRAS = {"return_edge_ids": True, "return_edge_weights": True}


def graph_from(num_nodes: int, degrees: list[int], seed: int, num_edges: int) -> jgs.Graph:
    """Rows of the given degrees, cut or filled up to exactly `num_edges`, so shapes recur."""
    rng = np.random.default_rng(seed)
    dst = np.repeat(np.arange(len(degrees)) % num_nodes, degrees)[:num_edges]
    dst = np.concatenate([dst, rng.integers(0, num_nodes, num_edges - dst.size)])
    weight = rng.choice([0.0, 1e-30, 0.5, 1.0, 3e8], num_edges)
    return jgs.Graph.from_edges(rng.integers(0, num_nodes, num_edges), dst, num_nodes, weight)


@pytest.mark.parametrize("fanouts", FANOUTS, ids=str)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_kernel_is_plain(mode, fanouts, sample_with, same_bits):
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        degrees=st.lists(st.integers(0, 90), max_size=9),
        seed=st.integers(0, 2**32 - 1),
        data=st.data(),
    )
    def check(degrees, seed, data):
        num_nodes = 20
        graph = graph_from(num_nodes, degrees, seed, num_edges=120)
        seeds = data.draw(st.lists(st.integers(0, num_nodes), min_size=6, max_size=6))
        args = (jax.random.key(seed), graph, np.array(seeds), fanouts)
        # Room for all neighbours of repeated seeds, so that nothing overflows.
        capacity = Capacity((1024, 2048)[: len(fanouts)], (1100, 3200)[: len(fanouts)])
        plain = sample_with("plain", *args, capacity, **mode, **EXTRAS)
        assert not plain.overflow
        for name in KERNELS:
            same_bits(sample_with(name, *args, capacity, **mode, **EXTRAS), plain)

    check()


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("num_nodes", "num_edges"), [(1, 0), (1, 4), (2, 1)])
def test_kernel_is_plain_on_tiny_graphs(num_nodes, num_edges, mode, sample_with, same_bits):
    graph = graph_from(num_nodes, [], 0, num_edges)
    args = (jax.random.key(0), graph, np.array([0, num_nodes, 0]), (2,))
    plain = sample_with("plain", *args, **mode, **EXTRAS)
    same_bits(sample_with("kernel", *args, **mode, **EXTRAS), plain)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_kernel_is_plain_at_parallel_sizes(mode, sample_with, same_bits, make_graph):
    graph = make_graph(20_000, 400_000)
    seeds = np.random.default_rng(1).permutation(20_000)[:3000]
    args = (jax.random.key(5), graph, seeds, (4, 6))
    plain = sample_with("plain", *args, **mode, **EXTRAS)
    assert plain.blocks[0].num_edges > 40_000  # enough for several chunks and threads
    for name in KERNELS:
        same_bits(sample_with(name, *args, **mode, **EXTRAS), plain)


@pytest.mark.parametrize("mode", [MODES[0], MODES[1]], ids=str)
def test_jit_changes_nothing(mode, sample_with, same_bits, make_graph):
    args = (jax.random.key(2), make_graph(30, 200), np.array([3, 0, 30, 3, 29, 7]), (2, 1))
    plain = sample_with("plain", *args, **mode, **EXTRAS)
    with jax.disable_jit():
        same_bits(sample_with("plain, no jit", *args, **mode, **EXTRAS), plain)
        same_bits(sample_neighbors(*args, **mode, **EXTRAS), plain)
    jitted = jax.jit(lambda k, g, s: sample_neighbors(k, g, s, (2, 1), **mode, **EXTRAS))
    same_bits(jitted(*args[:3]), plain)
    with jax.enable_x64(True):
        same_bits(jitted(*args[:3]), plain)


@pytest.mark.parametrize("name", ["plain", "kernel"])
def test_raw_and_typed_keys_agree(name, sample_with, same_bits, make_graph):
    args = (make_graph(30, 200), np.arange(6), (3, 2))
    typed = sample_with(name, jax.random.key(11), *args)
    same_bits(typed, sample_with(name, jax.random.PRNGKey(11), *args))


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_order_and_padding_change_no_draw(mode, neighbors_of, make_graph):
    graph, key, fanouts = make_graph(300, 4000), jax.random.key(3), (4, 3)
    rng = np.random.default_rng(0)
    seeds = rng.permutation(300)[:20]
    alone = neighbors_of(sample_neighbors(key, graph, seeds, fanouts, **mode))
    shuffled = np.full(64, 300)
    shuffled[rng.permutation(64)[:20]] = rng.permutation(seeds)  # padding anywhere
    roomy = Capacity((2000, 3000), (2500, 5000))
    again = neighbors_of(sample_neighbors(key, graph, shuffled, fanouts, roomy, **mode))
    for rows, other in zip(alone, again, strict=True):
        other.pop(300, None)  # the padding's empty row
        assert rows == other


@pytest.mark.parametrize("name", ["plain", "kernel"])
def test_vmap_over_batches(name, sample_with, same_bits, make_graph):
    graph = make_graph(300, 4000)
    keys = jax.random.split(jax.random.key(0), 3)
    seeds = np.random.default_rng(0).integers(0, 300, (3, 8)).astype(np.int32)
    many = jax.vmap(lambda k, s: sample_with(name, k, graph, s, (3, 2)))(keys, seeds)
    for i in range(3):
        one = sample_with(name, keys[i], graph, seeds[i], (3, 2))
        same_bits(jax.tree.map(lambda x, i=i: x[i], many), one)


def test_the_sample_of_a_key_is_fixed_for_ever(sample_with):
    """A change of these values changes every published run, so it needs a new major version."""
    graph = jgs.Graph.from_edges(np.arange(20) * 7 % 10, np.arange(20) % 4, 10)
    batch = sample_with("plain", jax.random.key(2026), graph, np.array([0, 1, 2, 3]), (2, 2))
    assert np.asarray(batch.blocks[-1].indices).tolist() == GOLDEN_INDICES
    assert np.asarray(batch.nodes)[: int(batch.blocks[0].num_sources)].tolist() == GOLDEN_NODES


GOLDEN_INDICES = [4, 0, 3, 5, 0, 2, 6, 5]
GOLDEN_NODES = [0, 1, 2, 3, 8, 5, 7, 4]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("implementation", ["plain", "kernel"])
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
