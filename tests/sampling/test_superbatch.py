"""Several batches in one call: each is what its own call returns, bit for bit."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import jgs
from jgs import kernels
from jgs.sampling import sample_neighbors

KEYS = jax.random.split(jax.random.key(8), 5)
EXTRAS = {"return_edge_ids": True, "return_edge_weights": True}
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
        assert text.count("jgs_sample_neighbors") == 1
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
