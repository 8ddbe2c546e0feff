"""How a process learns that it is a rank, and where the guards of all ranks meet. How guards
reach each other, by addresses and lines of JSON; and how ranks are called.

A command makes its guard before its slow imports. A rank that is stopped or killed during them,
or that never comes or comes late, is then named by all others. The guards meet:

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

import atexit
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from jgs.errors import InputError, refusing
from jgs.interrupts import WORDS

START_TIMEOUT = 120.0
# The flags that say how ranks meet, and the argument of `jgs.dist.connect` that each is.
CONNECTING = {
    "comm": "kind",
    "coordinator": "coordinator",
    "num_processes": "num_ranks",
    "process_id": "rank",
    "interface": "interface",
    "start_timeout": "timeout",
}

# The environment variables by which launchers of MPI programs tell the number of processes, the
# number of this one, and how many are on this host: MPICH and Intel MPI, Open MPI, MVAPICH.
_LAUNCHERS = (
    ("PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
)
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


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `jgs.dist.connect` that are among the flags `given`."""
    return {argument: given[name] for name, argument in CONNECTING.items() if name in given}


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


def cluster() -> bool:
    """Whether several processes were started in a way that `jax.distributed.initialize`
    recognises by itself."""
    kubernetes = {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= os.environ.keys()
    return in_slurm_step() or kubernetes or "JAX_COORDINATOR_ADDRESS" in os.environ


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
        # The address that JAX takes: the step's first host, and a port by the job's number.
        first = os.environ["SLURM_STEP_NODELIST"].split(",")[0]
        prefix, _, rest = first.partition("[")
        port = os.environ.get("JAX_COORDINATOR_PORT")
        port = port or str(number("SLURM_JOB_ID", 0) % 2**12 + 65535 - 2**12 + 1)
        place = f"{prefix}{rest.rstrip(']').split('-')[0]}:{port}"
        return _at(place, number("SLURM_NTASKS"), number("SLURM_PROCID"))
    return None


def _at(place: str, num_ranks: int, rank: int) -> Meeting:
    places = (host_and_port(place),)
    return Meeting(rank, num_ranks, f"a run of {num_ranks} ranks", places, True)


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


@contextmanager
def unmet() -> Iterator[None]:
    """A block for all that a command does before the ranks have met: `connect`, and what comes
    before it.

    Where an MPI launcher started several processes, the others would wait for a process that
    ends here. Hydra, MPICH's mpiexec, ends them when a signal kills a rank, but not when a rank
    exits before MPI_Init. So Ctrl-C and SIGTERM have their default action here. An error that
    leaves the block ends the process by SIGKILL at its exit, when the error has been printed.
    An error that all ranks have been told (see `jgs.dist.communicators.collect.everywhere`)
    leaves the exit as it is.
    """
    if not launched():
        yield
        return
    in_main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, signal.SIG_DFL) for n in WORDS if in_main}
    try:
        yield
    except Exception as error:
        if not getattr(error, "told", False):
            atexit.register(_end_by_signal)  # what is registered last is called first
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_by_signal() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(0.5)  # the others of this host may have errors of their own to print
    os.kill(os.getpid(), signal.SIGKILL)


BEAT = 0.25  # seconds between two reports


def listen(port: int = 0) -> socket.socket:
    """A socket that listens at all addresses of this machine. Port 0 stands for a free one."""
    rule = f"rank 0 must be able to listen on port {port}"
    with refusing(OSError, rule, "Choose a free port."):
        return socket.create_server(("", port), backlog=512)


def interfaces() -> dict[str, str]:
    """The IPv4 addresses of this machine's network interfaces by name, loopback last."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe, 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue  # an interface without an IPv4 address
            found[name] = socket.inet_ntoa(reply[20:24])
    return dict(sorted(found.items(), key=lambda item: item[1].startswith("127.")))


def names(ranks: Iterable[int]) -> str:
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


class Line:
    """A socket that carries JSON objects, one a line.

    Fields:
      heard: when something last came.
      said: what the rank at the other end has last said of itself.
      spoke: when it said that.
      behind: the seconds by which its clock is behind the clock here, or a little more.
    """

    def __init__(self, connection: socket.socket):
        self.connection, self._unread = connection, b""
        connection.settimeout(BEAT)  # for writing: a stopped process reads nothing
        self.heard = self.spoke = time.monotonic()
        self.said: dict[str, Any] = {}
        self.behind = float("inf")

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The objects that have come, and whether the other end is still there."""
        try:
            received = self.connection.recv(65536)
        except TimeoutError:
            return [], True
        except OSError:
            received = b""
        *lines, self._unread = (self._unread + received).split(b"\n")
        self.heard = time.monotonic()
        try:
            return [dict(json.loads(line)) for line in lines], bool(received)
        except (ValueError, TypeError):
            return [], False  # the other end is no guard

    def say(self, **message: Any) -> None:
        with suppress(OSError):  # the other end is gone or stopped: its silence tells that
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def part(self) -> None:
        """Waits until what was said has been read, for a second at most. A connection that is
        closed while it has unread data drops what it has not delivered."""
        end = time.monotonic() + 1
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(1)
            while self.connection.recv(65536) and time.monotonic() < end:
                pass
        self.connection.close()
