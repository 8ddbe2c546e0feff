"""What a sampler returns and a model takes: `Block` and `MiniBatch`.

Their docstrings are the specification: shape, dtype and meaning of every field, and what
padding looks like. Both are JAX pytrees, so they pass through `jax.jit` as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from jgs.graph.device import reduce_arrays


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Block:
    """One hop's bipartite graph, from sources to targets, in compressed sparse column form.

    Fields (capacities `T`, `E`, `S` are static; the counts say how much is real):
      indptr: int32 `[T+1]`; the edges into target `t` are `indptr[t]:indptr[t+1]`. Rows
        from `num_targets` on are empty.
      indices: int32 `[E]`; each edge's source, as a row of the source matrix. From
        `num_edges` on it is `S`, one past the last row, so that gathers with
        `mode="fill"` read zeros there and scatters with `mode="drop"` write nothing.
      num_targets, num_sources, num_edges: int32 scalars. The targets are the first
        `num_targets` of the sources.
      edge_id: int64 `[E]` or None; each edge's position in `Graph.indices`, -1 in padding.
      edge_weight: float32 `[E]` or None; each edge's weight, 0 in padding.

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

    __reduce__ = reduce_arrays

    @property
    def target_capacity(self) -> int:
        return self.indptr.shape[-1] - 1

    @property
    def edge_capacity(self) -> int:
        return self.indices.shape[-1]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MiniBatch:
    """What a sampler returns and a model takes.

    Of a super-batch, sampled from seeds `[S, B]`, every array here and in the blocks has a
    leading axis `S`; `jax.tree.map(lambda a: a[i], batch)` is batch `i`.

    Fields:
      seeds: int32 `[B]`; the nodes the batch is for, as given. Padding is `num_nodes`.
      nodes: int32 `[S]`; the input nodes, whose features the first layer reads. The first
        `num_targets` of the last block are the seeds. Padding is `num_nodes`, so that
        `jnp.take(x, nodes, axis=0, mode="fill", fill_value=0)` reads zeros. With
        `relabel_inputs=False` int32 `[T]`: the targets alone of `blocks[0]`.
      blocks: one `Block` a layer, in the order in which the model consumes them: the input
        side first, the seeds' own hop last. Block `i`'s targets are block `i+1`'s sources.
      overflow: bool scalar. True: a capacity was too small, everything else is empty, and
        the batch must be drawn again, same key, with a larger capacity.
      num_nodes: int, static; of the graph sampled from.
    """

    seeds: jax.Array
    nodes: jax.Array
    blocks: tuple[Block, ...]
    overflow: jax.Array
    num_nodes: int = field(metadata={"static": True})

    __reduce__ = reduce_arrays

    @property
    def seed_mask(self) -> jax.Array:
        """bool `[B]`: False in padding. Losses and metrics count only where it is True."""
        return (self.seeds != self.num_nodes) & ~self.overflow[..., None]

    def target_nodes(self, layer: int) -> jax.Array:
        """int32 `[T]`: the node ids of block `layer`'s targets; padding is `num_nodes`."""
        block = self.blocks[layer]
        slot = jnp.arange(block.target_capacity, dtype=jnp.int32)
        real = slot < block.num_targets[..., None]
        return jnp.where(real, self.nodes[..., : block.target_capacity], self.num_nodes)
