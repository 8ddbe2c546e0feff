"""The data types that every part of jgs shares: `Graph` and its `Schema`, `Block`,
`MiniBatch`, `SparseFeatures`, `QuantizedFeatures`, `NodeIds`."""

from jgs.graph.batch import Block, Control, Extras, MiniBatch, Tokens
from jgs.graph.device import as_device
from jgs.graph.graph import Graph
from jgs.graph.live import Live
from jgs.graph.node_ids import NodeIds
from jgs.graph.reading import read_ahead
from jgs.graph.row_tables.coded import QuantizedFeatures
from jgs.graph.row_tables.sparse import SparseFeatures
from jgs.graph.row_tables.versioned import VersionedFeatures, Versions
from jgs.graph.schema import Schema
from jgs.graph.typed_features import TypedFeatures, TypedRows

__all__ = [
    "Block",
    "Control",
    "Extras",
    "Graph",
    "Live",
    "MiniBatch",
    "NodeIds",
    "QuantizedFeatures",
    "Schema",
    "SparseFeatures",
    "Tokens",
    "TypedFeatures",
    "TypedRows",
    "VersionedFeatures",
    "Versions",
    "as_device",
    "read_ahead",
]


def __dir__() -> list[str]:
    return __all__
