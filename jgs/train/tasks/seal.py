"""`--task links --sampler seal`: links by SEAL (Zhang and Chen 2018). `PairDraws`: its batches
of pairs, where each rank has the whole graph."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.command import loading
from jgs.dist.batches.plan import planned_hybrid
from jgs.dist.batches.source import RankSource, own_shares
from jgs.dist.communicators.comm import OWN, SAME, Alone, Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.graph.row_tables.table import as_table
from jgs.models import DGCNN
from jgs.ops import gather
from jgs.sampling import Loader, Sampler
from jgs.sampling.edges.random import as_key_data, threefry
from jgs.sampling.loading.schedule import Epochs, Schedule, SeedParts, graph_digest
from jgs.sampling.loading.stages import Samplers
from jgs.train.config import Config
from jgs.train.evaluation import baselines
from jgs.train.evaluation.baselines import LINK_BASELINES, Figures, LinkCounts, figures
from jgs.train.evaluation.metrics import auc
from jgs.train.loop.job import Job
from jgs.train.loop.keys import key_of
from jgs.train.loop.open_data import WholeData, digest_of
from jgs.train.loop.step import count_seeds, masked_loss

_MEASURED = 1000  # the sizes of so many subgraphs choose the number of rows to pool
_LEAST_ROWS = 10  # the smallest `pool_rows` of `DGCNN`


class SealData(WholeData):
    """The whole graph as its files have it, on every rank, and the links `held` out of it."""

    def __init__(self, config: Config, comm: Communicator | None = None):
        with loading():
            super().__init__(config, pairs=True, ranks=comm)
        self.comm = self.ranks
        if self.plain.features is not None:
            remedy = "Choose another sampler, e.g. neighbors, and a model of typed graphs."
            as_table(self.plain.features).check_one_width("--sampler seal", self.name, remedy)
        shares = config.test_share, config.val_share
        self.held = held = hold_out(self.plain.graph, key_of(config, "split"), *shares)
        self.digests |= {"pairs": digest_of(held.train, held.val, held.test)}
        self.graphs, self.num_seeds = [held.graph], len(held.train)
        self.num_steps = -(-self.num_seeds // self.batch_size)
        self.labels = self.comm.same(np.zeros(0, np.int32))  # those of pairs are in batches


class SealJob(Job):
    """The job of SEAL: batches of pairs. All ranks make it and call it alike."""

    data: SealData

    def __init__(self, config: Config, data: SealData):
        if data.batch_size > data.num_seeds:
            raise InputError(
                "the pairs of a step must be at most those to train on",
                f"{data.batch_size} for {data.num_seeds}",
                "Lower --batch-size.",
            )
        super().__init__(config, data)

    def _make_metric(self) -> str:
        return "AUC"

    def loss(self, outputs: Any, batch: MiniBatch, labels: Any) -> jax.Array:
        """Binary cross-entropy of the pairs' logits `[B, 1]`."""
        own = batch.pair_labels.astype(jnp.float32)
        return masked_loss(outputs, own[:, None], batch.seed_mask)

    def count(self, batch: MiniBatch, labels: Any) -> jax.Array:
        return count_seeds(batch)

    def model(self, key: jax.Array) -> DGCNN:
        config, held = self.config, self.data.held
        every = np.concatenate([held.train, held.val, held.test])
        of = self.data.plain.features, config.batch_size, self._samplers[0], every
        self._draws = PairDraws(self.comm.clone(), held.graph, *of)
        self._pool_rows = self._rows_to_pool(key)
        return make_dgcnn(config, self.data.num_features, self._pool_rows, key)

    def shape(self) -> dict[str, Any]:
        return {"num_features": self.data.num_features, "pool_rows": self._pool_rows}

    def start(self, model: DGCNN, key: jax.Array, scratch: Path | None) -> None:
        self._check_devices()
        held, comm = self.data.held, self.comm
        source = self._draws.source(held.train, key)
        self.loader = Loader.over(source, self.config.prefetch if comm.concurrent else 0)
        self._scores = Scores(comm, self._draws, nnx.graphdef(model))
        self._judged_by = key

    def metric(self, params: Any, split: str, features: Any = None) -> float:
        pairs = getattr(self.data.held, split)
        return auc(self._scores(params, pairs, self._judged_by), is_link(pairs))

    def baselines(self) -> Figures:
        """What counting reaches, see `figures`: by the training links, and for the test by
        those of validation too. All ranks call it alike."""
        held = self.data.held
        train, val = held.train[is_link(held.train)], held.val[is_link(held.val)]
        seen = {"val": train, "test": np.concatenate([train, val])}

        @cache
        def counts(split: str) -> LinkCounts:
            src, dst = seen[split].T
            return LinkCounts(src, dst, held.graph.num_nodes)

        def measure(name: str, split: str) -> float | None:
            pairs = getattr(held, split)
            if len(seen[split]) > baselines.MOST_EDGES:
                return None
            scores = counts(split).scores(name, *pairs.T)
            return None if scores is None else auc(scores, is_link(pairs))

        return figures(self.comm, LINK_BASELINES, measure)

    def _rows_to_pool(self, key: jax.Array) -> int:
        sizes: list[np.ndarray] = []
        source = self._draws.source(self.data.held.train, key)
        steps = -(-min(_MEASURED, self.num_seeds) // self.batch_size)
        for ((batch, _),) in source.drawn(0, len(source.schedules[0]) - steps):
            own = [np.diff(np.asarray(groups)) for groups in self.comm.local(batch.groups)]
            sizes.append(all_gather_rows(self.comm, own).reshape(-1))
        real = np.sort(np.concatenate(sizes))
        real = real[real > 0]
        return max(_LEAST_ROWS, int(real[int(self.config.pool_share * (real.size - 1))]))


def make_dgcnn(config: Config, num_features: int, pool_rows: int, key: jax.Array) -> DGCNN:
    model = DGCNN(
        num_features,
        pool_rows,
        hidden=config.hidden,
        num_layers=config.layers or 3,
        dropout=config.dropout,
        rngs=nnx.Rngs(key),
    )
    jax.block_until_ready(nnx.state(model))
    return model


class Scores:
    """Computes a model's logits of pairs. All ranks call it alike."""

    def __init__(self, comm: Communicator, draws: PairDraws, graphdef: nnx.GraphDef):
        self._comm, self._draws = comm, draws

        def outputs(params: Any, batch: MiniBatch, x: jax.Array) -> jax.Array:
            return nnx.merge(graphdef, params)(batch, x)[:, 0]

        self._program = comm.program(outputs, (SAME, OWN, OWN), OWN)

    def __call__(self, params: Any, pairs: np.ndarray, key: Any) -> np.ndarray:
        """float32 `[n]`: logits of `pairs` int32 `[n, 2]`; an equal `key` draws alike."""
        found, source = [], self._draws.source(pairs, key, shuffle=False)
        for ((batch, x),) in source.drawn(0, 0):
            own = self._comm.local(self._program(params, batch, x))
            found.append(all_gather_rows(self._comm, own).reshape(-1))
        return np.concatenate(found)[: len(pairs)]


def pair_scores(
    config: Config, model: DGCNN, graph: Graph, features: Any, pairs: np.ndarray
) -> np.ndarray:
    """float32 `[n]`: the logits of `pairs` int32 `[n, 2]`, in one process; the configuration's
    seed decides what is drawn of the graph."""
    comm, of = Alone(), (config.batch_size, config.made("sampler"), pairs)
    scores = Scores(comm, PairDraws(comm, graph, features, *of), nnx.graphdef(model))
    return scores(nnx.state(model), pairs, threefry(config.seed))


class HeldOut(NamedTuple):
    """A graph without the test's links, and the pairs of nodes of each split: int32 `[n, 2]`,
    first links and then equally many pairs that no edge joins. A pair of nodes is in at most
    one split, and the graph has no edge, in either direction, of the test's links."""

    graph: Graph
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def hold_out(graph: Graph, key: Any, test_share: float, val_share: float) -> HeldOut:
    """Deals links, and equally many pairs without an edge, to training, validation and test.

    A link is a pair of two distinct nodes that an edge joins in either direction. The pairs
    without an edge are drawn uniformly from all of them; `key` decides the draws. The shares,
    at least one link each, go to the test and to validation, the rest to training. Raises
    `InputError` for fewer than 3 links, or more than pairs without an edge.
    """
    num_nodes = graph.num_nodes
    indptr, src = np.asarray(graph.indptr), np.asarray(graph.indices).astype(np.int64)
    dst = np.repeat(np.arange(num_nodes), np.diff(indptr))
    code = np.minimum(src, dst) * num_nodes + np.maximum(src, dst)
    links = np.unique(code[src != dst])
    if links.size < 3:
        raise InputError(
            "a graph to learn links from must have at least 3", links.size, "Add edges."
        )
    if (others := num_nodes * (num_nodes - 1) // 2 - links.size) < links.size:
        raise InputError(
            "a graph to learn links from must have as many pairs without an edge as links",
            f"{others} for {links.size} links",
            "Give a graph with fewer edges.",
        )
    chance = np.random.default_rng(np.asarray(as_key_data(key)).tolist())
    chosen = chance.permutation(links)
    none = _without_edge(chance, links, num_nodes)
    num_test, num_val = (max(1, int(s * links.size)) for s in (test_share, val_share))
    if num_test + num_val >= links.size:
        raise InputError(
            "some links must be left to train on",
            f"{num_test} and {num_val} held out of {links.size}",
            "Lower --test-share or --val-share.",
        )
    bounds = (0, num_test, num_test + num_val, links.size)
    test, val, train = (
        _pairs(np.concatenate([chosen[a:b], none[a:b]]), num_nodes) for a, b in pairwise(bounds)
    )
    kept = ~np.isin(code, chosen[:num_test]) | (src == dst)
    return HeldOut(graph.edge_subgraph(kept), train, val, test)


def is_link(pairs: np.ndarray) -> np.ndarray:
    """bool `[n]`: which of `pairs`, a split of `HeldOut`, are links."""
    return np.arange(len(pairs)) < len(pairs) // 2


def _without_edge(chance: np.random.Generator, links: np.ndarray, num_nodes: int) -> np.ndarray:
    """As many distinct pairs as `links`, coded alike, that are no links; in random order."""
    found = np.empty(0, np.int64)
    while found.size < links.size:
        ends = np.sort(chance.integers(0, num_nodes, (2 * links.size, 2)), axis=1)
        code = ends[ends[:, 0] < ends[:, 1]] @ np.array([num_nodes, 1])
        both = np.concatenate([found, code[~np.isin(code, links)]])
        _, first = np.unique(both, return_index=True)
        found = both[np.sort(first)]
    return found[: links.size]


def _pairs(code: np.ndarray, num_nodes: int) -> np.ndarray:
    return np.stack(np.divmod(code, num_nodes), axis=1).astype(np.int32)


class PairDraws:
    """Draws batches of pairs and the features of their nodes, by one compiled program for all
    sources.

    Every rank has the whole graph and all features, and draws its own `1 / R` of a step's
    pairs. If the sampler is by-node, all ranks' batches are together what one rank draws for as
    many pairs. A step takes one round, in which the ranks learn whether a batch has overflowed.
    All ranks make it and call it alike.

    Args:
      comm: the communicator of the programs that draw.
      graph: the graph, equal on all ranks.
      features: the rows of all nodes, as `jgs.ops.gather` takes them; with None batches have
        rows of width 0.
      batch_size: the pairs in a batch of each rank.
      sampler: a sampler of pairs (`Sampler.pairs`).
      pairs: int32 `[n, 2]`, pairs like those of the batches: they decide the planned capacity.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        features: Any,
        batch_size: int,
        sampler: Sampler,
        pairs: np.ndarray,
    ):
        self._comm, self._graph, self._sampler = comm, graph, sampler
        self._batch_size = batch_size
        state = sampler.init(graph)
        self._draws = planned_hybrid(comm, graph, batch_size, sampler, state, [pairs])
        self._rows = WholeFeatures(comm, features)

    def source(self, pairs: np.ndarray, key: Any, shuffle: bool = True) -> RankSource:
        """The batches of `pairs` int32 `[n, 2]`, drawn by `key`."""
        comm, sampler = self._comm, self._sampler
        size, num_nodes = self._batch_size * comm.size, self._graph.num_nodes
        if len(pairs) < size:  # they make one batch, which is not full
            padding = np.full((size - len(pairs), 2), num_nodes, np.int32)
            pairs = np.concatenate([pairs, padding])
        draws_by = None if sampler.by_node else comm.size
        settings = Samplers.of(sampler).settings(shuffle, draws_by, age=None)
        every = SeedParts.whole(pairs, graph_digest(self._graph))
        of_all = (key, every, size, num_nodes, Epochs(shuffle), settings, sampler)
        schedules = [Schedule(*of_all, share=share) for share in own_shares(comm)]
        return RankSource(comm, schedules, self._draws, self._rows)


class WholeFeatures:
    """See `jgs.dist.batches.source.RowReader`: every rank reads its own copy of all rows."""

    extra_rounds = 0

    def __init__(self, comm: Communicator, features: Any):
        self._features = None if features is None else comm.same(features)
        self._read = comm.program(self._rows, (SAME, OWN, OWN), (OWN, SAME))
        self._comm = comm

    def __call__(self, nodes: Any, overflow: Any) -> tuple[Any, bool]:
        x, lost = self._read(self._features, nodes, overflow)
        return x, int(lost) > 0

    def _rows(self, features: Any, nodes: jax.Array, overflow: jax.Array) -> Any:
        lost = self._comm.all_reduce(overflow.astype(jnp.int32))
        if features is None:
            return jnp.zeros((nodes.shape[0], 0)), lost
        return gather(features, nodes), lost
