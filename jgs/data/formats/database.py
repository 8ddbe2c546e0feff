"""A database: RelBench's folders, DuckDB and SQLite files, folders of tables with a manifest
(`jgs.data.database.catalogue`), PostgreSQL by a URL. `jgs.data.database.graph` says what
becomes of the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule
from jgs.data.database.database import Database
from jgs.data.database.postgres import SCHEMES
from jgs.data.database.questions import Asked
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
    manifest: str | None = None,
    hide: str | None = None,
    inclusive: str | None = None,
    features: str = "typed",
    facts: str = "nodes",
    rule: ColumnRule,
    clock: Clock,
    **task: Unpack[Asked],
) -> Plain:
    """The graph of a database, with the labels of a task if one is named.

    The options are those of `Database.plain`, and `manifest`, the path of a manifest that is
    not beside the tables; a run that must be `labelled` needs a task.

    Raises `InputError`.
    """
    base = path if isinstance(path, Database) else opened(path, manifest)
    if labelled and not {"db_task", "task_sql"} & task.keys():
        raise InputError(
            f"a run on the database {base.name} must have a task",
            "none",
            "Give --db-task NAME, or --task-sql FILE.sql, --entity and --horizon.",
        )
    own: Any = {"hide": hide, "inclusive": inclusive, "features": features, "facts": facts}
    found = base.plain(rule=rule, clock=clock, **own, **task)
    if labelled and found.link_table is not None:
        raise InputError(
            f"a recommendation of {base.name} must be learned as links at moments",
            "a task of nodes",
            "Give --task links --temporal.",
        )
    return found
