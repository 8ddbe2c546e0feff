"""`Source`: where a loader's batches come from; `LocalSource`: sampling on one machine; and
`Learning`: the states of an adaptive sampler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch, as_device
from jgs.sampling.base import MOST_IN_TURN, Adaptive, Sampler, State, update_of
from jgs.sampling.capacity import Capacity, check_capacity, default_super_batch, num_threads
from jgs.sampling.checks import require_int
from jgs.sampling.loading.items import Stage, seeds_of, wide
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.plan import bound_of, capacities_for, shared


class Source:
    """The batches of epochs, drawn call by call. A subclass says in `draw` how: on this
    machine, or by a rank together with its peers.

    Args:
      schedules: the schedule of the items for each rank of this process, all at one position.
      learning: the states of an adaptive sampler, or None.
      listed: whether a step is the list of what the schedule's `devices` get, all of the same
        shapes. Otherwise it is one batch.

    Attributes:
      schedules, learning: as given.
      at_once: the number of steps that are drawn in one call.
      together: whether other ranks draw at the same time, so that all must stop after the same
        step.
      after: functions, each of which makes of a batch what is yielded in its place.
      redraws: the number of batches that were drawn again so far.
      seconds: the time that each part of drawing has taken so far, by name.
      counts: the amounts that drawing has sent so far, by name; empty on one machine.
    """

    at_once, together = 1, False
    after: Sequence[Callable[[Any], Any]] = ()

    def __init__(
        self,
        schedules: Sequence[Schedule],
        learning: Learning | None = None,
        listed: bool = False,
    ):
        self.schedules, self.learning, self._listed = list(schedules), learning, listed
        self.redraws, self.seconds = 0, {"sampling": 0.0}

    @property
    def counts(self) -> dict[str, int]:
        return {}

    def begin(self, epoch: int, state: State) -> None:
        """Prepares for an epoch. `state` is that of its first batch, as in `draw`."""

    def draw(self, key_data: np.ndarray, asked: list[Any], state: State) -> list[Any]:
        """The batches of `at_once` steps, a batch for each of a step's `devices`.

        Args:
          key_data: uint32 `[S, W]`, the key of each.
          asked: for each schedule the items of each, `[S, ...]`.
          state: that of an adaptive sampler; None for others.
        """
        raise NotImplementedError

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        """What the steps of `epoch` from step `first` on yield, `at_once` at a time. A
        background thread iterates over the result."""
        schedule, learning = self.schedules[0], self.learning
        shares, before = schedule.devices, 0 if learning is None else learning.yielded - first

        def state_of(step: int) -> State:
            return None if learning is None else learning.state_of(before + step)

        self.begin(epoch, state_of(first))
        every = [each.batches(epoch, self.at_once - 1) for each in self.schedules]
        for step in range(first, len(schedule), self.at_once):
            steps = slice(step * shares, (step + self.at_once) * shares)
            asked = [jax.tree.map(lambda a, s=steps: a[s], own) for _, own in every]
            batches = self.draw(every[0][0][steps], asked, state_of(step))
            batches = batches[: (len(schedule) - step) * shares]
            with self._timed("sampling"):
                for function in self.after:
                    batches = [function(batch) for batch in batches]
            if self._listed:
                batches = [batches[i : i + shares] for i in range(0, len(batches), shares)]
            yield batches

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began

    # What sources of several samplers, and those over others, have more.

    @property
    def drawing(self) -> Source:
        """What draws the batches, which stay on the host."""
        return self

    def of_epoch(self, epoch: int) -> Any:
        """The source that draws `epoch`."""
        return self

    def close(self) -> None:
        """Stops what is done for the next epoch."""

    def report(self, loss: Any, finished: int) -> None:
        """Takes the mean training loss of the last of the `finished` epochs."""

    def state_dict(self) -> dict[str, int]:
        """What decides the batches beside the position, as ints."""
        return {}

    def load_state_dict(self, state: Any) -> Any:
        """Continues with what `state_dict` returned. Returns the other entries of `state`."""
        return state


class OverSource:
    """A source of what is made of another one's batches. It has all else from that one.

    Args:
      source: draws the batches.
      ahead: whether the next batches are drawn in a thread of their own meanwhile.

    Attributes:
      source: as given.
    """

    def __init__(self, source: Any, ahead: bool):
        self.source, self._ahead = source, ahead
        self._seconds = 0.0  # of what is made of batches, which counts as features

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def close(self) -> None:
        self.source.close()

    def of_epoch(self, epoch: int) -> Any:
        return self

    @property
    def seconds(self) -> dict[str, float]:
        own = self.source.seconds
        return own | {"features": own.get("features", 0.0) + self._seconds}


class LocalSource(Source):
    """A `Source` of `MiniBatch`es on one machine.

    Args:
      state: what the sampler's `init` returned for the graph.
      schedule: which of the `items`, a pytree `[n, ...]`, each step has.
      learning, listed: as for `Source`.

    The others are as in `Loader`; `before` is a tuple of functions.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: Sampler,
        state: State,
        schedule: Schedule,
        items: Any,
        before: Sequence[Stage] = (),
        capacity: Capacity | None = None,
        super_batch: int | None = None,
        learning: Learning | None = None,
        listed: bool = False,
    ):
        super().__init__([schedule], learning, listed)
        self._graph, self._before = graph, before
        self._state = None if learning else state
        size = schedule.batch_size // (1 if sampler.draws_seeds else schedule.devices)
        plain = isinstance(items, np.ndarray) and not before
        distinct = plain and len(np.unique(items, axis=0)) == len(items)
        of_batch = sampler, graph, items, size, distinct, before
        if capacity is None:
            capacities = capacities_for(*of_batch, state)
        else:
            capacities = bound_of(*of_batch)._replace(capacity=capacity)
        own = check_capacity(
            capacities.capacity, capacities.num_seeds, len(capacities.worst.edges)
        )
        self.capacity, self._capacities = own, capacities._replace(capacity=own)
        if super_batch is None:
            super_batch = default_super_batch(own)
            if type(sampler).sample_separately is Sampler.sample_separately:
                super_batch = min(super_batch, MOST_IN_TURN)
            if sampler.draws_seeds:  # one thread draws a subgraph: as many as there are threads
                super_batch = max(super_batch, num_threads())
        # A sampler that learns has another state for each batch.
        self.at_once = min(super_batch, len(schedule)) if learning is None else 1
        self._draw = shared(_draw_separately, sampler, tuple(before))

    def draw(self, key_data: np.ndarray, asked: list[Any], state: State) -> list[Any]:
        state = self._state if state is None else state

        def attempt(capacity: Capacity, some: slice = slice(None)) -> Any:
            own = jax.tree.map(lambda a: as_device(a[some]), (key_data, *asked))
            with wide(self._before):
                return self._draw(own[0], self._graph, state, own[1], capacity)

        with self._timed("sampling"):
            batches, overflow = attempt(self.capacity)
            lost, shares = jax.device_get(overflow), self.schedules[0].devices
            for i in range(0, len(batches), shares):
                if lost[i : i + shares].any():
                    step = slice(i, i + shares)  # whose shares have one shape
                    batches[step], level = self._capacities.fit(partial(attempt, some=step), 1)
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


