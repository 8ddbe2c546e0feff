"""`LAYOUTS`: the layouts of public files, by name, and which of them a file or a folder has.

Each is a module with two functions. `recognises(path)` says whether the file or the folder may
be of the layout, by its name and first lines. `read(path, **options)` returns the graph as
`Plain`, or raises `InputError`. Another layout is a module of `jgs.data.formats` and a line
here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

from jgs.data.dataset import Dataset, Plain
from jgs.data.formats import (
    geom_gcn,
    gnn_benchmark,
    heterophilous,
    igraph_files,
    konect,
    lightgcn,
    matlab,
    matrix_market,
    metis,
    movielens,
    networkx_lists,
    openke,
    relation_table,
    triples,
)
from jgs.errors import InputError, check_choice

LAYOUTS: dict[str, Any] = {
    "relations": relation_table,
    "geom-gcn": geom_gcn,
    "heterophilous": heterophilous,
    "gnn-benchmark": gnn_benchmark,
    "metis": metis,
    "matrix-market": matrix_market,
    "matlab": matlab,
    "networkx": networkx_lists,
    "igraph": igraph_files,
    "openke": openke,
    "triples": triples,
    "lightgcn": lightgcn,
    "movielens": movielens,
    "konect": konect,
}
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


def labelled(read: Callable[..., Plain], path: Path) -> Callable[..., Dataset]:
    """The function with the options of `read` that returns a data set, for which labels and a
    split must be there."""

    @wraps(read.func if isinstance(read, partial) else read)
    def loader(_: Path, **options: Any) -> Dataset:
        plain = read(**options)
        if plain.labels is None or plain.train_idx is None:
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
