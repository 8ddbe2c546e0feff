"""Reports: `write_report` makes one HTML page of a training run, and so does `jgs report`."""

import importlib
from typing import Any

_PLACES = {"write_report": "jgs.report.page"}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `python -m jgs.report --help` need
    not wait for JAX."""
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'jgs.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
