"""The command line of `python -m jgs.train`: its flags and its pages of help."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from jgs.command import Parser, add_database_flags
from jgs.errors import InputError
from jgs.options import Known, add_flag, flag, options_of
from jgs.train.config import OWNERS, PAGES, SETTINGS, as_flags
from jgs.train.loop.folder import saved_owners

_ABOUT = "Train a graph neural network, or embeddings, from samples."
_NAMING_DATA = ("dataset", "data_options")
_WIDTH = 80
# What most runs need: the pages that --help begins with, and the options of a sampler.
_FIRST, _SAMPLER, ALL = ("data", "task", "model", "run"), "neighbors", "all"
_formatter = partial(argparse.HelpFormatter, max_help_position=24, width=_WIDTH)
EXAMPLES = (
    "--dataset cora --hidden 64 --epochs 50 --run-dir runs/cora",
    "--task links --dataset cora --sampler labor --decoder mlp",
    "--dataset FOLDER_WITH_TABLES --model gat --fanouts 15 10",
)


def parse(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """The flags given on a command line, by name. Flags that are not given are absent.

    Raises `InputError` for flags or values that do not parse. `--help` exits.
    """
    first = Parser("python -m jgs.train", _ABOUT, add_help=False)
    first.add_argument("-h", "--help", nargs="?", const="")
    first.add_argument("--resume", action="store_true")
    for name in ("run_dir", *OWNERS):
        first.add_argument(flag(name), dest=name)
    chosen = vars(first.parse_known_args(argv)[0])
    if "help" in chosen:
        print(help_page(chosen["help"]))
        raise SystemExit(0)
    saved = saved_owners(chosen["run_dir"]) if {"resume", "run_dir"} <= chosen.keys() else {}
    named = {owner: SETTINGS[owner].default for owner in OWNERS} | saved | chosen
    if "sampler" not in saved | chosen:
        defaults = OWNERS["task"].find(named["task"]).defaults
        named["sampler"] = defaults.get("sampler", named["sampler"])
    options = [table.options(named[owner]) for owner, table in OWNERS.items()]
    own = dict(ChainMap(*options))
    found = _parser(own)
    if found.parse_known_args(argv)[1]:  # perhaps a flag of another sampler, model or task
        found = parser(own)
    given = vars(found.parse_args(argv))
    if "partition" in given and (others := [flag(n) for n in _NAMING_DATA if n in given]):
        raise InputError(
            "--partition must name the data alone",
            f"{' and '.join(others)} beside it",
            "Leave that out: the parts are of one data set.",
        )
    return given


def parser(own: Mapping[str, Known] | None = None) -> Parser:
    """The parser of all flags: the settings, all options of jgs, and the options `own`."""
    every = [table.options(name) for table in OWNERS.values() for name in table]
    return _parser(dict(ChainMap(dict(own or {}), *every)))


def _parser(own: Mapping[str, Known]) -> Parser:
    found = Parser("python -m jgs.train", _ABOUT)
    for name, one in {**own, **SETTINGS}.items():
        if one.option.flag:
            add_flag(found, name, one)
    add_database_flags(found)
    return found


def help_page(topic: str = "") -> str:
    """The first page of `--help`, or that of a topic. Raises `InputError` for no topic."""
    prog = Parser("python -m jgs.train", "").prog
    if not topic:
        return _first_page(prog)
    if topic == ALL:
        names = [*PAGES, *(name for table in OWNERS.values() for name in table)]
        return "\n\n".join([_ABOUT, *map(help_page, names)])
    if topic in PAGES:
        about, known = inspect.getdoc(PAGES[topic]) or "", options_of(PAGES[topic])
        return "\n".join([about, *_groups({topic: known})])
    for owner, table in OWNERS.items():
        if topic in table or (":" in topic and table.takes(topic)):
            maker = table.find(topic)
            about = (inspect.getdoc(getattr(maker, "func", maker)) or "").split("\n\n")[0]
            known = table.options(topic)
            shown = _groups({f"--{owner} {topic}": known}) if known else ["", "No flags."]
            if own := getattr(maker, "defaults", {}):
                shown += ["", *_wrapped(f"Defaults of its own: {as_flags(own)}")]
            return "\n".join([*_wrapped(about), *shown])
    raise InputError(
        "--help must name a topic that it has", topic, f"{prog} --help lists the topics."
    )


def _first_page(prog: str) -> str:
    groups = {page: options_of(PAGES[page]) for page in _FIRST}
    groups[f"sampler {_SAMPLER}"] = OWNERS["sampler"].options(_SAMPLER)
    groups["run"] = groups.pop("run")  # the last
    shown = {
        title: {name: one for name, one in known.items() if one.option.first}
        for title, known in groups.items()
    }
    more = {"pages": [ALL, *PAGES]}
    more |= {f"{owner}s": list(table) for owner, table in OWNERS.items()}
    lines = [f"{what}: {', '.join(names)}" for what, names in more.items()]
    return "\n".join(
        [
            *(f"usage: {prog} [--help [NAME]] [flags]", "", _ABOUT, "", "examples:"),
            *(f"  {prog} {example}" for example in EXAMPLES),
            *_groups(shown, whole=False),
            *("", f"{prog} --help NAME tells more, --help {ALL} everything. NAME:"),
            *(line for text in lines for line in _wrapped(text)),
        ]
    )


def _groups(groups: Mapping[str, Mapping[str, Known]], whole: bool = True) -> list[str]:
    lines = []
    for title, known in groups.items():
        one = argparse.ArgumentParser(add_help=False, usage="", formatter_class=_formatter)
        group = one.add_argument_group(title)
        for name, each in known.items():
            if each.option.flag:
                add_flag(group, name, each)
        if whole and "data_options" in known:
            add_database_flags(group)
        lines += one.format_help().rstrip().split("\n")[1:]
    return lines


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, subsequent_indent="  ")
