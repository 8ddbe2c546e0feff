"""Baselines: what counting reaches, without a model, on the pairs or nodes of a run.

Each reads what the model may read, and no more: training edges and training labels. A baseline
that would take more than `MOST_EDGES` or `MOST_STEPS` is None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy

from jgs.command import say
from jgs.dist.communicators.collect import broadcast_text
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError

LINK_BASELINES = ("common_neighbors", "adamic_adar", "degree_product")
EVENT_BASELINES = ("latest_partner", "popularity")
MOST_EDGES = 1 << 25  # of the graph
MOST_STEPS = 1 << 27  # entries of rows that are multiplied, some seconds
_AT_ONCE = 1 << 22  # such entries, or scores
_ROUNDS = 20
_EXACT = 9  # decimals: sums in any order give equal numbers
_LEAST = 1e-6  # a probability


class LinkCounts:
    """Scores of pairs of nodes by their neighbours, which are the other nodes that an edge, int
    `[E]`, joins to a node in either direction; parallel edges count once.

    The baselines, for the neighbours `N(u)` and `N(v)` of a pair:
      common_neighbors: `|N(u) & N(v)|`.
      adamic_adar: the sum of `1 / log |N(w)|` over these common neighbours `w` (Adamic and Adar
        2003).
      degree_product: `|N(u)| |N(v)|`, preferential attachment (Liben-Nowell and Kleinberg
        2003).
      paths_of_three: the walks `u - w - x - v` of three edges. Nodes of two types share no
        neighbours.
    """

    def __init__(self, src: np.ndarray, dst: np.ndarray, num_nodes: int):
        self._edges = adjacency(src, dst, num_nodes)
        self._degree = np.diff(self._edges.indptr).astype(np.float64)
        log = np.log(np.maximum(self._degree, 2))  # a common neighbour has two
        self._shared = self._edges @ scipy.sparse.diags_array(1 / log)
        self._products = scipy.sparse.csr_array(self._degree[:, None])

    def scores(self, name: str, src: np.ndarray, dst: np.ndarray) -> np.ndarray | None:
        """float64 `[n]`: the baseline `name` of pairs int `[n]`; None beyond `MOST_STEPS`."""
        right = self._right(name)
        steps = self._walks(name)[0][src] + np.diff(right.indptr)[dst] + 1
        if steps.sum() > MOST_STEPS:
            return None
        scores = np.zeros(src.size)
        for some in _pieces(steps):
            each, place = np.unique(src[some], return_inverse=True)
            both = self._left(name, each)[place].multiply(right[dst[some]])
            scores[some] = both.sum(axis=1)
        return scores.round(_EXACT)

    def best(
        self, name: str, queries: np.ndarray, candidates: np.ndarray, k: int, known: Any
    ) -> np.ndarray | None:
        """int32 `[n, k]`: as `jgs.models.top_k` by the baseline `name`, but equal candidates
        are in one random order; None beyond `MOST_STEPS`. `known` is a `Graph`."""
        steps = self._walks(name)[1][queries] + candidates.size
        if steps.sum() > MOST_STEPS:
            return None
        candidates = np.random.default_rng(0).permutation(candidates)
        right, kept = self._right(name)[candidates].T, min(k, candidates.size)
        src, dst = (np.asarray(ends) for ends in known.edge_index())
        taken = scipy.sparse.coo_array((np.ones(src.size), (src, dst)), self._edges.shape)
        taken = (taken + scipy.sparse.eye_array(len(self._degree))).tocsr()
        found = np.full((queries.size, k), -1, np.int32)
        for some in _pieces(steps):
            scores = (self._left(name, queries[some]) @ right).toarray().round(_EXACT)
            scores[taken[queries[some]][:, candidates].toarray() > 0] = -np.inf
            order = np.argsort(-scores, axis=1, kind="stable")[:, :kept]
            real = np.take_along_axis(scores, order, axis=1) > -np.inf
            found[some, :kept] = np.where(real, candidates[order], -1)
        return found

    def _left(self, name: str, nodes: np.ndarray) -> Any:
        """The rows of `nodes` whose products with rows of `_right` are the scores."""
        if name == "degree_product":
            return self._products[nodes]
        rows = (self._shared if name == "adamic_adar" else self._edges)[nodes]
        return rows @ self._edges if name == "paths_of_three" else rows

    def _right(self, name: str) -> Any:
        return self._products if name == "degree_product" else self._edges

    def _walks(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """float64 `[N]` each: the most entries of a row of `_left`, and its products' steps."""
        if name == "degree_product":
            return np.ones_like(self._degree), np.ones_like(self._degree)
        walks = [self._degree]
        for _ in range(1 + (name == "paths_of_three")):
            walks.append(self._edges @ walks[-1])
        return walks[-2], walks[-1]


