"""What a sampler returns and a model takes: `Block` and `MiniBatch`.

Their docstrings specify the shape, the dtype and the meaning of every field, and what padding
looks like. Both are JAX pytrees, so they pass through `jax.jit` as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph.device import reduce_arrays
from jgs.graph.foreign import Coo, Csc, graphs_tuple, targets_of
from jgs.graph.rows import row_of_edges
from jgs.graph.schema import Schema
from jgs.graph.shown import Shown, real

AGELESS = 2.0**63  # the column "elapsed" of an edge that was always there
EDGE_FIELDS = ("id", "type", "time")  # columns of a block that are fields of their own


class Control(NamedTuple):
    """Control variates for a mean over a block: approximations of the sources' rows.

    `aggregate(block, x, "mean")` then returns `targets` plus the mean of `x - sources` over the
    drawn edges. Its variance is that of the approximations' errors.

    Fields (`M` is the width of the aggregated rows `x`):
      sources: float32 `[S, M]`, an approximation of each source's row of `x`.
      targets: float32 `[T, M]`, the mean of the approximations over all neighbours of each
        target in the graph; 0 in padding.
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
      num_targets, num_sources, num_edges: int32 scalars. The first `num_targets` sources are
        the targets.
      edge_id: int64 `[E]` or None; each edge's position in `Graph.indices`. In padding it is
        the graph's number of edges, one past the last row of any edge column, so that
        `jgs.ops.gather(column, edge_id)` reads zeros there. None also where the neighbours are
        not joined by edges of the graph, as with `PinSage`.
      edge_weight: float32 `[E]` or None; what multiplies each edge's message, 0 in padding:
        weights of the graph, or those of a sampler's estimate. Layers do not read it.
      control: `Control` or None; control variates for a mean over the block.
      source_capacity: int, static; `S`, the number of rows that a source matrix must have. None
        in a block made by hand: the number of rows is then not checked.
      edge_type: int16 `[E]` or None; the number of each edge's relation, 0 in padding.
      edge_time: int64 `[E]` or None; each edge's time, 0 in padding.
      edge_columns: dict of arrays `[E, ...]` by name; the rows of the graph's edge columns that
        were asked for, 0 in padding. `{}` if there are none. `"weight"` is the graph's
        `edge_weight`, which layers read. It multiplies nothing. `"elapsed"` is float32 `[E]`:
        the time from each edge to the cutoff of its target, in the unit of the graph's times;
        2**63 for an edge that was always there, whose time is the least int64.
      overflow: bool scalar or None; that of the batch. True: the block is empty, and what
        `jgs.ops.aggregate` returns for it is NaN. None, in a block made by hand: False.

    A block has the columns that its sampler was asked for (`jgs.sampling.Sampler`, `edges`).

    With `relabel_inputs=False` the first block of a sample has all nodes of the graph for
    sources. Its `indices` are node ids, that is, rows of the feature matrix. `S` and
    `num_sources` are `num_nodes` (`num_sources` is 0 on overflow). Its targets are
    `MiniBatch.nodes` and not the first sources. `jgs.ops.gather_aggregate` takes such a block.
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
    edge_type: jax.Array | None = None
    edge_time: jax.Array | None = None
    edge_columns: dict[str, jax.Array] = field(default_factory=dict)
    overflow: jax.Array | None = None

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

    def edge_arrays(self) -> dict[str, jax.Array]:
        """The block's columns, arrays `[E, ...]`, by the names under which a sampler is asked
        for them: `"id"`, `"type"`, `"time"`, and the names in `edge_columns`. A layer that
        reads edges gets this (`jgs.models.EdgeLayer`)."""
        fields = {name: getattr(self, f"edge_{name}") for name in EDGE_FIELDS}
        return {n: a for n, a in fields.items() if a is not None} | self.edge_columns

    def with_edge_arrays(self, arrays: Mapping[str, jax.Array]) -> Block:
        """The same block with exactly these columns, named as in `edge_arrays`. `edge_weight`
        stays."""
        fields: dict[str, Any] = {f"edge_{name}": arrays.get(name) for name in EDGE_FIELDS}
        columns = {name: a for name, a in arrays.items() if name not in EDGE_FIELDS}
        return replace(self, **fields, edge_columns=columns)

    def edge_index(self) -> jax.Array:
        """int32 `[2, E]`: the source and the target of each edge, in the format of PyG and
        jraphx, both as rows of the source matrix. The targets are its first rows.

        In padding both are `S`, one past the last row. A sum that drops indices out of bounds,
        as `jax.ops.segment_sum` does, leaves padding out. It works inside `jax.jit`.
        """
        target, real = targets_of(self)
        return jnp.stack([self.indices, jnp.where(real, target, self.indices)])

    def csc(self) -> Csc:
        """The real edges in compressed columns, in NumPy. For DGL, which numbers the edges of a
        block from 0: `dgl.create_block(("csc", (csc.indptr, csc.indices,
        np.arange(len(csc.indices)))), num_src_nodes=csc.num_rows, num_dst_nodes=csc.num_cols)`.
        Raises `InputError` for a super-batch."""
        if np.ndim(self.num_edges):
            raise InputError(
                "one block can be exported at a time",
                f"those of a super-batch of {np.shape(self.num_edges)[0]}",
                "Take one: jax.tree.map(lambda a: a[0], block).",
            )
        num_edges, num_targets = int(self.num_edges), int(self.num_targets)
        ids, weight = (
            None if array is None else np.asarray(array)[:num_edges]
            for array in (self.edge_id, self.edge_weight)
        )
        indptr = np.asarray(self.indptr)[: num_targets + 1]
        indices = np.asarray(self.indices)[:num_edges]
        return Csc(indptr, indices, ids, weight, int(self.num_sources), num_targets)

    def coo(self) -> Coo:
        """The real edges as pairs of a row (a source) and a column (a target), in NumPy. Raises
        `InputError` for a super-batch."""
        csc = self.csc()
        return Coo(csc.indices, row_of_edges(csc.indptr), *csc[2:])


