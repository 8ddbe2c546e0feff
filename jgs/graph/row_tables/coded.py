"""`Coded`: rows whose numbers are codes, which become numbers where they are read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.graph.row_tables.dense import Matrices, rows_as_stored
from jgs.graph.row_tables.table import RowTable


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
