"""What a layer reads of a block's edges: their columns, and a message for each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.graph.batch import Control
from jgs.models.layer import by_each_edge
from jgs.ops import gather
from jgs.settings import exact_integers

# For each number of an edge a mean, which is taken off, and a factor; (): as they are.
EdgeScales = Sequence[tuple[float, float]]


class EdgeOptions(TypedDict, total=False):
    """The arguments of layers that are `ReadsEdges`, and of their stacks."""

    edge_columns: tuple[str, ...]
    edge_width: int
    edge_scales: EdgeScales


def read_edges(layer: Any, block: Block) -> dict[str, jax.Array]:
    """The columns `[E, ...]` of `block` that `layer` declares, by name. Padding holds copies of
    the first edge. Raises `InputError` where the block lacks a column."""
    found, reader = block.edge_arrays(), type(layer).__name__
    for name in layer.edge_columns:
        if name not in found:
            raise InputError(
                f"a block must have the edge column {name!r}, which {reader} reads",
                ", ".join(found) or "no edge columns",
                f"Ask the sampler for it: edges=({name!r},).",
            )
    return {name: _with_finite_padding(block, found[name]) for name in layer.edge_columns}


def on_edges(layer: Any, block: Block, message: jax.Array) -> tuple[Block, jax.Array]:
    """The block and the rows that `layer` reduces, from the sources' rows `message` `[S, P]`.
    In an `EdgeLayer` they are a block whose sources are the edges, and the edges' messages. In
    other layers these are `block` and `message` themselves."""
    if not by_each_edge(layer):
        return block, message
    rows = _with_finite_padding(block, gather(message, block.indices))
    rows = layer.edge_message(rows, read_edges(layer, block))
    what = f"what edge_message of {type(layer).__name__} returns"
    remedy = "Set message_width to the width of an edge's message."
    sizes = {"E": block.edge_capacity, "W": layer.message_width}
    require_array(what, rows, "[E, W], as its message_width says", remedy, **sizes)
    if block.control is not None:
        sources = gather(block.control.sources, block.indices)
        control = Control(padded_edges(block, sources), block.control.targets)
        block = replace(block, control=control)
    return by_edge(block), padded_edges(block, rows)


def by_edge(block: Block) -> Block:
    """The same rows of edges, where each edge is a source of its own. `padded_edges` makes
    matrices for it."""
    each = jnp.arange(block.edge_capacity, dtype=jnp.int32)
    return replace(block, indices=each, num_sources=block.num_edges, source_capacity=None)


def padded_edges(block: Block, rows: jax.Array) -> jax.Array:
    """`rows` `[E, ...]`, with more rows where `block` has more targets than edges, because a
    matrix has a row for every target."""
    return jnp.pad(rows, ((0, max(block.target_capacity - rows.shape[0], 0)), (0, 0)))


def mean_by_source(block: Block, rows: jax.Array, num_sources: int) -> jax.Array:
    """float32 `[S, M]`: the mean of `rows` `[E, M]` over the edges from each source."""
    total = jax.ops.segment_sum(rows, block.indices, num_sources)
    count = jax.ops.segment_sum(jnp.ones_like(rows[:, :1]), block.indices, num_sources)
    return total / jnp.maximum(count, 1)


class ReadsEdges:
    """A layer that reads the features of edges, `e` in its equations.

    Fields:
      features: the names of the edge columns that together are `e`.
      edge_columns: those and others that the layer reads.
      edge_width: how many numbers the features hold for each edge.
      edge_scales: pairs (mean, factor), one for each of these numbers: `e` is
        `(number - mean) * factor`. (): `e` are the numbers.
    """

    features: tuple[str, ...]
    edge_columns: tuple[str, ...]
    edge_width: int
    edge_scales: EdgeScales

    def reads(
        self,
        *others: str,
        edge_columns: Iterable[str] = (),
        edge_width: int = 0,
        edge_scales: EdgeScales = (),
    ) -> None:
        """Sets these fields, from the `EdgeOptions` of a layer and the names of `others` that
        it reads. Raises `InputError`."""
        features, width, scales = edge_columns, edge_width, edge_scales
        if isinstance(features, str):
            raise InputError(
                "edge_columns must be a tuple of names",
                repr(features),
                f"Write ({features!r},).",
            )
        names = tuple(features)
        if width < 0 or bool(names) != (width > 0):
            raise InputError(
                "edge_width must be how many numbers the edge_columns hold for each edge",
                f"{width} for {names}",
                "Give both, as in edge_columns=('dist',), edge_width=1, or neither.",
            )
        found = tuple((float(mean), float(factor)) for mean, factor in scales)
        if found and len(found) != width:
            raise InputError(
                "edge_scales must have a pair for each number of an edge",
                f"{len(found)} for edge_width {width}",
                "Give a mean and a factor for each, or leave it out.",
            )
        self.features, self.edge_columns = names, (*others, *names)
        self.edge_width, self.edge_scales = width, found

    def of_edges(self, edge: dict[str, jax.Array]) -> jax.Array:
        """`e`, float32 `[n, edge_width]`, from columns of edges."""
        own = {name: edge[name] for name in self.features}
        return joined(own, self.edge_width, self.edge_scales)


def joined(edge: dict[str, jax.Array], width: int, scales: EdgeScales = ()) -> jax.Array:
    """The columns side by side, float32 `[n, width]`, scaled by the `EdgeScales`: numbers of 64
    bits as float64, so that what is far from 0 keeps digits. Raises `InputError` for another
    width."""
    columns = [c.reshape(c.shape[0], math.prod(c.shape[1:])) for c in edge.values()]
    found = sum(column.shape[1] for column in columns)
    if found != width:
        raise InputError(
            f"edge_width must be the numbers of an edge in {', '.join(edge)} together, {found}",
            width,
            "Build the layer with this edge_width.",
        )
    if not scales:
        return jnp.hstack([column.astype(jnp.float32) for column in columns])
    ends = np.cumsum([column.shape[1] for column in columns])
    with exact_integers():
        scaled = []
        for column, own in zip(columns, np.split(np.array(scales), ends[:-1]), strict=True):
            kind = np.float64 if column.dtype.itemsize == 8 else np.float32
            mean, factor = own.T.astype(kind)
            scaled.append(((column.astype(kind) - mean) * factor).astype(jnp.float32))
        return jnp.hstack(scaled)


def _with_finite_padding(block: Block, array: jax.Array) -> jax.Array:
    """`array` `[E, ...]` with copies of the first edge's entry in padding, and 1 if there is no
    edge. What a layer computes of padding gets a gradient of 0, and 0 * NaN would be NaN in a
    weight's gradient. A function that is finite on the real edges is finite on copies of them;
    it need not be at 0, as a logarithm is not."""
    with exact_integers():  # positions and times are 64-bit
        real = jnp.arange(array.shape[0]) < block.num_edges
        first = array[:1]
        first = jnp.where(block.num_edges > 0, first, jnp.ones_like(first))
        return jnp.where(real.reshape(-1, *[1] * (array.ndim - 1)), array, first)
