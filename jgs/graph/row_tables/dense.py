"""`Matrices`: rows in one dense matrix, or in several that are numbered as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, require_array
from jgs.errors import InputError
from jgs.graph.device import as_device
from jgs.graph.row_tables.table import RowTable
from jgs.kernels.call import FILL, call, floats, or_empty

_AT_ONCE = 1 << 22  # numbers that are scanned, which bounds the temporaries


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Matrices(RowTable):
    """The rows of matrices, each below the one before.

    Fields:
      tables: matrices `[N_i, F]` of a real dtype, JAX arrays or memory maps.
    """

    tables: tuple[Any, ...]

    form, names, row_names = "dense", ("",), ("",)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(table.shape[0] for table in self.tables), self.tables[0].shape[1]

    @property
    def kind(self) -> str:
        return " and ".join(dict.fromkeys(str(table.dtype) for table in self.tables))

    def arrays(self) -> dict[str, Any]:
        (table,) = self.joined([self]).tables
        return {"": np.asanyarray(table)}

    @classmethod
    def opened(cls, arrays: Mapping[str, Any], width: int, max_row: int | None = None) -> Self:
        return cls((arrays[""],))

    def take(self, rows: slice | np.ndarray) -> Self:
        return type(self)((as_device(self.joined([self]).tables[0][rows]),))

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        every = [np.asanyarray(table) for each in tables for table in each.tables]
        return cls((every[0] if len(every) == 1 else np.concatenate(every),))

    def numbers(self, rows: Any = slice(None), columns: Any = slice(None)) -> np.ndarray:
        return np.asarray(self.joined([self]).tables[0])[rows, columns]

    def shown(self) -> str:
        return " and ".join(map(described, self.tables))

    def check_dtype(self, what: str) -> None:
        for table in self.tables:
            remedy = "Convert them with .astype(numpy.float32)."
            require_array(what, table, "float32 or float16 [N, F]", remedy)

    def check_values(self, what: str) -> None:
        for first, table in zip(self._begins(), self.tables, strict=True):
            check_finite(what, np.asarray(table), first)

    def squares(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for table in self.tables:
            step = max(1, math.prod(table.shape) // most)
            some = np.asarray(table[::step]).astype(np.float64)
            found.append(((some**2).sum(axis=0), (some != 0).sum(axis=0)))
        return tuple(map(sum, zip(*found, strict=True)))  # type: ignore[return-value]

    def encoded(self, rows: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return rows.astype(self.tables[0].dtype)

    def digest(self, digest_of: Callable[..., str]) -> str:
        return digest_of(*self.tables)

    @property
    def rows(self) -> tuple[Any, ...]:
        return self.tables

    def with_rows(self, rows: Any) -> Any:
        return rows

    # -- traced --------------------------------------------------------------------------------

    @property
    def filled(self) -> tuple[Any, ...]:
        """Those of the tables that have rows; all if none has."""
        return tuple(table for table in self.tables if table.shape[0] > 0) or self.tables

    @property
    def in_kernels(self) -> bool:
        kinds = {jnp.dtype(table.dtype) for table in self.filled}
        return len(kinds) == 1 and kinds <= {jnp.dtype(jnp.float32), jnp.dtype(jnp.float16)}

    def gather_plain(self, ids: jax.Array) -> jax.Array:
        return rows_as_stored(self.tables, ids, jnp.float32)

    def gather_kernel(self, ids: jax.Array, num_threads: int) -> jax.Array:
        return gather_stored(self.filled, ids, num_threads)

    def aggregate_kernel(
        self, place: jax.Array | None, edges: Mapping[str, Any], reduce: str, num_threads: int
    ) -> jax.Array:
        return aggregate_stored(self.filled, place, edges, reduce, num_threads)

    def _begins(self) -> list[int]:
        return list(accumulate((table.shape[0] for table in self.tables[:-1]), initial=0))


def check_finite(what: str, rows: np.ndarray, first: int = 0) -> None:
    """Raises `InputError` that names the first row with a NaN or an infinity. `first` is the
    number of the first of the `rows`, if these are a part of all."""
    step = max(1, _AT_ONCE // max(1, rows.shape[1]))
    for begin in range(0, len(rows), step):
        good = np.isfinite(rows[begin : begin + step]).all(axis=1)
        if not good.all():
            raise not_finite(what, first + begin + int(np.argmin(good)))


def not_finite(what: str, row: int) -> InputError:
    """The error for features `what` with a NaN or an infinity in `row`."""
    return InputError(
        f"{what} must be finite",
        f"NaN or infinity in row {row}",
        "Clean the features, e.g. with numpy.nan_to_num.",
    )


def rows_as_stored(tables: Sequence[Any], ids: jax.Array, dtype: Any = None) -> jax.Array:
    """The rows `ids`, int32 `[K]`, of matrices that are numbered as one, in a dtype, by default
    that of the first; zeros for ids of no row."""
    dtype = tables[0].dtype if dtype is None else dtype
    first, found = 0, None
    for table in tables:
        if table.shape[0]:
            at = ids if found is None else jnp.where(ids >= first, ids - first, -1)
            rows = table.at[at].get(**FILL).astype(dtype)
            found = rows if found is None else jnp.where((ids >= first)[:, None], rows, found)
        first += table.shape[0]
    if found is None:
        found = jnp.zeros((ids.shape[0], tables[0].shape[1]), dtype)
    return found


def gather_stored(
    tables: Sequence[Any], ids: jax.Array, num_threads: int, codes: Sequence[Any] = ()
) -> jax.Array:
    """`gather` of matrices by the kernel; `codes` are the scale and the offset of codes."""
    out = floats((ids.shape[0], tables[0].shape[1]))
    target = "jgs_gather_codes" if codes else "jgs_gather"
    return call(target, out, (ids, *codes, *tables), num_threads)


def aggregate_stored(
    tables: Sequence[Any],
    place: jax.Array | None,
    edges: Mapping[str, Any],
    reduce: str,
    num_threads: int,
    codes: Sequence[Any] = (),
) -> jax.Array:
    """`gather_aggregate` of matrices by the kernel; `codes` as in `gather_stored`."""
    out = floats((edges["indptr"].shape[0] - 1, tables[0].shape[1]))
    block = (or_empty(edges["edge_weight"]), edges["indptr"], edges["indices"])
    targets, sources, num = (edges[f"num_{name}"] for name in ("targets", "sources", "edges"))
    if place is None:
        target = "jgs_gather_aggregate_codes" if codes else "jgs_gather_aggregate"
        arrays = (tables[0], *codes, *block, targets, sources, num)
    else:
        kind = "code_tables" if codes else "tables"
        target = f"jgs_gather_aggregate_{kind}"
        arrays = (place, *codes, *block, targets, num, *tables)
    return call(target, out, arrays, num_threads, reduce)
