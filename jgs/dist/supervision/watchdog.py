"""`Watchdog`: a rank that dies or hangs does not block the run: the run ends, and names the
rank.

Beside every process a guard watches all ranks, over connections that are neither MPI's nor
JAX's. `jgs.dist.supervision.guard` says when a rank is lost. A rank may be silent for `timeout`
seconds. In the steps (sampling, exchange, computing) a phase may last `timeout` seconds, or
twenty usual steps if that is more. Outside the steps (`step` is None: opening, compiling,
evaluation, checkpoint), or before a step has been timed, it may last `phase_timeout` seconds.

The guards of the others end their processes without waiting for anything, because a collective
may be what these hang in. The status is `LOST`. Where an MPI launcher started the processes,
they end by SIGKILL, so that mpiexec ends too (its status is 9 or 255). After a rank's SIGTERM
the status is 143: by it a script knows that the run can be continued. Where the first process
of `jax.distributed` is lost, JAX may itself end the others (SIGABRT). Their guards still speak.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jgs.dist.communicators import rendezvous
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.communicators.start import LOSS, Meeting, Watch, of_peers
from jgs.dist.supervision import phases
from jgs.dist.supervision.guard import LOST
from jgs.errors import InputError
from jgs.interrupts import number_of, status_of

__all__ = ["LOST", "Watchdog"]

START = 30.0  # seconds in which the processes must have found each other
_MAX_ADDRESSES = 8


class Watchdog:
    """Watches all processes of `comm` until `close`. Every process must make one.

    Use it as a context. An exception that leaves it is told to the others, which end too.

        with Watchdog(comm, last_checkpoint=lambda: str(newest)) as watchdog:
            for n in range(steps):
                watchdog.step = n
                ...  # its batch, and the programs with collectives
            watchdog.step = None  # before evaluating or writing a checkpoint

    `jgs.dist.supervision.phases` tells what the rank does meanwhile. Programs of `comm` count
    by themselves, so a rank that hangs in its own work can be told from ranks that wait for it.

    To stop by Ctrl-C, all ranks must agree on the step. A signal handler calls `request_stop`.
    Each rank adds `stop_requested()` (0 or 1) to what the step's all_reduce sums, and all stop
    after the step whose sum is not 0.

    Args:
      comm: any communicator. Nothing is watched where it has one process.
      timeout: the seconds of silence after which a rank counts as lost; also those in which no
        rank goes on. All ranks may set the attributes `timeout`, to at least 1 s, and
        `phase_timeout` anew when they know better.
      phase_timeout: the seconds that a phase outside the steps may last.
      last_checkpoint: returns what to tell whoever wants to go on, e.g. the newest checkpoint.
      watch: the command's watch, which has been there since its start.

    Raises:
      InputError: the processes do not reach each other.
    """

    def __init__(
        self,
        comm: Communicator,
        *,
        timeout: float = 60.0,
        phase_timeout: float = 1800.0,
        last_checkpoint: Callable[[], str] = lambda: "none known",
        watch: Watch | None = None,
    ):
        self._ranks = range(comm.rank, comm.rank + comm.num_local)
        self.timeout, self.phase_timeout = timeout, phase_timeout
        self._stop = threading.Event()
        self._step: float | None = None
        self._moved, self._usual = time.monotonic(), 0.0
        self._watch = self._connect(comm, watch) if comm.size > comm.num_local else None
        if self._watch is not None:
            self._watch.silence = lambda: self.timeout
            self._watch.limit = self._limit
            self._watch.checkpoint = last_checkpoint
            self._watch.at(None)

    @property
    def step(self) -> float | None:
        return self._step

    @step.setter
    def step(self, step: float | None) -> None:
        now = time.monotonic()
        if self._step is not None and step is not None:
            self._usual += 0.1 * (now - self._moved - self._usual)
        self._step, self._moved = step, now
        phases.tick()
        if self._watch is not None:
            self._watch.step = None if step is None else int(step)

    def report(self) -> None:
        """Tells the guard of a new checkpoint at once: a rank may be killed before the guard
        asks."""
        if self._watch is not None:
            self._watch.report()

    def request_stop(self) -> None:
        """Says that this rank wants all to stop. A signal handler may call it."""
        self._stop.set()

    def stop_requested(self) -> bool:
        """Whether this rank wants all to stop."""
        return self._stop.is_set()

    def failed(self, error: BaseException) -> None:
        """Tells all others that this rank ends because of `error`. They end too. This process
        goes on to its end, and there does not wait for the others as MPI and JAX would. Its
        status is 1, or 130 after Ctrl-C and 143 after SIGTERM.

        A collective may have failed because a rank is gone. The guard knows that as soon, and
        ends this process as it ends the others."""
        if self._watch is None or not self._watch.open:
            return
        status = 1
        if isinstance(error, KeyboardInterrupt):
            status = status_of(number_of(error))
        elif not isinstance(error, InputError) and not of_peers(error):
            time.sleep(LOSS)
        atexit.register(_exit_now, status)  # what is registered last is called first
        self._watch.failed_by(error, rendezvous.names(self._ranks))

    def close(self) -> None:
        """Ends this rank's part in an orderly way: from now on nobody misses it."""
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close() if error is None else self.failed(error)

    def _limit(self) -> float:
        if self._step is None or self._usual == 0:
            return self.phase_timeout
        return max(self.timeout, 20 * self._usual)

    def _connect(self, comm: Communicator, watch: Watch | None) -> Watch:
        """Has the guards of all processes meet, if they have not met yet."""
        own = [np.array([comm.rank])] * comm.num_local
        firsts = sorted(set(all_gather_rows(comm, own)[:, 0].tolist()))
        if watch is None:
            number = firsts.index(comm.rank)
            watch = Watch(Meeting(number, len(firsts), "", (), True), max(START, self.timeout))
        here = dict.fromkeys([*rendezvous.interfaces().values(), "127.0.0.1"])
        found = [socket.inet_aton(address) for address in here][-_MAX_ADDRESSES:]
        packed = np.frombuffer(b"".join(found).ljust(4 * _MAX_ADDRESSES, b"\0"), np.uint32)
        row = np.array([comm.rank, watch.port, secrets.randbits(32), *packed], np.uint32)
        rows = all_gather_rows(comm, [row] * comm.num_local)
        port = int(rows[0, 1])
        hosts = [socket.inet_ntoa(a.tobytes()) for a in rows[0, 3:] if a]
        # A lost process is named by all its ranks.
        ranks = [[i for i in range(comm.size) if rows[i, 0] == r] for r in firsts]
        watch.join(f"watchdog {rows[0, 2]}", [(host, port) for host in hosts], ranks)
        watch.wait_met(max(START, self.timeout))
        return watch


def _exit_now(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
