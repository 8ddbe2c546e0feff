"""`lazily`: names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    package: str, places: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of a package (PEP 562). Its command answers
    `--help` and Ctrl-C at once, for importing JAX takes most of a second, and Flax another.

    Args:
      package: its name.
      places: the module that each public name is in.
    """

    def found(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(places[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    names = sorted(places)
    return names, found, lambda: names
