"""`walk_loader`: draws the walks that skip-gram learns from, on one rank or many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.graph import Graph
from jgs.models.skipgram import WalkBatch, count_visits, draw_pairs, noise_prefix
from jgs.sampling import Loader, Seeds, Walker
from jgs.sampling.loading.schedule import Schedule, SeedParts, graph_digest
from jgs.settings import exact_integers

_WALKS_AT_ONCE = 1 << 11  # drawn in one call: a call costs as much for few walks as for many


class WalkSource:
    """See `jgs.sampling.loading.source.Source`: yields an `OWN` `WalkBatch` a step.

    Every rank has the whole graph and draws its own `1 / R` of a step's walks. The ranks do not
    communicate. Their walks are together what one rank draws from as many roots.

    Args:
      comm: the communicator of the programs that draw.
      graph: the graph, equal on all ranks.
      walker: walks from the roots of `schedule`, which are distinct in a batch.
      state: what `walker.init(graph)` returned.
      schedule: that of all ranks' roots. Its batch size is a multiple of the number of ranks.
      prefix, window, num_negatives: as for `jgs.models.skipgram.draw_pairs`.
      cutoff: the cutoff of every root, or None.
    """

    together, redraws, learning = False, 0, None

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        walker: Walker,
        state: Any,
        schedule: Schedule,
        prefix: np.ndarray,
        window: int,
        num_negatives: int,
        cutoff: int | None = None,
    ):
        self._comm, self._walker, self.schedules = comm, walker, [schedule]
        self._pairs, self._cutoff = (window, num_negatives), cutoff
        self._graph, self._state = comm.same(graph), comm.same(state)
        self._prefix = comm.same(prefix)
        self._own = schedule.batch_size // comm.size
        self.at_once = min(max(_WALKS_AT_ONCE // self._own, 1), len(schedule))
        self._sample = comm.program(self._draw, (SAME, SAME, SAME, SAME, OWN), OWN)
        self._pick = comm.program(_pick, (OWN, SAME), OWN)
        self.seconds = {"sampling": 0.0}
        self.counts: dict[str, int] = {}

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        (schedule,), comm = self.schedules, self._comm
        key_data, roots = schedule.batches(epoch, self.at_once)
        columns = [
            slice(rank * self._own, (rank + 1) * self._own)
            for rank in range(comm.rank, comm.rank + comm.num_local)
        ]
        for step in range(first, len(schedule), self.at_once):
            began, some = time.perf_counter(), slice(step, step + self.at_once)
            own = comm.own([np.ascontiguousarray(roots[some, c]) for c in columns])
            keys = comm.same(np.ascontiguousarray(key_data[some]))
            batches = self._sample(keys, self._graph, self._state, self._prefix, own)
            jax.block_until_ready(batches)
            self.seconds["sampling"] += time.perf_counter() - began
            count = min(self.at_once, len(schedule) - step)
            yield [self._pick(batches, comm.same(np.int32(i))) for i in range(count)]

    def _draw(
        self, key_data: jax.Array, graph: Graph, state: Any, prefix: jax.Array, roots: jax.Array
    ) -> WalkBatch:
        """The stacked batches of the roots int32 `[S, B]`, drawn by the keys uint32 `[S,
        2]`."""
        with exact_integers():
            times = None if self._cutoff is None else jnp.full(roots.shape, self._cutoff)
        walks = self._walker.sample(key_data, graph, state, Seeds(roots, times))
        with exact_integers():
            draw = jax.vmap(lambda key, nodes: draw_pairs(key, nodes, prefix, *self._pairs))
            return draw(key_data, walks.nodes)


def _pick(batches: WalkBatch, which: jax.Array) -> WalkBatch:
    return jax.tree.map(lambda a: a[which], batches)


def walk_loader(
    comm: Communicator,
    graph: Graph,
    walker: Walker,
    batch_size: int,
    *,
    state: Any,
    key: Any,
    num_walks: int = 1,
    window: int = 10,
    num_negatives: int = 20,
    prefetch: int = 2,
    cutoff: int | None = None,
) -> Loader:
    """Walks from every node: `num_walks` from each in an epoch, `batch_size` a step and rank.

    An epoch goes over the nodes `num_walks` times, each time in another order. The ranks draw
    together what one rank draws with as many walks a step. The loader yields an `OWN`
    `WalkBatch` a step. All ranks call it and iterate alike. `state` is what
    `walker.init(graph)` returned. With a `cutoff` walks follow edges before it alone
    (`Seeds.time`). Negatives are drawn by how often walks visit a node
    (`jgs.models.skipgram.count_visits`). Raises `InputError`.
    """
    nodes = np.arange(graph.num_nodes, dtype=np.int32)
    settings = repr((walker, num_walks, window, num_negatives))
    settings += "" if cutoff is None else f" before {cutoff}"
    schedule = Schedule(
        key,
        SeedParts.whole(nodes, graph_digest(graph)),
        batch_size * comm.size,
        graph.num_nodes,
        settings=settings,
        passes=num_walks,
    )
    prefix = noise_prefix(count_visits(key, graph, walker, state, cutoff))
    source = WalkSource(
        comm.clone(), graph, walker, state, schedule, prefix, window, num_negatives, cutoff
    )
    return Loader.over(source, prefetch if comm.concurrent else 0)
