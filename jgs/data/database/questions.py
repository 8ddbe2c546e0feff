"""What is asked of a database: labels of the rows of a table at moments."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from jgs.data.column_values import Clock
from jgs.data.database.catalogue import Columns, columns_of, is_number
from jgs.data.database.stored_tables import NUMBERS, StoredTables, manifest_of, quoted
from jgs.data.values import SPLITS
from jgs.errors import InputError, nearest, refusing, require_columns
from jgs.files.arrow import read_arrow

_KINDS = {
    "binary_classification": "class",
    "multiclass_classification": "class",
    "multilabel_classification": "several",
    "regression": "number",
    "recommendation": "node",
}
_LEAST_MOMENTS = 3  # of training, as RelBench has it
_MOST_MOMENTS = 100_000
SPLIT = "jgs split"  # no user's column
_CLOCK = Clock()

_log = logging.getLogger("jgs")


class Asked(TypedDict, total=False):
    """The options that name a task of a database; none of them: no task.

    Fields:
      db_task: the name of a task in the folder `tasks`.
      task_sql: a query that gives labels, or the path of a file `.sql` with one; see `of_sql`.
      entity: for `task_sql`, the table whose rows have the labels.
      horizon: for `task_sql`, how far labels look ahead, such as "30 days".
      label_kind: for `task_sql`, "class" or "number", whatever labels look like.
      target: for `task_sql`, the table whose rows are to be recommended. The graph then has
        `link_table` in place of `label_table`.
    """

    db_task: str | None
    task_sql: str | None
    entity: str | None
    horizon: str | None
    label_kind: str | None
    target: str | None


class Question(NamedTuple):
    """Labels to learn.

    Fields (a table of `n` labels):
      what: what messages call it.
      table: the table whose rows have labels.
      rows: an Arrow table `[n]`; its columns are `key`, `time`, `label` and `SPLIT`, which is
        0, 1 or 2.
      key: the columns of `rows` that name a row of `table`.
      time, label: the columns of `rows` with the moment and the label.
      label_kind: "class", "number", "several", "node", or None where the labels say it.
      hidden: the columns, as (table, column), that are no features.
      at_its_time: whether the moment is the row's own time, so that the row itself, and what
        has the same time, is seen.
      horizon: how far the labels look ahead, such as "30 days"; None: it is not known.
      query: the SQL that gave the labels, of the table `timestamps`; None for those of files.
      target: the table whose rows are to be recommended: the label is the key of one, or a list
        of keys. None for labels.
      k: the length of the lists that are judged; 0: it is not said.
    """

    what: str
    table: str
    rows: Any
    key: Columns
    time: str
    label: str
    label_kind: str | None = None
    hidden: frozenset[tuple[str, str]] = frozenset()
    at_its_time: bool = False
    horizon: str | None = None
    query: str | None = None
    target: str | None = None
    k: int = 0


def of_task(base: StoredTables, name: str, clock: Clock = _CLOCK) -> Question:
    """The question of a task in the database's folder, in RelBench's form. `clock` says what
    times count that are numbers. Raises `InputError`."""
    folder = None if base.folder is None else base.folder / "tasks"
    known = sorted(at.name for at in folder.iterdir() if at.is_dir()) if folder else []
    if folder is None or name not in known:
        raise InputError(
            f"a task of {base.name} must be one in its folder tasks",
            f"{name!r} and {', '.join(known) or 'none'}",
            nearest(name, known) if known else "Give task_sql instead.",
        )
    folder, what = folder / name, f"the task {name} of {base.name}"
    file = folder / "manifest.yaml"
    said = _Said(file, manifest_of(file))
    kind, links = said.text("task_type"), said.text("task_type") == "recommendation"
    table = said.text("src_entity_table" if links else "entity_table")
    target = said.text("dst_entity_table") if links else None
    tables = base.catalogue.tables
    if kind not in _KINDS or table not in tables or (links and target not in tables):
        raise InputError(
            f"{file} must have a task_type of {', '.join(_KINDS)}, and an entity_table of the "
            "database, or src_entity_table and dst_entity_table of a recommendation",
            f"{kind!r} and {', '.join(map(repr, (table, target)[: 1 + links]))}",
            "Choose another task.",
        )
    label, (own_key, own_time, _) = said.needed("target_col"), tables[table]
    named = said.fields.get("src_entity_col" if links else "entity_col")
    key = columns_of(named) if named else own_key or ("primary_key",)
    time = said.text("time_col") or own_time or said.needed("time_col")
    hidden, form = said.hidden(base), said.text("kind")
    if form == "autocomplete":
        hidden |= {(table, label)}
    files = [folder / f"{split}.parquet" for split in SPLITS]
    query = None
    if all(each.is_file() for each in files):
        rows = _joined(what, [read_arrow(each, {}) for each in files])
    else:
        step = said.needed("timedelta")
        query = said.needed("sql").replace("{timedelta}", step)
        number = said.number("num_eval_timestamps", 1)
        rows = _asked(base, query, str(file), step, number, clock)
        _check_moments(what, rows)
    return Question(
        what,
        table,
        _chosen(what, rows, [*key, time, label]),
        key,
        time,
        label,
        _KINDS[kind],
        hidden,
        own_time is not None and time == own_time and form != "forecast",
        said.text("timedelta"),
        query,
        target,
        said.number("eval_k", 0),
    )


class _Said(NamedTuple):
    """The fields of a task's manifest."""

    file: Path
    fields: Any

    def text(self, name: str) -> str | None:
        if not isinstance(self.fields, Mapping):
            rule = f"{self.file} must have the fields of a task"
            raise InputError(rule, repr(self.fields)[:60], "Write them as RelBench does.")
        return None if self.fields.get(name) is None else str(self.fields[name])

    def needed(self, name: str) -> str:
        if (found := self.text(name)) is None:
            raise InputError(f"{self.file} must have the field {name}", "none", "Add it.")
        return found

    def number(self, name: str, least: int) -> int:
        rule = f"{name} in {self.file} must be a whole number from {least} on"
        with refusing(ValueError, rule, "Correct it."):
            if (found := int(self.text(name) or least)) < least:
                raise ValueError(found)
            return found

    def hidden(self, base: StoredTables) -> frozenset[tuple[str, str]]:
        """The columns that `remove_columns` names."""
        rule = f"remove_columns in {self.file} must be pairs of a table and a column"
        with refusing((TypeError, ValueError), rule, "Correct them."):
            pairs = [(str(t), str(c)) for t, c in self.fields.get("remove_columns") or ()]
        for table, column in pairs:
            require_columns(f"{table} in {base.name}", base.columns.get(table, ()), [column])
        return frozenset(pairs)


