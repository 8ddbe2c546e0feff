"""`QuantizedFeatures`: node features of one byte a number."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.row_tables.coded import Coded
from jgs.graph.row_tables.dense import aggregate_stored, gather_stored
from jgs.graph.row_tables.table import as_table

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
