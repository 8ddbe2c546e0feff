"""`all_degrees`: the in-degrees of all nodes, of a topology that may be split over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.dist.comm import Communicator, all_gather_rows
from jgs.dist.route import check_offsets
from jgs.graph import Graph


def all_degrees(comm: Communicator, graphs: Sequence[Graph], offsets: Any) -> np.ndarray:
    """int32 `[N]`, on every rank. All ranks call it; one round.

    Args:
      graphs: for each local rank a graph of `N` nodes with the in-edges of its own nodes.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
    """
    offsets = check_offsets(offsets, comm.size)
    sizes = np.diff(offsets)
    mine = []
    for i, graph in enumerate(graphs):
        first, last = offsets[comm.rank + i : comm.rank + i + 2]
        degrees = np.diff(np.asarray(graph.indptr)[first : last + 1]).astype(np.int32)
        mine.append(np.pad(degrees, (0, sizes.max() - degrees.size)))
    every = all_gather_rows(comm, mine)
    return np.concatenate([row[:size] for row, size in zip(every, sizes, strict=True)])
