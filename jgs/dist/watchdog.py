"""`Watchdog`: a rank that dies or hangs ends the run, with its name, instead of blocking it.

Every process keeps a TCP connection to the first one, beside MPI and JAX, and says four times a
second that it lives and which step it is in. Each of these ends every other process:

- its connection breaks (it was killed), or it says that an error ended it: at once;
- nothing is heard from it for `timeout` seconds (stopped, or cut off from the network);
- no rank's `step` moves for `timeout` seconds, or for twenty times as long as usual, if that is
  more: those furthest behind are named. While any rank is outside the steps (`step` is None:
  compiling, evaluating, writing a checkpoint), or no step has been timed, for `patience` s.

The others print one line, which names the rank and the last checkpoint, and end without waiting
for anything, as a collective may be what they hang in: with status `LOST`, or, under mpiexec,
by SIGKILL, for mpiexec to end too (its status is 9 or 255). After a rank's SIGTERM the status
is 143, by which a script knows that the run can be continued. Where the first process of
`jax.distributed` is lost, JAX may end the others itself meanwhile (SIGABRT).
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from jgs.dist import rendezvous
from jgs.dist.comm import Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.interrupts import WORDS, number_of, status_of

LOST = 3
"""The exit status of a process that ends because another one was lost."""

BEAT = 0.25  # seconds; the same for every timeout from 1 s on, so that it may change
LOSS = 1.0  # seconds in which a broken connection is seen, on a busy machine too
START = 30.0  # seconds in which the processes must have found each other
_MAX_ADDRESSES = 8


@dataclass
class _Peer:
    """What is known of another process; `usual` is its time between two moves of `step`."""

    connection: socket.socket
    heard: float
    step: float | None = None
    usual: float = 0.0
    unread: bytes = b""


class Watchdog:
    """Watches all processes of `comm` until `close`; every process makes one, and each must.

    Use it as a context: an exception that leaves it is told to the others, which end too.

        with Watchdog(comm, last_checkpoint=lambda: str(newest)) as watchdog:
            for n in range(steps):
                watchdog.step = n
                ...  # its batch
                watchdog.step = n + 0.5
                ...  # the programs with collectives; watchdog.stop_requested() is reduced too
                watchdog.step = None  # before evaluating or writing a checkpoint

    `step` is how far this rank is: any number that grows. Half steps, as above, tell the rank
    that hangs in its own work from those that wait for it.

    To stop by Ctrl-C, all ranks must agree on the step. A signal handler calls `request_stop`;
    each rank adds `stop_requested()` (0 or 1) to what the step's all_reduce sums, and all stop
    after the step whose sum is not 0.

    Args:
      comm: any communicator. Nothing is watched where it has one process.
      timeout: seconds of silence, or without a move, after which a rank counts as lost. All
        ranks may set the attribute `timeout` anew, of at least 1 s, when they know better.
      patience: seconds that a rank may spend outside the steps.
      last_checkpoint: what to say to whoever wants to go on, e.g. the newest checkpoint.

    Raises:
      InputError: the processes do not reach each other.
    """

    def __init__(
        self,
        comm: Communicator,
        *,
        timeout: float = 60.0,
        patience: float = 1800.0,
        last_checkpoint: Callable[[], str] = lambda: "none known",
    ):
        self._ranks = range(comm.rank, comm.rank + comm.num_local)
        self._abort = comm.abort
        self.timeout, self._patience = timeout, patience
        self._beat = min(BEAT, timeout / 4)
        self._last_checkpoint = last_checkpoint
        self._stop, self._closing = threading.Event(), threading.Event()
        self._step: float | None = None
        self._moved, self._usual = time.monotonic(), 0.0
        self._seen: dict[int, float] = {}  # how far each process was when one last moved
        self._seen_moving = time.monotonic()
        self._peers = self._connect(comm)
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        if self._peers:
            self._thread.start()

    @property
    def step(self) -> float | None:
        return self._step

    @step.setter
    def step(self, step: float | None) -> None:
        now = time.monotonic()
        if self._step is not None and step is not None:
            self._usual += 0.1 * (now - self._moved - self._usual)
        self._step, self._moved = step, now

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

        A collective may have failed because a rank is gone. Its connection then breaks as
        soon, and this process ends as the others do."""
        ours = isinstance(error, KeyboardInterrupt | InputError)
        if self._peers and not ours and self._closing.wait(LOSS):
            self._thread.join()  # it ends this process, unless all was closed before
        if self._peers and not self._closing.is_set():
            status, told = 1, LOST
            text = " ".join(f"failed: {type(error).__name__}: {error}".split())[:500]
            if isinstance(error, KeyboardInterrupt):
                number = signal.Signals(number_of(error))
                status, text = status_of(number), f"was {WORDS[number]}"
                told = status if number == signal.SIGTERM else LOST
            atexit.register(_exit_now, status)  # the last registered comes first
            self._leave({"failed": f"{self._own_name()} {text}", "status": told})

    def close(self) -> None:
        """The orderly end of this rank: from now on nobody misses it."""
        if self._peers and not self._closing.is_set():
            self._leave({"bye": True})

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close() if error is None else self.failed(error)

    def _connect(self, comm: Communicator) -> dict[int, _Peer]:
        """To the first process, or as the first to all others; each by its first rank."""
        if comm.size == comm.num_local:
            return {}
        listener = rendezvous.listen() if comm.rank == 0 else None
        port = listener.getsockname()[1] if listener else 0
        found = [socket.inet_aton(a) for a in rendezvous.addresses()[-_MAX_ADDRESSES:]]
        packed = np.frombuffer(b"".join(found).ljust(4 * _MAX_ADDRESSES, b"\0"), np.uint32)
        row = np.array([comm.rank, port, secrets.randbits(32), *packed], np.uint32)
        rows = all_gather_rows(comm, [row] * comm.num_local)
        first, meeting = rows[0], f"watchdog {rows[0, 2]}"
        wait = max(START, self.timeout)
        if listener:
            others = set(rows[:, 0].tolist()) - {0}
            with listener:
                connections = rendezvous.gather(listener, others, meeting, wait)
        else:
            hosts = [socket.inet_ntoa(a.tobytes()) for a in first[3:] if a]
            places = [(host, int(first[1])) for host in hosts]
            connections = {0: rendezvous.join(places, comm.rank, meeting, wait)}
        now = time.monotonic()
        for connection in connections.values():
            connection.settimeout(self._beat)  # of writing: a stopped rank reads nothing
        # Ranks of the same process as rank r are named with it.
        self._of_process = {
            r: [i for i in range(comm.size) if rows[i, 0] == r]
            for r in set(rows[:, 0].tolist())
        }
        return {r: _Peer(c, heard=now) for r, c in connections.items()}

    def _watch(self) -> None:
        selector = selectors.DefaultSelector()
        for rank, peer in self._peers.items():
            selector.register(peer.connection, selectors.EVENT_READ, rank)
        beaten = 0.0
        while not self._closing.is_set() and self._peers:
            if (now := time.monotonic()) - beaten >= self._beat:
                beaten = now
                self._send({"step": self._step, "usual": self._usual})
            for key, _ in selector.select(self._beat / 2):
                if not self._read(key.data):
                    selector.unregister(key.fileobj)
            # All that had arrived has been read: its own pause is no one's silence.
            self._check()

    def _read(self, rank: int) -> bool:
        """Takes what `rank` has sent; False once it has left."""
        peer = self._peers[rank]
        try:
            received = peer.connection.recv(65536)
        except OSError:
            received = b""
        if not received:
            self._end(f"{self._names([rank])} is gone (its connection broke)")
            return False
        *lines, peer.unread = (peer.unread + received).split(b"\n")
        for line in map(json.loads, lines):
            if "failed" in line:
                self._end(line["failed"], line.get("status", LOST))
                return False  # this one was closing anyway
            if "bye" in line:
                self._peers.pop(rank).connection.close()
                return False
            peer.heard = time.monotonic()
            peer.step, peer.usual = line["step"], line["usual"]
        return True

    def _check(self) -> None:
        now = time.monotonic()
        silent = [r for r, p in self._peers.items() if now - p.heard > self.timeout]
        if silent:
            wait = max(now - self._peers[r].heard for r in silent)
            self._end(f"nothing heard of {self._names(silent)} for {wait:.0f} s")
        if self._ranks[0] == 0:  # the others do not know everybody's step
            self._check_steps(now)

    def _check_steps(self, now: float) -> None:
        steps = {0: self._step} | {r: p.step for r, p in self._peers.items()}
        far = {r: -1.0 if step is None else step for r, step in steps.items()}
        if far != self._seen:
            self._seen, self._seen_moving = far, now
        usual = max([self._usual, *(p.usual for p in self._peers.values())])
        timed = min(far.values()) >= 0 and usual > 0
        still = now - self._seen_moving
        if still > max(self.timeout, 20 * usual if timed else self._patience):
            last = [r for r in far if far[r] == min(far.values())]
            step = steps[last[0]]
            where = "outside the steps" if step is None else f"in step {int(step)}"
            who = "every rank" if len(last) == len(steps) else self._names(last)
            self._end(f"{who} has been {where} for {still:.0f} s")

    def _end(self, problem: str, status: int = LOST) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        try:
            checkpoint = self._last_checkpoint()
        except Exception as error:  # whatever it is, the run ends
            checkpoint = f"unknown ({error})"
        print(
            f"{self._own_name()} ends: {problem}; last checkpoint: {checkpoint}",
            file=sys.stderr,
            flush=True,
        )
        self._part({"failed": problem, "status": status})
        if status != LOST:
            _exit_now(status)
        self._abort(LOST)

    def _leave(self, message: dict) -> None:
        self._closing.set()
        self._thread.join()
        self._part(message)

    def _part(self, message: dict) -> None:
        """The last message. Waits until it has been read, or a second: a connection that is
        closed with something unread drops what it has not delivered."""
        self._send(message)
        end = time.monotonic() + 1
        for peer in list(self._peers.values()):
            try:
                peer.connection.shutdown(socket.SHUT_WR)
                peer.connection.settimeout(max(end - time.monotonic(), 0.01))
                while peer.connection.recv(65536) and time.monotonic() < end:
                    pass
            except OSError:
                pass  # it has gone
            peer.connection.close()

    def _send(self, message: dict) -> None:
        line = json.dumps(message).encode() + b"\n"
        for peer in list(self._peers.values()):
            # It may be gone, or stopped with full buffers: its silence tells.
            with suppress(OSError):
                peer.connection.sendall(line)

    def _own_name(self) -> str:
        return rendezvous.names(self._ranks)

    def _names(self, processes: list[int]) -> str:
        return rendezvous.names(rank for p in processes for rank in self._of_process[p])


def _exit_now(status: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
