"""`Watch`: this process's guard, from the first moment on, and where guards meet before ranks
do.

A command makes one before its slow imports. A rank that is stopped or killed during them, or
that never comes or comes late, is then named by all others. The guards meet:

- by hand: at the coordinator's address;
- under Slurm: at the address that JAX derives from Slurm's variables;
- under MPI, with all ranks on one host: at a Unix socket named after the launcher;
- under MPI, where the environment variable JGS_MEETING is set: at that `host:port`, of rank 0's
  host;
- under Hydra (MPICH, Intel MPI), on several hosts: at mpiexec's host, if rank 0 is there, at a
  port derived from mpiexec's.

Where rank 0 is not on mpiexec's host, or with another launcher, guards do not find each other
before MPI connects the ranks. A rank then still ends in time, but cannot say which is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from jgs import interrupts
from jgs.dist.communicators import rendezvous
from jgs.dist.communicators.rendezvous import Line
from jgs.dist.supervision import phases
from jgs.dist.supervision.guard import LOST
from jgs.errors import InputError

START_TIMEOUT = 120.0
LOSS = 1.0  # seconds after which a lost rank is known, on a busy machine too

# The environment variables by which launchers of MPI programs tell the number of processes, the
# number of this one, and how many are on this host: MPICH and Intel MPI, Open MPI, MVAPICH.
_LAUNCHERS = (
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
_BOOT = """import sys
sys.path.insert(0, sys.argv[1])
from jgs.dist.supervision.guard import main
main(sys.argv[2:])"""
_meetings = count()  # a process may run several times; each run has a meeting of its own


class Meeting(NamedTuple):
    """Where the guards of a run meet.

    Fields:
      number: the number of this process.
      size: the number of processes.
      name: a word that the guards have in common.
      places: where the guard of process 0 may be: a Unix socket's name, or host and port.
      certain: whether that guard is at one of the places, if it has started.
    """

    number: int
    size: int
    name: str
    places: tuple[Any, ...]
    certain: bool


def launched() -> tuple[int, int] | None:
    """The number of processes, and the number of this one, where an MPI launcher started
    several."""
    for size, rank, _ in _LAUNCHERS:
        if (num_ranks := number(size, 1)) > 1:
            return num_ranks, number(rank)
    return None


def number(variable: str, default: int | None = None) -> int:
    """The number that a launcher has set an environment variable to. Raises `InputError`."""
    text = os.environ.get(variable, str(default))
    if not (text.isascii() and text.isdigit()):
        raise InputError(
            f"the environment variable {variable} must be a number, as launchers set it",
            repr(os.environ[variable]) if variable in os.environ else "none",
            "Unset it, and those beside it, or start the processes by their launcher.",
        )
    return int(text)


def in_slurm_step() -> bool:
    """Whether srun started several processes, this one among them."""
    return number("SLURM_NTASKS", 1) > 1 and "SLURM_STEP_NODELIST" in os.environ


def host_and_port(coordinator: str) -> tuple[str, int]:
    """The two halves of `host:port`. Raises `InputError`."""
    host, _, port = coordinator.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InputError(
            "coordinator must be host:port, with a port from 1 to 65535",
            repr(coordinator),
            "Give both.",
        )
    return host.strip("[]"), int(port)


def meeting(
    kind: str = "auto",
    coordinator: str | None = None,
    num_ranks: int | None = None,
    rank: int | None = None,
) -> Meeting | None:
    """Where the guards meet; None where there is one process, or no such place is known. The
    arguments are those of `jgs.dist.connect`. Raises `InputError`."""
    found = launched()
    if kind == "none":
        return None
    if coordinator and found and (num_ranks, rank) == (None, None):
        num_ranks, rank = found
    if (coordinator, num_ranks, rank) != (None, None, None):
        if not coordinator or num_ranks is None or rank is None:
            return None
        several = num_ranks > 1 and 0 <= rank < num_ranks
        return _at(coordinator, num_ranks, rank) if several else None
    if found and (named := os.environ.get("JGS_MEETING")):
        return _at(named, *found)
    if found:
        return _under_mpi(*found)
    if kind != "mpi" and in_slurm_step() and "SLURM_PROCID" in os.environ:
        return _at(_slurm_coordinator(), number("SLURM_NTASKS"), number("SLURM_PROCID"))
    return None


def _at(place: str, num_ranks: int, rank: int) -> Meeting:
    places = (host_and_port(place),)
    return Meeting(rank, num_ranks, f"a run of {num_ranks} ranks", places, True)


def _slurm_coordinator() -> str:
    """The address that JAX takes: the step's first host, and a port by the job's number."""
    first = os.environ["SLURM_STEP_NODELIST"].split(",")[0]
    prefix, _, rest = first.partition("[")
    port = os.environ.get("JAX_COORDINATOR_PORT")
    port = port or str(number("SLURM_JOB_ID", 0) % 2**12 + 65535 - 2**12 + 1)
    return f"{prefix}{rest.rstrip(']').split('-')[0]}:{port}"


def _under_mpi(num_ranks: int, rank: int) -> Meeting | None:
    control = _control_port()
    name = f"{control or os.environ.get('PMIX_NAMESPACE', os.getppid())} {next(_meetings)}"
    local = next((n for s, _, n in _LAUNCHERS if number(s, 1) > 1), "")
    if sys.platform == "linux" and os.environ.get(local) == str(num_ranks):
        return Meeting(rank, num_ranks, name, (f"\0jgs {os.getuid()} {name}",), False)
    if control is None:
        return None
    # These ports are below those that systems give out by themselves.
    port = 20000 + zlib.crc32(name.encode()) % 10000
    places = ((control.rpartition(":")[0], port), (control.rpartition(":")[0], port + 1))
    return Meeting(rank, num_ranks, name, places, False)


def _control_port() -> str | None:
    """The `host:port` at which mpiexec listens to Hydra's proxies, as told to the proxy that
    this process descends from."""
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if "--control-port" in words:
                return words[words.index("--control-port") + 1]
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


class Watch:
    """This process's guard (see `jgs.dist.supervision.guard`), and what it is told of this
    process.

    Use it as a context, around all that the ranks do together. An error that leaves it is told
    to the other ranks, which end too. Without an error they no longer miss this rank.

    Args:
      where: where the guards meet.
      timeout: the seconds in which all ranks must have started, met and connected.

    Attributes:
      certain: see `Meeting`.
      timeout: as given.
      port: where the guard of process 0 listens for guards that do not find it at the meeting's
        places; 0 in other processes.
      step: the step that this rank is in.
      limit: a function of no arguments that returns the seconds that this rank's phase may
        last.
      silence: one that returns the seconds for which this rank may be silent.
      checkpoint: a function of no arguments that names the last checkpoint.
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
        given = [theirs, *listeners]
        setup = {
            "pid": os.getpid(),
            "number": where.number,
            "count": where.size,
            "meeting": where.name,
            "places": where.places,
            "certain": where.certain,
            "start_timeout": timeout,
            "begun": time.monotonic(),
            "by_signal": launched() is not None,
        }
        fds = [str(s.fileno()) for s in given]
        root = str(Path(interrupts.__file__).parents[1])
        arguments = [root, fds[0], json.dumps(setup), *fds[1:]]
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, *arguments],
            pass_fds=[s.fileno() for s in given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for each in given:
            each.close()
        phases.tell(self._report_phase)
        interrupts.tell(self._ends)
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
        `timeout` seconds, by default when the time of the start is over."""
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

    def join(self, name: str, places: Sequence[Any], ranks: Sequence[Sequence[int]]) -> None:
        """Tells the guard where that of process 0 is, if it was not found, and which ranks each
        process has."""
        self._say(join=name, places=list(places))
        self._say(names=[list(each) for each in ranks])

    def failed(self, text: str, status: int = LOST) -> None:
        """Tells all others that this rank ends, and why. They end too, with `status`."""
        if self.open:
            self.open = False
            self._say(failed=text, status=status)

    def failed_by(self, error: BaseException, who: str) -> None:
        """As `failed`, where an error ends `who`, the ranks of this process."""
        if not self.open:
            return
        text, number = " ".join(f"failed: {type(error).__name__}: {error}".split())[:500], 0
        if isinstance(error, KeyboardInterrupt):
            number = interrupts.number_of(error)
            text = f"was {interrupts.WORDS[signal.Signals(number)]}"
        elif of_peers(error):
            time.sleep(10 * LOSS)  # the guard ends this process, and names the lost rank
        self.failed(f"{who} {text}", _told_status(number))

    def _ends(self, number: int) -> None:
        word = interrupts.WORDS[signal.Signals(number)]
        self.failed(f"rank {self.number} was {word}", _told_status(number))

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


def _told_status(number: int) -> int:
    """The exit status of the others where a signal (0: none) has ended one. That of SIGTERM is
    passed on."""
    return interrupts.status_of(number) if number == signal.SIGTERM else LOST


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
                found.append(rendezvous.listen(place[1]))
    return [*found, rendezvous.listen()]


@contextmanager
def watching(argv: Sequence[str]) -> Iterator[Watch | None]:
    """A block with the watch of a command that has the arguments `argv`, which need not parse.
    It is None where there is one process, or no place to meet."""

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--comm", default="auto")
    parser.add_argument("--coordinator")
    parser.add_argument("--num-processes", type=int)
    parser.add_argument("--process-id", type=int)
    parser.add_argument("--start-timeout", type=float, default=START_TIMEOUT)
    try:
        said, _ = parser.parse_known_args(argv)
        where = meeting(said.comm, said.coordinator, said.num_processes, said.process_id)
    except (argparse.ArgumentError, InputError):
        where = None  # whoever parses the arguments says what is wrong
    if where is None:
        yield None
        return
    with Watch(where, said.start_timeout) as watch:
        yield watch
