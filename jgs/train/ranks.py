"""`RankJob`: training on the parts of a graph, by one rank or many."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse

from jgs.dist.comm import Communicator, all_gather_rows
from jgs.dist.exchange import FeatureExchange
from jgs.dist.loader import DistLoader, HybridSampler, Sampler
from jgs.dist.parts import Part, Parts, open_parts
from jgs.dist.plan import (
    Remote,
    degree_cache,
    largest,
    planned_cache,
    planned_vanilla,
    request_capacity,
)
from jgs.errors import InputError
from jgs.features import SparseFeatures
from jgs.graph import Graph, as_device
from jgs.models import GraphSAGE
from jgs.sampling.capacity import plan_capacity
from jgs.sampling.schedule import Deal, Schedule
from jgs.train.config import Config
from jgs.train.evaluate import right_and_asked
from jgs.train.evaluate_ranks import make_rank_inference
from jgs.train.progress import Meter

log = logging.getLogger(__name__)


class RankJob:
    """See `jgs.train.loop.Job`. Each of the `R` ranks has `P / R` of the `P` parts.

    Every batch has `batch_size * R` seeds, as many of each part: it is the same batch, up to
    the order of its nodes, for every `R`.
    """

    def __init__(self, config: Config, comm: Communicator):
        assert config.partition is not None
        parts = open_parts(config.partition)
        self.config, self.comm, self._parts = config, comm, parts
        per_rank = _parts_per_rank(parts, comm.size)
        self._per_part = _seeds_per_part(config, parts, per_rank)
        self._offsets = parts.offsets[::per_rank]
        first = comm.rank * per_rank
        numbers = range(first, first + per_rank * comm.num_local)
        mine = [parts.part(p) for p in numbers]
        self._mine = [mine[i : i + per_rank] for i in range(0, len(mine), per_rank)]
        self._features = [_features(some) for some in self._mine]
        described = parts.manifest["features"]
        self.name, self.num_classes = parts.name, parts.num_classes
        self.num_features, self.sparse = described["shape"][1], described["sparse"]
        self.multilabel = parts.labels.ndim == 2
        self._seeds = [part["seeds"] for part in parts.manifest["parts"]]
        self.num_seeds, self.batch_size = sum(self._seeds), config.batch_size * comm.size
        self.labels = comm.same(as_device(parts.labels))
        self.digests = {"parts": parts.parts_id}
        self._background = comm.clone()

    def start(self, model: GraphSAGE, key: jax.Array, scratch: Path | None) -> None:
        config, comm = self.config, self._background
        schedules = self._schedules(key)
        vanilla = config.mode == "vanilla"
        graphs = [
            self._parts.local_graph(some[0].index, some[-1].index + 1)
            if vanilla
            else self._parts.graph
            for some in self._mine
        ]
        if config.weighted and graphs[0].edge_weight is None:
            raise InputError(
                "--weighted must have a graph with edge weights", self.name, "Leave it out."
            )
        self._sampler = sampler = self._make_sampler(graphs, schedules)
        self._remote = Remote(comm, self._offsets, sampler, schedules)
        self._graphs, self._num_steps = graphs, len(schedules[0])
        capacity = request_capacity(self._remote, 0, self._num_steps)
        self._exchange = FeatureExchange(
            comm, self._offsets, self._features, capacity, config.wire
        )
        planned = config.cache == "planned"
        if config.cache == "degree":
            self._cache(0)
        self.loader = DistLoader(
            comm,
            schedules,
            sampler,
            self._exchange,
            prefetch=config.prefetch if comm.concurrent else 0,
            before_epoch=self._cache if planned else None,
        )
        self._infer = make_rank_inference(
            self.comm,
            model,
            graphs,
            self._offsets,
            self._features,
            config.eval_memory << 20,
            scratch,
            config.weighted,
        )

    def batches(self, meter: Meter) -> Iterator[tuple[Any, Any]]:
        waited, before = self.loader.waited, dict(self.loader.seconds)
        for batch, x in self.loader:
            # Drawn in the background, the parts take longer than the step waits for them.
            parts = {name: s - before[name] for name, s in self.loader.seconds.items()}
            share = (self.loader.waited - waited) / max(sum(parts.values()), 1e-9)
            for name, seconds in parts.items():
                meter.seconds[name] = seconds * min(share, 1)
            yield batch, x

    def accuracy(self, params: Any, split: str) -> float:
        ids = getattr(self._parts, f"{split}_idx")
        bounds = self._offsets[self.comm.rank :][: self.comm.num_local + 1]
        ends = np.searchsorted(ids, bounds)
        nodes = [np.asarray(ids[a:b]) for a, b in pairwise(ends)]
        logits = self._infer(params, nodes)
        labels = self._parts.labels
        counts = [
            np.array(right_and_asked(out, np.asarray(labels[asked])), np.int32)
            for out, asked in zip(logits, nodes, strict=True)
        ]
        right, asked = all_gather_rows(self.comm, counts).astype(np.int64).sum(axis=0).tolist()
        return right / max(asked, 1)

    def rounds(self) -> int:
        """The rounds of drawing batches so far, sampling and features."""
        return self._background.counters.rounds

    def extra_rounds(self) -> int:
        """Those of them that a larger capacity would have saved."""
        return self._exchange.extra_rounds + getattr(self._sampler, "extra_rounds", 0)

    def close(self) -> None:
        self.loader.close()

    # -- what `start` makes --

    def _schedules(self, key: jax.Array) -> list[Schedule]:
        config, parts = self.config, self._parts
        settings = repr((config.fanouts, config.replace, config.weighted))
        longest, digest = max(self._seeds), zlib.crc32(parts.parts_id.encode())
        schedules = []
        for some in self._mine:
            seeds = [np.asarray(part.train_idx) for part in some]
            deal = Deal(seeds, some[0].index, parts.num_parts, self.num_seeds, longest, digest)
            schedules.append(
                Schedule(key, deal, self._per_part, parts.num_nodes, settings=settings)
            )
        return schedules

    def _make_sampler(self, graphs: Sequence[Graph], schedules: Sequence[Schedule]) -> Sampler:
        config, comm = self.config, self._background
        fixed = (config.batch_size, config.fanouts)
        if config.mode == "vanilla":
            held = [np.zeros(self._parts.num_nodes, bool) for _ in self._mine]
            for mask, some in zip(held, self._mine, strict=True):
                for part in some:
                    mask[part.train_idx] = True  # also those of other ranks' nodes
            return planned_vanilla(
                comm, graphs, self._offsets, self._parts.num_edges, *fixed, schedules,
                held=held, replace=config.replace, weighted=config.weighted,
            )  # fmt: skip
        capacities = [
            plan_capacity(
                graph,
                *fixed,
                seeds=np.concatenate([part.train_idx for part in some]),
                replace=config.replace,
                weighted=config.weighted,
            )
            for graph, some in zip(graphs, self._mine, strict=True)
        ]
        capacity = largest(comm, capacities)
        return HybridSampler(comm, graphs[0], *fixed, capacity, config.replace, config.weighted)

    def _cache(self, epoch: int) -> None:
        """Fills the cache for an epoch, and asks for what is left."""
        width = 4 * self.num_features
        if self.sparse:
            width = 8 * self._parts.manifest["features"]["max_row"]
        num_rows = (self.config.cache_memory << 20) // max(width, 1)
        num_rows = min(num_rows, int(self._parts.num_nodes))
        if self.config.cache == "planned":
            nodes = planned_cache(self._remote, epoch, self._num_steps, num_rows)
        else:
            nodes = degree_cache(self._background, self._offsets, self._graphs, num_rows)
        used = [np.array([(n < self._parts.num_nodes).sum()], np.int32) for n in nodes]
        most = int(all_gather_rows(self._background, used).max())
        nodes = [n[:most] for n in nodes]
        self._exchange.cache(nodes)
        capacity = request_capacity(self._remote, epoch, self._num_steps, nodes)
        if capacity > self._exchange.capacity or capacity < 0.9 * self._exchange.capacity:
            self._exchange.resize(capacity)


def _parts_per_rank(parts: Parts, num_ranks: int) -> int:
    if parts.num_parts % num_ranks:
        raise InputError(
            "the number of parts must be a multiple of the number of ranks",
            f"{parts.num_parts} parts in {parts.folder} for {num_ranks} ranks",
            f"Start as many ranks as divide {parts.num_parts}, or partition again with "
            f"--parts {num_ranks}.",
        )
    return parts.num_parts // num_ranks


def _seeds_per_part(config: Config, parts: Parts, per_rank: int) -> int:
    """A batch's seeds of one part."""
    if config.batch_size % per_rank:
        raise InputError(
            "--batch-size, a rank's seeds, must be a multiple of the parts that it has",
            f"{config.batch_size} for {per_rank} parts",
            "Choose another.",
        )
    each, least = (
        config.batch_size // per_rank,
        min(part["seeds"] for part in parts.manifest["parts"]),
    )
    if not 0 < each <= least:
        raise InputError(
            f"a batch must have at least one seed of each part and at most the {least} that "
            "the smallest has",
            f"--batch-size {config.batch_size}, {each} of each of {per_rank} parts",
            "Choose another.",
        )
    return each


def _features(parts: Sequence[Part]) -> Any:
    """One rank's rows: a matrix a part, used where it lies, or joined where sparse."""
    features = [part.features for part in parts]
    if not isinstance(features[0], SparseFeatures):
        return features
    if len(features) == 1:
        return features[0]
    rows = [
        scipy.sparse.csr_matrix(
            (np.asarray(f.values), np.asarray(f.indices), np.asarray(f.indptr)), f.shape
        )
        for f in features
        if isinstance(f, SparseFeatures)
    ]
    return SparseFeatures.from_scipy(scipy.sparse.vstack(rows))
