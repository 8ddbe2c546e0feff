"""`rank_loader`: makes batches with their features from the parts of a graph, on every rank."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from functools import partial
from typing import Any, Unpack, cast

import numpy as np

from jgs.data.parts import Part, Parts
from jgs.data.values import padded
from jgs.dist.batches import plan
from jgs.dist.batches.source import HybridSampler, RankSampler, RankSource, update_program
from jgs.dist.batches.vanilla import check_vanilla
from jgs.dist.communicators.collect import all_degrees, all_out_degrees, everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.embedding import ShardedEmbedding
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError, check_choice
from jgs.graph import Graph, Schema
from jgs.graph.row_tables.table import as_one, as_table
from jgs.graph.typed_features import split_by_type
from jgs.sampling import Loader, Sampler
from jgs.sampling.loading.items import Stage, check_asked, prepared
from jgs.sampling.loading.schedule import Epochs, Order, Schedule, SeedParts
from jgs.sampling.loading.sending import Destination, SentSource
from jgs.sampling.loading.source import Learning
from jgs.sampling.loading.stages import Drawing, DrawingOptions, Samplers, taken

MODES, POLICIES = ("hybrid", "vanilla"), ("none", "trial", "degree", "planned")


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
        if it is False (`jgs.data.values`). A type's table is then a tuple of matrices where a
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
        of_parts = [schema.of_parts(part.index, part.index + 1) for part in parts]
        features = list(map(split_by_type, features, of_parts))
    if features[0] is None:
        return None
    one = as_one([as_table(own) for own in features])
    return list(one.rows) if one.form == "dense" else one


@dataclass(frozen=True)
class Reading:
    """How ranks have topology and read rows. The fields are arguments of `rank_loader`."""

    graphs: Sequence[Graph] | None = None
    cache: str = "none"
    cache_memory: int = 64 << 20
    wire: str = "float32"
    in_place: bool | None = None


class RankOptions(DrawingOptions, total=False):
    """The `options` of `rank_loader`: fields of `Reading` among them."""

    graphs: Sequence[Graph] | None
    cache: str
    cache_memory: int
    wire: str
    in_place: bool | None


def rank_loader(
    comm: Communicator,
    ranks: RankParts,
    batch_size: int,
    sampler: Any = None,
    *,
    key: Any,
    items: Any = None,
    before: Stage | Sequence[Stage] | None = None,
    shuffle: bool | Order = True,
    mode: str = "hybrid",
    device: Any = None,
    **options: Unpack[RankOptions],
) -> Loader:
    """Batches of `batch_size` seeds a rank, and the features of their nodes.

    The batches of all ranks at a step are together what one rank with all parts draws for as
    many seeds: the number of ranks, the mode and the cache change no sample. All ranks call it
    and iterate alike.

    Args:
      comm: the communicator. Its clone is used where two threads may communicate.
      ranks: this process's parts.
      batch_size: a multiple of the parts that a rank has. For a sampler that draws the seeds
        itself, it says how many batches an epoch has.
      sampler: the `Sampler`, or a tuple of ints with the `options` of
        `jgs.sampling.sample_neighbors`; or a schedule of samplers, as for `Loader`. A sampler
        that is not by-node has hybrid mode only, and its batches depend on the number of ranks.
      key: a random key, equal on all ranks.
      items, before: what batches are drawn for in place of the parts' training nodes, and the
        stages that make seeds of it, as in `Loader`. All ranks have all items, and each draws
        its share of a batch. The edges that are left out are those of the whole batch. In
        vanilla mode a stage is given a graph that has the in-edges of the rank's nodes alone.
        There `edges_between` finds the edges that this rank leaves out. Nothing else of what a
        stage returns may depend on edges.
      shuffle: whether seeds are shuffled; otherwise they keep their order. Or an `Order`, of
        the seeds of each part, or of `items`.
      mode: "hybrid": each rank has the whole topology, and a step takes the 2 rounds of the
        features. "vanilla": each rank has the topology of its own nodes, and drawing takes 2
        rounds for each hop but the first; for items also for the first.
      device: where batches and rows go from the host: a device of this process, of whose arrays
        they then are; or a sharding over devices of all ranks' processes, in the order of the
        ranks, equally many of each. These share the rank's batch, and arrays have a leading
        axis of all devices. A process is one rank then, and the sampler does not learn. None:
        they stay on the host, and are `OWN`.
      options: those of `sample_neighbors` that go with a tuple of fanouts, and the following.
      by_time, one_key: as in `Loader`, the first for `items`.
      prefetch: the steps drawn ahead, by default 2, where two threads may communicate.
      age: for an adaptive sampler, as for `Loader`. `update` gathers in one round what the
        steps of all ranks report. Every rank applies all of it, in the order of the ranks, so
        the state is the same everywhere.
      states: by sampler, what its `init` returned for `graphs[0]`. It is called for samplers
        that are not there.
      graphs: what `ranks.graphs(mode)` returned, if it has been called.
      cache: which rows of other ranks to keep. "none"; "trial": those that a few batches,
        drawn at the start, read most, at most as many as a batch reads; "degree": those of the
        nodes that are most often a neighbour; "planned": those that an epoch's batches read
        most, which are drawn before the epoch begins.
      cache_memory: the bytes of rows that a rank may keep, by default 64 MiB. The samplers of a
        schedule share them.
      wire: the dtype that rows are rounded to and are sent in, by default "float32"; for sparse
        rows that of the values.
      in_place: True: rows may come as a `jgs.models.Placed`, which a `GNN` takes too; see
        `FeatureExchange`. Where the ranks have `TypedFeatures`, rows are `TypedRows`, whose
        tables may be the ranks' own; not where it is False. With `device` no table is sent,
        whatever it is.

    Raises `InputError`.
    """
    given = cast(dict[str, Any], options)
    epochs = taken(Epochs, given, "drop_last", shuffle=shuffle)
    drawing = taken(Drawing, given, "capacity", "super_batch")
    reading = taken(Reading, given)
    check_choice("mode", mode, MODES)
    check_choice("cache", reading.cache, POLICIES)
    graphs = reading.graphs or ranks.graphs(mode)
    samplers = Samplers.of(sampler, drawing, **given)
    stages: tuple[Stage, ...] = ()
    if items is None and before is not None:
        raise InputError(
            "stages must be given the items of which they make seeds",
            "before without items",
            "Give items, e.g. the ids of the training nodes.",
        )
    if items is not None:
        items, stages = check_asked(items, before, samplers.each, ranks.parts.num_nodes)
        if mode == "hybrid":
            graphs = [prepared(stages, graphs[0])] * len(graphs)
        else:
            own = (comm, graphs, ranks.offsets)
            degrees = cached(lambda: (all_out_degrees(*own), all_degrees(*own)))
            graphs = [prepared(stages, graph, degrees) for graph in graphs]
    for each in samplers.each:
        if items is None:
            ranks.check(batch_size, each, mode)
        elif mode == "vanilla":
            check_vanilla(each)
        samplers.state(each, graphs[0])
    destination = _destination(comm, device, samplers.learn)
    background = comm.clone()
    # Draws that do not belong to a node differ between ranks.
    draws_by = None if samplers.by_node else comm.size
    age, devices = drawing.age, len(destination.devices) if destination else 1
    decided = (bool(shuffle), draws_by)
    settings = samplers.settings(*decided, age=age, stages=stages, devices=devices)

    copies = len(set(samplers.each))
    reading = replace(reading, cache_memory=reading.cache_memory // copies)
    if comm.size == 1:  # one rank has no remote rows
        reading = replace(reading, cache="none")
    if destination is not None:  # the tables would be sent with each batch
        reading = replace(reading, in_place=False)

    def drawn_by(sampler: Sampler, schedules: Sequence[Schedule]) -> RankSampler:
        size = batch_size if sampler.draws_seeds else batch_size // devices
        seeds, distinct = ranks.own_seeds(), items is None
        if mode == "hybrid":
            of_rank = (sampler, samplers.states[sampler], seeds if distinct else [items])
            return plan.planned_hybrid(background, graphs[0], size, *of_rank, stages, distinct)
        whole = (ranks.offsets, ranks.parts.num_edges, size, sampler, schedules)
        of_seeds = {"seeds": seeds, "items": items, "stages": stages}
        return plan.planned_vanilla(background, graphs, *whole, **of_seeds)

    def make(sampler: Sampler) -> Any:
        of_all = (items, bool(stages), devices)
        schedules = ranks.schedules(key, batch_size, epochs, settings, sampler, *of_all)
        draws = drawn_by(sampler, schedules)
        remote = plan.RemoteNodes(background, ranks.offsets, draws, schedules)
        exchange, begin = rows_of(ranks, graphs, remote, reading, schedules[0].num_draws)
        learning = None
        if samplers.learn:  # the mode is hybrid then
            assert isinstance(draws, HybridSampler)
            # `comm` and not its clone: the caller's thread updates.
            of_state = (draws.state, age, draws.graph)
            learning = Learning.of(sampler, *of_state, partial(update_program, comm))
        listed = destination is not None
        source = RankSource(background, schedules, draws, exchange, begin, learning, listed)
        return SentSource(source, destination) if destination else source

    prefetch = drawing.prefetch if comm.concurrent else 0
    return Loader.over(samplers.source(make), prefetch, destination)


def rows_of(
    ranks: Any,
    graphs: Sequence[Graph],
    remote: plan.RemoteNodes,
    reading: Reading,
    num_draws: int,
    learned: ShardedEmbedding | None = None,
) -> tuple[FeatureExchange, Callable[[int], None]]:
    """Reads the rows of `ranks`, which has the fields of `RankParts`, and those that are
    `learned`; and what is called before an epoch of `num_draws` steps."""
    features, schema = ranks.features, ranks.parts.schema
    if schema is not None and as_table(features[0]).schema is None:
        schema = None
    capacities = plan.request_capacities(remote, 0, num_draws, schema)
    most: Any = capacities[0]
    offsets, in_place = ranks.offsets, bool(reading.in_place)
    if schema is not None:
        offsets, most, in_place = schema, capacities, reading.in_place is not False
    of_rows = offsets, features, most, reading.wire, in_place, learned
    exchange = FeatureExchange(remote.comm, *of_rows)
    policy = reading.cache
    if policy != "none":
        of_run = (graphs, num_draws, policy, reading.cache_memory)
        keep = plan.keeper(remote, exchange, *of_run)
    if policy in ("trial", "degree"):
        keep(0)

    def begin(epoch: int) -> None:
        if policy == "planned":
            keep(epoch)
        exchange.fit_to_demand()

    return exchange, begin


def _destination(comm: Communicator, device: Any, learns: bool) -> Destination | None:
    def found() -> Destination | None:
        destination = None if device is None else Destination.of(device, every_process=True)
        if destination and (comm.num_local > 1 or learns):
            raise InputError(
                "batches can be sent to devices where a process is one rank and the sampler "
                "does not learn",
                "a sampler that learns"
                if learns
                else f"{comm.num_local} ranks in this process",
                "Leave device out.",
            )
        return destination

    destination = everywhere(comm, found)
    number = 0 if destination is None else len(destination.devices)
    every = all_gather_rows(comm, [np.array([number], np.int32)] * comm.num_local).ravel()
    if len(set(every.tolist())) > 1:
        raise InputError(
            "all ranks must send batches to as many devices",
            ", ".join(map(str, every.tolist())),
            "Give all a sharding with equally many devices of each process, or none.",
        )
    return destination
