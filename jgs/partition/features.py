"""Writing the features of all parts in one pass over the features of the data set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from jgs.files.storage import ArrayFile
from jgs.graph.features import SparseFeatures
from jgs.graph.rows import offsets_of_rows, row_chunks, row_positions

_BYTES_AT_ONCE = 1 << 26  # bounds the temporaries
_OPEN_AT_ONCE = 256  # parts; a process may have about a thousand open files


def write_features(
    folders: list[Path], features: Any, assignment: np.ndarray, counts: np.ndarray
) -> list[dict[str, Any]]:
    """Makes each part's folder and writes its rows of `features`, in their order.

    Args:
      folders: a folder for each part; they must not exist.
      features: an array `[N, F]` or `SparseFeatures`. It is read from front to back, once for
        every 256 parts.
      assignment: int32 `[N]`, the part of each node.
      counts: int64 `[P]`, the number of nodes in each part.

    Returns for each part the entry `arrays` of its folder's manifest. Raises `OSError`.
    """
    for folder in folders:
        folder.mkdir()
    sparse = isinstance(features, SparseFeatures)
    write = _write_sparse if sparse else _write_dense
    found: list[dict[str, Any]] = []
    for first in range(0, len(folders), _OPEN_AT_ONCE):
        group = slice(first, first + _OPEN_AT_ONCE)
        found += write(folders[group], features, assignment, counts[group], first)
    return found


def _write_dense(folders, features, assignment, counts, first_part) -> list[dict[str, Any]]:
    features = np.asanyarray(features)
    size = max(1, _BYTES_AT_ONCE // max(1, features[:1].nbytes))
    with ExitStack() as stack:
        files = [
            stack.enter_context(
                ArrayFile(folder, "features", (int(n), *features.shape[1:]), features.dtype)
            )
            for folder, n in zip(folders, counts, strict=True)
        ]
        for at in range(0, len(features), size):
            rows = np.asarray(features[at : at + size])
            for file, mine in zip(
                files, _by_part(assignment[at : at + size], first_part, len(files)), strict=True
            ):
                if mine.size:
                    file.append(rows[mine])
    return [{"features": file} for file in files]


def _write_sparse(folders, features, assignment, counts, first_part) -> list[dict[str, Any]]:
    old = np.asarray(features.indptr)
    entries = {
        f"features_{name}": np.asarray(getattr(features, name))
        for name in ("indices", "values")
    }
    indptrs = [
        offsets_of_rows(old, np.flatnonzero(assignment == part))
        for part in range(first_part, first_part + len(folders))
    ]
    with ExitStack() as stack:
        files = [
            {
                name: stack.enter_context(
                    ArrayFile(folder, name, (int(indptr[-1]),), source.dtype)
                )
                for name, source in entries.items()
            }
            for folder, indptr in zip(folders, indptrs, strict=True)
        ]
        for first, stop in row_chunks(old):
            own = _by_part(assignment[first:stop], first_part, len(files))
            for part, mine in zip(files, own, strict=True):
                if mine.size:
                    positions = row_positions(old, first + mine)
                    for name, file in part.items():
                        file.append(entries[name][positions])
    return [
        {"features_indptr": indptr, **part} for indptr, part in zip(indptrs, files, strict=True)
    ]


def _by_part(assignment: np.ndarray, first_part: int, num_parts: int) -> Iterator[np.ndarray]:
    """For each part in turn the positions of its nodes, ascending."""
    order = np.argsort(assignment, kind="stable")
    parts = np.arange(first_part, first_part + num_parts + 1)
    bounds = np.searchsorted(assignment[order], parts)
    for begin, end in pairwise(bounds):
        yield order[begin:end]
