"""`load_plain`: a graph, for which features, labels and a split are optional."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data import LOADERS, call_loader, layouts, load, path_of
from jgs.data.dataset import Dataset, Plain
from jgs.data.edges import simple_symmetric_graph
from jgs.data.formats import jodie, npz, ogb_links, tables, temporal, typed_tables
from jgs.data.formats.snap import is_edge_list, read_edges
from jgs.data.formats.typed import is_typed
from jgs.data.text import first_line, first_row
from jgs.errors import InputError
from jgs.files import storage
from jgs.files.storage import MANIFEST

__all__ = ["Plain", "load_plain", "load_whole"]

_log = logging.getLogger("jgs")


def load_plain(name: str | os.PathLike, root: str | os.PathLike, **options: Any) -> Plain:
    """The graph of the data set `name`, with its labels and its split if it has them.

    It may be any data set of `jgs.data.load`. Here it may also be:
      an `.npz` archive as in `jgs.data.formats.npz` without features or without a split, with
        the option `symmetric` of `Graph.from_npz`;
      an edge list without arrays beside it, whose edges then all go both ways, once;
      a list of events as SNAP (`jgs.data.formats.temporal`) or JODIE (`jgs.data.formats.jodie`)
        has them;
      a table of edges, or a folder of tables (`jgs.data.formats.tables`), also of node types
        (`jgs.data.formats.typed_tables`);
      a file or a folder in one of the layouts of public files (`jgs.data.layouts`);
      a folder of OGB's link data sets (`jgs.data.formats.ogb_links`).

    Raises `InputError`.
    """
    found = _load(name, root, options)
    return found if isinstance(found, Plain) else Plain.of(found)


def load_whole(
    name: str | os.PathLike, root: str | os.PathLike, **options: Any
) -> tuple[Plain, Dataset]:
    """What `load_plain` returns, and a data set of it: that of `jgs.data.load`, or else that of
    `Plain.dataset`. Raises `InputError`."""
    found = _load(name, root, options)
    if isinstance(found, Plain):
        return found, found.dataset()
    return Plain.of(found), found


def _load(
    name: str | os.PathLike, root: str | os.PathLike, options: dict[str, Any]
) -> Plain | Dataset:
    name = os.fspath(name)
    given = dict(options)
    loader = layouts.reader_of_name(name, Path(root))
    if name not in LOADERS and (path := path_of(name, Path(root))) is not None:
        loader = _loader(path, given)
    if loader is None:
        return load(name, root, **options)
    options = given
    return call_loader(name, loader, options)


def _loader(path: Path, options: dict[str, Any]) -> Callable[..., Plain] | None:
    """What loads data of which `jgs.data.load` needs more, or None. The option `layout` is
    taken out of `options`."""
    has_columns = "columns" in options  # the user says what the columns of a text file are
    early = "layout" in options or not path.is_dir()
    if early and (read := layouts.reader_of(path, options)) is not None:
        return read
    if path.is_dir():
        if ogb_links.is_links(path):
            return partial(ogb_links.load_folder, path)
        if any((path / name).exists() for name in (MANIFEST, "features.npy")):
            return None
        if tables.is_edge_table(path):
            return partial(tables.load_plain, path)
        if typed_tables.is_typed_tables(path):
            return partial(typed_tables.load_plain, path)
        return layouts.reader_of(path, options)
    if path.suffix == ".npz" and not is_typed(path):
        with storage.open_npz(path) as archive:
            complete = {"train_idx", "test_idx", "val_idx", "labels"} <= set(archive)
        return None if complete else partial(npz.load_plain, path)
    if path.suffix != ".npz" and not has_columns:
        if jodie.is_jodie(path):
            return partial(jodie.load_plain, path)
        if temporal.is_trust(path):
            return partial(temporal.load_trust, path)
    alone = is_edge_list(path) and not (path.parent / "labels.npy").exists()
    if alone and temporal.is_list(path, has_columns):
        return partial(temporal.load_plain, path)
    if path.suffix != ".npz" and (has_columns or tables.is_edge_table(path)):
        return partial(tables.load_plain, path)
    if alone:
        return partial(_edge_list, path)
    return None


def _edge_list(path: Path) -> Plain:
    if (width := len(first_row(path, b"%").split())) > 2 and first_line(path)[:1] == b"%":
        asked = ",".join(["src", "dst", "weight", "time"][:width])
        left = "edges go both ways, and the columns behind their ends are not read"
        _log.warning("%s: %s; --data-options columns=%s reads all as listed", path, left, asked)
    rows = [*read_edges(path)]
    edges = np.concatenate(rows) if rows else np.empty((0, 2), np.int64)
    if edges.size == 0 or edges.min() < 0 or edges.max() >= 2**31 - 1:
        raise InputError(
            f"{path} must have edges between nodes numbered from 0",
            "no edge" if edges.size == 0 else f"{edges.min()} to {edges.max()}",
            "Renumber the nodes.",
        )
    graph = simple_symmetric_graph(edges[:, 0], edges[:, 1], int(edges.max()) + 1)
    return Plain(path.name.removeprefix("out.").partition(".")[0], graph, None, None, None)
