"""Names and texts in SQL, and the modules that read databases."""

from __future__ import annotations

from jgs.errors import InputError


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A text in SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def missing(module: str) -> InputError:
    """The error of a module that is not installed."""
    return InputError(
        f"{module} must be installed to read a database",
        "no such module",
        "Install it with pip install 'jgs[database]'.",
    )
