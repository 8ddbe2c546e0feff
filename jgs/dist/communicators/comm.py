"""`Communicator`: what distributed code asks of the network, and its forms with one rank a
process: `Alone`, and `Mpi` by mpi4jax.

A *program* is a function that every rank runs at the same time. It is written for one rank, and
collectives are called inside it. `Communicator.program` compiles it: under MPI with `jax.jit`,
on a mesh of devices with `jax.shard_map`.

An argument or result of a program is either `OWN`: each rank has its own; or `SAME`: all ranks
have an equal one. Outside a program an `OWN` value is opaque: on a mesh its arrays have a
leading axis of ranks, elsewhere they are the rank's own. `own` makes such a value from a list
that has an item for each rank of this process, and `local` turns it into a list again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from jgs.dist.supervision import phases
from jgs.errors import InputError
from jgs.graph.device import as_device

AXIS = "rank"
OWN, SAME = PartitionSpec(AXIS), PartitionSpec()


@dataclass
class Counters:
    """What one rank has sent.

    Fields:
      rounds: the collectives that it took part in.
      bytes: what it handed to the network for others: with padding, without its own part.
    """

    rounds: int = 0
    bytes: int = 0


class Communicator(Protocol):
    """Ranks `rank`, ..., `rank + num_local - 1` of `size` are in this process.

    Collectives may be called inside a program only. Each is one round. They are counted when
    the program is traced: call them at its top level, not in a loop or in a function with a
    `jax.jit` of its own.

    `concurrent`: two threads may run programs at once, each with its own `clone`. Where it is
    False, every process must call all programs in the same order, from one thread.

    `uniform`: the arrays of an `OWN` value must have the same shape on every rank.
    """

    rank: int
    size: int
    num_local: int
    concurrent: bool
    uniform: bool
    counters: Counters

    def clone(self) -> Communicator:
        """A communicator of the same ranks with its own counters. Every rank calls it, in the
        same order."""

    def index(self) -> jax.Array:
        """int32 scalar: the rank that runs this program."""

    def all_to_all(self, x: jax.Array) -> jax.Array:
        """`x` is `[size, ...]`, and so is the result: row `p` of `x` goes to rank `p`, and row
        `p` of the result comes from rank `p`."""

    def others(self, xs: Sequence[jax.Array]) -> list[jax.Array]:
        """`all_to_all` without a rank's own part, which need not be copied. On rank `r`,
        `xs[i]` goes to rank `r+1+i`, and item `i` of the result comes from rank `r-1-i`, both
        modulo `size`."""

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        """The sum over ranks (or the maximum, by `op="max"`), with the same bits on each rank.
        Booleans have no sum."""

    def all_gather(self, x: jax.Array) -> jax.Array:
        """`[size, ...]`: every rank's `x`."""

    def program(
        self,
        function: Callable,
        in_specs: Sequence[PartitionSpec],
        out_specs: Any,
        donate: Sequence[int] = (),
    ) -> Callable:
        """`function`, compiled. It takes as many positional arguments (pytrees) as there are
        `in_specs`, each `OWN` or `SAME`. `out_specs` is one of these for all results, or a
        tuple with one for each result. `donate` has the positions of the arguments whose
        buffers it may take over.

        Every program is traced anew. `jax.jit` by itself traces one function once, so the
        counters would see nothing of a second program of it."""

    def own(self, values: Sequence[Any]) -> Any:
        """The `OWN` value of pytrees of equal structure and shapes, one for each local rank. A
        NumPy array keeps its dtype, int64 too. It may not be changed afterwards: an array that
        is aligned, as memory maps are, is not copied."""

    def same(self, value: Any) -> Any:
        """The `SAME` value of a pytree that is equal on all ranks."""

    def local(self, value: Any) -> list[Any]:
        """The pytrees of an `OWN` value, one for each local rank."""

    def close(self) -> None:
        """Leaves the communicator. Nothing may be called afterwards."""