class OfType(NamedTuple):
    """The nodes of one type in a batch of `S` nodes.

    Fields:
      rows: int32 `[S]`, ascending: their rows among `MiniBatch.nodes`, and so in a matrix of
        the batch's input rows. Padding is `S`.
      ids: int32 `[S]`, their ids, which count from 0 in the type. Padding is the number of
        nodes of the type.
      num: int32 scalar; how many they are.
    """

    rows: jax.Array
    ids: jax.Array
    num: jax.Array


class Tokens(NamedTuple):
    """The tokens of `B` contexts, `T` each (`jgs.sampling.Context`). Token `i` of seed `b` is
    row `b * T + i` of `MiniBatch.nodes`. The seed's own is the first, and padding is last.

    Fields:
      mask: bool `[B, T]`; whether there is a token.
      kind: int32 `[B, T]`; the number of its node's type, 0 in a graph without a schema, -1 in
        padding.
      hop: int32 `[B, T]`; the number of edges from the seed along which it was reached; 0 for
        the seed and in padding.
      parent: int32 `[B, T]`; the position of the token from which it was reached. `T` for the
        seed, in padding, and where that one is not in the context.
      relation: int32 `[B, T]`; the number of the relation of the edge along which it was
        reached, 0 in a graph without relations; -1 for the seed and in padding.
      age: float32 `[B, T]` or None; the time from this edge to the cutoff, `AGELESS` for an
        edge that was always there; 0 for the seed and in padding. None for seeds without times.
    """

    mask: jax.Array
    kind: jax.Array
    hop: jax.Array
    parent: jax.Array
    relation: jax.Array
    age: jax.Array | None = None


class Extras(NamedTuple):
    """What only the batches of some algorithms have. A field is None in all other batches.

    Fields:
      seed_weight: float32 `[B]`; the weight of each seed in the loss (`Saint` and other
        `SubgraphSampler`s). None: 1.
      pair_labels: int32 `[B]`; 1 where an edge of the graph joins the two ends of a pair, 0
        elsewhere and in padding (`Seal`).
      groups: int32 `[B+1]`; pair or seed `b` has a subgraph of its own, whose rows are
        `groups[b]:groups[b+1]` (`Seal`, `Context`).
      node_labels: int32 `[S]`; the position of each row relative to its pair, by Zhang and
        Chen's double-radius labelling: 1 for an end, 0 for a node that is not near both ends,
        and 0 in padding (`Seal`).
      excluded: int64 `[X]`; the edges that the seeds excluded, as `update` of an adaptive
        `MatrixSampler` needs them. None: there were none.
      tokens: `Tokens`, the places of `nodes` in the contexts of the seeds (`Context`).
    """

    seed_weight: jax.Array | None = None
    pair_labels: jax.Array | None = None
    groups: jax.Array | None = None
    node_labels: jax.Array | None = None
    excluded: jax.Array | None = None
    tokens: Tokens | None = None


