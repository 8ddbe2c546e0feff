"""The metrics of links: the negatives of validation and test, and what they measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph.row_tables.table import as_table
from jgs.models import PairModel
from jgs.train.evaluation import ranking
from jgs.train.evaluation.metrics import auc

# `joined(src, dst)`: bool `[n]`, whether the data have an edge `src[i] -> dst[i]`, of the
# relation that is judged, in any split.
Joined = Callable[[np.ndarray, np.ndarray], np.ndarray]
AT_ONCE = 1 << 16  # pairs that are scored, or looked for, at a time
_ALL_PAIRS = 1 << 22  # of at most so many pairs a list is made
_ROUNDS = 64
_FEWEST = 1024  # pairs that are drawn at a time


class JudgedLinks(NamedTuple):
    """What a split of `n` links is judged by."""

    src: np.ndarray  # int32 `[n]`, as all of these
    dst: np.ndarray
    relation: np.ndarray | None
    other_src: np.ndarray  # the negatives: `[m]`, of all links, or `[n, K]`, of each
    other_dst: np.ndarray
    other_relation: np.ndarray | None = None
    mask: np.ndarray | None = None  # bool `[n, K]`, which of them count; None: all

    @property
    def nodes(self) -> np.ndarray:
        """int32, ascending: the nodes whose rows are needed."""
        ends = (self.src, self.dst, self.other_src, self.other_dst)
        return np.unique(np.concatenate([end.reshape(-1) for end in ends]))


class LinkMetric(NamedTuple):
    """A metric of links."""

    name: str  # as it is shown; `{k}` stands for `--metric-k`
    against: str  # "pairs", "nodes" in place of a link's target, or "all": whatever it could be
    # Of (scores of links, scores of negatives, mask, k); None for "all".
    measure: Callable[[np.ndarray, np.ndarray, Any, int], float] | None = None


def _as_classes(score: Callable[[np.ndarray, np.ndarray], float]) -> Callable[..., float]:
    def measure(positive: np.ndarray, negative: np.ndarray, mask: Any, k: int) -> float:
        wrong = (negative if mask is None else negative[mask]).reshape(-1)
        links = np.arange(positive.size + wrong.size) < positive.size
        return score(np.concatenate([positive, wrong]), links)

    return measure


def _ranks(positive: np.ndarray, negative: np.ndarray, mask: Any) -> np.ndarray:
    if negative.ndim == 1:
        negative = np.broadcast_to(negative, (positive.size, negative.size))
    some = np.ones(positive.size, bool) if mask is None else mask.any(axis=1)
    kept = None if mask is None else mask[some]
    return ranking.ranks(positive[some], negative[some], kept)


LINK_METRICS = {
    "auc": LinkMetric("AUC", "pairs", _as_classes(auc)),
    "ap": LinkMetric("AP", "pairs", _as_classes(ranking.average_precision)),
    "hits": LinkMetric(
        "Hits@{k}", "pairs", lambda good, bad, mask, k: ranking.hits_of_all(good, bad, k)
    ),
    "mrr": LinkMetric("MRR", "nodes", lambda *own: ranking.mrr(_ranks(*own[:3]))),
    "recall": LinkMetric("Recall@{k}", "all"),
    "ndcg": LinkMetric("NDCG@{k}", "all"),
    "map": LinkMetric("MAP@{k}", "all"),
}
# Of links that are each seen at its own time: they are measured by negatives of each link, and
# those of a `LinkTable` also by lists at its moments.
EVENT_METRICS = LINK_METRICS | {
    "hits": LinkMetric("Hits@{k}", "nodes", lambda *own: ranking.hits(_ranks(*own[:3]), own[3]))
}


class Ends(NamedTuple):
    """int32: the nodes that may be a source and a target; and whether a pair and its reverse
    are one."""

    src: np.ndarray
    dst: np.ndarray
    undirected: bool


def judged(
    links: dict[str, np.ndarray],
    ends: Ends,
    joined: Joined,
    key_data: Any,
    against: str,
    k: int,
    given: np.ndarray | None = None,
) -> JudgedLinks:
    """The links of a split with negatives that are no edges; `key_data` uint32 `[2]` decides
    them. Raises `InputError` where there are too few.

    Args:
      against: `"pairs"`: as many pairs as links, all different, uniformly among those that no
        edge joins. `"nodes"`: for each link `k` nodes in place of its target, uniformly; those
        to which its source has an edge are masked. `"all"`: none are drawn.
      given: the data's own negatives, which are taken where they are such: pairs int `[m, 2]`,
        or nodes int `[n, K]`.
    """
    chance = np.random.default_rng(np.asarray(key_data).tolist())
    src, dst = links["src"], links["dst"]
    none: Any = np.zeros((2, 0), np.int32)
    mask = None
    if given is not None and against == ("pairs" if given.shape[1] == 2 else "nodes"):
        if against == "nodes" and len(given) != src.size:
            raise InputError(
                "the data must have as many rows of negatives as links of the split",
                f"{len(given)} for {src.size}",
                "Correct the files of the split.",
            )
        none = given.T
        if against == "nodes":
            none = np.broadcast_to(src[:, None], given.shape), given
    elif against == "pairs":
        none = _without_edge(chance, src.size, ends, joined)
    elif against == "nodes":
        drawn = ends.dst[chance.integers(0, ends.dst.size, (src.size, k))]
        of = np.broadcast_to(src[:, None], drawn.shape)
        mask = ~joined(of.reshape(-1), drawn.reshape(-1)).reshape(of.shape) & (drawn != of)
        if not mask.any():
            raise InputError(
                "some link must have a node that its source has no edge to",
                f"none among {drawn.size} drawn nodes",
                "Give a sparser graph, or another --metric.",
            )
        none = np.stack([of, drawn])
    other_src, other_dst = none
    relation, other = links.get("relation"), None
    if relation is not None:
        other = np.resize(relation, other_src.shape[0])
        if other_src.ndim == 2:
            other = np.broadcast_to(relation[:, None], other_src.shape)
    return JudgedLinks(src, dst, relation, other_src, other_dst, other, mask)


def joined_parts(parts: Sequence[JudgedLinks]) -> JudgedLinks:
    """What links of several relations are judged by, one relation after the other."""
    fields: Any = zip(*parts, strict=True)
    whole: Any = (None if each[0] is None else np.concatenate(each) for each in fields)
    return JudgedLinks(*whole)


def _without_edge(
    chance: np.random.Generator, count: int, ends: Ends, joined: Joined
) -> np.ndarray:
    """int32 `[2, count]`: distinct pairs that no edge joins, drawn or of a list."""

    def fit(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
        if ends.undirected:
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
        apart = src != dst
        pairs = np.stack([src[apart], dst[apart]])
        return pairs[:, ~joined(*pairs)]

    every, draws = ends.src.size * ends.dst.size, max(2 * count, _FEWEST)
    found = np.zeros((2, 0), np.int32)
    for past in range(_ROUNDS):
        # A list takes no longer than the draws that it comes after.
        dense = every <= (past + 1) * draws or past == _ROUNDS - 1
        listed = dense and every <= _ALL_PAIRS
        if listed:
            more = fit(np.repeat(ends.src, ends.dst.size), np.tile(ends.dst, ends.src.size))
            more = more[:, chance.permutation(more.shape[1])]
        else:
            more = fit(*(chance.choice(each, draws) for each in (ends.src, ends.dst)))
        found = np.concatenate([found, more], axis=1)
        code = (found[0].astype(np.int64) << 32) | found[1]
        found = found[:, np.sort(np.unique(code, return_index=True)[1])]
        if found.shape[1] >= count:
            return found[:, :count]
        if listed:
            break
    raise InputError(
        "there must be as many pairs without an edge as links to judge",
        f"{found.shape[1]} for {count} links",
        "Give a sparser graph, or another --metric.",
    )


def with_learned(data: Any, learned: int, params: Any) -> list[Any]:
    """What a `PairModel`'s encoder reads: the features of `data`, a `jgs.train.loop.data.Data`,
    beside the nodes' rows of `learned` numbers in `params`."""
    if not learned:
        return list(data.features)
    table = np.asarray(jax.tree.leaves(params["table"])[0])
    dense = [as_table(own).numbers().astype(np.float32, copy=False) for own in data.features]
    each = zip(dense, pairwise(data.bounds.tolist()), strict=True)
    return [jnp.asarray(np.concatenate([own, table[a:b]], axis=1)) for own, (a, b) in each]


