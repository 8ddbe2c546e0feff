"""`DistLoader`: an epoch of batches with their features, drawn by all ranks together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from jgs.dist.comm import OWN, SAME, Communicator, Counters
from jgs.dist.exchange import FeatureExchange
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.ahead import Ahead
from jgs.sampling.algorithms.neighbors import sample_batches
from jgs.sampling.algorithms.neighbors_plain import Spec
from jgs.sampling.capacity import Capacity, worst_case
from jgs.sampling.schedule import Schedule


class Sampler(Protocol):
    """Draws the batches of all ranks at one step. `extra_rounds`: see `DistLoader`."""

    extra_rounds: int

    def __call__(self, words: np.ndarray, seeds: Any, level: int = 0) -> Any:
        """The `OWN` MiniBatch of the `OWN` seeds `[B]` by the key `words` uint32 `[2]`. Its
        capacity has been enlarged `level` times. All ranks call it alike."""


class HybridSampler:
    """A `Sampler` for ranks that each have the whole topology: no communication.

    Args:
      comm: the communicator.
      graph: the graph, equal on all ranks.
      batch_size: `B`, a rank's seeds in a batch, which must be distinct.
      capacity: equal on all ranks.
      fanouts, replace, weighted: as for `sample_neighbors`.
    """

    extra_rounds = 0

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        batch_size: int,
        fanouts: Sequence[int],
        capacity: Capacity,
        replace: bool = False,
        weighted: bool = False,
    ):
        self._comm, self._graph = comm, comm.same(graph)
        self._spec = Spec(tuple(fanouts), capacity, replace, weighted, False, False, True)
        self._worst = worst_case(
            graph.num_nodes, graph.num_edges, batch_size, fanouts, replace, True
        )
        self._programs: list[Callable] = []

    def __call__(self, words: np.ndarray, seeds: Any, level: int = 0) -> Any:
        while len(self._programs) <= level:
            self._programs.append(self._program(len(self._programs)))
        return self._programs[level](self._comm.same(words), self._graph, seeds)

    def _program(self, level: int) -> Callable:
        spec = self._spec._replace(capacity=enlarged(self._spec.capacity, self._worst, level))

        def sample(words, graph, seeds):
            (batch,) = sample_batches(words, graph, seeds, spec)
            return batch

        return self._comm.program(sample, (SAME, SAME, OWN), OWN)


def enlarged(capacity: Capacity, worst: Capacity, level: int) -> Capacity:
    """`capacity`, enlarged `level` times; raises `InputError` beyond the worst case."""
    for _ in range(level):
        if capacity == worst:
            raise InputError(
                "a batch must fit the worst case of distinct seeds",
                "an overflow there",
                "Remove repeated seeds from the training nodes.",
            )
        capacity = capacity.enlarge(worst)
    return capacity


class Drawn(NamedTuple):
    """One step's batch and the feature rows `x` of its nodes, both `OWN`."""

    batch: Any
    x: Any


class DistLoader:
    """Yields what is left of the current epoch, a `Drawn` a step, then moves on to the next.

    As `jgs.sampling.Loader`, but each step is drawn by all ranks together: they must iterate
    alike. A batch that overflows on one rank is drawn again by all, same key, with a larger
    capacity.

    Args:
      comm: the communicator; with `prefetch` one that nobody else uses meanwhile.
      schedules: one for each local rank, at the same position.
      sampler: draws a step's batches.
      exchange: reads their features.
      prefetch: how many steps are drawn ahead in the background; 0: none.
      before_epoch: called with each epoch before its first batch, e.g. to plan a cache.

    Attributes:
      seconds: what the parts of drawing have taken, by name.
      waited: seconds the caller has waited.
      redraws: how many batches were drawn again.
    """

    def __init__(
        self,
        comm: Communicator,
        schedules: Sequence[Schedule],
        sampler: Sampler,
        exchange: FeatureExchange,
        prefetch: int = 0,
        before_epoch: Callable[[int], None] | None = None,
    ):
        self._comm, self._schedules = comm, list(schedules)
        self._sampler, self._exchange = sampler, exchange
        self._prefetch, self._before_epoch = prefetch, before_epoch
        self.seconds, self.waited, self.redraws = {"sampling": 0.0, "features": 0.0}, 0.0, 0
        self._ahead: Ahead | None = None

    @property
    def counters(self) -> Counters:
        """What drawing has sent so far: sampling, features, and planning both."""
        return self._comm.counters

    @property
    def extra_rounds(self) -> int:
        """The rounds so far that larger planned capacities would have saved."""
        return self._exchange.extra_rounds + self._sampler.extra_rounds

    @property
    def epoch(self) -> int:
        return self._schedules[0].epoch

    @property
    def step(self) -> int:
        return self._schedules[0].step

    def __len__(self) -> int:
        return len(self._schedules[0])

    def __iter__(self) -> Iterator[Drawn]:
        self.close()
        first, drawn, ahead = self.step, self._drawn(self.epoch, self.step), None
        if self._prefetch and first < len(self):
            drawn = ahead = Ahead(drawn, self._prefetch)
        self._ahead = ahead
        try:
            for step in range(first, len(self)):
                began = time.perf_counter()
                item = next(drawn)
                self.waited += time.perf_counter() - began
                self._move(self.epoch, step + 1)
                yield item
                if self._ahead is not ahead or self.step != step + 1:
                    raise RuntimeError("the loader was closed or moved inside its loop")
            self._move(self.epoch + 1, 0)
        finally:
            if ahead is not None:
                ahead.settle()
                ahead.stop()

    def _move(self, epoch: int, step: int) -> None:
        for schedule in self._schedules:
            schedule.epoch, schedule.step = epoch, step

    def _drawn(self, epoch: int, first: int) -> Iterator[Drawn]:
        if self._before_epoch is not None:
            self._before_epoch(epoch)
        for words, seeds in steps(self._comm, self._schedules, epoch, range(first, len(self))):
            yield self._draw(words, seeds)

    def _draw(self, words: np.ndarray, seeds: Any) -> Drawn:
        for level in range(64):
            began = time.perf_counter()
            batch = jax.block_until_ready(self._sampler(words, seeds, level))
            sampled = time.perf_counter()
            x, overflow = self._exchange(batch.nodes, batch.overflow)
            x = jax.block_until_ready(x)
            self.seconds["sampling"] += sampled - began
            self.seconds["features"] += time.perf_counter() - sampled
            if not overflow:
                return Drawn(batch, x)
            self.redraws += 1
        raise AssertionError("a capacity enlarged 64 times exceeds every worst case")

    def state_dict(self) -> dict[str, int]:
        """The position and what it means; equal on all ranks and for any number of them."""
        return self._schedules[0].state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where the state was taken, perhaps by another number of ranks."""
        self.close()
        for schedule in self._schedules:
            schedule.load_state_dict(state)

    def close(self) -> None:
        """Stop drawing ahead. The position stays; a new loop goes on from it. All ranks close
        at the same position: what they are drawing together is drawn first."""
        if self._ahead is not None:
            self._ahead.settle()
            self._ahead.stop()
            self._ahead = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def steps(
    comm: Communicator, schedules: Sequence[Schedule], epoch: int, which: Sequence[int]
) -> Iterator[tuple[np.ndarray, Any]]:
    """The key and the `OWN` seeds of each of these steps of an epoch."""
    batches = [schedule.batches(epoch) for schedule in schedules]
    for step in which:
        yield batches[0][0][step], comm.own([seeds[step] for _, seeds in batches])
