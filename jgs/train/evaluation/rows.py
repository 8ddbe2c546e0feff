"""The rows that exact evaluation reads and writes: on the device, in memory, on the disk."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.ops
from jgs.arrays import aligned_empty
from jgs.devices import host_device, to_device
from jgs.errors import InputError, refusing
from jgs.files.row_file import FilePart, RowFiles, part_of_mapped
from jgs.files.writing import mib, reserve
from jgs.graph import Schema, as_device
from jgs.graph.row_tables.table import RowTable, as_table, plain

_AT_ONCE = 1 << 20  # rows: their numbers take 4 MiB
_GAP = 4  # rows between two rows that are rather written, as zeros, than passed over
_MOST_PARTS = 64  # more of them would read the graph's edges too often


class Spilled:
    """A float32 matrix `[n, W]` in an unnamed file, divided into parts of some columns each.

    A part has its columns of all rows, one row after the other, so that it is read in one go.
    `RowFiles` reads them, past the page cache. `spilled[ids] = rows` writes the rows of `ids`,
    which ascend; those between them become zeros.

    Args:
      shape: `(n, W)`.
      width: the columns in a part, `W` for one part.
      scratch: the folder of the file; None: the system's folder for temporary files.

    Attributes:
      shape, dtype: `(n, W)` and float32.
      columns: a slice for each part, its columns.

    Raises `InputError` where there is too little room; all of it is reserved.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, shape: tuple[int, int], width: int, scratch: Path | None):
        self.shape = shape
        bounds = [*range(0, shape[1], width), shape[1]]
        self.columns = [slice(*pair) for pair in pairwise(bounds)]
        self._begin = [4 * shape[0] * columns.start for columns in self.columns]
        with scratch_file(4 * shape[0] * shape[1], scratch) as file:
            path = Path(file.name)
            self._parts = [
                RowFiles([FilePart(path, begin, shape[0])], part.stop - part.start, self.dtype)
                for begin, part in zip(self._begin, self.columns, strict=True)
            ]
            self._file = open(os.dup(file.fileno()), "wb", buffering=0)  # noqa: SIM115

    @property
    def requests(self) -> int:
        return sum(part.requests for part in self._parts)

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self._parts)

    def __setitem__(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Writes the rows `[n, W]` of `ids`, which ascend. Rows between them become zeros."""
        cuts = np.flatnonzero(np.diff(ids) > _GAP) + 1
        for first, last in pairwise([0, *cuts.tolist(), len(ids)]):
            near, some = ids[first:last], rows[first:last]
            if near[-1] - near[0] + 1 > len(near):
                filled = np.zeros((near[-1] - near[0] + 1, rows.shape[1]), np.float32)
                filled[near - near[0]] = some
                some = filled
            for number, columns in enumerate(self.columns):
                self.write_part(number, int(near[0]), some[:, columns])

    def write_part(self, number: int, first: int, rows: np.ndarray) -> None:
        columns = self.columns[number]
        at = self._begin[number] + 4 * first * (columns.stop - columns.start)
        left = np.ascontiguousarray(rows, np.float32).data.cast("B")
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise InputError(
                "evaluation must be able to write its rows to the disk of --scratch",
                error.strerror,
                "Choose another disk by --scratch (in jgs.predict by TMPDIR).",
            ) from None

    def read(self, ids: np.ndarray, out: np.ndarray) -> None:
        """Reads the rows of `ids`, which ascend, each once, to the first rows of `out`."""
        if len(self._parts) == 1:
            return self._parts[0].read(ids, out)
        for part, columns in zip(self._parts, self.columns, strict=True):
            rows = np.empty((len(ids), part.shape[1]), np.float32)
            part.read(ids, rows)
            out[: len(ids), columns] = rows

    def part(self, number: int) -> jax.Array:
        """float32 `[n, w]`: all rows of a part."""
        part, (num, width) = self._parts[number], self._parts[number].shape
        rows = aligned_empty(num * width, np.float32).reshape(num, width)
        for first in range(0, num, _AT_ONCE):
            ids = np.arange(first, min(first + _AT_ONCE, num), dtype=np.int32)
            part.read(ids, rows[first : first + _AT_ONCE])
        return as_device(rows)


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
    """The files of features that are memory-mapped and exceed `most` bytes; None for others."""
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
    `ids` of a graph of `schema`, whose rows in `features` are `own`. Zeros for ids of no
    node."""
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
    """An uninitialised float32 array, of more than `memory` bytes in a `scratch_file`."""
    size = 4 * shape[0] * shape[1]
    if size <= memory:
        return np.empty(shape, np.float32)
    with scratch_file(size, scratch) as file:  # the map stays after the file's close
        return np.memmap(file, np.float32, "w+", shape=shape)


def scratch_folder(folder: str) -> Path:
    """The folder of `--scratch`, made where it is missing. Raises `InputError` at once where it
    takes no files."""
    remedy = "Name one with room that you may write."
    with refusing(OSError, "--scratch must be a folder that takes files", remedy):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return Path(folder)


def mapped_at_most(memory: int) -> int:
    """The most bytes of rows in a file that is memory-mapped and read at random: `memory`, or
    half of the machine's free memory if that is more. Larger files are read in order."""
    from jgs.partition.memory import machine  # a slow import

    has = machine()
    return sys.maxsize if has is None else max(memory, has.free // 2)


def columns_at_once(num_rows: int, width: int, memory: int) -> int:
    """The columns of a matrix `[num_rows, width]` that three quarters of the memory hold, made
    even among its parts; 0 if there would be too many parts."""
    fit = 3 * memory // (16 * max(num_rows, 1))
    if fit == 0 or -(-width // fit) > _MOST_PARTS:
        return 0
    return -(-width // -(-width // fit))


@contextmanager
def scratch_file(size: int, scratch: Path | None) -> Iterator[Any]:
    """A file in `scratch`, by default in the system's folder for temporary files, whose name
    goes at the end. Its `size` bytes are reserved, because a write to a memory map that the
    disk cannot hold would end the process. Raises `InputError` where there is no room."""
    folder = tempfile.gettempdir() if scratch is None else scratch
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            reserve(file.fileno(), max(size, 1), folder)
            yield file
    except OSError as error:
        raise InputError(
            f"evaluation must have room for {mib(size)} MiB in {folder}: a layer's rows exceed "
            "its working memory",
            error.strerror,
            "Free space there, choose another disk by --scratch (in jgs.predict by TMPDIR), or "
            f"keep the rows in memory with --eval-memory {mib(size)} or more.",
        ) from None
