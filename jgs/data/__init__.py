"""Data sets: `load` one by name or path. Each format is one small file of this package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jgs.data import layouts
from jgs.data.building.build import build
from jgs.data.columns import FeatureColumn, FeatureColumns
from jgs.data.database.database import Database
from jgs.data.dataset import Dataset
from jgs.data.label_table import LabelTable, LinkTable
from jgs.data.layouts import LOADERS
from jgs.data.splits import split_nodes

__all__ = [
    "LOADERS",
    "Database",
    "Dataset",
    "FeatureColumn",
    "FeatureColumns",
    "LabelTable",
    "LinkTable",
    "build",
    "load",
    "split_nodes",
]


def load(name: str | os.PathLike, root: str | os.PathLike = "data", **options: Any) -> Dataset:
    """The data set `name`, checked.

    Args:
      name: a name in `LOADERS`; or a path, relative to the working directory or to `root`, of
        a file or a folder in one of the formats of `jgs.data.layouts.FORMATS`, whose modules
        specify them: an `.npz` archive, an edge list, a list of events, or a folder that
        `Dataset.save` wrote, that has tables of nodes and edges, or that is laid out as public
        data sets are. Its files decide which one it is. It must have labels and a split of
        nodes, but for events: without labels all nodes are for training and have the label 0.
      root: the folder with data sets, to which they are also downloaded. `synthetic` needs
        none.
      options: `layout`, a name in `jgs.data.layouts.LAYOUTS`, whatever a path looks like; and
        options of the format, for instance `num_nodes`, `seed` and `noise` of `synthetic`,
        `symmetric` of an archive (adds each edge's reverse), `normalize_features` of `cora`,
        and `split` of both ("full": all nodes outside the validation and test splits train).
        Of tables and of folders that `Dataset.save` or `build` wrote, `split`, `stratify` and
        `split_seed` draw splits ("0.6,0.2,0.2", as `split_nodes` does).

    Raises `InputError` for an option that the format lacks or whose value is not of the
    declared type, and for data that is missing, damaged or against the rules of `Dataset`.
    """
    found = layouts.read(os.fspath(name), Path(root), options, labelled=True)
    assert isinstance(found, Dataset)
    return found


def __dir__() -> list[str]:
    return __all__
