"""Statistics of the dropout masks, and what they depend on."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jgs import InputError
from jgs.ops import dropout

KEY = jax.random.key(20240501)


def kept(key=KEY, num_nodes=4000, width=256, layer=0, rate=0.5, nodes=None):
    nodes = jnp.arange(num_nodes, dtype=jnp.int32) if nodes is None else nodes
    return np.asarray(dropout(key, jnp.ones((len(nodes), width)), nodes, layer, rate)) != 0


def check_correlation(a, b):
    """Two independent masks of rate 1/2 have correlation 0 and four equally likely joint
    values."""
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


def test_mean_and_variance_of_the_output():
    rate, x = 0.3, jnp.full((4000, 256), 2.0)
    out = np.asarray(dropout(KEY, x, jnp.arange(4000, dtype=jnp.int32), 0, rate), np.float64)
    np.testing.assert_allclose(np.unique(out), [0, 2 / 0.7], rtol=1e-6)
    assert abs(out.mean() - 2) < 4.5 * out.std() / np.sqrt(out.size)
    np.testing.assert_allclose(out.var(), 4 * rate / (1 - rate), rtol=0.01)


def test_neighbouring_nodes_units_layers_and_keys_are_independent():
    mask = kept()
    for distance in (1, 2, 16, 64):
        check_correlation(mask[:-distance], mask[distance:])
        check_correlation(mask[:, :-distance], mask[:, distance:])
    check_correlation(mask[:-1, :-1], mask[1:, 1:])
    check_correlation(mask[:-1, 1:], mask[1:, :-1])
    for a, b in itertools.combinations(range(4), 2):
        check_correlation(kept(layer=a), kept(layer=b))
    key_data = np.asarray(jax.random.key_data(KEY))
    for change in ([1, 0], [0, 1], [1, 1], [1 << 31, 0], [0, 1 << 31]):
        check_correlation(mask, kept(jnp.asarray(key_data ^ np.uint32(change))))
    # Where inputs might be confused: words swapped, key taken for layer.
    check_correlation(mask, kept(jnp.asarray(key_data[::-1].copy())))
    check_correlation(kept(jnp.array([0, 1], jnp.uint32)), kept(jnp.array([1, 0], jnp.uint32)))
    check_correlation(
        kept(jnp.zeros(2, jnp.uint32), layer=1), kept(jnp.array([0, 1], jnp.uint32))
    )


def test_units_of_one_node_correlate_with_no_other_unit():
    mask = kept(num_nodes=20_000, width=64).astype(np.float64)
    z = np.corrcoef(mask.T)[np.triu_indices(64, 1)] * np.sqrt(len(mask))
    assert np.abs(z).max() < 5.5  # 2016 pairs
    assert 0.85 < z.std() < 1.15


def test_high_node_ids_differ_from_low_ones():
    low = jnp.arange(2000, dtype=jnp.int32)
    for offset in (1 << 16, 1 << 24, 1 << 30):
        check_correlation(kept(nodes=low), kept(nodes=low + offset))


def test_mask_belongs_to_the_node():
    rng = np.random.default_rng(0)
    nodes = rng.permutation(500).astype(np.int32)
    x = jnp.ones((500, 33))
    rows = {v: m for v, m in zip(nodes, kept(nodes=jnp.asarray(nodes), width=33), strict=True)}
    other = np.r_[rng.permutation(nodes)[:200], [500] * 56].astype(np.int32)  # padded
    jitted = jax.jit(lambda k, x, n, i: dropout(k, x, n, i, 0.5))
    got = np.asarray(jitted(KEY, x[:256], jnp.asarray(other), 0)) != 0  # the layer is traced
    for row, node in zip(got[:200], other, strict=False):
        np.testing.assert_array_equal(row, rows[node])
    # With more units the first ones stay the same.
    np.testing.assert_array_equal(kept(width=40)[:, :33], kept(width=33))


def test_typed_and_raw_keys_agree():
    np.testing.assert_array_equal(kept(KEY), kept(jax.random.key_data(KEY)))
    assert kept(jax.random.key(0, impl="rbg"), num_nodes=10).shape == (10, 256)


def test_rate_zero_is_the_identity_and_gradient_follows_the_mask():
    x, nodes = jnp.ones((50, 8)), jnp.arange(50, dtype=jnp.int32)
    assert dropout(KEY, x, nodes, 0, 0.0) is x
    grad = jax.grad(lambda x: dropout(KEY, x, nodes, 0, 0.25).sum())(x)
    np.testing.assert_array_equal(grad, dropout(KEY, x, nodes, 0, 0.25))


def test_bad_arguments_are_refused():
    x, nodes = jnp.ones((3, 2)), jnp.arange(3)
    for rate in (-0.1, 1, 1.5, float("nan"), "x", None):
        with pytest.raises(InputError, match=r"\[0, 1\)"):
            dropout(KEY, x, nodes, 0, rate)
    with pytest.raises(InputError, match="Python number"):
        jax.jit(dropout)(KEY, x, nodes, 0, 0.5)
    with pytest.raises(InputError, match="one node for each"):
        dropout(KEY, x, nodes[:2], 0, 0.5)
    with pytest.raises(InputError, match="key"):
        dropout(jax.random.split(KEY), x, nodes, 0, 0.5)
