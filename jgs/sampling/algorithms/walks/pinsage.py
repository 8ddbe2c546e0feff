"""`PinSage`: a target's neighbours are the nodes that random walks from it visit most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.options import Option
from jgs.sampling.algorithms.walks.visits import (
    Facts,
    Restart,
    VisitSampler,
    WalkCounts,
    check_walks,
)
from jgs.sampling.base import Fanouts
from jgs.sampling.capacity import GraphShape
from jgs.sampling.walks import relation_path


@dataclass(frozen=True)
class PinSage(VisitSampler):
    """Importance-based neighbourhoods (Ying et al., "Graph Convolutional Neural Networks for
    Web-Scale Recommender Systems", KDD 2018, section 3.1).

    At hop `h` every target makes `num_walks` walks. Its neighbours are the `sizes[h]` nodes
    that the walks visit most, the target itself left out. Among nodes visited equally often,
    those come first that were visited after fewer steps, and then those visited by the walk
    with the smaller number. A step goes to a uniformly drawn in-neighbour, as messages are
    read. A target whose walks visit no other node has no neighbours.

    DGL's `PinSAGESampler` also counts the end of every step, but it counts the target too, and
    its walks go along out-edges.

    Fields:
      sizes: the largest number of neighbours of a target at each hop, the seeds' hop first.
      num_walks: the number of walks of a target.
      length: the largest number of steps of a walk.
      restart: the probability, before each step but the first, that the walk ends. The next
        walk begins at the target again.
      relations: relations of a typed graph, by name or triple, that the steps follow in turn.
        They must lead back to the type at which they begin, e.g. from items to users and back.
        One round of them counts as one step: `length` is in rounds, and only the ends of rounds
        are visited. Targets of other types have no neighbours. None: steps follow all edges.
      counts: whether a block's `edge_weight` is the number of visits to the neighbour. If not,
        this number is scaled so that a row's weights have the mean 1. `aggregate` with "mean"
        is then the paper's importance pooling, the mean of the rows weighted by visits.

    Blocks have weights and no `edge_id`, because a neighbour need not be joined to its target
    by an edge. Neighbours are in the order of visits. What a node draws at a hop depends on
    (key, hop, node) alone: its walk number `w` is that of `Walk(length, stop=restart)` with the
    key of the hop, from the `w`-th repetition of the node among the roots. It may need any row
    of the graph, so vanilla mode refuses this sampler. Raises `InputError` for fields that
    break these rules.
    """

    sizes: tuple[int, ...]
    relations: tuple[Any, ...] | None = None
    counts: bool = field(default=False, repr=False)

    @classmethod
    def from_options(
        cls,
        fanouts: Fanouts,
        walks: WalkCounts = (200, 10),
        restart: Restart = 0.5,
        relations: Annotated[
            tuple[str, ...], Option("relations that steps go along in turn, e.g. rev_buys buys")
        ] = (),
    ) -> PinSage:
        """How a command makes the sampler."""
        return cls(fanouts, *check_walks(walks), restart, relations or None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(isinstance(k, tuple) for k in self.sizes):
            raise InputError("each size must be an int", repr(self.sizes), "Give one a hop.")
        if self.relations is not None:
            if isinstance(self.relations, str) or not self.relations:
                raise InputError(
                    "relations must be a tuple of relations, at least one",
                    repr(self.relations),
                    'Give e.g. ("rev_buys", "buys").',
                )
            path = (tuple(one) if isinstance(one, list) else one for one in self.relations)
            object.__setattr__(self, "relations", tuple(path))

    def _sizes_of(self, shape: GraphShape) -> tuple[int, ...]:
        return self.sizes

    def _facts_of(self, graph: Graph) -> Facts:
        groups, sizes = ((0, graph.num_nodes),), tuple((k,) for k in self.sizes)
        if self.relations is None:
            return Facts(groups, sizes, ())
        path = relation_path(graph, (*self.relations, self.relations[0]))[:-1]
        return Facts(groups, sizes, path)
