"""The rows that exact evaluation reads and writes: on the device, in memory, on the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.ops
from jgs.devices import host_device, to_device
from jgs.errors import InputError
from jgs.files.row_file import RowFiles, part_of_mapped
from jgs.graph import Schema, as_device
from jgs.graph.device import aligned_empty
from jgs.graph.row_tables.table import RowTable, as_table, plain
from jgs.train.evaluation.spilled import Spilled, scratch_file

# Rows of nodes: JAX arrays lie on the device, in one table or several. A NumPy array lies on
# the host, and chunks of it are copied to the device. `OnDisk` lies in files.
OnDisk = RowFiles | Spilled
Rows = jax.Array | tuple[jax.Array, ...] | RowTable | np.ndarray | OnDisk

_gather = jax.jit(jgs.ops.gather)


def as_rows(features: Any) -> Rows:
    """One rank's features on the host: a matrix, several matrices, or another `RowTable`."""
    features = plain(as_table(features))
    leaves = jax.tree.leaves(features)
    if all(isinstance(leaf, jax.Array) for leaf in leaves):
        here = {device for leaf in leaves for device in leaf.devices()}
        return features if here == {host_device()} else to_device(features, host_device())
    return jax.tree.map(as_device, features)


def on_disk(features: Any, most: int) -> RowFiles | None:
    """The files of one rank's features, a matrix or several, where these are memory-mapped and
    exceed `most` bytes; None for others."""
    tables = features if isinstance(features, Sequence) else [features]
    matrices = [t for t in tables if isinstance(t, jax.Array | np.ndarray) and t.ndim == 2]
    kinds = {(table.shape[1], table.dtype) for table in matrices}
    if len(matrices) < len(tables) or len(kinds) != 1:
        return None
    if sum(table.nbytes for table in matrices) <= most:
        return None
    found = [part_of_mapped(table) for table in matrices]
    parts = [part for part in found if part is not None]
    ((width, dtype),) = kinds
    return RowFiles(parts, width, dtype) if len(parts) == len(found) else None


def take(rows: Rows, ids: np.ndarray) -> jax.Array:
    """float32 `[len(ids), F]`: the rows of `ids`; zeros for ids of no row. The ids ascend, each
    once, but for those of no row."""
    if isinstance(rows, OnDisk):
        (num, width), size = rows.shape, len(ids)
        ids = ids[: np.searchsorted(ids, num)]
        room = aligned_empty(size * width, np.float32).reshape(size, width)
        found = room if rows.dtype == np.float32 else np.empty((len(ids), width), rows.dtype)
        rows.read(ids, found)
        room[: len(ids)], room[len(ids) :] = found[: len(ids)], 0
        return as_device(room)
    if not isinstance(rows, np.ndarray):
        return _gather(rows, jax.device_put(ids))
    real = ids < len(rows)
    found = np.where(real[:, None], rows[np.where(real, ids, 0)], np.float32(0))
    return jax.device_put(found.astype(np.float32, copy=False))


@partial(jax.jit, static_argnames=("graphdef", "schema"))
def project(
    graphdef: Any, params: Any, features: Any, ids: jax.Array, own: jax.Array, schema: Schema
) -> jax.Array:
    """float32 `[len(ids), W]`: the input rows of a typed model, `model.inputs`, for the nodes
    `ids` of a graph of `schema`. `own` are their rows in `features`. Zeros for ids of no node.
    """
    inputs = nnx.merge(graphdef, params).inputs
    kind, place = schema.type_and_place(ids)
    rows = jgs.ops.gather(features, own)
    if as_table(features).schema is not None:
        # A node without features has no row in its rank's tables. Its place names it.
        bare = jnp.array([table is None for table in features.tables])[kind]
        rows = rows._replace(place=jnp.where(bare, place, rows.place))
        if inputs.needs_rows:  # the tables of types without features are learned rows
            learned, tables = jnp.float32(0), list(rows.tables)
            for number, width in enumerate(inputs.in_features):
                if not width:
                    own = jnp.where(rows.kind == number, rows.place, -1)
                    learned, tables[number] = (
                        learned + jgs.ops.gather(tables[number], own),
                        None,
                    )
            rows = rows._replace(tables=tuple(tables), learned=learned)
    return inputs(rows, kind)


def padded(ids: np.ndarray, size: int, value: int) -> np.ndarray:
    """`ids` followed by copies of `value`, `size` numbers in all."""
    return np.pad(ids, (0, size - len(ids)), constant_values=value)


def empty(shape: tuple[int, int], memory: int, scratch: Path | None) -> np.ndarray:
    """An uninitialised float32 array: in memory if it takes at most `memory` bytes, else in a
    `scratch_file`."""
    size = 4 * shape[0] * shape[1]
    if size <= memory:
        return np.empty(shape, np.float32)
    with scratch_file(size, scratch) as file:  # the map stays after the file's close
        return np.memmap(file, np.float32, "w+", shape=shape)


def scratch_folder(folder: str) -> Path:
    """The folder of `--scratch`, made where it is missing. Raises `InputError` where it takes
    no files, so that a run fails before its first epoch and not at the end of it."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Path(folder)
    except OSError as error:
        raise InputError(
            "--scratch must be a folder that takes files",
            error,
            "Name one with room that you may write.",
        ) from None
