"""The graph of a layout with labels and, if there are some, splits of nodes to choose from."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jgs.data.dataset import Dataset, Plain
from jgs.data.label_values import as_labels, check_labels, count_classes
from jgs.data.random_split import SplitRule
from jgs.data.values import SPLITS, class_labels
from jgs.errors import InputError
from jgs.graph import Graph

_log = logging.getLogger("jgs")


def labelled_plain(
    name: str,
    graph: Graph,
    features: Any,
    labels: Any,
    splits: Sequence[Mapping[str, np.ndarray]] = (),
    *,
    split: int | str | None = 0,
    stratify: bool = False,
    split_seed: int = 0,
    normalize_features: bool = False,
) -> Plain:
    """The `graph` with its features and its labels.

    Args:
      features: as of `Dataset.from_arrays`, or None.
      labels: as of `Dataset.from_arrays`.
      splits: those that the files have: masks `[N]` by `train`, `val` and `test`.
      split: the number of one of them, from 0, which None is too; or shares to draw,
        "0.6,0.2,0.2".
      stratify, split_seed: as of `jgs.data.random_split.SplitRule`.
      normalize_features: whether to divide every row of the features by its sum.

    Raises `InputError`.
    """
    split = 0 if split is None else split
    drawn = SplitRule(None if isinstance(split, int) else split, stratify, split_seed)
    masks = None
    if isinstance(split, int) and (splits or split):
        if not 0 <= split < len(splits):
            raise InputError(
                f"the option split of {name} must be the number of a split, or shares",
                f"{split}, and {len(splits)} splits",
                "Give a number from 0, or split=0.6,0.2,0.2.",
            )
        masks = {part: np.asarray(splits[split][part]).astype(bool) for part in SPLITS}
        if len(splits) > 1:
            _log.info("%s: split %s of %s, numbered from 0", name, split, len(splits))
    chosen = drawn.column(labels, masks)
    rows = np.empty((graph.num_nodes, 0), np.float32) if features is None else features
    if chosen is None:
        given, class_names = class_labels(name, labels)
        numbers = as_labels(name, given)
        check_labels(name, numbers, max(1, count_classes(numbers)), graph.num_nodes)
        # Labels are checked again with a split; here features are, by a data set of them.
        chosen = {"train": np.flatnonzero(np.ones(graph.num_nodes))}
        none = np.zeros(graph.num_nodes, np.int32)
        data = Dataset.from_arrays(
            graph, rows, none, chosen, name=name, normalize_features=normalize_features
        )
        plain = Plain(
            *(name, graph, numbers, None, None, data.features), class_names=class_names
        )
    else:
        plain = Plain.of(
            Dataset.from_arrays(
                *(graph, rows, labels, chosen),
                name=name,
                normalize_features=normalize_features,
            )
        )
    return plain._replace(features=None) if features is None else plain
