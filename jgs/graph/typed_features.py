"""`TypedFeatures`: the features of a typed graph, a table of its own for each node type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import jax
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.row_tables.table import (
    RowTable,
    as_one,
    as_table,
    kept_as,
    of_host,
    plain,
)
from jgs.graph.schema import Schema
from jgs.graph.shown import Shown

Scales = tuple[tuple[float, ...], ...]
_MOST_SQUARES = 1 << 22  # numbers of which `square_sums` takes the squares


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class TypedFeatures(Shown):
    """The features of a graph whose node types have features of different widths, or none.

    Row `i` of a type's table belongs to the type's `i`-th node, in the order of the graph's
    ids. Tables are never joined or padded.

    Fields:
      tables: for each of the schema's node types, in order: a matrix `[n, F]` of float32 or
        float16, which may be a memory map; a tuple of such matrices, which are numbered as one;
        `SparseFeatures` or `QuantizedFeatures` `[n, F]`; or None for nodes without features.
        Finite.
      schema: static; the graph's `Schema`. Its relations are not read.

    `jgs.ops.gather(features, ids)` returns the `TypedRows` of nodes. `from_dict` makes features
    that keep these rules. The constructor stores its arguments unchecked.
    """

    tables: tuple[Any, ...]
    schema: Schema = field(metadata={"static": True})

    __reduce__ = reduce_arrays

    def _facts(self) -> dict[str, str]:
        names = (name for name, _ in self.schema.node_types)
        return dict(zip(names, map(_shown_table, self.tables), strict=True))

    @classmethod
    def from_dict(cls, schema: Schema, tables: Mapping[str, Any]) -> Self:
        """The features of the node types named in `tables`: each a matrix of numbers, a SciPy
        sparse matrix or `SparseFeatures`, with a row for every node of the type. Types that
        are not named have none. Raises `InputError`."""
        if not isinstance(tables, Mapping):
            raise InputError(
                "features of a typed graph must be a dict by node type",
                f"a {type(tables).__name__}",
                "Give {'user': matrix, ...}.",
            )
        for name in tables:
            schema.number(name)
        made = []
        for name, count in schema.node_types:
            table = _table(name, tables.get(name))
            if table is not None:
                what, form = f"the features of {name}", "[N, F], one row for each of its nodes"
                remedy = "Give the missing rows, or remove those too many."
                require_array(what, table, form, remedy, N=count)
            made.append(table)
        return cls(tuple(made), schema.without_relations())

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of features of each node type, 0 for a type without features."""
        return tuple(map(width_of, self.tables))

    @property
    def num_nodes(self) -> int:
        return self.schema.num_nodes

    def table(self, node_type: str) -> Any:
        """The table of a node type, or None. Raises `InputError` that lists the types."""
        return self.tables[self.schema.number(node_type)]

    def scales(self) -> Scales:
        """For each node type powers of two by which its features become numbers of about 1,
        which models of typed graphs take as `scales`: one for each column of a matrix, one for
        all of `SparseFeatures`, none for a type without features. The root mean square of a
        column's numbers is then between 0.7 and 1.5. Zeros do not count."""
        return scales_of(self.square_sums())

    def square_sums(self) -> list[np.ndarray]:
        """For each node type float64 `[k, 2]`, for as many columns as it has `scales`: the sum
        of the squares, and how many numbers are not 0; of some rows of large tables, evenly
        spaced."""
        return [_square_sums(table) for table in self.tables]

    def kept_as(self, dtype: str) -> TypedFeatures:
        """The same features, each table kept in a dtype, one of `jgs.tables.DTYPES`."""
        tables = (None if table is None else kept_as(table, dtype) for table in self.tables)
        return TypedFeatures(tuple(tables), self.schema)

    def rows(self, ids: Any) -> TypedRows:
        """See `jgs.ops.gather`, of which this is the form for typed features. Outside of
        `jax.jit` the tables are these ones. A jitted function that returns them copies them."""
        kind, place = _type_and_place(self.schema, ids)
        return TypedRows(self.tables, kind, place)