class Learning:
    """Decides which state each batch is drawn with, and updates the state after each step.

    Batch `t` is drawn with the state after `t - age` updates, or the first state if that is
    negative. So the batches do not depend on how far ahead they are drawn. A loader can draw at
    most `age` batches ahead, by default none.

    Args:
      state: the sampler's state before any update. It is copied.
      graph: the graph that batches are drawn from, as `update` takes it.
      program: `program(update, donate_argnums=...)` compiles.

    Attributes:
      states: the newest `1 + age` states, the newest last.
      yielded: the number of batches since the states were set, which the loader counts.
    """

    def __init__(
        self,
        sampler: Adaptive,
        state: State,
        age: int,
        graph: Any,
        program: Callable[..., Any] = jax.jit,
    ):
        self.age, self._graph = age, graph
        # With age 0 nobody else needs the state, and its buffers are donated. So it is copied.
        self._update = program(update_of(sampler), donate_argnums=() if age else (0,))
        state = jax.tree.map(jnp.copy, state)
        self._now: tuple[int, tuple[State, ...]] = (0, (state,) * (1 + age))
        self.yielded = 0

    @classmethod
    def of(cls, sampler: Sampler, state: State, age: int | None, *others: Any) -> Self | None:
        """The `Learning` of `sampler`. None if the sampler is not adaptive, or if `age` is
        None, which leaves its state as it is."""
        if age is not None:
            age = require_int("age", age, 0)
        if age is None or not isinstance(sampler, Adaptive):
            return None
        return cls(sampler, state, age, *others)

    @property
    def states(self) -> tuple[State, ...]:
        return self._now[1]

    @states.setter
    def states(self, states: Sequence[State]) -> None:
        """Continues with `states`: no batch waits for its update."""
        if len(states) != 1 + self.age:
            raise InputError(
                f"a loader of age {self.age} has {1 + self.age} states of its sampler",
                len(states),
                "Give what its sampler_states were.",
            )
        self.yielded, self._now = 0, (0, tuple(states))

    def state_of(self, number: int) -> State:
        """The state that batch `number` is drawn with; batches are counted as in `yielded`."""
        done, states = self._now  # one read, for another thread may draw
        if number - done > self.age:
            raise InputError(
                "an adaptive sampler must be told of every batch before the next is drawn",
                f"{number - done} batches that nobody told it of",
                "Call loader.update(batch, feedback) after each step, or make the loader with "
                "age=None, which leaves the sampler's state as it is.",
            )
        return states[number - done]

    def update(self, batch: Any, feedback: Any) -> None:
        """Updates the state for the oldest yielded batch that has had no update yet."""
        done, states = self._now
        if done == self.yielded:
            raise InputError(
                "a loader's update must follow a batch of its own",
                "one more update than batches",
                "Call it once for each batch.",
            )
        new = self._update(states[-1], batch, feedback, self._graph)
        self._now = (done + 1, (*states[1:], new))
