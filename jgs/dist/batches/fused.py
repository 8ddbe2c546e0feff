"""`mesh_loader`: steps of which each is drawn, read and trained by one program of the devices.

Every device has the whole topology and a share of the feature rows: hybrid partitioning
(FastSample 2023, section 3.3) with devices for ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, Unpack, cast

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.batches.plan import RemoteNodes, planned_hybrid
from jgs.dist.batches.ranks import POLICIES, RankOptions, Reading, rows_of
from jgs.dist.batches.source import HybridSampler, RankSource, own_shares
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.dist.rows.embedding import ShardedEmbedding
from jgs.dist.rows.exchange import FeatureExchange
from jgs.dist.rows.owners import evenly_divided, first_learned, offsets_by_type
from jgs.dist.supervision.phases import phase
from jgs.errors import InputError, check_choice
from jgs.graph import Graph, TypedFeatures
from jgs.graph.row_tables.table import as_table
from jgs.sampling import Capacity, Loader
from jgs.sampling.base import Sampler, State
from jgs.sampling.loading.items import Stage, check_asked, prepared, wide
from jgs.sampling.loading.schedule import Epochs, Order, Schedule, SeedParts, graph_digest
from jgs.sampling.loading.stages import Drawing, Samplers, taken
from jgs.settings import exact_integers

MOST_STEPS = 1024  # in one program


class Undrawn(NamedTuple):
    """A step of `mesh_loader`, whose batch is drawn where it is trained.

    Fields:
      key_data: uint32 `[W]`, the key of the step.
      asked: for each local rank its share of the step's items.
    """

    key_data: np.ndarray
    asked: list[Any]


class Shards:
    """The rows of a graph's nodes, of which each rank has as many; where node types have tables
    of their own, as many of each.

    Fields:
      parts: the graph.
      offsets: int `[R+1]`; without types rank `r` owns the nodes from `offsets[r]` to
        `offsets[r+1]`.
      features: for each local rank the rows that it owns, as `FeatureExchange` takes them.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        features: Any,
        learned: ShardedEmbedding | None = None,
    ):
        self.parts, table = graph, as_table(features)
        self.offsets = evenly_divided(graph.num_nodes, comm.size)
        self._schema = table.schema
        self._bounds = [self.offsets]
        if self._schema is not None:
            self._bounds = offsets_by_type(self._schema, comm.size)
        if learned is not None:
            bare = {}
            if self._schema is not None:
                bare = first_learned(self._schema, list(table.by_type.values()))
            num = sum(int(self._bounds[kind][-1]) for kind in bare)
            ranges = learned.owners.ranges
            if not bare or (ranges[-1], ranges.size) != (num, comm.size + 1):
                raise InputError(
                    "learned must have a row for each node of the types without features, on "
                    f"{comm.size} ranks",
                    f"{ranges[-1]} rows for {num} nodes, on {ranges.size - 1}",
                    "Make it of these nodes, on the devices of the loader.",
                )
            for kind, begin in bare.items():
                most = self._bounds[kind][-1]
                self._bounds[kind] = np.clip(ranges - begin, 0, most)
        self.features = [
            self._share(table, rank) for rank in range(comm.rank, comm.rank + comm.num_local)
        ]

    def _share(self, table: Any, rank: int) -> Any:
        own = [
            None if each is None else each.take(slice(*bounds[rank : rank + 2]))
            for each, bounds in zip(table.by_type.values(), self._bounds, strict=True)
        ]
        if self._schema is None:
            return own[0]
        names = [name for name, _ in self._schema.node_types]
        counts = [int(bounds[rank + 1] - bounds[rank]) for bounds in self._bounds]
        schema = replace(self._schema, node_types=tuple(zip(names, counts, strict=True)))
        return TypedFeatures.of_tables(schema, own)

    def owner(self, nodes: np.ndarray) -> np.ndarray:
        """The rank that owns each node."""
        if self._schema is None:
            return np.searchsorted(self.offsets, nodes, "right") - 1
        kinds, found = self._schema.numbers(nodes), np.zeros(nodes.shape, np.int64)
        for kind, bounds in enumerate(self._bounds):
            own = kinds == kind
            place = nodes[own] - self._schema.offsets[kind]
            found[own] = np.searchsorted(bounds, place, "right") - 1
        return found


