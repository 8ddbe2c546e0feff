"""The files that all contenders read, made once in the cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import graph


def seeds(cache: Path, size: graph.Size) -> Path:
    """A file of int32 `[n]`: the nodes of degree > 0, shuffled.

    Batches are taken from its start.
    """
    return _once(
        cache / f"{size.name}-seeds.npy", lambda: graph.connected_nodes(cache / size.name)
    )


def features(
    cache: Path, size: graph.Size, num_features: int, num_classes: int, name: str = "features"
) -> Path:
    """A folder with `features` float32 `[N, num_features]` and `labels` int32 `[N]`, random.
    Its name ends in `name`, one for each number of features."""
    folder, rng = cache / f"{size.name}-{name}", np.random.default_rng(2)
    num_nodes = 1 << size.scale
    folder.mkdir(parents=True, exist_ok=True)
    _once(
        folder / "features.npy",
        lambda: rng.standard_normal((num_nodes, num_features), np.float32),
    )
    _once(
        folder / "labels.npy",
        lambda: rng.integers(0, num_classes, num_nodes, dtype=np.int32),
    )
    return folder


def edge_types(cache: Path, size: graph.Size) -> Path:
    """A file of int16 `[E]`: 2 if the source is in the upper half of the ids, plus 1 if the
    target is. Rows sorted by source are sorted by this type too."""

    def make() -> np.ndarray:
        indptr, indices = (
            np.load(cache / size.name / f"{name}.npy", mmap_mode="r")
            for name in ("indptr", "indices")
        )
        half = len(indptr) // 2
        types = (indices >= half).astype(np.int16)
        types *= 2
        types[indptr[half] :] += 1
        return types

    return _once(cache / f"{size.name}-types.npy", make)


def _once(path: Path, make: Callable[[], np.ndarray]) -> Path:
    if not path.is_file():
        unfinished = path.with_name(f"{path.stem}.{os.getpid()}.new.npy")
        np.save(unfinished, make())
        unfinished.rename(path)
    return path