def adjacency(src: np.ndarray, dst: np.ndarray, num_nodes: int) -> Any:
    """A SciPy CSR array `[N, N]` of float64 ones: which two distinct nodes an edge joins."""
    apart = src != dst
    ends = np.concatenate([src[apart], dst[apart]]), np.concatenate([dst[apart], src[apart]])
    ones = np.ones(ends[0].size)
    made = scipy.sparse.coo_array((ones, ends), (num_nodes, num_nodes)).tocsr()
    made.data[:] = 1
    return made


def _pieces(steps: np.ndarray) -> Iterator[slice]:
    """Stretches of at most about `_AT_ONCE` steps."""
    number = np.floor(np.cumsum(steps) / _AT_ONCE)
    ends = np.append(np.flatnonzero(np.diff(number)) + 1, steps.size)
    begin = 0
    for end in ends.tolist():
        if end > begin:
            yield slice(begin, end)
        begin = end


class EventCounts:
    """Scores of links at moments, by the events strictly before each: from `src` to `dst`, int
    `[E]`, at `time`, int64 `[E]`."""

    def __init__(self, src: np.ndarray, dst: np.ndarray, time: np.ndarray, num_nodes: int):
        self._moments, self._num_nodes = np.unique(time), num_nodes
        self._popular = np.sort(self._codes(dst, time))
        self._latest = np.sort(codes := self._codes(src, time))
        self._partners = np.unique(np.searchsorted(self._latest, codes) * num_nodes + dst)

    def scores(
        self, name: str, src: np.ndarray, dst: np.ndarray, time: np.ndarray
    ) -> np.ndarray | None:
        """float64 `[n]`, for pairs int `[n]` and times int64 `[n]`; None for more than
        `MOST_STEPS`.

        latest_partner: 1 where `dst` is the target of the latest event of `src`, or of one of
        those at that same moment; else 0. popularity: how many events have the target `dst`.
        """
        if src.size > MOST_STEPS:
            return None
        scores = np.zeros(src.size)
        for a in range(0, src.size, _AT_ONCE):
            some = slice(a, a + _AT_ONCE)
            scores[some] = getattr(self, f"_{name}")(src[some], dst[some], time[some])
        return scores

    def _popularity(self, src: np.ndarray, dst: np.ndarray, time: np.ndarray) -> np.ndarray:
        begin, end = self._before(self._popular, dst, time)
        return end - begin

    def _latest_partner(self, src: np.ndarray, dst: np.ndarray, time: np.ndarray) -> np.ndarray:
        begin, end = self._before(self._latest, src, time)
        first = np.searchsorted(self._latest, self._latest[end - 1])
        return (end > begin) & np.isin(first * self._num_nodes + dst, self._partners)

    def _codes(self, nodes: np.ndarray, time: Any = None) -> np.ndarray:
        """int64: one number for a node and a moment, in their order; None: before all."""
        moment = 0 if time is None else np.searchsorted(self._moments, time)
        return nodes.astype(np.int64) * (self._moments.size + 1) + moment

    def _before(self, codes: np.ndarray, nodes: np.ndarray, time: np.ndarray) -> Any:
        """Where the events of `nodes` before `time` begin and end in the sorted `codes`."""
        return (np.searchsorted(codes, self._codes(nodes, at)) for at in (None, time))


