"""`python -m jgs.launch`: train on several hosts.

    python -m jgs.launch --hosts a,b,c --parts parts/ -- --epochs 20 --run-dir runs/one

What follows `--` are flags of `python -m jgs.train`. The hosts are reached by ssh, which must
ask for nothing. One command:

1. asks every host at once for its versions of Python, jgs and JAX, which must agree, and for
   what it lacks of the parts;
2. copies that, by rsync, to the path that the parts have here: the parts of its ranks, what all
   ranks share, in hybrid mode the graph. Where hosts share the file system nothing is lacking;
3. starts the ranks, in the order of the hosts: by mpiexec, or one by one for JAX's own runtime;
4. passes on what they write. Standard output is the first rank's result, standard error has
   `[rank]` in front of each line;
5. ends all of them when one ends badly, and passes Ctrl-C, SIGTERM and SIGHUP on to all;
6. returns the status of the run: that of the first rank that ended badly, or 0.

All hosts must have the same Python, at the same path, and the same working directory, which is
made where it is missing. Rank 0 alone writes the run folder, on its host, the first one.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jgs import command
from jgs.errors import InputError
from jgs.launch import hosts as hosts_of
from jgs.launch import start
from jgs.launch.hosts import Host
from jgs.launch.remote import RemoteShell, every
from jgs.train import config, folder

# What `jgs.launch` gives each rank itself.
_GIVEN = ("partition", "comm", "coordinator", "num_processes", "process_id", "interface")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: that of the run, or see `jgs.command.run`."""
    return command.run(
        lambda: _launch(sys.argv[1:] if argv is None else list(argv)),
        stopped="; no rank has been started",
        disk=("every file must be readable", "Correct the path or mend the permissions."),
        memory=("the command must fit into memory", "End other programs."),
        kept=str,
    )


def _launch(argv: list[str]) -> int:
    options, training = _parse(argv)
    hosts, given = _hosts(options), config.parse(training)
    if wrong := [config.flag(name) for name in _GIVEN if name in given]:
        raise InputError(
            "jgs.launch tells the ranks itself where the parts are and how they meet",
            f"{', '.join(wrong)} after --",
            "Give --parts, --comm, --coordinator or --interface before it.",
        )
    with interrupts.starting():
        # Only now: errors above need not wait for the import of JAX.
        from jgs.launch.parts import PartsHere

    remote = RemoteShell.from_text(options.get("ssh", "ssh"))
    comm = options.get("comm") or ("mpi" if start.has_mpi() else "jax")
    mpiexec = start.find_mpiexec() if comm == "mpi" else ""
    parts = None
    if "parts" in options:
        size = hosts[-1].first + hosts[-1].ranks
        parts = PartsHere(Path(options["parts"]).absolute(), size, _mode(given) == "hybrid")
        parts.check()
        training = ["--partition", str(parts.folder), *training]
    where = (str(parts.folder), parts.digest()) if parts else (None, None)

    def ask(host: Host) -> dict[str, Any]:
        needed = parts.needed_by(host) if parts else {}
        return remote.ask(host, os.getcwd(), *where, needed)

    answers = every(hosts, ask)
    _check(hosts, answers, comm, where[0])
    for host, answer in zip(hosts, answers, strict=True):
        if parts and answer["lacks"]:
            parts.copy(remote, host, answer["lacks"], answer["rsync"])
    plan = start.Plan(remote, tuple(hosts), tuple(answers), tuple(training), options["env"])
    if comm == "mpi":
        return plan.by_mpi(mpiexec, options.get("interface"))
    return plan.by_jax(options.get("coordinator"), options.get("interface"))


def _parse(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The options before `--`, and the flags after it."""
    at = argv.index("--") if "--" in argv else len(argv)
    options = vars(parser().parse_args(argv[:at]))
    if wrong := [text for text in options["env"] if not text.partition("=")[0].isidentifier()]:
        raise InputError("--env must be NAME=VALUE", repr(wrong[0]), "Correct it.")
    return options, argv[at + 1 :]


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.launch", "Train on several hosts: options -- flags of jgs.train."
    )
    add = found.add_argument
    which = found.add_mutually_exclusive_group(required=True)
    which.add_argument("--hosts", metavar="A,B:2", help="the hosts; :2 has two ranks there")
    which.add_argument("--hostfile", metavar="FILE", help="the hosts, one a line")
    add("--parts", metavar="FOLDER", help="parts of python -m jgs.partition, for all hosts")
    add(
        "--comm",
        choices=("mpi", "jax"),
        help="how ranks communicate (default: mpi where mpi4jax is installed)",
    )
    add("--ssh", metavar="COMMAND", help="how hosts are reached, e.g. 'ssh -p 2222 -i key'")
    add("--interface", metavar="NAME", help="the network interface, if not the one found")
    add(
        "--coordinator",
        metavar="ADDRESS",
        help="HOST:PORT of rank 0, for --comm jax (default: as ssh reaches it, a free port)",
    )
    add(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set it for all ranks; may be repeated",
    )
    return found


def _hosts(options: dict[str, Any]) -> list[Host]:
    if "hosts" in options:
        return hosts_of.from_list(options["hosts"])
    return hosts_of.from_file(options["hostfile"])


def _mode(given: dict[str, Any]) -> str:
    """The mode of a run: as given, or that of the run that is resumed, or the default."""
    saved = {}
    if given.get("resume") and "run_dir" in given:
        with suppress(OSError, ValueError):
            saved = json.loads(Path(given["run_dir"], folder.CONFIG).read_text("utf-8"))
    return given.get("mode") or saved.get("mode", config.Config.mode)


def _check(
    hosts: list[Host], answers: list[dict[str, Any]], comm: str, parts: str | None
) -> None:
    """Raises `InputError` where a host cannot take part."""
    names = [host.name for host in hosts]
    for name, answer in zip(names, answers, strict=True):
        if answer["problem"]:
            raise InputError(
                "every host must have the working directory of this one",
                f"{name}: {answer['problem']}",
                "Start from a directory that all hosts have, or can make.",
            )
        if answer["other"]:
            raise InputError(
                f"{parts} must hold the same parts on every host",
                f"others on {name}",
                "Move them away there, or use another path for these.",
            )
    wanted = ["Python", "jgs", "jax", "jaxlib"] + (["mpi4jax"] if comm == "mpi" else [])
    differences = []
    for what in wanted:
        having: dict[str, list[str]] = {}
        for name, answer in zip(names, answers, strict=True):
            having.setdefault(answer["versions"][what] or "none", []).append(name)
        if len(having) > 1 or "none" in having:
            sides = (f"{version} on {', '.join(on)}" for version, on in having.items())
            differences.append(f"{what} {'; '.join(sides)}")
    if differences:
        raise InputError(
            f"every host must have the same {', '.join(wanted)}",
            " | ".join(differences),
            "Install the same versions, at the same path.",
        )


if __name__ == "__main__":
    interrupts.leave(main())
