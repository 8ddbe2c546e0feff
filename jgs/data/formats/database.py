"""A database: RelBench's folders, DuckDB and SQLite files, folders of tables with a manifest
(`jgs.data.database.catalogue`). `jgs.data.database.graph` says what becomes of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.database.database import Database
from jgs.data.database.stored_tables import FILES
from jgs.data.dataset import Plain
from jgs.errors import InputError


def recognises(path: Path) -> bool:
    """Whether it is a folder with a manifest, or a file of a database, by its name."""
    return (path / "manifest.yaml").is_file() if path.is_dir() else path.suffix in FILES


def read(
    path: Path,
    labelled: bool = False,
    *,
    db_task: str | None = None,
    task_sql: str | None = None,
    entity: str | None = None,
    horizon: str | None = None,
    label_kind: str | None = None,
    hide: str | None = None,
    features: str = "typed",
    facts: str = "nodes",
    rule: ColumnRule,
    clock: Clock,
) -> Plain:
    """The graph of a database, with the labels of a task if one is named.

    The options are those of `Database.plain`; a run that must be `labelled` needs a task.

    Raises `InputError`.
    """
    base, asked = Database.open(path), db_task is not None or task_sql is not None
    if labelled and not asked:
        raise InputError(
            f"a run on the database {base.name} must have a task",
            "none",
            "Give --data-options db_task=NAME, or task_sql=FILE.sql, entity and horizon.",
        )
    task: dict[str, Any] = {"db_task": db_task, "task_sql": task_sql, "entity": entity}
    task |= {"horizon": horizon, "label_kind": label_kind, "hide": hide}
    return base.plain(**task, features=features, facts=facts, rule=rule, clock=clock)
