"""`RunData`: the graph and the features that a run predicts on, whole or in parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.label_table import LabelTable
from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds, Schema, TypedFeatures
from jgs.graph.device import as_numpy
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.predict.ids import schema_of
from jgs.train.loop.data import Data
from jgs.train.loop.model import Types

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class RunData:
    """The data that a run predicts on, of all ranks together.

    Fields:
      comm, graphs, offsets, features: as `jgs.train.exact_inference` takes them.
      own_ids: int32 `[N]`, the id in `graphs` of each node of the data set; None where the ids
        are equal.
      splits: for each of `SPLITS` its nodes, ascending ids of the data set; `{}` for a graph
        without splits.
      node_ids: the ids of the user's tables for the nodes of the data set, or None.
      labels: NumPy, those of `jgs.data.Dataset`, by the nodes' ids in `graphs`; None for a
        graph without labels.
      label_table: the `jgs.data.LabelTable`, with ids of `graphs`, or None.
    """

    comm: Communicator
    graphs: Sequence[Graph]
    offsets: np.ndarray
    features: Sequence[Any]
    own_ids: np.ndarray | None
    splits: dict[str, np.ndarray]
    node_ids: NodeIds | None = None
    labels: np.ndarray | None = None
    label_table: LabelTable | None = None

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @property
    def schema(self) -> Schema | None:
        """The types of the data set's nodes, by its ids, and of its edges; or None."""
        return schema_of(self.graphs[0], self.own_ids)

    @property
    def table(self) -> Any:
        """The rows of all nodes, as `jgs.ops.gather` takes them; on one process only."""
        (rows,) = self.features
        return tuple(rows) if isinstance(rows, list) else rows

    def owned(self, nodes: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each local rank two arrays int32: the positions in `nodes` of the nodes that the
        rank owns, and their ids in its graph."""
        ids = nodes if self.own_ids is None else self.own_ids[nodes]
        bounds = self.offsets[self.comm.rank : self.comm.rank + self.comm.num_local + 1]
        places = [np.flatnonzero((ids >= a) & (ids < b)) for a, b in pairwise(bounds)]
        return [(at.astype(np.int32), ids[at].astype(np.int32)) for at in places]


def of_graph(graph: Graph, features: Any, width: int, types: Types | None) -> RunData:
    """The source of a graph in memory, for a model of `width` features, or of the `types`.
    Raises `InputError` for features that do not fit it."""
    if types is not None and getattr(features, "schema", None) is not None:
        _check_typed(graph, features, types)
    else:
        _check_matrix(graph, features, width)
    every = np.array([0, graph.num_nodes])
    return RunData(Alone(), [graph], every, [features], None, {})


def _check_matrix(graph: Graph, features: Any, width: int) -> None:
    form = "[N, F], one row for each of the graph's nodes"
    remedy = "Give a matrix [N, F], or SparseFeatures."
    require_array("features", features, form, remedy, N=graph.num_nodes)
    remedy = "Give the features that it was trained with."
    require_array("features", features, "[N, F], with the run's columns", remedy, F=width)
    table = as_table(features if isinstance(features, RowTable) else as_numpy(features))
    table.check_one_width("the run's model", "the graph", remedy)
    table.check_values("the features of the graph")


def _check_typed(graph: Graph, features: TypedFeatures, types: Types) -> None:
    schema, parts = graph.schema, types.schema.parts
    if schema is None or features.schema != schema.without_relations():
        raise InputError(
            "features by node type must have the node types of the graph",
            f"{features.schema.node_types}",
            "Make them with TypedFeatures.from_dict(graph.schema, ...).",
        )
    rows, given = _counts(types.schema, types.widths), _counts(schema, features.widths)
    wrong: list[tuple[Any, ...]] = [
        (
            schema.relations != types.schema.relations,
            "the graph must have the relations that the run was trained with",
            schema.relations,
            "Give a graph of the same types and relations, in the same order.",
        ),
        (
            features.widths != types.widths or rows != given,
            f"the features of the node types must have the widths {list(types.widths)} of the "
            f"run's, and types without features as many nodes, {rows}",
            f"{features.shown_widths()}, and {given} nodes",
            "Give features as those that it was trained with.",
        ),
        (
            rows and len(parts) > 1 and schema.parts != parts,
            f"the graph must be in the {len(parts)} parts that the run was trained on, in "
            "whose order it has learned rows of nodes",
            "one in others, or whole",
            "Open the run on its own data, or train on the whole graph.",
        ),
    ]
    for found, *said in wrong:
        if found:
            raise InputError(*said)


def _counts(schema: Schema, widths: Sequence[int]) -> list[int]:
    """The numbers of nodes of the types without features."""
    each = zip(schema.node_types, widths, strict=True)
    return [count for (_, count), width in each if not width]


def of_run(data: Data, moments: bool) -> RunData:
    """The data that a run was trained on; all ranks call it. Rows of labels at `moments` have
    their splits in their table."""
    comm, own = data.comm, data.own_ids
    splits: dict[str, np.ndarray] = {}
    if not moments:
        nodes = {"train": data.train_nodes()} | {name: data.split(name) for name in SPLITS[1:]}
        names = np.arange(data.offsets[-1]) if own is None else np.argsort(own)
        splits = {
            name: np.sort(names[rows_on_all(comm, ids)]).astype(np.int32)
            for name, ids in nodes.items()
        }
    found = (comm, data.graphs, data.offsets, data.features, own, splits)
    return RunData(*found, data.node_ids, data.host_labels, data.table)


def check_digests(name: str, saved: dict[str, str], found: dict[str, str]) -> None:
    if changed := [part for part in found if saved.get(part) != found[part]]:
        raise InputError(
            f"a run must predict on the data set that it was trained on, {name}",
            f"other {', '.join(changed)}",
            "Restore its files, or give another graph to jgs.open_run(...).predict.",
        )
