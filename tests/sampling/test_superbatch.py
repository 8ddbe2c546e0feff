"""Several batches in one call: each is what its own call returns, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jgs
from jgs import InputError, kernels
from jgs.sampling import Capacity, sample_neighbors
from jgs.sampling.algorithms.nodewise.neighbors_draws import (
    Indexed,
    Spec,
    sample_kernel,
    sample_plain,
)
from jgs.sampling.seeds import Seeds

KEYS = jax.random.split(jax.random.key(8), 5)
BOTH = pytest.mark.parametrize("name", ["plain", "kernel"])
KERNELS = ("kernel, 1 thread", "kernel, 2 threads", "kernel, 4 threads")
MODES = [
    {"replace": replace, "weighted": weighted}
    for replace in (False, True)
    for weighted in (False, True)
]
EXTRAS = {"return_edge_ids": True, "return_edge_weights": True}
RUNTIME_ERRORS = (ValueError, jax.errors.JaxRuntimeError)  # depends on JAX's version


def seeds_of(num_batches: int, batch_size: int, num_nodes: int = 300) -> np.ndarray:
    """Seeds with repetitions, and with padding anywhere."""
    rng = np.random.default_rng(num_batches)
    return rng.integers(0, num_nodes + 1, (num_batches, batch_size)).astype(np.int32)


def batch_of(batches: jgs.MiniBatch, i: int) -> jgs.MiniBatch:
    return jax.tree.map(lambda array: array[i], batches)


@pytest.mark.parametrize(
    ("mode", "relabel_inputs"),
    list(zip(MODES, (True, False, False, True), strict=True)),
    ids=str,
)
def test_each_batch_is_a_call_of_its_own(
    mode, relabel_inputs, sample_with, same_bits, make_graph
):
    graph, seeds = make_graph(300, 4000), seeds_of(5, 8)
    options = mode | EXTRAS | {"relabel_inputs": relabel_inputs}
    together = sample_with("plain", KEYS, graph, seeds, (3, 2), **options)
    for i in range(5):
        alone = sample_with("plain", KEYS[i], graph, seeds[i], (3, 2), **options)
        same_bits(batch_of(together, i), alone)
        for layer in range(2):
            nodes = together.target_nodes(layer)
            np.testing.assert_array_equal(nodes[i], alone.target_nodes(layer))
            block = together.blocks[layer]
            assert block.target_capacity == alone.blocks[layer].target_capacity
            assert block.edge_capacity == alone.blocks[layer].edge_capacity
        np.testing.assert_array_equal(together.seed_mask[i], alone.seed_mask)
    for name in KERNELS:  # more batches than threads, and fewer
        same_bits(sample_with(name, KEYS, graph, seeds, (3, 2), **options), together)
        some = sample_with(name, KEYS[:2], graph, seeds[:2], (3, 2), **options)
        same_bits(some, jax.tree.map(lambda array: array[:2], together))


@pytest.mark.parametrize("name", KERNELS)
def test_at_parallel_sizes(name, sample_with, same_bits, make_graph):
    graph, seeds = make_graph(20_000, 400_000), seeds_of(3, 2000, 20_000)
    together = sample_with(name, KEYS[:3], graph, seeds, (4, 6))
    for i in range(3):
        same_bits(batch_of(together, i), sample_with(name, KEYS[i], graph, seeds[i], (4, 6)))


@BOTH
def test_one_batch_and_raw_keys(name, sample_with, same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(1, 8)
    typed = sample_with(name, KEYS[:1], graph, seeds, (3, 2))
    raw = sample_with(name, jax.random.key_data(KEYS[:1]), graph, seeds, (3, 2))
    same_bits(typed, raw)
    same_bits(batch_of(typed, 0), sample_with(name, KEYS[0], graph, seeds[0], (3, 2)))


@BOTH
def test_an_overflow_concerns_one_batch(name, sample_with, same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), np.full((3, 6), 300)
    seeds[0], seeds[1], seeds[2, :2] = np.arange(6), np.arange(6, 12), (7, 9)
    need = [int(sample_neighbors(KEYS[i], graph, seeds[i], (4,)).blocks[0].num_sources)
            for i in range(3)]  # fmt: skip
    order = np.argsort(need)
    assert need[order[1]] < need[order[2]]
    capacity = Capacity((24,), (need[order[1]],))
    together = sample_with(name, KEYS[:3], graph, seeds, (4,), capacity, **EXTRAS)
    assert [i for i in range(3) if together.overflow[i]] == [order[2]]
    for i in range(3):
        alone = sample_with(name, KEYS[i], graph, seeds[i], (4,), capacity, **EXTRAS)
        same_bits(batch_of(together, i), alone)


@BOTH
def test_batches_of_padding_are_empty(name, sample_with, same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(5, 8)
    seeds[2:] = 300
    together = sample_with(name, KEYS, graph, seeds, (3, 2))
    for i in range(5):
        same_bits(batch_of(together, i), sample_with(name, KEYS[i], graph, seeds[i], (3, 2)))
    assert not np.asarray(together.blocks[0].num_edges)[2:].any()


@BOTH
def test_jit_and_vmap(name, sample_with, same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(4, 8)
    traces = []

    @jax.jit
    def jitted(keys, graph, seeds):
        traces.append(None)
        return sample_with(name, keys, graph, seeds, (3, 2))

    together = sample_with(name, KEYS[:4], graph, seeds, (3, 2))
    same_bits(jitted(KEYS[:4], graph, seeds), together)
    jitted(KEYS[1:], graph, seeds[::-1])
    assert len(traces) == 1
    one = jax.vmap(lambda k, s: sample_with(name, k, graph, s, (3, 2)))
    same_bits(one(KEYS[:4], seeds), together)


def test_vmap_of_vmap_and_of_super_batches(sample_with, same_bits, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(4, 8)

    def sample(key, seeds):
        return sample_with("kernel", key, graph, seeds, (3, 2))

    together = sample(KEYS[:4], seeds)
    for mapped in (jax.vmap(jax.vmap(sample)), jax.vmap(sample)):
        pairs = mapped(KEYS[:4].reshape(2, 2), seeds.reshape(2, 2, 8))
        same_bits(jax.tree.map(lambda a: a.reshape(4, *a.shape[2:]), pairs), together)
    shared = jax.vmap(sample, in_axes=(None, 0))(KEYS[0], seeds)  # one key for all
    same_bits(batch_of(shared, 3), sample(KEYS[0], seeds[3]))


def test_vmap_is_one_call_of_the_kernel(sample_with, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(4, 8)

    def one(key, seeds):
        return sample_with("kernel", key, graph, seeds, (3, 2))

    text = jax.jit(jax.vmap(one)).lower(KEYS[:4], seeds).as_text()
    assert text.count("jgs_sample_neighbors") == 1
    assert "stablehlo.while" not in text


def test_a_graph_for_each_batch(sample_with, same_bits, make_graph):
    graphs = [make_graph(300, 4000, seed) for seed in (0, 1)]
    seeds = seeds_of(2, 8)
    with jax.enable_x64(True):
        stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *graphs)
    together = jax.vmap(lambda k, g, s: sample_with("kernel", k, g, s, (3, 2), weighted=True))(
        KEYS[:2], stacked, seeds
    )
    for i in range(2):
        alone = sample_with("kernel", KEYS[i], graphs[i], seeds[i], (3, 2), weighted=True)
        same_bits(batch_of(together, i), alone)


@BOTH
def test_bad_seeds_name_their_batch(name, sample_with, make_graph):
    graph, seeds = make_graph(300, 4000), seeds_of(4, 8)
    seeds[2, 5] = seeds[3, 1] = 301
    says = (
        "batch 2: seeds must be node ids in [0, 300), or 300 for padding; got 301 at position 5"
    )
    with pytest.raises(InputError) as error:
        sample_with(name, KEYS[:4], graph, seeds, (3, 2))
    assert says in str(error.value)
    if name == "plain":  # plain JAX cannot raise an error here
        return
    sample = jax.jit(lambda s: sample_with(name, KEYS[:4], graph, s, (3, 2)).nodes)
    with pytest.raises(RUNTIME_ERRORS) as error:
        sample(seeds).block_until_ready()
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("key", "seeds", "says"),
    [
        (KEYS[0], np.zeros((2, 3), int), "must be 2 Threefry keys, one a batch"),
        (KEYS, np.zeros((2, 3), int), "got threefry2x32[5]"),
        (KEYS, np.zeros((2, 3), int), "and jax.random.split it in 2"),
        (KEYS[:2], np.zeros(3, int), "must be one Threefry key"),
        (jax.random.PRNGKey(0), np.zeros((2, 3), int), "must be a JAX random key"),
        (KEYS[:0], np.zeros((0, 3), int), "at least one"),
        (KEYS[:2], np.zeros((2, 0), int), "at least one"),
        (KEYS[:2], np.zeros((2, 1, 3), int), "or a two-dimensional one, a batch a row"),
    ],
)
def test_bad_arguments_are_refused(key, seeds, says, make_graph):
    with pytest.raises(InputError) as error:
        sample_neighbors(key, make_graph(300, 4000), seeds, (2,))
    assert says in str(error.value)


@pytest.mark.parametrize("name", ["plain", *KERNELS])
def test_batches_apart(name, monkeypatch, same_bits, make_graph):
    """The loader wants each batch in its own arrays; this works under vmap too."""
    graph, seeds, key_data = (
        make_graph(300, 4000),
        seeds_of(4, 8),
        jax.random.key_data(KEYS[:4]),
    )
    if name != "plain":
        if not kernels.available():
            pytest.skip("the compiled kernels are not installed")
        monkeypatch.setattr(kernels, "NUM_THREADS", int(name.split()[1]))
    capacity = Capacity((80, 200), (100, 250))
    together = Spec((3, 2), capacity, False, False, True, True, True)
    separate = together._replace(separate=True)

    def sample(key_data, seeds, spec):
        implementation = sample_plain if name == "plain" else sample_kernel
        return implementation(key_data, Indexed(graph), Seeds(seeds), spec)

    with jax.enable_x64(True):
        (expected,) = jax.jit(sample, static_argnums=2)(key_data, seeds, together)
        batches = jax.jit(sample, static_argnums=2)(key_data, seeds, separate)
        assert len(batches) == 4
        for i, batch in enumerate(batches):
            same_bits(batch, batch_of(expected, i))
        if name == "plain":  # vmaps by itself
            return
        pairs = (key_data.reshape(2, 2, 2), seeds.reshape(2, 2, 8))
        first, second = jax.vmap(lambda w, s: sample(w, s, separate))(*pairs)
        same_bits(first, jax.tree.map(lambda a: a[::2], expected))
        same_bits(second, jax.tree.map(lambda a: a[1::2], expected))
