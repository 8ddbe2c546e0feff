"""`python -m jgs.launch`: train on several hosts.

    python -m jgs.launch --hosts a,b,c --parts parts/ -- --epochs 20 --run-dir runs/one

The flags after `--` are those of `python -m jgs.train`. `docs/ranks.md` says what the command
does and what must be on every host.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from jgs import command
from jgs.errors import InputError
from jgs.launch import hosts as hosts_of
from jgs.launch import start
from jgs.launch.hosts import Host, PartsHere, RemoteShell
from jgs.options import flag
from jgs.train.config import SETTINGS
from jgs.train.flags import parse
from jgs.train.loop import folder

# Flags that `jgs.launch` itself gives to each rank.
_GIVEN = ("partition", "comm", "coordinator", "num_processes", "process_id", "interface")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns the run's exit status, or that of `jgs.command.run` if no run
    has begun."""
    return command.run(
        lambda: _launch(sys.argv[1:] if argv is None else list(argv)),
        stopped="; no rank has been started",
    )


def _launch(argv: list[str]) -> int:
    options, training = _parse(argv)
    if "hosts" in options:
        hosts = hosts_of.from_list(options["hosts"])
    else:
        hosts = hosts_of.from_file(options["hostfile"])
    given = parse(training)
    if wrong := [flag(name) for name in _GIVEN if name in given]:
        raise InputError(
            "jgs.launch tells the ranks itself where the parts are and how they meet",
            f"{', '.join(wrong)} after --",
            "Give --parts, --comm, --coordinator or --interface before the --.",
        )
    remote = RemoteShell.from_text(options.get("ssh", "ssh"))
    comm = options.get("comm") or ("mpi" if start.has_mpi() else "jax")
    if comm == "mpi" and "coordinator" in options:
        raise InputError(
            "--coordinator must be for --comm jax", "--comm mpi", "Leave it out, or give that."
        )
    mpiexec = start.find_mpiexec() if comm == "mpi" else ""
    parts = None
    if "parts" in options:
        path, size = Path(options["parts"]).absolute(), hosts_of.size(hosts)
        parts = PartsHere(path, size, whole_graph=_mode(given) == "hybrid")
        parts.check()
        training = ["--partition", str(parts.folder), *training]
    where = (str(parts.folder), parts.digest()) if parts else (None, None)

    def ask(host: Host) -> dict[str, Any]:
        needed = parts.needed_by(host) if parts else {}
        return remote.ask(host, os.getcwd(), *where, needed)

    with ThreadPoolExecutor(min(32, len(hosts))) as pool:
        answers = list(pool.map(ask, hosts))
    _check(hosts, answers, comm, where[0])
    for host, answer in zip(hosts, answers, strict=True):
        if parts and answer["lacks"]:
            parts.copy(remote, host, answer["lacks"], answer["rsync"])
    plan = start.Plan(remote, tuple(hosts), tuple(answers), tuple(training), options["env"])
    if comm == "mpi":
        return plan.by_mpi(mpiexec, options.get("interface"))
    return plan.by_jax(options.get("coordinator"), options.get("interface"))


def _parse(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    at = argv.index("--") if "--" in argv else len(argv)
    options = vars(parser().parse_args(argv[:at]))
    if wrong := [text for text in options["env"] if not text.partition("=")[0].isidentifier()]:
        raise InputError("--env must be NAME=VALUE", repr(wrong[0]), "Give e.g. A=1.")
    return options, argv[at + 1 :]


def parser() -> command.Parser:
    found = command.Parser(
        "python -m jgs.launch",
        "Train on several hosts, reached by ssh. The flags of jgs.train come after --.",
    )
    add = found.add_argument
    which = found.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--hosts", metavar="A,B:2", help="the hosts; :2 starts two ranks on that host"
    )
    which.add_argument("--hostfile", metavar="FILE", help="a file of the hosts, one a line")
    add("--parts", metavar="FOLDER", help="what python -m jgs.partition wrote, for all hosts")
    add(
        "--comm",
        choices=("mpi", "jax"),
        help="how ranks communicate (default: mpi where mpi4jax is installed)",
    )
    add("--ssh", metavar="COMMAND", help="how hosts are reached, e.g. 'ssh -p 2222 -i key'")
    add(
        "--interface",
        metavar="NAME",
        help="the network interface that ranks use (default: the one that is found)",
    )
    add(
        "--coordinator",
        metavar="ADDRESS",
        help="HOST:PORT of rank 0, for --comm jax (default: its address by ssh, a free port)",
    )
    add(
        "--env",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an environment variable for all ranks; may be repeated",
    )
    return found


def _mode(given: dict[str, Any]) -> str:
    """The mode of a run: the given one, else that of the resumed run, else the default."""
    mode = given.get("mode")
    if not mode and given.get("resume") and "run_dir" in given:
        with suppress(OSError, ValueError, TypeError, KeyError):  # the ranks say what is wrong
            mode = json.loads(Path(given["run_dir"], folder.CONFIG).read_text("utf-8"))["mode"]
    return mode or SETTINGS["mode"].default


def _check(
    hosts: list[Host], answers: list[dict[str, Any]], comm: str, parts: str | None
) -> None:
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
