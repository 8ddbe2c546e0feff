"""Folders that `Dataset.save` or `jgs.data.build` wrote."""

from __future__ import annotations

from pathlib import Path

from jgs.data.dataset import Dataset
from jgs.data.splits import SplitRule
from jgs.files.storage import MANIFEST


def recognises(path: Path) -> bool:
    """Whether it is a folder with a manifest."""
    return (path / MANIFEST).is_file()


def read(path: Path, *, verify: bool = True, drawn: SplitRule) -> Dataset:
    """The data set in the folder, memory-mapped. `verify` is that of `Dataset.open`. Raises
    `InputError`."""
    return drawn.of(Dataset.open(path, verify))
