"""`Coded`: rows whose numbers are codes, which become numbers where they are read.
`QuantizedFeatures`: node features of one byte a number."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.row_tables.dense import Matrices, aggregate_stored, gather_stored, rows_as_stored
from jgs.graph.row_tables.table import RowTable, as_table


class Coded(RowTable):
    """What tables of codes share. A subclass is a frozen dataclass, registered as a pytree.

    Fields, of which a subclass adds more:
      codes: `[N, F]` of one dtype, or a tuple of such matrices, which are numbered as one. The
        other fields are arrays that all rows share.

    A subclass says how features become codes (`of`, `encoded`), and codes numbers (`decoded`).
    """

    codes: Any
    names: ClassVar[tuple[str, ...]]
    row_names = ("codes",)
    same_sums = False  # codes may be summed before they become numbers

    @abstractmethod
    def decoded(self, codes: Any, columns: Any = slice(None)) -> Any:
        """float32: the numbers of codes `[..., k]` of these columns, NumPy or JAX as given."""

    @property
    def kind(self) -> str:
        return self.form

    @property
    def stored(self) -> Matrices:
        """The codes, as rows of numbers."""
        return Matrices(self.codes if isinstance(self.codes, tuple) else (self.codes,))

    @property
    def rows(self) -> tuple[Any, ...]:
        return self.stored.tables

    def with_rows(self, rows: Any) -> Self:
        return replace(self, codes=rows)  # type: ignore[type-var]

    @property
    def shape(self) -> tuple[int, int]:
        return self.stored.shape

    def arrays(self) -> dict[str, Any]:
        codes = Matrices.joined([self.stored]).arrays()[""]
        return {"codes": codes} | {n: np.asarray(getattr(self, n)) for n in self.names[1:]}

    @classmethod
    def opened(cls, arrays: Mapping[str, Any], width: int, max_row: int | None = None) -> Self:
        return cls(*(arrays[name] for name in cls.names))

    def take(self, rows: slice | np.ndarray) -> Self:
        return self.with_rows(self.stored.take(rows).tables[0])

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> RowTable:
        first, shared = tables[0], cls.names[1:]
        if all(
            np.array_equal(getattr(first, name), getattr(table, name))
            for table in tables
            for name in shared
        ):
            return first.with_rows(tuple(rows for table in tables for rows in table.rows))
        return cls.of(np.concatenate([table.numbers() for table in tables]))

    def numbers(self, rows: Any = slice(None), columns: Any = slice(None)) -> np.ndarray:
        return self.decoded(self.stored.numbers(rows, columns), columns)

    def check_values(self, what: str) -> None:
        Matrices((self.numbers(),)).check_values(what)

    def squares(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        step = max(1, int(np.prod(self.shape)) // most)
        return Matrices((self.numbers(slice(None, None, step)),)).squares(most)

    def gather_plain(self, ids: jax.Array) -> jax.Array:
        if not self.shape[0]:
            return jnp.zeros((ids.shape[0], self.shape[1]), jnp.float32)
        real = (ids >= 0) & (ids < self.shape[0])
        return jnp.where(real[:, None], self.decoded(rows_as_stored(self.rows, ids)), 0)


_NUMBERS = 1 << 24  # that are quantized at once
_log = logging.getLogger("jgs")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class QuantizedFeatures(Coded):
    """A feature matrix `[N, F]` as 8-bit codes, a JAX pytree.

    A number is `code * scale + offset`, with a scale and an offset for each column (Jacob et
    al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", 2018, section 2.1).

    Fields:
      codes: int8 `[N, F]`, or a tuple of such matrices, which are numbered as one.
      scale, offset: float32 `[F]`.

    A number is off by at most its column's scale, a 255th of the column's range, and what
    float32 rounds. 0 stays 0 in a column that has it within its range. Rows lie in memory,
    travel and are cached as codes. They become float32 where they are summed.

    `of` makes fields that keep these rules. The constructor stores its arguments unchecked.
    """

    codes: Any
    scale: jax.Array
    offset: jax.Array

    __reduce__ = reduce_arrays
    form, names = "int8", ("codes", "scale", "offset")

    @classmethod
    def of(cls, features: Any) -> Self:
        """The codes of `features` `[N, F]`: a matrix, `SparseFeatures`, or a tuple of matrices.
        Raises `InputError` for values that are not finite."""
        table = as_table(features)
        if isinstance(table, cls):
            return table
        table.check_values("features")
        table = table.joined([table])  # not anew for each chunk
        num, width = table.shape
        step = max(1, _NUMBERS // max(width, 1))
        chunks = [slice(first, min(first + step, num)) for first in range(0, num, step)]
        low, high = np.full(width, np.inf), np.full(width, -np.inf)
        for chunk in chunks:
            some = table.numbers(chunk).astype(np.float64)
            low, high = np.minimum(low, some.min(axis=0)), np.maximum(high, some.max(axis=0))
        if not num:
            low = high = np.zeros(width)
        scale = ((high - low) / 255).astype(np.float32)
        scale[scale == 0] = 1  # all numbers of the column are equal, so that every code is 0
        exact = scale.astype(np.float64)
        has_zero = (low <= 0) & (high >= 0)
        # 0 becomes a code, so that its product and the offset cancel out.
        zero = np.clip(np.round(-128 - low / exact), -128, 127)
        middle = np.where(high > low, low + 128 * exact, low)
        offset = np.where(has_zero, -zero * exact, middle).astype(np.float32)
        made = cls(
            as_device(np.empty((0, width), np.int8)), as_device(scale), as_device(offset)
        )
        codes = np.empty((num, width), np.int8)
        for chunk in chunks:
            codes[chunk] = made.encoded(table.numbers(chunk))
        return made.with_rows(as_device(codes))

    def encoded(self, rows: np.ndarray) -> np.ndarray:
        """As of `RowTable`. Numbers out of the range of their column become its ends."""
        scale, offset = (np.asarray(a, np.float64) for a in (self.scale, self.offset))
        codes = np.round((rows.astype(np.float64) - offset) / scale)
        if cut := np.count_nonzero((codes < -129) | (codes > 128)):  # 0 as a code may cost one
            said = "%d numbers are out of the range of their column, whose ends stand for them"
            _log.warning(said, cut)
        return np.clip(codes, -128, 127).astype(np.int8)

    def decoded(self, codes: Any, columns: Any = slice(None)) -> Any:
        scale: Any = self.scale
        offset: Any = self.offset
        if isinstance(codes, np.ndarray):
            scale, offset = np.asarray(scale), np.asarray(offset)
        return codes.astype(np.float32) * scale[columns] + offset[columns]

    def check_values(self, what: str) -> None:
        """Codes are always finite."""

    in_kernels = True

    def gather_kernel(self, ids: jax.Array, num_threads: int) -> jax.Array:
        codes = (self.scale, self.offset)
        return gather_stored(self.stored.filled, ids, num_threads, codes)

    def aggregate_kernel(
        self, place: jax.Array | None, edges: Mapping[str, Any], reduce: str, num_threads: int
    ) -> jax.Array:
        codes = (self.scale, self.offset)
        return aggregate_stored(self.stored.filled, place, edges, reduce, num_threads, codes)
