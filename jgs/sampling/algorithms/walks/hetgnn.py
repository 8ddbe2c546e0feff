"""`HetGNN`: for each node type, the nodes that random walks from a target visit most."""

from __future__ import annotations

from dataclasses import dataclass, field

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.algorithms.walks.visits import (
    Facts,
    Restart,
    VisitSampler,
    WalkCounts,
    check_walks,
)
from jgs.sampling.base import Fanouts
from jgs.sampling.capacity import GraphShape


@dataclass(frozen=True)
class HetGNN(VisitSampler):
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
    counts: bool = field(default=False, repr=False)

    @classmethod
    def from_options(
        cls, fanouts: Fanouts, walks: WalkCounts = (200, 10), restart: Restart = 0.5
    ) -> HetGNN:
        """How a command makes the sampler."""
        return cls(fanouts, *check_walks(walks), restart)

    def _sizes_of(self, shape: GraphShape) -> list[int]:
        return [sum(k) if isinstance(k, tuple) else k * shape.num_types for k in self.sizes]

    def _facts_of(self, graph: Graph) -> Facts:
        if graph.schema is None:
            raise InputError(
                "HetGNN needs a graph with node types",
                "one without a schema",
                "Make it with Graph.from_relations.",
            )
        names = [name for name, _ in graph.schema.node_types]
        sizes = [k if isinstance(k, tuple) else (k,) * len(names) for k in self.sizes]
        if wrong := [k for k in sizes if len(k) != len(names)]:
            raise InputError(
                f"the sizes of a hop must be one for each of {len(names)} node types",
                repr(wrong[0]),
                "Give them in the order of graph.schema.node_types.",
            )
        ranges = [graph.schema.ranges(name) for name in names]
        groups = [tuple(end for r in own for end in (r.start, r.stop)) for own in ranges]
        return Facts(tuple(groups), tuple(sizes), ())