def of_sql(
    base: StoredTables,
    sql: str,
    entity: str,
    horizon: str,
    label_kind: str | None = None,
    target: str | None = None,
    clock: Clock = _CLOCK,
) -> Question:
    """The question that a query asks: labels of rows of the table `entity` at moments.

    The query reads the tables, and the table `timestamps`, whose column `timestamp` has the
    moments. It gives the key of the entity, the moment and the label, in this order. In it
    `{timedelta}` stands for `horizon`, how far the labels look ahead, such as "30 days". With a
    `target`, a table, the label is the key of one of its rows, or a list of keys: those that
    are to be recommended.

    The moments are RelBench's: for validation and test `val_timestamp` and `test_timestamp`;
    for training those before validation, one horizon apart, back to the first time. `clock`
    says what times count that are numbers. `sql` may be the path of a file. Raises
    `InputError`.
    """
    for what, table in (("entity", entity), ("target", target)):
        if table is not None and table not in base.catalogue.tables:
            raise InputError(
                f"{what} must be a table of {base.name}",
                repr(table),
                nearest(table, base.catalogue.tables),
            )
    if target is not None and len(base.catalogue.tables[target].key) != 1:
        raise InputError(
            "the target of a recommendation must have a key of one column",
            f"{target} with {', '.join(base.catalogue.tables[target].key) or 'none'}",
            "Say its key by pkey, in the manifest.",
        )
    what = "task_sql"
    if sql.endswith(".sql"):
        what, file = sql, Path(sql)
        with refusing((OSError, UnicodeError), f"{what} must be a file of text", "Correct it."):
            sql = file.read_text("utf-8")
    key, query = base.catalogue.tables[entity].key, sql.replace("{timedelta}", horizon)
    rows = _asked(base, query, what, horizon, 1, clock)
    if not key or rows.num_columns != len(key) + 3:
        raise InputError(
            f"{what} must give the key of {entity} ({', '.join(key) or 'it has none'}), the "
            "moment and the label",
            f"columns {', '.join(rows.column_names[:-1])}",
            "Name these columns, in this order.",
        )
    *own, time, label, _ = rows.column_names
    kind = label_kind if target is None else "node"
    rows = _chosen(what, rows, [*own, time, label])
    _check_moments(what, rows)
    of = (what, entity, rows, tuple(own), time, label, kind)
    return Question(*of, horizon=horizon, query=query, target=target)


