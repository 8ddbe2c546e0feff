"""The rows that exact evaluation reads and writes: on the device, in memory, on the disk."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jgs.ops
from jgs.errors import InputError
from jgs.graph import SparseFeatures, as_device

# Rows of nodes: on the device, in one table or several; or (NumPy) fetched from the host chunk
# by chunk.
Rows = jax.Array | tuple[jax.Array, ...] | SparseFeatures | np.ndarray

_gather = jax.jit(jgs.ops.gather)


def as_rows(features: Any) -> Rows:
    """One rank's features, a matrix, several or `SparseFeatures`, on the device."""
    if isinstance(features, SparseFeatures):
        return features
    if not isinstance(features, Sequence):
        return as_device(features)
    tables = tuple(map(as_device, features))
    return tables[0] if len(tables) == 1 else tables


def width_of(rows: Rows) -> int:
    return (rows[0] if isinstance(rows, tuple) else rows).shape[1]


def take(rows: Rows, ids: np.ndarray) -> jax.Array:
    """float32 `[len(ids), F]`; zeros for ids from the number of rows on."""
    if not isinstance(rows, np.ndarray):
        return _gather(rows, ids)
    real = ids < len(rows)
    return jnp.asarray(np.where(real[:, None], rows[np.where(real, ids, 0)], 0), jnp.float32)


def padded(ids: np.ndarray, size: int, value: int) -> np.ndarray:
    """`ids` and then `value`, `size` in all."""
    return np.pad(ids, (0, size - len(ids)), constant_values=value)


def empty(shape: tuple[int, int], memory: int, scratch: Path | None) -> np.ndarray:
    """Float32, in memory if it fits, else in an unnamed file in `scratch`, by default the
    system's folder for them.

    The file's room is reserved first: of a map that the disk cannot hold, a write would end the
    process. Raises `InputError` where there is too little.
    """
    size = 4 * shape[0] * shape[1]
    if size <= memory:
        return np.empty(shape, np.float32)
    folder = tempfile.gettempdir() if scratch is None else scratch
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # the map outlives name and file
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, np.float32, "w+", shape=shape)
    except OSError as error:
        raise _no_room(error, folder, size) from None


def _no_room(error: OSError, folder: Any, size: int) -> InputError:
    found = str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = min(_free(folder), size)
        found = f"{free >> 20} MiB free, {_mib(size - free)} MiB too few ({error.strerror})"
    return InputError(
        f"evaluation must have room for {_mib(size)} MiB in {folder}: a layer's rows exceed "
        "its working memory",
        found,
        "Free space there, choose another disk by TMPDIR (in training by --run-dir), or keep "
        f"the rows in memory with --eval-memory {_mib(size)} or more.",
    )


def _free(folder: Any) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _mib(size: int) -> int:
    return -(-size >> 20)
