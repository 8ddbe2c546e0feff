"""What a graph's structure says before training, and warnings of what usually is a mistake in a
data set, such as features and edges that tell of labels what they should not. Each is measured
on all of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from jgs.data.column_values import look_like_dates
from jgs.data.dataset import Plain
from jgs.data.label_values import are_numbers, labelled
from jgs.data.values import SPLITS
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table

FEW = 5
"""A class with fewer training nodes is warned of."""
_ONE_WAY = 0.95  # of the edges have no reverse: each seems to be listed once


class EdgeFacts(NamedTuple):
    """Counts over all edges of a graph.

    Fields:
      in_degree, out_degree: `mean`, `median` and `max` over all nodes.
      isolated: the nodes that are no end of an edge, but perhaps of self-loops.
      self_loops: edges from a node to itself.
      duplicates: edges whose ends, relation and time, if there are some, an earlier edge has.
      both_ways: edges, not counting self-loops, whose reverse is an edge too.
      one_way: the other edges that are no self-loops.
    """

    in_degree: dict[str, float]
    out_degree: dict[str, float]
    isolated: int
    self_loops: int
    duplicates: int
    both_ways: int
    one_way: int


def edge_facts(graph: Graph) -> EdgeFacts:
    """The facts of a graph, by two sorts of all its edges."""
    count = graph.num_nodes
    src = np.asarray(graph.indices).astype(np.int64)
    inward = np.asarray(graph.degrees()).astype(np.int64)
    dst = np.repeat(np.arange(count, dtype=np.int64), inward)
    outward = np.bincount(src, minlength=count)
    loops = src == dst
    own = np.bincount(src[loops], minlength=count)
    # A row of the graph is the edges into one node, so `forward` is nearly sorted.
    forward = np.sort((dst * count + src)[~loops])
    back = np.sort((src * count + dst)[~loops])
    found = np.searchsorted(back, forward)
    paired = int((back[np.minimum(found, back.size - 1)] == forward).sum()) if back.size else 0
    return EdgeFacts(
        _degrees(inward),
        _degrees(outward),
        int((inward + outward == 2 * own).sum()),
        int(loops.sum()),
        _duplicates(graph, dst * count + src),
        paired,
        forward.size - paired,
    )


def _degrees(degrees: np.ndarray) -> dict[str, float]:
    if not degrees.size:
        return {"mean": 0.0, "median": 0.0, "max": 0}
    mean, median = float(degrees.mean()), float(np.median(degrees))
    return {"mean": round(mean, 4), "median": median, "max": int(degrees.max())}


def _duplicates(graph: Graph, pairs: np.ndarray) -> int:
    keys = [pairs]
    if graph.edge_type is not None:
        keys.append(np.asarray(graph.edge_type))
    if graph.edge_time is not None:
        keys.append(np.asarray(graph.edge_time))
    order = np.lexsort(keys[::-1]) if len(keys) > 1 else np.argsort(pairs, kind="stable")
    same = np.ones(max(0, pairs.size - 1), bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    return int(same.sum())


def rows_alike(features: Any) -> int | None:
    """How many rows of a dense matrix `[n, F]` are equal to an earlier row; None where it is
    sparse, typed, or has no column."""
    if not hasattr(features, "dtype") or getattr(features, "ndim", 0) != 2:
        return None
    rows = np.asarray(features)
    if not rows.shape[1]:
        return None
    # Two sums of the bits with odd multipliers stand for a row: 128 bits, in chunks.
    bits = np.uint32 if rows.dtype == np.float32 else np.uint16
    with np.errstate(over="ignore"):
        odd = np.random.Generator(np.random.Philox(0)).integers(
            0, 2**63, (rows.shape[1], 2), dtype=np.uint64
        ) * np.uint64(2) + np.uint64(1)
        marks = np.empty((len(rows), 2), np.uint64)
        step = max(1, (1 << 22) // rows.shape[1])
        for at in range(0, len(rows), step):
            piece = np.ascontiguousarray(rows[at : at + step] + 0).view(bits)
            marks[at : at + step] = piece.astype(np.uint64) @ odd
    order = np.lexsort((marks[:, 1], marks[:, 0]))
    return int((marks[order][1:] == marks[order][:-1]).all(axis=1).sum())


def warnings(data: Plain, edges: EdgeFacts) -> list[dict[str, str]]:
    """What is to be warned of in a data set, with the facts of its edges: dicts with the `kind`
    of warning, and what it `says` in one line."""
    found = [*_of_edges(data, edges), *_of_labels(data), *_of_times(data), *_of_columns(data)]
    return [{"kind": kind, "says": says} for kind, says in found]


def _of_edges(data: Plain, edges: EdgeFacts) -> Iterator[tuple[str, str]]:
    graph = data.graph
    plain = graph.schema is None and "reverse" not in graph.edge_columns
    both = edges.both_ways + edges.one_way
    if plain and both and edges.one_way >= _ONE_WAY * both:
        yield (
            "edges_listed_once",
            f"{edges.one_way:,} of {both:,} edges have no reverse, so messages go from src to "
            "dst only: where edges have no direction, load with symmetric=true",
        )
    if edges.duplicates:
        alike = "ends" if graph.edge_time is None else "ends and time"
        yield (
            "duplicate_edges",
            f"{edges.duplicates:,} edges have the {alike} of an earlier one, and count twice: "
            "remove them, unless they are meant",
        )
    for name, column in graph.edge_columns.items():
        rows = np.asarray(column)
        if name == "label" or rows.dtype.kind != "f" or not np.isnan(rows).any():
            continue
        lacking = int(np.isnan(rows).reshape(len(rows), -1).any(axis=1).sum())
        yield (
            "missing_in_edge_column",
            f"the edge column {name} is missing (NaN) in {lacking:,} of {len(rows):,} edges: a "
            f"layer that reads it returns NaN. encode=edges.{name}:number fills a table's with "
            "0 and marks them",
        )
    if edges.isolated and graph.num_edges:
        yield (
            "isolated_nodes",
            f"{edges.isolated:,} of {graph.num_nodes:,} nodes have no edge to another node: "
            "only their own features tell of them",
        )


def _of_labels(data: Plain) -> Iterator[tuple[str, str]]:
    counts = label_counts(data)
    if not counts:
        return
    few: list[str] = []
    absent: dict[str, list[str]] = {"val": [], "test": []}
    for name, by_split in counts.items():
        if by_split["all"] and by_split["train"] < FEW:
            few.append(f"{name} {by_split['train']}")
        for split, names in absent.items():
            if not by_split[split] and by_split["all"]:
                names.append(name)
    if few:
        yield (
            "few_training_nodes",
            f"{len(few)} classes have fewer than {FEW} training nodes: {_shown(few)}",
        )
    for split, names in absent.items():
        if names and sum(each[split] for each in counts.values()):
            yield (
                "class_missing",
                f"{len(names)} classes have no node in {split}: {_shown(names)}; "
                "split=0.6,0.2,0.2 stratify=true gives each class its share",
            )


def label_counts(data: Plain) -> dict[str, dict[str, int]]:
    """The nodes of each class, by "train", "val", "test" and "all"; by the class's name or
    number. It is empty where labels are no classes, or there is no split."""
    labels = data.labels
    if labels is None or data.train_idx is None or are_numbers(labels):
        return {}
    own = labelled(labels)
    if not own.any():
        return {}
    number = labels.shape[1] if labels.ndim == 2 else int(labels.max()) + 1
    number = max(number, len(data.class_names or ()))
    names = data.class_names or tuple(map(str, range(number)))
    splits = {split: getattr(data, f"{split}_idx") for split in SPLITS}
    ids = {name: np.empty(0, int) if s is None else s for name, s in splits.items()}
    counts = {
        s: _count(labels[i], number) for s, i in (ids | {"all": np.flatnonzero(own)}).items()
    }
    return {
        str(name): {s: int(c[i]) for s, c in counts.items()} for i, name in enumerate(names)
    }


def _count(labels: np.ndarray, number: int) -> np.ndarray:
    if labels.ndim == 2:
        return np.nansum(labels, axis=0).astype(np.int64)
    return np.bincount(labels, minlength=number)


def _of_times(data: Plain) -> Iterator[tuple[str, str]]:
    graph, columns = data.graph, data.graph.edge_columns
    of_edges = columns.get("split")
    groups: list[tuple[str, Any, Any]] = []
    if graph.node_time is not None and data.train_idx is not None:
        numbers = np.full(graph.num_nodes, -1, np.int8)
        for number, split in enumerate(SPLITS):
            if (ids := getattr(data, f"{split}_idx")) is not None:
                numbers[ids] = number
        groups.append(("nodes", np.asarray(graph.node_time), numbers))
    if graph.edge_time is not None and of_edges is not None:
        groups.append(("edges", np.asarray(graph.edge_time), np.asarray(of_edges)))
    if data.label_table is not None:
        groups.append(("labels", data.label_table.time, data.label_table.split))
    for what, times, numbers in groups:
        trained = times[numbers == 0]
        for number, split in ((1, "val"), (2, "test")):
            if not (judged := times[numbers == number]).size or not trained.size:
                continue
            if late := int((trained > judged.min()).sum()):
                yield (
                    "training_after_split",
                    f"{late:,} of {trained.size:,} training {what} are later than the first of "
                    f"{split} ({_moment(judged.min(), data.time_unit)}): training sees the "
                    "future",
                )
    if data.label_table is not None and graph.edge_time is not None:
        first = np.asarray(graph.edge_time).min(initial=2**63 - 1)
        last = data.label_table.time.max(initial=-(2**63))
        if first >= last:
            yield (
                "no_edge_before_labels",
                f"no edge is earlier than a label: edges begin at "
                f"{_moment(first, data.time_unit)}, labels end at "
                f"{_moment(last, data.time_unit)}: are both counted in one unit (time_unit=)?",
            )
    if found := late_edges(data):
        count, end = found
        yield (
            "edges_after_split",
            f"{count:,} edges into training nodes are later than all training nodes "
            f"({_moment(end, data.time_unit)}): the model learns from edges that were not "
            "there yet",
        )


def _of_columns(data: Plain) -> Iterator[tuple[str, str]]:
    for name, accuracy in telling_features(data):
        yield (
            "label_in_feature",
            f"the feature {name} alone tells {accuracy:.1%} of the training labels: is it the "
            f"label? encode={name}:drop leaves it out of a table",
        )
    became = data.feature_columns
    tables = became if isinstance(became, Mapping) else {"": became} if became else {}
    for node_type, table in tables.items():
        for column in table.columns:
            name = f"{node_type}.{column.name}" if node_type else column.name
            if look_like_dates(column.categories):
                yield (
                    "dates_as_text",
                    f"the column {name} is text that looks like dates: encode={name}:date "
                    "reads it as dates",
                )
            if column.kind in ("category", "hash") and 2 < column.rows == column.distinct:
                yield (
                    "different_texts",
                    f"the column {name} has another text in each of {column.rows:,} rows: "
                    f"encode={name}:drop leaves names out",
                )
            if column.width and column.missing > column.rows / 2:
                yield (
                    "mostly_missing",
                    f"the column {name} is missing in {column.missing:,} of {column.rows:,} "
                    "rows",
                )


def _moment(time: Any, unit: str | None) -> str:
    return str(time) if unit is None else str(np.array(int(time)).astype(f"M8[{unit}]"))


def _shown(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


TELLING = 0.99
"""A feature whose one-rule accuracy is higher is warned of, if it also leaves at most a tenth
of the errors that the most frequent class alone would make."""
_BUCKET = 6  # Holte's least number of rows of one interval
_AT_ONCE = 1 << 24  # entries of dense columns at a time


def telling_features(data: Plain) -> Iterator[tuple[str, float]]:
    """The features that alone tell the labels of the training nodes, by `one_rule` above
    `TELLING` (labels that are numbers: by the square of the correlation), each with this
    accuracy. A column of a table counts as one feature, with all that it became."""
    labels, become = data.labels, data.feature_columns
    if labels is None or data.train_idx is None or labels.ndim != 1:
        return
    numbers = labels.dtype.kind == "f"
    for own, table, rows, train in _training_rows(data, data.train_idx):
        target = labels[train]
        if train.size < 2 * _BUCKET or np.unique(target).size < 2:
            continue
        most = np.unique(target, return_counts=True)[1].max()
        usual = 1.0 if numbers else 1 - most / target.size
        columns = become.get(own) if isinstance(become, Mapping) else become
        prefix = f"{own}." if own else ""
        for name, values in _columns(table, rows, columns):
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


def _training_rows(
    data: Plain, train: np.ndarray
) -> Iterator[tuple[str, Any, np.ndarray, np.ndarray]]:
    """For each node type that has training nodes, or once with "": its table or None, the rows
    of its training nodes, and these."""
    schema = data.graph.schema
    if data.features is None or schema is None or as_table(data.features).schema is None:
        yield "", data.features, train, train
        return
    tables, kind = as_table(data.features).by_type, schema.numbers(train)
    for number in np.unique(kind):
        name, own = schema.node_types[number][0], train[kind == number]
        yield name, tables[name], schema.places(own), own


def _columns(table: Any, rows: Any, become: Any) -> Iterator[tuple[str, np.ndarray]]:
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
    values = values.astype(np.float64)
    if values.min() == values.max():
        return 0.0
    return float(np.corrcoef(values, target)[0, 1] ** 2)
