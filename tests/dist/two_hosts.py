"""Hosts on this machine: network namespaces joined by a virtual Ethernet cable.

Each host has its own name and hosts file. The namespaces belong to processes that live as long
as this process keeps their pipes open. So whatever ends this process ends the hosts, all that
runs on them, and the cable.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "eth0"  # the same on all hosts: MPICH's netmod is told one name


class NotPermitted(Exception):
    """This system does not permit namespaces; the message says why."""


@dataclass(frozen=True)
class Host:
    """One host; `pid` is a process in its namespaces."""

    name: str
    address: str
    pid: int

    def on(self, *command: str) -> list[str]:
        """The command that runs `command` on this host, in this process's working directory."""
        namespaces = ["-n", "-m", "-u", f"--pid=/proc/{self.pid}/ns/pid_for_children"]
        return ["nsenter", "-t", str(self.pid), *namespaces, f"--wdns={os.getcwd()}", *command]


@contextmanager
def two_hosts(folder: Path) -> Iterator[list[Host]]:
    """`host-a` and `host-b`; their hosts files lie in `folder`. Raises `NotPermitted`."""
    addresses = {"host-a": "10.131.8.1", "host-b": "10.131.8.2"}
    with ExitStack() as stack:
        hosts = []
        for name, address in addresses.items():
            known = addresses | {"localhost": "127.0.0.1", name: "127.0.1.1"}
            table = folder / f"hosts.{name}"
            table.write_text("".join(f"{a} {n}\n" for n, a in known.items()))
            pid = _start(stack, f"hostname {name}", f"mount --bind '{table}' /etc/hosts")
            hosts.append(Host(name, address, pid))
        ends = [f"{INTERFACE} netns {host.pid}" for host in hosts]
        _run(f"ip link add {ends[0]} type veth peer {ends[1]}")
        for host in hosts:
            there = f"nsenter -t {host.pid} -n ip"
            _run(f"{there} addr add {host.address}/24 dev {INTERFACE}")
            _run(f"{there} link set {INTERFACE} up")
        yield hosts


def _start(stack: ExitStack, *first: str) -> int:
    """The process to which new namespaces belong; the shell commands `first` run in them."""
    command = ["unshare", "-n", "-m", "-u", "-p", "-f", "--kill-child", "--mount-proc"]
    script = " && ".join([*first, "ip link set lo up", "echo ready", "exec cat"])
    pipe = subprocess.PIPE
    try:
        owner = subprocess.Popen(
            [*command, "sh", "-c", script],
            stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise NotPermitted(f"unshare: {error}") from None
    stack.callback(owner.communicate)  # communicate closes its pipe and waits for its end
    if owner.stdout.readline() != "ready\n":
        raise NotPermitted(owner.stderr.read().strip() or "unshare failed")
    return owner.pid


def _run(command: str) -> None:
    words = command.split()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except OSError as error:
        raise NotPermitted(f"{words[0]}: {error}") from None
    if done.returncode != 0:
        raise NotPermitted(f"{command}: {done.stderr.strip()}")
