"""Training: the command `python -m jgs.train`, and exact evaluation of any model."""

import importlib
from typing import Any

# Where each public name is; imported when first used: the command starts without JAX.
_PLACES = {"exact_inference": "jgs.train.evaluate"}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'jgs.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
