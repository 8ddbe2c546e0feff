"""`FORMATS`: the table of all formats, each a module of `jgs.data.formats`. Another format is a
module there and a line here.

A module has some of these:

  `NAMES`: what each data set is that has a name and this format, for `jgs data list`.
  `load(name, root, **options)`: the named data set, where it has more than one place or is
    fetched. Without it the named one is what `read` makes of `<root>/<name>`.
  `recognises(path)`: whether the file or the folder may be of the format, by its name and first
    lines; `recognises_named(path)`, if it is another question, where the user says what the
    columns are. Or `ENDINGS`: how the names of its files end, where they say it.
    `LAYOUTS` are the formats that have one of these.
  `SCHEMES`: how the URLs begin that `read` takes in place of a path.
  `read(path, **options)`: the graph as `Plain`, which a `Dataset` is too. Raises `InputError`.
    A keyword that is a record of options, such as `SplitRule`, stands for its fields. Where the
    reader has an argument `labelled`, it is True where labels and a split must be there.
  `UNLABELLED`: True where a data set may lack labels, as events do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Unpack, get_args, get_origin, get_type_hints

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.columns import TEXT, ColumnRule
from jgs.data.database.postgres import without_password
from jgs.data.dataset import Dataset, Plain
from jgs.data.download import Cache
from jgs.data.edge_table import Roles
from jgs.data.splits import SplitChoice, SplitRule
from jgs.data.table_graph import TableRules
from jgs.data.text import TextRule
from jgs.errors import InputError, check_choice

FORMATS: dict[str, Any] = {
    name: import_module(f"jgs.data.formats.{module}")
    for name, module in {
        "synthetic": "synthetic",
        "planetoid": "planetoid",
        "npz": "npz",
        "typed-npz": "typed",
        "ogb": "ogb",
        "ogb-typed": "ogb",
        "ogb-links": "ogb_links",
        "snap": "snap",
        "relations": "relation_table",
        "geom-gcn": "geom_gcn",
        "heterophilous": "heterophilous",
        "gnn-benchmark": "gnn_benchmark",
        "metis": "metis",
        "matrix-market": "matrix_market",
        "matlab": "matlab",
        "networkx": "networkx_lists",
        "igraph": "igraph_files",
        "openke": "openke",
        "triples": "triples",
        "lightgcn": "lightgcn",
        "movielens": "movielens",
        "konect": "konect",
        "saved": "saved",
        "graphsaint": "graphsaint",
        "graphsage": "graphsage",
        "dgl-reddit": "dgl_reddit",
        "heco": "heco",
        "jodie": "jodie",
        "trust": "trust",
        "events": "temporal",
        "tables": "tables",
        "typed-tables": "typed_tables",
        "database": "database",
    }.items()
}
LAYOUTS = {
    name: each
    for name, each in FORMATS.items()
    if hasattr(each, "recognises") or hasattr(each, "ENDINGS")
}
"""The formats that are known by their files."""

_TABLES = ("planetoid", "ogb", "ogb-links", "snap", "graphsaint", "graphsage")
_FOLDERS = (("saved",), (*_TABLES, "dgl-reddit", "tables"), ("typed-tables",))
"""The formats of folders that are asked before all others, group by group."""
_FILES = (("jodie", "trust"), ("npz",), ("events",), ("tables",), ("snap",))
"""The formats of files that are asked after all others, group by group."""

ABOUT: dict[str, str] = {
    name: about
    for each in FORMATS.values()
    for name, about in getattr(each, "NAMES", {}).items()
}
"""What each data set is that has a name."""

LOADERS: dict[str, Callable[..., Any]] = {
    name: getattr(each, "load", None) or each.read
    for each in FORMATS.values()
    for name in getattr(each, "NAMES", ())
}
"""The function `load` of each such data set's format, or else `read`."""

_COLUMNS = ("columns", "src", "dst")  # options with which a user says what columns are
_OF_COLUMNS = {"time_unit", "time_scale", "label_kind", "standardize", "max_categories"}
_RECORDS = (Cache, Clock, ColumnRule, TextRule, Roles, SplitChoice, SplitRule, TableRules)


