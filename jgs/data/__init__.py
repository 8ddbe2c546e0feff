"""Data sets: `load` one by name or path. Each format is one small file of this package."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import numpy as np

from jgs.data import layouts
from jgs.data.building.build import build
from jgs.data.columns import FeatureColumn, FeatureColumns
from jgs.data.dataset import Dataset
from jgs.data.formats import (
    dgl_reddit,
    graphsage,
    graphsaint,
    heco,
    jodie,
    npz,
    ogb,
    ogb_typed,
    planetoid,
    snap,
    tables,
    temporal,
    typed,
    typed_tables,
)
from jgs.data.label_table import LabelTable, label_files
from jgs.data.layouts import LOADERS
from jgs.data.random_split import SplitRule, split_nodes
from jgs.errors import InputError
from jgs.files.storage import MANIFEST

__all__ = [
    "LOADERS",
    "Dataset",
    "FeatureColumn",
    "FeatureColumns",
    "LabelTable",
    "build",
    "load",
    "split_nodes",
]


def load(name: str | os.PathLike, root: str | os.PathLike = "data", **options: Any) -> Dataset:
    """The data set `name`, checked.

    Args:
      name: a name in `LOADERS`; or a path, relative to the working directory or to `root`, of
        an `.npz` archive (`jgs.data.formats.npz`, or `jgs.data.formats.typed` for node types),
        of an edge list of SNAP or KONECT (`jgs.data.formats.snap`), or of a folder. A folder is
        one that `Dataset.save` wrote, one with tables of nodes and edges
        (`jgs.data.formats.tables`; `jgs.data.formats.typed_tables` for node types), or one in
        the layout of SNAP, OGB, Planetoid, HeCo, GraphSAINT (`jgs.data.formats.graphsaint`),
        GraphSAGE (`graphsage`) or DGL's Reddit (`dgl_reddit`). Its files decide which one it
        is; the file `<prefix>-G.json` names one of several in GraphSAGE's layout. The layouts
        of `jgs.data.layouts` are read too, where they have labels. Events are a
        data set too: an archive with `edge_time`, or a file as SNAP
        (`jgs.data.formats.temporal`) and JODIE (`jgs.data.formats.jodie`) have them. Without
        labels all nodes are for training and have the label 0.
      root: the folder with data sets, to which they are also downloaded. `synthetic` needs
        none.
      options: `layout`, a name in `jgs.data.layouts.LAYOUTS`, whatever a path looks like; and
        options of the loader, for instance `num_nodes`, `seed` and `noise` of
        `synthetic`, `symmetric` of an archive (adds each edge's reverse), `normalize_features`
        of `cora`, and `split` of both ("full": all nodes outside the validation and test splits
        train). Of tables and of folders that `Dataset.save` or `build` wrote, `split`,
        `stratify` and `split_seed` draw splits ("0.6,0.2,0.2", as `split_nodes` does).

    Raises `InputError` for an option that the loader lacks or whose value is not of the
    declared type, and for data that is missing, damaged or against the rules of `Dataset`.
    """
    name, root, options = os.fspath(name), Path(root), dict(options)
    if (read := layouts.reader_of_name(name, root)) is not None:
        loader = layouts.labelled(read, root / name)
    elif name in LOADERS:
        loader = partial(LOADERS[name], name, root)
    else:
        loader = _loader_of_path(name, root, options)
    return call_loader(name, loader, options)


def call_loader(name: str, loader: Callable[..., Any], options: dict[str, Any]) -> Any:
    """What `loader`, a function of keyword arguments, makes of the `options` of the data set
    `name`. Raises `InputError` as `load` does."""
    allowed = {
        p.name: p.annotation
        for p in inspect.signature(loader, eval_str=True).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    if unknown := sorted(set(options) - set(allowed)):
        raise InputError(
            f"the options of the data set {name} are {', '.join(allowed)}",
            ", ".join(unknown),
            "Correct or remove them.",
        )
    options = {k: _checked(name, k, v, allowed[k]) for k, v in options.items()}
    try:
        return loader(**options)
    except MemoryError as error:
        raise InputError(
            f"the data set {name} must fit in memory while it is read",
            " ".join(str(error).split()) or "too little",
            "Free memory, or correct the sizes that its files and options state.",
        ) from None


def _checked(name: str, option: str, value: Any, annotation: Any) -> Any:
    """`value`, with a NumPy scalar as Python's; raises `InputError` unless its type is allowed
    by `annotation`."""
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


def path_of(name: str, root: Path) -> Path | None:
    """The file or folder that `name` means, relative to the working directory or to `root`;
    None if there is none."""
    places = (Path(name), root / name, root / f"{name}.npz")
    return next((place for place in places if place.exists()), None)


def _loader_of_path(name: str, root: Path, options: dict[str, Any]) -> Callable[..., Dataset]:
    path = path_of(name, root)
    if path is None:
        raise InputError(
            f"a data set must be one of {', '.join(LOADERS)}, or a path",
            repr(name),
            f"Correct the name; there is no such file or folder, here or in {root}.",
        )
    if path.is_dir():
        return _loader_of_folder(path, options)
    if (read := layouts.reader_of(path, options)) is not None:
        return layouts.labelled(read, path)
    if path.name.endswith(graphsage.GRAPH):
        prefix = path.name.removesuffix(graphsage.GRAPH)
        return partial(graphsage.load_folder, prefix, path.parent)
    if path.suffix == ".npz" and npz.is_events(path):
        return layouts.labelled(partial(npz.load_plain, path), path, needed=False)
    if path.suffix == ".npz":
        archive = typed if typed.is_typed(path) else npz
        return partial(archive.load, path.stem, path.parent)
    if jodie.is_jodie(path):
        return layouts.labelled(partial(jodie.load_plain, path), path, needed=False)
    if temporal.is_trust(path):
        return layouts.labelled(partial(temporal.load_trust, path), path, needed=False)
    if temporal.is_list(path) and not (path.parent / "labels.npy").exists():
        return layouts.labelled(partial(temporal.load_plain, path), path, needed=False)
    if snap.is_edge_list(path):
        return partial(snap.load, path.name, path.parent)
    if tables.is_edge_table(path):
        raise InputError(
            "a data set of labelled nodes must have a table of them beside that of edges",
            path,
            "Make a folder of edges and nodes (jgs.data.formats.tables), or train a task of "
            "edges, or embed.",
        )
    raise InputError(
        f"a data set's file must end in .npz or, for an edge list, {', '.join(snap.ENDINGS)}, "
        "or begin with out.",
        path,
        "Rename it, or name the folder it is in.",
    )


def _loader_of_folder(folder: Path, options: dict[str, Any]) -> Callable[..., Dataset]:
    if (folder / MANIFEST).is_file() and "layout" not in options:
        return partial(_load_saved, folder)
    found: list[Callable[..., Dataset]] = []
    if any((folder / "raw" / file).is_file() for file in ("edge.csv.gz", "data.npz")):
        found.append(partial(ogb.load_folder, folder))
    if ogb_typed.is_typed_ogb(folder):
        found.append(partial(ogb_typed.load_folder, folder))
    for inner in (folder, folder / "raw"):
        for graph in sorted(inner.glob("ind.*.graph")):
            name = graph.name.removeprefix("ind.").removesuffix(".graph")
            found.append(partial(planetoid.load_folder, name, inner))
        for graph in sorted(inner.glob(f"*{graphsage.GRAPH}")):
            prefix = graph.name.removesuffix(graphsage.GRAPH)
            found.append(partial(graphsage.load_folder, prefix, inner))
        if graphsaint.is_graphsaint(inner):
            found.append(partial(graphsaint.load_folder, folder.resolve().name, inner))
        if dgl_reddit.is_dgl_reddit(inner):
            found.append(partial(dgl_reddit.load_folder, folder.resolve().name, inner))
    if (folder / "features.npy").is_file():
        found.append(partial(snap.load, folder.name, folder.parent))
    if tables.is_tables(folder):
        read: Callable[..., Dataset] = partial(tables.load_folder, folder)
        if label_files(folder):
            read = layouts.labelled(partial(tables.load_plain, folder), folder, needed=False)
        found.append(read)
    if not found and heco.is_heco(folder):
        found.append(partial(heco.load_folder, folder))
    if not found and typed_tables.is_typed_tables(folder):
        found.append(partial(typed_tables.load_folder, folder))
    if not found or "layout" in options:
        read_layout = layouts.reader_of(folder, options)
        if read_layout is not None:
            return layouts.labelled(read_layout, folder)
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one data set: a saved one, tables of nodes and edges, tables "
            "nodes_<type> and edges_<type>_<relation>_<type>, features.npy and an edge list, "
            "raw/edge.csv.gz, raw/data.npz, raw/triplet-type-list.csv.gz, ind.*.graph, "
            "adj_full.npz, *-G.json, reddit_data.npz, or labels.npy and edges such as pa.txt",
            f"{len(found)} of them",
            "Name the one that is meant, or the right folder.",
        )
    return found[0]


def _load_saved(
    folder: Path,
    *,
    verify: bool = True,
    split: str | None = None,
    stratify: bool = False,
    split_seed: int = 0,
) -> Dataset:
    return SplitRule(split, stratify, split_seed).of(Dataset.open(folder, verify))


def __dir__() -> list[str]:
    return __all__
