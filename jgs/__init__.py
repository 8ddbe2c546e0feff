"""jgs: mini-batch graph sampling and distributed GNN training for JAX."""

import importlib
from typing import TYPE_CHECKING, Any

from jgs.allocator import keep_freed_memory
from jgs.errors import InputError

if TYPE_CHECKING:
    from jgs.graph import Block, Graph, MiniBatch, NodeIds, Schema, SparseFeatures

__version__ = "0.2.0"

__all__ = [
    "Block",
    "Graph",
    "InputError",
    "MiniBatch",
    "NodeIds",
    "Schema",
    "SparseFeatures",
    "keep_freed_memory",
    "open_run",
]

_GRAPHS = ("Block", "Graph", "MiniBatch", "NodeIds", "Schema", "SparseFeatures")
_SUBMODULES = (
    "data",
    "dist",
    "models",
    "ops",
    "partition",
    "predict",
    "sampling",
    "train",
    "viz",
)


def __getattr__(name: str) -> Any:
    """Imports the graph classes, the subpackages and `jgs.open_run` when they are first used.

    Importing JAX takes most of a second, and Flax another. A command that has not yet imported
    them answers `--help` and Ctrl-C at once.
    """
    if name in _GRAPHS:
        return getattr(importlib.import_module("jgs.graph"), name)
    if name in _SUBMODULES:
        return importlib.import_module(f"jgs.{name}")
    if name == "open_run":
        return importlib.import_module("jgs.predict.open").open_run
    raise AttributeError(f"module 'jgs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES, "__version__"])
