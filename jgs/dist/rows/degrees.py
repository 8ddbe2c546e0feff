"""`all_degrees`: the in-degrees of all nodes, of a topology that may be split over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import Communicator
from jgs.dist.rows.route import check_offsets
from jgs.graph import Graph


def all_degrees(comm: Communicator, graphs: Sequence[Graph], offsets: Any) -> np.ndarray:
    """The in-degrees int32 `[N]`, on every rank. All ranks call it; it takes one round.

    Args:
      graphs: for each local rank a graph of `N` nodes with the in-edges of its own nodes.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
    """
    offsets = check_offsets(offsets, comm.size)
    ranks = range(comm.rank, comm.rank + comm.num_local)
    mine = [
        np.diff(np.asarray(graph.indptr)[offsets[r] : offsets[r + 1] + 1]).astype(np.int32)
        for r, graph in zip(ranks, graphs, strict=True)
    ]
    return rows_on_all(comm, mine, np.diff(offsets))
