"""What a step's communication takes alone: its collectives again, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.comm import OWN, Communicator

_REPEATS = 20


class Recorded:
    """`comm`; `log` holds the name, shape and dtype of every collective that ran."""

    def __init__(self, comm: Communicator, log: list | None = None):
        self._comm, self.log = comm, [] if log is None else log
        self._traced: list[tuple] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    def clone(self) -> Recorded:
        return Recorded(self._comm.clone(), self.log)

    def all_to_all(self, x: jax.Array) -> jax.Array:
        self._traced.append(("all_to_all", x.shape, x.dtype))
        return self._comm.all_to_all(x)

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        self._traced.append(("all_reduce", x.shape, x.dtype))
        return self._comm.all_reduce(x, op)

    def all_gather(self, x: jax.Array) -> jax.Array:
        self._traced.append(("all_gather", x.shape, x.dtype))
        return self._comm.all_gather(x)

    def program(self, *args, **options):
        program, mine = self._comm.program(*args, **options), []

        def call(*operands):
            first = len(self._traced)
            result = program(*operands)
            if len(self._traced) > first:  # it has just been compiled
                mine[:] = self._traced[first:]
            self.log.extend(mine)
            return result

        return call


def milliseconds(comm: Communicator, collectives: Sequence[tuple]) -> float:
    """Median over repeats of all of these, one after the other."""
    if not collectives:
        return 0.0
    programs = [comm.program(getattr(comm, name), (OWN,), OWN) for name, _, _ in collectives]
    operands = [
        comm.own([jnp.ones(shape, dtype)] * comm.num_local) for _, shape, dtype in collectives
    ]
    times = []
    for _ in range(_REPEATS):
        comm.barrier()
        began = time.perf_counter()
        for program, operand in zip(programs, operands, strict=True):
            jax.block_until_ready(program(operand))
        times.append(1e3 * (time.perf_counter() - began))
    return float(np.median(times[_REPEATS // 4 :]))
