"""`Learning`: the states of an adaptive sampler, which change with each training step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp

from jgs.errors import InputError
from jgs.sampling.base import Adaptive, Sampler, State, update_of
from jgs.sampling.checks import require_int


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