def read(name: str, root: Path, options: dict[str, Any], labelled: bool) -> Plain:
    """The data set `name`, which is a name or a path as of `jgs.data.load`. Where it must be
    `labelled`, it is a `Dataset`. Raises `InputError`."""
    options, name = dict(options), without_password(name)
    form = next((each for each in FORMATS.values() if name in getattr(each, "NAMES", ())), None)
    if form is None:
        form, reader = _reader_of_path(name, root, options)
    else:
        loads = hasattr(form, "load")
        reader = partial(form.load, name, root) if loads else partial(form.read, root / name)
    own = getattr(form, "read", None)
    if labelled and reader.func is own and "labelled" in inspect.signature(own).parameters:
        reader = partial(reader, labelled=True)
    found = call(name, reader, options)
    if options.keys() & _OF_COLUMNS:
        _refuse_unread(name, options, found, "encode" in _options(_keywords(reader)))
    if not labelled or isinstance(found, Dataset):
        return found
    lacks = found.labels is None or found.train_idx is None
    if lacks and found.label_table is None and not getattr(form, "UNLABELLED", False):
        unsplit = found.labels is not None
        raise InputError(
            "a data set of labelled nodes must have labels and a split of nodes",
            f"{name}, which has {'no split' if unsplit else 'no labels'}",
            "--data-options split=0.6,0.2,0.2 draws train, val and test."
            if unsplit
            else "Train a task of edges, or embed.",
        )
    return found.dataset()


def database(name: str, root: Path, options: dict[str, Any]) -> Any:
    """The opened database that a path or a URL names; None where it names none. Its format's
    `read` takes it in place of the path. Raises `InputError`."""
    if name in ABOUT:
        return None
    form, reader = _reader_of_path(without_password(name), root, dict(options))
    opens = getattr(form, "opened", None)
    return opens and opens(*reader.args, options.get("manifest"))


def call(name: str, reader: partial, options: dict[str, Any]) -> Any:
    """What `reader` makes of the `options` of the data set `name`. Raises `InputError` for an
    option that it lacks or whose value is not of the declared type."""
    keywords = _keywords(reader)
    allowed = _options(keywords)
    if unknown := sorted(set(options) - set(allowed)):
        raise InputError(
            f"the options of the data set {name} are {', '.join(allowed)}",
            ", ".join(unknown),
            "Correct or remove them.",
        )
    options = {k: _checked(name, k, v, allowed[k]) for k, v in options.items()}
    try:
        return reader(**_arguments(keywords, options))
    except MemoryError as error:
        raise InputError(
            f"the data set {name} must fit in memory while it is read",
            " ".join(str(error).split()) or "too little",
            "Free memory, or correct the sizes that its files and options state.",
        ) from None


def _refuse_unread(name: str, options: dict[str, Any], data: Plain, tabled: bool) -> None:
    """Raises `InputError` for an option of columns that the data do not have. Where they are
    `tabled`, features are columns of tables."""
    of_nodes, graph = data.feature_columns, data.graph
    every = [*of_nodes.values()] if isinstance(of_nodes, dict) else [of_nodes]
    found = [own for own in (*every, data.edge_feature_columns) if own is not None]
    kinds = {column.kind for own in found for column in own.columns}
    moments = data.label_table, data.link_table, graph.edge_time, graph.node_time
    labels = data.labels, data.label_table, graph.edge_columns.get("label")
    timed, labelled = (any(each is not None for each in own) for own in (moments, labels))
    there = {
        "time_unit": (None, "times", timed),
        "time_scale": (Clock.time_scale, "times", timed),
        "label_kind": (None, "labels", labelled),
        "standardize": (False, "numbers", not tabled or "standard" in kinds),
        "max_categories": (ColumnRule.max_categories, "text", bool(kinds & {*TEXT})),
    }
    for option, (usual, what, has) in there.items():
        if not has and options.get(option, usual) != usual:
            raise InputError(
                f"the option {option} of the data set {name} must be of columns of {what}",
                f"{option}={options[option]} and no such column",
                "Leave it out.",
            )


def _keywords(reader: partial) -> dict[str, Any]:
    """The types of a reader's keyword-only arguments, also of a `TypedDict`'s fields."""
    found = inspect.signature(reader.func, eval_str=True).parameters.values()
    own = {each.name: each.annotation for each in found if each.kind is each.KEYWORD_ONLY}
    for each in found:
        if get_origin(each.annotation) is Unpack:
            own |= get_type_hints(*get_args(each.annotation))
    return own


