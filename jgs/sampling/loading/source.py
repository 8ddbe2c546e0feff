"""`Source`: where a loader's batches come from; `LocalSource`: sampling on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, MiniBatch, as_device
from jgs.sampling.base import MOST_IN_TURN, Sampler, State
from jgs.sampling.capacity import (
    Capacity,
    check_capacity,
    default_super_batch,
    enlarged,
    num_threads,
    until_it_fits,
)
from jgs.sampling.learning import Learning
from jgs.sampling.loading.items import Stage, seeds_of, wide
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.plan import bound_of, room_for
from jgs.sampling.programs import shared


class Source(Protocol):
    """Where a loader's batches come from: this machine, or a rank together with its peers.

    Attributes:
      schedules: the schedule of the seeds for each rank of this process.
      at_once: the number of steps that are drawn in one call.
      redraws: the number of batches that were drawn again so far.
      seconds: the time that each part of `drawn` has taken so far, by name.
      counts: the amounts that drawing has sent so far, by name; empty on one machine.
      together: whether other ranks draw at the same time, so that all must stop after the same
        step.
      learning: the states of an adaptive sampler, or None.
    """

    schedules: list[Schedule]
    together: bool

    @property
    def at_once(self) -> int: ...

    @property
    def redraws(self) -> int: ...

    @property
    def seconds(self) -> dict[str, float]: ...

    @property
    def counts(self) -> dict[str, int]: ...

    @property
    def learning(self) -> Learning | None: ...

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        """The items of the steps of `epoch` from step `first` on, `at_once` at a time. A
        background thread iterates over the result."""


class OverSource:
    """A `Source` of what is made of another one's batches. It has all else from that one.

    Args:
      source: draws the batches.
      ahead: whether the next batches are drawn in a thread of their own meanwhile.

    Attributes:
      source: as given.
    """

    def __init__(self, source: Source, ahead: bool):
        self.source, self._ahead = source, ahead
        self._seconds = 0.0  # of what is made of batches, which counts as features

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def close(self) -> None:
        """Stops what is done for the next epoch."""
        if isinstance(self.source, OverSource):
            self.source.close()

    @property
    def seconds(self) -> dict[str, float]:
        own = self.source.seconds
        return own | {"features": own.get("features", 0.0) + self._seconds}


class LocalSource:
    """A `Source` of `MiniBatch`es on one machine.

    Args:
      state: what the sampler's `init` returned for the graph.
      schedule: which of the `items`, a pytree `[n, ...]`, each step has.
      learning: the states of an adaptive sampler, or None.
      listed: whether a step is the list of the `MiniBatch`es of the schedule's `devices`, all
        of the same shapes. Otherwise it is one `MiniBatch`.

    The others are as in `Loader`; `before` and `after` are tuples of functions.
    """

    together = False

    def __init__(
        self,
        graph: Graph,
        sampler: Sampler,
        state: State,
        schedule: Schedule,
        items: Any,
        capacity: Capacity | None = None,
        super_batch: int | None = None,
        learning: Learning | None = None,
        before: Sequence[Stage] = (),
        after: Sequence[Callable[[Any], Any]] = (),
        listed: bool = False,
    ):
        self._graph, self._sampler, self._listed = graph, sampler, listed
        self._state, self.learning = None if learning else state, learning
        self._before, self._after = before, after
        self.schedules = [schedule]
        size = schedule.batch_size // (1 if sampler.draws_seeds else schedule.devices)
        plain = isinstance(items, np.ndarray) and not before
        distinct = plain and len(np.unique(items, axis=0)) == len(items)
        of_batch = sampler, graph, items, size, distinct, before
        if capacity is None:
            capacity, self._worst, size = room_for(*of_batch, state)
        else:
            size, self._worst = bound_of(*of_batch)
        chooses = sampler.draws_seeds
        self.capacity = check_capacity(capacity, 0 if chooses else size, len(self._worst.edges))
        if super_batch is None:
            super_batch = default_super_batch(self.capacity)
            if type(sampler).sample_separately is Sampler.sample_separately:
                super_batch = min(super_batch, MOST_IN_TURN)
            if chooses:  # one thread draws a subgraph, so draw as many as there are threads
                super_batch = max(super_batch, num_threads())
        self.at_once = min(super_batch, len(schedule))
        if learning is not None:  # each batch has another state
            self.at_once = 1
        self._draw = shared(_draw_separately, sampler, tuple(before))
        self.redraws, self.seconds = 0, {"sampling": 0.0}
        self.counts: dict[str, int] = {}

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        (schedule,) = self.schedules
        key_data, asked = schedule.batches(epoch, self.at_once)
        shares = schedule.devices
        learning = self.learning
        before = 0 if learning is None else learning.yielded - first
        for step in range(first, len(schedule), self.at_once):
            steps = slice(step * shares, (step + self.at_once) * shares)
            began = time.perf_counter()
            state = self._state if learning is None else learning.state_of(before + step)
            own = jax.tree.map(lambda a, steps=steps: a[steps], asked)
            batches = self._sample(key_data[steps], own, state)
            batches = batches[: (len(schedule) - step) * shares]
            for function in self._after:
                batches = [function(batch) for batch in batches]
            self.seconds["sampling"] += time.perf_counter() - began
            if self._listed:
                yield [batches[i : i + shares] for i in range(0, len(batches), shares)]
            else:
                yield batches

    def _sample(self, key_data: np.ndarray, asked: Any, state: State) -> list[Any]:
        def draw(key_data: np.ndarray, asked: Any, level: int) -> Any:
            capacity = enlarged(self.capacity, self._worst, level)
            key_data, of_batches = jax.tree.map(as_device, (key_data, asked))
            with wide(self._before):
                return self._draw(key_data, self._graph, state, of_batches, capacity)

        batches, overflow = draw(key_data, asked, 0)
        lost, shares = jax.device_get(overflow), self.schedules[0].devices
        for i in range(0, len(batches), shares):
            if not lost[i : i + shares].any():
                continue
            whole = slice(i, i + shares)  # the shares of a step have one shape
            one = jax.tree.map(lambda a, whole=whole: a[whole], (key_data, asked))

            def again(level: int, one: tuple[Any, Any] = one) -> tuple[list[Any], Any]:
                drawn, overflow = draw(one[0], one[1], level)
                return drawn, jnp.any(overflow)

            batches[whole], level = until_it_fits(again, 1)
            self.redraws += level
        return jax.block_until_ready(batches)


def _draw_separately(
    sampler: Sampler,
    before: Sequence[Stage],
    key_data: Any,
    graph: Graph,
    state: State,
    asked: Any,
    capacity: Capacity,
) -> tuple[list[MiniBatch], jax.Array]:
    """The batches, and bool `[S]`: which of them overflowed."""
    seeds, items = jax.vmap(partial(seeds_of, before, graph))(asked)
    batches = sampler.sample_separately(key_data, graph, state, seeds, capacity)
    batches = [
        replace(batch, items=jax.tree.map(lambda a, i=i: a[i], items))
        for i, batch in enumerate(batches)
    ]
    return batches, jnp.stack([batch.overflow for batch in batches])
