"""Decoders and the losses of links, against formulas written out."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import cases
from modules import exact, module
from refusals import refused

from jgs import Graph
from jgs.models import BilinearDecoder, DistMult, DotDecoder, top_k
from jgs.models import decoders as d
from jgs.sampling import Links

F, RELATIONS, RNG = 6, 3, np.random.default_rng(0)
KINDS = {
    "dot": lambda rngs: d.DotDecoder(),
    "cosine": lambda rngs: d.CosineDecoder(3.0),
    "bilinear": lambda rngs: d.BilinearDecoder(F, rngs=rngs),
    "product": lambda rngs: d.MLPDecoder(F, 4, rngs=rngs),
    "concat": lambda rngs: d.MLPDecoder(F, combine="concat", rngs=rngs),
    "distmult": lambda rngs: d.DistMult(F, RELATIONS, rngs=rngs),
    "complex": lambda rngs: d.ComplEx(F, RELATIONS, rngs=rngs),
}


def by_hand(name, one, s, t, r):
    """The score of one pair."""
    if name == "dot":
        return s @ t
    if name == "cosine":
        return exact(one.scale) * (s @ t) / np.linalg.norm(s) / np.linalg.norm(t)
    if name == "bilinear":
        return s @ exact(one.weight) @ t
    if name == "distmult":
        return np.sum(s * exact(one.relations)[r] * t)
    if name == "complex":
        s, r, t = (a[:3] + 1j * a[3:] for a in (s, exact(one.relations)[r], t))
        return np.real(np.sum(s * r * np.conj(t)))
    pair = s * t if name == "product" else np.r_[s, t]
    hidden = np.maximum(pair @ exact(one.first.kernel) + exact(one.first.bias), 0)
    return (hidden @ exact(one.last.kernel) + exact(one.last.bias))[0]


class Scaled(d.Decoder):
    """A user's own."""

    def __call__(self, src, dst, relation=None):
        return 0.5 * jnp.sum(src * dst, axis=-1)