def _joined(what: str, tables: list[Any]) -> Any:
    import pyarrow

    numbered = [
        table.append_column(SPLIT, pyarrow.array([number] * table.num_rows, "int8"))
        for number, table in enumerate(tables)
    ]
    rule = f"the tables of {what} must have columns of the same types"
    with refusing(pyarrow.ArrowException, rule, "Convert them."):
        return pyarrow.concat_tables(numbered, promote_options="permissive")


def _chosen(what: str, rows: Any, columns: list[str]) -> Any:
    """The rows with these columns and their split."""
    require_columns(what, rows.column_names, columns, "Correct the manifest, or the query.")
    if len({*columns}) < len(columns) or max(map(rows.column_names.count, columns)) > 1:
        shown = ", ".join(rows.column_names[:-1])
        raise InputError(f"the columns of {what} must have different names", shown, "Use AS.")
    return rows.select([*columns, SPLIT])


def _asked(
    base: StoredTables, query: str, what: str, horizon: str, number: int, clock: Clock
) -> Any:
    moments = moments_of(base, horizon, number, clock)
    return _joined(what, [labels_at(base, query, what, own) for own in moments])


def _check_moments(what: str, rows: Any) -> None:
    """Raises `InputError` for a query that does not ask for the moments of each split."""
    own = [
        rows.filter(rows.column(SPLIT).to_numpy() == n).drop_columns([SPLIT]) for n in range(3)
    ]
    if own[1].num_rows and any(own[1].equals(other) for other in (own[0], own[2])):
        raise InputError(
            f"{what} must ask for the moments in the table timestamps, which has others for "
            "each split",
            "the same rows for two splits",
            "Write FROM timestamps t, and take t.timestamp as the moment.",
        )


def labels_at(base: StoredTables, query: str, what: str, moments: Any) -> Any:
    """The labels that a query, which messages call `what`, gives at these moments. Raises
    `InputError`."""
    import pyarrow

    asked = pyarrow.table({"timestamp": pyarrow.array(moments, pyarrow.timestamp("us"))})
    rows = base.ask(query, what, timestamps=asked)
    # DuckDB gives the rows of a query in any order.
    return base.sql("SELECT * FROM asked_rows ORDER BY ALL", asked_rows=rows)