def _fields(record: Any) -> dict[str, Any]:
    kinds = get_type_hints(record)
    return {name: kinds[name] for name in inspect.signature(record).parameters}


def _options(keywords: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in keywords.items():
        found |= _options(_fields(kind)) if kind in _RECORDS else {name: kind}
    return found


def _arguments(keywords: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return {
        name: kind(**_arguments(_fields(kind), options)) if kind in _RECORDS else options[name]
        for name, kind in keywords.items()
        if kind in _RECORDS or name in options
    }


def _checked(name: str, option: str, value: Any, annotation: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    kinds = get_args(annotation) or (annotation,)
    # To Python a bool is an int, but here it is not. An int is accepted as a float.
    fits = bool in kinds if isinstance(value, bool) else isinstance(value, kinds)
    if fits or (float in kinds and type(value) is int):
        return value
    words = ["None" if k is NoneType else k.__name__ for k in kinds]
    raise InputError(
        f"the option {option} of the data set {name} must be of type {' or '.join(words)}",
        " ".join(repr(value).split()),
        "Correct it or leave it out.",
    )


def _reader_of_path(name: str, root: Path, options: dict[str, Any]) -> tuple[Any, partial]:
    """The format of the file or folder `name`, relative to the working directory or to `root`,
    and what reads it. The option `layout` names one whatever the files look like, and is taken
    out of `options`. Raises `InputError`."""
    for form in LAYOUTS.values():
        if name.startswith(getattr(form, "SCHEMES", ())):
            return form, partial(form.read, name)
    places = (Path(name), root / name, root / f"{name}.npz")
    path = next((place for place in places if place.exists()), None)
    if path is None:
        raise InputError(
            f"a data set must be one of {', '.join(LOADERS)}, or a path",
            repr(name),
            f"Correct the name; there is no such file or folder, here or in {root}.",
        )
    if "layout" in options:
        layout = options.pop("layout")
        check_choice("the option layout", layout, LAYOUTS)
        return LAYOUTS[layout], partial(LAYOUTS[layout].read, path)
    groups = _FOLDERS if path.is_dir() else _FILES
    others = [each for each in LAYOUTS if not any(each in group for group in groups)]
    for group in (*groups, others) if path.is_dir() else (others, *groups):
        found = [each for each in group if _recognises(LAYOUTS[each], path, options)]
        if len(found) > 1 and path.is_dir() and group is not others:
            raise _not_one(path, len(found))
        if len(found) > 1:
            raise InputError(
                f"{path} must be of one layout",
                " or ".join(found),
                f"Say which by --data-options layout={found[0]}.",
            )
        if found:
            return LAYOUTS[found[0]], partial(LAYOUTS[found[0]].read, path)
    if path.is_dir():
        raise _not_one(path, 0)
    raise InputError(
        "a data set's file must end in .npz or, for an edge list, "
        f"{', '.join(FORMATS['snap'].ENDINGS)}, or begin with out.",
        path,
        "Rename it, or name the folder it is in.",
    )


def _recognises(form: Any, path: Path, options: dict[str, Any]) -> bool:
    """Whether a path may be of a format, which must let those columns be named."""
    named = set(_COLUMNS) & set(options)
    if named and not named <= {*_options(_keywords(partial(form.read)))}:
        return False
    asks = getattr(form, "recognises_named", None) if "columns" in named else None
    if asks := asks or getattr(form, "recognises", None):
        return asks(path)
    return path.name.endswith(form.ENDINGS) and path.is_file()


def _not_one(folder: Path, count: int) -> InputError:
    return InputError(
        f"{folder} must hold one data set: a saved one, tables of nodes and edges, tables "
        "nodes_<type> and edges_<type>_<relation>_<type>, features.npy and an edge list, "
        "raw/edge.csv.gz, raw/data.npz, raw/triplet-type-list.csv.gz, ind.*.graph, "
        "adj_full.npz, *-G.json, reddit_data.npz, or labels.npy and edges such as pa.txt",
        f"{count} of them",
        "Name the one that is meant, or the right folder.",
    )
