"""`PinSage`: the nodes that random walks from a target visit most are its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.algorithms.visits import (
    check_fields,
    check_sizes,
    sample_visits,
    visit_bound,
)
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_graph
from jgs.sampling.stretch import relation_path


@dataclass(frozen=True)
class PinSage:
    """Importance-based neighbourhoods (Ying et al., "Graph Convolutional Neural Networks for
    Web-Scale Recommender Systems", KDD 2018, section 3.1).

    At hop `h` every target makes `num_walks` walks. Its neighbours are the `sizes[h]` nodes
    that these visit most, itself left out; of nodes visited equally often those that were
    visited after fewer steps, and then by the walk of the smaller number. A walk's step goes to
    a uniformly drawn in-neighbour, as messages are read. A target whose walks come nowhere has
    no neighbours.

    DGL's `PinSAGESampler` counts likewise the end of every step, but the target too; its walks
    go along out-edges.

    Fields:
      sizes: how many neighbours each target has at most, seed-first.
      num_walks: how many walks a target makes.
      length: the most steps of a walk.
      restart: before each step but the first, the probability that the walk ends. The next one
        begins at the target again.
      relations: relations of a typed graph, by name or triple, that the steps go along in turn
        and that lead back to the type they begin at, e.g. from items to users and back. One
        round of them counts as one step: `length` is in rounds, and only their ends are
        visited. Targets of other types have no neighbours. None: along all edges.
      counts: whether a block's `edge_weight` is how often the neighbour was visited. If not,
        that is scaled so that a row's weights have the mean 1: `aggregate` with "mean" is then
        the paper's importance pooling, the mean of the rows weighted by visits.

    Blocks have weights and no `edge_id`, for neighbours are no edges of the graph; they are in
    order of visits. What a node draws at a hop depends on (key, hop, node) alone: the walk of
    number `w` is that of `Walk(length, stop=restart)` by the hop's key from the node's root of
    that number. It may need any row of the graph, so vanilla mode refuses it. Raises
    `InputError` for fields that break these rules.
    """

    sizes: tuple[int, ...]
    num_walks: int = 200
    length: int = 10
    restart: float = 0.5
    relations: tuple[Any, ...] | None = None
    counts: bool = field(default=False, repr=False)

    by_node = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", check_sizes(self.sizes))
        if any(isinstance(k, tuple) for k in self.sizes):
            raise InputError("each size must be an int", repr(self.sizes), "Give one a hop.")
        check_fields(self)
        if self.relations is not None:
            if isinstance(self.relations, str) or not self.relations:
                raise InputError(
                    "relations must be a tuple of relations, at least one",
                    repr(self.relations),
                    'Give e.g. ("rev_buys", "buys").',
                )
            path = (tuple(one) if isinstance(one, list) else one for one in self.relations)
            object.__setattr__(self, "relations", tuple(path))

    def init(self, graph: Graph) -> tuple[()]:
        check_graph(graph, False)
        self._path(graph)
        return ()

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        return visit_bound(self.sizes, self.num_walks * self.length, shape, batch_size)

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None
    ) -> MiniBatch:
        check_graph(graph, False)
        spec: dict[str, Any] = {
            "groups": ((0, graph.num_nodes),),
            "sizes": tuple((k,) for k in self.sizes),
            "path": self._path(graph),
        }
        return sample_visits(self, key, graph, seeds, capacity, **spec)

    def _path(self, graph: Graph) -> tuple[int, ...]:
        if self.relations is None:
            return ()
        return relation_path(graph, (*self.relations, self.relations[0]))[:-1]
