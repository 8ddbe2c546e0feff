"""`load_plain`: a graph, for which features, labels and a split are optional."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jgs.data import layouts
from jgs.data.dataset import Dataset, Plain

__all__ = ["Plain", "load_plain", "load_whole"]


def load_plain(name: str | os.PathLike, root: str | os.PathLike, **options: Any) -> Plain:
    """The graph of the data set `name`, with its labels and its split if it has them.

    It may be any data set of `jgs.data.load`, and any of a format of `jgs.data.layouts` without
    labels or a split: a table of edges, a list of edges or of events, an `.npz` archive of
    edges. An edge list of two columns without arrays beside it has edges that all go both ways,
    once.

    Raises `InputError`.
    """
    return layouts.read(os.fspath(name), Path(root), options, labelled=False)


def load_whole(name: str | os.PathLike, root: str | os.PathLike, **options: Any) -> Dataset:
    """What `load_plain` returns where that is a data set, or else the data set that
    `Plain.dataset` makes of it. Raises `InputError`."""
    found = load_plain(name, root, **options)
    return found if isinstance(found, Dataset) else found.dataset()
