"""`python -m jgs.data list|fetch|describe|build`: lists the data sets, fetches or describes
one, or builds one that may be larger than memory.

A table goes to standard error, and one line of JSON to standard output.
"""

from __future__ import annotations

from jgs import interrupts

if __name__ == "__main__":
    interrupts.end_at_once()  # before the slow imports

import inspect
import logging
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jgs import command
from jgs.errors import InputError, refusing

_log = logging.getLogger("jgs")
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
    found.add_argument(
        "--picture", metavar="FILE.svg", help="describe: also draw the tables of a database"
    )
    found.add_data_options()
    return found


def _data(argv: Sequence[str]) -> dict[str, Any]:
    options = vars(parser().parse_args(argv))
    action, name = options["action"], options.get("name")
    if (name is None) != (action == "list"):
        raise InputError(
            "fetch and describe must name a data set, list none",
            f"{action} {name or ''}".strip(),
            "See python -m jgs.data --help.",
        )
    if name is None and (own := sorted(options.keys() - {"action"})):
        raise InputError("list must have no options", ", ".join(own), "Leave them out.")
    if not (picture := options.get("picture", ".svg")).endswith(".svg"):
        raise InputError("--picture must end in .svg", picture, "It is a file that is written.")
    with interrupts.starting():
        # A slow import, of JAX: --help and the errors above do not wait for it.
        from jgs.data import described
        from jgs.data.described import picture_of
        from jgs.data.layouts import ABOUT, FORMATS, LOADERS, call, database
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
        base, picture = database(name, Path(root), given), options.get("picture")
        if base is None and picture is not None:
            raise InputError("--picture must be of a database", name, "Leave it out.")
        if base is None:
            data = load_plain(name, root, **given)
            return _describe(data.name, os.path.abspath(root), described.facts(data))
        if picture is not None:
            Path(picture).write_text(picture_of(base), "utf-8")
        given = {option: each for option, each in given.items() if option != "layout"}
        graph = partial(call, base.name, partial(FORMATS["database"].read, base), given)
        found = described.of_database(base, graph, given)
        return _describe(base.name, os.path.abspath(root), found)


def _list(about: dict[str, str], fetched: Sequence[str]) -> dict[str, Any]:
    rows = [(n, each, "yes" if n in fetched else "no") for n, each in about.items()]
    _show("data sets that have a name", ("name", "what it is", "fetched if missing"), rows)
    return {"datasets": [{"name": n, "about": a, "fetched": f == "yes"} for n, a, f in rows]}


def _describe(name: str, root: str, facts: dict[str, Any]) -> dict[str, Any]:
    found = {"dataset": name, "root": root} | facts
    facts = dict(found)
    relations = facts.pop("edges_of_relations", None)
    types = facts.pop("features_of_types", None)
    columns, counts_of = facts.pop("columns", ()), facts.pop("label_counts", {})
    warned = facts.pop("warnings")
    if relations:
        del facts["relations"]
    tables, keys = facts.pop("tables", ()), facts.pop("keys", ())
    counts = facts.pop("node_types") if types else {}
    rows = [(name.replace("_", " "), _text(value)) for name, value in facts.items()]
    _show_each("tables", tables)
    _show_each("keys", keys)
    _show(name, ("", ""), rows)
    if types:
        own = [(n, _text(counts[n]), _text(f["width"]), f["kind"]) for n, f in types.items()]
        _show("node types", ("node type", "nodes", "features", "kind"), own)
    _show_each("relations", relations, ("relation", "edges", "mean in-degree", "max in-degree"))
    heads = ("column", "becomes", "features", "missing", "different texts")
    _show_each("columns", columns, heads)
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


def _show_each(title: str, facts: Sequence[Any], heads: Sequence[str] = ()) -> None:
    if facts:
        _show(title, heads or list(facts[0]), [tuple(map(_text, f.values())) for f in facts])


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box  # slow imports
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    command.show(table)


def _build_parser() -> command.Parser:
    from jgs.data.building.plan import MEMORY  # slow imports
    from jgs.data.building.shards import BINARY

    found = command.Parser(
        "python -m jgs.data build",
        "Build the data set of edges and features that may be larger than memory. After it was "
        "stopped or killed, the same command goes on where it stood.",
    )
    add = found.add_argument
    add("edges", nargs="*", metavar="EDGES", help="shards: .npy, .bin, .parquet, .csv, .csv.gz")
    add("--out", required=True, metavar="GRAPH", help="the folder that is written")
    add("--name", help="the name in messages (default: that of the folder)")
    add(
        "--memory", type=int, default=MEMORY, metavar="MIB",
        help="private memory that may be used (default: %(default)s)",
    )  # fmt: skip
    edges = found.add_argument_group("edges")
    add = edges.add_argument
    add(
        "--nodes", nargs="+", metavar="N",
        help="the number of nodes, or TYPE=N for each node type (default: the rows of the "
        "features, or one more than the largest id)",
    )  # fmt: skip
    add(
        "--relation", nargs="+", action="append", metavar=("SRC NAME DST", "EDGES"),
        help="the shards of one relation: source type, name, target type, files",
    )  # fmt: skip
    add("--binary", choices=list(BINARY), help="the integers of .bin files")
    add("--src", metavar="COLUMN", help="the sources in tables (default: src)")
    add("--dst", metavar="COLUMN", help="the targets in tables (default: dst)")
    add("--weight", metavar="COLUMN", help="the weights (default: edge_weight, if there)")
    add("--time", metavar="COLUMN", help="the times (default: edge_time or time, if there)")
    add("--columns", nargs="*", metavar="COLUMN", help="the edge columns (default: all others)")
    add = partial(add, action="store_true")
    add("--symmetric", help="add the reverse of every edge, and keep each edge once")
    add("--both-ways", help="add the reverse of every relation")
    add("--edge-order", help="keep where each edge was among the given ones")
    nodes = found.add_argument_group("nodes")
    add = nodes.add_argument
    add("--features", nargs="+", metavar="PART", help="parts in order: .npy or tables")
    add(
        "--features-of", nargs="+", action="append", metavar=("TYPE", "PART"),
        help="the features of one node type",
    )  # fmt: skip
    add("--labels", metavar="FILE", help=".npy, [N] (-1: none) or [N, C] of 0 and 1")
    add("--labels-of", metavar="TYPE", help="the node type that labels and splits are of")
    add("--classes", type=int, metavar="C", help="(default: the largest label + 1)")
    for split in ("train", "val", "test"):
        add(f"--{split}", metavar="FILE", help=f".npy, the ids of the {split} split, or a mask")
    add("--node-time", metavar="FILE", help=".npy, [N]: the time from which each node exists")
    return found


