"""How ranks are started, by mpiexec or, for JAX's own runtime, one by one; and their processes
until all have ended."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jgs.command import say
from jgs.errors import InputError
from jgs.launch.hosts import Host, RemoteShell, end_with_this, size
from jgs.launch.rank import GRACE

# mpiexec passes the environment on, ssh does not. Variables with these prefixes set up a run.
_PREFIXES = ("JAX_", "JGS_", "NCCL_", "XLA_", "PYTHON")
LAST_WORDS = 10.0
"""Seconds that the other processes have to report and to end after one has ended badly."""

_LOOK = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The status of a rank that was told to stop: others may still be writing a checkpoint.
_STOPPED = (130, 143)
_EXPLAINED = (2, 3, *_STOPPED)  # a rank has written a line about bad input or a lost rank


def has_mpi() -> bool:
    """Whether ranks can use MPI here."""
    return importlib.util.find_spec("mpi4jax") is not None and mpiexec() is not None


def find_mpiexec() -> str:
    """The path of Hydra, the mpiexec of MPICH and of MPIs derived from it. Raises `InputError`
    where there is no mpiexec, or another one."""
    if (path := mpiexec()) is None:
        raise InputError(
            "--comm mpi needs mpiexec",
            "none beside this Python, none on the PATH",
            "Run `pip install mpich mpi4py`, then `pip install mpi4jax`, or use --comm jax.",
        )
    said = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    if "HYDRA" not in said:
        raise InputError(
            "mpiexec must be Hydra, that of MPICH and its kin",
            f"{path}, {(said.strip().splitlines() or ['which says nothing'])[0]}",
            "Start the ranks by that mpiexec itself (see docs/ranks.md), or use --comm jax.",
        )
    return path


def mpiexec() -> str | None:
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")


@dataclass(frozen=True)
class Plan:
    """Which ranks run on which hosts, with which flags.

    Fields:
      remote: how hosts are reached.
      hosts, answers: the hosts, and what `jgs.launch.probe` said on each.
      training: the flags of `python -m jgs.train`.
      env: environment variables for all ranks, each `NAME=VALUE`.
    """

    remote: RemoteShell
    hosts: tuple[Host, ...]
    answers: tuple[dict[str, Any], ...]
    training: tuple[str, ...]
    env: tuple[str, ...]

    def by_jax(self, coordinator: str | None, interface: str | None) -> int:
        """Starts each rank, by ssh if its host is not this one; returns the run's status.

        The coordinator is rank 0 unless `coordinator` names another, at a port that was free
        on rank 0's host.
        """
        coordinator = coordinator or self._meeting()
        meet = ["--comm", "jax", "--coordinator", coordinator]
        meet += ["--num-processes", str(size(self.hosts))]
        meet += ["--interface", interface] if interface else []
        kept = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(_PREFIXES)]
        commands = {}
        for host in self.hosts:
            for rank in range(host.first, host.first + host.ranks):
                command = ["env", *kept, *self.env, sys.executable, "-m", "jgs.launch.rank"]
                command += ["--control", str(rank), "jgs.train", *meet]
                command += ["--process-id", str(rank), *self.training]
                if not self.remote.is_here(host):
                    there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
                    command = [*self.remote.ssh, host.name, there]
                commands[f"rank {rank} on {host.name}"] = command
        return run(commands)

    def by_mpi(self, mpiexec: str, interface: str | None) -> int:
        """Starts all ranks by Hydra's mpiexec, which uses ssh; returns the run's status."""
        hosts = ",".join(f"{host.name}:{host.ranks}" for host in self.hosts)
        command = [mpiexec, "-launcher", "ssh", "-hosts", hosts, "-n", str(size(self.hosts))]
        if interface:
            command += ["-iface", interface]
        elif here := self._this_host():
            command += ["-localhost", here]
        for text in (f"JGS_MEETING={self._meeting()}", *self.env):
            name, _, value = text.partition("=")
            command += ["-genv", name, value]
        if interface:
            for name in ("UCX_NET_DEVICES", "FI_TCP_IFACE"):  # MPICH's two ways to TCP
                if name not in os.environ:
                    command += ["-genv", name, interface]
        # Hydra takes no ssh command with options, so a script holds them.
        with tempfile.TemporaryDirectory(prefix="jgs-launch-") as folder:
            ssh = Path(folder, "ssh")
            ssh.write_text(f'#!/bin/sh\nexec {shlex.join(self.remote.ssh)} "$@"\n')
            ssh.chmod(0o700)
            command += ["-launcher-exec", str(ssh), sys.executable, "-m", "jgs.launch.rank"]
            command += ["-", "jgs.train", "--comm", "mpi", *self.training]
            return run({"mpiexec": command}, control=False)

    def _meeting(self) -> str:
        """The address of rank 0's host, as other hosts know it, and a port that was free there.
        It is the address that ssh found, so a name of ~/.ssh/config works, and so does a host
        that resolves its own name to 127.0.1.1."""
        first, connection = self.hosts[0], self.answers[0]["connection"]
        address = (
            self._this_host() if self.remote.is_here(first) else connection and connection[1]
        )
        address = address or first.name
        if ":" in address:
            address = f"[{address}]"
        return f"{address}:{self.answers[0]['port']}"

    def _this_host(self) -> str | None:
        """This host's address, as the ssh servers of other hosts see it; None where no other
        host has said it."""
        seen = (answer["connection"] for answer in self.answers)
        others = zip(self.hosts, seen, strict=True)
        return next((c[0] for h, c in others if c and not self.remote.is_here(h)), None)


class _Running:
    """A process. With `control` it obeys lines on its standard input, as `jgs.launch.rank`
    does. Without, it gets signals, as mpiexec does, which passes them on."""

    def __init__(self, name: str, command: list[str], control: bool):
        self.name, self._control = name, control
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if control else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a terminal's Ctrl-C reaches the launcher alone
            # A process with control ends by itself when the launcher's end closes its input.
            preexec_fn=None if control else end_with_this,
        )
        self._readers = []
        for stream in ((self.process.stdout, sys.stdout), (self.process.stderr, sys.stderr)):
            self._readers.append(threading.Thread(target=_pass_on, args=stream, daemon=True))
            self._readers[-1].start()

    def signal(self, number: int) -> None:
        number = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        if not self._control:
            self.process.send_signal(number)
        elif self.process.stdin is not None:
            with suppress(OSError):  # the process may have ended
                self.process.stdin.write(b"INT\n" if number == signal.SIGINT else b"TERM\n")
                self.process.stdin.flush()

    def end(self) -> None:
        """Ends the process at once, or `GRACE` seconds later if it ignores SIGTERM."""
        if self._control and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()
        else:
            self.process.kill()  # mpiexec's proxies end their ranks

    def status(self) -> int | None:
        """The exit status; None while the process runs. After an end by a signal it is 128 plus
        the signal's number, as shells have it."""
        if (status := self.process.poll()) is None:
            return None
        for reader in self._readers:
            reader.join(GRACE)
        return status if status >= 0 else 128 - status


