"""The hosts of a run: which there are, how commands run on them, by ssh or here; which files of
the parts each needs, and how rsync copies them."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jgs.command import say
from jgs.data.parts import GRAPH, SHARED, part_name, parts_files, read_manifest
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.launch import probe

_PROBE_SECONDS = 60
_NO_RESULT = 255  # the exit status of ssh where ssh itself fails
_libc = ctypes.CDLL(None)
_PARTIAL = ".rsync-partial"  # holds what has arrived of a file whose copying was cut short


@dataclass(frozen=True)
class Host:
    """A host and its ranks.

    Fields:
      name: the name by which ssh knows the host.
      first: the number of its first rank. Ranks are numbered host by host, in the given order.
      ranks: the number of its ranks, at least 1.
    """

    name: str
    first: int
    ranks: int


def size(hosts: Sequence[Host]) -> int:
    """The number of ranks of all hosts."""
    return sum(host.ranks for host in hosts)


def from_list(text: str) -> list[Host]:
    """The hosts of `a,b:2,c`: one rank on `a`, two on `b`, one on `c`. Raises `InputError`."""
    return _numbered([word.strip() for word in text.split(",")], repr(text))


def from_file(path: str) -> list[Host]:
    """The hosts of a file with one host a line. A line is `name` or `name:2`, as MPICH reads
    it, or `name slots=2`, as Open MPI does. `#` begins a comment. Raises `InputError`."""
    errors = OSError, UnicodeDecodeError
    with refusing(errors, "--hostfile must be a text file", "Correct the path."):
        lines = Path(path).read_text("utf-8").splitlines()
    words = []
    for line in lines:
        name, *rest = line.partition("#")[0].split() or [""]
        if name:
            words.append(":".join([name, *(word.removeprefix("slots=") for word in rest)]))
    return _numbered(words, path)


def _numbered(words: list[str], where: str) -> list[Host]:
    hosts: list[Host] = []
    for word in words:
        name, _, ranks = word.partition(":")
        good = not ranks or (ranks.isascii() and ranks.isdigit() and int(ranks) > 0)
        if not name or name.startswith("-") or not good or word.endswith(":"):
            raise InputError(
                "a host must be NAME, or NAME:RANKS with at least one rank",
                f"{word!r} in {where}",
                "Give for example a,b or a:2,b:2.",
            )
        if any(name == host.name for host in hosts):
            raise InputError(
                "every host must be named once",
                f"{name} twice in {where}",
                f"Give it its number of ranks, as in {name}:2.",
            )
        hosts.append(Host(name, size(hosts), int(ranks or 1)))
    if not hosts:
        raise InputError("there must be a host", f"none in {where}", "Give e.g. a,b.")
    return hosts


@dataclass(frozen=True)
class RemoteShell:
    """How commands are run on hosts.

    Fields:
      ssh: the command in front of a host's name, e.g. `("ssh", "-p", "2222")`.
    """

    ssh: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> RemoteShell:
        """The shell of `--ssh`'s command `text`. An `ssh` gets options that keep it from asking
        for passwords. Raises `InputError`."""
        with refusing(ValueError, "--ssh must be a command", "Close its quotes."):
            words = shlex.split(text)
        if not words:
            raise InputError("--ssh must be a command", repr(text), "Leave it out for ssh.")
        if os.path.basename(words[0]) == "ssh":
            words[1:1] = ["-oBatchMode=yes", "-oConnectTimeout=10"]
        return cls(tuple(words))

    def on(self, host: Host, *command: str) -> list[str]:
        """The words of the local command that runs `command` on `host`."""
        return [*self.ssh, host.name, shlex.join(command)]

    def is_here(self, host: Host) -> bool:
        """Whether `host` is this machine, which needs no ssh: whether a socket here can be
        bound to its address."""
        try:
            places = socket.getaddrinfo(host.name, 0, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return False
        for family, kind, protocol, _, place in places:
            with suppress(OSError), socket.socket(family, kind, protocol) as bound:
                bound.bind(place)
                return True
        return False

    def ask(self, host: Host, *asked: Any) -> dict[str, Any]:
        """The object that `probe.main(*asked)` prints on `host`. Raises `InputError`."""
        script = Path(probe.__file__).read_text("utf-8") + f"\nmain(*{asked!r})\n"
        python = [sys.executable, "-"]
        command = python if self.is_here(host) else self.on(host, *python)
        try:
            done = subprocess.run(
                command,
                input=script,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                errors="replace",
            )
        except OSError as error:
            raise InputError(
                "ssh must be installed, or --ssh name what takes its place",
                f"{command[0]}: {error.strerror}",
                "Install it, for example with `apt-get install openssh-client`.",
            ) from None
        except subprocess.TimeoutExpired:
            raise InputError(
                "every host must answer by ssh",
                f"nothing from {host.name} in {_PROBE_SECONDS} s",
                f"See why `{shlex.join(self.ssh)} {host.name} true` does not end.",
            ) from None
        for line in done.stdout.splitlines():
            if line.startswith(probe.MARK):
                return json.loads(line[len(probe.MARK) :])
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        if done.returncode == _NO_RESULT:
            raise InputError(
                "every host must answer by ssh",
                f"{host.name}: {said}",
                f"Correct its name, or mend what keeps `{shlex.join(self.ssh)} {host.name} "
                "true` from working without a question.",
            )
        raise InputError(
            f"every host must have the Python that runs here, {sys.executable}",
            f"{host.name}: {said}",
            "Install jgs there at the same path.",
        )


def end_with_this() -> None:
    """To be called in a child process: the child is then terminated when its parent ends,
    however the parent ends."""
    _libc.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@dataclass(frozen=True)
class PartsHere:
    """The parts on this host. Other hosts have them at the same path, or get them there.

    Fields:
      folder: their absolute path.
      ranks: the number of ranks of the run.
      whole_graph: whether every rank reads the whole topology, as in hybrid mode.
    """

    folder: Path
    ranks: int
    whole_graph: bool

    def check(self) -> None:
        """Raises `InputError` where the folder holds no parts, or where the number of parts is
        no multiple of the number of ranks."""
        parts = self._manifest["num_parts"]
        if parts % self.ranks:
            raise InputError(
                f"the ranks of all hosts must divide the {parts} parts of {self.folder}",
                self.ranks,
                f"Give other hosts, several ranks a host as in a:2, or partition with --parts "
                f"{self.ranks}.",
            )

    def digest(self) -> str:
        """The digest of the manifest, which distinguishes these parts from others."""
        return storage.sha256(self.folder / storage.MANIFEST)

    def needed_by(self, host: Host) -> dict[str, list[int]]:
        """The files here that the host's ranks read: for each path `[bytes, seconds]`, what
        `probe.state` says of it."""
        each = self._manifest["num_parts"] // self.ranks
        held = range(host.first * each, (host.first + host.ranks) * each)
        folders = {SHARED, *map(part_name, held)} | ({GRAPH} if self.whole_graph else set())
        needed = [n for n in self._files if "/" not in n or n.split("/")[0] in folders]
        found = {name: probe.state(self.folder, name) for name in sorted(needed)}
        return {name: at for name, at in found.items() if at is not None}

    @cached_property
    def _manifest(self) -> dict:
        return read_manifest(self.folder)

    @cached_property
    def _files(self) -> set[str]:
        return parts_files(self.folder)

    def copy(self, remote: RemoteShell, host: Host, lacks: list[str], has_rsync: bool) -> None:
        """Copies the files `lacks` to `host`; continues a copy that was cut short.

        Raises:
          InputError: rsync is missing here or there, or fails.
        """
        if not (here := shutil.which("rsync")) or not has_rsync:
            raise InputError(
                f"rsync must be on this host and on {host.name}, which lacks files of "
                f"{self.folder}",
                f"none on {host.name if here else 'this host'}",
                "Install it, for example with `apt-get install rsync`, or copy "
                f"{_folders(lacks)} there yourself, with their times (cp -a).",
            )
        size = sum(os.path.getsize(self.folder / name) for name in lacks)
        say(f"{host.name}: copying {_folders(lacks)} of {self.folder} ({size / 1e6:,.3g} MB)")
        there = f"[{host.name}]" if ":" in host.name else host.name
        made = subprocess.run(
            remote.on(host, "mkdir", "-p", str(self.folder)), capture_output=True, text=True
        )
        command = [here, "--archive", "--secluded-args", f"--partial-dir={_PARTIAL}"]
        command += ["--files-from=-", "--rsh", shlex.join(remote.ssh)]
        command += [f"{self.folder}/", f"{there}:{self.folder}/"]
        done = subprocess.run(
            command,
            input="\n".join(lacks),
            capture_output=True,
            text=True,
            preexec_fn=end_with_this,
        )
        if done.returncode:
            said = (made.stderr.strip() or done.stderr.strip()).splitlines()
            raise InputError(
                f"{self.folder} must be copied to {host.name}",
                said[0] if said else f"status {done.returncode} of rsync",
                "Mend that and start again: what has arrived is not copied twice.",
            )


def _folders(files: list[str]) -> str:
    return ", ".join(sorted({name.split("/")[0] for name in files}))
