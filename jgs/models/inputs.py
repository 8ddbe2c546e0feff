"""What a model's first layer reads: rows of features without a matrix of all input rows, and
rows of one width from features of another width for each node type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block, MiniBatch, Schema
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.graph.typed_features import TypedRows, checked_scales
from jgs.models.parts import check_widths, glorot
from jgs.ops import aggregate, gather, gather_aggregate, linear
from jgs.ops.checks import with_derivative
from jgs.ops.relation_runs import TILE, group_linear, groups_of
from jgs.settings import exact_integers

ACTIVATIONS: dict[str | None, Callable[[jax.Array], jax.Array]] = {
    None: lambda h: h,
    "relu": nnx.relu,
    "gelu": partial(nnx.gelu, approximate=False),
}
_CHUNK_ROWS, _CHUNK_FLOATS = 4096, 1 << 21  # read and multiplied at a time


class Inputs(NamedTuple):
    """The first layer's input, in place of the rows `x` of all input nodes.

    Fields, each `[T, F]`, a row for every target of the batch's first block and 0 in padding:
      own: the target's own features.
      aggregated: the reduction of its sampled neighbours' features.
    """

    own: jax.Array
    aggregated: jax.Array


class Placed(NamedTuple):
    """Where the rows of a batch's input nodes lie, in place of a matrix `x` of these rows.

    Fields:
      tables: tuple of matrices `[N_i, F]`, numbered as one table: the rows of the first, then
        those of the second and so on. On a rank they are its own rows, its cache, and the rows
        that other ranks sent. Or a `RowTable` of such matrices; or `SparseFeatures` of the
        nodes, in order.
      place: int32 `[S]`, for each of `batch.nodes` its row in the tables; -1 in padding.
    """

    tables: tuple[jax.Array, ...] | RowTable
    place: jax.Array

    def rows(self) -> jax.Array:
        """The matrix `x`, float32 `[S, F]`."""
        return gather(self.tables, self.place)

    def inputs(self, batch: MiniBatch, reduce: str) -> Inputs:
        """The `Inputs` of `batch`, to whose nodes these rows belong, without the matrix `x`.
        `reduce` is the first layer's."""
        block = batch.block(0)
        own = gather(self.tables, self.place[: block.target_capacity])
        if (table := as_table(self.tables)).by_entries:
            every = replace(block, num_sources=jnp.int32(table.shape[0]))
            return Inputs(own, gather_aggregate(table, every, reduce))
        return Inputs(own, gather_aggregate(self.tables, block, reduce, self.place))


def read_inputs(
    features: jax.Array | RowTable, batch: MiniBatch, reduce: str = "mean"
) -> Inputs:
    """The `Inputs` of a batch sampled with `relabel_inputs=False`.

    The rows of the sampled neighbours are reduced while they are read, and never stored. (A
    batch has about three times as many input nodes as targets in its first block.)

    Args:
      features: `[N, F]`, as for `jgs.ops.gather_aggregate`.
      batch: from `sample_neighbors` or `Loader` with `relabel_inputs=False`.
      reduce: the first layer's `reduce`.

    Raises `InputError` for other features or batches.
    """
    block = batch.blocks[0]
    if batch.nodes.shape[0] != block.target_capacity:
        raise InputError(
            "read_inputs takes a batch whose first block names its neighbours by node id",
            f"{batch.nodes.shape[0]} nodes for {block.target_capacity} targets",
            "Sample with relabel_inputs=False, or use jgs.ops.gather(features, batch.nodes).",
        )
    own, table = gather(features, batch), as_table(features)
    if table.versions is None:
        return Inputs(own, gather_aggregate(features, block, reduce))
    block, place = table.versions.of_edges(batch)
    return Inputs(own, gather_aggregate(table.table, block, reduce, place))  # type: ignore