def run(commands: Mapping[str, list[str]], control: bool = True) -> int:
    """Starts the `commands`, by the names that messages give them, and waits until all have
    ended. Returns the status of the first that ended badly, or 0. `control` as in `_Running`.

    What the processes write is passed on line by line. When one ends badly, the others have
    `LAST_WORDS` seconds to end. SIGINT (Ctrl-C) and SIGTERM are passed on to all, SIGHUP as
    SIGTERM. A second signal ends all of them at once.
    """
    heard: list[int] = []
    before = {n: signal.signal(n, lambda number, _: heard.append(number)) for n in _SIGNALS}
    running: list[_Running] = []
    try:
        for name, command in commands.items():
            running.append(_Running(name, command, control))
        return _until_all_end(running, heard)
    finally:
        for one in running:
            one.end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _until_all_end(running: list[_Running], heard: list[int]) -> int:
    result, passed_on, end_at = 0, False, float("inf")
    left = list(running)
    while left:
        time.sleep(_LOOK)
        for one in list(left):
            if (status := one.status()) is None:
                continue
            left.remove(one)
            if status and not result and status not in _EXPLAINED and not heard:
                others = "; the others end too" if left else ""
                say(f"{one.name} ended with status {status}{others}")
            if status and status not in _STOPPED:
                end_at = min(end_at, time.monotonic() + LAST_WORDS)
            result = result or status
        if heard and not passed_on:
            passed_on = True
            for one in left:
                one.signal(heard[0])
        if len(heard) > 1:
            end_at = min(end_at, time.monotonic())
        if time.monotonic() > end_at:
            for one in left:
                one.end()
            if time.monotonic() > end_at + 2 * GRACE:  # ssh hangs, or the other host is silent
                for one in left:
                    one.process.kill()
    return result


_WRITING = threading.Lock()


def _pass_on(read: IO[bytes], to: Any) -> None:
    for line in read:
        with _WRITING, suppress(OSError, ValueError, AttributeError):
            to.write(line.decode(errors="replace"))
            to.flush()
