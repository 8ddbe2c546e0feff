"""`own_rows`: each rank's own rows in the form that programs of all ranks take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.files.room import with_room
from jgs.graph import as_device
from jgs.graph.features import SparseFeatures


class OwnRows(NamedTuple):
    """What `own_rows` found.

    Fields:
      tables: for each local rank its matrices, or its `SparseFeatures`. Shapes are equal on all
        ranks where the communicator is `uniform`.
      bounds: for each local rank int32 `[2, P]`: the first of its rows that matrix `i` has, and
        how many rows of padding lie before that matrix; `[2, 0]` where no padding lies between
        matrices.
      width: `F`.
      entries: the most entries that a row of any rank has; None for dense rows.
    """

    tables: list[Any]
    bounds: list[np.ndarray]
    width: int
    entries: int | None


def own_rows(
    comm: Communicator, features: Sequence[Sequence[Any] | SparseFeatures], offsets: np.ndarray
) -> OwnRows:
    """Puts each rank's own rows into the form that programs of all ranks take.

    Memory maps are used where they lie, padded ones too (see `jgs.files.room`). Where shapes
    must be equal and ranks have different numbers of matrices, each joins its matrices in a
    copy.
    """
    everywhere(comm, lambda: _check_rows(comm, features, offsets))
    most = int(np.diff(offsets).max())
    sparse = [f for f in features if isinstance(f, SparseFeatures)]
    dense = [[np.asarray(t) for t in f] for f in features if not isinstance(f, SparseFeatures)]
    if not sparse:
        bounds = _no_bounds(dense)
        if comm.uniform:
            dense, bounds = _uniform(comm, dense, most)
        tables = [tuple(map(as_device, f)) for f in dense]
        return OwnRows(tables, bounds, dense[0][0].shape[1], None)
    mine = [np.array([f.max_row, f.indices.shape[0]], np.int64) for f in sparse]
    longest, entries = all_gather_rows(comm, mine).max(axis=0).tolist()
    if not comm.uniform:
        entries = most = 0
    entries, longest = max(entries, 1), max(longest, 1)  # an empty array cannot be read
    own = [
        SparseFeatures(
            as_device(_offsets_with_room(f.indptr, most + 1)),
            as_device(with_room(f.indices, entries)),
            as_device(with_room(f.values, entries)),
            f.num_features,
            longest,
        )
        for f in sparse
    ]
    return OwnRows(own, _no_bounds(own), sparse[0].num_features, longest)


def place_own(bounds: jax.Array, rows: jax.Array) -> jax.Array:
    """Where these of a rank's rows, int32, are in its matrices, read as one below the other; -1
    stays -1. `bounds` int32 `[2, P]` is that of `OwnRows`."""
    if bounds.shape[1] == 0:
        return rows
    table = jnp.sum(rows[..., None] >= bounds[0], axis=-1) - 1
    return jnp.where(rows < 0, rows, rows + bounds[1][jnp.maximum(table, 0)])


def _no_bounds(tables: Sequence[Any]) -> list[np.ndarray]:
    return [np.zeros((2, 0), np.int32)] * len(tables)


def _uniform(
    comm: Communicator, dense: list[list[np.ndarray]], most: int
) -> tuple[list[list[np.ndarray]], list[np.ndarray]]:
    """The matrices, padded to equal shapes on all ranks, and the `bounds` of `OwnRows`."""
    counts = all_gather_rows(comm, [np.array([len(f)], np.int32) for f in dense])
    if counts.min() < counts.max():
        dense = [[np.concatenate(f)] for f in dense]
    if len(dense[0]) == 1:
        return [[with_room(f[0], most)] for f in dense], _no_bounds(dense)
    sizes = [np.array([len(t) for t in f], np.int32) for f in dense]
    room = all_gather_rows(comm, sizes).max(axis=0)
    with_rooms = [[with_room(*each) for each in zip(f, room, strict=True)] for f in dense]
    first = [np.cumsum([0, *own[:-1]]) for own in sizes]
    before = np.cumsum([0, *room[:-1]])
    return with_rooms, [np.stack([f, before - f]).astype(np.int32) for f in first]


def num_rows(own: Any) -> int:
    """The number of rows in one rank's matrices or `SparseFeatures`."""
    return own.shape[0] if isinstance(own, SparseFeatures) else sum(t.shape[0] for t in own)


def _offsets_with_room(indptr: Any, length: int) -> np.ndarray:
    """`indptr`, with empty rows appended up to `length` numbers."""
    indptr = np.asarray(indptr)
    return np.pad(indptr, (0, max(length - indptr.size, 0)), mode="edge")


def _check_rows(comm: Communicator, features: Sequence[Any], offsets: np.ndarray) -> None:
    for own, rank in zip(features, range(comm.rank, comm.size), strict=False):
        num, want = num_rows(own), int(offsets[rank + 1] - offsets[rank])
        if num != want:
            raise InputError(
                f"the features of rank {rank} must have a row for each of its {want} nodes",
                f"{num} rows",
                "Give each rank the rows from its offset to the next.",
            )
