"""The one error that means "the input was wrong", as opposed to "jgs is wrong"."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """Input that breaks a rule; its message is one line: the rule, the value, the remedy.

    Args:
      rule: what must hold, e.g. `"every fanout must be a positive int or -1"`.
      value: what was received instead; `str(value)` goes into the message, in one line.
      remedy: what the user should do.

    The command line prints the message without a traceback and exits with status 2. A copy, as
    of an error from another process, has the same text and attributes, but `str(value)`.
    """

    def __init__(self, rule: str, value: object, remedy: str):
        self.rule, self.value, self.remedy = rule, value, remedy
        seen = str(value)
        seen = " ".join(seen.split()) if "\n" in seen else seen
        super().__init__(f"{rule}; got {seen}. {remedy}")

    def __reduce__(self) -> Any:  # a pool waits for ever for a result that it cannot read
        text = str(self.value)
        return type(self), (self.rule, text, self.remedy), vars(self) | {"value": text}


def refuse(*rules: tuple[Any, str, object, str]) -> None:
    """Raises the `InputError` of the first that is broken of (broken, rule, value, remedy)."""
    for broken, rule, value, remedy in rules:
        if broken:
            raise InputError(rule, value, remedy)


def check_choice(what: str, value: object, choices: Iterable[str]) -> None:
    """Raises `InputError` unless `value` is one of `choices`."""
    if value not in (known := tuple(choices)):
        rule = f"{what} must be one of {', '.join(known)}"
        raise InputError(rule, repr(value), nearest(value, known))


def require_columns(
    name: str,
    found: Collection[str],
    needed: Iterable[str],
    remedy: str = "Rename the right one, or say which it is.",
) -> None:
    """Raises `InputError` unless the table `name` has the columns `needed`."""
    if missing := [column for column in needed if column not in found]:
        raise InputError(
            f"{name} must have a column {' and a column '.join(map(repr, missing))}",
            f"columns {', '.join(map(repr, found)) or 'none'}",
            remedy,
        )


def nearest(value: object, choices: Iterable[str]) -> str:
    """The remedy for a `value` that is none of `choices`: that which is spelled most like it,
    or else the first."""
    known = tuple(choices)
    if found := difflib.get_close_matches(str(value), known, 1):
        return f"Did you mean {found[0]}?"
    return f"Give e.g. {known[0]}."


def one_line(error: BaseException) -> str:
    """The text of an error without line breaks, or its type where it has no text."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def refusing(
    errors: type[Exception] | tuple[type[Exception], ...], rule: str, remedy: str
) -> Iterator[None]:
    """Turns exceptions of `errors`, raised inside, into an `InputError` with their text. An
    `InputError` passes unchanged, although it is a `ValueError`."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(rule, one_line(error), remedy) from None