class TypedInputs(nnx.Module):
    """For each node type `t` a matrix `W_t`, a bias and scales: row `x_v` becomes
    `W_t (s_t * x_v) + b_t`. A node of a type without features has a learned row.

    Args:
      in_features: the width of each node type's features, in the order of the schema, 0 for a
        type without features, as in `TypedFeatures.widths`.
      out_features: the width `W` of the result.
      schema: the graph's `jgs.graph.Schema`. Its relations are not read.
      embedding: whether the module has a table of learned rows for the nodes of all types
        without features. False: `TypedRows.learned` must hold them, for instance rows of a
        `jgs.dist.ShardedEmbedding`. None: such nodes have zeros.
      activation: None, `"relu"` or `"gelu"`, of the result.
      scales: `s_t` for each node type, which are not learned: a number for all of its features
        or one for each, positive; by default 1. Features much smaller than others or than the
        learned rows are drowned by them: `TypedFeatures.scales()` makes them alike.
      moments: for each node type the features that are times: the number of the feature, that
        of the one that says where it is missing, or -1, and the mean and the deviation by which
        it was standardised, in the unit of cutoffs. With a cutoff they are read as the time
        from the cutoff, over the deviation.
      rngs: its `params` stream makes the weights: matrices, and the table of learned rows, are
        Glorot uniform with a gain of sqrt(2), as in DGL's examples, and biases are 0.

    `inputs(x, kind)` returns float32 `[S, W]`, with zeros in padding. `x` is one of:

    - `TypedRows`, as `jgs.ops.gather(typed_features, nodes)` returns them; `kind` is not read.
      Only the rows of the nodes are read, type by type, in chunks; `TypedRows.learned` is used
      in place of the module's learned rows where it is given. There is no derivative by the
      features.
    - a matrix `[S, F]`, where all types have `F` features; then `kind` int32 `[S]` is the
      number of each row's type, -1 in padding, where rows may hold anything. It is
      differentiable in the matrix.
    - a tuple of matrices, which `by_type` makes of `TypedRows`, with `kind` as above. It is
      differentiable in them.

    Of `TypedRows` a gradient has derivatives in forward mode, as `jax.hessian` takes them;
    `jax.jacrev` of it raises a `ValueError`. Raises `InputError` for other widths, and where
    learned rows are missing.
    """

    def __init__(
        self,
        in_features: Sequence[int],
        out_features: int,
        *,
        schema: Schema,
        embedding: bool | None = True,
        activation: str | None = None,
        scales: Sequence[Sequence[float]] | None = None,
        moments: Sequence[Sequence[tuple[int, int, float, float]]] | None = None,
        rngs: nnx.Rngs,
    ):
        check_widths(out_features=out_features)
        counts = [count for _, count in schema.node_types]
        widths = tuple(in_features) if isinstance(in_features, Sequence) else in_features
        if not isinstance(widths, tuple) or len(widths) != len(counts) or min(widths) < 0:
            raise InputError(
                f"in_features must be a width for each of the {len(counts)} node types, 0 for "
                "none",
                widths,
                "Pass features.widths.",
            )
        if activation not in ACTIVATIONS:
            raise InputError(
                "activation must be None, 'relu' or 'gelu'", repr(activation), "Give 'relu'."
            )
        self.in_features, self.out_features, self.activation = widths, out_features, activation
        self.scales = checked_scales(widths, scales)
        self.moments = tuple(tuple(map(tuple, each)) for each in moments or ())
        every = [each for of_type in self.moments for each in of_type]
        self.origin = int(sum(mean for *_, mean, _ in every) / max(1, len(every)))
        self.span = float(max((deviation for *_, deviation in every), default=1))
        self.schema = schema.without_relations()
        featured = {str(t): width for t, width in enumerate(widths) if width}
        self.kernels = nnx.Dict(
            {t: glorot(rngs, (width, out_features)) for t, width in featured.items()}
        )
        self.bias = nnx.Param(jnp.zeros((len(widths), out_features)))
        bare = [0 if width else count for width, count in zip(widths, counts, strict=True)]
        self.offsets = tuple(accumulate(bare[:-1], initial=0))  # of the learned rows of types
        self.has_embedding = bool(embedding) and sum(bare) > 0
        self.needs_rows = sum(bare) > 0 and embedding is False
        if self.has_embedding:
            self.embedding = glorot(rngs, (sum(bare), out_features))

    def __call__(
        self, x: Any, kind: jax.Array | None = None, cutoff: jax.Array | None = None
    ) -> jax.Array:
        cutoff = cutoff if any(self.moments) else None
        if isinstance(x, TypedRows):
            h = self._rows(x, cutoff)
        else:
            h = self._joined(x, kind, cutoff) if isinstance(x, tuple) else self._matrix(x, kind)
        return ACTIVATIONS[self.activation](h)

    def by_type(self, x: TypedRows) -> tuple[jax.Array, ...]:
        """For each node type a matrix with a row for all `S` nodes: of nodes of the type their
        features, float32 `[S, F]`, or for a type without features their learned rows `[S, W]`;
        zeros for other nodes. It is much for a batch of many nodes: explanations use it."""
        found = []
        for t, table in enumerate(x.tables):
            mine = x.kind == t
            if table is None:
                found.append(jnp.where(mine[:, None], self._learned(x), 0))
            else:
                rows = gather(table, jnp.where(mine, x.place, -1))
                found.append(jnp.where(mine[:, None], rows, 0).astype(jnp.float32))
        return tuple(found)

    def _joined(
        self, x: tuple[jax.Array, ...], kind: jax.Array | None, cutoff: jax.Array | None
    ) -> jax.Array:
        assert kind is not None
        h = jnp.zeros((kind.shape[0], self.out_features * (1 if cutoff is None else 2)))
        for t in map(int, self.kernels):
            kernel, bias = self._dated(t, self.kernel(t), self.bias[t], cutoff)
            h += x[t] @ kernel + jnp.where((kind == t)[:, None], bias, 0)
        h = self._since(h, cutoff)
        return sum((rows for t, rows in enumerate(x) if not self.in_features[t]), h)

    def _matrix(self, x: jax.Array, kind: jax.Array | None) -> jax.Array:
        width = x.shape[1] if x.ndim == 2 else None
        if kind is None or any(one != width for one in self.in_features):
            raise InputError(
                "a matrix of features must come with its rows' types, and be as wide as the "
                f"features of every type, {self.in_features}",
                f"shape {list(x.shape)}, {'no types' if kind is None else 'types'}",
                "Pass jgs.ops.gather(typed_features, batch.nodes) where widths differ.",
            )
        if len(self.in_features) == 1:  # there is nothing to put in order
            return _real_linear(x, self.kernel(0), self.bias[0], kind)
        real = kind >= 0
        x = jnp.where(real[:, None], x, 0)
        kernels = jnp.stack([self.kernel(t) for t in range(len(self.in_features))])
        h = group_linear(kind, x, kernels, self.bias[...], _num_rows(kind))
        return jnp.where(real[:, None], h, 0)

    def _rows(self, x: TypedRows, cutoff: jax.Array | None) -> jax.Array:
        widths = tuple(0 if table is None else as_table(table).shape[1] for table in x.tables)
        if widths != self.in_features:
            raise InputError(
                f"the features of the node types must have the widths {self.in_features}",
                widths,
                "Build the model with in_features = features.widths.",
            )
        params = {
            t: self._dated(t, self.kernel(t), self.bias[t], cutoff)
            for t in map(int, self.kernels)
        }
        h = jnp.zeros((x.kind.shape[0], self.out_features))
        if params:
            h = jnp.where((x.kind >= 0)[:, None], _projected(params, x), 0)
        h = self._since(h, cutoff)
        return h + self._learned(x) if 0 in widths else h

    def _since(self, h: jax.Array, cutoff: jax.Array | None) -> jax.Array:
        """The first half of products with matrices of `_dated`, less the second by the time."""
        if cutoff is None:
            return h
        with exact_integers():
            since = (cutoff - self.origin).astype(jnp.float32) / np.float32(self.span)
        return h[:, : self.out_features] - since[:, None] * h[:, self.out_features :]

    def _dated(
        self, number: int, kernel: jax.Array, bias: jax.Array, cutoff: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """The matrix and the bias of a type; with a cutoff beside those of what is subtracted
        for each `span` from `origin` to it: a time `(t - mean) / deviation` is then read as
        `(t - cutoff) / deviation`, and one that is missing as 0."""
        if cutoff is None:
            return kernel, bias
        own, by_time = [kernel, bias], [jnp.zeros_like(kernel), jnp.zeros_like(bias)]
        for feature, missing, mean, deviation in self.moments[number]:
            row = kernel[feature] * (self.span / deviation)
            for both, factor in ((own, (mean - self.origin) / self.span), (by_time, 1.0)):
                both[1] = both[1] + factor * row
                if missing >= 0:
                    both[0] = both[0].at[missing].add(-factor * row)
        joined = [jnp.concatenate(each, axis=-1) for each in zip(own, by_time, strict=True)]
        return joined[0], joined[1]

    def kernel(self, number: int) -> jax.Array:
        """float32 `[F, W]`: the matrix of a type with features, times its scales."""
        kernel, scales = self.kernels[str(number)][...], self.scales[number]
        return kernel if set(scales) == {1.0} else kernel * jnp.array(scales)[:, None]

    def _learned(self, x: TypedRows) -> jax.Array:
        """float32 `[S, W]`: the learned rows, zeros for nodes of types with features."""
        if x.learned is not None:
            form, size = "[n, W], one for each node", x.kind.shape[0]
            remedy = "Make the embedding as wide as the model's hidden rows."
            require_array("learned rows", x.learned, form, remedy, n=size, W=self.out_features)
            return x.learned
        if not (self.has_embedding or self.needs_rows):
            return jnp.zeros((x.kind.shape[0], self.out_features))
        if not self.has_embedding:
            raise InputError(
                "nodes of types without features must have learned rows",
                "rows with learned=None, and embedding=False",
                "Fill TypedRows.learned, or build the model with embedding=True.",
            )
        table, kind, num = self.embedding[...], jnp.maximum(x.kind, 0), x.kind.shape[0]
        mine = (jnp.asarray(self.in_features)[kind] == 0) & (x.kind >= 0)
        row = jnp.arange(num + 1, dtype=jnp.int32)
        # Others read some row, each another one, with a weight of 0.
        place = jnp.asarray(self.offsets)[kind] + x.place
        ids = jnp.where(mine, place, row[:-1] % table.shape[0])
        # Unlike a gather's, the derivative of this sum by the table needs no scatter.
        weight, every, rows = mine.astype(jnp.float32), jnp.int32(num), table.shape[0]
        of_nodes = row, ids, every, jnp.int32(rows), every
        block = Block(*of_nodes, edge_weight=weight, source_capacity=rows)
        return aggregate(block, table, "sum")


def _real_linear_fwd(x, kernel, bias, kind):
    """`x @ kernel + bias`, 0 where `kind` is negative: there `x` may hold anything, NaN too. A
    matrix is copied only where such a row lies between others."""
    out = _if_real(kind, lambda num, rows: _linear_and_back(num, rows, kernel, bias)[0], x)
    return _if_real(kind, lambda _, rows: rows, out)


def _linear_and_back(num, x, kernel, bias):
    """`linear` and its derivative. Both have derivatives in forward mode, unlike `linear`."""
    return jax.vjp(lambda x, k, b: linear([x], [k], b, num), x, kernel, bias)


def _if_real(kind: jax.Array, compute: Any, *arrays: jax.Array) -> Any:
    """`compute(num, *arrays)`, with zeros in the rows of padding among the first `num`."""
    real, num = kind >= 0, _num_rows(kind)
    between = jnp.any(~real & (jnp.arange(kind.shape[0]) < num))
    alone = lambda *of: compute(num, *(jnp.where(real[:, None], a, 0) for a in of))  # noqa: E731
    return jax.lax.cond(between, alone, partial(compute, num), *arrays)


def _real_linear_bwd(residuals, grad):
    x, kernel, bias, kind = residuals

    back = lambda num, rows, grad: _linear_and_back(num, rows, kernel, bias)[1](grad)  # noqa: E731
    return *_if_real(kind, back, x, grad), None


_real_linear = with_derivative(_real_linear_fwd, lambda *of: of[:-1], _real_linear_bwd, 0)


class _Order(NamedTuple):
    """Rows in order of their types, in `K` slots.

    Fields:
      starts: int32 `[types + 1]`; the slots of type `t` are `starts[t]` to `starts[t + 1]`.
      place: int32 `[K]`; the place of each slot's node in the table of its type, -1 where there
        is none.
      row_of_slot, slot_of_row: int32 `[K]` and `[S]`.
    """

    starts: jax.Array
    place: jax.Array
    row_of_slot: jax.Array
    slot_of_row: jax.Array


def _order(x: TypedRows, room: int) -> _Order:
    """The order of the rows, with `room` more slots of padding at the end."""
    slots = groups_of(x.kind, len(x.tables), _num_rows(x.kind))
    tile = jnp.arange(slots.relation.shape[0]) * TILE
    before = jnp.arange(len(x.tables) + 1)[:, None] > slots.relation[None]
    starts = TILE * jnp.sum(before & (tile < slots.num_slots)[None], axis=1, dtype=jnp.int32)
    place = x.place.at[slots.target].get(mode="fill", fill_value=-1)
    place = jnp.pad(place, (0, room), constant_values=-1)
    row_of_slot = jnp.pad(slots.target, (0, room), constant_values=x.kind.shape[0])
    return _Order(starts, place, row_of_slot, slots.sums.indices)


def _projected(params: dict[int, tuple[jax.Array, jax.Array]], x: TypedRows) -> jax.Array:
    """float32 `[S, W]`: each node's features times the matrix of its type, plus the bias.
    `params` are both, of the types with features. Zeros for nodes of other types."""
    tables = {t: x.tables[t] for t in params}
    num = x.kind.shape[0]
    return _project(params, tables, _order(x, max(_chunk(t, num) for t in tables.values())))


def _project_fwd(params, tables, order):
    num_slots, num_rows = order.place.shape[0], order.slot_of_row.shape[0]
    width = next(iter(params.values()))[1].shape[0]
    out = jnp.zeros((num_slots, width), jnp.float32)
    # A type's last chunk may reach into the slots of the next types. There it writes zeros,
    # before they are written.
    for t, (kernel, bias) in params.items():

        def write(out, at, x, num, kernel=kernel, bias=bias):
            rows, _ = _linear_and_back(num, x, kernel, bias)
            return jax.lax.dynamic_update_slice(out, rows, (at, 0))

        out = _over_chunks(write, out, tables[t], num_rows, order, t)
    return gather(out, order.slot_of_row)


def _project_bwd(residuals, grad):
    params, tables, order = residuals
    num_rows = order.slot_of_row.shape[0]
    grad = gather(grad, order.row_of_slot)
    grads = {}
    for t, of_type in params.items():
        size = _chunk(tables[t], num_rows)

        def add(total, at, x, num, of_type=of_type, size=size):
            part = jax.lax.dynamic_slice(grad, (at, 0), (size, grad.shape[1]))
            _, pull = jax.vjp(lambda kernel, bias: linear([x], [kernel], bias, num), *of_type)
            return jax.tree.map(jnp.add, total, pull(part))

        zero = jax.tree.map(jnp.zeros_like, of_type)
        grads[t] = _over_chunks(add, zero, tables[t], num_rows, order, t)
    return grads, None, None


_project = with_derivative(_project_fwd, lambda *operands: operands[:-1], _project_bwd, 0)


def _over_chunks(step, state, table, num_rows, order, t):
    """`step(state, at, rows, num)` for each chunk of the slots of type `t`, which has `num`
    slots from `at` on, and features `rows` `[chunk, F]` from `table`."""
    size, end = _chunk(table, num_rows), order.starts[t + 1]

    def body(carry):
        at, state = carry
        num = jnp.minimum(size, end - at)
        ids = jax.lax.dynamic_slice(order.place, (at,), (size,))
        ids = jnp.where(jnp.arange(size) < num, ids, -1)
        return at + size, step(state, at, gather(table, ids), num)

    return jax.lax.while_loop(lambda carry: carry[0] < end, body, (order.starts[t], state))[1]


def _chunk(table: Any, num_rows: int) -> int:
    rows = min(_CHUNK_ROWS, _CHUNK_FLOATS // as_table(table).shape[1], num_rows)
    return -(-max(rows, 1) // TILE) * TILE


def _num_rows(kind: jax.Array) -> jax.Array:
    """One more than the last row of a real node; 0 if there is none."""
    row = jnp.arange(1, kind.shape[0] + 1, dtype=jnp.int32)
    return jnp.max(jnp.where(kind >= 0, row, 0), initial=0)
