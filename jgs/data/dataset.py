"""`Dataset`: a graph with features, labels and a split; its docstring is the specification."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

import jax
import numpy as np
import scipy.sparse

from jgs.errors import InputError
from jgs.graph import Graph, as_device
from jgs.graph.device import as_numpy
from jgs.graph.features import SparseFeatures

_VALUES_AT_ONCE = 1 << 24  # bounds the temporaries of a scan over features
_FEW_CLASSES = 1 << 16  # so many a small graph may have too

_log = logging.getLogger("jgs")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A node-classification data set of `N` nodes, `F` features and `num_classes` classes.

    Fields:
      name: as in messages and run folders.
      graph: `jgs.Graph` of `N` nodes.
      features: `jax.Array` `[N, F]` float32 or float16, which may be a memory map used where
        it lies, or `jgs.SparseFeatures` of shape `[N, F]`. Finite.
      labels: NumPy int32 `[N]` in `[0, num_classes)`, or -1 for a node without a label, which
        then is in no split; or, multi-label, float32 `[N, num_classes]` of 0 and 1.
      num_classes: int, at least 1, and no more than nodes or 65,536.
      train_idx, val_idx, test_idx: NumPy int32, one-dimensional, node ids in `[0, N)`, each
        in one split and once. Only the training split must not be empty.

    The constructor stores what it is given; `check()` says whether it keeps these rules.
    `jgs.data.load` returns checked data sets only.
    """

    name: str
    graph: Graph
    features: jax.Array | SparseFeatures
    labels: np.ndarray
    num_classes: int
    train_idx: np.ndarray
    val_idx: np.ndarray
    test_idx: np.ndarray

    @property
    def multilabel(self) -> bool:
        """Whether a node can have several labels (`labels` is a matrix of 0 and 1)."""
        return self.labels.ndim == 2

    def check(self, values: bool = True) -> Self:
        """This data set, when every rule of the class holds; else raises `InputError`.

        `values=False` leaves out the one rule that reads all the features: that they are
        finite (the parsed caches were checked when they were written).
        """
        shape = self.features.shape
        if len(shape) != 2 or shape[0] != self.graph.num_nodes:
            raise InputError(
                f"the features of {self.name} must have one row for every node",
                f"shape {list(shape)} for {self.graph.num_nodes} nodes",
                "Give the missing rows, remove those too many, or correct the number of nodes.",
            )
        if isinstance(self.features, SparseFeatures):
            if values:
                _check_finite_entries(self.name, self.features)
        elif self.features.dtype not in (np.float32, np.float16):
            raise InputError(
                f"the features of {self.name} must be float32 or float16",
                self.features.dtype,
                "Convert them with .astype(numpy.float32).",
            )
        elif values:
            check_finite(self.name, np.asarray(self.features))
        self._check_labels()
        for split in ("train", "val", "test"):
            self._check_split(split, getattr(self, f"{split}_idx"))
        self._check_splits_apart()
        return self

    def _check_labels(self) -> None:
        labels, num_nodes = self.labels, self.graph.num_nodes
        if labels.ndim not in (1, 2) or labels.shape[0] != num_nodes:
            raise InputError(
                f"the labels of {self.name} must be one for every node",
                f"shape {list(labels.shape)} for {num_nodes} nodes",
                "Give a label for every node, -1 where there is none.",
            )
        self._check_num_classes()
        if labels.ndim == 2:
            if labels.shape[1] != self.num_classes or labels.dtype != np.float32:
                raise InputError(
                    f"multi-label labels of {self.name} must be float32 [N, num_classes]",
                    f"{labels.dtype}{list(labels.shape)} for {self.num_classes} classes",
                    "Give one column of 0 and 1 for every class.",
                )
            wrong = ~((labels == 0) | (labels == 1)).all(axis=1)
            rule = f"multi-label labels of {self.name} must be 0 or 1"
        else:
            if labels.dtype != np.int32:
                raise InputError(
                    f"the labels of {self.name} must be int32",
                    labels.dtype,
                    "Convert them with .astype(numpy.int32).",
                )
            wrong = (labels < -1) | (labels >= self.num_classes)
            rule = (
                f"the labels of {self.name} must be in [0, {self.num_classes}), or -1 for none"
            )
        if wrong.any():
            at = int(np.argmax(wrong))
            raise InputError(
                rule, f"{labels[at]} at node {at}", "Correct it, or the number of classes."
            )

    def _check_num_classes(self) -> None:
        most = max(self.graph.num_nodes, _FEW_CLASSES)
        if 1 <= self.num_classes <= most:
            return
        value = str(self.num_classes)
        if self.labels.ndim == 1 and self.labels.max(initial=-1) + 1 == self.num_classes > 0:
            value += f", one more than the label of node {int(np.argmax(self.labels))}"
        raise InputError(
            f"the number of classes of {self.name} must be in [1, {most}]",
            value,
            "Number the classes from 0 without gaps.",
        )

    def _check_split(self, split: str, ids: np.ndarray) -> None:
        rule = f"the {split} split of {self.name} must"
        if ids.ndim != 1 or ids.dtype != np.int32:
            raise InputError(
                f"{rule} be a one-dimensional int32 array of node ids",
                f"{ids.dtype}{list(ids.shape)}",
                "Convert a mask with numpy.flatnonzero(mask).astype(numpy.int32).",
            )
        if ids.size == 0:
            if split == "train":
                raise InputError(
                    f"{rule} not be empty", "no node", "Name the nodes to train on."
                )
            return
        _check_ids(self.name, split, ids, self.graph.num_nodes)
        if self.labels.ndim == 1 and (self.labels[ids] < 0).any():
            raise InputError(
                f"{rule} hold nodes with a label only",
                f"node {int(ids[np.argmin(self.labels[ids])])}, which has none (-1)",
                "Remove it from the split, or give it a label.",
            )

    def _check_splits_apart(self) -> None:
        rule = f"each node of {self.name} must be in one split at most, and once"
        splits = {name: getattr(self, f"{name}_idx") for name in ("train", "val", "test")}
        for name, ids in splits.items():
            if ids.size == np.count_nonzero(_members(ids, self.graph.num_nodes)):
                continue
            nodes, counts = np.unique(ids, return_counts=True)
            at = int(np.argmax(counts > 1))
            raise InputError(
                rule,
                f"node {nodes[at]} {counts[at]} times in {name}",
                "Name each node once, e.g. with numpy.unique.",
            )
        for first, second in combinations(splits, 2):
            both = splits[second][_members(splits[first], self.graph.num_nodes)[splits[second]]]
            if both.size:
                raise InputError(
                    rule,
                    f"node {both.min()} in {first} and in {second} ({both.size} such nodes)",
                    "Remove them from one of the two, e.g. with numpy.setdiff1d.",
                )


