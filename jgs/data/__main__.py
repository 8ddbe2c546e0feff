"""`python -m jgs.data list|fetch|describe|build`: lists the data sets, fetches or describes
one, or builds one that may be larger than memory.

A table goes to standard error, and one line of JSON to standard output.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the slow imports

import inspect
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jgs import command
from jgs.errors import InputError

if TYPE_CHECKING:
    from jgs.data.plain import Plain

_MOST_CLASSES = 50  # in the table; the JSON line has all


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status (see `jgs.command.run`)."""
    argv = sys.argv[1:] if argv is None else argv
    builds = list(argv[:1]) == ["build"]
    kept = "; what was fetched so far is kept, and fetch goes on from there"
    return command.run(
        lambda: _build(argv[1:]) if builds else _data(argv),
        stopped="; what was built so far is kept, and the same command goes on from there"
        if builds
        else kept,
        disk=(
            "every file must be readable and writable",
            "Free space or mend the permissions.",
        ),
        memory=("the data set must fit into memory", "Use a machine with more memory."),
        kept=lambda _: "The lines above say most of it.",
    )


def parser() -> command.Parser:
    """The parser of the command line."""
    found = command.Parser(
        "python -m jgs.data",
        "List the data sets that have a name; fetch one into --root, ready for training; "
        "describe one that is there; or build one of files that may be larger than memory "
        "(see build --help).",
    )
    found.add_argument("action", choices=("list", "fetch", "describe", "build"))
    found.add_argument(
        "name", nargs="?", help="a name or a path, as of python -m jgs.train's --dataset"
    )
    found.add_data_options()
    return found


def _build(argv: Sequence[str]) -> dict[str, Any]:
    with interrupts.starting():
        from jgs.data.building import flags  # a slow import, of JAX

    command.configure_jax()
    return flags.run(argv)


def _data(argv: Sequence[str]) -> dict[str, Any]:
    options = vars(parser().parse_args(argv))
    action, name = options["action"], options.get("name")
    if (name is None) != (action == "list"):
        raise InputError(
            "fetch and describe must name a data set, list none",
            f"{action} {name or ''}".strip(),
            "See python -m jgs.data --help.",
        )
    with interrupts.starting():
        # A slow import, of JAX: --help and the errors above do not wait for it.
        from jgs.data.layouts import ABOUT, LOADERS
        from jgs.data.plain import load_plain

    command.configure_jax()
    fetched = [n for n in LOADERS if "download" in inspect.signature(LOADERS[n]).parameters]
    if name is None:
        return _list(ABOUT, fetched)
    root = options.get("root", "data")
    given = command.option_values(options.get("data_options", ()))
    if name in fetched:
        given = {"download": action == "fetch", **given}
    elif action == "fetch":
        raise InputError(
            f"a data set that can be fetched must be one of {', '.join(fetched)}",
            repr(name),
            "Put its files below --root yourself; python -m jgs.data describe checks them.",
        )
    with command.loading():
        return _describe(load_plain(name, root, **given), os.path.abspath(root))


def _list(about: dict[str, str], fetched: Sequence[str]) -> dict[str, Any]:
    rows = [(n, each, "yes" if n in fetched else "no") for n, each in about.items()]
    _show("data sets that have a name", ("name", "what it is", "fetched if missing"), rows)
    return {"datasets": [{"name": n, "about": a, "fetched": f == "yes"} for n, a, f in rows]}


def _describe(data: Plain, root: str) -> dict[str, Any]:
    from jgs.data import described  # slow imports

    found = {"dataset": data.name, "root": root} | described.facts(data)
    facts = dict(found)
    relations = facts.pop("edges_of_relations", None)
    types = facts.pop("features_of_types", None)
    columns, counts_of = facts.pop("columns", ()), facts.pop("label_counts", {})
    warned = facts.pop("warnings")
    if relations:
        del facts["relations"]
    counts = facts.pop("node_types") if types else {}
    rows = [(name.replace("_", " "), _text(value)) for name, value in facts.items()]
    _show(data.name, ("", ""), rows)
    if types:
        own = [(n, _text(counts[n]), _text(f["width"]), f["kind"]) for n, f in types.items()]
        _show("node types", ("node type", "nodes", "features", "kind"), own)
    if relations:
        heads = ("relation", "edges", "mean in-degree", "max in-degree")
        _show("relations", heads, [tuple(map(_text, each.values())) for each in relations])
    if columns:
        of_columns = ("column", "becomes", "features", "missing", "different texts")
        _show("columns", of_columns, [tuple(map(_text, each.values())) for each in columns])
    if counts_of:
        classes = [(n, *map(_text, c.values())) for n, c in counts_of.items()][:_MOST_CLASSES]
        if (more := len(counts_of) - len(classes)) > 0:
            classes.append((f"and {more:,} more", *[""] * 4))
        _show("labels", ("class", "train", "val", "test", "all"), classes)
    for each in warned:
        command.say(f"warning: {each['says']}")
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(count)}" for name, count in value.items())
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box  # slow imports
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    command.show(table)


if __name__ == "__main__":
    interrupts.leave(main())
