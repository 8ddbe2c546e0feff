"""What is asked of a database: labels of the rows of a table at moments."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from jgs.data.database.catalogue import Columns, columns_of
from jgs.data.database.stored_tables import StoredTables, manifest_of, quoted
from jgs.data.values import SPLITS
from jgs.errors import InputError, nearest, refusing
from jgs.files.arrow import read_arrow

_KINDS = {
    "binary_classification": "class",
    "multiclass_classification": "class",
    "multilabel_classification": "several",
    "regression": "number",
    "recommendation": "node",
}
_LEAST_MOMENTS = 3  # of training, as RelBench has it

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
      rows: an Arrow table `[n]`; its columns are `key`, `time`, `label` and `split`, which is
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


def of_task(base: StoredTables, name: str) -> Question:
    """The question of a task in the database's folder, in RelBench's form. Raises
    `InputError`."""
    folder = None if base.folder is None else base.folder / "tasks"
    known = sorted(at.name for at in folder.iterdir() if at.is_dir()) if folder else []
    if folder is None or name not in known:
        raise InputError(
            f"a task of {base.name} must be one in its folder tasks",
            f"{name!r} and {', '.join(known) or 'none'}",
            nearest(name, known) if known else "Give task_sql instead.",
        )
    folder = folder / name
    file = folder / "manifest.yaml"
    said = manifest_of(file)
    kind, links = said.get("task_type"), said.get("task_type") == "recommendation"
    table = said.get("src_entity_table" if links else "entity_table")
    target = said.get("dst_entity_table") if links else None
    tables = base.catalogue.tables
    if kind not in _KINDS or table not in tables or (links and target not in tables):
        raise InputError(
            f"{file} must have a task_type of {', '.join(_KINDS)}, and an entity_table of the "
            "database, or src_entity_table and dst_entity_table of a recommendation",
            f"{kind!r} and {', '.join(map(repr, (table, target)[: 1 + links]))}",
            "Choose another task.",
        )
    label, keys = said["target_col"], base.catalogue.tables[table]
    own_key, own_time = keys.key or ("primary_key",), keys.time
    named = said.get("src_entity_col" if links else "entity_col")
    key = columns_of(named) if named else own_key
    time = said.get("time_col") or own_time
    hidden = {(str(t), str(c)) for t, c in said.get("remove_columns") or ()}
    if said.get("kind") == "autocomplete":
        hidden.add((table, label))
    files = [folder / f"{split}.parquet" for split in SPLITS]
    query = None
    if all(file.is_file() for file in files):
        rows = _joined([read_arrow(file, {}) for file in files])
    else:
        query = said["sql"].replace("{timedelta}", str(said["timedelta"]))
        moments = str(said["timedelta"]), int(said.get("num_eval_timestamps", 1))
        rows = _asked(base, query, str(file), *moments)
    return Question(
        f"the task {name} of {base.name}",
        table,
        rows,
        key,
        str(time),
        label,
        _KINDS[kind],
        frozenset(hidden),
        own_time is not None and time == own_time and said.get("kind") != "forecast",
        said.get("timedelta"),
        query,
        target,
        int(said.get("eval_k") or 0),
    )


def of_sql(
    base: StoredTables,
    sql: str,
    entity: str,
    horizon: str,
    label_kind: str | None = None,
    target: str | None = None,
    moments: int = 1,
) -> Question:
    """The question that a query asks: labels of rows of the table `entity` at moments.

    The query reads the tables, and the table `timestamps`, whose column `timestamp` has the
    moments. It gives the key of the entity, the moment and the label, in this order. In it
    `{timedelta}` stands for `horizon`, how far the labels look ahead, such as "30 days". With a
    `target`, a table, the label is the key of one of its rows, or a list of keys: those that
    are to be recommended.

    The moments are RelBench's: for validation and test `moments` of them, from `val_timestamp`
    and `test_timestamp` on, one horizon apart, as long as a horizon ends before the next split
    or the database does; for training those before validation, back to the first time.
    `sql` may be the path of a file. Raises `InputError`.
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
    rows = _asked(base, query, what, horizon, moments)
    if not key or rows.num_columns != len(key) + 3:
        raise InputError(
            f"{what} must give the key of {entity} ({', '.join(key) or 'it has none'}), the "
            "moment and the label",
            f"columns {', '.join(rows.column_names[:-1])}",
            "Name these columns, in this order.",
        )
    *own, time, label, _ = rows.column_names
    kind = label_kind if target is None else "node"
    of = (what, entity, rows, tuple(own), time, label, kind)
    return Question(*of, horizon=horizon, query=query, target=target)


