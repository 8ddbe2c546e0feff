"""The edges of a batch, named by node ids of the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jgs.errors import InputError
from jgs.graph.batch import MiniBatch


class DrawnEdges(NamedTuple):
    """The real edges of a batch, the seeds' own hop first.

    Fields, NumPy `[m]`:
      src, dst: int32 node ids; messages go from `src` to `dst`.
      hop: int32; 0 for the edges into the seeds, 1 for the edges into their neighbours, and so
        on. 0 for all edges of a square block, which every layer uses.
      layer: int32; the index of the block in `MiniBatch.blocks`.
      place: int64; the position in the block's `indices`.
    """

    src: np.ndarray
    dst: np.ndarray
    hop: np.ndarray
    layer: np.ndarray
    place: np.ndarray


def drawn_edges(batch: MiniBatch) -> DrawnEdges:
    """The edges of one batch. Raises `InputError` for a super-batch and for a batch that has
    overflowed."""
    if np.ndim(batch.nodes) != 1:
        raise InputError(
            "one batch can be shown at a time",
            f"a super-batch of {np.shape(batch.nodes)[0]}",
            "Take one: jax.tree.map(lambda a: a[0], batch).",
        )
    if bool(batch.overflow):
        raise InputError(
            "a batch must not have overflowed",
            "one that has: it is empty",
            "Draw it again, same key, with a larger capacity.",
        )
    found = []
    for layer in reversed(range(len(batch.blocks))):
        block = batch.blocks[layer]
        indptr, nodes = np.asarray(block.indptr), np.asarray(batch.nodes)
        src = np.asarray(block.indices)[: int(block.num_edges)]
        if layer > 0 or not batch.direct_inputs:
            src = nodes[src]
        dst = np.repeat(nodes[: indptr.size - 1], np.diff(indptr))
        numbers = (len(batch.blocks) - 1 - layer, layer)
        found.append((src, dst, *(np.full(src.size, n) for n in numbers), np.arange(src.size)))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    src, dst, hops, layers = (column.astype(np.int32) for column in columns[:4])
    return DrawnEdges(src, dst, hops, layers, columns[4])
