"""What a sampler returns and a model takes: `Block` and `MiniBatch`.

Their docstrings are the specification: shape, dtype and meaning of every field, and what
padding looks like. Both are JAX pytrees, so they pass through `jax.jit` as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jgs.graph.device import reduce_arrays
from jgs.graph.export import edge_index_of_block, graphs_tuple
from jgs.graph.shown import Shown, real


class Control(NamedTuple):
    """Control variates of a mean over a block: approximations of its sources' rows `x`, whose
    mean over all neighbours of a target is known.

    `aggregate(block, x, "mean")` is then `targets` and the mean of `x - sources` over the drawn
    edges: it varies only as far as the approximations are wrong.

    Fields, of rows as wide as what is aggregated:
      sources: float32 `[S, M]`.
      targets: float32 `[T, M]`, 0 in padding.
    """

    sources: jax.Array
    targets: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class Block(Shown):
    """One hop's bipartite graph, from sources to targets, in compressed sparse column form.

    Fields (capacities `T`, `E`, `S` are static; the counts say how much is real):
      indptr: int32 `[T+1]`; the edges into target `t` are `indptr[t]:indptr[t+1]`. Rows
        from `num_targets` on are empty.
      indices: int32 `[E]`; each edge's source, as a row of the source matrix. From
        `num_edges` on it is `S`, one past the last row, so that gathers with
        `mode="fill"` read zeros there and scatters with `mode="drop"` write nothing.
      num_targets, num_sources, num_edges: int32 scalars. The targets are the first
        `num_targets` of the sources.
      edge_id: int64 `[E]` or None; each edge's position in `Graph.indices`. In padding it is
        the graph's number of edges, one past the last row of any edge column, so that
        `jgs.ops.gather(column, edge_id)` reads zeros there. None too where neighbours are no
        edges of the graph, as those of `PinSage`.
      edge_weight: float32 `[E]` or None; each edge's weight, 0 in padding.
      control: `Control` or None; what is added to a mean over the block.
      source_capacity: int, static; `S`, the rows that a source matrix must have. None of a
        block made by hand: then nobody checks it.

    The input side of a sample made with `relabel_inputs=False` has all nodes of the graph for
    sources: `indices` are node ids, rows of the feature matrix; `S` and `num_sources` are
    `num_nodes` (`num_sources` 0 on overflow); and the targets are not the first of the
    sources but `MiniBatch.nodes`. For `jgs.ops.gather_aggregate`.
    """

    indptr: jax.Array
    indices: jax.Array
    num_targets: jax.Array
    num_sources: jax.Array
    num_edges: jax.Array
    edge_id: jax.Array | None = None
    edge_weight: jax.Array | None = None
    control: Control | None = None
    source_capacity: int | None = field(default=None, metadata={"static": True})

    __reduce__ = reduce_arrays

    def _facts(self) -> dict[str, str]:
        sources = self.source_capacity
        return {
            "targets": real(self.num_targets, self.target_capacity),
            "sources": real(self.num_sources, sources) if sources is not None else "",
            "edges": real(self.num_edges, self.edge_capacity),
        }

    @property
    def target_capacity(self) -> int:
        return self.indptr.shape[-1] - 1

    @property
    def edge_capacity(self) -> int:
        return self.indices.shape[-1]

    def edge_index(self) -> jax.Array:
        """int32 `[2, E]`: the source and the target of each edge, as PyG and jraphx want them,
        both as rows of the source matrix. The targets are its first rows.

        Both are `S` in padding, one past the last row: sums that drop what is out of bounds,
        as `jax.ops.segment_sum` does, leave padding out. It works inside `jax.jit`.
        """
        return edge_index_of_block(self)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class MiniBatch(Shown):
    """What a sampler returns and a model takes.

    Of a super-batch, sampled from seeds `[S, B]`, every array here and in the blocks has a
    leading axis `S`; `jax.tree.map(lambda a: a[i], batch)` is batch `i`.

    Fields:
      seeds: int32 `[B]`; the nodes the batch is for, as given. Padding is `num_nodes`. Of a
        batch of pairs int32 `[B, 2]`, the two ends of each; padding is `num_nodes` twice.
      nodes: int32 `[S]`; the input nodes, whose features the first layer reads. The first
        `num_targets` of the last block are the seeds. Padding is `num_nodes`, so that
        `jnp.take(x, nodes, axis=0, mode="fill", fill_value=0)` reads zeros. With
        `relabel_inputs=False` int32 `[T]`: the targets alone of `blocks[0]`.
      blocks: one `Block` a layer, in the order in which the model consumes them: the input
        side first, the seeds' own hop last. Block `i`'s targets are block `i+1`'s sources. Or
        one square block, whose sources are its targets, for all layers: see `block`.
      overflow: bool scalar. True: a capacity was too small, everything else is empty, and
        the batch must be drawn again, same key, with a larger capacity. A model's outputs for
        it are NaN.
      num_nodes: int, static; of the graph sampled from.
      needed: int32 `[2, L]` or None; the edges and the sources that each hop needed of its
        capacity, seed-first. On overflow those of the hops up to the one that did not fit, and
        there one source more than fits where that is all that is known; -1 where a seed was
        no node.
      degrees: int32 `[S]` or None; the in-degree of each of `nodes` in the whole graph, 0 in
        padding. For layers that normalise by it (`with_degrees`).
      seed_rows: int32 `[B]` or None; the row of the model's output that belongs to each seed.
        None: row `i` to seed `i`. Of pairs `[B, 2]`, both ends'.
      seed_weight: float32 `[B]` or None; what each seed's loss counts. None: 1.
      pair_labels: int32 `[B]`, of pairs alone, else None; 1 where an edge of the graph joins
        the two ends, 0 elsewhere and in padding.
      groups: int32 `[B+1]` or None; seed (or pair) `b` has a subgraph of its own, whose rows
        are `groups[b]:groups[b+1]`.
      node_labels: int32 `[S]` or None; what each row is to its pair, by Zhang and Chen's
        double-radius labelling (`Seal`): 1 an end, 0 a node that is not near both. 0 in
        padding.
      direct_inputs: bool, static; whether the first block names its sources by node id
        (`relabel_inputs=False`).
      square: bool, static; whether the only block serves every layer.
    """

    seeds: jax.Array
    nodes: jax.Array
    blocks: tuple[Block, ...]
    overflow: jax.Array
    num_nodes: int = field(metadata={"static": True})
    needed: jax.Array | None = None
    degrees: jax.Array | None = None
    seed_rows: jax.Array | None = None
    seed_weight: jax.Array | None = None
    pair_labels: jax.Array | None = None
    groups: jax.Array | None = None
    node_labels: jax.Array | None = None
    direct_inputs: bool = field(default=False, metadata={"static": True})
    square: bool = field(default=False, metadata={"static": True})

    __reduce__ = reduce_arrays

    def _facts(self) -> dict[str, str]:
        first, pairs = self.blocks[0], self.pair_labels is not None
        read = first.num_targets if self.direct_inputs else first.num_sources
        overflow = self.overflow
        lost = not isinstance(overflow, jax.core.Tracer) and bool(jnp.any(overflow))
        kinds = {"square": self.square, "direct inputs": self.direct_inputs, "OVERFLOW": lost}
        return {
            "batches": f"{self.nodes.shape[0]:,}" if self.nodes.ndim == 2 else "",
            "pairs" if pairs else "seeds": real(
                self.seed_mask.sum(-1), self.seed_mask.shape[-1]
            ),
            "nodes": real(read, self.nodes.shape[-1]),
            "edges": " + ".join(real(b.num_edges, b.edge_capacity) for b in self.blocks),
            "": ", ".join(kind for kind, holds in kinds.items() if holds),
        }

    @property
    def seed_mask(self) -> jax.Array:
        """bool `[B]`: False in padding. Losses and metrics count only where it is True."""
        seeds = self.seeds if self.pair_labels is None else self.seeds[..., 0]
        return seeds != self.num_nodes

    def block(self, layer: int) -> Block:
        """The block that layer number `layer` of the model reads."""
        return self.blocks[0] if self.square else self.blocks[layer]

    def with_degrees(self, degrees: jax.Array) -> MiniBatch:
        """The batch with `degrees` filled from those of all nodes, int32 `[N]`
        (`graph.degrees()`)."""
        own = jnp.take(degrees, self.nodes, mode="fill", fill_value=0)
        return replace(self, degrees=own)

    def of_seeds(self, rows: jax.Array) -> jax.Array:
        """`[B, C]`: the seeds' rows of the last layer's output `[T, C]`, which a model returns.
        Of pairs `[B, 2, C]`, both ends'. NaN where the batch has overflowed, so that nobody
        trains on nothing unawares."""
        if self.seed_rows is None:
            own = rows[: self.seeds.shape[0]]
        else:
            own = jnp.take(rows, self.seed_rows, axis=0, mode="fill", fill_value=0)
        return jnp.where(self.overflow, jnp.nan, own)

    def to_graphs_tuple(self, x: Any = None) -> Any:
        """The batch as one padded `jraph.GraphsTuple`, the edges of all its blocks together.

        Args:
          x: what its nodes carry, an array `[S, ...]` or a pytree of them. None: `nodes`.

        Node `i` is `nodes[i]`, so the seeds are the first. `edges` is a dict of arrays: "layer"
        int32, the number of the block that an edge is of, and "edge_id" and "edge_weight" where
        the blocks have them. As with `jraph.pad_with_graphs` there are two graphs, the batch
        and its padding, which has a node at least: there are `S + 1` nodes, and `x` has zeros
        for the last. It works inside `jax.jit`. Raises `InputError` where jraph is not
        installed, and for a batch sampled with `relabel_inputs=False`.
        """
        return graphs_tuple(self, x)

    def source_nodes(self, layer: int) -> jax.Array:
        """int32 `[S]`: the node ids of block `layer`'s sources, of a batch whose first block
        does not name them itself (`direct_inputs`); padding is `num_nodes`."""
        if layer == 0 or self.square:
            return self.nodes
        return self.target_nodes(layer - 1)

    def target_nodes(self, layer: int) -> jax.Array:
        """int32 `[T]`: the node ids of block `layer`'s targets; padding is `num_nodes`."""
        block = self.block(layer)
        slot = jnp.arange(block.target_capacity, dtype=jnp.int32)
        real = slot < block.num_targets[..., None]
        return jnp.where(real, self.nodes[..., : block.target_capacity], self.num_nodes)
