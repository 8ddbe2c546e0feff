"""`jgs completion SHELL` prints a script that completes `jgs`, its commands and their flags.

In Bash, put `eval "$(jgs completion bash)"` into `~/.bashrc`. In zsh, write the output to a
file `_jgs` in a folder of `fpath`.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the imports that take their time

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from jgs import command
from jgs.errors import refusing
from jgs.scripts import COMMANDS

SHELLS = ("bash", "zsh", "tcsh")
_FOLDERS = ("run_dir", "root", "partition", "parts", "scratch")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    return command.run(lambda: _print(argv))


def parser() -> command.Parser:
    found = command.Parser("python -m jgs.completion", __doc__.splitlines()[0])
    found.add_argument("shell", choices=SHELLS)
    return found


def _print(argv: Sequence[str] | None) -> int:
    shell = parser().parse_args(argv).shell
    remedy = "Run pip install 'jgs[completion]'."
    with refusing(ImportError, "completions need shtab", remedy):
        import shtab  # an optional dependency, and a slow import
    script = shtab.complete(_everything(shtab), shell)
    command.print_out(script, "the whole script", "Write it to a file.")
    return 0


def _everything(shtab: Any) -> argparse.ArgumentParser:
    from jgs.train.config import OWNERS, PAGES  # slow imports
    from jgs.train.flags import ALL

    places = {name: f"jgs.{name}.__main__" for name in COMMANDS}
    places |= {name: f"jgs.{name}" for name in ("doctor", "replay", "completion")}
    places["train"] = "jgs.train.flags"
    topics = {owner: list(table) for owner, table in OWNERS.items()}
    topics["help"] = [ALL, *PAGES, *(name for names in topics.values() for name in names)]
    whole = argparse.ArgumentParser("jgs")
    commands = whole.add_subparsers()
    for name, text in COMMANDS.items():
        own = import_module(places[name]).parser()
        for action in own._actions:
            if name == "train" and action.dest in topics:
                action.choices = topics[action.dest]
                action.nargs = "?" if action.dest == "help" else None
            elif action.metavar == "FILE":
                action.complete = shtab.FILE
            elif action.dest in _FOLDERS:
                action.complete = shtab.DIRECTORY
        commands.add_parser(name, help=text, parents=[own], add_help=False)
    return whole


if __name__ == "__main__":
    interrupts.leave(main())
