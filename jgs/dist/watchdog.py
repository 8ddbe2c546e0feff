"""`Watchdog`: a rank that dies or hangs ends the run, with its name, instead of blocking it.

Beside every process a guard watches all ranks (see `jgs.dist.guard`), over connections that are
neither MPI's nor JAX's. Each of these ends every other process:

- it was killed, or it says that an error ended it: at once;
- nothing is heard from it for `timeout` seconds (stopped, or cut off from the network);
- no rank goes on for as long as their phase may last: those furthest behind are named. In the
  steps (sampling, exchange, computing) that is `timeout` seconds, or twenty times as long as a
  step takes usually, if that is more; outside them (`step` is None: opening, compiling,
  evaluation, checkpoint), or where no step has been timed, `phase_timeout` seconds.

The guards of the others print one line, which names the rank, where it was last seen and the
last checkpoint, and end their processes without waiting for anything, as a collective may be
what they hang in: with status `LOST`, or, where an MPI launcher started them, by SIGKILL, for
mpiexec to end too (its status is 9 or 255). After a rank's SIGTERM the status is 143, by which
a script knows that the run can be continued. Where the first process of `jax.distributed` is
lost, JAX may end the others itself meanwhile (SIGABRT); their guards speak all the same.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from jgs.dist import phases, rendezvous
from jgs.dist.comm import Communicator, all_gather_rows
from jgs.dist.guard import LOST
from jgs.dist.start import Meeting, Watch, why
from jgs.errors import InputError
from jgs.interrupts import number_of, status_of

__all__ = ["LOST", "Watchdog"]

LOSS = 1.0  # seconds in which a lost rank is known, on a busy machine too
_OF_PEERS = ("gloo", "connection", "mpi_", "socket")  # what errors speak of that others cause
START = 30.0  # seconds in which the processes must have found each other
_MAX_ADDRESSES = 8


class Watchdog:
    """Watches all processes of `comm` until `close`; every process makes one, and each must.

    Use it as a context: an exception that leaves it is told to the others, which end too.

        with Watchdog(comm, last_checkpoint=lambda: str(newest)) as watchdog:
            for n in range(steps):
                watchdog.step = n
                ...  # its batch, and the programs with collectives
            watchdog.step = None  # before evaluating or writing a checkpoint

    What the rank does meanwhile is told by `jgs.dist.phases`. Programs of `comm` count by
    themselves, so a rank that hangs in its own work is told from those that wait for it.

    To stop by Ctrl-C, all ranks must agree on the step. A signal handler calls `request_stop`;
    each rank adds `stop_requested()` (0 or 1) to what the step's all_reduce sums, and all stop
    after the step whose sum is not 0.

    Args:
      comm: any communicator. Nothing is watched where it has one process.
      timeout: seconds of silence, or in which no rank goes on, after which a rank counts as
        lost. All ranks may set the attribute `timeout` anew, of at least 1 s, when they know
        better; `phase_timeout` too.
      phase_timeout: seconds that a phase outside the steps may last.
      last_checkpoint: what to say to whoever wants to go on, e.g. the newest checkpoint.
      watch: that of the command, which has been there since its start.

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

    def request_stop(self) -> None:
        """This rank wants all to stop. Safe in a signal handler."""
        self._stop.set()

    def stop_requested(self) -> bool:
        """Whether this rank does."""
        return self._stop.is_set()

    def failed(self, error: BaseException) -> None:
        """Tells all others that this rank ends because of `error`: they end too. This process
        goes on to its end, where it does not wait for them as MPI and JAX would (status 1, or
        130 after Ctrl-C, 143 after SIGTERM).

        A collective may have failed because a rank is gone: then the guard, which knows it as
        soon, ends this process as it does the others."""
        if self._watch is None or not self._watch.open:
            return
        status, told = 1, LOST
        if isinstance(error, KeyboardInterrupt):
            status = status_of(number_of(error))
            told = status if number_of(error) == signal.SIGTERM else LOST
        elif not isinstance(error, InputError):
            of_peers = any(word in str(error).lower() for word in _OF_PEERS)
            time.sleep(10 * LOSS if of_peers else LOSS)
        atexit.register(_exit_now, status)  # the last registered comes first
        self._watch.failed(f"{rendezvous.names(self._ranks)} {why(error)}", told)

    def close(self) -> None:
        """The orderly end of this rank: from now on nobody misses it."""
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
        """The guards of all processes meet, if they have not."""
        own = [np.array([comm.rank])] * comm.num_local
        firsts = sorted(set(all_gather_rows(comm, own)[:, 0].tolist()))
        if watch is None:
            number = firsts.index(comm.rank)
            watch = Watch(Meeting(number, len(firsts), "", (), True), max(START, self.timeout))
        found = [socket.inet_aton(a) for a in rendezvous.addresses()[-_MAX_ADDRESSES:]]
        packed = np.frombuffer(b"".join(found).ljust(4 * _MAX_ADDRESSES, b"\0"), np.uint32)
        row = np.array([comm.rank, watch.port, secrets.randbits(32), *packed], np.uint32)
        rows = all_gather_rows(comm, [row] * comm.num_local)
        port = int(rows[0, 1])
        hosts = [socket.inet_ntoa(a.tobytes()) for a in rows[0, 3:] if a]
        # Ranks of the same process as rank r are named with it.
        ranks = [[i for i in range(comm.size) if rows[i, 0] == r] for r in firsts]
        watch.join(f"watchdog {rows[0, 2]}", [(host, port) for host in hosts], ranks)
        watch.wait_met(max(START, self.timeout))
        return watch


def _exit_now(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