def spread_labels(
    edges: Any, train: np.ndarray, labels: np.ndarray, num_classes: int, nodes: np.ndarray
) -> np.ndarray | None:
    """float64 `[n, C]`: the shares of the classes at `nodes` int `[n]`, spread from labels: in
    each of 20 rounds a node takes the mean of its neighbours' shares, and training nodes keep
    their own (Zhu and Ghahramani 2002). Where no training node is near they are those of all
    training nodes together. There are fewer rounds, at least 2, where all together would take
    more than `MOST_STEPS`; None where one does.

    Args:
      edges: `adjacency`, of `N` nodes.
      train, labels: int `[m]`, the training nodes, and int `[m]`, their classes; or float
        `[m, C]` of 0 and 1, NaN where not known.
    """
    num_nodes, several = edges.shape[0], labels.ndim == 2
    steps = (edges.nnz + num_nodes) * num_classes
    if steps > MOST_STEPS:
        return None
    rounds = min(_ROUNDS, max(2, MOST_STEPS // steps))
    mean = scipy.sparse.diags_array(1 / np.maximum(np.diff(edges.indptr), 1)) @ edges
    last = mean[nodes]  # in the last round no other rows are needed

    def spread(own: np.ndarray, known: np.ndarray) -> np.ndarray:
        state = np.zeros((num_nodes, own.shape[1]))
        for number in range(rounds):
            state[train] = np.where(known, own, state[train])
            state = (mean if number < rounds - 1 else last) @ state
        return state

    every = np.ones((train.size, 1), bool)
    reached = spread(every, every)  # how much of a row comes from training nodes
    share, width = np.zeros((nodes.size, num_classes)), max(1, min(32, _AT_ONCE // num_nodes))
    for c in range(0, num_classes, width):
        some = slice(c, min(c + width, num_classes))
        known, mass = every, reached
        own = (
            labels[:, some] if several else labels[:, None] == np.arange(some.start, some.stop)
        )
        if several and np.isnan(own).any():
            known = ~np.isnan(own)
            mass = spread(known, known)
        own = np.where(known, own, 0)
        prior = own.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        found = spread(own, known) / np.where(mass > 0, mass, 1)
        share[:, some] = np.where(mass > 0, found, prior)
    return share.round(_EXACT)


def as_outputs(share: np.ndarray, several: bool) -> np.ndarray:
    """float64 `[n, C]`: the outputs of a model that is as sure as `share`: logarithms of
    probabilities; with `several` labels logits, above 0 where the share is above a half."""
    share = np.clip(share, _LEAST, 1 - _LEAST)
    return np.log(share / (1 - share)) if several else np.log(share)


def same_outputs(train: np.ndarray, num_classes: int, numbers: bool, count: int) -> np.ndarray:
    """float64 `[count, C]`: the outputs of a model that gives every row the shares of the
    classes among the training labels, so that the majority is predicted; of numbers their
    mean, which is 0 in the units of outputs."""
    if numbers:
        return np.zeros((count, num_classes))
    if train.ndim == 2:
        share = np.nansum(train, axis=0) / np.maximum((~np.isnan(train)).sum(axis=0), 1)
    else:
        share = np.bincount(train, minlength=num_classes) / max(train.size, 1)
    return np.repeat(as_outputs(share[None], train.ndim == 2), count, axis=0)


def scores_of(
    counts: Mapping[int | None, Callable[[], Any] | None],
    name: str,
    relation: np.ndarray | None,
    *columns: np.ndarray,
) -> np.ndarray | None:
    """The baseline `name` of pairs, float64 of the shape of `columns`, which `scores` takes, by
    the `counts` of each relation; None: by all edges."""
    flat = [column.reshape(-1) for column in columns]
    scores = np.zeros(flat[0].size)
    for number, made in counts.items():
        some: Any = slice(None)
        if relation is not None:
            some = relation.reshape(-1) == number
        own = made and made().scores(name, *(column[some] for column in flat))
        if own is None:
            return None
        scores[some] = own
    return scores.reshape(columns[0].shape)


Figures = dict[str, dict[str, float] | None]


def figures(
    comm: Communicator, names: Iterable[str], measure: Callable[[str, str], float | None]
) -> Figures:
    """The `baselines` of a result, on every rank: for each name `val_accuracy` and
    `test_accuracy`. All ranks call it.

    `measure(name, split)`, called on rank 0 alone, gives one of the two by the run's metric, or
    None where it takes too long. A baseline without both numbers is None, and a line says why.
    """

    def found(name: str) -> dict[str, float] | None:
        each, why = {}, "it would take too long on these data"
        for split in ("val", "test"):
            try:
                value = measure(name, split)
            except InputError as error:  # of a metric of the user's
                value, why = None, str(error)
            if value is None:
                say(f"baseline {name} left out: {why}")
                return None
            each[f"{split}_accuracy"] = value
        return each

    every = broadcast_text(comm, lambda: json.dumps({name: found(name) for name in names}))
    return json.loads(every)
