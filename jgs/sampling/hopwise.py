"""Samplers that draw hop by hop: `Hops`, and `Hopwise`, whose kernels draw all hops at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph import Graph, MiniBatch
from jgs.sampling import checks
from jgs.sampling.base import ByNode, HopRows, Sampler
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.edges.columns import column_at, column_of, ids_needed, with_columns
from jgs.sampling.edges.hops import HopDraw, draw_batches
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.fanouts import ByRelation
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers


class Hops(Sampler):
    """A sampler whose hops draw neighbours of the nodes known so far.

    Attributes:
      forms: the kernel and the plain form: functions of (key_data, graph, reads, seeds, spec)
        that return what `jgs.sampling.edges.hops.sample_hops` does.
      edge_ids, edge_weights, edges, window: as in `Neighbors`.
    """

    edge_ids: bool = False
    edge_weights: bool = False
    edges: tuple[str, ...] = ()
    window: int | None = None

    @property
    @abstractmethod
    def forms(self) -> tuple[Any, Any]: ...

    @property
    @abstractmethod
    def num_hops(self) -> int: ...

    @abstractmethod
    def _spec(self, capacity: Capacity, graph: Graph) -> HopDraw: ...

    @abstractmethod
    def _most_edges(self, hop: int, shape: GraphShape, targets: int, repeated: int) -> int:
        """The most edges that `targets` nodes draw at a hop, where `repeated` of them may be
        repetitions of others."""

    def _reads(self, graph: Graph, state: Any) -> Any:
        """What the forms read beside the graph. Raises `InputError` for another state."""
        return ()

    def _check_graph(self, graph: Graph) -> None:
        checks.check_graph(graph, False)

    def _key_data(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        return as_key_data(key, shape)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        edges, sources, targets = [], [], batch_size
        for hop in range(self.num_hops):
            repeated = 0 if distinct else batch_size - 1
            most = self._most_edges(hop, shape, targets, repeated)
            edges.append(most)
            targets = min(targets + most, shape.num_nodes + batch_size)
            sources.append(targets)
        return Capacity(tuple(edges), tuple(sources))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        self._check_graph(graph)
        seeds, capacity = checks.check_call(self, graph, seeds, capacity, self.num_hops)
        key_data = self._key_data(key, seeds.nodes.shape[:-1])
        (batch,) = self._draw(key_data, graph, state, seeds, self._spec(capacity, graph))
        return with_columns(batch, graph, self)

    def _draw(
        self, key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, spec: HopDraw
    ) -> list[MiniBatch]:
        checks.check_timed(self, seeds)
        return draw_batches(key_data, graph, self._reads(graph, state), seeds, spec)


class Hopwise(Hops, ByNode):
    """A sampler of `fanouts[h]` neighbours at hop `h`."""

    fanouts: tuple[Any, ...]

    @property
    def num_hops(self) -> int:
        return len(self.fanouts)

    @property
    def by_relation(self) -> bool:
        """Whether every hop draws from each relation by itself."""
        return all(isinstance(k, ByRelation) for k in self.fanouts)

    def _draws_relations(self, graph: Graph) -> bool:
        """Whether a hop draws by relation; raises `InputError` for those of another graph."""
        hops = [k.drawn(graph.schema) for k in self.fanouts if isinstance(k, ByRelation)]
        return bool(hops)

    def _spec(self, capacity: Capacity, graph: Graph) -> HopDraw:
        flags = ids_needed(self), self.edge_weights, self.relabel_inputs
        return HopDraw(self, capacity, self.fanouts_in(graph), *flags)

    def fanouts_in(self, graph: Graph) -> tuple[Any, ...]:
        """As `HopDraw.fanouts`. Raises `InputError` for relations of another graph."""
        drawn = (
            k.drawn(graph.schema) if isinstance(k, ByRelation) else k for k in self.fanouts
        )
        return tuple(k if isinstance(k, tuple) else int(k) for k in drawn)

    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        k = self.fanouts[hop]
        k = k if isinstance(k, int) else k.total(0)
        return degree if k == -1 else np.minimum(k, degree)

    def sample_separately(
        self, key_data: jax.Array, graph: Graph, state: Any, seeds: Any, capacity: Capacity
    ) -> list[MiniBatch]:
        """See `Sampler.sample_separately`: one call of the kernel."""
        spec = self._spec(capacity, graph)._replace(separate=True)
        seeds = checks.checked_seeds(self, graph, seeds)
        batches = self._draw(key_data, graph, state, seeds, spec)
        return [with_columns(batch, graph, self) for batch in batches]

    def draw_hop(
        self,
        key_data: jax.Array,
        graph: Graph,
        nodes: jax.Array,
        hop: int,
        num_edges: int,
        excluded: jax.Array | None = None,
        time: jax.Array | None = None,
        state: Any = (),
    ) -> HopRows:
        """See `ByNode`. `state` is what `init` returned, or ()."""
        spec = self._spec(Capacity((num_edges,), nodes.shape[-1:]), graph)
        types_by_id = "type" in self.edges and isinstance(self.fanouts[hop], int)
        timed = bool({"time", "elapsed"} & {*self.edges})
        spec = spec._replace(
            fanouts=spec.fanouts[hop : hop + 1],
            edge_ids=types_by_id or timed or self.edge_ids,
            edge_weights=False,
            relabel_inputs=False,
            first_hop=hop,
        )
        batches = nodes.shape[:-1]
        key_data = jnp.broadcast_to(key_data, (*batches, key_data.shape[-1]))
        if excluded is not None:
            excluded = jnp.broadcast_to(excluded, (*batches, *excluded.shape))
        (batch,) = self._draw(key_data, graph, state, Seeds(nodes, time, excluded), spec)
        block = batch.blocks[0]
        assert batch.needed is not None
        types, times = block.edge_type, None
        with exact_integers():  # ids and times are 64-bit
            if types_by_id:
                types = column_at(column_of(graph, "type"), block.edge_id)
            if timed:
                times = column_at(column_of(graph, "time"), block.edge_id)
        ids = block.edge_id if self.edge_ids else None
        return HopRows(block.indptr, block.indices, batch.needed[..., 0, 0], types, times, ids)


def check_indptr(indptr: jax.Array, graph: Graph) -> None:
    """Raises `InputError` unless a state with this `indptr` may be one of the graph."""
    if indptr.shape != graph.indptr.shape:
        num = indptr.shape[-1] - 1
        checks.refuse_state(f"one of {num:,} nodes, and a graph of {graph.num_nodes:,}")