class Decoded:
    """Scores pairs of rows by the decoder of a `PairModel`, in chunks of one size."""

    def __init__(self, model: PairModel):
        self.graphdef = nnx.split(model.decoder)[0]

        @jax.jit
        def scores(params: Any, rows: Any, src: Any, dst: Any, relation: Any) -> jax.Array:
            decoder = nnx.merge(self.graphdef, params)
            return decoder(rows[src], rows[dst], relation)

        self._scores = scores

    def __call__(
        self, params: Any, rows: Any, src: np.ndarray, dst: np.ndarray, relation: Any = None
    ) -> np.ndarray:
        """float32 `[n]` or `[n, C]`: the scores of the pairs of rows number `src` and `dst`,
        int `[n]`; `params` are the whole model's."""
        table, own, found = jnp.asarray(rows), self._own(params), []
        for a in range(0, max(src.size, 1), AT_ONCE):
            some = slice(a, a + AT_ONCE)
            count = src[some].size
            size = AT_ONCE if src.size > AT_ONCE else 1 << max(4, (src.size - 1).bit_length())
            pad = (0, size - count)
            given = [None if e is None else np.pad(e[some], pad) for e in (src, dst, relation)]
            found.append(np.asarray(self._scores(own, table, *given))[:count])
        return np.concatenate(found)

    def decoder(self, params: Any) -> Any:
        return nnx.merge(self.graphdef, self._own(params))

    @staticmethod
    def _own(params: Any) -> Any:
        return params["decoder"] if "decoder" in params else nnx.State({})
