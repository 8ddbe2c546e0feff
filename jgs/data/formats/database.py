"""A database: RelBench's folders, DuckDB and SQLite files, folders of tables with a manifest
(`jgs.data.database.catalogue`), PostgreSQL by a URL. `jgs.data.database.graph` says what
becomes of the tables."""

from __future__ import annotations

from pathlib import Path

from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.database.database import Database
from jgs.data.database.postgres import SCHEMES
from jgs.data.database.stored_tables import FILES
from jgs.data.dataset import Plain
from jgs.errors import InputError

__all__ = ["SCHEMES", "opened", "read", "recognises"]

opened = Database.open


def recognises(path: Path) -> bool:
    """Whether it is a folder with a manifest, or a file of a database, by its name."""
    return (path / "manifest.yaml").is_file() if path.is_dir() else path.suffix in FILES


def read(
    path: Path | str | Database,
    labelled: bool = False,
    *,
    db_task: str | None = None,
    task_sql: str | None = None,
    entity: str | None = None,
    horizon: str | None = None,
    label_kind: str | None = None,
    hide: str | None = None,
    features: str = "typed",
    manifest: str | None = None,
    rule: ColumnRule,
    clock: Clock,
) -> Plain:
    """The graph of a database, with the labels of a task if one is named.

    The options are those of `Database.plain`, and `manifest`, the path of a manifest that is
    not beside the tables; a run that must be `labelled` needs a task.

    Raises `InputError`.
    """
    base = path if isinstance(path, Database) else opened(path, manifest)
    asked = db_task is not None or task_sql is not None
    if labelled and not asked:
        raise InputError(
            f"a run on the database {base.name} must have a task",
            "none",
            "Give --data-options db_task=NAME, or task_sql=FILE.sql, entity and horizon.",
        )
    task = {"db_task": db_task, "task_sql": task_sql, "entity": entity, "horizon": horizon}
    return base.plain(
        **task, label_kind=label_kind, hide=hide, features=features, rule=rule, clock=clock
    )