def moments_of(
    base: StoredTables, horizon: str, number: int, clock: Clock = _CLOCK
) -> list[list[datetime.datetime]]:
    """The moments of each of `SPLITS`; see `of_sql`. Those of validation and test are at most
    `number`, one horizon apart, as long as a horizon ends before the next split or the database
    does. Raises `InputError`."""
    val, test = (
        _moment(base, name, text)
        for name, text in (
            ("val_timestamp", base.catalogue.val_time),
            ("test_timestamp", base.catalogue.test_time),
        )
    )
    step = duration_of(base, horizon)
    first, last = _times_of(base, clock)
    if val + step > test:
        raise InputError(
            f"the horizon of a task of {base.name} must fit between val_timestamp and "
            "test_timestamp",
            f"{horizon} from {val} to {test}",
            "Shorten it, or correct the manifest.",
        )
    if test + step > last:
        raise InputError(
            f"the horizon of a task of {base.name} must end before the last time in the tables",
            f"{horizon} from {test}, and {last}",
            "Shorten it, or correct test_timestamp.",
        )
    if not _LEAST_MOMENTS <= (count := (val - first) // step) <= _MOST_MOMENTS:
        raise InputError(
            f"a task of {base.name} must have {_LEAST_MOMENTS} to {_MOST_MOMENTS:,} moments to "
            "train on",
            f"{count:,} of {horizon} between {first} and {val}",
            "Change the horizon, or correct val_timestamp.",
        )
    trains = [val - (i + 1) * step for i in range(count)]
    later = []
    for split, begin, end in (("val", val, test), ("test", test, last)):
        found = [begin + i * step for i in range(min(number, (end - begin) // step))]
        if len(found) < number:
            _log.warning(
                "%s has times for %d of %d moments of %s", base.name, len(found), number, split
            )
        later.append(found)
    return [trains, *later]


def _moment(base: StoredTables, name: str, text: str | None) -> datetime.datetime:
    if text is None or is_number(text):
        raise InputError(
            f"the manifest of {base.name} must say {name}, as a date",
            text or "nothing",
            "Write it as '2024-08-01'.",
        )
    return datetime.datetime.fromisoformat(text)


def duration_of(base: StoredTables, horizon: str) -> datetime.timedelta:
    """How long a horizon is. Raises `InputError`."""
    rule = "the horizon of a task must be a length of time above 0, such as 30 days"
    query = f"SELECT TRY_CAST('{horizon.replace(chr(39), '')}' AS INTERVAL) AS d"
    found = base.sql(query).column(0)[0].as_py()
    if found is None or not any(each.isalpha() for each in horizon):  # DuckDB takes seconds
        raise InputError(rule, repr(horizon), "Correct it, with its unit.")
    if found.months:
        raise InputError(
            "the horizon of a task must be of days or shorter, as months and years differ",
            repr(horizon),
            "Write e.g. 30 days.",
        )
    step = datetime.timedelta(days=found.days, microseconds=found.nanoseconds // 1000)
    if step <= datetime.timedelta(0):
        raise InputError(rule, repr(horizon), "Correct it.")
    return step


def _times_of(base: StoredTables, clock: Clock) -> tuple[datetime.datetime, datetime.datetime]:
    known = []
    for table, keys in base.catalogue.tables.items():
        if keys.time is None:
            continue
        own, kind = quoted(keys.time), base.columns[table][keys.time]
        number = kind in NUMBERS
        if not number:  # what is no date is refused later, with its row
            own = f"TRY_CAST({own} AS TIMESTAMPTZ)" if kind == "VARCHAR" else own  # has a zone
            own = f"TRY_CAST({own} AS TIMESTAMP)"
            own = f"CASE WHEN isfinite({own}) THEN {own} END"
        ends = base.sql(f"SELECT min({own}) AS a, max({own}) AS b FROM {quoted(table)}")
        found = [each for each in ends.to_pylist()[0].values() if each is not None]
        if number and found and clock.time_unit is None:
            raise InputError(
                f"the times of a task of {base.name} must be dates, or numbers that count from "
                "1970 in a unit",
                f"numbers up to {found[-1]} in {keys.time} of {table}",
                "Say what they count, --data-options time_unit=s or another unit.",
            )
        known += [_dated(each, clock) if number else each for each in found]
    if not known:
        raise InputError(
            f"a table of {base.name} must have times", "none has", "Say its time_col."
        )
    return min(known), max(known)


def _dated(number: float, clock: Clock) -> datetime.datetime:
    ticks = np.array(int(number * clock.time_scale), np.int64)
    date = ticks.astype(f"M8[{clock.time_unit}]").astype("M8[us]")
    with refusing((TypeError, ValueError), "a time must be a date", "Correct time_unit."):
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(
            microseconds=int(date.astype(np.int64))
        )