def _of_extras(name: str) -> property:
    return property(lambda batch: getattr(batch.extras, name))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class MiniBatch(Shown):
    """What a sampler returns and a model takes.

    In a super-batch, sampled from seeds `[S, B]`, every array here and in the blocks has a
    leading axis `S`; `jax.tree.map(lambda a: a[i], batch)` is batch `i`.

    Fields:
      seeds: int32 `[B]`; the nodes that the batch is for, as given. Padding is `num_nodes`. In
        a batch of pairs int32 `[B, 2]`, the two ends of each; padding is `num_nodes` twice.
      nodes: int32 `[S]`; the input nodes, whose features the first layer reads. The targets of
        the last block, which are the seeds, come first. Padding is `num_nodes`, so that
        `jnp.take(x, nodes, axis=0, mode="fill", fill_value=0)` reads zeros. With
        `relabel_inputs=False` int32 `[T]`: only the targets of `blocks[0]`.
      blocks: one `Block` for each layer, in the order in which the model reads them: the input
        side first, the seeds' own hop last. The targets of block `i` are the sources of block
        `i+1`. Or one square block, whose sources are its targets, for all layers: see `block`.
      overflow: bool scalar. True: a capacity was too small, and everything else is empty. The
        batch must be drawn again with the same key and a larger capacity. No seed is real
        (`seed_mask`), and a model's outputs, and all that is aggregated, are NaN.
      num_nodes: int, static; the number of nodes of the sampled graph.
      needed: int32 `[2, L]` or None; the number of edges (row 0) and of sources (row 1) that
        each hop needs, the seeds' hop first. After an overflow it is known up to the hop that
        did not fit; the sources of that hop may be given as one more than the capacity, which
        is a lower bound. -1 where a seed was not a node.
      degrees: int32 `[S]` or None; the in-degree of each of `nodes` in the whole graph, 0 in
        padding. Layers that normalise by degree read it (`with_degrees`).
      seed_rows: int32 `[B]` or None; the row of the model's output that belongs to each seed.
        None: row `i` belongs to seed `i`. In a batch of pairs `[B, 2]`, the rows of both ends.
      cutoff: int64 `[S]` or None; the time before which the edges into each of `nodes` were
        drawn, for seeds that have times. A node that two seeds reach under two cutoffs is
        twice in `nodes`. In padding 0.
      items: the rows of the loader's items that the batch is for, a pytree of arrays `[B, ...]`
        (`Loader`). None where the items are ids or pairs, which are `seeds`, or no loader made
        the batch.
      extras: `Extras`; what only the batches of some algorithms have. Its fields can also be
        read from the batch itself, as `batch.seed_weight`.
      direct_inputs: bool, static; whether the first block names its sources by node id
        (`relabel_inputs=False`).
      square: bool, static; whether the only block serves every layer.
      schema: `Schema`, static; that of the sampled graph, or None.
    """

    seeds: jax.Array
    nodes: jax.Array
    blocks: tuple[Block, ...]
    overflow: jax.Array
    num_nodes: int = field(metadata={"static": True})
    needed: jax.Array | None = None
    degrees: jax.Array | None = None
    seed_rows: jax.Array | None = None
    cutoff: jax.Array | None = None
    items: Any = None
    extras: Extras = field(default_factory=Extras)
    direct_inputs: bool = field(default=False, metadata={"static": True})
    square: bool = field(default=False, metadata={"static": True})
    schema: Schema | None = field(default=None, metadata={"static": True})

    __reduce__ = reduce_arrays

    @classmethod
    def drawn(
        cls,
        seeds: jax.Array,
        nodes: jax.Array,
        blocks: Iterable[Block],
        overflow: jax.Array,
        num_nodes: int,
        **fields: Any,
    ) -> MiniBatch:
        """The batch of a sample, whose blocks get its `overflow`. A sampler returns it."""
        marked = tuple(replace(block, overflow=overflow) for block in blocks)
        return cls(seeds, nodes, marked, overflow, num_nodes, **fields)

    def _facts(self) -> dict[str, str]:
        first = self.blocks[0]
        read = first.num_targets if self.direct_inputs else first.num_sources
        overflow = self.overflow
        lost = not isinstance(overflow, jax.core.Tracer) and bool(jnp.any(overflow))
        kinds = {"square": self.square, "direct inputs": self.direct_inputs, "OVERFLOW": lost}
        return {
            "batches": f"{self.nodes.shape[0]:,}" if self.nodes.ndim == 2 else "",
            "pairs" if self.of_pairs else "seeds": real(
                self.seed_mask.sum(-1), self.seed_mask.shape[-1]
            ),
            "nodes": real(read, self.nodes.shape[-1]),
            "edges": " + ".join(real(b.num_edges, b.edge_capacity) for b in self.blocks),
            "": ", ".join(kind for kind, holds in kinds.items() if holds),
        }

    @property
    def of_pairs(self) -> bool:
        """Whether the seeds are pairs of nodes."""
        return self.seeds.ndim == self.overflow.ndim + 2

    @property
    def seed_mask(self) -> jax.Array:
        """bool `[B]`: False in padding, and everywhere after an overflow. Losses and metrics
        count only where it is True."""
        first = self.seeds[..., 0] if self.of_pairs else self.seeds
        return (first != self.num_nodes) & ~self.overflow[..., None]

    def gather(self, features: Any) -> Any:
        """The rows of `nodes`, as `jgs.ops.gather` returns them. Raises `InputError` unless
        `features` have a row for each of the graph's `num_nodes` nodes."""
        return import_module("jgs.ops").gather(features, self)  # it imports this package

    seed_weight, pair_labels, groups = map(_of_extras, Extras._fields[:3])
    node_labels, excluded, tokens = map(_of_extras, Extras._fields[3:])

    def block(self, layer: int) -> Block:
        """The block that layer number `layer` of the model reads."""
        return self.blocks[0] if self.square else self.blocks[layer]

    def of_type(self, node_type: str) -> OfType:
        """Those of `nodes` that are of a type. It works inside `jax.jit`. Raises `InputError`
        that lists the known types, and for a graph without a schema."""
        if self.schema is None:
            raise InputError(
                "nodes must have types to be asked for by type",
                f"{node_type!r}, of a graph without a schema",
                "Make the graph with Graph.from_relations.",
            )
        number, count = self.schema.number(node_type), self.nodes.shape[0]
        size = dict(self.schema.node_types)[node_type]
        kind, place = self.schema.type_and_place(self.nodes)
        (rows,) = jnp.nonzero(kind == number, size=count, fill_value=count)
        ids = place.at[rows].get(mode="fill", fill_value=size)
        num = jnp.sum(kind == number, dtype=jnp.int32)
        return OfType(rows.astype(jnp.int32), ids, num)

    def with_degrees(self, degrees: jax.Array) -> MiniBatch:
        """The batch with its field `degrees` filled in. The argument has the degrees of all
        nodes, int32 `[N]` (`graph.degrees()`)."""
        of_nodes = jnp.take(degrees, self.nodes, mode="fill", fill_value=0)
        return replace(self, degrees=of_nodes)

    def of_seeds(self, rows: jax.Array) -> jax.Array:
        """The seeds' rows `[B, C]` of the last layer's output `[T, C]`; a model returns them.
        For pairs `[B, 2, C]`, the rows of both ends. NaN after an overflow, so that nobody
        trains on an empty batch without noticing."""
        if self.seed_rows is None:
            seed_output = rows[: self.seeds.shape[0]]
        else:
            seed_output = jnp.take(rows, self.seed_rows, axis=0, mode="fill", fill_value=0)
        return jnp.where(self.overflow, jnp.nan, seed_output)

    def to_graphs_tuple(self, x: Any = None) -> Any:
        """The batch as one padded `jraph.GraphsTuple`, the edges of all its blocks together.

        Args:
          x: the tuple's `nodes`, an array `[S, ...]` or a pytree of them. None: the node ids.

        Node `i` is `nodes[i]`, so the seeds come first. `edges` is a dict of arrays: "layer"
        int32, the number of the block that an edge belongs to, and "edge_id" and "edge_weight"
        where the blocks have them. As with `jraph.pad_with_graphs` there are two graphs, the
        batch and its padding. The padding has at least one node, so there are `S + 1` nodes;
        the last has zeros for `x`. It works inside `jax.jit`. Raises `InputError` where jraph
        is not installed, and for a batch sampled with `relabel_inputs=False`.
        """
        return graphs_tuple(self, x)

    def source_nodes(self, layer: int) -> jax.Array:
        """int32 `[S]`: the node ids of block `layer`'s sources; padding is `num_nodes`. The
        batch must have input nodes (`direct_inputs` must be False) if `layer` is 0."""
        return self.nodes if layer == 0 or self.square else self.target_nodes(layer - 1)

    def target_nodes(self, layer: int) -> jax.Array:
        """int32 `[T]`: the node ids of block `layer`'s targets; padding is `num_nodes`."""
        block = self.block(layer)
        slot = jnp.arange(block.target_capacity, dtype=jnp.int32)
        real = slot < block.num_targets[..., None]
        return jnp.where(real, self.nodes[..., : block.target_capacity], self.num_nodes)
