"""Edges that are read from a file larger than memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

from jgs import kernels
from jgs.arrays import aligned_empty
from jgs.errors import InputError, refusing
from jgs.files.row_file import part_of_mapped
from jgs.graph.device import as_device
from jgs.graph.graph import Graph


def is_mapped(graph: Graph) -> bool:
    """Whether the edges are memory-mapped."""
    return part_of_mapped(graph.indices) is not None


def read_ahead(graph: Graph, threads: int = 32) -> Graph:
    """The graph, whose edges are read by many threads at once before a sampler reads them.

    For a memory-mapped graph whose `indices` do not fit in memory. A sampler's own threads, one
    for each core, wait for every page that is not there, so a disk that serves 32 requests at
    once gets two; and the system reads 128 KB around a page. Samples have the same bits.
    `Neighbors` draws twice: first to know the edges, whose pages alone are then read, 65,536
    edges at a time. `Labor`, which scans rows, has those of up to 8 pages read, but not by
    relation.

    Args:
      graph: a graph of `Graph.open` or `jgs.data.load`.
      threads: int; 0: none, and no graph is read ahead any more.

    Returns the graph with its offsets in memory, 8 bytes a node. One graph of the process is
    read ahead at a time, the last one. Without the compiled kernels nothing is. Raises
    `InputError` for a graph that is no memory map.
    """
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 4096:
        raise InputError("threads must be an int from 0 to 4096", threads, "Give 32.")
    part = part_of_mapped(graph.indices)
    if part is None:
        raise InputError(
            "a graph that is read ahead must be memory-mapped",
            "edges in memory",
            "Save it, and open it with Graph.open.",
        )
    if kernels.available():
        indices = np.asarray(graph.indices)
        before = part.begin % mmap.ALLOCATIONGRANULARITY
        rule = f"{part.path} must be a file that can be mapped"
        with refusing(OSError, rule, "Check the path."):
            file = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                error = kernels.function("JgsReadAhead", ctypes.c_int64)(
                    ctypes.c_void_p(indices.ctypes.data - before),
                    ctypes.c_int64(indices.nbytes + before),
                    ctypes.c_int32(file),
                    ctypes.c_int64(part.begin - before),
                    ctypes.c_int64(threads),
                )
            finally:
                os.close(file)
            if error:
                raise OSError(error, os.strerror(error))
    leaves: list[Any]
    leaves, static = graph.tree_flatten()
    offsets = np.asarray(graph.indptr)
    copied = aligned_empty(offsets.size, offsets.dtype)
    copied[:] = offsets
    return Graph.tree_unflatten(static, [as_device(copied), *leaves[1:]])