def _build(argv: Sequence[str]) -> dict[str, Any]:
    with interrupts.starting():
        from jgs.data.building.build import build  # a slow import, of JAX

    command.configure_jax()
    given = vars(_build_parser().parse_args(argv))
    begun = time.monotonic()
    labels, splits = _labels(given)
    same = ("symmetric", "both_ways", "edge_order", "src", "dst", "weight", "time", "columns")
    options = {each: given[each] for each in (*same, "binary", "name") if each in given}
    times = given.get("node_time")
    data = build(
        given["out"],
        _edges(given),
        _nodes(given),
        features=_features(given),
        labels=labels,
        splits=splits,
        num_classes=given.get("classes"),
        node_time=None if times is None else _array(times),
        memory=given["memory"],
        show_progress=True,
        **options,
    )
    graph, took = data.graph, time.monotonic() - begun
    counts = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    _log.info("built %s: %s, in %.0f s", given["out"], counts, took)
    return {
        "dataset": os.path.abspath(given["out"]),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": getattr(data.features, "shape", [None, None])[1],
        "seconds": round(took, 1),
    }


def _edges(given: dict[str, Any]) -> Any:
    paths, relations = given.get("edges", []), given.get("relation", [])
    if bool(paths) == bool(relations):
        raise InputError(
            "edges must be named, either all by --relation or none",
            "both" if paths else "none",
            "See python -m jgs.data build --help.",
        )
    every = [*paths, *(path for words in relations for path in words[3:])]
    if "binary" in given and not any(path.endswith(".bin") for path in every):
        raise InputError(
            "--binary must be of .bin files", f"none among {len(every)}", "Leave it out."
        )
    if paths:
        return paths
    found: dict[tuple[str, ...], list[str]] = {}
    for words in relations:
        if len(words) < 4:
            raise InputError(
                "--relation must have a source type, a name, a target type and files",
                " ".join(words),
                "Write --relation user buys item edges.parquet.",
            )
        found.setdefault(tuple(words[:3]), []).extend(words[3:])
    return found


def _nodes(given: dict[str, Any]) -> Any:
    words = given.get("nodes")
    if words is None:
        return None
    typed = all("=" in word for word in words)
    rule = "--nodes must be a number, or TYPE=NUMBER for each node type"
    with refusing(ValueError, rule, "Write --nodes 1000, or --nodes user=1000 item=500."):
        if typed:
            pairs = [word.rpartition("=") for word in words]
            found = {name: int(number) for name, _, number in pairs}
            if len(found) < len(words):
                raise ValueError(" ".join(words))
            return found
        if len(words) > 1:
            raise ValueError(" ".join(words))
        return int(words[0])


def _features(given: dict[str, Any]) -> Any:
    whole, typed = given.get("features"), given.get("features_of", [])
    if whole is None and not typed:
        return None
    if whole is not None and typed:
        raise InputError(
            "features must be those of all nodes, or those of types",
            "both",
            "Leave out --features or --features-of.",
        )
    found: dict[str, list[str]] = {}
    for kind, *parts in typed:  # a type may be named again, as a relation may
        found.setdefault(kind, []).extend(parts)
    return found or whole


def _labels(given: dict[str, Any]) -> tuple[Any, Any]:
    splits = {s: _array(given[s]) for s in ("train", "val", "test") if s in given}
    of = [f"--{each.replace('_', '-')}" for each in ("labels_of", "classes") if each in given]
    if "labels" not in given and not splits and not of:
        return None, None
    if "labels" not in given or "train" not in splits:
        raise InputError(
            "--labels and --train must be given together",
            " and ".join(
                [*(f"--{each}" for each in ("labels", *splits) if each in given), *of]
            ),
            "Give both, or nothing of labels for a graph without.",
        )
    labels = _array(given["labels"])
    return ({given["labels_of"]: labels} if "labels_of" in given else labels), splits


def _array(path: str) -> Any:
    import numpy as np  # slow imports

    from jgs.files.npy import map_npy, plain_file

    if not plain_file(path).exists():
        raise InputError(f"{path} must exist", "no such file", "Correct the path.")
    with refusing(
        (OSError, ValueError), f"{path} must be a whole .npy file", "Write it again."
    ):
        return np.array(map_npy(Path(path)))


if __name__ == "__main__":
    interrupts.leave(main())
