"""Hosts on this machine: network namespaces joined by virtual Ethernet cables and a switch.

Each host has its own name and hosts file. The namespaces belong to processes that live as long
as this process keeps their pipes open. So whatever ends this process ends the hosts, all that
runs on them, and the cables.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "eth0"  # the same on all hosts: MPICH's netmod is told one name
# MPICH needs these settings to use the cable although all ranks are on one machine.
MPICH = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ucx",
    "UCX_TLS": "tcp,self",
    "UCX_NET_DEVICES": INTERFACE,
}


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
def hosts(
    number: int, folder: Path, loopback: bool = True, rate: str = "100mbit"
) -> Iterator[list[Host]]:
    """`number` hosts, `host-a`, `host-b` and so on, that reach each other by name.

    `folder` gets their hosts files. With `loopback` each host's own name stands for 127.0.1.1,
    as Debian writes it, otherwise for its address. The cables are limited to `rate`; where `tc`
    is missing or cannot limit them, they have the machine's own rate. Raises `NotPermitted`.
    """
    with ExitStack() as stack:
        switch = _start(stack)
        within = f"nsenter -t {switch} -n"
        _run(f"{within} ip link add switch type bridge")
        _run(f"{within} ip link set switch up")
        names = [f"host-{'abcdefgh'[i]}" for i in range(number)]
        addresses = [f"10.131.8.{i + 1}" for i in range(number)]
        made = []
        for i, (name, address) in enumerate(zip(names, addresses, strict=True)):
            known = dict(zip(names, addresses, strict=True))
            known |= {"localhost": "127.0.0.1"} | ({name: "127.0.1.1"} if loopback else {})
            table = folder / f"hosts.{name}"
            table.write_text("".join(f"{a} {n}\n" for n, a in known.items()))
            pid = _start(stack, f"hostname {name}", f"mount --bind '{table}' /etc/hosts")
            host, there = Host(name, address, pid), f"nsenter -t {pid} -n"
            _run(f"ip link add {INTERFACE} netns {pid} type veth peer port{i} netns {switch}")
            _run(f"{within} ip link set port{i} master switch up")
            _run(f"{there} ip addr add {address}/24 dev {INTERFACE}")
            _run(f"{there} ip link set {INTERFACE} up")
            limit = f"rate {rate} burst 64kb latency 400ms"
            with suppress(NotPermitted):
                _run(f"{there} tc qdisc add dev {INTERFACE} root tbf {limit}")
            made.append(host)
        yield made


@contextmanager
def two_hosts(folder: Path, mpiexec: Path, rate: str = "100mbit") -> Iterator[list[str]]:
    """The start of a command that runs a rank on each of two hosts, in the environment `MPICH`.
    `folder` gets a script. Raises `NotPermitted`."""
    with hosts(2, folder, rate=rate) as pair:
        command = ["nsenter", "-t", str(pair[0].pid), "-n", str(mpiexec), "-iface", INTERFACE]
        command += ["-launcher", "ssh", "-launcher-exec", str(remote_shell(folder, pair))]
        yield [*command, "-hosts", ",".join(h.address for h in pair), "-n", "2", "-ppn", "1"]


def remote_shell(folder: Path, hosts: list[Host]) -> Path:
    """A script in place of ssh: it skips the options and runs the command on the host."""
    cases = [
        f'{host.name} | {host.address}) exec {" ".join(host.on())} sh -c "$*" ;;'
        for host in hosts
    ]
    skip = 'while [ "${1#-}" != "$1" ]; do shift; done'
    unknown = '*) echo "ssh: Could not resolve hostname $host" >&2; exit 255 ;;'
    lines = ["#!/bin/sh", skip, "host=$1", "shift", 'case "$host" in', *cases, unknown, "esac"]
    script = folder / "launcher.sh"
    script.write_text("\n".join(lines) + "\n")
    os.chmod(script, 0o755)
    return script


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
