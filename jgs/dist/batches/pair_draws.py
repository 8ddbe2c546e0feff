"""`PairDraws`: batches of pairs of nodes, where each rank has the whole graph."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.batches.plan import planned_hybrid
from jgs.dist.batches.source import RankSource, own_shares
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.graph import Graph
from jgs.ops import gather
from jgs.sampling.base import Sampler
from jgs.sampling.loading.schedule import Epochs, Schedule, SeedParts, graph_digest
from jgs.sampling.loading.stages import Samplers


class PairDraws:
    """Draws batches of pairs and the features of their nodes, by one compiled program for all
    sources.

    Every rank has the whole graph and all features, and draws its own `1 / R` of a step's
    pairs. If the sampler is by-node, all ranks' batches are together what one rank draws for as
    many pairs. A step takes one round, in which the ranks learn whether a batch has overflowed.
    All ranks make it and call it alike.

    Args:
      comm: the communicator of the programs that draw.
      graph: the graph, equal on all ranks.
      features: the rows of all nodes, as `jgs.ops.gather` takes them; with None batches have
        rows of width 0.
      batch_size: the pairs in a batch of each rank.
      sampler: a sampler of pairs (`Sampler.pairs`).
      pairs: int32 `[n, 2]`, pairs like those of the batches: they decide the planned capacity.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        features: Any,
        batch_size: int,
        sampler: Sampler,
        pairs: np.ndarray,
    ):
        self._comm, self._graph, self._sampler = comm, graph, sampler
        self._batch_size = batch_size
        state = sampler.init(graph)
        self._draws = planned_hybrid(comm, graph, batch_size, sampler, state, [pairs])
        self._rows = WholeFeatures(comm, features)

    def source(self, pairs: np.ndarray, key: Any, shuffle: bool = True) -> RankSource:
        """The batches of `pairs` int32 `[n, 2]`, drawn by `key`."""
        comm, sampler = self._comm, self._sampler
        size, num_nodes = self._batch_size * comm.size, self._graph.num_nodes
        if len(pairs) < size:  # they make one batch, which is not full
            padding = np.full((size - len(pairs), 2), num_nodes, np.int32)
            pairs = np.concatenate([pairs, padding])
        draws_by = None if sampler.by_node else comm.size
        settings = Samplers.of(sampler).settings(shuffle, draws_by, age=None)
        every = SeedParts.whole(pairs, graph_digest(self._graph))
        of_all = (key, every, size, num_nodes, Epochs(shuffle), settings, sampler)
        schedules = [Schedule(*of_all, share=share) for share in own_shares(comm)]
        return RankSource(comm, schedules, self._draws, self._rows)


class WholeFeatures:
    """See `jgs.dist.batches.source.RowReader`: every rank reads its own copy of all rows."""

    extra_rounds = 0

    def __init__(self, comm: Communicator, features: Any):
        self._features = None if features is None else comm.same(features)
        self._read = comm.program(self._rows, (SAME, OWN, OWN), (OWN, SAME))
        self._comm = comm

    def __call__(self, nodes: Any, overflow: Any) -> tuple[Any, bool]:
        x, lost = self._read(self._features, nodes, overflow)
        return x, int(lost) > 0

    def _rows(self, features: Any, nodes: jax.Array, overflow: jax.Array) -> Any:
        lost = self._comm.all_reduce(overflow.astype(jnp.int32))
        if features is None:
            return jnp.zeros((nodes.shape[0], 0)), lost
        return gather(features, nodes), lost
