"""`SparseFeatures`: node features that are mostly zero, stored without the zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy

from jgs.arrays import described, require_array
from jgs.errors import InputError
from jgs.graph.device import as_device, reduce_arrays
from jgs.graph.row_tables.dense import not_finite
from jgs.graph.row_tables.table import RowTable
from jgs.kernels.call import call, floats, or_empty
from jgs.settings import exact_integers


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SparseFeatures(RowTable):
    """A feature matrix `[N, F]` in compressed sparse row form, a JAX pytree.

    Fields:
      indptr: int64 `[N+1]`; the entries of row `v` are `indptr[v]:indptr[v+1]`.
      indices: int32 `[nnz]`; the column of each entry, distinct within a row.
      values: float32 `[nnz]`.
      num_features: int, static; `F`.
      max_row: int, static; the largest number of entries in a row.

    `jgs.ops.gather(features, ids)` makes the rows of a batch dense. `from_scipy` makes fields
    that keep these rules. The constructor stores its arguments unchecked.
    """

    indptr: jax.Array
    indices: jax.Array
    values: jax.Array
    num_features: int = field(metadata={"static": True})
    max_row: int = field(metadata={"static": True})

    __reduce__ = reduce_arrays
    form, kind, by_entries = "sparse", "sparse", True
    names = "indptr", "indices", "values"

    @property
    def shape(self) -> tuple[int, int]:
        return self.indptr.shape[0] - 1, self.num_features

    def to_scipy(self) -> scipy.sparse.csr_array:
        """The SciPy sparse array of the same numbers, which shares their memory on a CPU."""
        arrays = (self.values, self.indices, self.indptr)
        return scipy.sparse.csr_array(tuple(map(np.asarray, arrays)), self.shape)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Self:
        """The features of a SciPy sparse matrix `[N, F]`; duplicate entries are summed.

        Raises `InputError` for anything else, and for values that are not finite.
        """
        if not hasattr(matrix, "tocsr"):
            raise InputError(
                "sparse features must be a SciPy sparse matrix or array",
                f"a {type(matrix).__name__}",
                "Convert them with scipy.sparse.csr_array.",
            )
        remedy = "Give one row of numbers for every node."
        require_array("sparse features", matrix, "numbers [N, F]", remedy)
        csr = matrix.tocsr().astype(np.float32)
        csr.sum_duplicates()
        indptr = csr.indptr.astype(np.int64)
        made = cls(
            as_device(indptr),
            as_device(csr.indices.astype(np.int32)),
            as_device(csr.data),
            int(csr.shape[1]),
            int(np.diff(indptr).max(initial=0)),
        )
        made.check_values("features")
        return made

    def arrays(self) -> dict[str, Any]:
        return {name: np.asarray(getattr(self, name)) for name in self.names}

    @classmethod
    def opened(cls, arrays: Mapping[str, Any], width: int, max_row: int | None = None) -> Self:
        if max_row is None:
            max_row = int(np.diff(np.asarray(arrays["indptr"])).max(initial=0))
        indptr, indices, values = (arrays[name] for name in cls.names)
        return cls(indptr, indices, values, width, max_row)

    def take(self, rows: slice | np.ndarray) -> Self:
        return self.from_scipy(self.to_scipy()[rows])

    @classmethod
    def joined(cls, tables: Sequence[Self]) -> Self:
        if len(tables) == 1:
            return tables[0]
        return cls.from_scipy(scipy.sparse.vstack([table.to_scipy() for table in tables]))

    def numbers(self, rows: Any = slice(None), columns: Any = slice(None)) -> np.ndarray:
        return self.to_scipy()[rows][:, columns].toarray()

    def shown(self) -> str:
        return f"sparse {described(self.values).partition('[')[0]}{list(self.shape)}"

    def host(self) -> Any:
        return self.to_scipy()

    def check_values(self, what: str) -> None:
        finite = np.isfinite(np.asarray(self.values))
        if not finite.all():
            entry, indptr = int(np.argmin(finite)), np.asarray(self.indptr)
            raise not_finite(what, int(np.searchsorted(indptr, entry, "right")) - 1)

    def squares(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        values = np.asarray(self.values)
        some = values[:: max(1, math.prod(values.shape) // most)].astype(np.float64)
        return np.array([(some**2).sum()]), np.array([(some != 0).sum()])

    # -- traced --------------------------------------------------------------------------------

    in_kernels = True

    def gather_plain(self, ids: jax.Array) -> jax.Array:
        num_rows, num_features = self.shape
        out = jnp.zeros((ids.shape[0], num_features), jnp.float32)
        if self.max_row == 0 or num_rows == 0:
            return out
        with exact_integers():
            columns, values = self.entries(ids, self.max_row, num_features)
            slot = jnp.arange(ids.shape[0], dtype=jnp.int32)[:, None]
            return out.at[slot, columns].add(values, mode="drop")

    def entries(self, ids: jax.Array, most: int, none: int) -> tuple[jax.Array, jax.Array]:
        """int32 and float32 `[K, most]`: the columns and the values of the entries of the rows
        `ids`, int32 `[K]`. Where there are fewer they are the column `none` and 0."""
        with exact_integers():  # entries are counted in 64 bits
            real = (ids >= 0) & (ids < self.shape[0])
            safe = jnp.where(real, ids, 0)
            start = self.indptr[safe]
            stop = jnp.where(real, self.indptr[safe + 1], start)
            entry = start[:, None] + jnp.arange(most, dtype=jnp.int64)
            entry = jnp.where(entry < stop[:, None], entry, self.values.shape[0])
            columns = self.indices.at[entry].get(mode="fill", fill_value=none)
            return columns, self.values.at[entry].get(mode="fill", fill_value=0)

    def gather_kernel(self, ids: jax.Array, num_threads: int) -> jax.Array:
        out = floats((ids.shape[0], self.num_features))
        arrays = (self.indptr, self.indices, self.values, ids)
        return call("jgs_gather_sparse", out, arrays, num_threads)

    def aggregate_kernel(
        self, place: jax.Array | None, edges: Mapping[str, Any], reduce: str, num_threads: int
    ) -> jax.Array:
        assert place is None  # `gather_aggregate` refuses it
        out = floats((edges["indptr"].shape[0] - 1, self.num_features))
        block = (or_empty(edges["edge_weight"]), edges["indptr"], edges["indices"])
        counts = (edges["num_targets"], edges["num_sources"], edges["num_edges"])
        arrays = (self.indptr, self.indices, self.values, *block, *counts)
        return call("jgs_gather_aggregate_sparse", out, arrays, num_threads, reduce)
