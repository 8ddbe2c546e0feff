"""Which files of the parts each host needs, and how rsync copies them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jgs.command import say
from jgs.data.parts import GRAPH, SHARED, part_name, parts_files, read_manifest
from jgs.errors import InputError
from jgs.files import storage
from jgs.launch import probe
from jgs.launch.hosts import Host, RemoteShell, end_with_this

_PARTIAL = ".rsync-partial"  # holds what has arrived of a file whose copying was cut short


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
