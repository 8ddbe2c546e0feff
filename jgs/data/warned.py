"""Warnings of what usually is a mistake in a data set. Each is measured on all of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jgs.data.column_values import look_like_dates
from jgs.data.dataset import Plain
from jgs.data.edge_facts import EdgeFacts
from jgs.data.label_values import are_numbers, labelled
from jgs.data.leaks import late_edges, telling_features
from jgs.data.values import SPLITS

FEW = 5
"""A class with fewer training nodes is warned of."""
_ONE_WAY = 0.95  # of the edges have no reverse: each seems to be listed once


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
