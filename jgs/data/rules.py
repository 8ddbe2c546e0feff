"""The rules for the labels and splits of a data set; `Dataset` states them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from jgs.data.values import check_ids
from jgs.errors import InputError

_FEW_CLASSES = 1 << 16  # a graph with fewer nodes may have this number of classes too


def check_labels(name: str, labels: np.ndarray, num_classes: int, num_nodes: int) -> None:
    """Raises `InputError` unless `labels` fit `num_nodes` nodes (see `Dataset`)."""
    if labels.ndim not in (1, 2) or labels.shape[0] != num_nodes:
        raise InputError(
            f"the labels of {name} must be one for every node",
            f"shape {list(labels.shape)} for {num_nodes} nodes",
            "Give a label for every node, -1 where there is none.",
        )
    _check_num_classes(name, labels, num_classes, num_nodes)
    if labels.ndim == 2:
        if labels.shape[1] != num_classes or labels.dtype != np.float32:
            raise InputError(
                f"multi-label labels of {name} must be float32 [N, num_classes]",
                f"{labels.dtype}{list(labels.shape)} for {num_classes} classes",
                "Give one column of 0 and 1 for every class.",
            )
        wrong = ~((labels == 0) | (labels == 1)).all(axis=1)
        rule = f"multi-label labels of {name} must be 0 or 1"
    else:
        if labels.dtype != np.int32:
            raise InputError(
                f"the labels of {name} must be int32",
                labels.dtype,
                "Convert them with .astype(numpy.int32).",
            )
        wrong = (labels < -1) | (labels >= num_classes)
        rule = f"the labels of {name} must be in [0, {num_classes}), or -1 for none"
    if wrong.any():
        at = int(np.argmax(wrong))
        raise InputError(
            rule, f"{labels[at]} at node {at}", "Correct it, or the number of classes."
        )


def _check_num_classes(name: str, labels: np.ndarray, num_classes: int, num_nodes: int) -> None:
    most = max(num_nodes, _FEW_CLASSES)
    if 1 <= num_classes <= most:
        return
    value = str(num_classes)
    if labels.ndim == 1 and labels.max(initial=-1) + 1 == num_classes > 0:
        value += f", one more than the label of node {int(np.argmax(labels))}"
    raise InputError(
        f"the number of classes of {name} must be in [1, {most}]",
        value,
        "Number the classes from 0 without gaps.",
    )


def check_split(
    name: str, split: str, ids: np.ndarray, labels: np.ndarray, num_nodes: int
) -> None:
    """Raises `InputError` unless `ids` are nodes of the graph that have labels."""
    rule = f"the {split} split of {name} must"
    if ids.ndim != 1 or ids.dtype != np.int32:
        raise InputError(
            f"{rule} be a one-dimensional int32 array of node ids",
            f"{ids.dtype}{list(ids.shape)}",
            "Convert a mask with numpy.flatnonzero(mask).astype(numpy.int32).",
        )
    if ids.size == 0:
        if split == "train":
            raise InputError(f"{rule} not be empty", "no node", "Name the nodes to train on.")
        return
    check_ids(name, split, ids, num_nodes)
    if labels.ndim == 1 and (labels[ids] < 0).any():
        raise InputError(
            f"{rule} hold nodes with a label only",
            f"node {int(ids[np.argmin(labels[ids])])}, which has none (-1)",
            "Remove it from the split, or give it a label.",
        )


def check_splits_disjoint(name: str, splits: dict[str, np.ndarray], num_nodes: int) -> None:
    """Raises `InputError` unless each node is in at most one split, and only once."""
    rule = f"each node of {name} must be in one split at most, and once"
    for split, ids in splits.items():
        if ids.size == np.count_nonzero(_members(ids, num_nodes)):
            continue
        nodes, counts = np.unique(ids, return_counts=True)
        at = int(np.argmax(counts > 1))
        raise InputError(
            rule,
            f"node {nodes[at]} {counts[at]} times in {split}",
            "Name each node once, e.g. with numpy.unique.",
        )
    for first, second in combinations(splits, 2):
        both = splits[second][_members(splits[first], num_nodes)[splits[second]]]
        if both.size:
            raise InputError(
                rule,
                f"node {both.min()} in {first} and in {second} ({both.size} such nodes)",
                "Remove them from one of the two, e.g. with numpy.setdiff1d.",
            )


def _members(ids: np.ndarray, num_nodes: int) -> np.ndarray:
    """bool `[N]`: True for the nodes in `ids`."""
    members: np.ndarray = np.zeros(num_nodes, bool)
    members[ids] = True
    return members
