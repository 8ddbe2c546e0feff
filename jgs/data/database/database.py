"""`Database`: tables with keys and moments as a data set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.database import questions
from jgs.data.database.graph import plain_of
from jgs.data.database.questions import Asked, Question
from jgs.data.database.stored_tables import StoredTables
from jgs.data.dataset import Dataset, Plain
from jgs.errors import InputError, nearest

_RULE, _CLOCK = ColumnRule(), Clock()


class Database(StoredTables):
    """A database, whose tables become a typed graph with times. `StoredTables` says how it is
    opened, and `jgs.data.database.graph` what becomes of it."""

    def plain(
        self,
        *,
        hide: str | None = None,
        inclusive: str | None = None,
        features: str = "typed",
        facts: str = "nodes",
        rule: ColumnRule = _RULE,
        clock: Clock = _CLOCK,
        fitted: Any = None,
        **task: Unpack[Asked],
    ) -> Plain:
        """The graph of the tables, see `jgs.data.database.graph`, with the labels of a task if
        one is named. `dataset` makes a `jgs.data.Dataset` of it.

        Args:
          hide: columns that are no features, as `events.amount`, with commas between. A foreign
            key among them makes no relation.
          inclusive: tables with times, with commas between, whose rows are seen at their own
            moment too (`Graph.inclusive`). The moments of the task may not be those of its own
            rows, which are seen with all else of that moment.
          features: "typed", or "padded" for one matrix (`jgs.data.values`).
          facts: "nodes", or "edges": the rows of tables with two foreign keys that no table
            names are edges (`jgs.data.database.facts`).
          rule: what columns become; `encode` names them as `users.age`. Numbers are scaled.
          clock: how times are counted. Dates are counted in the longest unit that is exact.
          fitted: the `feature_columns` of an earlier database, such as those of a run: columns
            are encoded by them, and nothing is fitted.
          task: the fields of `jgs.data.database.questions.Asked`.

        Raises `InputError`.
        """
        asked = self.question(clock, **task)
        hidden = self.hidden(hide, lacking=fitted is not None)
        clock = replace(clock)  # it remembers the times of one database
        return plain_of(self, asked, rule, clock, features, hidden, facts, fitted, inclusive)

    def question(self, clock: Clock = _CLOCK, **task: Unpack[Asked]) -> Question | None:
        """The labels that a task asks for, with the options of `plain`; None without one.
        Raises `InputError`."""
        name, sql = task.get("db_task"), task.get("task_sql")
        entity, horizon = task.get("entity"), task.get("horizon")
        if name is not None and sql is None:
            return questions.of_task(self, name, clock)
        if sql is not None and name is None and entity and horizon:
            more = task.get("label_kind"), task.get("target")
            return questions.of_sql(self, sql, entity, horizon, *more, clock)
        if sql is None and name is None:
            return None
        raise InputError(
            f"a task of {self.name} must be db_task, or task_sql with entity and horizon",
            "both" if name else "task_sql without entity or horizon",
            "Give one whole.",
        )

    def dataset(self, **options: Any) -> Dataset:
        """`plain(**options)` as a data set to train on."""
        return self.plain(**options).dataset()

    def hidden(self, hide: str | None, lacking: bool = False) -> frozenset[tuple[str, str]]:
        """The columns, as (table, column), that the option `hide` names. Raises `InputError`
        for one that is `lacking`, unless some may be."""
        known = {
            f"{t}.{column}": (t, column) for t, own in self.columns.items() for column in own
        }
        named = [each.strip() for each in hide.split(",")] if hide else []
        for each in named:
            if each not in known and not lacking:
                raise InputError(
                    f"the option hide must name columns of {self.name}, as events.amount",
                    each,
                    nearest(each, known) or "Correct it.",
                )
        return frozenset(known[each] for each in named if each in known)
