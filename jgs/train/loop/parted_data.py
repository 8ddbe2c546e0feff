"""`PartedData`: the parts of a data set, on ranks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.parts import open_parts
from jgs.dist.batches.ranks import RankParts, rank_loader
from jgs.dist.communicators.comm import Communicator
from jgs.sampling import Loader, Sampler
from jgs.sampling.base import State
from jgs.sampling.loading.items import num_items
from jgs.train.config import Config
from jgs.train.loop.data import Data, Samplers, check_types, refuse_empty
from jgs.train.loop.model import takes_types


class PartedData(Data):
    """The `P` parts of a data set, `P / R` on each of `R` ranks; see `Data`.

    Every batch has `batch_size * R` seeds, equally many from each part. Runs with equal
    `batch_size * R` have the same batches, up to the order of nodes.
    """

    direct = False

    def __init__(self, config: Config, comm: Communicator):
        assert config.partition is not None
        parts = open_parts(config.partition, config.verification())
        super().__init__(config, comm, parts)
        self._parts, self.own_ids = parts, parts.new_ids
        self._ranks = RankParts(comm, parts, takes_types(config))
        check_types(config, parts.name, parts.schema, self._ranks.features[0])
        self._describe(self._ranks.features, parts.schema)
        seeds = [part["seeds"] for part in parts.manifest["parts"]]
        self.num_seeds = sum(seeds)
        self.num_steps = -(-max(seeds) * self._ranks.per_rank // config.batch_size)
        self.digests = {"parts": parts.parts_id}
        self.graphs = self._ranks.graphs(config.mode)
        self.offsets, self.features = self._ranks.offsets, self._ranks.features

    def check_seeds(self) -> None:
        # That every part has training nodes is checked with the state.
        refuse_empty(self._parts, "val", "test")

    def state_of(self, sampler: Sampler, folder: Path | None) -> State:
        if self._items is None:
            self._ranks.check(self._config.batch_size, sampler, self._config.mode)
        return super().state_of(sampler, folder)

    def _loader(
        self,
        sampler: Samplers,
        reduce: str | None,
        items: Any,
        size: int,
        judged: bool,
        device: Any,
        options: dict[str, Any],
    ) -> Loader:
        config = self._config
        in_place = True if reduce is not None else None  # None: rows of types alone
        if judged:  # every rank has a share of each batch
            size = max(1, min(size, num_items(items) // self.comm.size))
        return rank_loader(
            self.comm,
            self._ranks,
            size,
            sampler,
            mode=config.mode,
            graphs=self._graphs(sampler),
            cache=config.cache,
            cache_memory=config.cache_memory << 20,
            wire=config.wire,
            in_place=in_place if self.in_place else False,
            items=items,
            device=device,
            **options,
        )

    def train_nodes(self) -> list[np.ndarray]:
        return self._ranks.own_seeds()

    def split(self, name: str) -> list[np.ndarray]:
        ids = getattr(self._parts, f"{name}_idx")
        bounds = self.offsets[self.comm.rank :][: self.comm.num_local + 1]
        return [np.asarray(ids[a:b]) for a, b in pairwise(np.searchsorted(ids, bounds))]
