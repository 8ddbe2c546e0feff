"""Decoders and the losses of links, against formulas written out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jgs import Graph, InputError
from jgs.models import decoders as d
from jgs.sampling import Links

F, RELATIONS, RNG = 6, 3, np.random.default_rng(0)
KINDS = {
    "dot": d.DotDecoder(),
    "cosine": d.CosineDecoder(3.0),
    "bilinear": d.BilinearDecoder(F, rngs=nnx.Rngs(0)),
    "product": d.MLPDecoder(F, 4, rngs=nnx.Rngs(0)),
    "concat": d.MLPDecoder(F, combine="concat", rngs=nnx.Rngs(0)),
    "distmult": d.DistMult(F, RELATIONS, rngs=nnx.Rngs(0)),
    "complex": d.ComplEx(F, RELATIONS, rngs=nnx.Rngs(0)),
}


def by_hand(name, s, t, r):
    """The score of one pair."""
    one = KINDS[name]
    if name == "dot":
        return s @ t
    if name == "cosine":
        return 3 * (s @ t) / np.linalg.norm(s) / np.linalg.norm(t)
    if name == "bilinear":
        return s @ np.asarray(one.weight[...]) @ t
    if name == "distmult":
        return np.sum(s * np.asarray(one.relations[r]) * t)
    if name == "complex":
        s, r, t = (a[:3] + 1j * a[3:] for a in (s, np.asarray(one.relations[r]), t))
        return np.real(np.sum(s * r * np.conj(t)))
    pair = s * t if name == "product" else np.r_[s, t]
    hidden = np.maximum(pair @ np.asarray(one.first.kernel[...]) + one.first.bias[...], 0)
    return (hidden @ np.asarray(one.last.kernel[...]) + one.last.bias[...])[0]


@pytest.mark.parametrize("name", KINDS)
def test_a_decoder_is_its_formula(name):
    """Of pairs, and of rows of either end against many others."""
    rows, others = RNG.normal(size=(4, F)), RNG.normal(size=(5, F))
    relation, one = np.array([0, 2, 1, 0]), KINDS[name]
    given = relation if name in ("distmult", "complex") else None
    src, dst = one.against(rows, others, 0, given), one.against(rows, others, 1, given)
    for i, j in itertools.product(range(4), range(5)):
        want = [by_hand(name, *p, relation[i]) for p in permuted(rows[i], others[j])]
        np.testing.assert_allclose([src[i, j], dst[i, j]], want, rtol=1e-4, atol=1e-5)
    pairs = one(rows, others[:4], given)
    np.testing.assert_allclose(pairs, np.diag(src), rtol=1e-4, atol=1e-5)
    if given is not None:
        with pytest.raises(InputError, match="relation of each pair"):
            one(rows, others[:4])


def permuted(a, b):
    return (a, b), (b, a)


def scores_of(positive, negative, mask=None, counts=None, log_prob=None):
    positive, negative = np.array(positive, np.float32), np.array(negative, np.float32)
    mask = np.ones(positive.shape, bool) if mask is None else np.array(mask)
    counts = np.ones(negative.shape, bool) if counts is None else np.array(counts)
    log_prob = np.zeros(negative.shape, np.float32) if log_prob is None else log_prob
    return d.LinkScores(positive, negative, mask, counts, log_prob)


def of_scores(loss, scores):
    """The loss, and its derivatives with respect to the positive and negative scores."""

    def run(positive, negative):
        return loss(scores._replace(positive=positive, negative=negative))

    return jax.jit(jax.value_and_grad(run, argnums=(0, 1)))(scores.positive, scores.negative)


def test_losses_are_their_formulas_and_ignore_padding():
    nan = np.nan
    scores = scores_of(
        [1.0, -0.5, nan],
        [[0.3, nan], [2.0, -1.0], [nan, nan]],
        [True, True, False],
        [[True, False], [True, True], [False, False]],
        np.log([[0.5, nan], [0.25, 0.25], [nan, nan]]).astype(np.float32),
    )
    soft = lambda x: np.log1p(np.exp(x))  # noqa: E731
    cases = [
        (
            d.binary_cross_entropy,
            [soft(-1) + soft(0.3), soft(0.5) + (soft(2) + soft(-1)) / 2],
            2,
        ),
        (d.margin_ranking, [0.3, (3.5 + 0.5) / 2], 1),
        (d.bpr, [soft(0.3 - 1), (soft(2.5) + soft(-0.5)) / 2], 1),
        (
            d.sampled_softmax,
            [
                np.log(np.exp(1) + np.exp(0.3) / (2 * 0.5)) - 1,
                np.log(np.exp(-0.5) + (np.exp(2) + np.exp(-1)) / (2 * 0.25)) + 0.5,
            ],
            1,
        ),
    ]
    for loss, want, by in cases:
        value, gradient = of_scores(loss, scores)
        np.testing.assert_allclose(value, np.mean(want) / by, rtol=1e-5)
        assert np.isfinite(gradient[0]).all()
        assert np.isfinite(gradient[1]).all()
        assert not gradient[0][2].any()
        assert not gradient[1][0, 1].any()
        none = scores._replace(mask=np.zeros(3, bool))
        assert loss(none) == 0


GRAPH = Graph.from_edges([0, 0, 1, 2, 3, 4, 4], [1, 2, 2, 3, 4, 0, 5], 6)


@pytest.mark.parametrize("shared", [False, True])
def test_the_softmax_over_sampled_negatives_estimates_the_whole_one(shared):
    """Draws by degree^0.75, of every node that has edges. The estimate of `Z`, and its
    gradient, are right on average over single draws; those of the loss itself where there are
    many. It fails without the correction, and if a draw of the item itself counts."""
    rng = np.random.default_rng(4)
    rows = jnp.asarray(rng.normal(size=(6, F)), jnp.float32)
    links = Links(3000, "degree", sides="dst", shared=shared, exclude=False)
    items = {"src": np.array([0, 3]), "dst": np.array([1, 4])}
    seeds, made = links(jax.random.key(1), links.prepare(GRAPH), items)

    def loss(rows):
        return d.sampled_softmax(d.link_scores(d.DotDecoder(), rows[seeds.nodes], made))

    def whole(rows):
        logits = rows[items["src"]] @ rows.T
        some = np.diff(np.asarray(GRAPH.indptr)) > 0  # others are never drawn
        every = jax.nn.logsumexp(jnp.where(some, logits, -jnp.inf), axis=1)
        return jnp.mean(every - logits[np.arange(2), items["dst"]])

    got, want = (jax.value_and_grad(f)(rows) for f in (loss, whole))
    np.testing.assert_allclose(got[0], want[0], rtol=0.03)
    error = np.linalg.norm(got[1] - want[1]) / np.linalg.norm(want[1])
    assert error < 0.06

    def partition(logits, node, law):  # exp(loss + positive), of one draw
        one = (logits[None, 1], logits[None, None, node])
        yes, counts = np.ones(1, bool), np.array([[node != 1]])
        scores = d.LinkScores(*one, yes, counts, jnp.log(law[None, None, node]))
        return jnp.exp(d.sampled_softmax(scores) + logits[1])

    logits, law = (
        jnp.asarray(rng.normal(size=5), jnp.float32),
        jnp.asarray([0.1, 0.2, 0.3, 0.15, 0.25]),
    )
    draws = [jax.value_and_grad(partition)(logits, node, law) for node in range(5)]
    mean = [sum(float(law[i]) * np.asarray(draws[i][k]) for i in range(5)) for k in (0, 1)]
    exact = jax.value_and_grad(lambda logits: jnp.sum(jnp.exp(logits)))(logits)
    for one, other in zip(mean, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_scores_of_a_batch_are_those_of_its_pairs():
    """Rows by node: each negative is scored at the end that it replaces, shared or not."""
    decoder = d.BilinearDecoder(F, rngs=nnx.Rngs(1))  # its direction matters
    rows = jnp.asarray(RNG.normal(size=(6, F)), jnp.float32)
    items = {"src": np.array([0, 4, 6]), "dst": np.array([1, 5, 6])}
    weight = np.asarray(decoder.weight[...])
    for shared in (False, True):
        links = Links(4, shared=shared)
        seeds, made = links(jax.random.key(2), GRAPH, items)
        of_seeds = jnp.take(rows, seeds.nodes, axis=0, mode="fill", fill_value=np.nan)
        scores = d.link_scores(decoder, of_seeds, made)
        assert scores.mask.tolist() == [True, True, False]
        nodes = np.asarray(seeds.nodes)[made["negative_rows"]] if shared else None
        for i in range(2):
            src, dst = rows[items["src"][i]], rows[items["dst"][i]]
            np.testing.assert_allclose(scores.positive[i], src @ weight @ dst, rtol=1e-5)
            for j in range(scores.negative.shape[1]):
                if shared:
                    side, node = divmod(j, 4)[0], nodes[j // 4, j % 4]
                else:
                    side = int(made["negative_side"][i, j])
                    node = seeds.nodes[made["negative_rows"][i, j]]
                pair = (rows[node], dst) if side == 0 else (src, rows[node])
                np.testing.assert_allclose(
                    scores.negative[i, j], pair[0] @ weight @ pair[1], rtol=1e-4
                )
