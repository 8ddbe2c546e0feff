"""`Mpi`: the communicator of mpi4jax, one rank a process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jgs.dist.communicators.comm import OneLocal
from jgs.errors import InputError


class Mpi(OneLocal):
    """See `Communicator`. `world`: an mpi4py communicator, by default that of all processes.

    `world` is cloned: what mpi4jax sends shares no communicator with anybody's mpi4py calls.
    Several threads may run programs at once, each on its own clone: MPI is at
    `THREAD_MULTIPLE`, and JAX orders mpi4jax's calls by thread. They may be as many as XLA has
    threads (the CPUs that it may use, or the environment variable PJRT_NPROC). A call that
    waits for its peers blocks a thread of XLA's, and where all are blocked the ranks may wait
    in a circle. `jgs.dist.communicators.launch.connect` sees to it that there are two.

    Raises:
      ImportError: mpi4jax is not installed.
    """

    concurrent, uniform = True, False

    def __init__(self, world: Any = None):
        super().__init__()
        # mpi4jax warns of every JAX newer than itself, on every rank.
        # tests/dist/test_training.py tries it with the JAX at hand.
        os.environ.setdefault("MPI4JAX_NO_WARN_JAX_VERSION", "1")
        import mpi4jax
        from mpi4py import MPI

        self._mpi = mpi4jax
        self._ops = {"sum": MPI.SUM, "max": MPI.MAX, "or": MPI.LOR}
        self._comm = (MPI.COMM_WORLD if world is None else world).Clone()
        self.rank, self.size = self._comm.Get_rank(), self._comm.Get_size()

    def clone(self) -> Mpi:
        return Mpi(self._comm)

    def index(self) -> jax.Array:
        return jnp.int32(self.rank)

    def all_to_all(self, x: jax.Array) -> jax.Array:
        self.count(x.nbytes // self.size * (self.size - 1))
        return _on_the_wire(x, lambda wire: self._mpi.alltoall(wire, comm=self._comm))

    def others(self, xs: Sequence[jax.Array]) -> list[jax.Array]:
        self.count(sum(x.nbytes for x in xs))
        received = []
        for i, x in enumerate(xs):
            dest, source = (self.rank + 1 + i) % self.size, (self.rank - 1 - i) % self.size

            def swap(wire, dest=dest, source=source):
                return self._mpi.sendrecv(wire, wire, source=source, dest=dest, comm=self._comm)

            received.append(_on_the_wire(x, swap))
        return received

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        # MPI has no 16-bit floats: they are added in float32, and rounded once.
        wire = x.astype(jnp.float32) if _is_half(x) else x
        self.count(2 * wire.nbytes * (self.size - 1) // self.size)
        mpi_op = self._ops["or" if x.dtype == bool and op == "max" else op]
        reduced = self._mpi.allreduce(_checked(wire), op=mpi_op, comm=self._comm)
        return reduced.astype(x.dtype) if _is_half(x) else reduced

    def all_gather(self, x: jax.Array) -> jax.Array:
        self.count(x.nbytes * (self.size - 1))
        return _on_the_wire(x, lambda wire: self._mpi.allgather(wire, comm=self._comm))

    def close(self) -> None:
        jax.effects_barrier()  # it is not freed: another thread's program may still use it


def _is_half(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize == 2


def _on_the_wire(x: jax.Array, exchange: Callable) -> jax.Array:
    """`exchange(x)`. 16-bit floats go as integers of the same bytes: MPI has no such floats."""
    if _is_half(x):
        bits = jax.lax.bitcast_convert_type(x, jnp.uint16)
        return jax.lax.bitcast_convert_type(exchange(_checked(bits)), x.dtype)
    return exchange(_checked(x))


def _checked(x: jax.Array) -> jax.Array:
    if x.size >= 2**31:  # mpi4jax casts the count to a C int, without a word
        raise InputError(
            "MPI takes fewer than 2^31 numbers a call",
            f"{x.size} (shape {x.shape})",
            "Exchange fewer rows at a time: a smaller batch, or more rounds.",
        )
    return x
