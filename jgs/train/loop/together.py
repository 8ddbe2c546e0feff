"""`StepsTogether`: steps of devices that draw by themselves, several in one program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import all_gather_rows
from jgs.graph import MiniBatch
from jgs.train.loop.optimizer import Rate, rate_at

_SECONDS = 0.5  # a program takes about that, so that Ctrl-C is heard


class StepsTogether:
    """Keeps the steps of `jgs.dist.mesh_loader` until someone asks what they lead to.

    Args:
      train_step: that of `make_train_step`, not compiled.
      job: has the loader and the degrees.
      rate: the learning rate of learned rows, where `train_step` returns their gradient too.
    """

    def __init__(self, train_step: Callable[..., Any], job: Any, rate: Rate | None = None):
        def step(state: Any, batch: MiniBatch, x: Any, key: Any, labels: Any, degrees: Any):
            batch = batch if degrees is None else batch.with_degrees(degrees)
            done = train_step(state, key, batch, x, labels)
            if rate is None:
                return done
            return *done, jnp.asarray(rate_at(rate, state.step), jnp.float32)

        self._step, self._job, self._waiting, self._most = step, job, list[Any](), 1

    def take(self, step: Any) -> bool:
        """Takes one more step. Returns whether it is time to make those that wait."""
        self._waiting.append(step)
        loader = self._job.loader
        most = min(self._most, loader.source.most)
        return len(self._waiting) >= most or loader.step == len(loader)

    def made(self, state: Any, *given: Any) -> Any:
        """The state after the steps that wait, from the `state` before them."""
        if not self._waiting:
            return state
        steps, self._waiting, began = self._waiting, [], time.perf_counter()
        run = self._job.loader.source.run
        state = jax.block_until_ready(run(steps, self._step, state, *given, self._job.degrees))
        comm, seconds = self._job.comm, np.array([time.perf_counter() - began])
        if all_gather_rows(comm, [seconds] * comm.num_local).max() < _SECONDS:
            self._most *= 2
        return state
