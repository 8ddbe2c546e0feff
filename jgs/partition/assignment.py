"""A partition that the user has made: the part of each node, from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.files.npy import map_npy
from jgs.graph import Graph
from jgs.partition.nodes import constraint_weights, warn_uneven
from jgs.partition.weights import part_loads


def open_assignment(path: str | os.PathLike) -> np.ndarray:
    """The array `[N]` of a `.npy` file, of any integer dtype, memory-mapped. Raises
    `InputError`."""
    try:
        array = map_npy(Path(path))
    except (OSError, ValueError) as error:
        raise InputError(
            "an assignment must be a .npy file of integers",
            " ".join(str(error).split()) or repr(path),
            "Write it with numpy.save.",
        ) from None
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InputError(
            "an assignment must be one-dimensional integers",
            f"{array.dtype}{list(array.shape)}",
            "Give the part of each node, in the order of the data set's ids.",
        )
    return array


def checked_assignment(
    given: np.ndarray,
    graph: Graph,
    num_parts: int,
    *,
    train_idx: Any,
    val_idx: Any,
    test_idx: Any,
) -> np.ndarray:
    """int32 `[N]`: the part of each node as `given`. No node is moved, and a part may be empty.

    Raises `InputError` unless each node has a part in `[0, num_parts)`. Warns of uneven parts,
    as `partition_nodes` does.
    """
    if given.size != graph.num_nodes:
        raise InputError(
            f"an assignment must have a part for each of the {graph.num_nodes:,} nodes",
            f"{given.size:,}",
            "Give the part of each node, in the order of the data set's ids.",
        )
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= num_parts:
        raise InputError(
            f"an assignment's parts must be in [0, {num_parts})",
            f"{low} to {high}",
            "Correct them, or --parts.",
        )
    parts = given.astype(np.int32)
    weights = constraint_weights(graph, train_idx, val_idx, test_idx)
    warn_uneven(part_loads(parts, weights, num_parts))
    return parts
