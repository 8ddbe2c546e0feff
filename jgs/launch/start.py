"""How ranks are started: by mpiexec or, for JAX's own runtime, one by one."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jgs.errors import InputError
from jgs.launch.hosts import Host, RemoteShell, size
from jgs.launch.running import Start, run

# mpiexec passes the environment on, ssh does not. Variables with these prefixes set up a run.
_PREFIXES = ("JAX_", "JGS_", "NCCL_", "XLA_", "PYTHON")


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
        starts = []
        for host in self.hosts:
            for rank in range(host.first, host.first + host.ranks):
                command = ["env", *kept, *self.env, sys.executable, "-m", "jgs.launch.rank"]
                command += ["--control", str(rank), "jgs.train", *meet]
                command += ["--process-id", str(rank), *self.training]
                if not self.remote.is_here(host):
                    there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command)}"
                    command = [*self.remote.ssh, host.name, there]
                starts.append(Start(f"rank {rank} on {host.name}", command))
        return run(starts)

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
            return run([Start("mpiexec", command, control=False)])

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
