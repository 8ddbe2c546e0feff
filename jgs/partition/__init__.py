"""Partitions: the part that each node belongs to, and the folders that ranks open."""

import importlib
from typing import Any

_PLACES = {"partition_nodes": "nodes", "write_parts": "folder"}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `python -m jgs.partition --help`
    need not wait for JAX."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"jgs.partition.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'jgs.partition' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
