"""`RankSource`: a step's batch and its feature rows, drawn by all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator, Counters
from jgs.dist.rows.owners import from_words, to_words
from jgs.dist.supervision.phases import phase
from jgs.graph import Graph, MiniBatch
from jgs.sampling.base import State
from jgs.sampling.capacity import Capacities, Capacity, GraphShape
from jgs.sampling.edges.random import fold_keys
from jgs.sampling.loading.items import Stage, seeds_of, wide
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.loading.sending import shapes
from jgs.sampling.loading.source import Learning, Source
from jgs.sampling.shorthand import as_sampler
from jgs.settings import exact_integers


class RankSampler(Protocol):
    """Draws the batches of all ranks at one step, with these `capacities`. See `RankSource` for
    `extra_rounds`."""

    extra_rounds: int
    capacities: Capacities

    def __call__(
        self, key_data: np.ndarray, seeds: Any, capacity: Capacity | None = None
    ) -> Any:
        """The `OWN` MiniBatch of the `OWN` seeds `[B]`, drawn by the key `key_data` uint32
        `[2]`; by default with its first capacity. All ranks call it alike."""


class RowReader(Protocol):
    """Reads the feature rows of all ranks' batches, as `FeatureExchange` does. See `RankSource`
    for `extra_rounds`."""

    extra_rounds: int

    def __call__(self, nodes: Any, overflow: Any) -> tuple[Any, bool]:
        """The `OWN` rows of the `OWN` nodes, and whether the batch of some rank has
        overflowed."""


class HybridSampler:
    """A `RankSampler` for ranks that each have the whole topology. They do not communicate.

    Args:
      comm: the communicator.
      graph: the graph, equal on all ranks.
      batch_size: `B`, a rank's seeds in a batch, distinct ones unless `Capacities` are given.
      sampler: the `Sampler`, or a tuple of ints with the `options` of `sample_neighbors`. A
        sampler that is not by-node draws by the key folded with the rank's number.
      capacity: that of the batches, equal on all ranks; by default the sampler's bound. Or
        `jgs.sampling.capacity.Capacities`, with a bound for seeds that repeat too.
      state: what the sampler's `init` returned for the graph. None: it is called here.
      before: the stages that make seeds of items, as in `Loader`. Then it is called with an
        `OWN` `jgs.sampling.loading.items.Asked` in place of seeds.

    Attributes:
      graph: the graph, `SAME`.
      before: as given.
      state: the sampler's state, `SAME`. `RankSource` sets that of an adaptive sampler at every
        step.
    """

    extra_rounds = 0

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        batch_size: int,
        sampler: Any = None,
        capacity: Capacity | Capacities | None = None,
        state: State | None = None,
        before: Sequence[Stage] = (),
        **options: Any,
    ):
        self.before = before
        self._sampler = as_sampler(sampler, **options)
        self._comm, self.graph = comm, comm.same(graph)
        self.state = comm.same(self._sampler.init(graph) if state is None else state)
        shape = GraphShape.of(graph)
        self.capacities = Capacities.of(
            capacity, lambda: self._sampler.bound(shape, batch_size, True)
        )
        self._programs = cache(self._program)

    def __call__(
        self, key_data: np.ndarray, seeds: Any, capacity: Capacity | None = None
    ) -> Any:
        key_data = self._comm.same(key_data)
        with wide(self.before):
            program = self._programs(capacity or self.capacities.capacity)
            return program(key_data, self.graph, self.state, seeds)

    def _program(self, capacity: Capacity) -> Callable:
        draw = partial(self.drawn, capacity)
        return self._comm.program(draw, (SAME, SAME, SAME, OWN), OWN)

    def drawn(
        self, capacity: Capacity, key_data: Any, graph: Graph, state: State, asked: Any
    ) -> MiniBatch:
        """Within a program: one rank's batch."""
        seeds, items = seeds_of(self.before, graph, asked)
        if not self._sampler.by_node and self._comm.size > 1:
            key_data = fold_keys(key_data, self._comm.index())
        batch = self._sampler.sample(key_data, graph, state, seeds, capacity)
        return replace(batch, items=items)


class RankStep(NamedTuple):
    """One step's batch and the feature rows `x` of its nodes, both `OWN`."""

    batch: Any
    x: Any


