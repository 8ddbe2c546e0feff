"""`Seal`: the enclosing subgraphs of node pairs, with their double-radius labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jgs.graph import Block, Extras, Graph, MiniBatch
from jgs.graph.foreign import edge_targets, targets_of
from jgs.kernels.call import vary_alike
from jgs.options import INT32, Option
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.edges.columns import with_edges
from jgs.sampling.edges.hops import empty_if
from jgs.sampling.edges.induced import rows_sorted
from jgs.sampling.fanouts import check_fanouts
from jgs.sampling.seeds import Seeds
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