def _joined(tables: list[Any]) -> Any:
    import pyarrow

    numbered = [
        table.append_column("split", pyarrow.array([number] * table.num_rows, "int8"))
        for number, table in enumerate(tables)
    ]
    return pyarrow.concat_tables(numbered, promote_options="permissive")


def _asked(base: StoredTables, query: str, what: str, horizon: str, moments: int) -> Any:
    return _joined(
        [labels_at(base, query, what, own) for own in moments_of(base, horizon, moments)]
    )


def labels_at(base: StoredTables, query: str, what: str, moments: Any) -> Any:
    """The labels that a query, which messages call `what`, gives at these moments. Raises
    `InputError`."""
    import pyarrow

    asked = pyarrow.table({"timestamp": pyarrow.array(moments, pyarrow.timestamp("us"))})
    rows = base.ask(query, what, timestamps=asked)
    # DuckDB gives the rows of a query in any order.
    return base.sql("SELECT * FROM asked_rows ORDER BY ALL", asked_rows=rows)


def moments_of(base: StoredTables, horizon: str, number: int) -> list[list[datetime.datetime]]:
    """The moments of each of `SPLITS`; see `of_sql`. Raises `InputError`."""
    val, test = (
        _moment(base, name, text)
        for name, text in (
            ("val_timestamp", base.catalogue.val_time),
            ("test_timestamp", base.catalogue.test_time),
        )
    )
    step = duration_of(base, horizon)
    first, last = _times_of(base)
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
    trains: list[datetime.datetime] = []
    while val - (len(trains) + 1) * step >= first:
        trains.append(val - (len(trains) + 1) * step)
    if len(trains) < _LEAST_MOMENTS:
        raise InputError(
            f"a task of {base.name} must have {_LEAST_MOMENTS} moments to train on",
            f"{len(trains)} of {horizon} between {first} and {val}",
            "Shorten the horizon, or correct val_timestamp.",
        )
    later = []
    for split, begin, end in (("val", val, test), ("test", test, last)):
        found = [begin + i * step for i in range(number) if begin + (i + 1) * step <= end]
        if len(found) < number:
            _log.warning(
                "%s has times for %d of %d moments of %s", base.name, len(found), number, split
            )
        later.append(found)
    return [trains, *later]


def _moment(base: StoredTables, name: str, text: str | None) -> datetime.datetime:
    if text is None:
        raise InputError(
            f"the manifest of {base.name} must say {name}", "nothing", "Add it, as a date."
        )
    with refusing(ValueError, f"{name} of {base.name} must be a date", "Correct it."):
        return datetime.datetime.fromisoformat(text)


def duration_of(base: StoredTables, horizon: str) -> datetime.timedelta:
    """How long a horizon is. Raises `InputError`."""
    rule = "the horizon of a task must be a length of time above 0, such as 30 days"
    query = f"SELECT TRY_CAST('{horizon.replace(chr(39), '')}' AS INTERVAL) AS d"
    found = base.sql(query).column(0)[0].as_py()
    if found is None or not any(each.isalpha() for each in horizon):  # DuckDB takes seconds
        raise InputError(rule, repr(horizon), "Correct it, with its unit.")
    step = datetime.timedelta(days=found.months * 30 + found.days) + datetime.timedelta(
        microseconds=found.nanoseconds // 1000
    )
    if step <= datetime.timedelta(0):
        raise InputError(rule, repr(horizon), "Correct it.")
    return step


def _times_of(base: StoredTables) -> tuple[datetime.datetime, datetime.datetime]:
    known = []
    for table, keys in base.catalogue.tables.items():
        if keys.time is not None:
            time = f"CAST({quoted(keys.time)} AS TIMESTAMP)"
            own = base.sql(f"SELECT min({time}) AS a, max({time}) AS b FROM {quoted(table)}")
            known += [each for each in own.to_pylist()[0].values() if each is not None]
    if not known:
        raise InputError(
            f"a table of {base.name} must have times", "none has", "Say its time_col."
        )
    return min(known), max(known)
