"""`DGCNN`: SortPooling against its definition; padding changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import InputError, kernels
from jgs.models import DGCNN
from jgs.models.dgcnn import sort_pool
from jgs.sampling import Capacity, Seal, sample_neighbors

KEY = jax.random.key(1)


def test_sort_pool_by_its_definition():
    h = np.random.default_rng(0).normal(size=(13, 3)).astype(np.float32)
    groups = np.array([0, 4, 4, 9, 11], np.int32)  # two rows of padding follow
    found = np.asarray(sort_pool(jnp.asarray(h), jnp.asarray(groups), 4))
    for b, (first, last) in enumerate([(0, 4), (4, 4), (4, 9), (9, 11)]):
        mine = h[first:last]
        want = np.zeros((4, 3), np.float32)
        best = mine[np.argsort(-mine[:, 2])][:4]
        want[: len(best)] = best
        np.testing.assert_array_equal(found[b], want)


def test_padding_and_the_other_pairs_change_nothing(make_graph):
    graph, sampler = make_graph(60, 300), Seal((-1,))
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 60, (6, 2)).astype(np.int32)
    padded = np.full((9, 2), 60, np.int32)
    padded[[1, 2, 4, 5, 7, 8]] = pairs
    model = DGCNN(3, 12, hidden=8, rngs=nnx.Rngs(0))
    features = rng.normal(size=(61, 3)).astype(np.float32)
    features[60] = np.nan  # the row that padding reads
    state, program = sampler.init(graph), jax.jit(sampler.sample, static_argnums=4)

    def drawn(pairs, capacity):
        with kernels.this_host_only():
            return program(KEY, graph, state, pairs, capacity)

    @nnx.jit
    def slopes_of(model, batch, x):
        def total(model):
            logits = model(batch, x, key=KEY)
            return jnp.sum(jnp.where(batch.seed_mask, jnp.sin(logits[:, 0]), 0)), logits

        return nnx.value_and_grad(total, has_aux=True)(model)

    forward = nnx.jit(lambda model, batch, x: model(batch, x))

    def outputs(pairs, capacity):
        batch = drawn(pairs, capacity)
        (_, logits), slopes = slopes_of(model, batch, features[batch.nodes])
        return np.asarray(logits)[np.asarray(batch.seed_mask)], jax.tree.leaves(slopes)

    some, slopes = outputs(pairs, Capacity((200, 2000), (300, 300)))
    more, others = outputs(padded, Capacity((300, 3000), (400, 400)))
    assert some.shape == (6, 1)
    np.testing.assert_allclose(more, some, rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(slopes, others, strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-6)
    assert any(np.abs(mine).max() > 0 for mine in slopes)
    tight = drawn(pairs, Capacity((200, 5), (300, 300)))
    assert np.isnan(forward(model, tight, features[tight.nodes])).all()
    # Dropout depends on the pair and not on its place, with a key and without one.
    batch = drawn(pairs, Capacity((200, 2000), (300, 300)))
    kept = forward(model, batch, features[batch.nodes])
    assert (np.asarray(kept) != some).any()
    with pytest.raises(InputError, match="3 features"):
        model(batch)
    with pytest.raises(InputError, match="of pairs"):
        model(sample_neighbors(KEY, graph, pairs[:, 0], (2,)), features)


@pytest.mark.parametrize(
    "wrong", [{"pool_rows": 9}, {"in_features": -1}, {"dropout": 1.0}, {"hidden": 0}]
)
def test_what_is_refused(wrong):
    with pytest.raises(InputError):
        DGCNN(**({"in_features": 0, "pool_rows": 10} | wrong), rngs=nnx.Rngs(0))
