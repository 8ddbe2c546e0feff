"""Two hosts on this machine: network namespaces joined by a virtual Ethernet cable.

The namespaces belong to processes that live as long as this one keeps their pipes: whatever
ends it ends the hosts, all that runs on them, and the cable.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

INTERFACE = "eth0"  # on both: MPICH's netmod is told one name for all
ADDRESSES = ("10.131.8.1", "10.131.8.2")
# What MPICH needs to take the cable although all ranks are on one machine.
MPICH = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": INTERFACE,
}


class NotPermitted(Exception):
    """This system lets us have no namespaces; the message says why."""


@contextmanager
def two_hosts(folder: Path, mpiexec: Path, rate: str = "100mbit") -> Iterator[list[str]]:
    """The start of a command that runs a rank on each of two hosts, in the environment
    `MPICH`; `folder` gets a script. The cable takes `rate`, or where `tc` is missing or cannot
    limit it, what the machine can. Raises `NotPermitted`."""
    with ExitStack() as stack:
        pids = [_start(stack) for _ in ADDRESSES]
        ends = [["netns", str(pid)] for pid in pids]
        _run(f"ip link add {INTERFACE}", *ends[0], "type", "veth", "peer", INTERFACE, *ends[1])
        for pid, address in zip(pids, ADDRESSES, strict=True):
            there = f"nsenter -t {pid} -n"
            _run(f"{there} ip addr add {address}/24 dev {INTERFACE}")
            _run(f"{there} ip link set {INTERFACE} up")
            limit = f"rate {rate} burst 64kb latency 400ms"
            with suppress(NotPermitted):
                _run(f"{there} tc qdisc add dev {INTERFACE} root tbf {limit}")
        command = ["nsenter", "-t", str(pids[0]), "-n", str(mpiexec), "-iface", INTERFACE]
        command += ["-launcher", "ssh", "-launcher-exec", str(_launcher(folder, pids))]
        yield [*command, "-hosts", ",".join(ADDRESSES), "-n", "2", "-ppn", "1"]


def _start(stack: ExitStack) -> int:
    """The process that a new host's namespaces belong to."""
    command = ["unshare", "-n", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c"]
    pipe = subprocess.PIPE
    try:
        owner = subprocess.Popen(
            [*command, "ip link set lo up && echo ready && exec cat"],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotPermitted(f"unshare: {error}") from None
    stack.callback(owner.communicate)  # closes its pipe, and waits for its end
    if owner.stdout.readline() != "ready\n":
        raise NotPermitted(owner.stderr.read().strip() or "unshare failed")
    return owner.pid


def _run(*command: str) -> None:
    words = [*command[0].split(), *command[1:]]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except OSError as error:
        raise NotPermitted(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        raise NotPermitted(f"{' '.join(words)}: {done.stderr.strip()}")


def _launcher(folder: Path, pids: list[int]) -> Path:
    """A script in ssh's place: it skips the options, takes the host, runs the rest there."""
    cases = [
        f"{address}) exec nsenter -t {pid} -n -m --pid=/proc/{pid}/ns/pid_for_children "
        '--wd=. sh -c "$*" ;;'
        for address, pid in zip(ADDRESSES, pids, strict=True)
    ]
    skip = 'while [ "${1#-}" != "$1" ]; do shift; done'
    lines = ["#!/bin/sh", skip, "host=$1", "shift", 'case "$host" in', *cases, "esac"]
    script = folder / "launcher.sh"
    script.write_text("\n".join(lines) + "\n")
    os.chmod(script, 0o755)
    return script
