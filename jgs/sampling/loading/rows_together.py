"""`RowsTogether`: the rows of a batch's nodes without the tables that they lie in."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jgs.graph import TypedRows, as_device
from jgs.ops.gather import rows_apart
from jgs.sampling.capacity import round_up

_rows_apart = jax.jit(rows_apart)


class RowsTogether:
    """Copies the rows that `TypedRows` name, so that they can be sent without the tables.

    Called with a pytree, it returns it with other `TypedRows`. The table of each type then has
    `K` rows: those of the batch's nodes of that type in their order, kept as they are stored.
    Sparse rows are made dense. A node of a type without features keeps its place.

    `K` has some room to spare. Where a batch needs more, `K` grows from then on, so that there
    are few shapes.
    """

    def __init__(self) -> None:
        self._room: dict[int, int] = {}

    def __call__(self, tree: Any) -> Any:
        def is_rows(value: Any) -> bool:
            return isinstance(value, TypedRows)

        return jax.tree.map(lambda v: self._of(v) if is_rows(v) else v, tree, is_leaf=is_rows)

    def _of(self, rows: TypedRows) -> TypedRows:
        kind, place = np.asarray(rows.kind), np.array(rows.place)  # the latter is a copy
        tables: list[Any] = []
        for number, table in enumerate(rows.tables):
            if table is not None:
                mine = np.flatnonzero(kind == number)
                asked = np.full(self._room_for(number, mine.size), -1, np.int32)
                asked[: mine.size] = place[mine]
                place[mine] = np.arange(mine.size, dtype=np.int32)
                table = _rows_apart(jax.tree.map(as_device, table), asked)
            tables.append(table)
        return rows._replace(tables=tuple(tables), place=as_device(place))

    def _room_for(self, number: int, size: int) -> int:
        if size > self._room.get(number, 0):
            self._room[number] = round_up(size + size // 8)
        return max(self._room.get(number, 0), 1)
