"""`Turns`: the rows that ranks fetch from one another, piece by piece, in evaluation."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import jax
import numpy as np

from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.dist.rows.exchange import FeatureExchange
from jgs.train.evaluation.edges import Edges

# A generator that yields node ids, is sent their rows, and so fills a layer's output.
Asking = Generator[np.ndarray, jax.Array, None]


class Turns:
    """Runs the generators of all local ranks, which ask for rows as often as others do."""

    def __init__(self, comm: Communicator, edges: Edges):
        self._comm, self._edges = comm, edges
        self._exchanges: dict[int, FeatureExchange] = {}

    def run(
        self,
        layer: int,
        messages: Sequence[Any],
        askings: Sequence[Asking],
        targets: Sequence[np.ndarray],
        size: int,
        changed: bool,
    ) -> None:
        """Runs each local rank's generator to its end. All ranks exchange rows as often as the
        rank that asks most; a rank that has finished asks for nothing.

        Args:
          layer, messages: the number of a layer, and the rows that are asked for.
          targets, size: the targets of the ranks, and the number of edges in a piece.
          changed: whether the messages are others than in the last run of this layer.
        """
        comm, edges, num = self._comm, self._edges, self._edges.num_sources(size)
        if layer not in self._exchanges:
            own = (comm, edges.offsets, messages, -(-num // comm.size))
            self._exchanges[layer] = FeatureExchange(*own)
        elif changed:
            self._exchanges[layer].replace(messages)
        exchange = self._exchanges[layer]
        each = zip(edges.ranks, targets, strict=True)
        turns = [np.array([edges.num_pieces(*of_rank, size)], np.int32) for of_rank in each]
        nobody = np.full(num, np.iinfo(np.int32).max, np.int32)

        def advance(asking: Asking, rows: Any) -> np.ndarray:
            try:
                return asking.send(rows)
            except StopIteration:
                return nobody

        wanted = [advance(asking, None) for asking in askings]
        for _ in range(int(all_gather_rows(comm, turns).max())):
            x, _ = exchange(comm.own(wanted))
            wanted = list(map(advance, askings, comm.local(x)))
