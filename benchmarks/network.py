"""Two hosts on this machine: network namespaces joined by a virtual Ethernet cable.

Each host has a process namespace and a `/dev/shm` of its own too: DistDGL tells machines apart
by address, and shares memory by the graph's name. The namespaces belong to an owner process,
which lives as long as this process keeps a pipe open. Whatever ends this process thus ends the
hosts, all that runs on them, and the cable.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

_INTERFACE = "eth0"  # on both hosts: MPICH's netmod takes one name for all
_ADDRESSES = ("10.131.7.1", "10.131.7.2")
_HOST = "mount -t tmpfs tmpfs /dev/shm && ip link set lo up && echo ready && exec cat"
_SECONDS = 10


class NotPermitted(Exception):
    """This system does not let us make namespaces; the message says why."""


class Host(NamedTuple):
    """Fields: the host's address; the start of a command that runs on the host; the start of a
    command that runs in its network, but sees this machine's processes and files."""

    address: str
    enter: list[str]
    network: list[str]


@contextmanager
def two_hosts() -> Iterator[list[Host]]:
    """Two hosts and their cable, for the time of the block; raises `NotPermitted`."""
    with ExitStack() as stack:
        pids = [_start(stack) for _ in _ADDRESSES]
        ends = [["netns", str(pid)] for pid in pids]
        _ip(
            "link",
            "add",
            _INTERFACE,
            *ends[0],
            "type",
            "veth",
            "peer",
            "name",
            _INTERFACE,
            *ends[1],
        )
        hosts = [_host(pid, address) for pid, address in zip(pids, _ADDRESSES, strict=True)]
        for host in hosts:
            _ip("addr", "add", f"{host.address}/24", "dev", _INTERFACE, on=host)
            _ip("link", "set", _INTERFACE, "up", on=host)
        yield hosts


def _start(stack: ExitStack) -> int:
    """Starts the owner of a new host's namespaces; returns its process id."""
    command = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc"]
    try:
        owner = subprocess.Popen(
            [*command, "sh", "-c", _HOST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to handle
        )
    except OSError as error:
        raise NotPermitted(f"unshare: {error}") from None
    stack.callback(_end, owner)
    assert owner.stdout
    assert owner.stderr
    if owner.stdout.readline() != "ready\n":
        raise NotPermitted(owner.stderr.read().strip() or "unshare failed")
    return owner.pid


def _end(owner: subprocess.Popen) -> None:
    """Closes the pipe. The host's first process then ends, and all its others with that one."""
    assert owner.stdin
    owner.stdin.close()
    try:
        owner.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        owner.kill()


def _host(pid: int, address: str) -> Host:
    network = ["nsenter", "-t", str(pid), "-n"]
    processes = f"--pid=/proc/{pid}/ns/pid_for_children"
    return Host(address, [*network, "-m", processes, "--wd=."], network)


def _ip(*arguments: str, on: Host | None = None) -> None:
    command = [*(on.network if on else []), "ip", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except OSError as error:
        raise NotPermitted(f"ip: {error}") from None
    if done.returncode != 0:
        raise NotPermitted(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def launcher(folder: Path, hosts: list[Host]) -> Path:
    """A script for `mpiexec -launcher ssh -launcher-exec`.

    It skips ssh's options, takes the host's address, and runs the rest on that host.
    """
    cases = [f'{host.address}) exec {" ".join(host.enter)} sh -c "$*" ;;' for host in hosts]
    lines = [
        "#!/bin/sh",
        'while [ "${1#-}" != "$1" ]; do shift; done',
        "host=$1",
        "shift",
        'case "$host" in',
        *cases,
        "esac",
    ]
    script = folder / "launcher.sh"
    script.write_text("\n".join(lines) + "\n")
    os.chmod(script, 0o755)
    return script


# With these variables MPICH uses the cable, although all ranks are on one machine.
MPICH = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": _INTERFACE,
}


def mpiexec(program: Path | str, hosts: list[Host], folder: Path) -> list[str]:
    """The start of a command that runs a rank on each host."""
    options = ["-iface", _INTERFACE, "-launcher", "ssh"]
    options += ["-launcher-exec", str(launcher(folder, hosts))]
    options += ["-hosts", ",".join(host.address for host in hosts)]
    return [*hosts[0].network, str(program), *options, "-n", str(len(hosts)), "-ppn", "1"]