class RankSource(Source):
    """A `jgs.sampling.loading.source.Source` that yields a `RankStep` a step.

    All ranks draw each step together, so they must iterate alike. Where a batch overflows on
    one rank, all ranks draw theirs again, by the same key, with a larger capacity.

    Args:
      comm: the communicator. With a loader's `prefetch` nobody else may use it meanwhile.
      schedules: one for each local rank, all at the same position.
      sampler: draws a step's batches.
      exchange: reads the batches' features.
      before_epoch: called with each epoch before its first batch, e.g. to plan a cache.
      learning: that of an adaptive sampler; it then decides the state of `sampler`.
      listed: whether a step is a list of the local rank's `RankStep`s, one for each of the
        schedules' `devices`, in its own arrays instead of `OWN` ones. There is one local rank
        then. All of a step have the same shapes.

    A step takes 2 rounds in hybrid mode. In vanilla mode it takes 2 more for each hop, without
    the first hop of seeds whose in-edges the rank has. With `D` devices it takes `D` times as
    many. There are two exceptions: the capacity that was planned for requests, or the one for
    batches, is too small for some rank. Both are planned so that less than one step in a
    thousand is an exception, and are enlarged before the next epoch where an epoch has more.

    Attributes:
      rounds: the rounds of all steps so far.
      extra_rounds: those of the rounds that the exceptions took.
      extra_steps: the steps that were exceptions.
    """

    together = True

    def __init__(
        self,
        comm: Communicator,
        schedules: Sequence[Schedule],
        sampler: RankSampler,
        exchange: RowReader,
        before_epoch: Callable[[int], None] | None = None,
        learning: Learning | None = None,
        listed: bool = False,
    ):
        super().__init__(schedules, learning, listed)
        self._comm, self._sampler, self._exchange = comm, sampler, exchange
        self._before_epoch = before_epoch
        self.seconds["features"] = 0.0
        self.rounds, self.extra_rounds, self.extra_steps = 0, 0, 0
        self._level, self._steps, self._settled = 0, 0, 0

    @property
    def counters(self) -> Counters:
        """What drawing has sent so far: for sampling, for features, and for planning both."""
        return self._comm.counters

    @property
    def counts(self) -> dict[str, int]:
        """`rounds`, `extra_rounds` and `extra_steps` of all steps so far, by name."""
        names = ("rounds", "extra_rounds", "extra_steps")
        return {name: getattr(self, name) for name in names}

    def begin(self, epoch: int, state: State) -> None:
        if self.learning is not None:
            self._sampler.state = state  # type: ignore[attr-defined]
        if self._before_epoch is not None:
            with phase("planning"):
                self._before_epoch(epoch)
        if 1000 * (self.redraws - self._settled) > self._steps:
            self._level += 1
            self._settled, self._steps = self.redraws, 0

    def draw(self, key_data: np.ndarray, asked: list[Any], state: State) -> list[Any]:
        if self.learning is not None:
            self._sampler.state = state  # type: ignore[attr-defined]
        parts = [(key, _entry(self._comm, asked, i)) for i, key in enumerate(key_data)]
        lost, further, begun = 0, self._further_rounds(), self.counters.rounds

        def attempt(capacity: Capacity) -> tuple[list[RankStep], bool]:
            nonlocal lost
            before, more = self.counters.rounds, self._further_rounds()
            drawn = list[RankStep]()
            for key, seeds in parts:
                with self._timed("sampling"), phase("sampling"):
                    batch = jax.block_until_ready(self._sampler(key, seeds, capacity))
                x, overflow = self._rows(batch)
                drawn.append(RankStep(batch, x))
                if overflow:
                    lost += self.counters.rounds - before - (self._further_rounds() - more)
                    return drawn, True
            if len({shapes(each.x) for each in drawn}) > 1:  # the rows have got more room
                before = self.counters.rounds
                drawn = [RankStep(batch, self._rows(batch)[0]) for batch, _ in drawn]
                lost += self.counters.rounds - before
            return drawn, False

        drawn, level = self._sampler.capacities.fit(attempt, self._level)
        self.redraws += level - self._level
        self.rounds += self.counters.rounds - begun
        extra = lost + self._further_rounds() - further
        self.extra_rounds += extra
        self.extra_steps += extra > 0
        self._steps += 1
        return [self._comm.local(each)[0] for each in drawn] if self._listed else drawn

    def _rows(self, batch: Any) -> tuple[Any, bool]:
        with self._timed("features"), phase("exchange"):
            x, overflow = self._exchange(batch.nodes, batch.overflow)
            return jax.block_until_ready(x), overflow

    def _further_rounds(self) -> int:
        return self._exchange.extra_rounds + self._sampler.extra_rounds


def steps(
    comm: Communicator, schedules: Sequence[Schedule], epoch: int, which: Sequence[int]
) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields the key and the `OWN` seeds of each of these steps of an epoch; of each of these
    parts of its steps, where devices share a batch."""
    batches = [schedule.batches(epoch) for schedule in schedules]
    for step in which:
        yield batches[0][0][step], _entry(comm, [asked for _, asked in batches], step)


def own_shares(comm: Communicator) -> list[tuple[int, int]]:
    """For each local rank its `share` of all ranks' batches, as `Schedule` takes it."""
    return [(rank, comm.size) for rank in range(comm.rank, comm.rank + comm.num_local)]


def _entry(comm: Communicator, asked: Sequence[Any], number: int) -> Any:
    """That entry of what each local rank is asked for, `OWN`."""
    return comm.own([jax.tree.map(lambda array: array[number], own) for own in asked])


def update_program(
    comm: Communicator, update: Callable[..., State], donate_argnums: Sequence[int] = ()
) -> Callable[..., State]:
    """A program `update(state, batch, feedback, graph)` of an adaptive sampler. Every rank
    applies the updates of all ranks, in the order of the ranks. State and graph are `SAME`;
    batch and feedback are `OWN`. One round gathers them."""

    def of_all_ranks(state: State, batch: Any, feedback: Any, graph: Any) -> State:
        def step(state: State, one: Any) -> tuple[State, None]:
            return update(state, *one, graph), None

        return jax.lax.scan(step, state, _gathered(comm, (batch, feedback)))[0]

    specs = (SAME, OWN, OWN, SAME)
    return comm.program(of_all_ranks, specs, SAME, donate=tuple(donate_argnums))


def _gathered(comm: Communicator, tree: Any) -> Any:
    """`tree` with a leading axis of ranks, by one `all_gather` of its bits."""
    leaves, structure = jax.tree.flatten(tree)
    with exact_integers():  # without it 64-bit edge ids would be cut
        columns = [leaf.astype(jnp.int16) if leaf.dtype == bool else leaf for leaf in leaves]
        words = [to_words(column.reshape(1, -1))[0] for column in columns]
        every, begin, found = comm.all_gather(jnp.concatenate(words)), 0, []
        for leaf, column, own in zip(leaves, columns, words, strict=True):
            rows = every[:, begin : begin + own.size]
            gathered = from_words(rows, column.dtype, leaf.size).astype(leaf.dtype)
            found.append(gathered.reshape(-1, *leaf.shape))
            begin += own.size
    return jax.tree.unflatten(structure, found)
