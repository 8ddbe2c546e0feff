"""`SparseFeatures`: node features that are mostly zero, stored without the zeros."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import jax
import numpy as np
import scipy

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph.device import as_device, reduce_arrays


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class SparseFeatures:
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
        check_entries("features", made)
        return made


def check_entries(what: str, features: SparseFeatures) -> None:
    """Raises `InputError` for a NaN or an infinity; it calls the features `what`."""
    finite = np.isfinite(np.asarray(features.values))
    if not finite.all():
        entry, indptr = int(np.argmin(finite)), np.asarray(features.indptr)
        raise not_finite(what, int(np.searchsorted(indptr, entry, "right")) - 1)


def not_finite(what: str, row: int) -> InputError:
    """The error for features `what` with a NaN or an infinity in `row`."""
    return InputError(
        f"{what} must be finite",
        f"NaN or infinity in row {row}",
        "Clean the features, e.g. with numpy.nan_to_num.",
    )
