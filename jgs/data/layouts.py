"""`FORMATS`: the table of all formats, each a module of `jgs.data.formats`. Another format is a
module there and a line here.

A module has some of these:

  `NAMES`: what each data set is that has a name and this format, for `jgs data list`.
  `load(name, root, **options)`: the named `Dataset`, where it has more than one place or is
    fetched. Without it the named one is what `read` makes of `<root>/<name>`.
  `recognises(path)`: whether the file or the folder may be of the format, by its name and first
    lines. `LAYOUTS` are the formats that have it.
  `read(path, **options)`: the graph as `Plain`. Raises `InputError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from jgs.data.dataset import Dataset, Plain
from jgs.errors import InputError, check_choice

FORMATS: dict[str, Any] = {
    name: import_module(f"jgs.data.formats.{module}")
    for name, module in {
        "synthetic": "synthetic",
        "planetoid": "planetoid",
        "npz": "npz",
        "typed-npz": "typed",
        "ogb": "ogb",
        "ogb-typed": "ogb_typed",
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
    }.items()
}
LAYOUTS = {name: each for name, each in FORMATS.items() if hasattr(each, "recognises")}
"""The layouts of public files, which are known by their files."""

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


def reader_of(path: Path, options: dict[str, Any]) -> Callable[..., Plain] | None:
    """What reads `path`, where it has one of `LAYOUTS`, or None.

    The option `layout` names one whatever the files look like, and is taken out of `options`.
    A file whose columns the user names is a table of edges, unless the layout lets columns be
    named. Raises `InputError` for a path that may be of several layouts.
    """
    if "layout" in options:
        name = options.pop("layout")
        check_choice("the option layout", name, LAYOUTS)
        return partial(LAYOUTS[name].read, path)
    named = set(_COLUMNS) & set(options)
    found = [
        name
        for name, layout in LAYOUTS.items()
        if named <= set(inspect.signature(layout.read).parameters) and layout.recognises(path)
    ]
    if len(found) > 1:
        raise InputError(
            f"{path} must be of one layout",
            " or ".join(found),
            f"Say which by --data-options layout={found[0]}.",
        )
    return partial(LAYOUTS[found[0]].read, path) if found else None


def reader_of_name(name: str, root: Path) -> Callable[..., Plain] | None:
    """What reads the data set `name` from `<root>/<name>`, where its format has no `load`; or
    None."""
    found = (each for each in LAYOUTS.values() if not hasattr(each, "load"))
    read = next((each.read for each in found if name in getattr(each, "NAMES", ())), None)
    return None if read is None else partial(read, root / name)


def labelled(
    read: Callable[..., Plain], path: Path, needed: bool = True
) -> Callable[..., Dataset]:
    """The function with the options of `read` that returns a data set. Labels and a split must
    be there, if they are `needed`."""

    @wraps(read.func if isinstance(read, partial) else read)
    def loader(_: Path, **options: Any) -> Dataset:
        plain = read(**options)
        if needed and (plain.labels is None or plain.train_idx is None):
            unsplit = plain.labels is not None
            raise InputError(
                "a data set of labelled nodes must have labels and a split of nodes",
                f"{path}, which has {'no split' if unsplit else 'no labels'}",
                "--data-options split=0.6,0.2,0.2 draws train, val and test."
                if unsplit
                else "Train a task of edges, or embed.",
            )
        return plain.dataset()

    return partial(loader, path)
