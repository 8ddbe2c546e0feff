"""`Matrix`: a graph as a sparse matrix, in terms of which sampling algorithms are written.

gSampler (Gong et al., SOSP 2023, sections 3 and 4): every sampling algorithm extracts the
columns of its frontier, computes a bias on their edges, selects by the bias, and finalizes the
selection into the next frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, fits, require_array
from jgs.errors import InputError
from jgs.graph import Block
from jgs.kernels.call import FILL
from jgs.sampling.edges.slots import offsets_of
from jgs.sampling.matrix import select
from jgs.sampling.matrix.edge_arrays import Factors, Step, dot_of, moved_operands
from jgs.sampling.matrix.entries import Entries, check_axis, of_columns, of_rows, to_block
from jgs.sampling.matrix.sums import chain_sum, count, exact_sum
from jgs.settings import exact_integers


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Matrix(Entries):
    """The edges of a graph, or of a part of it, with values: a sparse matrix.

    Entry `(u, v)` is the edge `u -> v`: a column has the in-edges of its node. The `R` rows and
    `C` columns are slots, whose numbers are static. `row()` and `column()` give their nodes; a
    slot that is padding has the node `N`. A whole graph has a slot for every node on both axes.
    A vector has an entry for each slot: `A.sum(axis=1)` for each row, `A.sum(axis=0)` for each
    column.

        A = Matrix(graph, key=jax.random.key(0))
        sub = A[:, frontier]                        # extract
        bias = (sub ** 2).sum(axis=1)               # compute
        sample = sub.collective_sample(512, bias)   # select
        block, nodes = sample.to_block()            # finalize

    Nothing is built before it is needed: `A[:, frontier].individual_sample(k)` draws straight
    from the graph with one kernel, and a chain of edge maps becomes one loop.

    Args:
      graph: the graph. Under `jax.jit` it must be an argument.
      values: float32 `[E]` or `[E, H]`, a value for each edge in the order of `graph.indices`.
        None: the graph's `edge_weight`, or 1.
      key: a Threefry key for the draws; see `individual_sample`.
      layer: int, the hop of a sample; draws at layer `h` have the key `fold_in(key, h)`.
      room: static sizes for what depends on the data.
      excluded: int64 `[X]`, as in `Seeds`: edges that no slice of columns has. What is computed
        of a matrix of all columns counts them. None: there are none.
      compact: whether the rows of a slice of columns are only its distinct nodes (`R` is then
        the room for its edges, at most `N`), or all nodes of the graph (`R = N`). It changes no
        sample.
      store: whether what edge maps make of the whole graph's values is computed for all edges
        before a slice is taken, and read by the slice; see `choose_stored`. Otherwise each
        slice computes its own. It changes values by rounding at most, where XLA would merge
        operations before the slice with those after it.

    A matrix that does not fit its `room` is empty, has `overflow` True, and its values and sums
    are NaN.
    """

    # -- extract -------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Matrix:
        """`A[:, columns]`, `A[rows, :]`, `A[rows, columns]`: the edges into `columns`, out of
        `rows`, or both. They are int `[C]` and `[R]`, node ids of the graph even in a slice of
        a slice. `N` is padding. Repeated columns have slots of their own. Rows must be
        distinct, else the first slot has the edges. The room for the edges is `room.looked`."""
        if not isinstance(index, tuple) or len(index) != 2:
            raise InputError(
                "a matrix is sliced along both axes",
                repr(index)[:60],
                "Write A[:, columns], A[rows, :] or A[rows, columns].",
            )
        rows, columns = index
        part = self if _is_all(columns) else of_columns(self, _node_ids("columns", columns))
        return part if _is_all(rows) else of_rows(part, _node_ids("rows", rows))

    def by_relation(self) -> Matrix:
        """The same edges, where each column is divided into one for each of the `K` relations
        of the graph's schema. Column slot `c * K + r` has the edges of relation `r` into column
        `c`, and the same node. So `A[:, frontier].by_relation().count(axis=0)` has the number
        of each node's neighbours by each relation. Without relations `K` is 1. The edges are
        built. Raises `InputError` for edge types without a schema."""
        if self.relations:
            return self
        schema, edge_type = self.graph.schema, self.graph.edge_type
        if edge_type is not None and schema is None:
            raise InputError(
                "a graph must name its relations for columns by relation",
                "edge types without a schema",
                "Give Graph a schema, or make the graph with Graph.from_relations.",
            )
        number = 1 if schema is None else max(1, len(schema.relations))
        built = self.built()
        columns, edges = built.column(), built.edges
        slots = columns.shape[0] * number
        kind = jnp.zeros(edges.column.shape, jnp.int32)
        if edge_type is not None and edge_type.shape[0]:
            with exact_integers():  # else the positions would be cut to int32
                kind = edge_type.at[edges.edge_id].get(mode="clip").astype(jnp.int32)
        # The edges of a column are sorted by relation, so they keep their order.
        column = jnp.where(edges.real, edges.column * number + kind, slots)
        old = jnp.arange(slots, dtype=jnp.int32) // number
        return replace(
            built,
            columns=columns[old],
            edges=edges._replace(indptr=offsets_of(column, edges.real, slots), column=column),
            operands=moved_operands(built.steps, built.operands, "column", old),
            relations=number,
            origin=None,
        )

    def joined(self) -> Matrix:
        """The inverse of `by_relation`: each column has the edges of all relations again, with
        their values. The edges keep their order, which is by relation within a column."""
        number = self.relations
        if not number:
            return self
        by_column = any(step.reads("column") for step in self.steps)
        built = (self.with_values(self.values) if by_column else self).built()
        edges = built.edges
        return replace(
            built,
            columns=built.column()[::number],
            edges=edges._replace(indptr=edges.indptr[::number], column=edges.column // number),
            relations=0,
        )

    # -- compute -------------------------------------------------------------------------------

    def map(self, function: Callable[[jax.Array], jax.Array]) -> Matrix:
        """The same edges with the values `function(values)`. `function` is one of `jax.numpy`
        such as `jnp.exp`, which returns a value (or several) for each edge. Of a whole graph it
        has the values of all edges, so that they are stored whatever `store` is."""
        return self.with_values(function(self.values))

    def add(self, vector: Any, axis: int) -> Matrix:
        """Adds an entry of `vector` to every edge's value: that of the edge's column, `vector`
        `[C]` (axis 0), or that of its row, `[R]` (axis 1)."""
        return self._by_vector("add", vector, axis)

    def sub(self, vector: Any, axis: int) -> Matrix:
        """Subtracts, where `add` adds."""
        return self._by_vector("sub", vector, axis)

    def mul(self, vector: Any, axis: int) -> Matrix:
        """Multiplies, where `add` adds."""
        return self._by_vector("mul", vector, axis)

    def div(self, vector: Any, axis: int) -> Matrix:
        """Divides, where `add` adds."""
        return self._by_vector("div", vector, axis)

    def _by_vector(self, operation: str, vector: Any, axis: int) -> Matrix:
        kind, vector = ("column", "row")[check_axis(axis)], jnp.asarray(vector)
        part = self.aligned() if kind == "row" else self
        slots = part.shape[1 - axis]
        form = f"[n] or [n, H], an entry for each {kind}"
        remedy = f"Index the nodes' vector by A.{kind}(); a sum along the axis has them too."
        require_array(f"a vector along axis {axis}", vector, form, remedy, n=slots)
        return part._then(Step(operation, kind), vector)

    def _then(self, step: Step, operand: Any = None) -> Matrix:
        operands = self.operands if operand is None else (*self.operands, operand)
        return replace(self, steps=(*self.steps, step), operands=operands)

    def _by(self, operation: str, other: Any, reflected: bool = False) -> Matrix:
        step = partial(Step, operation, reflected=reflected)
        if isinstance(other, bool | int | float | np.number):
            return self._then(step("number", float(other)))
        if isinstance(other, Matrix):
            built, other = self.ready(), other.ready()
            sizes = [(m.column().shape[0], m.edges.row.shape[0]) for m in (built, other)]
            if sizes[0] != sizes[1]:
                raise InputError(
                    "two matrices must have the same edges",
                    " and ".join(f"{c} columns with room for {e}" for c, e in sizes),
                    "Make both from one slice.",
                )
            return built._then(step("edge"), other.values)
        dense = jnp.asarray(other)
        if dense.ndim == 0:
            return self._then(step("scalar"), dense)
        built = self.aligned().built()
        rows, columns = built.shape
        remedy = "Give a row and a column for each slot, or use add, sub, mul, div."
        require_array("a dense matrix", dense, "[R, C]", remedy, R=rows, C=columns)
        entries = dense.at[built.edges.row, built.edges.column].get(**FILL)
        return built._then(step("edge"), entries)

    def __add__(self, other: Any) -> Matrix:
        """Adds to each edge's value a number, an entry of a dense matrix `[R, C]`, or the value
        of a matrix with the same edges. `-`, `*`, `/` and `**` work alike, also with the number
        first."""
        return self._by("add", other)

    __radd__ = partialmethod(_by, "add", reflected=True)
    __sub__ = partialmethod(_by, "sub")
    __rsub__ = partialmethod(_by, "sub", reflected=True)
    __mul__ = partialmethod(_by, "mul")
    __rmul__ = partialmethod(_by, "mul", reflected=True)
    __truediv__ = partialmethod(_by, "div")
    __rtruediv__ = partialmethod(_by, "div", reflected=True)
    __pow__ = partialmethod(_by, "pow")
    __rpow__ = partialmethod(_by, "pow", reflected=True)

    __array_ufunc__ = None  # a NumPy array on the left leaves the operation to this class

    def dot(self, rows: jax.Array, columns: jax.Array) -> Matrix:
        """Multiplies the value of edge `(u, v)` by the inner product of `rows[u]` and
        `columns[v]`, float `[R, D]` and `[C, D]` (SDDMM), or by `H` such products, float
        `[R, H, D]` and `[C, H, D]`. The dense matrix `rows @ columns.T` is never built."""
        part = self if self.is_whole else self.aligned().built()
        left, right = jnp.asarray(rows), jnp.asarray(columns)
        remedy = "Give a row for each slot, indexed by A.row() and A.column()."
        axes = "H, D" if left.ndim > 2 else "D"
        require_array("rows of dot", left, f"[R, {axes}]", remedy, R=part.shape[0])
        own = dict(zip(axes.split(", "), left.shape[1:], strict=True))
        form = f"[C, {axes}]"
        require_array("columns of dot", right, form, remedy, C=part.shape[1], **own)
        factors = Factors(left, right)
        if self.is_whole:
            return part._then(Step("mul", "dot"), factors)
        return part._then(Step("mul", "edge"), dot_of(factors, part.edges))

    def __matmul__(self, dense: jax.Array) -> jax.Array:
        """`A @ D`: float32 `[R, F]`, for every row the sum over its edges of the value times
        the column's row of `D`, `[C, F]` or `[C]`. `A.T @ D` takes `[R, F]` and gives
        `[C, F]`."""
        return self._product(dense, 1)

    @property
    def T(self) -> Transposed:
        """The transposed matrix. It has only `A.T @ D`, which sums messages from rows by
        column."""
        return Transposed(self)

    def _product(self, dense: Any, axis: int) -> jax.Array:
        built, dense = self.aligned().built(), jnp.asarray(dense)
        slots = (built.edges.column, built.edges.row)
        into, out_of = slots[axis], slots[1 - axis]
        form, size = "[n] or [n, D]", built.shape[axis]
        require_array("the dense matrix", dense, form, "Give a row for each slot.", n=size)
        each = dense.at[out_of].get(**FILL)
        each = each * built.values.reshape(-1, *[1] * (dense.ndim - 1))
        zeros = jnp.zeros((built.shape[1 - axis], *dense.shape[1:]), each.dtype)
        return zeros.at[into].add(each, mode="drop")

    def sum(self, axis: int) -> jax.Array:
        """The sum of the values of each slot's edges, 0 for none: float32 `[C]` (axis 0, over
        the rows) or `[R]` (axis 1). The bits do not depend on an order, see
        `jgs.sampling.matrix.sums`."""
        return chain_sum(self, check_axis(axis), Matrix._sum)

    def _sum(self, axis: int) -> jax.Array:
        built, slot, slots = self.slots(axis)
        return built._poisoned(exact_sum(built.values, slot, slots))

    def mean(self, axis: int) -> jax.Array:
        """The mean of the values of each slot's edges, 0 for none; see `sum`."""
        total, number = self.sum(axis), self.count(axis).astype(jnp.float32)
        return total / jnp.maximum(number, 1).reshape(-1, *[1] * (total.ndim - 1))

    def max(self, axis: int) -> jax.Array:
        """The largest value of each slot's edges, 0 for none; see `sum`."""
        built, slot, slots = self.slots(axis)
        values = built.values
        low = jnp.full((slots, *values.shape[1:]), -jnp.inf, jnp.float32)
        largest = low.at[slot].max(values, mode="drop")
        has_edges = built.count(axis).reshape(-1, *[1] * (values.ndim - 1)) > 0
        return built._poisoned(jnp.where(has_edges, largest, 0))

    def _poisoned(self, result: jax.Array) -> jax.Array:
        return jnp.where(self.overflow, jnp.nan, result)

    def count(self, axis: int) -> jax.Array:
        """int32 `[C]` (axis 0) or `[R]` (axis 1): the number of edges of each slot."""
        return count(self, axis)

    def softmax(self, axis: int = 0) -> Matrix:
        """The same edges with the softmax of their values over each column's edges (axis 0) or
        each row's (axis 1)."""
        built, slot, _ = self.slots(axis)
        built = built.with_values(built.values)  # evaluated once
        largest = jax.lax.stop_gradient(built.max(axis)).at[slot].get(**FILL)
        shifted = built.with_values(jnp.exp(built.values - largest))
        total = shifted.sum(axis).at[slot].get(mode="fill", fill_value=1)
        return (self if self.is_whole else shifted).with_values(shifted.values / total)

    # -- select --------------------------------------------------------------------------------

    def individual_sample(
        self, k: int, probs: Any = None, replace: bool = False, *, key: Any = None
    ) -> Matrix:
        """Selects `k` edges of every column, independently of other columns. Values are kept.

        Args:
          k: int; -1 takes all edges, except those of probability 0.
          probs: the bias: a matrix of the same edges or float `[E]`, finite and not negative,
            in any scale for each column. None: all edges are equally likely. If it is a slice
            of a weighted graph with the graph's own values, the draws use the graph's prefix
            sums.
          replace: False: distinct edges. Every subset is equally likely or, with `probs`, they
            are successive draws in proportion to `probs` among those left; all are taken where
            there are at most `k`. True: `k` independent draws wherever there is an edge.
          key: replaces the matrix's key. What column `v` draws depends on `(key, layer, v)` and
            on its edges alone. A selection from a selection has a key of its own. Two
            selections from one matrix draw alike.

        Returns:
          The selected edges in the order of their draws, with room for `room.selected` (None:
          `C * k`). The rows are the distinct nodes drawn. `edge_probs` float32 `[E]` are the
          numbers by which values must be divided for unbiased sums over the columns' edges. For
          uniform draws they are the probabilities of inclusion. For draws with replacement they
          are the expected numbers of draws. For successive draws they are the reciprocals of
          Des Raj's weights (1956), which depend on the order of the draws.
        """
        return select.individual_sample(self, k, probs, replace, key)

    def collective_sample(
        self, k: int | Mapping[str, int], node_probs: Any = None, *, key: Any = None
    ) -> Matrix:
        """Selects `k` of the rows jointly, without replacement, and their edges.

        Row `u` has one exponential number `r_u`, a function of `(key, layer, u)`. The rows with
        the `k` smallest `r_u / node_probs[u]` are taken. So they are successive draws in
        proportion to `node_probs` among the rows left (Efraimidis and Spirakis 2006), as those
        of gSampler are. Let `t` be the `k + 1`-st smallest. Given `t`, a row is taken with the
        probability `1 - exp(-node_probs[u] * t)`, and dividing by it gives unbiased sums
        (Cohen and Kaplan 2007).

        Args:
          k: int; all rows are taken where there are at most `k` of positive probability. Or a
            dict of ints by node type, as in `Ladies`: the rows of each type are then drawn by
            themselves, each type with a `t` of its own.
          node_probs: float `[R]`, finite and not negative, in any scale. None: the rows'
            numbers of edges (gSampler's default, a bias of 1 an edge). In a slice only rows
            with an edge are drawn.
          key: replaces the matrix's key.

        Returns:
          The matrix of these `k` rows (in the order of their nodes, padded with `N`), with room
          for `room.selected` edges. `row_probs` float32 `[k]` are the probabilities of
          inclusion given `t`, 1 in padding. Rows drawn by type are listed type by type, each
          padded.
        """
        return select.collective_sample(self, k, node_probs, key)

    # -- finalize ------------------------------------------------------------------------------

    def to_block(self, num_sources: int | None = None) -> tuple[Block, jax.Array]:
        """A block whose targets are the columns, and the nodes of its sources, int32 `[S]`.
        They are the targets, then the other rows that have an edge.

        Args:
          num_sources: int, `S`, the room for the sources. None: an upper bound of their number.
            If there are more, the block is empty, and its `num_sources` is `S + 1`.

        The block has `edge_id`. If the matrix is `weighted` it has `edge_weight`, one value for
        each edge, so that `aggregate(block, x, "sum")` is `A.T @ x`.
        """
        joined = self.joined()
        return to_block(joined, joined.column(), num_sources)[:2]