class Compiled:
    """Compiles programs, and counts what they send by the shapes that are known when they are
    traced. `on_rank` makes what is compiled of a program."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._traced = Counters()

    def on_rank(self, function: Callable, in_specs: Sequence[Any], out_specs: Any) -> Callable:
        return partial(function)

    def program(
        self,
        function: Callable,
        in_specs: Sequence[PartitionSpec],
        out_specs: Any,
        donate: Sequence[int] = (),
    ) -> Callable:
        made = self.on_rank(function, in_specs, out_specs)
        return self.counting(jax.jit(made, donate_argnums=tuple(donate)))

    def count(self, num_bytes: int) -> None:
        """Counts a round of so many bytes, in the program that is being traced."""
        self._traced.rounds += 1
        self._traced.bytes += num_bytes

    def counting(self, compiled: Any) -> Callable:
        """`compiled`, a jitted program, adding to `counters` at every call."""
        costs: dict[Any, Counters] = {}

        def cost(args) -> Counters:
            shapes = tuple(
                (np.shape(a), jax.dtypes.result_type(a)) for a in jax.tree.leaves(args)
            )
            if shapes not in costs:
                self._traced = Counters()
                compiled.trace(*args)  # it is cached: the call traces no second time
                costs[shapes] = self._traced
            return costs[shapes]

        def call(*args):
            added = cost(args)
            phases.tick()
            result = compiled(*args)
            self.counters.rounds += added.rounds
            self.counters.bytes += added.bytes
            return result

        def lower(*args):
            cost(args)  # traces, and so counts, before `lower` does
            return compiled.lower(*args)

        call.lower = lower  # type: ignore[attr-defined]
        return call

    def close(self) -> None:
        pass


class OneLocal(Compiled):
    """Communicators with one rank a process: values outside a program are as inside it."""

    num_local = 1

    def own(self, values: Sequence[Any]) -> Any:
        (value,) = values
        return self.same(value)

    def same(self, value: Any) -> Any:
        return jax.tree.map(lambda a: as_device(a) if isinstance(a, np.ndarray) else a, value)

    def local(self, value: Any) -> list[Any]:
        return [value]


class Alone(OneLocal):
    """The communicator of one rank: every collective is the identity, and takes no round."""

    rank, size, concurrent, uniform = 0, 1, True, False

    def clone(self) -> Alone:
        return Alone()

    def index(self) -> jax.Array:
        return jax.numpy.int32(0)

    def all_to_all(self, x: jax.Array) -> jax.Array:
        return x

    def others(self, xs: Sequence[jax.Array]) -> list[jax.Array]:
        return list(xs)

    def all_reduce(self, x: jax.Array, op: str = "sum") -> jax.Array:
        return x

    def all_gather(self, x: jax.Array) -> jax.Array:
        return x[None]

    def counting(self, compiled: Any) -> Callable:
        return compiled


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


class Emulated:
    """`comm`, slowed down: every round of a program takes `latency` seconds more, and its bytes
    take `bytes / bandwidth` seconds more. `Emulated(comm, 50e-6, 25e9 / 8)` is a network of 25
    Gbit/s and 50 µs.

    A program's call returns when its results are there and that time has passed. The bytes are
    `Counters.bytes`, what one rank sends. Clones share the link, as they would share a network
    card. `seconds` is the time added so far, over all clones.
    """

    def __init__(self, comm: Communicator, latency: float, bandwidth: float):
        self._comm, self._latency, self._bandwidth = comm, latency, bandwidth
        self._link, self._added = threading.Lock(), [0.0]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    @property
    def seconds(self) -> float:
        return self._added[0]

    def clone(self) -> Emulated:
        other = Emulated(self._comm.clone(), self._latency, self._bandwidth)
        other._link, other._added = self._link, self._added
        return other

    def program(self, *arguments: Any, **options: Any) -> Callable:
        program = self._comm.program(*arguments, **options)

        def call(*args):
            counters = self._comm.counters
            rounds, num_bytes = counters.rounds, counters.bytes
            result = jax.block_until_ready(program(*args))
            latency = (counters.rounds - rounds) * self._latency
            transfer = (counters.bytes - num_bytes) / self._bandwidth
            time.sleep(latency)  # several messages may wait at once
            with self._link:  # it carries one message at a time
                time.sleep(transfer)
                self._added[0] += latency + transfer
            return result

        call.lower = program.lower  # type: ignore[attr-defined]
        return call


_FEW = 4096  # bytes; a row of so few is padded, see `all_gather_rows`


@lru_cache(maxsize=16)
def _gather_program(comm: Communicator) -> Callable:
    return comm.program(comm.all_gather, (OWN,), SAME)


def all_gather_rows(comm: Communicator, rows: Sequence[Any]) -> np.ndarray:
    """`[size, k]` on the host: every rank's row of `k` numbers, which may have 64 bits. `rows`
    has one for each local rank."""
    rows = [np.asarray(row) for row in rows]
    if comm.size == 1:
        return np.stack(rows)
    first, gather = rows[0], _gather_program(comm)  # type: ignore[arg-type]
    if first.nbytes > _FEW:
        return np.asarray(gather(comm.own(rows)))
    # As bytes, of which there are few sizes: each dtype and size would be a program.
    size = max(_FEW // 16, 1 << (first.nbytes - 1).bit_length())
    sent = [np.frombuffer(row.tobytes().ljust(size, b"\0"), np.uint8) for row in rows]
    found = np.ascontiguousarray(np.asarray(gather(comm.own(sent)))[:, : first.nbytes])
    return found.view(first.dtype).reshape(comm.size, *first.shape)
