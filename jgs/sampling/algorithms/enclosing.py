"""`Shadow`: the graph that the neighbourhoods of the seeds induce, for models of any depth.
`Seal`: the enclosing subgraphs of node pairs, with their double-radius labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Block, Extras, Graph, MiniBatch
from jgs.graph.foreign import edge_targets, targets_of
from jgs.kernels.call import vary_alike
from jgs.options import INT32, Option
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.algorithms.visits import PinSage
from jgs.sampling.base import Adaptive, Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import refuse_state
from jgs.sampling.edges.columns import with_edges
from jgs.sampling.edges.hops import empty_if
from jgs.sampling.edges.induced import rows_sorted
from jgs.sampling.fanouts import check_fanouts
from jgs.sampling.seeds import Seeds
from jgs.sampling.shorthand import as_sampler
from jgs.sampling.subgraphs import SquareSampler

_NONE = (1 << 62) - 1  # marks an empty slot among the numbers of (pair, node)
_FAR = 1 << 29  # the distance of a row that was not reached


@dataclass(frozen=True)
class Seal(SquareSampler):
    """One square block for all layers: the enclosing subgraphs of the pairs, side by side.

    SEAL (Zhang and Chen, "Link Prediction Based on Graph Neural Networks", 2018), section 3.
    A pair's subgraph is induced by its two ends and the nodes that hops from them draw. At hop
    `h` each node that is new in the subgraph draws `fanouts[h]` of its in-neighbours, as
    `Neighbors` does. The edges between the two ends, in both directions, are left out. The
    subgraphs of a batch share no rows, and each depends on the key and its own pair alone.

    Fields:
      fanouts: the number of neighbours that a node draws, the ends' hop first. -1 takes all, as
        in the paper. A draw may be spent on the pair's other end.
      edges, edge_ids, edge_weights: as in `Neighbors`.

    Beside the block the batch has:
      seeds: int32 `[B, 2]`, the pairs; `N` twice is padding.
      pair_labels: int32 `[B]`, 1 where an edge joins the ends in either direction.
      groups: int32 `[B+1]`; pair `b` has the rows `groups[b]:groups[b+1]`. They are its first
        end, its second end unless that is the same node, and the other nodes by ascending id. A
        pair that is padding has no rows.
      node_labels: int32 `[R]`, the result of `double_radius_labels`; 0 in padding.
      seed_rows: int32 `[B, 2]`, the rows of both ends.

    A capacity has one entry for each hop, the number of draws of all pairs and the number of
    rows so far, and one for the block: its edges, those between ends included, and its rows. A
    batch overflows, with -1 for `needed`, where a seed is not a node, or where only one end of
    a pair is padding.
    """

    fanouts: Annotated[
        tuple[int, ...],
        Option(
            "neighbours to draw per node in each hop from a pair's ends; -1: all",
            default=(100, 20),
            least=-1,
            never=0,
            most=INT32,
        ),
    ] = (-1,)

    by_node = True
    pairs = takes_room = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", check_fanouts(self.fanouts))
        super().__post_init__()

    def init(self, graph: Graph) -> jax.Array:
        """bool `[]`: whether the graph's rows are sorted, so that long ones are searched."""
        self._check_graph(graph)
        return rows_sorted(graph)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        most_edges, most_rows = (batch_size * size for size in (shape.num_edges, shape[0]))
        fringe = rows = min(2 * batch_size, most_rows)
        edges, sources = [], []
        for k in self.fanouts:
            fringe = most_edges if k == -1 else min(fringe * k, most_edges)
            rows = min(rows + fringe, most_rows)
            edges.append(fringe)
            sources.append(rows)
        if shape.max_degree is not None:
            most_edges = min(most_edges, rows * shape.max_degree)
        return Capacity((*edges, most_edges), (*sources, rows))

    def _batch(
        self, drawn: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        pairs, num_nodes, num_rows = seeds.nodes, graph.num_nodes, capacity.sources[-1]
        bad = jnp.any((pairs < 0) | (pairs > num_nodes))
        bad |= jnp.any((pairs[:, 0] == num_nodes) != (pairs[:, 1] == num_nodes))
        ends = jnp.where(bad, num_nodes, pairs)
        others, needed, failed = _draw(drawn, graph, ends, self, capacity)
        nodes, groups = _rows(ends, others, num_nodes, num_rows, failed)
        need = needed, jnp.where(failed, 0, needed[1, -1])
        of = (nodes, groups, capacity.edges[-1], need, bad | failed, None, state)
        nodes, block, overflow, needed = self._square(graph, *of)
        groups = jnp.where(overflow, 0, groups)

        # The end of its pair that a row is: 0 or 1, or -1 for neither.
        group, place = _groups_of_rows(groups, num_rows)
        two = jnp.diff(groups) > 0
        two &= ends[:, 0] != ends[:, 1]
        end = jnp.where((place == 0) | ((place == 1) & two[group]), place, -1)
        block, labels = _without_targets(block, group, end, two, graph.num_edges)
        block = empty_if(overflow, block, graph.num_edges)
        first = jnp.where(jnp.diff(groups) > 0, groups[:-1], num_rows)
        seed_rows = jnp.stack([first, jnp.where(two, first + 1, first)], axis=1)
        return MiniBatch.drawn(
            seeds=pairs,
            nodes=nodes,
            blocks=(block,),
            overflow=overflow,
            num_nodes=num_nodes,
            needed=jnp.where(bad, -1, needed),
            seed_rows=seed_rows.astype(jnp.int32),
            extras=Extras(None, labels, groups, double_radius_labels(block, end)),
            square=True,
        )


def _draw(
    key_data: jax.Array, graph: Graph, ends: jax.Array, sampler: Seal, capacity: Capacity
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The nodes that the hops from `ends` `[B, 2]` reach: int64 `[R]`, the ascending numbers
    `pair * N + node` of those that are not ends, padded with `_NONE`; int32 `[2, L]`, the
    numbers of edges and rows that each hop needed; and whether one did not fit."""
    num_nodes, num_pairs = max(graph.num_nodes, 1), ends.shape[0]
    draws = Neighbors(sampler.fanouts)
    twice = jnp.where(ends[:, 1] == ends[:, 0], graph.num_nodes, ends[:, 1])
    fringe = jnp.stack([ends[:, 0], twice], axis=1).reshape(-1)
    pair = jnp.repeat(jnp.arange(num_pairs, dtype=jnp.int64), 2)
    num_ends = jnp.sum(fringe < graph.num_nodes, dtype=jnp.int64)
    others, overflow, needed = jnp.zeros(0, jnp.int64), num_ends > capacity.sources[0], []
    for h in range(len(sampler.fanouts)):
        most_edges, most_rows = capacity.edges[h], capacity.sources[h]
        drawn = draws.draw_hop(key_data, graph, fringe, h, most_edges)
        row, real = edge_targets(most_edges, drawn.indptr, fringe.shape[0], drawn.indptr[-1])
        pair_of_edge = pair.at[row].get(mode="clip")
        real &= jnp.all(ends[pair_of_edge] != drawn.neighbors[:, None], axis=1)
        # After sorting, a known node (even) comes before an equal node that was drawn (odd).
        found = jnp.where(real, pair_of_edge * num_nodes + drawn.neighbors, _NONE)
        both = jnp.sort(jnp.concatenate([2 * others, 2 * found + 1]))
        ids = both >> 1
        before = jnp.concatenate([jnp.full(1, -1, jnp.int64), ids])[: ids.size]
        once = (ids != before) & (ids != _NONE)
        count = num_ends + jnp.sum(once)
        slot = jnp.where(once, jnp.cumsum(once) - 1, most_rows)
        others = jnp.full(most_rows, _NONE, jnp.int64).at[slot].set(ids, mode="drop")
        new = jnp.zeros(most_rows, bool).at[slot].set(both % 2 == 1, mode="drop")
        fringe = jnp.where(new, others % num_nodes, graph.num_nodes).astype(jnp.int32)
        pair = others // num_nodes
        fits = drawn.needed <= most_edges
        rows = jnp.where(fits, jnp.minimum(count, most_rows + 1), 0).astype(jnp.int32)
        needed.append(jnp.where(overflow, 0, jnp.stack([drawn.needed, rows])))
        overflow |= ~fits | (count > most_rows)
    return others, jnp.stack(needed, axis=1), overflow


def _rows(
    ends: jax.Array, others: jax.Array, num_nodes: int, num_rows: int, empty: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The batch's nodes, int32 `[num_rows]`, and groups, int32 `[B+1]`; no nodes if `empty`."""
    numbers = jnp.arange(ends.shape[0] + 1, dtype=jnp.int64)
    real, two = ends[:, 0] < num_nodes, ends[:, 0] != ends[:, 1]
    count = jnp.where(real, 1 + two, 0).astype(jnp.int64)
    ends_before = jnp.concatenate([jnp.zeros(1, jnp.int64), jnp.cumsum(count)])
    groups = ends_before + jnp.searchsorted(others, numbers * max(num_nodes, 1))
    nodes = jnp.full(num_rows, num_nodes, jnp.int32)
    for i, here in enumerate((real, two)):
        slot = jnp.where(here, groups[:-1] + i, num_rows)
        nodes = nodes.at[slot].set(ends[:, i], mode="drop")
    pair, node = others // max(num_nodes, 1), others % max(num_nodes, 1)
    after = ends_before.at[pair + 1].get(mode="clip") + jnp.arange(others.size)
    slot = jnp.where(others == _NONE, num_rows, after)
    nodes = nodes.at[slot].set(node.astype(jnp.int32), mode="drop")
    nodes, groups = jnp.where(empty, num_nodes, nodes), jnp.where(empty, 0, groups)
    return nodes, groups.astype(jnp.int32)


def _groups_of_rows(groups: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """int32 `[R]` each: the pair of each row, and the row's position in its group; -1 in
    padding."""
    row = jnp.arange(num_rows, dtype=jnp.int32)
    group = jnp.searchsorted(groups, row, side="right").astype(jnp.int32) - 1
    real = row < groups[-1]
    group = jnp.where(real, group, -1)
    return group, jnp.where(real, row - groups[group], -1)


def _without_targets(
    block: Block, group: jax.Array, end: jax.Array, two: jax.Array, num_edges: int
) -> tuple[Block, jax.Array]:
    """The block without the edges that join a pair's ends (for a pair of equal ends: its
    self-loops), and int32 `[B]`: 1 where there were such edges."""
    row, real = targets_of(block)
    source = jnp.where(real, block.indices, 0)
    row = jnp.where(real, row, 0)
    pair = group[row]
    joins = real & (end[row] >= 0) & (end[source] >= 0)
    joins &= (row != source) | ~two[pair]
    labels = jnp.zeros(two.shape[0], jnp.int32).at[pair].max(joins.astype(jnp.int32))
    return with_edges(block, ~joins, num_edges), labels


def double_radius_labels(block: Block, end: jax.Array) -> jax.Array:
    """int32 `[R]`: the label of each row of disjoint subgraphs, the paper's equation 3: `1 +
    min(dx, dy) + (d / 2) [(d / 2) + (d % 2) - 1]` with `d = dx + dy` and integer division. `dx`
    is the number of edges, from target to source, on the shortest path from the first end to
    the row that does not pass the second end; `dy` is the same from the second end. The ends
    have the label 1. Rows that one of the ends does not reach in this way have 0.

    The square `block` has the subgraphs without the edges that join their ends. `end` int32
    `[R]` is 0 or 1 for the rows of a pair's first or second end, -1 for others.
    """
    row, real = targets_of(block)
    row = jnp.where(real, row, 0)
    is_end = end[:, None] == jnp.arange(2)
    begin = jnp.where(is_end, 0, _FAR).astype(jnp.int32)

    def further(carry: Any) -> Any:
        away, level, _ = carry
        leaves = (away == level)[row] & real[:, None]
        reached = jnp.zeros_like(is_end).at[block.indices].max(leaves, mode="drop")
        new = reached & (away == _FAR) & ~is_end[:, ::-1]
        return jnp.where(new, level + 1, away), level + 1, jnp.any(new)

    first = vary_alike(begin, jnp.int32(0), jnp.bool_(True), end)[:-1]
    away, _, _ = jax.lax.while_loop(lambda carry: carry[2], further, first)
    dx, dy = away[:, 0], away[:, 1]
    half, odd = jnp.divmod(dx + dy, 2)
    label = 1 + jnp.minimum(dx, dy) + half * (half + odd - 1)
    label = jnp.where((dx == _FAR) | (dy == _FAR), 0, label)
    return jnp.where(end >= 0, 1, label)


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
