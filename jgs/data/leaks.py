"""Features and edges that tell of labels what they should not: leakage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jgs.data.dataset import Plain
from jgs.graph import TypedFeatures
from jgs.graph.row_tables.table import as_table

TELLING = 0.99
"""A feature whose one-rule accuracy is higher is warned of, if it also leaves at most a tenth
of the errors that the most frequent class alone would make."""
_BUCKET = 6  # Holte's least number of rows of one interval
_AT_ONCE = 1 << 24  # entries of dense columns at a time


def telling_features(data: Plain) -> Iterator[tuple[str, float]]:
    """The features that alone tell the labels of the training nodes, by `one_rule` above
    `TELLING` (labels that are numbers: by the square of the correlation), each with this
    accuracy. A column of a table counts as one feature, with all that it became."""
    labels, train = data.labels, data.train_idx
    if labels is None or train is None or labels.ndim != 1 or train.size < 2 * _BUCKET:
        return
    target, become = labels[train], data.feature_columns
    numbers = target.dtype.kind == "f"
    if np.unique(target).size < 2:
        return
    usual = 1.0 if numbers else 1 - np.unique(target, return_counts=True)[1].max() / target.size
    table, rows, own = _training_rows(data, train)
    if isinstance(become, Mapping):
        become = become.get(own)
    prefix = f"{own}." if own else ""
    for name, values in _columns(table, rows, become):
        accuracy = _explained(values, target) if numbers else one_rule(values, target)
        if accuracy > TELLING and 1 - accuracy <= usual / 10:
            yield prefix + name, accuracy


def one_rule(values: np.ndarray, classes: np.ndarray) -> float:
    """The share of rows that one rule on `values` `[n]` classifies rightly (1R, Holte, 1993).

    The rule has intervals of values and a class for each. Rows of equal values are together. An
    interval has at least 6 rows, or one value that at least 2 rows have. All other rows count
    as wrong, so that a feature with another value in each row tells nothing.
    """
    _, place = np.unique(values, return_inverse=True)
    _, kind = np.unique(classes, return_inverse=True)
    classes_of = int(kind.max()) + 1
    pairs, counts = np.unique(place.ravel() * classes_of + kind.ravel(), return_counts=True)
    value, of_class = pairs // classes_of, pairs % classes_of
    # The most frequent class of each value: the last of its pairs in order of their counts.
    order = np.lexsort((counts, value))
    last = order[np.append(np.diff(value[order]) > 0, True)]
    best, right = of_class[last], counts[last]
    total = np.bincount(place.ravel())
    begin = np.flatnonzero(np.diff(best, prepend=-1))  # where the rule's class changes
    rows, hits = np.add.reduceat(total, begin), np.add.reduceat(right, begin)
    single = np.diff(begin, append=best.size) == 1
    return float(hits[(rows >= _BUCKET) | (single & (rows >= 2))].sum() / values.size)


def late_edges(data: Plain) -> tuple[int, int] | None:
    """Where nodes are split by time, the number of edges into training nodes that are later
    than all of these, and the time of the last training node. None if there are none, or the
    split is not by time. An edge has its own time, or that of its source."""
    graph, train = data.graph, data.train_idx
    if graph.node_time is None or train is None or not train.size:
        return None
    times = np.asarray(graph.node_time)
    end = int(times[train].max())
    judged = [ids for ids in (data.val_idx, data.test_idx) if ids is not None and ids.size]
    if not judged or min(int(times[ids].min()) for ids in judged) < end:
        return None
    trained = np.zeros(graph.num_nodes, bool)
    trained[train] = True
    into = np.repeat(trained, np.asarray(graph.degrees()))
    own = times[np.asarray(graph.indices)] if graph.edge_time is None else graph.edge_time
    count = int((np.asarray(own)[into] > end).sum())
    return (count, end) if count else None


def _training_rows(data: Plain, train: np.ndarray) -> tuple[Any, np.ndarray, str]:
    """The table of features of the training nodes, their rows in it, and their node type ("" if
    there are no types). The table is None where their type has no features."""
    features, schema = data.features, data.graph.schema
    if not isinstance(features, TypedFeatures) or schema is None:
        return features, train, ""
    number = int(schema.numbers(train[:1])[0])
    name = schema.node_types[number][0]
    places = np.concatenate([np.arange(r.start, r.stop) for r in schema.ranges(name)])
    return features.tables[number], np.searchsorted(places, train), name


def _columns(table: Any, rows: Any, become: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Each feature's name and values `[n]` in the rows for training."""
    if table is None or not table.shape[1]:
        return
    width = table.shape[1]
    some = as_table(table)
    if some.by_entries:  # else each block would search the rows again
        some, rows = some.take(rows), slice(None)
    if become is not None and len(become.names) == width:
        at = 0
        for column in become.columns:
            block = slice(at, at := at + len(column.names))
            if block.stop > block.start:
                values = some.numbers(rows, block)
                one_hot = column.kind in ("category", "hash")
                own = values @ (1.0 + np.arange(values.shape[1])) if one_hot else None
                for i in range(1 if one_hot else column.width):
                    yield (
                        column.names[i] if own is None else column.name,
                        (values[:, i] if own is None else own),
                    )
        return
    step = max(1, _AT_ONCE // max(1, rows.size))
    for first in range(0, width, step):
        block = slice(first, min(width, first + step))
        dense = some.numbers(rows, block)
        for i in range(dense.shape[1]):
            yield str(first + i), dense[:, i]


def _explained(values: np.ndarray, target: np.ndarray) -> float:
    """The square of the correlation."""
    values = values.astype(np.float64)
    if values.min() == values.max():
        return 0.0
    return float(np.corrcoef(values, target)[0, 1] ** 2)