def _members(ids: np.ndarray, num_nodes: int) -> np.ndarray:
    """bool `[N]`: the nodes that are among `ids`."""
    members: np.ndarray = np.zeros(num_nodes, bool)
    members[ids] = True
    return members


def assemble(
    name: str,
    graph: Graph,
    features: Any,
    labels: Any,
    train_idx: Any,
    val_idx: Any,
    test_idx: Any,
    *,
    num_classes: int | None = None,
    normalize_features: bool = False,
    check_values: bool = True,
) -> Dataset:
    """The checked `Dataset` of what a loader has read: the last step of each of them.

    Args:
      features: array `[N, F]` of numbers, or a SciPy sparse matrix. A float16 or float32
        memory map is used where it lies.
      labels: integers `[N]`, floats `[N]` or `[N, 1]` that are whole or NaN (no label: -1),
        or `[N, C]` of 0 and 1 for multi-label data.
      train_idx, val_idx, test_idx: integers.
      num_classes: None takes the largest label + 1 (multi-label: the columns).
      normalize_features: divide every row by its sum, so that it sums to 1; rows of zeros
        stay. Features must not be negative then.
      check_values: False skips the scan for NaN and infinity.
    """
    labels = as_labels(name, labels)
    if num_classes is None:
        num_classes = labels.shape[1] if labels.ndim == 2 else int(labels.max(initial=-1)) + 1
    rows: jax.Array | SparseFeatures
    if scipy.sparse.issparse(features):
        matrix = features.tocsr().astype(np.float32)
        rows = SparseFeatures.from_scipy(
            normalized(name, matrix) if normalize_features else matrix
        )
    else:
        dense = as_features(name, features)
        rows = as_device(normalized(name, dense) if normalize_features else dense)
    train, val, test = (
        _as_ids(name, split, ids, graph.num_nodes)
        for split, ids in (("train", train_idx), ("val", val_idx), ("test", test_idx))
    )
    dataset = Dataset(name, graph, rows, labels, num_classes, train, val, test)
    dataset.check(check_values)
    if graph.num_edges == 0:
        _log.warning("%s has no edges: every node is by itself", name)
    return dataset


def training_nodes(split: str, stored: Any, labelled: Any, val_idx: Any, test_idx: Any) -> Any:
    """The training nodes by the option `split`: "public": those `stored` with the data; "full":
    all `labelled` nodes that are neither in `val_idx` nor in `test_idx`, as PyG and FastGCN
    (Chen, Ma and Xiao, 2018) do. Raises `InputError` for another name."""
    if split == "public":
        return stored
    if split == "full":
        return np.setdiff1d(labelled, np.union1d(val_idx, test_idx))
    raise InputError(
        "the option split must be public or full", repr(split), "Choose one of them."
    )