_type_and_place = jax.jit(Schema.type_and_place, static_argnums=0)


class TypedRows(NamedTuple):
    """Where the features of `S` nodes lie: nothing is copied, and no row is widened.

    Fields:
      tables: for each node type the table that its rows are in: a matrix `[n, F]`, a tuple of
        matrices that are numbered as one, `SparseFeatures`, or None.
      kind: int32 `[S]`, the number of each node's type; -1 in padding.
      place: int32 `[S]`, the node's row in the table of its type, or its place among the nodes
        of its type where that has no table; -1 in padding.
      learned: float32 `[S, W]`, the rows that are learned for the nodes of types without
        features, and zeros for all others; or None if none are.
    """

    tables: tuple[Any, ...]
    kind: jax.Array
    place: jax.Array
    learned: jax.Array | None = None


def scales_of(sums: Sequence[np.ndarray]) -> Scales:
    """What `TypedFeatures.scales` returns, of what `square_sums` does."""
    found = []
    for total, num in (each.T for each in sums):
        mean = np.where(total > 0, total / np.maximum(num, 1), 1)
        power = np.clip(-np.round(np.log2(mean) / 2), -60, 60)
        found.append(tuple(np.exp2(power).tolist()))
    return tuple(found)


def _square_sums(table: Any) -> np.ndarray:
    if table is None:
        return np.zeros((0, 2))
    return np.stack(as_table(table).squares(_MOST_SQUARES), axis=1).astype(np.float64)


def width_of(table: Any) -> int:
    """The width of one of the tables of `TypedFeatures`, 0 for None."""
    return 0 if table is None else as_table(table).shape[1]


def _shown_table(table: Any) -> str:
    return "none" if table is None else as_table(table).shown()


def shown_width(table: Any) -> str:
    """The width of a table of features, as "1,433 sparse"; "none" for None."""
    if table is None:
        return "none"
    kind = as_table(table).kind
    return f"{width_of(table):,}" + f" {kind}" * (not kind.startswith("float"))


def shown_tables(features: TypedFeatures) -> str:
    """The width of each node type's features, as "user 3, item 30 sparse, shop none"."""
    words = []
    for (name, _), table in zip(features.schema.node_types, features.tables, strict=True):
        words.append(f"{name} {shown_width(table)}")
    return ", ".join(words)


def kept(features: Any, dtype: str) -> Any:
    """`features`, by node type or not, kept in a dtype, one of `jgs.tables.DTYPES`. Raises
    `InputError`."""
    if isinstance(features, TypedFeatures):
        return features.kept_as(dtype)
    return kept_as(features, dtype)


def split_by_type(features: Any, schema: Schema) -> TypedFeatures:
    """The `TypedFeatures` with the rows of one matrix `[N, F]` or of another table, or of None.
    Types have no features where `F` is 0. Rows that are not aligned are copied."""
    ranges = [schema.ranges(name) for name, _ in schema.node_types]
    tables: list[Any] = [None] * len(ranges)
    if features is not None and features.shape[1]:
        whole = as_table(features)
        for i, of_type in enumerate(ranges):
            pieces = [whole.take(slice(r.start, r.stop)) for r in of_type]
            tables[i] = plain(as_one(pieces))
    return TypedFeatures(tuple(tables), schema.without_relations())


def _table(name: str, given: Any) -> Any:
    if given is None or isinstance(given, RowTable):
        return given
    if hasattr(given, "tocsr"):
        return of_host(given)
    rows = given if isinstance(given, jax.Array) else np.asarray(given)
    remedy = "Give one row of numbers for every node of the type."
    require_array(f"the features of {name}", rows, "numbers [n, F]", remedy)
    if rows.dtype not in (np.float32, np.float16):
        rows = np.asarray(rows, np.float32)
    if not np.isfinite(np.asarray(rows)).all():
        raise InputError(
            f"the features of {name} must be finite",
            "NaN or infinity",
            "Clean them, e.g. with numpy.nan_to_num.",
        )
    return as_device(rows)
