"""`RankJob`: training on the parts of a graph, by one rank or many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.data.parts import open_parts
from jgs.dist.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.degrees import all_degrees
from jgs.dist.ranks import RankParts, rank_loader
from jgs.graph import MiniBatch, as_device
from jgs.models import GNN
from jgs.train.config import Config
from jgs.train.evaluate import exact_inference, right_and_asked
from jgs.train.local import refuse_empty
from jgs.train.progress import Meter


class RankJob:
    """See `jgs.train.loop.Job`. Each of the `R` ranks has `P / R` of the `P` parts.

    Every batch has `batch_size * R` seeds, as many of each part: it is the same batch, up to
    the order of its nodes, for every `R`.
    """

    def __init__(self, config: Config, comm: Communicator):
        assert config.partition is not None
        parts = open_parts(config.partition)
        refuse_empty(parts, "val", "test")  # of seeds, every part must have some
        self.config, self.comm, self._parts = config, comm, parts
        self._ranks = RankParts(comm, parts)
        described = parts.manifest["features"]
        self.name, self.num_classes = parts.name, parts.num_classes
        self.num_features, self.sparse = described["shape"][1], described["sparse"]
        self.multilabel = parts.labels.ndim == 2
        self.num_seeds = sum(part["seeds"] for part in parts.manifest["parts"])
        self.batch_size = config.batch_size * comm.size
        self.labels = comm.same(as_device(parts.labels))
        self.digests = {"parts": parts.parts_id}
        # Not in `start`, where other ranks may wait for this one: here errors reach them all.
        self._graphs = self._ranks.graphs(config.mode)
        self._ranks.check(self._graphs, config.batch_size, config.weighted)

    def start(self, model: GNN, key: jax.Array, scratch: Path | None) -> None:
        config, ranks, graphs = self.config, self._ranks, self._graphs
        self.loader = rank_loader(
            self.comm,
            ranks,
            config.batch_size,
            config.fanouts,
            key=key,
            replace=config.replace,
            weighted=config.weighted,
            mode=config.mode,
            graphs=graphs,
            cache=config.cache,
            cache_memory=config.cache_memory << 20,
            wire=config.wire,
            prefetch=config.prefetch,
        )
        self._degrees = None
        if model.uses_degrees:
            self._degrees = self.comm.same(all_degrees(self.comm, graphs, ranks.offsets))
        program = self.comm.program
        self._with_degrees = program(MiniBatch.with_degrees, (OWN, SAME), OWN)
        self._infer = exact_inference(
            model,
            graphs,
            ranks.features,
            config.eval_memory << 20,
            scratch,
            config.weighted,
            comm=self.comm,
            offsets=ranks.offsets,
        )

    def batches(self, meter: Meter) -> Iterator[tuple[Any, Any]]:
        waited, before = self.loader.waited, dict(self.loader.seconds)
        for batch, x in self.loader:
            # Drawn in the background, the parts take longer than the step waits for them.
            parts = {name: s - before[name] for name, s in self.loader.seconds.items()}
            share = (self.loader.waited - waited) / max(sum(parts.values()), 1e-9)
            for name, seconds in parts.items():
                meter.seconds[name] = seconds * min(share, 1)
            if self._degrees is not None:
                batch = self._with_degrees(batch, self._degrees)
            yield batch, x

    def accuracy(self, params: Any, split: str) -> float:
        ids = getattr(self._parts, f"{split}_idx")
        bounds = self._ranks.offsets[self.comm.rank :][: self.comm.num_local + 1]
        nodes = [np.asarray(ids[a:b]) for a, b in pairwise(np.searchsorted(ids, bounds))]
        counts = [
            np.array(right_and_asked(out, np.asarray(self._parts.labels[asked])), np.int32)
            for out, asked in zip(self._infer(params, nodes), nodes, strict=True)
        ]
        right, asked = all_gather_rows(self.comm, counts).astype(np.int64).sum(axis=0).tolist()
        return right / max(asked, 1)

    def close(self) -> None:
        self.loader.close()
