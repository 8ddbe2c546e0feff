"""The end of a build: labels and splits, the checks of a data set, and the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jgs.data.building.results import GrowingFile
from jgs.data.building.work import Work
from jgs.data.dataset import KIND, Dataset
from jgs.errors import InputError
from jgs.files.npy import map_npy
from jgs.files.storage import write_arrays
from jgs.graph import Graph, Schema


class Told(NamedTuple):
    """What is told of the nodes: arguments of `Dataset.from_arrays`, or None."""

    labels: Any
    splits: Any
    num_classes: int | None


def finish(
    work: Work,
    graph_files: Mapping[str, GrowingFile],
    feature_files: Mapping[str, GrowingFile],
    told: Told,
    name: str,
    schema: Schema | None,
    node_time: np.ndarray | None,
    sorted_by_source: bool,
) -> None:
    """Writes to `work.new` what a data set has beside the arrays in these files, and the
    manifest. The folder is then one that `Dataset.save` writes. Raises `InputError`."""
    graph = _graph(work, graph_files, schema, node_time, sorted_by_source)
    labels, splits = told.labels, told.splits
    if (labels is None) != (splits is None):
        raise InputError(
            "labels and splits must be given together",
            "one of the two",
            "Give both or none; jgs.data.split_nodes(key, labels) draws splits.",
        )
    if labels is None:
        labels, splits = np.zeros(graph.num_nodes, np.int32), {"train": _all(graph)}
    data = Dataset.from_arrays(
        graph,
        _features(work, feature_files, schema, graph.num_nodes),
        labels,
        splits,
        name=name,
        num_classes=told.num_classes,
        check_values=False,  # each piece was checked
    )
    arrays: dict[str, Any] = {**data.stored(), **feature_files}
    arrays |= {f"graph.{each}": file for each, file in graph_files.items()}
    write_arrays(work.new, KIND, arrays)


def _all(graph: Graph) -> np.ndarray:
    return np.arange(graph.num_nodes, dtype=np.int32)


def _graph(
    work: Work,
    files: Mapping[str, GrowingFile],
    schema: Schema | None,
    node_time: np.ndarray | None,
    sorted_by_source: bool,
) -> Graph:
    arrays = {name: map_npy(file.path) for name, file in files.items()}
    if schema is not None:
        arrays["schema"] = schema.as_bytes()
    if node_time is not None:
        arrays["node_time"] = node_time
    if sorted_by_source:
        arrays["sorted_by_source"] = np.empty((arrays["indices"].size, 0), bool)
    return Graph.from_stored(str(work.new), arrays)


def _features(
    work: Work, files: Mapping[str, GrowingFile], schema: Schema | None, num_nodes: int
) -> Any:
    if not files:
        return np.empty((num_nodes, 0), np.float32)
    arrays = {name: map_npy(file.path) for name, file in files.items()}
    if "features" in arrays or schema is None:
        return arrays["features"]
    names = [kind for kind, _ in schema.node_types]
    return {names[int(each.rpartition("_")[2])]: array for each, array in arrays.items()}