def as_labels(name: str, labels: Any) -> np.ndarray:
    """`labels` as int32 `[N]` (-1 for NaN) or float32 `[N, C]`; see `assemble`."""
    labels = as_numpy(labels)
    if labels.dtype.kind not in "fiub" or labels.ndim not in (1, 2):
        raise InputError(
            f"the labels of {name} must be an array of numbers, [N] or [N, C]",
            f"{labels.dtype}{list(labels.shape)}",
            "Number the classes from 0.",
        )
    if labels.ndim == 2 and labels.shape[1] != 1:
        return labels.astype(np.float32)
    labels = labels.reshape(-1)
    if labels.dtype == np.int32:
        return labels
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
    whole = (labels == np.floor(labels)) & (labels >= -(2**31)) & (labels < 2**31)
    if not whole.all():
        at = int(np.argmin(whole))
        raise InputError(
            f"the labels of {name} must be whole numbers", f"{labels[at]} at node {at}",
            "Number the classes from 0.",
        )  # fmt: skip
    return labels.astype(np.int32)


def as_features(name: str, features: Any) -> np.ndarray:
    """`features` as a C-contiguous float16 or float32 array, without a copy if it is one."""
    features = as_numpy(features)
    if features.ndim != 2 or features.dtype.kind not in "fiub":
        raise InputError(
            f"the features of {name} must be a matrix of numbers [N, F]",
            f"{features.dtype}{list(features.shape)}",
            "Give one row of numbers for every node.",
        )
    keep = features.dtype in (np.float16, np.float32)
    with np.errstate(over="ignore"):  # the check for infinity names the row
        return np.ascontiguousarray(features, features.dtype if keep else np.float32)


def check_finite(name: str, features: np.ndarray, first: int = 0) -> None:
    """Raises `InputError` naming the first row with a NaN or an infinity; scans in chunks.

    `first` is the number of the first of these rows, when they are a part of all.
    """
    step = max(1, _VALUES_AT_ONCE // max(1, features.shape[1]))
    for start in range(0, features.shape[0], step):
        finite = np.isfinite(features[start : start + step]).all(axis=1)
        if not finite.all():
            _not_finite(name, first + start + int(np.argmin(finite)))


def normalized(name: str, features: Any) -> Any:
    """`features` (CSR matrix or array) with rows that sum to 1; rows of zeros stay."""
    sparse = scipy.sparse.issparse(features)
    values = features.data if sparse else features
    if values.size and values.min() < 0:
        raise InputError(
            f"features of {name} to be row-normalised must not be negative",
            float(values.min()),
            "Load with normalize_features=False.",
        )
    total = np.asarray(features.sum(axis=1, dtype=np.float64)).reshape(-1)
    scale = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
    if not sparse:
        return (features * scale[:, None]).astype(features.dtype)
    data = (values * np.repeat(scale, np.diff(features.indptr))).astype(np.float32)
    return scipy.sparse.csr_matrix((data, features.indices, features.indptr), features.shape)


def _check_finite_entries(name: str, features: SparseFeatures) -> None:
    finite = np.isfinite(np.asarray(features.values))
    if not finite.all():
        entry = int(np.argmin(finite))
        _not_finite(name, int(np.searchsorted(np.asarray(features.indptr), entry, "right")) - 1)


def _not_finite(name: str, row: int) -> None:
    raise InputError(
        f"the features of {name} must be finite",
        f"NaN or infinity in row {row}",
        "Clean the features, e.g. with numpy.nan_to_num.",
    )


def _as_ids(name: str, split: str, ids: Any, num_nodes: int) -> np.ndarray:
    ids = as_numpy(ids)
    if ids.ndim != 1 or not (ids.dtype.kind in "iu" or ids.size == 0):
        raise InputError(
            f"the {split} split of {name} must be a one-dimensional array of node ids",
            f"{ids.dtype}{list(ids.shape)}",
            "Convert a mask with numpy.flatnonzero.",
        )
    _check_ids(name, split, ids, num_nodes)  # before narrowing, so that no id wraps around
    return ids.astype(np.int32)


def _check_ids(name: str, split: str, ids: np.ndarray, num_nodes: int) -> None:
    wrong = (ids < 0) | (ids >= num_nodes)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            f"the {split} split of {name} must hold node ids in [0, {num_nodes})",
            f"{int(ids[at])} at position {at}",
            "Correct the split.",
        )
