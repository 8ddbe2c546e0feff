"""`TypedFeatures`: the features of a typed graph, a table of its own for each node type."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.row_tables.table import RowTable, as_one, as_table, kept_as, of_host, plain
from jgs.graph.schema import Schema
from jgs.graph.shown import Shown

Scales = tuple[tuple[float, ...], ...]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class TypedFeatures(Shown, RowTable):
    """The features of a graph whose node types have features of different widths, or none.

    Row `i` of a type's table belongs to the type's `i`-th node, in the order of the graph's
    ids. Tables are never joined or padded.

    Fields:
      tables: for each of the schema's node types, in order: a matrix `[n, F]` of float32 or
        float16, which may be a memory map; a tuple of such matrices, which are numbered as one;
        `SparseFeatures` or `QuantizedFeatures` `[n, F]`; or None for nodes without features.
        Finite.
      schema: static; the graph's `Schema`. Its relations are not read.

    `shape` is the number of nodes, and the sum of the widths. `jgs.ops.gather(features, ids)`
    returns the `TypedRows` of nodes. `from_dict` makes features that keep these rules. The
    constructor stores its arguments unchecked.
    """

    tables: tuple[Any, ...]
    schema: Schema = field(metadata={"static": True})

    __reduce__ = reduce_arrays
    form = kind = "typed"
    in_kernels = True

    def _facts(self) -> dict[str, str]:
        each = self.by_type.items()
        return {name: "none" if table is None else table.shown() for name, table in each}

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
        return cls.of_tables(schema, made)

    @classmethod
    def of_tables(cls, schema: Schema, tables: Iterable[Any]) -> Self:
        """The features with these `tables`, which may be any `RowTable` or None."""
        each = (None if table is None else plain(as_table(table)) for table in tables)
        return cls(tuple(each), schema.without_relations())

    @property
    def by_type(self) -> dict[str, RowTable | None]:
        each = zip(self.schema.node_types, self.tables, strict=True)
        return {name: None if t is None else as_table(t) for (name, _), t in each}

    @cached_property
    def shape(self) -> tuple[int, int]:
        return self.num_nodes, sum(self.widths)

    @property
    def num_nodes(self) -> int:
        return self.schema.num_nodes

    @property
    def by_entries(self) -> bool:  # type: ignore[override]
        """Whether some type has rows of entries."""
        return any(table is not None and table.by_entries for table in self.by_type.values())

    def table(self, node_type: str) -> Any:
        """The table of a node type, or None. Raises `InputError` that lists the types."""
        return self.tables[self.schema.number(node_type)]

    def changed(self, change: Callable[[RowTable], Any]) -> TypedFeatures:
        tables = (None if table is None else change(table) for table in self.by_type.values())
        return self.of_tables(self.schema, tables)

    def of_type(self, name: str, values: np.ndarray) -> np.ndarray:
        ranges = self.schema.ranges(name)
        return np.concatenate([values[r.start : r.stop] for r in ranges])

    def scales(self) -> Scales:
        """For each node type powers of two by which its features become numbers of about 1,
        which models of typed graphs take as `scales`: one for each column of a matrix, one for
        all of `SparseFeatures`, none for a type without features. The root mean square of a
        column's numbers is then between 0.7 and 1.5. Zeros do not count."""
        return scales_of(self.square_sums())

    def kept_as(self, dtype: str) -> TypedFeatures:
        """The same features, each table kept in a dtype, one of `jgs.tables.DTYPES`."""
        return kept_as(self, dtype)

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        """The features of nodes in parts: those of one part after those of another."""
        if len(tables) == 1:
            return tables[0]
        parts = [part for each in tables for part in each.schema.every_part]
        counts = map(sum, zip(*parts, strict=True))
        types = zip(tables[0].by_type, counts, strict=True)
        each = zip(*(table.by_type.values() for table in tables), strict=True)
        joined = (None if None in own else as_one(own) for own in each)
        return cls.of_tables(Schema(tuple(types), (), tuple(parts)), joined)

    def arrays(self) -> dict[str, Any]:
        return {
            f"of_type_{number}.{name}".removesuffix("."): array
            for number, table in enumerate(self.by_type.values())
            if table is not None
            for name, array in table.arrays().items()
        }

    def digest(self, digest_of: Callable[..., str]) -> str:
        of_types = ["none" if t is None else t.digest(digest_of) for t in self.by_type.values()]
        text = np.frombuffer(" ".join(of_types).encode(), np.uint8)
        return digest_of(self.schema.as_bytes(), text)

    def described(self) -> dict[str, Any]:
        of_types = [None if t is None else t.described() for t in self.by_type.values()]
        return {"types": of_types}

    def check_dtype(self, what: str) -> None:
        for name, table in self.by_type.items():
            if table is not None:
                table.check_dtype(f"{what} of {name}")

    def check_values(self, what: str) -> None:
        for name, table in self.by_type.items():
            if table is not None:
                table.check_values(f"{what} of {name}")

    def gather(self, ids: jax.Array, num_threads: int | None, batch: Any = None) -> TypedRows:
        """Outside of `jax.jit` the tables of the rows are these. A jitted function that returns
        them copies them."""
        (kind, place), tables = _type_and_place(self.schema, ids), [*self.tables]
        for number, table in enumerate(self.by_type.values()):
            if table is not None and table.versions is not None:
                mine, tables[number] = kind == number, table.table  # type: ignore[attr-defined]
                rows = table.versions.rows(jnp.where(mine, place, -1), batch)
                place = jnp.where(mine, rows, place)
        return TypedRows(tuple(tables), kind, place)


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


def checked_scales(widths: Sequence[int], given: Sequence[Any] | None) -> Scales:
    """For each node type, of so many features, 1 or `F` numbers; 1 for None. Raises
    `InputError`."""
    try:
        found = (
            [(1.0,)] * len(widths) if given is None else [tuple(map(float, s)) for s in given]
        )
    except (TypeError, ValueError):
        found = []
    each = zip(widths, found, strict=False)
    fit = all(not w or (len(s) in (1, w) and 0 < min(s) <= max(s) < math.inf) for w, s in each)
    if len(found) != len(widths) or not fit:
        raise InputError(
            f"scales must be 1 or F positive numbers for each of the {len(widths)} node types, "
            f"which have {list(widths)} features",
            given,
            "Pass features.scales().",
        )
    return tuple(found)


def split_by_type(features: Any, schema: Schema) -> TypedFeatures:
    """The `TypedFeatures` with the rows of one matrix `[N, F]` or of another table, or of None;
    those that are given by type as they are. Types have no features where `F` is 0. Rows that
    are not aligned are copied."""
    whole = None if features is None else as_table(features)
    if isinstance(whole, TypedFeatures):
        return whole
    ranges = [schema.ranges(name) for name, _ in schema.node_types]
    tables: list[Any] = [None] * len(ranges)
    if whole is not None and whole.shape[1]:
        for i, of_type in enumerate(ranges):
            tables[i] = as_one([whole.take(slice(r.start, r.stop)) for r in of_type])
    return TypedFeatures.of_tables(schema, tables)


def _table(name: str, given: Any) -> Any:
    if given is None or (isinstance(given, RowTable) and given.schema is None):
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