class FusedSource(RankSource):
    """A `RankSource` of `Undrawn` steps, which `run` makes.

    A step takes 2 rounds, a third for the gradients of learned rows, and those of what it
    trains. Where the batch, or what is asked of some rank, is larger than planned, the step
    changes nothing, and is made again by the same key with more room, by all ranks.

    Attributes:
      learned: the rows that are learned, or None.
      most: the most steps in one program.
      extra_steps: the steps that were made again.
    """

    learned: ShardedEmbedding | None = None
    _sampler: HybridSampler
    _exchange: FeatureExchange

    def __init__(self, comm: Communicator, schedules: Sequence[Schedule], *others: Any):
        super().__init__(comm, schedules, *others)
        self.most = min(len(schedules[0]), MOST_STEPS)
        self._programs = cache(self._program)

    def draw(self, key_data: np.ndarray, asked: list[Any], state: State) -> list[Any]:
        return [Undrawn(key_data[0], [jax.tree.map(lambda a: a[0], own) for own in asked])]

    def run(
        self, steps: Sequence[Undrawn], function: Callable[..., Any], state: Any, *given: Any
    ) -> Any:
        """Makes these steps one after the other, up to `most` in one program, and returns the
        new state.

        Args:
          steps: those of an epoch, or some of them.
          function: `function(state, batch, x, *given)` returns the new state, of the same
            shapes and dtypes. It is traced for one rank, and may call collectives. The same
            function is compiled once. With `learned` rows it returns `(state, gradient,
            scale)`: the gradient float32 `[S, W]` with respect to `x.learned` of the loss over
            the seeds of all ranks, and a float32 scalar, as `ShardedEmbedding.push` takes them.
          state: `SAME`. It is donated.
          given: `SAME`.
        """
        for first in range(0, len(steps), self.most):
            state = self._run(steps[first : first + self.most], function, state, given)
        return state

    def _run(
        self, steps: Sequence[Undrawn], function: Callable[..., Any], state: Any, given: Any
    ) -> Any:
        done, end, level = 0, len(steps), self._level
        keys, asked = self._stacked(steps)
        while done < end:
            stop = end if level == self._level else done + 1
            capacity = self._sampler.capacities.at(level)
            program = self._programs(function, capacity, self._exchange.limits)
            held = self._sampler.graph, self._sampler.state, *self._exchange.asked
            which = self._comm.same(np.array([done, stop], np.int32))
            before = replace(self.counters)
            own = () if self.learned is None else self.learned.held
            with phase("computing"), wide(self._sampler.before):
                state, own, at, seen = program(state, own, given, *held, keys, asked, which)
                last, needs = int(at), np.asarray(seen)
            if self.learned is not None:
                self.learned.held = own
            made = last - done + (last < stop)
            self._count(before, made, last < stop)
            self._exchange.note(needs[done:last])
            level = self._level if last == stop else level
            if last < stop and self._exchange.make_room(needs[last].tolist()):
                level += 1
                self.redraws += 1
            self._steps += last - done
            done = last
        return state

    def _stacked(self, steps: Sequence[Undrawn]) -> tuple[Any, Any]:
        """The keys `SAME` and the items `OWN` of the steps, with room for `most`."""

        def stack(*arrays: np.ndarray) -> np.ndarray:
            room = np.zeros((self.most, *arrays[0].shape), arrays[0].dtype)
            room[: len(arrays)] = arrays
            return room

        each = zip(*(step.asked for step in steps), strict=True)
        own = [jax.tree.map(stack, *of_rank) for of_rank in each]
        return self._comm.same(stack(*(s.key_data for s in steps))), self._comm.own(own)

    def _count(self, before: Any, made: int, again: bool) -> None:
        """The program counts as if it had made one step."""
        rounds = self.counters.rounds - before.rounds
        self.counters.bytes += (self.counters.bytes - before.bytes) * (made - 1)
        self.counters.rounds += rounds * (made - 1)
        self.rounds += rounds * made
        self.extra_rounds += rounds * again
        self.extra_steps += again

    def _program(
        self, function: Callable[..., Any], capacity: Capacity, limits: tuple[int, ...]
    ) -> Callable[..., Any]:
        """`limits` are the exchange's, by which it is traced."""
        usual = jax.config.jax_enable_x64  # type: ignore[attr-defined]
        learned = self.learned

        def run(state, own, given, graph, of_sampler, stores, offsets, keys, asked, which):
            first, stop = which

            def unfinished(carry):
                return carry[1] & (carry[0] < stop)

            def step(carry):
                at, _, seen, state, held = carry
                with exact_integers():  # else times would be cut
                    own = jax.tree.map(lambda array: array[at], asked)
                batch = self._sampler.drawn(capacity, keys[at], graph, of_sampler, own)
                with jax.enable_x64(usual):  # it may be another one where stages are wide
                    read = batch.nodes, batch.overflow, stores, offsets
                    rows = None if learned is None else held[0].rows
                    x, said, token = self._exchange.read(*read, rows)
                    fits = self._exchange.fits(said)
                    new = function(state, batch, x, *given)
                    if learned is not None:
                        new, gradient, scale = new
                        gradients = self._exchange.deliver(token, gradient, fits)
                        held = learned.stepped(held, gradients, scale)
                state = jax.tree.map(lambda a, b: jnp.where(fits, a, b), new, state)
                return at + fits, fits, seen.at[at].set(said), state, held

            seen = jnp.zeros((self.most, len(limits)), jnp.int32)
            begun = first, jnp.bool(True), seen, state, own
            at, _, seen, state, own = jax.lax.while_loop(unfinished, step, begun)
            return state, own, at, seen

        specs = (SAME, OWN, SAME, SAME, SAME, OWN, SAME, SAME, OWN, SAME)
        return self._comm.program(run, specs, (SAME, OWN, SAME, SAME), donate=(0, 1))


