"""`Hopwise`: what `Neighbors` and `Labor` share, whose kernels draw all hops in one call."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.base import ByNode, HopRows
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_call, check_graph, checked_seeds
from jgs.sampling.edges.columns import column_at, column_of, with_columns
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.edges.relations import drawn_relations
from jgs.sampling.fanouts import ByRelation
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers


class Hopwise(ByNode):
    """A sampler of `fanouts[h]` neighbours at hop `h`; a subclass says how a call draws."""

    fanouts: tuple[Any, ...]

    @abstractmethod
    def _spec(self, capacity: Capacity, graph: Graph) -> Any:
        """The static arguments of a call, see `jgs.sampling.edges.hops.sample_hops`."""

    @abstractmethod
    def _draw(
        self, key_data: jax.Array, graph: Graph, state: Any, seeds: Seeds, spec: Any
    ) -> list[MiniBatch]:
        """See `jgs.sampling.edges.hops.draw_batches`; raises `InputError`."""

    @abstractmethod
    def _most_edges(self, k: Any, shape: GraphShape, targets: int, repeated: int) -> int:
        """The most edges that `targets` nodes draw with the fanout `k`, where `repeated` of
        them may be repetitions of others."""

    def _check_graph(self, graph: Graph) -> None:
        check_graph(graph, False)

    def _key_data(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        return as_key_data(key, shape)

    @property
    def by_relation(self) -> bool:
        """Whether every hop draws from each relation by itself."""
        return all(isinstance(k, ByRelation) for k in self.fanouts)

    def _fanouts(self, graph: Graph) -> tuple[Any, ...]:
        """The fanouts as a call's static arguments have them."""
        return tuple(
            drawn_relations(k.numbers(graph.schema)) if isinstance(k, ByRelation) else int(k)
            for k in self.fanouts
        )

    @property
    def num_hops(self) -> int:
        return len(self.fanouts)

    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        """See `jgs.sampling.base.ByNode`."""
        k = self.fanouts[hop]
        k = k if isinstance(k, int) else k.total(0)
        return degree if k == -1 else np.minimum(k, degree)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        edges, sources, targets = [], [], batch_size
        for k in self.fanouts:
            repeated = 0 if distinct else batch_size - 1
            most = self._most_edges(k, shape, targets, repeated)
            edges.append(most)
            targets = min(targets + most, shape.num_nodes + batch_size)
            sources.append(targets)
        return Capacity(tuple(edges), tuple(sources))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        """See `jgs.sampling.base.Sampler`."""
        self._check_graph(graph)
        seeds, capacity = check_call(self, graph, seeds, capacity, self.num_hops)
        key_data = self._key_data(key, seeds.nodes.shape[:-1])
        (batch,) = self._draw(key_data, graph, state, seeds, self._spec(capacity, graph))
        return with_columns(batch, graph, self)

    def sample_separately(
        self, key_data: jax.Array, graph: Graph, state: Any, seeds: Any, capacity: Capacity
    ) -> list[MiniBatch]:
        """See `Sampler.sample_separately`: one call of the kernel."""
        spec = self._spec(capacity, graph)._replace(separate=True)
        seeds = checked_seeds(self, graph, seeds)
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
    ) -> HopRows:
        """See `jgs.sampling.base.ByNode`."""
        spec = self._spec(Capacity((num_edges,), nodes.shape[-1:]), graph)
        types_by_id = "type" in self.edges and isinstance(self.fanouts[hop], int)
        timed = bool({"time", "elapsed"} & {*self.edges})
        spec = spec._replace(
            fanouts=spec.fanouts[hop : hop + 1],
            edge_ids=types_by_id or timed,
            edge_weights=False,
            relabel_inputs=False,
            first_hop=hop,
        )
        batches = nodes.shape[:-1]
        key_data = jnp.broadcast_to(key_data, (*batches, key_data.shape[-1]))
        if excluded is not None:
            excluded = jnp.broadcast_to(excluded, (*batches, *excluded.shape))
        (batch,) = self._draw(key_data, graph, (), Seeds(nodes, time, excluded), spec)
        block = batch.blocks[0]
        assert batch.needed is not None
        types, times = block.edge_type, None
        with exact_integers():  # ids and times are 64-bit
            if types_by_id:
                types = column_at(column_of(graph, "type"), block.edge_id)
            if timed:
                times = column_at(column_of(graph, "time"), block.edge_id)
        return HopRows(block.indptr, block.indices, batch.needed[..., 0, 0], types, times)


def check_indptr(indptr: jax.Array, graph: Graph) -> None:
    """Raises `InputError` unless a state with this `indptr` may be one of the graph."""
    if indptr.shape != graph.indptr.shape:
        raise InputError(
            "the state must be what init returned for this graph",
            f"one of {indptr.shape[-1] - 1:,} nodes, and a graph of {graph.num_nodes:,}",
            "Call sampler.init(graph).",
        )
