"""A fingerprint of a data set. It shows whether a run is resumed on the data that it began
with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jgs.data import Dataset
from jgs.data.plain import Plain
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table

_WHOLE = 64 << 20  # arrays of at most so many bytes are read whole, of larger ones samples
_SAMPLES = 64
_COLUMNS = "edge columns"


def fingerprint(data: Dataset) -> dict[str, str]:
    """SHA-256 of each part of the data set, by the part's name: of an array's shape, dtype and
    content. Of one larger than 64 MiB 64 evenly spaced pieces of 1 MiB are read, so that a
    fingerprint takes a fraction of a second."""
    return {
        **_of_graph(data.graph),
        "features": fingerprint_features(data.features),
        "labels": digest_of(np.array(data.num_classes), data.labels),
        "splits": digest_of(data.train_idx, data.val_idx, data.test_idx),
        **({} if data.label_table is None else {"table": digest_of(*data.label_table)}),
    }


def fingerprint_plain(data: Plain) -> dict[str, str]:
    splits = [ids for ids in (data.train_idx, data.test_idx) if ids is not None]
    return {
        **_of_graph(data.graph),
        "labels": "none" if data.labels is None else digest_of(data.labels),
        "splits": digest_of(*splits),
    }


def fingerprint_features(features: Any) -> str:
    """SHA-256 of the features of a data set, dense, sparse or typed, or "none"."""
    return "none" if features is None else as_table(features).digest(digest_of)


def changed_parts(saved: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """The parts of a data set, whose digests are `found`, that are not as those that were
    `saved`. Runs of jgs 0.2 say nothing of edge columns."""
    old = {} if _COLUMNS in saved else {_COLUMNS: found.get(_COLUMNS)}
    return [part for part in found if {**old, **saved}.get(part) != found[part]]


def _of_graph(graph: Graph) -> dict[str, str]:
    weight, types = graph.edge_weight, {}
    names = sorted(graph.edge_columns)
    named = np.frombuffer(" ".join(names).encode(), np.uint8)
    if graph.schema is not None or graph.edge_type is not None:
        schema = [] if graph.schema is None else [graph.schema.as_bytes()]
        numbers = [] if graph.edge_type is None else [graph.edge_type]
        types["types"] = digest_of(*schema, *numbers)
    if graph.edge_time is not None:
        types["edge times"] = digest_of(np.asarray(graph.edge_time))
    if graph.node_time is not None:
        types["node times"] = digest_of(np.asarray(graph.node_time))
    return {
        # In NumPy, because JAX would cut the 64-bit offsets to 32 bits when it slices them.
        "graph": digest_of(np.asarray(graph.indptr), np.asarray(graph.indices)),
        "edge weights": "none" if weight is None else digest_of(weight),
        _COLUMNS: digest_of(named, *(np.asarray(graph.edge_columns[name]) for name in names)),
        **types,
    }


def digest_of(*arrays: Any) -> str:
    """SHA-256 of the arrays: their shapes, their dtypes, and their content or samples of it."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(f"{array.dtype} {array.shape};".encode())
        for piece in _pieces(array):
            total.update(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _pieces(array: Any) -> list[Any]:
    if array.nbytes <= _WHOLE:
        return [array]
    row_bytes = array.nbytes // len(array)
    size = max(1, _WHOLE // _SAMPLES // row_bytes)
    starts = np.linspace(0, len(array) - size, _SAMPLES).astype(int)
    return [array[start : start + size] for start in starts.tolist()]
