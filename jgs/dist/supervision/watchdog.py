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

import argparse
import atexit
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jgs import interrupts
from jgs.dist.communicators import start
from jgs.dist.communicators.start import (
    CONNECTING,
    START_TIMEOUT,
    Line,
    Meeting,
    arguments,
    launched,
    meeting,
)
from jgs.dist.supervision import phases
from jgs.dist.supervision.guard import LOST
from jgs.errors import InputError
from jgs.options import Known, add_flag

if TYPE_CHECKING:
    from jgs.dist.communicators.comm import Communicator

__all__ = ["LOST", "Watch", "Watchdog", "watching"]

START = 30.0  # seconds in which the processes must have found each other
LOSS = 1.0  # seconds after which a lost rank is known, on a busy machine too
_MAX_ADDRESSES = 8
_BOOT = """import sys
sys.path.insert(0, sys.argv[1])
from jgs.dist.supervision.guard import main
main(sys.argv[2:])"""


class Watch:
    """This process's guard (see `jgs.dist.supervision.guard`), and what it is told of this
    process.

    Use it as a context, around all that the ranks do together. An error that leaves it is told
    to the other ranks, which end too. Without an error they no longer miss this rank.

    All ranks must have started, met and connected within `timeout` seconds.

    Attributes:
      certain: see `Meeting`.
      port: where the guard of process 0 listens for guards that do not find it at the meeting's
        places; 0 in other processes.
      step: the step that this rank is in.
      limit, silence: functions that return the seconds that this rank's phase may last, and
        those for which it may be silent.
      checkpoint: a function that names the last checkpoint.
    """

    def __init__(self, where: Meeting, timeout: float = START_TIMEOUT):
        listeners = _listen(where) if where.number == 0 else []
        self.port = listeners[-1].getsockname()[1] if listeners else 0
        self.number, self.certain, self.timeout = where.number, where.certain, timeout
        self.step: int | None = None
        self.limit: Callable[[], float] = lambda: timeout
        self.silence: Callable[[], float] = lambda: timeout
        self.checkpoint: Callable[[], str] = str
        self.open = True
        self._met, self._unmet = threading.Event(), ""
        self._lock = threading.RLock()  # a signal's handler may interrupt its holder
        ours, theirs = socket.socketpair()
        self._line = Line(ours)
        setup = where._asdict() | {
            "pid": os.getpid(),
            "start_timeout": timeout,
            "begun": time.monotonic(),
            "by_signal": launched() is not None,
        }
        given = [theirs, *listeners]
        fds = [s.fileno() for s in given]
        root = str(Path(interrupts.__file__).parents[1])
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, root, json.dumps(setup), *map(str, fds)],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for each in given:
            each.close()
        phases.tell(self._report_phase)
        interrupts.tell(lambda number: self.stopped(f"rank {self.number}", number))
        self.at("starting")
        self._thread = threading.Thread(target=self._talk, name="watch", daemon=True)
        self._thread.start()

    def at(self, phase: str | None) -> None:
        """From now on the main thread is in `phase`. The guard is told at once, because
        Python's lock may be held from now on."""
        phases.enter(phase)
        self.report()

    def wait_met(self, timeout: float | None = None) -> None:
        """Returns once all guards have met. Raises `InputError` where they have not after
        `timeout` seconds; None: when the time of the start is over."""
        self._say(wait=timeout)
        self._met.wait()
        if self._unmet:
            self.open = False
            raise InputError(
                "every rank must reach rank 0 by TCP",
                self._unmet,
                "Start all ranks, each with its own number, the same number of ranks and rank "
                "0's address; let firewalls pass connections between them.",
            )

    def join(self, name: str, places: Sequence[Any], ranks: list[list[int]]) -> None:
        """Tells the guard where that of process 0 is, if it was not found, and which ranks each
        process has."""
        self._say(join=name, places=places, names=ranks)

    def failed(self, text: str, status: int = LOST) -> None:
        """Tells all others that this rank ends, and why. They end too, with `status`."""
        if self.open:
            self.open = False
            self._say(failed=text, status=status)

    def failed_by(self, error: BaseException, who: str) -> None:
        """As `failed`, where an error ends `who`, the ranks of this process."""
        if not self.open:
            return
        if isinstance(error, KeyboardInterrupt):
            return self.stopped(who, interrupts.number_of(error))
        if of_peers(error):
            time.sleep(10 * LOSS)  # the guard ends this process, and names the lost rank
        text = " ".join(f"failed: {type(error).__name__}: {error}".split())[:500]
        self.failed(f"{who} {text}")

    def stopped(self, who: str, number: int) -> None:
        """As `failed`, where a signal ends `who`. The status of SIGTERM is passed on."""
        word = interrupts.WORDS[signal.Signals(number)]
        passed_on = number == signal.SIGTERM
        status = interrupts.status_of(number) if passed_on else LOST
        self.failed(f"{who} was {word}", status)

    def close(self) -> None:
        """Ends this rank's part in an orderly way: from now on nobody misses it."""
        if self.open:
            self.open = False
            self._say(bye=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        done = isinstance(error, SystemExit) and not error.code  # --help
        if error is None or done or getattr(error, "told", False):
            self.close()
        else:
            self.failed_by(error, f"rank {self.number}")

    def _talk(self) -> None:
        while self.open:
            messages, lives = self._line.read()
            for message in messages:
                if "end" in message and self.open:
                    os._exit(message["end"])
                self._unmet = message.get("unmet", "")
                self._met.set()
            if not lives:
                if self.open and not self._unmet:
                    os.write(2, f"rank {self.number} ends: its guard is gone\n".encode())
                    os._exit(LOST)
                return
            if not messages:  # for as long as `BEAT`
                self.report()

    def report(self) -> None:
        """Tells the guard the last checkpoint and the phase. Every `BEAT` does so too."""
        try:
            checkpoint = self.checkpoint()
        except Exception as error:  # the run goes on after any error of it
            checkpoint = f"unknown ({error})"
        self._say(seen={"checkpoint": checkpoint})
        self._report_phase()

    def _report_phase(self) -> None:
        """Reports at once, because a rank that is killed says nothing more."""
        if self.open:
            # The limits come first: a shorter limit must not meet a count from before it.
            limits = {"limit": self.limit(), "silence": self.silence()}
            phase, far = phases.seen()
            self._say(seen={"phase": phase, "far": far, "step": self.step, **limits})

    def _say(self, **message: Any) -> None:
        with self._lock:
            self._line.say(**message)


def of_peers(error: BaseException) -> bool:
    """Whether an error may come of a collective with a rank that is gone."""
    words = ("gloo", "connection", "mpi_", "socket")
    return not isinstance(error, InputError) and any(w in str(error).lower() for w in words)


def _listen(where: Meeting) -> list[socket.socket]:
    """The sockets at which the other guards find that of process 0. The last one is at a port
    that was free."""
    # Where a place is taken, there is another one, or MPI brings the guards together.
    taken = () if where.certain else (OSError, InputError)
    found = []
    for place in where.places:
        with suppress(*taken):
            if isinstance(place, str):
                unix = socket.socket(socket.AF_UNIX)
                unix.bind(place)
                unix.listen(512)
                found.append(unix)
            else:
                found.append(start.listen(place[1]))
    return [*found, start.listen()]


@contextmanager
def watching(argv: Sequence[str], known: Mapping[str, Known]) -> Iterator[Watch | None]:
    """A block with the watch of a command that has the arguments `argv`, which need not parse,
    and these flags among others. It is None where there is one process, or no place to meet."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in CONNECTING:
        add_flag(parser, name, known[name])
    try:
        said = arguments(vars(parser.parse_known_args(argv)[0]))
        timeout = said.pop("timeout", START_TIMEOUT)
        said.pop("interface", None)
        where = meeting(**said)
    except (argparse.ArgumentError, InputError):
        where = None  # whoever parses the arguments says what is wrong
    if where is None:
        yield None
        return
    with Watch(where, timeout) as watch:
        yield watch


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
            status = interrupts.status_of(interrupts.number_of(error))
        elif not isinstance(error, InputError) and not of_peers(error):
            time.sleep(LOSS)
        atexit.register(_exit_now, status)  # what is registered last is called first
        self._watch.failed_by(error, start.names(self._ranks))

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
        import numpy as np  # slow imports, for which a command's watch does not wait

        from jgs.dist.communicators.comm import all_gather_rows

        own = [np.array([comm.rank])] * comm.num_local
        firsts = sorted(set(all_gather_rows(comm, own)[:, 0].tolist()))
        if watch is None:
            number = firsts.index(comm.rank)
            watch = Watch(Meeting(number, len(firsts), "", (), True), max(START, self.timeout))
        here = dict.fromkeys([*start.interfaces().values(), "127.0.0.1"])
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
