"""`Shadow`: the graph that the neighbourhoods of the seeds induce, for models of any depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.options import INT32, Option
from jgs.sampling.algorithms.visits import PinSage
from jgs.sampling.base import Adaptive, Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import refuse_state
from jgs.sampling.edges.induced import rows_sorted
from jgs.sampling.seeds import Seeds
from jgs.sampling.shorthand import as_sampler
from jgs.sampling.subgraphs import SquareSampler


class ShadowState(NamedTuple):
    """The state of `Shadow`: that of the scope's sampler, and
    `jgs.sampling.edges.induced.rows_sorted`."""

    scope: State
    is_sorted: jax.Array


@dataclass(frozen=True)
class Shadow(SquareSampler):
    """Nodes around the seeds, and all edges among them, as one square block for all layers
    (Zeng et al., "Decoupling the Depth and Scope of Graph Neural Networks", NeurIPS 2021,
    sections 3 and 3.4).

    The scope of a seed is the set of nodes that a model may read for it. It does not grow with
    the model's depth.

    Fields:
      scope: the sampler of these nodes. A tuple of fanouts stands for `Neighbors`, the paper's
        k-hop extractor. `Shadow.ppr` makes the paper's extractor by personalised PageRank.
      disjoint: False: the scopes of all seeds together induce one graph, as in DGL's
        `ShaDowKHopSampler`. Rows are in the order of the scope's `nodes`, the seeds first.
        True: each seed's scope induces a graph of its own, and the graphs lie side by side in
        the block, as in the paper and PyG. A node then has a row in each graph that it is in.
        The rows of a seed's graph are consecutive, the seed's own first; the batch's
        `seed_rows` has the first row of each.
      edges, edge_ids, edge_weights: as in `Neighbors`.

    Disjoint graphs depend on (key, seed) alone if the scope's sampler is by-node. The graphs of
    a repeated seed are equal.

    A capacity begins with the entries of the scope. Disjoint graphs share these evenly: each of
    B seeds has room for a B-th part, and `needed` is B times the need of the largest.

    Raises `InputError` for a scope that is adaptive, draws its own seeds, or does not give its
    nodes local ids.
    """

    scope: Sampler
    disjoint: bool = False

    def __post_init__(self) -> None:
        scope = as_sampler(self.scope)
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "disjoint", bool(self.disjoint))
        super().__post_init__()
        if isinstance(scope, Adaptive) or scope.draws_seeds or not scope.relabel_inputs:
            raise InputError(
                "a scope must be a sampler that does not learn, takes seeds, and has "
                "relabel_inputs=True",
                repr(scope),
                "Give a tuple of fanouts, Neighbors, Labor, PinSage or Ladies.",
            )

    @classmethod
    def from_options(
        cls,
        fanouts: Annotated[
            tuple[int, ...],
            Option(
                "neighbours to draw per node in each hop from the seeds; -1: all",
                least=-1,
                never=0,
                most=INT32,
                only=("scope_size=0",),
            ),
        ] = (10, 10),
        scope_size: Annotated[
            int,
            Option(
                "take so many nodes around each seed, those of the largest personalised "
                "PageRank (0: the nodes that --fanouts draw)",
                least=0,
                most=INT32,
            ),
        ] = 0,
        disjoint: Annotated[
            bool, Option("a graph for each seed by itself, not one for all seeds")
        ] = False,
    ) -> Shadow:
        """How a command makes the sampler."""
        if scope_size:
            return cls.ppr(scope_size, disjoint=disjoint)
        return cls(as_sampler(fanouts), disjoint)

    @classmethod
    def ppr(
        cls,
        k: int,
        num_walks: int = 200,
        length: int = 20,
        restart: float = 0.15,
        **options: Any,
    ) -> Shadow:
        """A sampler whose scopes are the seed and the `k` nodes with the largest personalised
        PageRank.

        `PinSage` estimates it by the number of visits of `num_walks` walks from the seed. A
        walk ends with the probability `restart`, which is PageRank's, before each step but the
        first, and after `length` steps. `options` are fields of `Shadow`.
        """
        return cls(PinSage((k,), num_walks, length, restart), **options)

    @property
    def takes_excluded(self) -> bool:
        return self.scope.takes_excluded

    @property
    def by_node(self) -> bool:
        return self.disjoint and self.scope.by_node

    def step_keys(self, epoch_key_data: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """See `Sampler.step_keys`: the keys of the scope's sampler."""
        return self.scope.step_keys(epoch_key_data, steps)

    def init(self, graph: Graph) -> ShadowState:
        self._check_graph(graph)
        return ShadowState(self.scope.init(graph), rows_sorted(graph))

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        if self.disjoint:
            one = self.scope.bound(shape, 1, True)
            edges, sources = (tuple(batch_size * n for n in field) for field in one)
            most = batch_size * shape.num_edges
        else:
            edges, sources = self.scope.bound(shape, batch_size, distinct)
            repeated = 0 if distinct else batch_size - 1
            most = shape.num_edges + repeated * (shape.max_degree or 0)
        if shape.max_degree is not None:
            most = min(most, sources[-1] * shape.max_degree)
        return Capacity((*edges, most), (*sources, sources[-1]))

    def _draw(
        self, key: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        """The scopes: of each seed by itself, or of all."""
        if not isinstance(state, ShadowState):
            refuse_state(state)
        nodes, excluded = seeds.nodes, seeds.excluded
        share = nodes.shape[0] if self.disjoint else 1
        room = Capacity(*(tuple(n // share for n in field[:-1]) for field in capacity))

        def draw(nodes: jax.Array) -> MiniBatch:
            seeds_of_scope = Seeds(nodes, excluded=excluded)
            return self.scope.sample(key, graph, state.scope, seeds_of_scope, room)

        return jax.vmap(draw)(nodes[:, None]) if self.disjoint else draw(nodes)

    def _batch(
        self, drawn: MiniBatch, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        num_nodes, most_rows, needed = graph.num_nodes, capacity.sources[-1], drawn.needed
        assert needed is not None
        failed = jnp.any(drawn.overflow)
        counts = jnp.atleast_1d(jnp.where(failed, 0, drawn.blocks[0].num_sources))
        groups = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts, dtype=jnp.int32)])
        nodes, rows = jnp.atleast_2d(drawn.nodes), None
        slot = jnp.arange(nodes.shape[1], dtype=jnp.int32)
        place = jnp.where(slot < counts[:, None], groups[:-1, None] + slot, most_rows)
        empty = jnp.full_like(nodes, num_nodes, shape=most_rows)
        nodes = empty.at[place.reshape(-1)].set(nodes.reshape(-1), mode="drop")
        bad = jnp.any(needed < 0)
        if self.disjoint:
            rows = jnp.where(counts > 0, groups[:-1], most_rows)
            most = seeds.nodes.shape[0] * jnp.max(needed.astype(jnp.int64), axis=0)
            needed = jnp.where(bad, -1, jnp.minimum(most, 2**31 - 1))
        of = (nodes, groups, capacity.edges[-1], (needed, groups[-1]), failed, seeds.excluded)
        nodes, block, overflow, needed = self._square(graph, *of, state.is_sorted)
        needed = needed.at[:, -1].set(jnp.where(bad, -1, needed[:, -1]))
        made = (seeds.nodes, nodes, (block,), overflow, num_nodes)
        return MiniBatch.drawn(*made, needed=needed, seed_rows=rows, square=True)
