"""Writing a partitioned data set: `write_parts`. The folder's layout is in `jgs.data.parts`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data import Dataset
from jgs.data.parts import (
    GRAPH,
    GRAPH_KIND,
    KIND,
    PART_KIND,
    SHARED,
    SHARED_KIND,
    part_name,
    parts_files,
    write_manifest,
)
from jgs.errors import InputError
from jgs.files.replacing import check_replaceable, check_writable, replacing
from jgs.files.storage import MANIFEST, Chunks, sha256, write_arrays
from jgs.graph.adjacency import edge_cut, in_neighbors
from jgs.graph.features import SparseFeatures
from jgs.graph.rows import row_chunks, row_offsets, row_positions
from jgs.partition.deal import deal_seeds
from jgs.partition.nodes import CONSTRAINTS, constraint_weights, max_over_mean
from jgs.partition.rebalance import part_loads

_BYTES_AT_ONCE = 1 << 26  # of features: bounds the temporaries


def check_out(folder: str | os.PathLike) -> None:
    """Raises `InputError` unless `write_parts` may write to `folder`."""
    here, there = Path.cwd(), Path(os.path.realpath(folder))
    if there in (here, *here.parents):  # it is replaced, and whoever is in it is nowhere
        raise InputError(
            "the parts must be written to another folder than the working directory, and not "
            "above it",
            repr(os.fspath(folder)),
            "Name a folder inside it.",
        )
    check_replaceable(folder, KIND, parts_files)
    check_writable(folder)


def write_parts(
    folder: str | os.PathLike,
    data: Dataset,
    assignment: np.ndarray,
    num_parts: int,
    *,
    method: str,
    seed: int = 0,
) -> dict[str, Any]:
    """Writes `data` in `num_parts` parts to `folder`; returns the manifest.

    Args:
      assignment: int32 `[N]`, the part of each node (see `partition_nodes`).
      method, seed: where the assignment comes from, for the manifest.

    Nodes get new ids, those of part 0 first; within a part they keep their order. Memory: a
    few integers a node; edges and features are read where they lie, piece by piece. The
    folder appears whole or not at all; earlier parts there are replaced. Raises `InputError`.
    """
    check_out(folder)
    order = np.argsort(assignment, kind="stable").astype(np.int32)
    new_id = np.empty_like(order)
    new_id[order] = np.arange(order.size, dtype=np.int32)
    counts = np.bincount(assignment, minlength=num_parts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    train = np.sort(new_id[data.train_idx])
    owner = np.searchsorted(offsets, train, "right") - 1
    dealt = deal_seeds(owner, num_parts)
    features = data.features
    schema = data.graph.schema and data.graph.schema.of_nodes(order, offsets)
    named = {} if schema is None else {"schema": schema.as_bytes()}
    manifest: dict[str, Any] = {
        "dataset": data.name,
        "num_parts": num_parts,
        "num_nodes": data.graph.num_nodes,
        "num_edges": data.graph.num_edges,
        "weighted": data.graph.edge_weight is not None,
        "num_classes": data.num_classes,
        "features": {
            "shape": list(features.shape),
            "dtype": np.dtype(_dtype(features)).name,
            "sparse": isinstance(features, SparseFeatures),
            "max_row": getattr(features, "max_row", None),
        },
        "offsets": offsets.tolist(),
        "method": method,
        "seed": seed,
        "edge_cut": edge_cut(in_neighbors(data.graph), assignment),
        **_shares(data, assignment, num_parts, owner, dealt),
    }
    shared = {
        "labels": _rows(data.labels, order),
        "val_idx": np.sort(new_id[data.val_idx]),
        "test_idx": np.sort(new_id[data.test_idx]),
        "original_ids": order,
        **named,
    }
    with replacing(folder, KIND, parts_files) as fresh:
        _write(fresh / GRAPH, GRAPH_KIND, _topology(data, new_id, order) | named)
        _write(fresh / SHARED, SHARED_KIND, shared)
        for part in range(num_parts):
            own = np.arange(offsets[part], offsets[part + 1], dtype=np.int32)
            seeds = train[dealt == part]
            rows = np.union1d(own, seeds).astype(np.int32)
            arrays = {
                **_features(features, order[own]),
                "train_idx": seeds,
                "rows": rows,
                **_topology(data, new_id, order[rows]),
            }
            at = fresh / part_name(part)
            _write(at, PART_KIND, arrays)
            size = sum(path.stat().st_size for path in at.iterdir())
            manifest["parts"][part]["bytes"] = size
        sizes = np.array([part["bytes"] for part in manifest["parts"]])
        manifest["balance"]["bytes"] = max_over_mean(sizes)
        names = [GRAPH, SHARED, *map(part_name, range(num_parts))]
        manifest["folders"] = {name: sha256(fresh / name / MANIFEST) for name in names}
        return write_manifest(fresh, manifest)


def _shares(data: Dataset, assignment, num_parts: int, owner, dealt) -> dict[str, Any]:
    """What each part has of everything, and the largest part's share over the mean."""
    weights = constraint_weights(data.graph, data.train_idx, data.val_idx, data.test_idx)
    loads = part_loads(assignment, weights, num_parts)
    columns = {
        "nodes": np.bincount(assignment, minlength=num_parts),
        **dict(zip(CONSTRAINTS, loads.T, strict=True)),
        "seeds": np.bincount(dealt, minlength=num_parts),
        "foreign_seeds": np.bincount(dealt[owner != dealt], minlength=num_parts),
    }
    parts = [{k: int(v[p]) for k, v in columns.items()} for p in range(num_parts)]
    balance = {k: max_over_mean(v) for k, v in columns.items() if k != "foreign_seeds"}
    return {"parts": parts, "balance": balance}


