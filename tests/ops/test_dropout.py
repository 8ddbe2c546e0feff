"""Statistics of the dropout masks, and what they depend on."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blocks import make_block
from refusals import refused
from scipy import stats

from jgs.ops import dropout, dropout_mask, edge_mask

KEY = np.uint32([0, 20240501])


@partial(jax.jit, static_argnums=(3, 4))
def mask_of(key, nodes, layer, width, rate):  # the layer is traced
    return dropout(key, jnp.ones((len(nodes), width)), nodes, layer, rate) != 0


def kept(key=KEY, num_nodes=4000, width=256, layer=0, rate=0.5, nodes=None):
    nodes = np.arange(num_nodes, dtype=np.int32) if nodes is None else nodes
    return np.asarray(mask_of(key, nodes, layer, width, rate))


def check_correlation(a, b):
    """Two independent masks have correlation 0 and four equally likely joint values."""
    a, b = a.ravel(), b.ravel()
    counts = np.bincount(2 * a + b, minlength=4)
    p = stats.chisquare(counts).pvalue
    assert p > 1e-5, f"joint counts {counts}, expected {a.size / 4:.0f} each, p = {p}"
    z = np.corrcoef(a, b)[0, 1] * np.sqrt(a.size)
    assert abs(z) < 4.5, f"correlation is {z} standard deviations from 0"


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_overall_by_unit_and_by_node(rate):
    mask = kept(rate=rate)
    z = (mask.sum() - mask.size * (1 - rate)) / np.sqrt(mask.size * rate * (1 - rate))
    assert abs(z) < 4.5, f"{mask.mean()} kept at rate {rate}: {z} standard deviations off"
    for axis in (0, 1):
        number, counts = mask.shape[axis], mask.sum(axis)
        chi2 = ((counts - number * (1 - rate)) ** 2 / (number * rate * (1 - rate))).sum()
        tails = stats.chi2.cdf(chi2, counts.size), stats.chi2.sf(chi2, counts.size)
        assert min(tails) > 1e-5, f"axis {axis}: chi2 {chi2}, {counts.size} degrees of freedom"


def test_neighbouring_nodes_units_layers_and_keys_are_independent():
    mask = kept()
    for distance in (1, 2, 16, 64):
        check_correlation(mask[:-distance], mask[distance:])
        check_correlation(mask[:, :-distance], mask[:, distance:])
    check_correlation(mask[:-1, :-1], mask[1:, 1:])
    check_correlation(mask[:-1, 1:], mask[1:, :-1])
    for a, b in itertools.combinations(range(4), 2):
        check_correlation(kept(layer=a), kept(layer=b))
    for change in ([1, 0], [0, 1], [1, 1], [1 << 31, 0], [0, 1 << 31]):
        check_correlation(mask, kept(KEY ^ np.uint32(change)))
    # Where inputs might be confused: words swapped, key taken for layer.
    check_correlation(mask, kept(KEY[::-1].copy()))
    check_correlation(kept(np.uint32([0, 1])), kept(np.uint32([1, 0])))
    check_correlation(kept(np.uint32([0, 0]), layer=1), kept(np.uint32([0, 1])))


def test_units_of_one_node_correlate_with_no_other_unit():
    mask = kept(num_nodes=20_000, width=64).astype(np.float64)
    z = np.corrcoef(mask.T)[np.triu_indices(64, 1)] * np.sqrt(len(mask))
    assert np.abs(z).max() < 5.5  # 2016 pairs
    assert 0.85 < z.std() < 1.15


def test_high_node_ids_differ_from_low_ones():
    low = np.arange(4000, dtype=np.int32)
    for offset in (1 << 16, 1 << 24, 1 << 30):
        check_correlation(kept(nodes=low), kept(nodes=low + offset))


def test_mask_belongs_to_the_node():
    rng = np.random.default_rng(0)
    rows, nodes = kept(), rng.permutation(4000).astype(np.int32)
    nodes[3000:] = 4000  # padding
    np.testing.assert_array_equal(kept(nodes=nodes)[:3000], rows[nodes[:3000]])
    # With more units the first ones stay the same.
    np.testing.assert_array_equal(kept(width=300)[:, :256], rows)


def test_what_is_kept_is_scaled_and_so_is_the_gradient():
    rate, nodes = 0.3, np.arange(4000, dtype=np.int32)
    x = np.full((4000, 256), 2, np.float32)
    typed = jax.random.wrap_key_data(KEY)  # as a typed key the same mask

    @jax.jit
    def run(x, key):
        return jax.value_and_grad(lambda x: dropout(key, x, nodes, 0, rate).sum())(x)

    mask = kept(rate=rate)
    total, grad = run(x, typed)
    np.testing.assert_allclose(grad, mask / 0.7, rtol=1e-6)
    np.testing.assert_allclose(total, 2 / 0.7 * mask.sum(), rtol=1e-4)
    assert dropout(KEY, x, nodes, 0, 0.0) is x
    other = jax.random.key(0, impl="rbg")
    assert kept(other, num_nodes=10).shape == (10, 256)


def test_bad_arguments_are_refused():
    x, nodes = np.ones((3, 2), np.float32), np.arange(3)
    for rate in (-0.1, 1, 1.5, float("nan"), "x", None):
        refused("[0, 1)", dropout, KEY, x, nodes, 0, rate)
    refused("Python number", jax.jit(dropout), KEY, x, nodes, 0, 0.5)
    refused("[3], one for each row", dropout, KEY, x, nodes[:2], 0, 0.5)
    refused("key", dropout, np.stack([KEY, KEY]), x, nodes, 0, 0.5)


def test_edges_without_targets_or_without_sources_have_a_mask():
    masks = [dropout_mask(np.uint32([0, 1]), jnp.arange(n), 0, 0.5) for n in (0, 3)]
    for block, mask in (
        (make_block([], num_sources=3, capacities=(0, 2)), masks[1]),
        (make_block([[]], num_sources=1, capacities=(0, 2)), masks[0]),
    ):
        found = edge_mask(block, mask)
        assert found.low.tolist() == found.high.tolist() == [0, 0]
        assert block.edge_index().shape == (2, 2)
