"""`walk_loader`: draws the walks that skip-gram learns from, on one rank or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.dist.batches.source import own_shares
from jgs.dist.communicators.comm import OWN, SAME, Communicator
from jgs.graph import Graph
from jgs.models.skipgram import WalkBatch, count_visits, draw_pairs, noise_prefix
from jgs.sampling import Loader, Seeds, Walker
from jgs.sampling.loading.schedule import Schedule, SeedParts, graph_digest
from jgs.sampling.loading.source import Source
from jgs.settings import exact_integers

_WALKS_AT_ONCE = 1 << 11  # drawn in one call: a call costs as much for few walks as for many


class WalkSource(Source):
    """A `jgs.sampling.loading.source.Source` that yields an `OWN` `WalkBatch` a step.

    Every rank has the whole graph and draws its own `1 / R` of a step's walks. The ranks do not
    communicate. Their walks are together what one rank draws from as many roots.

    Args:
      comm: the communicator of the programs that draw.
      graph: the graph, equal on all ranks.
      walker: walks from the roots of `schedules`, which are distinct in a batch.
      state: what `walker.init(graph)` returned.
      schedules: for each local rank that of its share of the roots.
      prefix: as for `jgs.models.skipgram.draw_pairs`.
      pairs: its window and its number of negatives.
      cutoff: the cutoff of every root, or None.
    """

    def __init__(
        self,
        comm: Communicator,
        graph: Graph,
        walker: Walker,
        state: Any,
        schedules: Sequence[Schedule],
        prefix: np.ndarray,
        pairs: tuple[int, int],
        cutoff: int | None = None,
    ):
        super().__init__(schedules)
        self._comm, self._walker, self._pairs, self._cutoff = comm, walker, pairs, cutoff
        self._of_all = comm.same(graph), comm.same(state), comm.same(prefix)
        own, num_steps = schedules[0].batch_size // comm.size, len(schedules[0])
        self.at_once = min(max(_WALKS_AT_ONCE // own, 1), num_steps)
        self._sample = comm.program(self._draw, (SAME, SAME, SAME, SAME, OWN), OWN)
        self._pick = comm.program(_pick, (OWN, SAME), OWN)

    def draw(self, key_data: np.ndarray, asked: list[Any], state: Any) -> list[Any]:
        with self._timed("sampling"):
            keys, roots = self._comm.same(key_data), self._comm.own(asked)
            batches = jax.block_until_ready(self._sample(keys, *self._of_all, roots))
        return [self._pick(batches, self._comm.same(np.int32(i))) for i in range(self.at_once)]

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
    num_walks: int,
    pairs: tuple[int, int],
    prefetch: int,
    cutoff: int | None = None,
) -> Loader:
    """Walks from every node: `num_walks` from each in an epoch, `batch_size` a step and rank.

    An epoch goes over the nodes `num_walks` times, each time in another order. The ranks draw
    together what one rank draws with as many walks a step. The loader yields an `OWN`
    `WalkBatch` a step. All ranks call it and iterate alike. `state` is what
    `walker.init(graph)` returned. `pairs` are the window and the number of negatives. With a
    `cutoff` walks follow edges before it alone (`Seeds.time`). Negatives are drawn by how often
    walks visit a node (`jgs.models.skipgram.count_visits`). Raises `InputError`.
    """
    nodes = np.arange(graph.num_nodes, dtype=np.int32)
    settings = repr((walker, num_walks, *pairs))
    settings += "" if cutoff is None else f" before {cutoff}"
    roots = SeedParts.whole(nodes, graph_digest(graph))._replace(passes=num_walks)
    of_all = (key, roots, batch_size * comm.size, graph.num_nodes)
    shares = own_shares(comm)
    schedules = [Schedule(*of_all, settings=settings, share=share) for share in shares]
    prefix = noise_prefix(count_visits(key, graph, walker, state, cutoff))
    of_walks = (walker, state, schedules, prefix, pairs, cutoff)
    source = WalkSource(comm.clone(), graph, *of_walks)
    return Loader.over(source, prefetch if comm.concurrent else 0)
