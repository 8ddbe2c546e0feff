"""Names and texts in SQL, and the packages that read databases."""

from __future__ import annotations

from contextlib import AbstractContextManager

from jgs.errors import refusing


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A text in SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def optional(package: str) -> AbstractContextManager[None, bool | None]:
    """A block that imports a package. Raises `InputError` where it is not installed."""
    rule = f"{package} must be installed to read a database"
    return refusing(ImportError, rule, "Install it with pip install 'jgs[database]'.")
