"""`RankParts`: the parts of a graph that the ranks of this process have."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.data.by_type import padded
from jgs.data.parts import Part, Parts
from jgs.dist.batches.vanilla import check_vanilla
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.graph import Graph, Schema
from jgs.graph.row_tables.table import as_one, as_table
from jgs.graph.typed_features import TypedFeatures, split_by_type
from jgs.sampling.base import Sampler
from jgs.sampling.loading.schedule import Epochs, Schedule, SeedParts


class RankParts:
    """The parts that the ranks of this process have: rank `r` of `R` has the `r`-th `P / R` of
    the `P` parts.

    Fields:
      parts: all parts.
      per_rank: how many parts a rank has.
      offsets: int64 `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
      mine: for each local rank its `Part`s.
      features: for each local rank the rows of its own nodes, as `FeatureExchange` takes them;
        or its `TypedFeatures`, where the parts have such; always if `typed` is True, and never
        if it is False (`jgs.data.by_type`). A type's table is then a tuple of matrices where a
        rank has several parts.

    Raises `InputError`, for instance where `P` is no multiple of `R`.
    """

    def __init__(self, comm: Communicator, parts: Parts, typed: bool | None = None):
        if parts.num_parts % comm.size:
            raise InputError(
                "the number of parts must be a multiple of the number of ranks",
                f"{parts.num_parts} parts in {parts.folder} for {comm.size} ranks",
                f"Start as many ranks as divide {parts.num_parts}, or partition again with "
                f"--parts {comm.size}.",
            )
        self.parts, self.per_rank = parts, parts.num_parts // comm.size
        self.offsets = parts.offsets[:: self.per_rank]
        self._size, self._ranks = comm.size, range(comm.rank, comm.rank + comm.num_local)
        self.mine = [
            [parts.part(rank * self.per_rank + i) for i in range(self.per_rank)]
            for rank in self._ranks
        ]
        self.features = [_features(some, parts.schema, typed) for some in self.mine]

    def graphs(self, mode: str) -> list[Graph]:
        """For each local rank its topology: the whole one, or in vanilla mode that of its own
        nodes."""
        if mode == "hybrid":
            return [self.parts.graph] * len(self.mine)
        ranges = [(some[0].index, some[-1].index + 1) for some in self.mine]
        return [self.parts.local_graph(*each) for each in ranges]

    def own_seeds(self) -> list[np.ndarray]:
        """For each local rank the training nodes of its parts, int32; some of them are other
        ranks' nodes."""
        return [np.concatenate([part.train_idx for part in some]) for some in self.mine]

    def check(self, batch_size: int, sampler: Sampler, mode: str) -> None:
        """Raises `InputError` if these parts cannot be trained on in this way, on all ranks
        alike."""
        least = min(part["seeds"] for part in self.parts.manifest["parts"])
        if batch_size % self.per_rank or not 0 < batch_size // self.per_rank <= least:
            raise InputError(
                "a rank's batch must have as many seeds of each of its parts, at least one and "
                f"at most the {least} that the smallest part has",
                f"--batch-size {batch_size} for {self.per_rank} parts a rank",
                "Choose a multiple of the parts a rank has, within these bounds.",
            )
        if mode == "vanilla":
            check_vanilla(sampler)

    def schedules(
        self,
        key: Any,
        batch_size: int,
        epochs: Epochs,
        settings: str,
        sampler: Sampler,
        items: Any = None,
        staged: bool = False,
        devices: int = 1,
    ) -> list[Schedule]:
        """For each local rank the schedule of its batches: of `batch_size` seeds, equally many
        from each of its parts, or of its share of the batches of `items`. A sampler that draws
        the seeds gets all of them. `devices` share each of these batches."""

        def make(own: SeedParts, size: int, share: tuple[int, int] = (0, 1)) -> Schedule:
            of_all = (parts.num_nodes, epochs, settings, sampler, staged, share, devices)
            return Schedule(key, own, size, *of_all)

        parts, whole = self.parts, sampler.draws_seeds
        digest = zlib.crc32(parts.parts_id.encode())
        if items is not None:
            every, size = SeedParts.whole(items, digest), batch_size * self._size
            shares = [(0, 1) if whole else (rank, self._size) for rank in self._ranks]
            return [make(every, size, share) for share in shares]
        seeds = [part["seeds"] for part in parts.manifest["parts"]]
        sizes = (parts.num_parts, sum(seeds), max(seeds), digest)
        all_parts = [parts.part(i) for i in range(parts.num_parts)] if whole else []
        schedules = []
        for some in self.mine:
            idx = [np.asarray(part.train_idx) for part in all_parts or some]
            own = SeedParts(idx, some[0].index, *sizes)
            schedules.append(make(own, batch_size // self.per_rank))
        return schedules


def _features(parts: Sequence[Part], schema: Schema | None, typed: bool | None) -> Any:
    """One rank's rows: a matrix for each part, used where it lies; sparse rows are joined. The
    tables of `TypedFeatures` likewise. `typed` as in `RankParts`."""
    features: list[Any] = [part.features for part in parts]
    if typed is False:
        features = [
            padded("parts", own) if as_table(own).schema is not None else own
            for own in features
        ]
    if schema is not None and (typed or as_table(features[0]).schema is not None):
        first, stop = parts[0].index, parts[-1].index + 1
        each = [schema.of_parts(index, index + 1) for index in range(first, stop)]
        by_type = [split_by_type(*own) for own in zip(features, each, strict=True)]
        tables = [_as_table(_joined(t)) for t in zip(*(f.tables for f in by_type), strict=True)]
        return TypedFeatures(tuple(tables), schema.of_parts(first, stop))
    return _joined(features)


def _as_table(rows: Any) -> Any:
    """What `_joined` returned, as a table of `TypedFeatures`."""
    if not isinstance(rows, list):
        return rows
    return tuple(rows) if len(rows) > 1 else rows[0]


def _joined(features: Sequence[Any]) -> Any:
    """The rows of several parts: None, a list of the matrices, or one `RowTable`."""
    if features[0] is None:
        return None
    one = as_one([as_table(own) for own in features])
    return list(one.rows) if one.form == "dense" else one