def _write(folder: Path, kind: str, arrays: dict[str, Any]) -> None:
    folder.mkdir()
    write_arrays(folder, kind, arrays)


def _topology(data: Dataset, new_id: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """The in-edges of `rows` (old ids), in their order there, named by new ids."""
    graph = data.graph
    old = np.asarray(graph.indptr)
    indptr = row_offsets(old[rows + 1] - old[rows])

    def chunks(name: str, array: Any) -> Chunks:
        source = np.asarray(array)

        def pieces() -> Iterator[np.ndarray]:
            for first, stop in row_chunks(indptr):
                some = source[row_positions(old, rows[first:stop])]
                yield new_id[some] if name == "indices" else some

        return Chunks((int(indptr[-1]), *source.shape[1:]), source.dtype, pieces())

    columns = {name: chunks(name, array) for name, array in graph.edge_arrays().items()}
    return {"indptr": indptr, **columns}


def _features(features: Any, rows: np.ndarray) -> dict[str, Any]:
    if not isinstance(features, SparseFeatures):
        return {"features": _rows(np.asarray(features), rows)}
    old = np.asarray(features.indptr)
    indptr = row_offsets(old[rows + 1] - old[rows])

    def chunks(array: Any) -> Chunks:
        source = np.asarray(array)
        pieces = (
            source[row_positions(old, rows[first:stop])] for first, stop in row_chunks(indptr)
        )
        return Chunks((int(indptr[-1]),), source.dtype, pieces)

    return {
        "features_indptr": indptr,
        "features_indices": chunks(features.indices),
        "features_values": chunks(features.values),
    }


def _rows(array: np.ndarray, rows: np.ndarray) -> Chunks:
    size = max(1, _BYTES_AT_ONCE // max(1, array[:1].nbytes))
    pieces = (array[rows[at : at + size]] for at in range(0, rows.size, size))
    return Chunks((rows.size, *array.shape[1:]), array.dtype, pieces)


def _dtype(features: Any) -> Any:
    return features.values.dtype if isinstance(features, SparseFeatures) else features.dtype
