"""`CellTransformer`: a transformer over the cells of the rows in a context, in Flax NNX."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.errors import InputError
from jgs.graph import MiniBatch, Schema, Tokens, TypedRows
from jgs.models.gnn import Heads
from jgs.models.parts import TimeUnit, TimeWidth, check_widths
from jgs.models.relgt import MLP, Attention, RelGT
from jgs.ops import gather
from jgs.options import Option
from jgs.settings import exact_integers

NumCells = Annotated[int, Option("cells that are read of a context", least=2, most=1 << 16)]
_LINKS = 3  # how two cells may be linked, see `_links`
# For each node type its columns: the name, the kind (as in `jgs.data.FeatureColumns`), and the
# number of features that it became.
Columns = tuple[tuple[tuple[str, str, int], ...], ...]


class Cells(NamedTuple):
    """The cells of `B` contexts, `L` each. Those of one row stand together, rows in the order
    of the tokens, and a row's columns in their order. The first cell is the one to fill in: it
    belongs to the seed's row.

    Fields:
      mask: bool `[B, L]`; whether there is a cell.
      token: int32 `[B, L]`; the position of its row's token, 0 in padding.
      column: int32 `[B, L]`; the number of its column among those of all types, one after the
        other; a type without columns has one, which stands for the row. The first cell has the
        number of columns, padding has 0.
    """

    mask: jax.Array
    token: jax.Array
    column: jax.Array


def cells_of(tokens: Tokens, counts: Sequence[int], size: int) -> Cells:
    """The first `size` cells of contexts whose node types have so many columns, `counts`. Rows
    that no longer fit are cut."""
    first = jnp.asarray([0, *accumulate(counts)], jnp.int32)  # of each type
    number = jnp.where(tokens.mask, jnp.asarray(counts, jnp.int32)[tokens.kind], 0)
    ends = 1 + jnp.cumsum(number, axis=1)
    slot = jnp.arange(size, dtype=jnp.int32)
    token = jax.vmap(lambda own: jnp.searchsorted(own, slot, side="right"))(ends)
    mask = slot < ends[:, -1:]
    token = jnp.where(mask, token, 0).astype(jnp.int32)
    begin, kind = (jnp.take_along_axis(a, token, axis=1) for a in (ends - number, tokens.kind))
    column = jnp.where(mask, first[kind] + slot - begin, 0)
    mask, token = (a.at[:, 0].set(v) for a, v in ((mask, tokens.mask[:, 0]), (token, 0)))
    return Cells(mask, token, column.at[:, 0].set(first[-1]))


class CellTransformer(RelGT):
    """A transformer whose tokens are cells, a column's value in a row, as Ranjan et al.,
    "Relational Transformer" (2025), section 3, has them. It predicts the first cell, which is
    empty and belongs to the seed's row.

    A cell is the sum of its value, projected by a matrix of its column; a learned row of the
    column; and the encodings of its row's token, as in `RelGT`. A layer is four blocks, each
    residual and with a normalised input: attention to the cells of the same row, to those of
    rows that are joined to it by the key along which one was reached from the other, to those
    of the same column, and an MLP. At last the first cell attends to all.

    Args:
      in_features, hidden_features, out_features, num_layers, heads, time_width, time_unit,
        dropout, norm, dtype, schema, scales, moments, rngs: as in `RelGT`. There must be a
        schema.
      input_dropout: rate on what cells hold.
      columns: for each node type its columns, in order, each with a name, a kind, and the
        number of its features. None: all features of a type are one column.
      cells: `L`, how many cells are read of a context; those beyond are left out.

    `model(batch, x, key=None)` is that of `RelGT`. Raises `InputError` for other sizes, and
    without a schema.
    """

    def __init__(
        self,
        in_features: Sequence[int],
        hidden_features: int,
        out_features: int,
        num_layers: int = 2,
        *,
        schema: Schema | None = None,
        columns: Columns | None = None,
        cells: NumCells = 256,
        heads: Heads = 4,
        time_width: TimeWidth = 16,
        time_unit: TimeUnit = 1.0,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str | None = None,
        dtype: Any = None,
        scales: Sequence[Sequence[float]] | None = None,
        moments: Sequence[Sequence[tuple[int, int, float, float]]] | None = None,
        rngs: nnx.Rngs,
    ):
        if schema is None:
            raise InputError(
                "cells must be of a graph with node types",
                "none",
                "Make it with Graph.from_relations, or choose --model relgt.",
            )
        own: dict[str, Any] = {"dtype": dtype, "rngs": rngs}
        blocks: list[nnx.Module] = []
        for _ in range(num_layers):
            blocks += [Attention(hidden_features, heads, **own) for _ in range(_LINKS)]
            blocks.append(MLP(hidden_features, **own))
        blocks.append(Attention(hidden_features, heads, True, **own))
        options: dict[str, Any] = {"heads": heads, "centroids": 0, "blocks": blocks, **own}
        options |= {"time_width": time_width, "time_unit": time_unit, "dropout": dropout}
        options |= {"input_dropout": input_dropout, "norm": norm}
        options |= {"schema": schema, "scales": scales, "moments": moments}
        sizes = (in_features, hidden_features, out_features, num_layers)
        super().__init__(*sizes, embedding=None, **options)
        del self.links, self.inputs.bias  # masks, and rows of columns, are in their place
        check_widths(cells=cells)
        widths = self.inputs.in_features
        if columns is None:
            named = zip(schema.node_types, widths, strict=True)
            columns = tuple(
                ((name, "row", width),) if width else () for (name, _), width in named
            )
        self.columns = tuple(tuple((n, k, int(w)) for n, k, w in own) for own in columns)
        if [sum(w for *_, w in own) for own in self.columns] != list(widths):
            raise InputError(
                f"the columns of the node types must have {list(widths)} features",
                [sum(w for *_, w in own) for own in self.columns],
                "Give each column with the number of features that it became.",
            )
        self.num_cells = cells
        self.counts = tuple(max(1, len(own)) for own in self.columns)
        self.names = nnx.Embed(sum(self.counts) + 1, hidden_features, rngs=rngs)

    def _start(
        self, batch: MiniBatch, tokens: Tokens, x: Any, key: jax.Array | None
    ) -> tuple[jax.Array, list[Any], jax.Array | None, jax.Array]:
        cells = cells_of(tokens, self.counts, self.num_cells)
        nodes = batch.nodes.reshape(tokens.mask.shape)
        ids = jnp.take_along_axis(nodes, cells.token, axis=1)
        ids = ids * np.int32(self.names.num_embeddings) + cells.column
        h = self._values(batch, tokens, cells, x)
        h = self._dropped(h, ids, 0, key, self.input_dropout)
        h += self.names.embedding[...][cells.column]
        encoded = self._encoded(tokens)
        h += jnp.take_along_axis(encoded, cells.token[:, :, None], axis=1)
        h = jnp.where(cells.mask[:, :, None], h, 0).astype(self._dtype)
        real = cells.mask[:, None, None]
        masks = [real & link for link in _links(cells, tokens)]
        layers = (len(self.blocks) - 1) // (len(masks) + 1)
        return h, [*[*masks, real] * layers, real], None, ids

    def _of_tokens(self, tokens: Tokens, values: jax.Array) -> jax.Array:
        cells = cells_of(tokens, self.counts, self.num_cells)
        return jnp.take_along_axis(values, cells.token, axis=1)

    def _values(self, batch: MiniBatch, tokens: Tokens, cells: Cells, x: Any) -> jax.Array:
        """float32 `[B, L, D]`: what the cells hold, zeros for the first and in padding."""
        (num, size), rows = cells.token.shape, tokens.mask.shape[1]
        at = (jnp.arange(num)[:, None] * rows + cells.token).reshape(-1)
        kind, column = tokens.kind.reshape(-1)[at], cells.column.reshape(-1)
        mine = cells.mask.at[:, 0].set(False).reshape(-1)
        h, first = jnp.zeros((num * size, self.names.features)), 0
        for t, own in enumerate(self.columns):
            if own:
                some = mine & (kind == t)
                if isinstance(x, TypedRows):
                    found = gather(x.tables[t], jnp.where(some, x.place[at], -1))
                else:
                    rows = x[t] if isinstance(x, tuple) else x
                    found = jnp.where(some[:, None], rows[at], 0)
                found = found.astype(jnp.float32)
                if batch.cutoff is not None and any(self.inputs.moments):
                    found = self._dated(t, found, batch.cutoff[at])
                shown = _features_of([width for *_, width in own])
                place = jnp.clip(column - first, 0, len(own) - 1)
                found = jnp.where(some[:, None], found * shown[place], 0)
                h += found @ self.inputs.kernel(t)
            first += self.counts[t]
        return h.reshape(num, size, -1)

    def _dated(self, t: int, found: jax.Array, cutoff: jax.Array) -> jax.Array:
        """The features of rows of type `t`, with times counted from the cutoffs int64 `[n]`."""
        for feature, missing, mean, deviation in self.inputs.moments[t]:
            with exact_integers():
                since = (cutoff - round(mean)).astype(jnp.float32) / np.float32(deviation)
            known = 1 - found[:, missing] if missing >= 0 else 1
            found = found.at[:, feature].add(-since * known)
        return found


def _features_of(widths: list[int]) -> jax.Array:
    """float32 `[C, F]`: 1 for the features of each column."""
    number = np.repeat(np.arange(len(widths)), widths)
    return jnp.asarray(np.arange(len(widths))[:, None] == number, jnp.float32)


def _links(cells: Cells, tokens: Tokens) -> list[jax.Array]:
    """bool `[B, 1, L, L]` each: the pairs of cells of which one may attend to the other: those
    of one row, of rows that a key joins, and of one column."""
    of_row, of_column = cells.token[:, None], cells.column[:, None]
    row, column = cells.token[:, :, None] == of_row, cells.column[:, :, None] == of_column
    parent = jnp.take_along_axis(tokens.parent, cells.token, axis=1)
    up = parent[:, :, None] == of_row
    return [pairs[:, None] for pairs in (row, up | up.swapaxes(1, 2) | row, column)]
