"""`RowTable`: the contract of feature rows `[N, F]`, however they are stored. In `jgs.tables`
names all ways there are.

`as_table` makes a `RowTable` of what people give. Whoever reads rows asks the table, and does
not ask which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import jax
import numpy as np

from jgs.errors import InputError, check_choice
from jgs.graph.device import as_device
from jgs.kernels.call import kernel_or_plain, vary_alike
from jgs.tables import DTYPES
from jgs.tables import ROW_TABLES as FORMS

MOST_SQUARES = 1 << 22  # numbers of which `square_sums` takes the squares


class RowTable(ABC):
    """Rows `[N, F]` of finite numbers, as a JAX pytree. They are float32 where they are read.

    Attributes:
      form: the key of the class in `jgs.tables.ROW_TABLES`.
      shape: `(N, F)`.
      kind: what people are told of it: a dtype, or "sparse".
      names: those of `arrays`, in order.
      row_names: those of them that have a row for each node.
      by_entries: whether a row is a list of entries, each a column and a value, as those of
        `SparseFeatures` are. All others have `rows` and `with_rows`.
      same_sums: whether sums by `aggregate_kernel` have the bits of sums of gathered rows.
      schema: the `Schema` of node types that have a table each; None for one of all nodes.
      versions: the `Versions` that say which rows of its `table` a batch's nodes read; None:
        node `i` has row `i`.
    """

    form: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    row_names: ClassVar[tuple[str, ...]] = ()
    by_entries: ClassVar[bool] = False
    same_sums: ClassVar[bool] = True
    schema: Any = None
    versions: Any = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @property
    @abstractmethod
    def kind(self) -> str: ...

    # -- node types ----------------------------------------------------------------------------

    @property
    def by_type(self) -> dict[str, RowTable | None]:
        """The table of each node type, None where it has no features; without types this one,
        by the name ""."""
        return {"": self}

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of features of each of `by_type`, 0 for None."""
        return tuple(0 if table is None else table.shape[1] for table in self.by_type.values())

    def of_type(self, name: str, values: np.ndarray) -> np.ndarray:
        """Those of `values`, which has one for each node, of the nodes of one of `by_type`."""
        return values

    def changed(self, change: Callable[[RowTable], Any]) -> Any:
        """What `change` makes of the table, or features with that of each node type's."""
        return change(self)

    def shown_widths(self) -> str:
        """The widths, as "1,433 sparse", or by node type: "user 3, item 30 sparse"."""
        words = []
        for name, table in self.by_type.items():
            kind = "" if table is None or table.kind.startswith("float") else f" {table.kind}"
            width = "none" if table is None else f"{table.shape[1]:,}{kind}"
            words.append(f"{name} {width}".lstrip())
        return ", ".join(words)

    def check_one_width(self, what: str, of: str, remedy: str) -> None:
        """Raises `InputError` where node types have tables of their own: `what` must have one
        for all. The rows are those `of` a data set or of something else."""
        if self.schema is not None:
            raise InputError(
                f"{what} must have features of one width for all nodes",
                f"{of}, with {self.shown_widths()}",
                remedy,
            )

    def square_sums(self) -> list[np.ndarray]:
        """For each of `by_type` float64 `[k, 2]`, for each column, or for all columns of sparse
        rows together: the sum of the squares, and how many numbers are not 0; of some rows of
        large tables, evenly spaced."""
        return [
            np.zeros((0, 2))
            if table is None
            else np.stack(table.squares(MOST_SQUARES), axis=1).astype(np.float64)
            for table in self.by_type.values()
        ]

    def digest(self, digest_of: Callable[..., str]) -> str:
        """What `digest_of` makes of the arrays that say all."""
        return digest_of(*self.arrays().values(), np.array(self.shape[1]))

    def described(self) -> dict[str, Any]:
        """The form, in JSON, as the manifest of a partitioned data set says it."""
        form = {} if self.form in ("dense", "sparse") else {"form": self.form}
        return {
            "shape": list(self.shape),
            "dtype": "float32" if self.by_entries else self.kind,
            "sparse": self.by_entries,
            "max_row": getattr(self, "max_row", None),
            **form,
        }

    # -- on the host ---------------------------------------------------------------------------

    @abstractmethod
    def arrays(self) -> dict[str, Any]:
        """The arrays that say all, by the names of their files; "" for the only one."""

    @classmethod
    def of(cls, features: Any) -> Any:
        """The table of `features` of any form, where numbers may be rounded."""
        raise NotImplementedError

    @classmethod
    def opened(cls, arrays: Mapping[str, Any], width: int, max_row: int | None = None) -> Self:
        """The table of what `arrays` returned, as JAX arrays. `max_row` is known of entries
        that were counted before."""
        raise NotImplementedError

    def take(self, rows: slice | np.ndarray) -> Self:
        """Some of the rows, in the same form."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def joined(cls, tables: Sequence[Self]) -> Any:
        """The rows of several tables, one below the other, as a `RowTable`."""

    def numbers(self, rows: Any = slice(None), columns: Any = slice(None)) -> np.ndarray:
        """Some numbers, dense, in NumPy. `rows` and `columns` are slices, or one of them is
        ints."""
        raise NotImplementedError

    def shown(self) -> str:
        """Its kind and its shape, as people are told."""
        return f"{self.kind} {list(self.shape)}"

    def host(self) -> Any:
        """All numbers in NumPy, or as a SciPy sparse array; `of_host` is its inverse."""
        return self.numbers()

    def check_dtype(self, what: str) -> None:  # noqa: B027, most forms have one dtype
        """Raises `InputError`, which calls the features `what`, for a dtype that models do not
        read."""

    @abstractmethod
    def check_values(self, what: str) -> None:
        """Raises `InputError`, which calls the features `what`, for a NaN or an infinity."""

    def squares(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """float64 `[k]` twice, for each column, or for all columns together: the sum of the
        squares of the numbers, and how many are not 0; of about `most` numbers of rows evenly
        spaced."""
        raise NotImplementedError

    def encoded(self, rows: np.ndarray) -> np.ndarray:
        """The numbers `[n, F]` of other nodes as rows of `rows`. It says so in the log where
        they cannot be kept nearly as they are."""
        raise NotImplementedError

    # -- rows that travel: what a table of other rows of the same kind is made of --------------

    @property
    def rows(self) -> tuple[Any, ...]:
        """The matrices `[N_i, F]`, numbered as one, that have the numbers of each row."""
        raise NotImplementedError

    def with_rows(self, rows: Any) -> Any:
        """The table whose `rows` are these: other rows of the same kind, of other nodes."""
        raise NotImplementedError

    # -- traced --------------------------------------------------------------------------------

    def gather(self, ids: jax.Array, num_threads: int | None, batch: Any = None) -> Any:
        """What `jgs.ops.gather` returns of ids int32 `[K]`, which are those of the nodes of the
        `batch`, if there is one; in plain JAX without threads."""
        return _gather(self, ids, num_threads)

    @property
    def in_kernels(self) -> bool:
        """Whether the kernels read this table. None reads one without numbers."""
        return False

    def gather_plain(self, ids: jax.Array) -> jax.Array:
        """float32 `[K, F]`: the rows of `ids`, int32 `[K]`; zeros for ids outside `[0, N)`."""
        raise NotImplementedError

    def gather_kernel(self, ids: jax.Array, num_threads: int) -> jax.Array:
        """As `gather_plain`, by a kernel."""
        raise NotImplementedError

    def aggregate_kernel(
        self, place: jax.Array | None, edges: Mapping[str, Any], reduce: str, num_threads: int
    ) -> jax.Array:
        """The kernel of `jgs.ops.gather_aggregate`; `edges` are the arrays and counts of the
        block, by the names of its fields."""
        raise NotImplementedError


@partial(jax.jit, static_argnums=2)
def _gather(table, ids, num_threads):
    def kernel(table, ids):
        return table.gather_kernel(ids, num_threads)

    def plain(table, ids):
        return table.gather_plain(ids)

    return kernel_or_plain(num_threads, kernel, plain, *vary_alike(table, ids))


def as_table(features: Any) -> RowTable:
    """`features` as a `RowTable`: one already, a JAX or NumPy matrix, or a tuple or list of
    matrices that are numbered as one."""
    if isinstance(features, RowTable):
        return features
    tables = tuple(features) if isinstance(features, tuple | list) else (features,)
    return FORMS["dense"](tables)


def kept_as(features: Any, dtype: str) -> Any:
    """`features`, of any form that `as_table` takes, kept in one of `jgs.tables.DTYPES`. Raises
    `InputError`."""
    check_choice("dtype", dtype, DTYPES)
    table = as_table(features)
    if table.schema is not None:
        return table.changed(lambda own: kept_as(own, dtype))
    if dtype in ("stored", table.form, table.kind):
        return features
    if dtype in FORMS:
        return FORMS[dtype].of(features)
    if table.by_entries:
        raise InputError(
            f"features that are kept as {dtype} must be dense",
            "sparse features, whose values are float32",
            "Leave the dtype out.",
        )
    with np.errstate(over="ignore"):
        made = as_device(table.numbers().astype(dtype))
    try:
        as_table(made).check_values("features")
    except InputError as error:
        raise InputError(
            f"features that are kept as {dtype} must be within its range",
            error.value,
            "Divide large columns, or give standardize; int8 has each column's own range.",
        ) from None
    return made


def as_one(tables: Sequence[RowTable]) -> RowTable:
    """Tables of one form, numbered as one, one below the other. Matrices are not copied."""
    first = tables[0]
    if first.form != "dense":
        return type(first).joined(tables)
    return as_table([matrix for table in tables for matrix in table.rows])


def opened_table(arrays: Mapping[str, Any], width: int) -> Any:
    """The table that has these `arrays`, which are not copied, a JAX matrix where it is one;
    None if no form has them."""
    for form in FORMS.values():
        if set(form.names) == set(arrays):
            return plain(form.opened({n: as_device(a) for n, a in arrays.items()}, width))
    return None


def plain(table: RowTable) -> Any:
    """A matrix, or a tuple of matrices, in place of the table that `as_table` made of it."""
    if table.form != "dense":
        return table
    return table.rows[0] if len(table.rows) == 1 else table.rows


def of_host(matrix: Any) -> Any:
    """What `RowTable.host` returned, as features: a matrix on the host device, or
    `SparseFeatures`."""
    sparse = hasattr(matrix, "tocsr")
    return FORMS["sparse"].from_scipy(matrix) if sparse else as_device(matrix)
