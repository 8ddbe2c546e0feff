"""Decoders: the score of a pair of nodes, from the rows that a graph network gives its ends;
and `PairModel`, a graph network with a decoder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.models.gnn import GNN
from jgs.options import Option
from jgs.sampling.links import DST, SRC


class Decoder(nnx.Module):
    """The contract of a decoder: a module that scores pairs of nodes.

    Rows are float `[..., F]`, scores float `[...]`, of shapes that broadcast. `relation` is int
    of the shape of the scores, for decoders that have relations.
    """

    @abstractmethod
    def __call__(self, src: jax.Array, dst: jax.Array, relation: Any = None) -> jax.Array:
        """The scores of the pairs `src -> dst`."""

    def against(
        self, rows: jax.Array, others: jax.Array, end: int, relation: Any = None
    ) -> jax.Array:
        """float `[B, K]`: the score of each of `rows` `[B, F]` with each of `others` `[K, F]`.
        `end` is what `rows` are: 0, sources; 1, targets. `relation` is `[B]`."""
        # Sources have the first axis. Where the left factor of a product lacks it, XLA's CPU
        # programs sum wrongly (findings/xla_cpu_sums_of_products_are_wrong.sh).
        own = None if relation is None else relation[:, None]
        if end == SRC:
            return self(rows[:, None], others[None], own)
        return self(others[:, None], rows[None], None if own is None else own.T).T


class _Product(Decoder):
    """A decoder whose score is an inner product: of what `queries` makes of one end, and of
    what `keys` makes of the other. `against` is then a product of matrices."""

    def queries(self, rows: jax.Array, end: int, relation: Any = None) -> jax.Array:
        """The rows of the end `end`, made to be multiplied with the keys of the other end."""
        return rows

    def keys(self, rows: jax.Array) -> jax.Array:
        return rows

    def __call__(self, src: jax.Array, dst: jax.Array, relation: Any = None) -> jax.Array:
        return jnp.sum(self.queries(src, SRC, relation) * self.keys(dst), axis=-1)

    def against(
        self, rows: jax.Array, others: jax.Array, end: int, relation: Any = None
    ) -> jax.Array:
        return self.queries(rows, end, relation) @ self.keys(others).T


class DotDecoder(_Product):
    """The inner product of the two rows."""


class CosineDecoder(_Product):
    """The cosine of the two rows, times `scale`, which is trained.

    Args:
      scale: float, what it begins with.
    """

    def __init__(
        self,
        scale: Annotated[float, Option("what the cosine's factor begins with", above=0)] = 1.0,
    ):
        self.scale = nnx.Param(jnp.float32(scale))

    def queries(self, rows: jax.Array, end: int, relation: Any = None) -> jax.Array:
        return self.keys(rows) * self.scale[...]

    def keys(self, rows: jax.Array) -> jax.Array:
        square = jnp.sum(rows * rows, axis=-1, keepdims=True)
        return rows * jax.lax.rsqrt(jnp.maximum(square, 1e-12))


class BilinearDecoder(_Product):
    """`src @ W @ dst`, with a matrix `W` that is trained.

    Args:
      width: int, `F`.
    """

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        init = nnx.initializers.glorot_uniform()
        self.weight = nnx.Param(init(rngs.params(), (width, width)))

    def queries(self, rows: jax.Array, end: int, relation: Any = None) -> jax.Array:
        weight = self.weight[...]
        return rows @ (weight if end == SRC else weight.T)


class MLPDecoder(Decoder):
    """Two dense layers on the product of the rows, which is the same in both directions, or on
    both rows.

    Args:
      width: int, `F`.
      hidden: int, the width between the layers; None: `F`.
      combine: `"product"`, as OGB's examples do, or `"concat"`.
      out_features: int, `C`: what it returns is `[..., C]` then, such as a score for each class
        of an edge. None: one score, `[...]`.
    """

    def __init__(
        self,
        width: int,
        hidden: Annotated[int | None, Option(
            "width between the decoder's two layers (default: --hidden)",
            name="decoder_hidden", least=1, most=1 << 16,
        )] = None,
        *,
        combine: Annotated[str, Option(
            "what the decoder reads of the two rows", choices=("product", "concat")
        )] = "product",
        out_features: int | None = None,
        rngs: nnx.Rngs,
    ):  # fmt: skip
        if combine not in ("product", "concat"):
            raise InputError(
                "combine must be product or concat", repr(combine), "Give product."
            )
        hidden, self.combine = hidden or width, combine
        self.first = nnx.Linear(width * (1 + (combine == "concat")), hidden, rngs=rngs)
        self.one, self.last = not out_features, nnx.Linear(hidden, out_features or 1, rngs=rngs)

    def __call__(self, src: jax.Array, dst: jax.Array, relation: Any = None) -> jax.Array:
        src, dst = jnp.broadcast_arrays(src, dst)
        pair = src * dst if self.combine == "product" else jnp.concatenate([src, dst], -1)
        scores = self.last(nnx.relu(self.first(pair)))
        return scores[..., 0] if self.one else scores


class DistMult(_Product):
    """`sum(src * r * dst)` with a row `r` for each relation (Yang et al. 2015). The score is
    the same in both directions.

    Args:
      width: int, `F`.
      num_relations: int; relations are 0 to `num_relations - 1`.
    """

    def __init__(self, width: int, num_relations: int, *, rngs: nnx.Rngs):
        draw = jax.random.normal(rngs.params(), (num_relations, width))
        self.relations = nnx.Param(draw / jnp.sqrt(width))

    def of_relation(self, relation: Any) -> jax.Array:
        """The rows `r` of relations. Raises `InputError` for None."""
        if relation is None:
            raise InputError(
                "a decoder of relations must be given the relation of each pair",
                "None",
                'Give items with a column "relation", or use DotDecoder.',
            )
        return jnp.take(self.relations[...], relation, axis=0, mode="clip")

    def queries(self, rows: jax.Array, end: int, relation: Any = None) -> jax.Array:
        return rows * self.of_relation(relation)


class ComplEx(DistMult):
    """`Re(sum(src * r * conj(dst)))`: rows are complex numbers, the real parts first, so that a
    direction matters (Trouillon et al. 2016).

    Args:
      width: int, `F`, even.
      num_relations: as in `DistMult`.
    """

    def __init__(self, width: int, num_relations: int, *, rngs: nnx.Rngs):
        if width % 2:
            raise InputError("the width of ComplEx must be even", width, "Take one more.")
        super().__init__(width, num_relations, rngs=rngs)

    def queries(self, rows: jax.Array, end: int, relation: Any = None) -> jax.Array:
        real, imaginary = jnp.split(rows, 2, axis=-1)
        a, b = jnp.split(self.of_relation(relation), 2, axis=-1)
        b = b if end == SRC else -b  # Re(s r conj(d)) = Re(conj(s) conj(r) d)
        return jnp.concatenate([real * a - imaginary * b, real * b + imaginary * a], axis=-1)


class LinkScores(NamedTuple):
    """The scores of a batch of links and of their negatives.

    Fields, of `B` items:
      positive: float `[B]`.
      negative: float `[B, M]`; `M` is `num_negatives`, twice that for shared ones of both ends.
      mask: bool `[B]`, which items are real.
      negative_mask: bool `[B, M]`, which negatives count.
      log_prob: float32 `[B, M]`, the logarithm of the probability of each draw.
    """

    positive: jax.Array
    negative: jax.Array
    mask: jax.Array
    negative_mask: jax.Array
    log_prob: jax.Array


def link_scores(decoder: Any, rows: jax.Array, items: Mapping[str, Any]) -> LinkScores:
    """The `LinkScores` of a batch from the stage `jgs.sampling.Links`.

    Args:
      decoder: a `Decoder`.
      rows: float `[S, F]`, a row for each seed: the output of a `GNN` for the batch.
      items: `batch.items`. A column `relation` int `[B]` is passed to the decoder.
    """
    src, dst = (_rows_at(rows, items["rows"][:, end]) for end in (SRC, DST))
    relation, side = items.get("relation"), items["negative_side"]
    drawn, counts, log_prob = (
        items[f"negative_{name}"] for name in ("rows", "mask", "log_prob")
    )
    if counts.ndim == 3:  # shared

        def of_side(place: int) -> jax.Array:
            others = _rows_at(rows, drawn[place])
            return jax.lax.cond(
                side[place] == DST,
                lambda: decoder.against(src, others, SRC, relation),
                lambda: decoder.against(dst, others, DST, relation),
            )

        negative = jnp.concatenate([of_side(i) for i in range(len(side))], axis=1)
        counts = jnp.concatenate(list(counts), axis=1)
        log_prob = jnp.broadcast_to(log_prob.reshape(-1), negative.shape)
    else:
        others, as_dst = _rows_at(rows, drawn), (side == DST)[..., None]
        ends = (
            jnp.where(as_dst, src[:, None], others),
            jnp.where(as_dst, others, dst[:, None]),
        )
        negative = decoder(*ends, None if relation is None else relation[:, None])
    real = items["rows"][:, SRC] < rows.shape[0]
    return LinkScores(decoder(src, dst, relation), negative, real, counts, log_prob)


def _rows_at(rows: jax.Array, at: jax.Array) -> jax.Array:
    return jnp.take(rows, at, axis=0, mode="fill", fill_value=0)


# -- losses: each is the mean over the real items, float32, and 0 without any ------------------


def binary_cross_entropy(scores: LinkScores) -> jax.Array:
    """The cross-entropy of links and negatives as two classes, each of half the weight."""
    wrong = _mean_of_negatives(scores, nnx.softplus(_kept(scores)))
    return _mean(scores, (nnx.softplus(-_positive(scores)) + wrong) / 2)


def margin_ranking(scores: LinkScores, margin: float = 1.0) -> jax.Array:
    """The mean over the negatives of `max(0, margin - positive + negative)`."""
    each = nnx.relu(margin - _positive(scores)[:, None] + _kept(scores))
    return _mean(scores, _mean_of_negatives(scores, each))


def bpr(scores: LinkScores) -> jax.Array:
    """The mean over the negatives of `-log sigmoid(positive - negative)` (Rendle et al. 2009,
    Bayesian personalised ranking)."""
    each = nnx.softplus(_kept(scores) - _positive(scores)[:, None])
    return _mean(scores, _mean_of_negatives(scores, each))


def sampled_softmax(scores: LinkScores) -> jax.Array:
    """`-log(exp(positive) / Z)`, where `Z` is `exp(positive)` and the sum over all other nodes,
    estimated from the negatives: each counts `1 / (M q)` times, with `q` its probability. So
    `Z` and its gradient are unbiased, whatever law the negatives have (Bengio and Senécal
    2008, section III). Negatives that do not count count 0 times: a filtered loss leaves known
    links out of `Z`."""
    count = scores.negative.shape[1]
    logits = jnp.where(
        scores.negative_mask,
        _kept(scores) - jnp.where(scores.negative_mask, scores.log_prob, 0) - jnp.log(count),
        -jnp.inf,
    )
    every = jnp.concatenate([_positive(scores)[:, None], logits], axis=1)
    return _mean(scores, jax.nn.logsumexp(every, axis=1) - _positive(scores))


def _positive(scores: LinkScores) -> jax.Array:
    """The scores of the items, 0 for padding (the derivative of NaN is not 0)."""
    return jnp.where(scores.mask, scores.positive, 0)


def _kept(scores: LinkScores) -> jax.Array:
    """The scores of negatives, 0 where they do not count."""
    return jnp.where(scores.negative_mask, scores.negative, 0)


def _mean_of_negatives(scores: LinkScores, each: jax.Array) -> jax.Array:
    counts = scores.negative_mask
    total = jnp.sum(jnp.where(counts, each, 0), axis=1)
    return total / jnp.maximum(jnp.sum(counts, axis=1), 1)


def _mean(scores: LinkScores, each: jax.Array) -> jax.Array:
    real = scores.mask
    return jnp.sum(jnp.where(real, each, 0)) / jnp.maximum(jnp.sum(real), 1)


class PairModel(nnx.Module):
    """A graph network, whose rows a decoder scores in pairs.

    Args:
      encoder: its output is a row `[F]` for each seed.
      decoder: scores pairs of these rows.
      num_nodes: `N`.
      learned: the width of a row that is learned for each node; 0: none. It stands behind the
        node's features. The table takes `12 N learned` bytes with Adam's moments, and a step
        updates all of it.
      rngs: its `params` stream makes that table.

    `model(batch, x, key=None)` returns the `LinkScores` of a batch from the stage
    `jgs.sampling.Links`; `x` is as for a `GNN`.
    """

    def __init__(
        self,
        encoder: GNN,
        decoder: Decoder,
        num_nodes: int = 0,
        learned: int = 0,
        *,
        rngs: nnx.Rngs,
    ):
        self.encoder, self.decoder, self.learned = encoder, decoder, learned
        if learned:
            drawn = jax.random.normal(rngs.params(), (num_nodes, learned))
            self.table = nnx.Param(drawn / jnp.sqrt(learned))

    @property
    def input_reduce(self) -> str | None:
        """As of a `GNN`; None where rows are learned, which the features do not hold."""
        return None if self.learned else self.encoder.input_reduce

    @property
    def uses_degrees(self) -> bool:
        return self.encoder.uses_degrees

    @property
    def message_widths(self) -> tuple[int, ...]:
        return self.encoder.message_widths

    def __call__(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> LinkScores:
        return link_scores(self.decoder, self.rows(batch, x, key=key), batch.items)

    def rows(self, batch: MiniBatch, x: Any, *, key: jax.Array | None = None) -> jax.Array:
        """float `[S, F]`: the rows of a batch's seeds, which the decoder scores in pairs."""
        return self.encoder(batch, self._inputs(batch, x), key=key)

    def observed(
        self, batch: MiniBatch, x: Any, probes: Any, *, key: jax.Array | None = None
    ) -> tuple[LinkScores, Any]:
        x = self._inputs(batch, x)
        rows, messages = self.encoder.observed(batch, x, probes, key=key)
        return link_scores(self.decoder, rows, batch.items), messages

    def _inputs(self, batch: MiniBatch, x: Any) -> Any:
        if not self.learned:
            return x
        own = jnp.take(self.table[...], batch.nodes, axis=0, mode="fill", fill_value=0)
        return jnp.concatenate([x, own], axis=1)
