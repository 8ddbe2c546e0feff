"""`Dataset`: a graph with features, labels and a split; and `Plain`, for which these are
optional. Their docstrings specify the fields."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, TypedDict, Unpack

import jax
import numpy as np

from jgs.data import stored
from jgs.data.column_values import check_unit
from jgs.data.columns import FeatureColumns
from jgs.data.label_table import LabelTable, LinkTable
from jgs.data.label_values import are_numbers, check_labels, class_labels, count_classes
from jgs.data.values import (
    SPLITS,
    as_features,
    as_ids,
    check_features,
    check_splits,
    labels_of_all,
    nodes_of,
    normalized,
    schema_of,
    split_ids,
    typed_features,
)
from jgs.errors import InputError
from jgs.files import storage
from jgs.files.storage import Verify
from jgs.graph import Graph, NodeIds, TypedFeatures
from jgs.graph.row_tables.table import RowTable, as_table, kept_as, of_host
from jgs.graph.shown import Shown

KIND = "jgs.dataset"  # of the folders that `Dataset.save` writes
_ARRAYS = ("labels", "train_idx", "val_idx", "test_idx")

_log = logging.getLogger("jgs")


class Known(TypedDict, total=False):
    """Fields of a `Dataset` that `Dataset.from_arrays` takes as they are."""

    node_ids: NodeIds | None
    class_names: Sequence[str] | None
    label_table: LabelTable | None
    time_unit: str | None


@dataclass(frozen=True, eq=False, repr=False)
class Plain(Shown):
    """A graph of `N` nodes with optional labels, split and features. What is known of its edges
    are columns of the graph.

    Fields:
      name: the name in messages and run folders.
      graph: `Graph` of `N` nodes. It has `edge_time` if its edges have times. Two of its
        `edge_columns` have a meaning, if they are there: `label`, an int32 class (-1: none) or
        a float64 number (NaN: none); `split`, int8: 0 train, 1 val, 2 test, and -1 for an edge
        in no split. Where reverse edges were added to a graph without relations, the column
        `reverse`, bool, is True for them.
      features, labels, train_idx, val_idx, test_idx, node_ids, class_names, label_table,
        time_unit, feature_columns, edge_feature_columns: as in a `Dataset`, or None.
      num_classes: as in a `Dataset`, or 0 where it is not counted yet.
      negatives: for "val" and "test", what the links of the split are judged against: pairs
        int32 `[m, 2]` for all of them, or targets int32 `[n, K]`, a row for each of the `n`
        links. The links are then the edges with this split that are no reverses, in the order
        of `graph.edge_order`. None: the data have no negatives.
      label_names: the names of the classes of the edges' labels, where these are text; or None.
      filled: how many missing values of the users' tables were filled, by the name of the
        column, such as `user.age`; or None.
      link_table: `jgs.data.LinkTable`, links to predict at moments; or None.
    """

    name: str
    graph: Graph
    features: Any = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    train_idx: np.ndarray | None = None
    val_idx: np.ndarray | None = None
    test_idx: np.ndarray | None = None
    node_ids: NodeIds | None = None
    class_names: tuple[str, ...] | None = None
    label_table: LabelTable | None = None
    time_unit: str | None = None
    feature_columns: FeatureColumns | dict[str, FeatureColumns] | None = None
    edge_feature_columns: FeatureColumns | None = None
    negatives: dict[str, np.ndarray] | None = None
    label_names: tuple[str, ...] | None = None
    filled: dict[str, int] | None = None
    link_table: LinkTable | None = None

    @classmethod
    def of_arrays(
        cls,
        name: str,
        graph: Graph,
        features: Any = None,
        labels: Any = None,
        splits: Any = None,
        *,
        class_names: Sequence[str] | None = None,
        normalize_features: bool = False,
        label_kind: str | None = None,
    ) -> Plain:
        """The graph with a user's own arrays, which are checked: the arguments of
        `Dataset.from_arrays`, each of which may be None. Raises `InputError`."""
        ways = class_names, normalize_features, label_kind
        plain = _converted(name, graph, features, labels, splits, *ways)
        least = 0 if splits is not None else 1  # where it is not said which nodes have labels
        plain._check_arrays(max(least, plain.num_classes), True)
        return plain

    def dataset(self, num_classes: int | None = None, check_values: bool = False) -> Dataset:
        """A data set of this graph, with its features scanned for NaN and infinity if
        `check_values`. Without labels or a split all nodes are for training and have the label
        0, or, beside a label table, none is and has one. Without features they have features of
        width 0. `num_classes` is counted where it is None. Raises `InputError`."""
        count, labels, names = self.graph.num_nodes, self.labels, self.class_names
        number = self.num_classes or None if num_classes is None else num_classes
        splits = [getattr(self, f"{split}_idx") for split in SPLITS]
        if labels is None or any(ids is None for ids in splits):
            none: np.ndarray = np.empty(0, np.int32)
            if self.label_table is None:
                labels, names, number = np.zeros(count, np.int32), None, 1
                splits = [np.arange(count, dtype=np.int32), none, none]
            else:
                labels, splits = np.full(count, -1, np.int32), [none] * 3
                number = number or len(names or ()) or self.label_table.num_classes
        number = _count_classes(labels, names) if number is None else number
        rows = np.empty((count, 0), np.float32) if self.features is None else self.features
        made = {field.name: getattr(self, field.name) for field in fields(self)}
        made |= dict(zip(_ARRAYS, (labels, *splits), strict=True))
        made |= {"features": _rows(self.name, self.graph, rows, False), "class_names": names}
        if self.graph.num_edges == 0:
            _log.warning("%s has no edges: every node is by itself", self.name)
        return Dataset(**made | {"num_classes": number}).check(check_values)

    def _check_arrays(self, num_classes: int, values: bool) -> None:
        count, splits = self.graph.num_nodes, {s: getattr(self, f"{s}_idx") for s in SPLITS}
        if self.features is not None:
            check_features(self.name, self.features, self.graph, values)
        if self.labels is not None:
            check_labels(self.name, self.labels, num_classes, count)
        if self.labels is not None and self.train_idx is not None:
            tabled = self.label_table is not None
            check_splits(self.name, splits, self.labels, count, may_be_empty=tabled)

    def _facts(self) -> dict[str, str]:
        features, splits = self.features, (self.train_idx, self.val_idx, self.test_idx)
        return {
            "": repr(self.name),
            "nodes": f"{self.graph.num_nodes:,}",
            "edges": f"{self.graph.num_edges:,}",
            "features": "" if features is None else as_table(features).shown_widths(),
            **self._shown_labels(),
            "train/val/test": "/".join(f"{ids.size:,}" for ids in splits if ids is not None),
        }

    def _shown_labels(self) -> dict[str, str]:
        if self.numbers:
            return {"labels": f"{self.num_classes:,} numbers" if self._several else "numbers"}
        if self.labels is None:
            return {}
        return {"labels" if self.multilabel else "classes": f"{self.num_classes:,}"}

    @cached_property
    def numbers(self) -> bool:
        """Whether labels are numbers, and what is learned is a regression."""
        return self.labels is not None and are_numbers(self.labels)

    @property
    def multilabel(self) -> bool:
        """Whether a node can have several labels (`labels` is a matrix of 0 and 1)."""
        return self._several and not self.numbers

    @property
    def _several(self) -> bool:
        return self.labels is not None and self.labels.ndim == 2


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Plain):
    """A data set of `N` nodes with `F` features, to learn their labels from: `num_classes`
    classes, or numbers.

    Fields:
      name: the name in messages and run folders.
      graph: `jgs.Graph` of `N` nodes.
      features: `jax.Array` `[N, F]` float32 or float16, which may be a memory map;
        `jgs.SparseFeatures` or `jgs.graph.QuantizedFeatures` `[N, F]`; or
        `jgs.graph.TypedFeatures`, a table of its own for each node type of the graph. Finite.
      labels: NumPy int32 `[N]` in `[0, num_classes)`, or -1 for a node without a label, which
        must not be in a split. For several labels a node float32 `[N, num_classes]` of 0 and 1,
        or NaN where it is not known whether a node has one: neither a loss nor a metric counts
        it. Where labels are numbers (regression) float64 or, if they were given so, float32
        `[N]`, NaN for a node without one,
        which must not be in a split. For several numbers a node `[N, num_classes]`, of
        which one is not 0 or 1, and NaN for those not known; a node in a split has one.
      num_classes: int, at least 1, and at most the number of nodes or 65,536, whichever is
        larger. It is 1 where labels are numbers `[N]`.
      train_idx, val_idx, test_idx: NumPy int32, one-dimensional, distinct node ids in `[0, N)`.
        A node may be in one split only. The training split must not be empty.
      node_ids: `jgs.NodeIds` of `N` nodes, their names in the user's tables; or None.
      class_names: tuple of `num_classes` texts, or None.
      label_table: `jgs.data.LabelTable`, labels of nodes at moments; or None. With it, nodes
        may have no labels of their own: `labels` are all -1, the splits are empty, and classes
        are those of the table.
      time_unit: the unit of all times, "D", "s", "ms", "us" or "ns", counted from 1970 (UTC);
        or None where it is not known.
      feature_columns: `jgs.data.FeatureColumns`, what each column of the user's table became,
        which encodes other rows alike; by node type where features are typed; or None.
      edge_feature_columns: `jgs.data.FeatureColumns`, what those columns of the user's table of
        edges became that the option `encode` names; or None. Its `encode_each` makes the edge
        columns of other edges alike.
      negatives, label_names, filled, link_table: as in `jgs.data.dataset.Plain`, for tasks of
        links and edges; or None. `save` does not write them.

    The constructor stores its arguments unchecked; `check()` checks these rules.
    `Dataset.from_arrays` makes a data set of a user's own arrays, `save` writes it to a folder,
    and `jgs.data.load` opens the folder. They return checked data sets only.
    """

    features: jax.Array | RowTable | TypedFeatures
    labels: np.ndarray
    num_classes: int
    train_idx: np.ndarray
    val_idx: np.ndarray
    test_idx: np.ndarray

    @classmethod
    def from_arrays(
        cls,
        graph: Graph,
        features: Any,
        labels: Any,
        splits: Any,
        *,
        name: str = "custom",
        num_classes: int | None = None,
        normalize_features: bool = False,
        check_values: bool = True,
        label_kind: str | None = None,
        **known: Unpack[Known],
    ) -> Dataset:
        """A data set of a user's own arrays: NumPy's, or any that have `__array__` or DLPack.

        Labels, splits and sparse features are copied. Other features may be large: aligned
        float16 and float32 arrays on the CPU are used in place, so do not change them
        afterwards.

        Args:
          graph: `jgs.Graph` of `N` nodes.
          features: numbers `[N, F]`, a SciPy sparse matrix, or `SparseFeatures`. For a typed
            graph also a dict of these by node type, each with the rows of the nodes of its
            type, or `TypedFeatures`. Types that are not in the dict have no features.
          labels: integers `[N]`, -1 for none (floats: NaN); text `[N]`, "" for none, whose
            classes are then in alphabetical order; 0 and 1 `[N, C]` for several labels a node,
            NaN for those not known; or numbers `[N]` or `[N, T]` that are not all whole, NaN
            for none.
            For a typed graph also a dict with one node type, `{"paper": labels}`, whose
            `N` is the number of nodes of that type. Nodes of other types have no label. None,
            beside a `label_table`: no node has one.
          splits: a dict with the node ids, or masks `[N]`, of "train", "val" and "test"; the
            last two may be missing. Or `[N]`, one of these names for each node, "" for none.
            Where labels are a dict, `N` is the number of nodes of their type, and ids are those
            within the type: 0 is its first node. None where labels are None.
          name: the name in messages and run folders.
          num_classes: int. None: the largest label + 1.
          known: `node_ids`, `class_names`, `label_table` and `time_unit`, see `Dataset`.
          normalize_features: whether to divide every row of the features by its sum.
          check_values: False skips the scan of the features for NaN and infinity.
          label_kind: "class" or "number", whatever labels look like.

        Raises `InputError` for arguments that break the rules of `Dataset`.
        """
        if unknown := sorted(known.keys() - Known.__annotations__.keys()):
            raise TypeError(f"from_arrays() has no argument {unknown[0]!r}")
        class_names, table = known.get("class_names"), known.get("label_table")
        of_moments = table is not None and labels is None and splits is None
        if not of_moments:  # what is None is refused below
            labels = np.array(None) if labels is None else labels
            splits = () if splits is None else splits
        plain = _converted(
            name, graph, features, labels, splits, class_names, normalize_features, label_kind
        )
        ids, unit = known.get("node_ids"), known.get("time_unit")
        plain = replace(plain, node_ids=ids, label_table=table, time_unit=unit)
        return plain.dataset(num_classes, check_values)

    def save(self, folder: str | os.PathLike, *, packed: bool = False) -> None:
        """Write the data set to `folder`. `jgs.data.load` opens it, memory-mapped; `packed` as
        in `Graph.save`.

        The folder has one `.npy` file for each array, and a manifest of their shapes, dtypes
        and SHA-256. It appears whole or not at all. An earlier data set in it is replaced.
        Raises `InputError` when the folder holds anything else, or cannot be written.
        """
        storage.save_arrays(folder, KIND, self.stored(), packed)

    def stored(self) -> dict[str, np.ndarray]:
        """The arrays that `save` writes, by the names of their files."""
        arrays = {f"graph.{name}": array for name, array in self.graph.stored().items()}
        arrays |= {name: getattr(self, name) for name in _ARRAYS}
        arrays |= stored.features(self.features) | stored.node_ids(self.node_ids)
        arrays |= stored.table("label_table", self.label_table)
        about = {"name": self.name, "num_classes": self.num_classes}
        about["class_names"] = None if self.class_names is None else list(self.class_names)
        about["num_features"] = stored.widths(self.features)
        about["time_unit"] = self.time_unit
        return arrays | stored.about(about | stored.columns_of(self))

    @classmethod
    def open(cls, folder: str | os.PathLike, verify: Verify = True) -> Dataset:
        """The data set that `save` wrote to `folder`; `verify` as in `Graph.open`. Raises
        `InputError`."""
        owner, arrays = str(folder), storage.open_arrays(folder, KIND, verify)
        about = stored.read_about(owner, arrays)
        graphs = {
            n.removeprefix("graph."): a for n, a in arrays.items() if n.startswith("graph.")
        }
        names = about["class_names"]
        stored.require(owner, arrays, ("graph.indptr", "graph.indices", *_ARRAYS))
        graph = Graph.from_stored(owner, graphs)
        kept: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        data = cls(
            about["name"],
            graph,
            stored.read_features(owner, arrays, about["num_features"], graph.schema),
            num_classes=about["num_classes"],
            node_ids=stored.read_node_ids(owner, arrays),
            class_names=None if names is None else tuple(names),
            label_table=stored.read_table(owner, arrays, "label_table"),
            time_unit=about.get("time_unit"),
            feature_columns=stored.read_columns(about.get("feature_columns")),
            edge_feature_columns=stored.read_columns(about.get("edge_feature_columns")),
            **kept,
        )
        return data.check(values=False)

    def kept_as(self, dtype: str) -> Dataset:
        """The data set with its features kept in a dtype: "float32", "float16", or "int8", as
        `jgs.graph.QuantizedFeatures`. "stored" keeps them. Raises `InputError`."""
        return replace(self, features=kept_as(self.features, dtype))

    def check(self, values: bool = True) -> Self:
        """Returns this data set if every rule of the class holds; otherwise raises
        `InputError`.

        `values=False` omits the check that all features are finite, the only one that reads
        them (parsed caches were checked when they were written).
        """
        self._check_arrays(self.num_classes, values)
        if self.label_table is not None:
            self.label_table.check(self.name, self.graph.num_nodes)
        check_unit(self.name, self.time_unit)
        counts = {"node_ids": self.graph.num_nodes, "class_names": self.num_classes}
        for field, count in counts.items():
            names = getattr(self, field)
            if names is not None and len(names) != count:
                raise InputError(
                    f"{field} of {self.name} must be one for each",
                    f"{len(names)} for {count}",
                    "Give the missing ones, or remove those too many.",
                )
        return self


def _converted(
    name: str,
    graph: Graph,
    features: Any,
    labels: Any,
    splits: Any,
    class_names: Sequence[str] | None,
    normalize_features: bool,
    label_kind: str | None,
) -> Plain:
    """What arguments of `Dataset.from_arrays`, some None, make."""
    nodes, number = None, 0
    ids: list[Any] = [None] * len(SPLITS)
    if isinstance(labels, Mapping):
        if len(labels) != 1:
            raise InputError(
                f"labels of {name} by node type must be for one type",
                ", ".join(map(repr, labels)) or "none",
                "Give {'paper': labels}.",
            )
        ((node_type, labels),) = labels.items()
        nodes = nodes_of(schema_of(name, graph), node_type)
    if labels is not None:
        labels, found = class_labels(name, labels, label_kind)
        class_names = class_names if found is None else found
        number = _count_classes(labels, class_names)
        own, labels = labels, np.array(labels)  # a copy
        if nodes is not None:
            labels = labels_of_all(name, own, nodes, graph.num_nodes)
            check_labels(name, own, max(1, number), nodes.size)  # its messages count these
    if splits is not None:
        count = graph.num_nodes if nodes is None else nodes.size
        given = zip(SPLITS, split_ids(name, splits, count), strict=True)
        ids = [as_ids(name, split, own, count) for split, own in given]
        ids = ids if nodes is None else [nodes[own] for own in ids]
    rows = None if features is None else _rows(name, graph, features, normalize_features)
    names = None if class_names is None else tuple(map(str, class_names))
    of_splits: dict[str, Any] = dict(zip(_ARRAYS[1:], ids, strict=True))
    return Plain(name, graph, rows, labels, number, **of_splits, class_names=names)


def _count_classes(labels: np.ndarray, names: Sequence[str] | None) -> int:
    return count_classes(labels) if names is None else len(names)


def _rows(name: str, graph: Graph, features: Any, normalize_features: bool) -> Any:
    is_dict = isinstance(features, Mapping) and not hasattr(features, "tocsr")  # as SciPy's dok
    if is_dict or getattr(features, "schema", None) is not None:
        schema = schema_of(name, graph)
        return typed_features(name, features, schema, normalize_features)
    if isinstance(features, RowTable) and not normalize_features:
        return features
    given = features.host() if isinstance(features, RowTable) else features
    sparse = hasattr(given, "tocsr")  # a matrix of scipy.sparse
    numbers = given.tocsr().astype(np.float32) if sparse else as_features(name, given)
    return of_host(normalized(name, numbers) if normalize_features else numbers)
