"""Skip-gram with shared negatives has the gradient of the sum over all pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from modules import assert_slopes

import jgs
from jgs import kernels
from jgs.models.skipgram import (
    WalkBatch,
    count_runs,
    count_visits,
    draw_pairs,
    noise_prefix,
    skipgram,
    skipgram_plain,
)
from jgs.sampling import Walk
from jgs.sampling.edges.random import as_key_data

NUM_NODES, WIDTH, WEIGHT = 30, 5, 3.0


def batch_of(rng, num_walks, places, negatives, window):
    """Random walks and draws: one walk ended early, one is nothing but padding."""
    nodes = rng.integers(NUM_NODES, size=(num_walks, places), dtype=np.int32)
    nodes[1, places // 2 :] = nodes[2] = NUM_NODES
    windows = rng.integers(-1, window + 1, size=nodes.shape, dtype=np.int32)  # -1 is no window
    shape = num_walks, count_runs(places, negatives), negatives
    drawn = rng.integers(NUM_NODES, size=shape, dtype=np.int32)
    return WalkBatch(*map(jnp.asarray, (nodes, windows, drawn)))


def by_definition(table, batch):
    """The loss, summed pair by pair, and the number of pairs; `table` is float64 `[2N, D]`."""
    loss, pairs = 0.0, 0
    nodes, windows, negatives = map(np.asarray, batch)
    size = -(-nodes.shape[1] // negatives.shape[1])
    for b, walk in enumerate(nodes):
        for i, center in enumerate(walk):
            for j in range(max(i - windows[b, i], 0), min(i + windows[b, i] + 1, len(walk))):
                if j == i or NUM_NODES in (center, walk[j]):
                    continue
                vector, far = table[2 * center], table[2 * negatives[b, i // size] + 1]
                loss += np.log1p(np.exp(-vector @ table[2 * walk[j] + 1]))
                loss += WEIGHT * np.log1p(np.exp(far @ vector)).mean()
                pairs += 1
    return loss, pairs


def test_the_gradient_is_that_of_the_definition():
    rng = np.random.default_rng(0)
    batch = batch_of(rng, 3, 7, 6, 3)
    assert batch.negatives.shape[1] == 2  # runs of 4 and 3 places
    nodes = np.array(batch.nodes)
    nodes[0, 3] = nodes[0, 1]  # this walk came back
    batch = batch._replace(nodes=jnp.asarray(nodes))
    table, at = rng.normal(size=(2 * NUM_NODES, WIDTH)), np.asarray(batch.rows())
    real = at < 2 * NUM_NODES
    rows = np.zeros((at.size, WIDTH + 1), np.float32)
    rows[real, :-1] = table[at[real]]
    run = jax.jit(skipgram, static_argnums=(2, 3))
    got = jax.device_get(run(rows, batch, NUM_NODES, WEIGHT, 0.5))
    loss, pairs = by_definition(table, batch)
    assert got.pairs == pairs > 10
    np.testing.assert_allclose(got.loss, loss, rtol=1e-5)
    summed = np.zeros((2 * NUM_NODES, WIDTH + 1))
    np.add.at(summed, at[real], got.rows[real])
    assert_slopes(lambda table: by_definition(table, batch)[0], table, 2 * summed[:, :-1])
    counts = summed[::2, -1].sum(), summed[1::2, -1].sum()
    np.testing.assert_allclose(counts, [pairs * (1 + WEIGHT) / 2] * 2, rtol=1e-5)
    assert not got.rows[~real].any()
    nobody = batch._replace(nodes=jnp.asarray(np.full_like(nodes, NUM_NODES)))
    assert not any(map(np.any, run(rows, nobody, NUM_NODES, WEIGHT, 0.5)))


@pytest.fixture(scope="module")
def drawn():
    """Walks on a wheel, whose hub has most edges, and the draws for them in two orders."""
    rim = np.arange(1, NUM_NODES)
    edges = np.concatenate([np.zeros_like(rim), rim]), np.concatenate([rim, np.roll(rim, 1)])
    src, dst = np.concatenate(edges), np.concatenate(edges[::-1])
    graph = jgs.Graph.from_edges(src, dst, NUM_NODES)
    key_data = as_key_data(jax.random.key(3))
    prefix = noise_prefix(count_visits(key_data, graph, Walk(40), ()))

    @jax.jit
    def draw(roots, prefix):
        walks = Walk(40).sample(key_data, graph, (), roots)
        with jax.enable_x64(True):
            return draw_pairs(key_data, walks.nodes, prefix, 7, 16)

    with jax.enable_x64(True):
        prefix = jnp.asarray(prefix)
    roots = np.repeat(np.arange(NUM_NODES + 1, dtype=np.int32), 20)  # and padding
    return graph, np.asarray(prefix), draw(roots, prefix), draw(roots[::-1], prefix)


def test_windows_are_uniform_and_negatives_are_drawn_by_the_noise(drawn):
    graph, prefix, batch, _ = drawn
    windows = np.bincount(np.asarray(batch.windows).ravel(), minlength=8)
    assert windows[0] == 0
    expected = batch.windows.size / 7
    # Chi-square with 6 degrees of freedom.
    assert np.sum((windows[1:] - expected) ** 2 / expected) < 22.5
    weight = np.diff(prefix, prepend=0)
    degree = np.bincount(np.asarray(graph.indices), minlength=NUM_NODES)
    visits = 1 + 40 * NUM_NODES * degree / graph.num_edges  # but for the walks' first steps
    np.testing.assert_allclose(weight / weight.sum(), visits**0.75 / np.sum(visits**0.75), 0.08)
    got = np.bincount(np.asarray(batch.negatives).ravel(), minlength=NUM_NODES)
    expected = batch.negatives.size * weight / weight.sum()
    assert np.sum((got - expected) ** 2 / expected) < 58.3  # 29 degrees of freedom, 0.1 %


def test_visits_follow_the_walks_law():
    """Nodes are visited by their edges' weights; one that no walk reaches counts as a root."""
    node = np.arange(NUM_NODES - 1)  # the last node has no edges
    src, dst = (each.ravel() for each in np.meshgrid(node, node))
    weight = np.float32((1 + src % 3) * (1 + dst % 3))
    graph = jgs.Graph.from_edges(src, dst, NUM_NODES, edge_weight=weight)
    walker, strength = Walk(40, weighted=True), np.bincount(dst, weight)
    visits = count_visits(jax.random.key(0), graph, walker, walker.init(graph))
    expected = 1 + 40 * node.size * strength / strength.sum()
    np.testing.assert_allclose(visits[:-1], expected, rtol=0.03)
    assert visits[-1] == 1


