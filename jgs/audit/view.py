"""`View`: a database, a task and its labels, as the kinds of findings look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, Unpack

import numpy as np

from jgs.data import Database, LabelTable
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.database.catalogue import is_number
from jgs.data.database.graph import plain_of
from jgs.data.database.questions import Asked, Question
from jgs.data.database.stored_tables import NUMBERS, quoted
from jgs.data.dataset import Plain
from jgs.errors import InputError

NEVER = -(2**63 - 1)  # the time of what has none: it was always there
DATES = ("DATE", "TIMESTAMP")  # how the types of columns of moments begin
_UNITS = {"D": 86_400_000_000, "s": 1_000_000, "ms": 1000, "us": 1, None: 1}


def _ticks(times: Any, unit: str | None) -> Any:
    """Whole numbers of a unit in microseconds; nanoseconds are cut to those before them."""
    return times // 1000 if unit == "ns" else times * _UNITS[unit]


def of_numbers(plain: Plain) -> Plain:
    """The graph with how many labels a row has, where it may have several, and how many links
    each source has at a moment, where it has a table of links."""
    table, links = plain.label_table, plain.link_table
    if links is not None:
        rows = np.stack([links.split, links.time, links.src])
        (split, time, src), counts = np.unique(rows, axis=1, return_counts=True)
        of = src.astype(np.int32), time, counts.astype(np.float32), split.astype(np.int8)
        return replace(plain, label_table=LabelTable(*of), link_table=None)
    if table is not None and table.several:
        counts = np.nansum(table.labels, axis=1, dtype=np.float32)
        table = table._replace(labels=counts)
        return replace(plain, label_table=table, class_names=None)
    return plain


@dataclass(frozen=True, eq=False)
class View:
    """A database, a task of it and its labels.

    Fields (`n` labels):
      base, asked: the database and the task.
      made: the arguments of `plain_of` beside them.
      plain: the `jgs.data.plain.Plain` of them, with all labels.
      seed: int; what is chosen at random depends on it.
      run: the `jgs.predict.Run` whose model is tried; None: a new model.
      entity: int64 `[n]`, rows of `asked.table`.
      moment: int64 `[n]`, in microseconds since 1970; where times are numbers, as they are.
      label: float64 `[n]`; classes are numbered.
      split: int8 `[n]`, 0 to 2.
    """

    base: Database
    asked: Question
    made: dict[str, Any]
    plain: Any
    seed: int
    run: Any
    entity: np.ndarray
    moment: np.ndarray
    label: np.ndarray
    split: np.ndarray

    @classmethod
    def open(
        cls,
        base: Database,
        seed: int,
        run: Any = None,
        *,
        hide: str | None = None,
        inclusive: str | None = None,
        features: str = "typed",
        facts: str = "nodes",
        rule: ColumnRule,
        clock: Clock,
        **task: Unpack[Asked],
    ) -> Self:
        """The view of a task. Its options are those of `Database.plain`. Raises
        `InputError`."""
        if (asked := base.question(clock, **task)) is None:
            raise InputError(
                f"an audit of {base.name} must have a task",
                "none",
                "Give --db-task NAME, or --task-sql FILE.sql, --entity and --horizon.",
            )
        base, hidden = base.without(base.hidden(hide) | asked.hidden)
        made: Any = {"rule": rule, "clock": clock, "features": features, "hidden": hidden}
        made |= {"facts": facts, "inclusive": inclusive}
        plain: Any = of_numbers(plain_of(base, asked, **made))
        table = plain.label_table
        nodes = table.nodes.astype(np.int64) - plain.graph.schema.nodes(asked.table).start
        moment = _ticks(table.time.astype(np.int64) - asked.at_its_time, plain.time_unit)
        columns = (nodes, moment, table.labels.astype(np.float64), table.split)
        return cls(base, asked, made, plain, seed, run, *columns).of(table.split >= 0)

    def of(self, chosen: np.ndarray) -> Self:
        """The view of some of the labels."""
        names = ("entity", "moment", "label", "split")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    def some(self, chosen: np.ndarray, most: int) -> np.ndarray:
        """At most so many positions of the labels `chosen`, bool `[n]`, ascending."""
        found = np.flatnonzero(chosen)
        return np.sort(np.random.default_rng(self.seed).permutation(found)[:most])

    @property
    def numbers(self) -> bool:
        return self.plain.label_table.numbers

    def starts(self) -> list[int]:
        """When validation and test begin: as the manifest says, or with their first label."""
        known, clock = self.base.catalogue, self.made["clock"]
        return [
            int(self.moment[self.split == split].min(initial=2**62))
            if text is None
            else _ticks(int(text) * clock.time_scale, clock.time_unit)
            if is_number(text)
            else int(np.datetime64(text, "us").astype(np.int64))
            for split, text in enumerate((known.val_time, known.test_time), 1)
        ]

    def sees(self, times: Any, moment: Any) -> Any:
        """Whether what has these times is seen by what has the moment."""
        return times <= moment if self.asked.at_its_time else times < moment

    def columns(self, table: str, kinds: tuple[str, ...] = ("",)) -> list[str]:
        """The columns of a table that may be features, of types that begin so."""
        keys, types = self.base.catalogue.tables[table], self.base.columns[table]
        roles = {*keys.key, *(c for key in keys.references for c in key), keys.time}
        roles |= {column for owner, column in self.made["hidden"] if owner == table}
        return [
            name for name, kind in types.items() if name not in roles and _one_of(kind, kinds)
        ]

    def moments(self, table: str) -> list[str]:
        """The columns of moments of a table that may be features, also those that are text."""
        found = self.columns(table, DATES)
        for name in self.columns(table, ("VARCHAR",)):
            own = quoted(name)
            query = f"SELECT count({own}), count(TRY_CAST({own} AS TIMESTAMPTZ)) FROM "
            known, dated = self.base.sql(f"{query}({self.base.rows(table)})").columns
            found += [name] * (known[0] == dated[0] and known[0].as_py() > 0)
        return found

    def values(self, table: str, column: str) -> np.ndarray:
        """A column of the rows of a table: float64, NaN where it is missing, also for moments
        and for true and false; or text as objects, None where it is missing."""
        kind, own = self.base.columns[table][column], quoted(column)
        if _one_of(kind, DATES):
            ticks = self.ticks(table, column)
            return np.where(ticks == NEVER, np.nan, ticks.astype(np.float64))
        number = kind in NUMBERS or _one_of(kind, ("DECIMAL", "BOOLEAN"))
        cast = f"CAST({own} AS {'DOUBLE' if number else 'VARCHAR'})"
        found = self.base.sql(f"SELECT {cast} AS v FROM ({self.base.rows(table)})").column(0)
        return found.to_numpy() if number else np.array(found.to_pylist(), object)

    @property
    def inclusive(self) -> list[str]:
        """The tables whose rows are seen at their own moment, as if they were there earlier."""
        return [each.strip() for each in (self.made["inclusive"] or "").split(",")]

    def ticks_sql(self, table: str, column: str) -> str:
        """SQL of a column of moments in the unit of `moment`, `NEVER` where it is missing."""
        kind, own, clock = self.base.columns[table][column], quoted(column), self.made["clock"]
        zone = "TIMESTAMPTZ" if kind == "VARCHAR" or "ZONE" in kind else "TIMESTAMP"
        ticks, unit = f"epoch_us(CAST({own} AS {zone}))", "us"
        if kind in NUMBERS:
            unit = clock.time_unit
            ticks = f"CAST({own} * {clock.time_scale * _UNITS.get(unit, 1)} AS BIGINT)"
        if kind == "TIMESTAMP_NS":
            ticks, unit = f"epoch_ns({own})", "ns"
        if unit == "ns":  # as `_ticks`, also before 1970
            ticks = f"(({ticks} - ({ticks} % 1000 + 1000) % 1000) // 1000)"
        if column == self.base.catalogue.tables[table].time:
            ticks += f" - {int(table in self.inclusive)}"
        return f"coalesce({ticks}, {NEVER})"

    def ticks(self, table: str, column: str) -> np.ndarray:
        """int64 `[rows]`: what `ticks_sql` gives."""
        query = f"SELECT {self.ticks_sql(table, column)} AS t FROM ({self.base.rows(table)})"
        return self.base.sql(query).column(0).to_numpy()

    def times(self, table: str) -> np.ndarray | None:
        """int64 `[rows]`: from when on the rows of a table are there; None: always."""
        time = self.base.catalogue.tables[table].time
        return None if time is None else self.ticks(table, time)

    def count(self, table: str) -> int:
        """The number of rows of a table, also of one whose rows are edges."""
        if (known := dict(self.plain.graph.schema.node_types)).get(table) is not None:
            return known[table]
        query = f"SELECT count(*) AS n FROM ({self.base.rows(table)})"
        return self.base.sql(query).column(0)[0].as_py()

    @cached_property
    def references(self) -> list[tuple[str, str, str, np.ndarray]]:
        """The foreign keys: the table, the columns as text, the table that they name, and which
        of its rows each row names, int32 `[rows]`, -1 for none."""
        base = self.base
        return [
            (table, ", ".join(key), target, base.found(target, base.rows(table), key))
            for table, keys in base.catalogue.tables.items()
            for key, target in keys.references.items()
        ]

    def linked(self) -> Iterator[tuple[str, str, np.ndarray, np.ndarray | None]]:
        """What the labels may see of tables that are linked with their entities: the table, the
        foreign key, int64 `[n]` the last row, or -1, and of a table without times int64 `[n]`
        the number of rows; None of others."""
        own = self.asked.table
        for table, key, target, ends in self.references:
            if table == own and self.count(target):
                rows, times = ends[self.entity].astype(np.int64), self.times(target)
                seen = True if times is None else self.sees(times[rows], self.moment)
                yield target, key, np.where(seen, rows, -1), None
            if target == own and (ends >= 0).any():
                times = self.times(table)
                number = np.bincount(ends[ends >= 0], minlength=self.count(own))[self.entity]
                rows = self._last(ends, times)
                yield table, key, rows, number if times is None else None

    def names(self, rows: np.ndarray) -> str:
        """The names of the first rows of the entity's table among some."""
        start = self.plain.graph.schema.nodes(self.asked.table).start
        return ", ".join(str(self.plain.node_ids[start + int(row)]) for row in rows[:3])

    def _last(self, ends: np.ndarray, times: np.ndarray | None) -> np.ndarray:
        """The last row that each label sees of those whose ends are its entity; -1."""
        rows = np.flatnonzero(ends >= 0)
        times = np.full(ends.size, NEVER) if times is None else times
        rows = rows[np.lexsort((times[rows], ends[rows]))]
        ordered = np.unique(times[rows])
        # The rank of the first time that is not seen.
        seen = np.searchsorted(ordered, self.moment + self.asked.at_its_time)
        width = ordered.size + 1
        places = ends[rows].astype(np.int64) * width + np.searchsorted(ordered, times[rows])
        at = np.searchsorted(places, self.entity * width + seen) - 1
        return np.where((at >= 0) & (ends[rows[at]] == self.entity), rows[at], -1)


def _one_of(kind: str, kinds: tuple[str, ...]) -> bool:
    """Whether a column's type begins as one of `kinds`, all but "" of which are no lists."""
    return kinds == ("",) or (kind.startswith(kinds) and not kind.endswith("]"))
