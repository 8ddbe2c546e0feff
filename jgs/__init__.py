"""jgs: mini-batch graph sampling and distributed GNN training for JAX."""

import importlib
from typing import TYPE_CHECKING, Any

from jgs.allocator import keep_freed_memory
from jgs.errors import InputError
from jgs.lazy import lazily

if TYPE_CHECKING:
    from jgs.devices import to_device
    from jgs.export.load import load_exported
    from jgs.export.write import export_run
    from jgs.graph import Block, Graph, Live, MiniBatch, NodeIds, Schema, SparseFeatures
    from jgs.predict.open import open_run
    from jgs.sampling import Loader, Neighbors

__version__ = "0.2.0"

__all__ = [
    "Block",
    "Graph",
    "InputError",
    "Live",
    "Loader",
    "MiniBatch",
    "Neighbors",
    "NodeIds",
    "Schema",
    "SparseFeatures",
    "export_run",
    "keep_freed_memory",
    "load_exported",
    "open_run",
    "to_device",
]

_GRAPHS = ("Block", "Graph", "Live", "MiniBatch", "NodeIds", "Schema", "SparseFeatures")
_PLACES = {name: "jgs.graph" for name in _GRAPHS} | {
    "Loader": "jgs.sampling",
    "export_run": "jgs.export.write",
    "load_exported": "jgs.export.load",
    "Neighbors": "jgs.sampling",
    "open_run": "jgs.predict.open",
    "to_device": "jgs.devices",
}
_public = lazily("jgs", _PLACES)[1]
_SUBMODULES = (
    "audit",
    "data",
    "dist",
    "export",
    "losses",
    "models",
    "ops",
    "partition",
    "predict",
    "report",
    "sampling",
    "train",
    "viz",
)


def __getattr__(name: str) -> Any:
    """Imports the classes, the subpackages and `jgs.open_run` when they are first used."""
    if name in _SUBMODULES:
        return importlib.import_module(f"jgs.{name}")
    return _public(name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_SUBMODULES, "__version__"])