def test_draws_belong_to_the_walk(drawn):
    """Walks of one root differ. The order of different roots changes nothing."""
    _, _, batch, backwards = drawn
    for mine, theirs in zip(batch, backwards, strict=True):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        of_root = mine.reshape(NUM_NODES + 1, 20, -1)
        assert np.array_equal(of_root[::-1].reshape(mine.shape), theirs)
        assert len(np.unique(of_root[5], axis=0)) == 20


@pytest.mark.skipif(not kernels.available(), reason="the kernels are not installed")
@cases(
    "places, negatives, width, window",
    (81, 16, 128, 10),
    (7, 1, 5, 30),
    (1, 3, 16, 2),
    (30, 50, 70, 4),
)
def test_the_kernel_computes_what_plain_jax_does(places, negatives, width, window):
    rng = np.random.default_rng(places)
    batch = batch_of(rng, 9, places, negatives, window)
    rows = rng.normal(size=(batch.rows().size, width + 1)).astype(np.float32)
    rows[:places] *= 4  # scores whose sigmoid is 0 or 1
    run = jax.jit(skipgram, static_argnums=(2, 3))
    got, again = (jax.device_get(run(rows, batch, NUM_NODES, WEIGHT, 0.1)) for _ in range(2))
    plainly = jax.jit(skipgram_plain, static_argnums=(3, 4))
    wanted = jax.device_get(plainly(rows, batch, np.float32(0.1), NUM_NODES, WEIGHT))
    for mine, same, plain in zip(got, again, wanted, strict=True):
        np.testing.assert_array_equal(mine, same)
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5 * np.abs(plain).max())
