"""`rank_loader`: makes batches with their features from the parts of a graph, on every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache as cached
from functools import partial
from typing import Any

import numpy as np

from jgs.dist.batches.plan import (
    RemoteNodes,
    degree_cache,
    planned_cache,
    planned_hybrid,
    planned_vanilla,
    request_capacity,
    trial_cache,
)
from jgs.dist.batches.rank_parts import RankParts
from jgs.dist.batches.source import HybridSampler, RankSampler, RankSource, update_program
from jgs.dist.batches.typed_plan import typed_capacities, typed_keeper
from jgs.dist.batches.vanilla import check_vanilla
from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.collect import all_degrees, all_out_degrees
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table
from jgs.sampling.base import Adaptive, Sampler, State
from jgs.sampling.capacity import round_up
from jgs.sampling.learning import Learning
from jgs.sampling.loading.items import Stage, check_asked, prepared, prepared_split
from jgs.sampling.loading.loader import Loader
from jgs.sampling.loading.order import Order
from jgs.sampling.loading.sending import Destination, SentSource
from jgs.sampling.loading.source import Source
from jgs.sampling.loading.stages import (
    check_samplers,
    decided_by,
    source_of,
)

MODES, POLICIES = ("hybrid", "vanilla"), ("none", "trial", "degree", "planned")


def rank_loader(
    comm: Communicator,
    ranks: RankParts,
    batch_size: int,
    sampler: Any = None,
    *,
    key: Any,
    shuffle: bool | Order = True,
    by_time: int | None = None,
    one_key: bool = False,
    mode: str = "hybrid",
    graphs: Sequence[Graph] | None = None,
    cache: str = "none",
    cache_memory: int = 64 << 20,
    wire: str = "float32",
    prefetch: int = 2,
    age: int | None = 0,
    in_place: bool | None = None,
    states: Mapping[Sampler, State] | None = None,
    items: Any = None,
    before: Stage | Sequence[Stage] | None = None,
    device: Any = None,
    **options: Any,
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
      shuffle: whether seeds are shuffled; otherwise they keep their order. Or an `Order`, of
        the seeds of each part, or of `items`.
      by_time: for `items`, as in `Loader`.
      one_key: as in `Loader`.
      mode: "hybrid": each rank has the whole topology, and a step takes the 2 rounds of the
        features. "vanilla": each rank has the topology of its own nodes, and drawing takes 2
        rounds for each hop but the first; for items also for the first.
      graphs: what `ranks.graphs(mode)` returned, if it has been called.
      cache: which rows of other ranks to keep. "none"; "trial": those that a few batches,
        drawn at the start, read most, at most as many as a batch reads; "degree": those of the
        nodes that are most often a neighbour; "planned": those that an epoch's batches read
        most, which are drawn before the epoch begins.
      cache_memory: the bytes of rows that a rank may keep. The samplers of a schedule share
        them.
      wire: the dtype that rows are rounded to and are sent in; for sparse rows that of the
        values.
      prefetch: the steps drawn ahead, where two threads may communicate.
      age: for an adaptive sampler, as for `Loader`. `update` gathers in one round what the
        steps of all ranks report. Every rank applies all of it, in the order of the ranks, so
        the state is the same everywhere.
      in_place: True: rows may come as a `jgs.models.Placed`, which a `GNN` takes too; see
        `FeatureExchange`. Where the ranks have `TypedFeatures`, rows are `TypedRows`, whose
        tables may be the ranks' own; not where it is False. With `device` no table is sent,
        whatever it is.
      items, before: what batches are drawn for in place of the parts' training nodes, and the
        stages that make seeds of it, as in `Loader`. All ranks have all items, and each draws
        its share of a batch. The edges that are left out are those of the whole batch. In
        vanilla mode a stage is given a graph that has the in-edges of the rank's nodes alone.
        There `edges_between` finds the edges that this rank leaves out. Nothing else of what a
        stage returns may depend on edges.
      device: where batches and rows go from the host: a device of this process, of whose arrays
        they then are; or a sharding over devices of all ranks' processes, in the order of the
        ranks, equally many of each. These share the rank's batch, and arrays have a leading
        axis of all devices. A process is one rank then, and the sampler does not learn. None:
        they stay on the host, and are `OWN`.
      states: by sampler, what its `init` returned for `graphs[0]`. It is called for samplers
        that are not there.

    Raises `InputError`.
    """
    for name, value, choices in (("mode", mode, MODES), ("cache", cache, POLICIES)):
        check_choice(name, value, choices)
    graphs = ranks.graphs(mode) if graphs is None else graphs
    sampler, samplers, states = check_samplers(sampler, states, **options)
    stages: tuple[Stage, ...] = ()
    if items is None and before is not None:
        raise InputError(
            "stages must be given the items of which they make seeds",
            "before without items",
            "Give items, e.g. the ids of the training nodes.",
        )
    if items is not None:
        items, stages = check_asked(items, before, samplers, ranks.parts.num_nodes)
        if mode == "hybrid":
            graphs = [prepared(stages, graphs[0])] * len(graphs)
        else:
            own = (comm, graphs, ranks.offsets)
            degrees = cached(lambda: (all_out_degrees(*own), all_degrees(*own)))
            graphs = [prepared_split(stages, graph, degrees) for graph in graphs]
    for each in samplers:
        if items is None:
            ranks.check(batch_size, each, mode)
        elif mode == "vanilla":
            check_vanilla(each)
        if each not in states:
            states[each] = each.init(graphs[0])
    destination = _destination(comm, device, isinstance(samplers[0], Adaptive))
    devices = len(destination.devices) if destination else 1
    background = comm.clone()
    # Draws that do not belong to a node differ between ranks.
    draws_by = None if all(each.by_node for each in samplers) else comm.size
    settings = decided_by(sampler, bool(shuffle), draws_by, age, stages=stages)
    if draws_by and devices > 1:
        settings = f"{settings} devices={devices}"
    if destination is not None:
        in_place = False  # the tables would be sent with each batch
    cache = "none" if comm.size == 1 else cache  # one rank has no remote rows
    cache_memory //= len(set(samplers))

    def reading(
        remote: RemoteNodes, num_draws: int
    ) -> tuple[FeatureExchange, Callable[[int], None]]:
        """What reads the rows of batches, and a function that fills its cache for an epoch."""
        features, schema = ranks.features, ranks.parts.schema
        if schema is not None and as_table(features[0]).schema is not None:
            capacities = typed_capacities(remote, 0, num_draws, schema)
            apart = in_place is not False
            typed = FeatureExchange(background, schema, features, capacities, wire, apart)
            of_run = (num_draws, cache, cache_memory)
            return typed, typed_keeper(remote, typed, graphs, *of_run)
        capacity = request_capacity(remote, 0, num_draws)
        of_all = (background, ranks.offsets, features, capacity, wire)
        exchange = FeatureExchange(*of_all, bool(in_place))
        most = min(cache_memory // max(exchange.row_bytes, 1), ranks.parts.num_nodes)
        choose: dict[str, Callable[[int], list[np.ndarray]]] = {
            "trial": lambda epoch: trial_cache(remote, num_draws, most),
            "degree": lambda epoch: degree_cache(background, ranks.offsets, graphs, most),
            "planned": lambda epoch: planned_cache(remote, epoch, num_draws, most),
            "none": lambda epoch: [],
        }
        return exchange, _keeper(remote, exchange, num_draws, most, choose[cache])

    def make(sampler: Sampler) -> Source:
        order = (key, batch_size, shuffle, settings, sampler)
        schedules = ranks.schedules(*order, items, bool(stages), by_time, one_key, devices)
        size = batch_size if sampler.draws_seeds else batch_size // devices
        drawing: RankSampler
        if mode == "hybrid":
            drawing = planned_hybrid(
                background,
                graphs[0],
                size,
                sampler,
                states[sampler],
                ranks.own_seeds() if items is None else [items],
                stages,
                distinct=items is None,
            )
        else:
            drawing = planned_vanilla(
                background,
                graphs,
                ranks.offsets,
                ranks.parts.num_edges,
                size,
                sampler,
                schedules,
                seeds=ranks.own_seeds(),
                items=items,
                stages=stages,
            )
        remote = RemoteNodes(background, ranks.offsets, drawing, schedules)
        exchange, keep = reading(remote, schedules[0].num_draws)
        if cache in ("trial", "degree"):
            keep(0)

        def before_epoch(epoch: int) -> None:
            if cache == "planned":
                keep(epoch)
            exchange.fit_to_demand()

        learning = None
        if isinstance(sampler, Adaptive):  # the mode is hybrid then
            assert isinstance(drawing, HybridSampler)
            # `comm` and not its clone: the caller's thread updates.
            program = partial(update_program, comm)
            learning = Learning.of(sampler, drawing.state, age, drawing.graph, program)
        listed = destination is not None
        of_run = (background, schedules, drawing, exchange, before_epoch, learning, listed)
        source = RankSource(*of_run)
        return SentSource(source, destination) if destination else source

    prefetch = prefetch if comm.concurrent else 0
    return Loader.over(source_of(sampler, make), prefetch, destination)


def _destination(comm: Communicator, device: Any, learns: bool) -> Destination | None:
    """Where batches go, on this rank; None: they stay. Raises `InputError`, on all ranks."""

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

    def check() -> None:
        if len(set(every.tolist())) > 1:
            raise InputError(
                "all ranks must send batches to as many devices",
                ", ".join(map(str, every.tolist())),
                "Give all a sharding with equally many devices of each process, or none.",
            )

    everywhere(comm, check)
    return destination


def _keeper(
    remote: RemoteNodes,
    exchange: FeatureExchange,
    num_steps: int,
    most: int,
    choose: Callable[[int], list[np.ndarray]],
) -> Callable[[int], None]:
    """A function that caches for an epoch the rows that `choose(epoch)` names, `most` for each
    local rank."""
    room, comm, padding = 0, remote.comm, int(remote.offsets[-1])

    def keep(epoch: int) -> None:
        nonlocal room
        first = room == 0
        nodes = choose(epoch)
        used = [np.array([(n < padding).sum()], np.int32) for n in nodes]
        need = int(all_gather_rows(comm, used).max())
        if need > room:  # programs of each size are compiled, so there is some room to spare
            room = min(round_up(need + need // 8), most)
        nodes = [n[:room] for n in nodes]
        if first:  # later on the epochs themselves show what they ask for
            capacity = request_capacity(remote, epoch, num_steps, nodes)
            if capacity != exchange.capacity:
                exchange.resize(capacity)
        exchange.cache(nodes)

    return keep
