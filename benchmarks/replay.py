"""How long a step's communication takes alone: its collectives run again, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, Communicator, all_gather_rows

_REPEATS = 20


class Recorded:
    """The communicator `comm`, recorded. `log` has the name of every collective that ran, with
    the shape and dtype of each operand."""

    def __init__(self, comm: Communicator, log: list | None = None):
        self._comm, self.log = comm, [] if log is None else log
        self._traced: list[tuple] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def clone(self) -> Recorded:
        return Recorded(self._comm.clone(), self.log)

    def all_to_all(self, x: jax.Array) -> jax.Array:
        self._note("all_to_all", x)
        return self._comm.all_to_all(x)

    def others(self, xs: Sequence[jax.Array]) -> list[jax.Array]:
        self._note("others", *xs)
        return self._comm.others(xs)

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        self._note("all_reduce", x)
        return self._comm.all_reduce(x, op)

    def all_gather(self, x: jax.Array) -> jax.Array:
        self._note("all_gather", x)
        return self._comm.all_gather(x)

    def _note(self, name: str, *xs: jax.Array) -> None:
        self._traced.append((name, tuple((x.shape, x.dtype) for x in xs)))

    def program(self, *args, **options):
        program, mine = self._comm.program(*args, **options), []

        def call(*operands):
            first = len(self._traced)
            result = program(*operands)
            if len(self._traced) > first:  # the program has just been compiled
                mine[:] = self._traced[first:]
            self.log.extend(mine)
            return result

        return call


def milliseconds(comm: Communicator, collectives: Sequence[tuple]) -> float:
    """The median time over repeats. Each repeat runs all the collectives, one after another."""
    if not collectives:
        return 0.0
    programs, operands = [], []
    for name, kinds in collectives:
        collective = getattr(comm, name)
        function = (lambda *xs, c=collective: c(xs)) if name == "others" else collective
        programs.append(comm.program(function, (OWN,) * len(kinds), OWN))
        ones = [jnp.ones(shape, dtype) for shape, dtype in kinds]
        operands.append([comm.own([x] * comm.num_local) for x in ones])
    times = []
    for _ in range(_REPEATS):
        all_gather_rows(comm, [np.zeros(1, np.int32)] * comm.num_local)  # all begin together
        began = time.perf_counter()
        for program, operand in zip(programs, operands, strict=True):
            jax.block_until_ready(program(*operand))
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times[_REPEATS // 4 :]))