class Transposed(NamedTuple):
    """The result of `Matrix.T`."""

    matrix: Matrix

    def __matmul__(self, dense: Any) -> jax.Array:
        return self.matrix._product(dense, 0)


def stack(matrices: Sequence[Matrix]) -> Matrix:
    """One matrix whose edges have `H` values, `[E, H]`: those of `H` matrices of the same
    edges."""
    first = matrices[0]
    first = first if first.is_whole else first.ready()
    return first.with_values(jnp.stack([m.values for m in matrices], axis=-1))


def _is_all(index: Any) -> bool:
    return isinstance(index, slice) and index == slice(None)


def _node_ids(name: str, ids: Any) -> jax.Array:
    given = ids if isinstance(ids, jax.Array | np.ndarray | Sequence) else None
    with exact_integers():
        array = jnp.zeros(()) if given is None else jnp.asarray(given)
        if not fits(array, "integers [n]"):
            raise InputError(
                f"{name} must be integers [n], ids of nodes",
                repr(ids)[:60] if given is None else described(array),
                "Give one id a slot; a whole axis is `:`.",
            )
        if not jnp.can_cast(array.dtype, jnp.int32):  # wide ids must not wrap into the range
            array = jnp.clip(array, 0 if array.dtype.kind == "u" else -1, 2**31 - 1)
        return array.astype(jnp.int32)
