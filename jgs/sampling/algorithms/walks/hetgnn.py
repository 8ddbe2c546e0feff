"""`HetGNN`: for each node type, the nodes that random walks from a target visit most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch, Schema
from jgs.sampling.algorithms.walks.visits import (
    Restart,
    WalkCounts,
    check_fields,
    check_sizes,
    check_walks,
    sample_visits,
    visit_bound,
)
from jgs.sampling.base import Fanouts, Sampler
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_graph


@dataclass(frozen=True)
class HetGNN(Sampler):
    """Heterogeneous neighbours (Zhang et al., "Heterogeneous Graph Neural Network", KDD 2019,
    section 3.1), for a graph with a `Schema`.

    At hop `h` every target makes a random walk with restart, along edges of all types. Its
    neighbours are, for each node type in the schema's order, the `sizes[h]` nodes of that type
    which the walk visits most, counted and ordered as in `PinSage`. The target itself is not
    among them. A type that the walk does not reach has none. In the paper the walk goes on
    until it has met every type often enough. Here its length is fixed, so that the cost of a
    batch is known.

    Fields:
      sizes: for each hop the largest number of neighbours of each type, the seeds' hop first.
        An entry may be a tuple of ints, one for each type in the schema's order.
      num_walks: the number of times that the walk begins at the target.
      length: the largest number of steps between two restarts.
      restart: the probability of a restart before each step, except the first after a restart.
      counts: as in `PinSage`; the weights of a row have the mean 1 over all types together.

    `init` raises `InputError` for a graph without a schema. Everything else is as in `PinSage`.
    """

    sizes: tuple[int | tuple[int, ...], ...]
    num_walks: int = 200
    length: int = 10
    restart: float = 0.5
    counts: bool = field(default=False, repr=False)

    by_node = takes_excluded = True

    @classmethod
    def from_options(
        cls, fanouts: Fanouts, walks: WalkCounts = (200, 10), restart: Restart = 0.5
    ) -> HetGNN:
        """How a command makes the sampler."""
        return cls(fanouts, *check_walks(walks), restart)

    @property
    def num_hops(self) -> int:
        return len(self.sizes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", check_sizes(self.sizes))
        check_fields(self)

    def init(self, graph: Graph) -> tuple[()]:
        self._sizes(graph)
        return ()

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        sizes = [sum(k) if isinstance(k, tuple) else k * shape.num_types for k in self.sizes]
        return visit_bound(sizes, self.num_walks * self.length, shape, batch_size)

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None
    ) -> MiniBatch:
        sizes = self._sizes(graph)
        schema = _schema(graph)
        groups = tuple(
            tuple(end for r in schema.ranges(name) for end in (r.start, r.stop))
            for name, _ in schema.node_types
        )
        return sample_visits(
            self, key, graph, seeds, capacity, groups=groups, sizes=sizes, path=()
        )

    def _sizes(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        """For each hop, the size for each type."""
        num_types = len(_schema(graph).node_types)
        sizes = [k if isinstance(k, tuple) else (k,) * num_types for k in self.sizes]
        if wrong := [k for k in sizes if len(k) != num_types]:
            raise InputError(
                f"the sizes of a hop must be one for each of {num_types} node types",
                repr(wrong[0]),
                "Give them in the order of graph.schema.node_types.",
            )
        return tuple(sizes)


def _schema(graph: Graph) -> Schema:
    check_graph(graph, False)
    if graph.schema is None:
        raise InputError(
            "HetGNN needs a graph with node types",
            "one without a schema",
            "Make it with Graph.from_relations.",
        )
    return graph.schema
