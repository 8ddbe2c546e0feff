"""`Emulated`: a communicator that takes the time that another network would take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from jgs.dist.communicators.comm import Communicator


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

    def program(
        self,
        function: Callable,
        in_specs: Sequence[PartitionSpec],
        out_specs: Any,
        donate: Sequence[int] = (),
    ) -> Callable:
        program = self._comm.program(function, in_specs, out_specs, donate)

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