def mesh_loader(
    comm: Communicator,
    graph: Graph,
    features: Any,
    items: Any,
    batch_size: int,
    sampler: Any = None,
    *,
    key: Any,
    before: Stage | Sequence[Stage] | None = None,
    shuffle: bool | Order = True,
    learned: ShardedEmbedding | None = None,
    **options: Unpack[RankOptions],
) -> Loader:
    """The steps of epochs, for devices that each have the topology and a share of the rows.

        loader = mesh_loader(Mesh(), graph, features, seeds, 1024, (5, 10), key=key)
        state = loader.source.run(list(loader), step, state)  # an epoch

    `FusedSource.run` draws, reads rows and calls `step(state, batch, x)`, in one program for
    several steps. The batches of a step are together what `Loader` draws for these arguments.

    Args:
      comm: a `Mesh`, of the devices that train, or `Alone`.
      graph, items, batch_size, sampler, key, before, shuffle: as in `Loader`.
      features: the rows of all nodes, as `jgs.ops.gather` takes them, on the host.
      learned: rows of `comm` for the nodes of types without features, type after type, which
        steps read as `x.learned` and change. Rows of it are not cached.
      options: those of `rank_loader`, but `graphs`, `age` and `prefetch`.

    A device holds `1 / D` of the rows and the graph; with a `cache` at most `cache_memory` of
    others' rows, and 4 bytes a node; of learned rows and their optimiser's state `1 / D`.
    Raises `InputError`.
    """
    given = cast(dict[str, Any], options)
    epochs = taken(Epochs, given, "drop_last", shuffle=shuffle)
    drawing = taken(Drawing, given, "capacity", "super_batch")
    reading = taken(Reading, given)
    check_choice("cache", reading.cache, POLICIES)
    samplers = Samplers.of(sampler, drawing, **given)
    if samplers.learn and drawing.age is not None:
        raise InputError(
            "devices that draw by themselves must have a sampler that does not learn",
            repr(samplers.given),
            "Choose another sampler, or use Loader with one device.",
        )
    if batch_size % comm.size:
        raise InputError(
            f"the batch size must be a multiple of {comm.size}, the number of devices",
            batch_size,
            f"Choose {-(-batch_size // comm.size) * comm.size}.",
        )
    items, stages = check_asked(items, before, samplers.each, graph.num_nodes)
    graph = prepared(stages, graph)
    shards = Shards(comm, graph, features, learned)
    settings = samplers.settings(
        bool(shuffle), age=drawing.age, stages=stages, devices=comm.size
    )
    parts = SeedParts.whole(items, graph_digest(graph))
    plain = isinstance(items, np.ndarray) and not stages
    distinct = plain and len(np.unique(items, axis=0)) == len(items)
    if comm.size == 1:
        reading = replace(reading, cache="none")
    in_place = reading.in_place is not False or as_table(features).schema is not None
    memory = reading.cache_memory // len(set(samplers.each))
    reading = replace(reading, cache_memory=memory, in_place=in_place)

    def make(sampler: Sampler) -> Any:
        state, whole = samplers.state(sampler, graph), sampler.draws_seeds
        schedules = [
            Schedule(
                key,
                parts,
                batch_size,
                graph.num_nodes,
                epochs,
                settings,
                sampler,
                bool(stages),
                (0, 1) if whole else share,
            )
            for share in own_shares(comm)
        ]
        size = batch_size if whole else batch_size // comm.size
        of_batch = graph, size, sampler, state, [items], stages, distinct
        draws = planned_hybrid(comm, *of_batch)
        remote = RemoteNodes(comm, shards.offsets, draws, schedules, shards.owner)
        graphs = [graph] * comm.num_local
        of_epoch = reading, len(schedules[0]), learned
        exchange, begin = rows_of(shards, graphs, remote, *of_epoch)
        source = FusedSource(comm, schedules, draws, exchange, begin)
        source.learned = learned
        return source

    return Loader.over(samplers.source(make), 0)
