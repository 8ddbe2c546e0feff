"""`DGCNN`: SortPooling against its definition; padding changes nothing."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from cases import cases
from flax import nnx
from modules import module
from refusals import refused

from jgs import kernels
from jgs.models import DGCNN
from jgs.models.dgcnn import sort_pool
from jgs.sampling import Capacity, Seal, sample_neighbors

KEY = jax.random.key(1)


def test_sort_pool_by_its_definition():
    h = np.random.default_rng(0).normal(size=(13, 3)).astype(np.float32)
    groups = np.array([0, 4, 4, 9, 11], np.int32)  # two rows of padding follow
    found = np.asarray(jax.jit(sort_pool, static_argnums=2)(h, groups, 4))
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
    padded = [np.full((9, 2), 60, np.int32) for _ in range(2)]
    places = np.arange(6), np.array([1, 2, 4, 5, 7, 8])
    for one, place in zip(padded, places, strict=True):
        one[place] = pairs
    model = module(lambda rngs: DGCNN(3, 12, hidden=8, rngs=rngs))
    features = rng.normal(size=(61, 3)).astype(np.float32)
    features[60] = np.nan  # the row that padding reads
    state, program = sampler.init(graph), jax.jit(sampler.sample, static_argnums=4)

    @nnx.jit
    def slopes_of(model, batch):
        def total(model):
            logits = model(batch, jnp.asarray(features)[batch.nodes], key=KEY)
            return jnp.sum(jnp.where(batch.seed_mask, jnp.sin(logits[:, 0]), 0)), logits

        of_model = nnx.value_and_grad(total, has_aux=True)(model)
        return *of_model, model(batch, jnp.asarray(features)[batch.nodes])

    found, rooms = [], (((200, 2000), (300, 300)), ((300, 3000), (400, 400)))
    for pairs, room in zip(padded, rooms, strict=True):
        with kernels.this_host_only():
            batch = program(KEY, graph, state, pairs, Capacity(*room))
        found.append(jax.device_get(slopes_of(model, batch)))
    ((_, some), slopes, kept), ((_, more), others, _) = found
    assert some.shape == (9, 1)
    np.testing.assert_allclose(more[places[1]], some[:6], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(jax.tree.leaves(slopes), jax.tree.leaves(others), strict=True):
        assert np.isfinite(mine).all()
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-6)
        assert np.abs(mine).max() > 0
    # Dropout depends on the pair and not on its place, with a key and without one.
    assert (kept[:6] != some[:6]).any()
    full = replace(batch, overflow=jnp.array(True))
    assert np.isnan(slopes_of(model, full)[-1]).all()
    refused("3 features", model, batch)
    refused("of pairs", model, sample_neighbors(KEY, graph, pairs[:, 0], (2,)), features)


@cases("wrong", {"pool_rows": 9}, {"in_features": -1}, {"dropout": 1.0}, {"hidden": 0})
def test_what_is_refused(wrong):
    options, (name,) = {"in_features": 0, "pool_rows": 10} | wrong, wrong
    refused(name, module, lambda rngs: DGCNN(**options, rngs=rngs))