def test_a_decoder_of_ones_own_has_more_scores_than_xla_sums_at_a_time():
    """Jitted with XLA's usual options: where sources were the second axis, JAX 0.10.2 had
    other numbers from the 32,768th score on."""
    rows, others = (np.float32(RNG.normal(size=(n, F))) for n in (64, 700))
    run = jax.jit(lambda end, *of: Scaled().against(*of, end), static_argnums=0)
    for end in (0, 1):  # a program each: together XLA computes them once
        found = run(end, rows, others)
        np.testing.assert_allclose(found, rows @ others.T / 2, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_a_decoder_is_its_formula(name):
    """Of pairs, and of rows of either end against many others."""
    rows, others = RNG.normal(size=(4, F)), RNG.normal(size=(5, F))
    relation, one = np.array([0, 2, 1, 0]), module(KINDS[name])
    given = relation if name in ("distmult", "complex") else None

    @jax.jit
    def run(rows, others):
        both = [one.against(rows, others, end, given) for end in (0, 1)]
        return *both, one(rows, others[:4], given)

    src, dst, pairs = jax.device_get(run(rows, others))
    for i, j in itertools.product(range(4), range(5)):
        ends = (rows[i], others[j]), (others[j], rows[i])
        want = [by_hand(name, one, *pair, relation[i]) for pair in ends]
        np.testing.assert_allclose([src[i, j], dst[i, j]], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(pairs, np.diag(src), rtol=1e-4, atol=1e-5)
    if given is not None:
        refused("relation of each pair", one, rows, others[:4])


def test_losses_are_their_formulas_and_ignore_padding():
    nan, soft = np.nan, lambda x: np.log1p(np.exp(x))
    scores = d.LinkScores(
        np.float32([1.0, -0.5, nan]),
        np.float32([[0.3, nan], [2.0, -1.0], [nan, nan]]),
        np.array([True, True, False]),
        np.array([[True, False], [True, True], [False, False]]),
        np.log([[0.5, nan], [0.25, 0.25], [nan, nan]]).astype(np.float32),
    )
    first = (soft(-1) + soft(0.3)) / 2
    second = np.log(np.exp(-0.5) + (np.exp(2) + np.exp(-1)) / (2 * 0.25)) + 0.5
    wanted = {
        d.binary_cross_entropy: [first, (soft(0.5) + (soft(2) + soft(-1)) / 2) / 2],
        d.margin_ranking: [0.3, (3.5 + 0.5) / 2],
        d.bpr: [soft(0.3 - 1), (soft(2.5) + soft(-0.5)) / 2],
        d.sampled_softmax: [np.log(np.exp(1) + np.exp(0.3) / (2 * 0.5)) - 1, second],
    }

    @jax.jit
    def run(scores):
        """The losses, and their derivatives by the positive and negative scores."""

        def of(loss):
            def f(positive, negative):
                return loss(scores._replace(positive=positive, negative=negative))

            return jax.value_and_grad(f, (0, 1))(scores.positive, scores.negative)

        return [of(loss) for loss in wanted]

    found = jax.device_get(run(scores))
    for (value, (positive, negative)), want in zip(found, wanted.values(), strict=True):
        np.testing.assert_allclose(value, np.mean(want), rtol=1e-5)
        assert np.isfinite(positive).all()
        assert np.isfinite(negative).all()
        assert not positive[2].any()
        assert not negative[0, 1].any()
    assert all(value == 0 for value, _ in run(scores._replace(mask=np.zeros(3, bool))))


GRAPH = Graph.from_edges([0, 0, 1, 2, 3, 4, 4], [1, 2, 2, 3, 4, 0, 5], 6)


@pytest.mark.parametrize("shared", [False, True])
def test_the_softmax_over_sampled_negatives_estimates_the_whole_one(shared):
    """It fails without the correction, and if a draw of the item itself counts."""
    rows = np.random.default_rng(4).normal(size=(6, F)).astype(np.float32)
    links = Links(3000, "degree", sides="dst", shared=shared, exclude=False)
    items = {"src": np.int32([0, 3]), "dst": np.int32([1, 4])}
    some = np.diff(np.asarray(GRAPH.indptr)) > 0  # others are never drawn

    @jax.jit
    def run(key, prepared, rows):
        seeds, made = links(key, prepared, items)

        def loss(rows):
            return d.sampled_softmax(d.link_scores(d.DotDecoder(), rows[seeds.nodes], made))

        def whole(rows):
            logits = rows[items["src"]] @ rows.T
            every = jax.nn.logsumexp(jnp.where(some, logits, -jnp.inf), axis=1)
            return jnp.mean(every - logits[np.arange(2), items["dst"]])

        return [jax.value_and_grad(f)(rows) for f in (loss, whole)]

    got, want = jax.device_get(run(jax.random.key(1), links.prepare(GRAPH), rows))
    np.testing.assert_allclose(got[0], want[0], rtol=0.03)
    error = np.linalg.norm(got[1] - want[1]) / np.linalg.norm(want[1])
    assert error < 0.06


@pytest.mark.parametrize("shared", [False, True])
def test_scores_of_a_batch_are_those_of_its_pairs(shared):
    """Rows by node: each negative is scored at the end that it replaces, shared or not."""
    decoder = module(KINDS["bilinear"])  # its direction matters
    rows, weight = RNG.normal(size=(6, F)).astype(np.float32), exact(decoder.weight)
    items = {"src": np.array([0, 4, 6]), "dst": np.array([1, 5, 6])}
    links = Links(4, shared=shared)

    @jax.jit
    def run(key, graph, rows):
        seeds, made = links(key, graph, items)
        of_seeds = jnp.take(rows, seeds.nodes, axis=0, mode="fill", fill_value=np.nan)
        return seeds.nodes, made, d.link_scores(decoder, of_seeds, made)

    nodes, made, scores = jax.device_get(run(jax.random.key(2), GRAPH, rows))
    assert scores.mask.tolist() == [True, True, False]
    negatives = np.append(nodes, 6)[made["negative_rows"]]  # beyond the rows is padding
    for i in range(2):
        src, dst = rows[items["src"][i]], rows[items["dst"][i]]
        np.testing.assert_allclose(scores.positive[i], src @ weight @ dst, rtol=1e-4)
        for j in range(scores.negative.shape[1]):
            side, node = made["negative_side"][i, j] if not shared else j // 4, None
            node = negatives[j // 4, j % 4] if shared else negatives[i, j]
            pair = (rows[node], dst) if side == 0 else (src, rows[node])
            want = pair[0] @ weight @ pair[1]
            np.testing.assert_allclose(scores.negative[i, j], want, rtol=1e-4, atol=1e-5)


RANDOM = np.random.default_rng(0)
N, WIDTH = 50, 4
ROWS = RANDOM.normal(size=(N, WIDTH)).astype(np.float32)
KNOWN = Graph.from_edges(*RANDOM.integers(0, N, (2, 600)), N)


def all_scores(decoder, nodes, candidates, end, relation=None):
    given = None if relation is None else np.full(len(nodes), relation)
    side = 0 if end == "src" else 1
    run = jax.jit(lambda rows, others: decoder.against(rows, others, side, given))
    return np.asarray(run(ROWS[nodes], ROWS[candidates]))


@cases(
    "at_once, end, known",
    (1 << 22, "src", KNOWN),
    (64, "dst", KNOWN),
    (7, "src", None),
    (7, "dst", KNOWN),
)
def test_it_is_the_sort_of_all_scores(at_once, end, known, monkeypatch):
    """It fails if edges of the other direction are left out, or padding is a candidate."""
    monkeypatch.setattr("jgs.models.recommend.AT_ONCE", at_once)
    decoder = module(lambda rngs: BilinearDecoder(WIDTH, rngs=rngs))
    nodes, candidates = np.array([7, 3, 7, 49, 0]), RANDOM.permutation(np.arange(5, 42))
    found, scores = top_k(decoder, ROWS, nodes, candidates, 6, end=end, known=known)
    every = all_scores(decoder, nodes, candidates, end).copy()
    if known is not None:
        pairs = {*map(tuple, KNOWN.edge_index().T.tolist())}
        for i, v in enumerate(nodes):
            for j, c in enumerate(candidates):
                if ((v, c) if end == "src" else (c, v)) in pairs:
                    every[i, j] = -np.inf
    order = np.argsort(-every, axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(found, candidates[order])
    np.testing.assert_allclose(scores, np.take_along_axis(every, order, 1), rtol=1e-5)


def test_ties_keep_the_order_of_the_candidates_and_lists_may_be_short():
    rows = np.ones((6, WIDTH), np.float32)
    found, scores = top_k(DotDecoder(), rows, [2], [4, 1, 5], 5)
    assert found.tolist() == [[4, 1, 5, -1, -1]]
    assert scores[0, 3] == -np.inf
    known = Graph.from_edges([2, 2, 5], [4, 5, 2], 6)
    found, _ = top_k(DotDecoder(), rows, [2], [4, 1, 5], 3, known=known)
    assert found.tolist() == [[1, -1, -1]]


def test_relations_and_refusals():
    decoder = module(lambda rngs: DistMult(WIDTH, 3, rngs=rngs))
    nodes, candidates = np.arange(4), np.arange(20, 40)
    found, _ = top_k(decoder, ROWS, nodes, candidates, 3, relation=2)
    every = all_scores(decoder, nodes, candidates, "src", 2)
    np.testing.assert_array_equal(found, candidates[np.argsort(-every, axis=1)[:, :3]])
    refused("ids in [0, 50); got -1 at", top_k, decoder, ROWS, [1, -1], [1], 3, relation=0)
    refused("distinct", top_k, decoder, ROWS, [1], [2, 2], 3, relation=0)
    refused("must be integers [n]", top_k, decoder, ROWS, [1], [], 3, relation=0)
    refused("end must be", top_k, decoder, ROWS, [1], [2], 3, end="left")
