"""The labels of a folder of typed tables: of one type of nodes, or of its nodes at moments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from jgs.data.dataset import Plain, assemble
from jgs.data.label_table import LABEL_ENDINGS, read_label_table
from jgs.data.label_values import are_numbers, as_labels, check_labels, count_classes
from jgs.data.node_table import NodeTable
from jgs.data.times import Clock
from jgs.data.typed_values import labels_of_type
from jgs.data.values import class_labels, split_ids
from jgs.errors import InputError
from jgs.graph import NodeIds
from jgs.graph.formats.arrow import Reading

_FILE = re.compile(rf"(labels)_(.+?)({'|'.join(map(re.escape, LABEL_ENDINGS))})")


def named_tables(folder: Path, form: re.Pattern[str]) -> dict[str, dict[str, Path]]:
    """The files in `folder` whose names have the form, by its first group, such as `labels`,
    and by its second. Raises `InputError` for two of one name."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (match := form.fullmatch(path.name)):
            kind, name = match.group(1, 2)
            known = found.setdefault(kind, {}).setdefault(name, path)
            if known != path:
                raise InputError(
                    f"{folder} must hold one table {kind}_{name}",
                    f"{known.name} and {path.name}",
                    "Remove those too many.",
                )
    return found


def label_tables(folder: Path) -> dict[str, Path]:
    """The files `labels_<type>` in `folder`, by the type. Raises `InputError` for two of one
    type."""
    return named_tables(folder, _FILE).get("labels", {})


def with_labels(
    plain: Plain,
    folder: Path,
    ids: Mapping[str, NodeIds],
    nodes: Mapping[str, NodeTable],
    timed: Mapping[str, Path],
    target: str | None,
    label_kind: str | None,
    clock: Clock,
    reading: Reading,
) -> Plain:
    """The graph with the labels of the type `target`, or of the only one with labels: those in
    the tables of `nodes`, or in the tables of labels at moments `timed`, whose nodes have the
    names `ids`. Raises `InputError`."""
    labelled = [name for name, table in nodes.items() if table.label is not None]
    if timed and labelled:
        raise InputError(
            f"labels in {folder} must be at moments, or in tables of nodes",
            f"{next(iter(timed.values())).name} and the column label of nodes_{labelled[0]}",
            "Remove one.",
        )
    kind = _target(folder, list(timed) or labelled, target)
    if kind is None:
        return plain
    if not timed:
        return _with_labels(plain, kind, nodes[kind], label_kind)
    schema = plain.graph.schema
    assert schema is not None
    if kind not in ids:
        raise InputError(
            f"{timed[kind]} must be for a node type of the tables beside it",
            f"{kind!r} and types {', '.join(ids)}",
            "Rename it.",
        )
    table, names = read_label_table(timed[kind], ids[kind], clock, label_kind, reading)
    table = table._replace(nodes=table.nodes + table.nodes.dtype.type(schema.nodes(kind).start))
    return plain._replace(label_table=table, class_names=names)


def _target(folder: Path, labelled: list[str], target: str | None) -> str | None:
    """The type whose labels are meant, or None if there are no labels."""
    if target is None and len(labelled) < 2:
        return labelled[0] if labelled else None
    if target not in labelled:
        raise InputError(
            f"the labels in {folder} must be of one type, which the option target names if "
            "several have some",
            f"target {target} and labels of {', '.join(labelled) or 'none'}",
            "Correct the option.",
        )
    return target


def _with_labels(plain: Plain, kind: str, table: NodeTable, label_kind: str | None) -> Plain:
    """The graph with the labels, and the split if there is one, of the nodes of a type."""
    assert plain.graph.schema is not None
    assert table.label is not None
    nodes = plain.graph.schema.nodes(kind)
    what = str(table.path)
    numbers, class_names = class_labels(what, table.label)
    class_names = table.label_names or class_names
    own = as_labels(what, numbers, None if class_names else label_kind)
    label_kind = "number" if are_numbers(own) else "class"
    labels = labels_of_type(what, own, plain.graph.schema, kind, label_kind)
    number = len(class_names or ()) or max(1, count_classes(own))
    check_labels(what, own, number, len(nodes))
    plain = plain._replace(labels=labels, class_names=class_names)
    if table.split is None:
        return plain
    splits = (ids + nodes.start for ids in split_ids(what, table.split, len(nodes)))
    train, val, test = splits
    data = assemble(
        plain.name,
        plain.graph,
        plain.features,
        labels,
        train,
        val,
        test,
        num_classes=len(class_names) if class_names else None,
        class_names=class_names,
        label_kind=label_kind,
    )
    kept = ("node_ids", "label_names", "filled", "time_unit", "feature_columns")
    return Plain.of(data)._replace(**{name: getattr(plain, name) for name in kept})
