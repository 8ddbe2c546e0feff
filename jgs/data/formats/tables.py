"""Tables of edges, and of nodes: files that end in `.parquet`, `.csv` or `.csv.gz`.

`jgs.data.edge_table` says what a table of edges has. A data set is one of these:
  a file: a table of edges, which may also end in `.tsv`, `.tsv.gz` or `.inter`;
  a folder with the table `edges`, and beside it, optionally, the table `nodes`;
  a folder with the tables of edges `train`, `val` (or `valid`) and `test`, of which one or both
    of the last two may be missing. They have the same columns.

`nodes` has one node a row:
  `id`: distinct integers or text, as in `src` and `dst`. Row `i` is node `i` of the graph.
      Where one table has text and the other integers, they are compared as text (`NodeIds`).
  `label`: integers from 0, or text; -1 or empty for none. Or numbers that are not all whole, of
      a regression; empty for none. Where a node can have several labels, a column `label:NAME`
      of 0 and 1 for each, empty where it is not known; or lists of them. They may also be
      numbers that are not all whole, of a regression of several.
  `split`: `train`, `val` or `test`; empty for none.
  `time`: optional; the node exists from then on (`node_time` of the graph). Whole numbers in
      the unit of the edges' times, or dates (`jgs.data.times`).
  all other columns, in order: the features, by the rule of `jgs.data.columns`.
A `Dataset` needs all others. For `load_plain`, only `id` must be there. Without `nodes` the
nodes are those that edges name, in ascending order.

A folder may also have the table `labels`, of labels at moments (`jgs.data.label_table`). Then
`nodes` must have no column `label`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from jgs.data.column_rule import MAX_CATEGORIES, ColumnRule
from jgs.data.columns import is_feature
from jgs.data.dataset import Dataset, Plain
from jgs.data.edge_table import ALIASES, named_after, read_edges
from jgs.data.label_columns import with_label
from jgs.data.label_table import label_files, read_label_table
from jgs.data.label_values import as_labels, check_labels, count_classes
from jgs.data.node_table import columns_of_nodes, features_of
from jgs.data.random_split import SplitRule
from jgs.data.text import first_line
from jgs.data.times import Clock
from jgs.data.values import class_labels
from jgs.errors import InputError
from jgs.graph import NodeIds, as_device
from jgs.graph.formats.arrow import Reading, column_names
from jgs.graph.formats.tables import ENDINGS, require

_NEEDED = ("id", "label", "split")
DRAW = "--data-options split=0.6,0.2,0.2 draws train, val and test."
_FILES = (*ENDINGS, ".tsv", ".tsv.gz", ".inter")
_TAB = (".tsv", ".tsv.gz")  # may be an edge list of SNAP, which has no line of names
_SPLITS = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


def is_tables(folder: Path) -> bool:
    """Whether `folder` has at least one of the tables `edges` and `nodes`."""
    return any(_found(folder, name) for name in ("edges", "nodes"))


def is_edge_table(path: Path) -> bool:
    """Whether it is a file, or a folder of files, that `load_plain` takes."""
    if path.is_dir():
        return is_tables(path) or bool(_found(path, "train"))
    if path.name.endswith(_TAB):
        first = first_line(path).strip()
        named = first[:1] not in (b"", b"#", b"%")
        return named and not first.split()[0].lstrip(b"-").isdigit()
    return path.name.endswith(_FILES)


def load_folder(
    folder: Path,
    *,
    symmetric: bool = False,
    encode: str | Mapping | None = None,
    max_categories: int = MAX_CATEGORIES,
    standardize: bool = False,
    normalize_features: bool = False,
    split: str | None = None,
    stratify: bool = False,
    split_seed: int = 0,
    label_kind: str | None = None,
    time_unit: str | None = None,
    time_scale: int = 1,
    ids: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """The data set of the tables `nodes` and `edges` in `folder`. It has `node_ids`, and
    `class_names` if labels are text or columns `label:NAME`.

    `label_kind` is "class" or "number", whatever the labels look like. `symmetric` adds every
    edge's reverse and keeps each edge once. `encode`, `max_categories`, `standardize` and
    `normalize_features` are the fields of `jgs.data.column_rule.ColumnRule`.
    `split="0.6,0.2,0.2"` draws a split in place of the column `split`, as
    `jgs.data.split_nodes` does with the key of `split_seed` and with `stratify`. `time_unit`
    and `time_scale` are those of `jgs.data.times.Clock`, `ids` and `encoding` those of
    `jgs.graph.formats.arrow.Reading`. Raises `InputError`.
    """
    clock = Clock(time_unit, time_scale).check()
    reading = Reading(ids, encoding).check()
    path, edges = _table(folder, "nodes"), _table(folder, "edges")
    rule = ColumnRule(encode, max_categories, standardize, normalize_features)
    rule, of_edges = rule.of_edges()
    drawn = SplitRule(split, stratify, split_seed)
    nodes, class_names = _read_nodes(path, rule, drawn, reading)
    require(str(path), nodes, _NEEDED[:2])
    require(str(path), nodes, _NEEDED[2:], f"Add it; {DRAW}")
    if not any(map(is_feature, nodes)):
        raise InputError(
            f"{path} must have columns of features beside {', '.join(_NEEDED)} and time",
            "none",
            "Add them; a column of ones will do.",
        )
    names = NodeIds(nodes["id"])
    table = read_edges(
        {"": edges},
        {},
        text=_text_ends(names),
        clock=clock,
        encode=of_edges,
        reading=reading,
    )
    node_time = _node_time(path, nodes, clock)
    rows, became = features_of(path, nodes, nodes["split"], rule)
    data = Dataset.from_arrays(
        table.graph(names, symmetric, both_ways=False, node_time=node_time),
        rows,
        nodes["label"],
        nodes["split"],
        name=folder.resolve().name,
        node_ids=names,
        class_names=class_names,
        label_kind=label_kind,
        time_unit=table.time_unit or clock.unit_of(nodes.get("time")),
    )
    return replace(data, feature_columns=became, edge_feature_columns=table.became)


def load_plain(
    path: Path,
    *,
    src: str | None = None,
    dst: str | None = None,
    label: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    columns: str | None = None,
    label_kind: str | None = None,
    src_type: str | None = None,
    dst_type: str | None = None,
    relation: str = "to",
    symmetric: bool = False,
    both_ways: bool | None = None,
    encode: str | Mapping | None = None,
    max_categories: int = MAX_CATEGORIES,
    standardize: bool = False,
    normalize_features: bool = False,
    split: str | None = None,
    stratify: bool = False,
    split_seed: int = 0,
    time_unit: str | None = None,
    time_scale: int = 1,
    leave_out: str | None = None,
    ids: str | None = None,
    encoding: str | None = None,
) -> Plain:
    """The data set of the table of edges, or of the folder, at `path`.

    Args:
      src, dst, label, time, weight: the names of these columns in the tables of edges.
      columns: the names of all columns, with commas between, where the tables of edges are text
        without a line of names.
      label_kind: "class" or "number", whatever the labels of edges look like; or those of the
        table `labels`, if there is one.
      src_type, dst_type: the names of two types of nodes, if `src` and `dst` name nodes of
        two kinds. A column called after a type is that end. Each type has names of its own: in
        `node_ids` the user 17 is `user:17`. There must be no table of nodes.
      relation: the name of the relation from `src_type` to `dst_type`.
      symmetric: whether to add every edge's reverse and keep each edge once, as
        `Graph.symmetrized` does.
      both_ways: whether to add every edge's reverse, with its label, time, split and all other
        columns, and to keep parallel edges. None: only where there are two types.
      encode, max_categories, standardize, normalize_features: what the columns of the table of
        nodes become; see `jgs.data.column_rule.ColumnRule`.
      split, stratify, split_seed: as of `load_folder`.
      time_unit, time_scale: how times are counted; see `jgs.data.times.Clock`.
      leave_out: the names of columns of edges that are not read, with commas between.
      ids, encoding: how text is read; see `jgs.graph.formats.arrow.Reading`.

    Raises `InputError`.
    """
    clock = Clock(time_unit, time_scale).check()
    reading = Reading(ids, encoding).check()
    rule = ColumnRule(encode, max_categories, standardize, normalize_features)
    rule, of_edges = rule.of_edges()
    drawn = SplitRule(split, stratify, split_seed)
    typed = src_type is not None or dst_type is not None
    both_ways = typed if both_ways is None else both_ways
    nodes_path, files = _files(path)
    nodes: dict[str, np.ndarray] = {}
    class_names = None
    if nodes_path is not None:
        nodes, class_names = _read_nodes(nodes_path, rule, drawn, reading)
    if (src_type is None) != (dst_type is None) or (typed and (nodes or symmetric)):
        raise InputError(
            "src_type and dst_type must be given together, without a table of nodes and "
            "without symmetric",
            f"src_type={src_type}, dst_type={dst_type}, symmetric={symmetric} and "
            f"{nodes_path or 'no table of nodes'}",
            "Leave both out for nodes of one kind; both_ways=true adds reverse edges.",
        )
    if symmetric and both_ways:
        raise InputError(
            "one of symmetric and both_ways must be true at most", "both", "Leave one out."
        )
    called = {"src": src, "dst": dst, "label": label, "time": time, "edge_weight": weight}
    for end, kind in (("src", src_type), ("dst", dst_type)) if typed else ():
        header = columns.split(",") if columns else column_names(next(iter(files.values())))
        own = [] if end in header or called[end] else named_after(header, kind or "")
        if len(own) == 1 and own[0] not in ALIASES[end]:
            called[end] = own[0].strip()
    names = None
    if nodes_path is not None:
        require(str(nodes_path), nodes, ["id"])
        names = NodeIds(nodes["id"])
    labels_path = _labels_path(path, nodes_path, nodes)
    table = read_edges(
        files,
        called,
        label_kind=label_kind if labels_path is None else None,
        columns=columns,
        apart=typed,
        text=() if names is None else _text_ends(names),
        clock=clock,
        leave_out=leave_out,
        encode=of_edges,
        reading=reading,
    )
    if src_type is not None and dst_type is not None:
        graph, names = table.bipartite(src_type, dst_type, relation, both_ways)
    else:
        names = NodeIds.of_edges(table.src, table.dst) if names is None else names
        node_time = None if nodes_path is None else _node_time(nodes_path, nodes, clock)
        graph = table.graph(names, symmetric, both_ways, node_time)
    name = path.resolve().name
    for ending in () if path.is_dir() else _FILES:
        name = name.removesuffix(ending)
    plain = Plain(name, graph, None, None, None, None, names, label_names=table.label_names)
    unit = table.time_unit or clock.unit_of(nodes.get("time"))
    plain = plain._replace(time_unit=unit, edge_feature_columns=table.became)
    if labels_path is not None:
        found, names_of = read_label_table(labels_path, names, clock, label_kind, reading)
        plain = plain._replace(label_table=found, class_names=names_of)
    if nodes_path is None:
        return plain
    return _with_nodes(plain, nodes_path, nodes, class_names, rule)


def _with_nodes(
    plain: Plain,
    path: Path,
    nodes: dict[str, np.ndarray],
    class_names: tuple[str, ...] | None,
    rule: ColumnRule,
) -> Plain:
    """The graph with what the table `nodes` has of features, labels and splits."""
    name = plain.name
    rows, became = features_of(path, nodes, nodes.get("split"), rule)
    if "label" in nodes and "split" in nodes:
        data = Dataset.from_arrays(
            plain.graph,
            rows,
            nodes["label"],
            nodes["split"],
            name=name,
            node_ids=plain.node_ids,
            class_names=class_names,
        )
        kept = ("label_names", "time_unit", "edge_feature_columns")
        found = Plain.of(data)._replace(**{name: getattr(plain, name) for name in kept})
    else:
        found = plain._replace(features=as_device(rows))
    if "label" in nodes and "split" not in nodes:
        numbers, texts = class_labels(name, nodes["label"])
        labels = as_labels(name, numbers)
        check_labels(name, labels, max(1, count_classes(labels)), len(labels))
        found = found._replace(labels=labels, class_names=class_names or texts)
    if not rows.shape[1]:
        return found._replace(features=None)
    return found._replace(feature_columns=became, filled=became.filled or None)


def _read_nodes(
    path: Path, rule: ColumnRule, drawn: SplitRule, reading: Reading
) -> tuple[dict[str, np.ndarray], tuple[str, ...] | None]:
    """The columns of the table of nodes, with a split as `drawn` asks; and the names of the
    classes where a node can have several, or None."""
    nodes, names = with_label(str(path), columns_of_nodes(path, rule, reading))
    split = drawn.column(nodes.get("label"), nodes.get("split"))
    return (nodes if split is None else nodes | {"split": split}), names


def _node_time(path: Path, nodes: dict[str, np.ndarray], clock: Clock) -> np.ndarray | None:
    """int64 `[N]`: when each node in the table `nodes` begins to exist, or None."""
    return clock.whole(str(path), nodes["time"], "row") if "time" in nodes else None


def _labels_path(
    path: Path, nodes_path: Path | None, nodes: dict[str, np.ndarray]
) -> Path | None:
    """The table of labels at moments beside the tables at `path`, or None."""
    files = label_files(path) if path.is_dir() else []
    if len(files) > 1:
        raise InputError(
            f"{path} must hold one table of labels",
            ", ".join(file.name for file in files),
            "Remove those too many.",
        )
    if files and "label" in nodes:
        raise InputError(
            f"labels must be in {files[0]}, or in the column label of {nodes_path}",
            "both",
            "Remove one; a label at a moment belongs into the first.",
        )
    return files[0] if files else None


def _text_ends(ids: NodeIds) -> tuple[str, ...]:
    """The ends of edges that are text in any case, beside nodes with these ids."""
    return ("src", "dst") if ids.values.dtype == object else ()


def _files(path: Path) -> tuple[Path | None, dict[str, Path]]:
    """The table of nodes, or None, and the tables of edges, as `read_edges` takes them."""
    if not path.is_dir():
        return None, {"": path}
    nodes = _table(path, "nodes") if _found(path, "nodes") else None
    if not (_found(path, "train") and not _found(path, "edges")):
        return nodes, {"": _table(path, "edges")}
    found = {}
    for split, names in _SPLITS.items():
        tables = [at for name in names for at in _found(path, name)]
        if len(tables) > 1:
            raise InputError(
                f"{path} must hold one table of the edges of the {split} split",
                ", ".join(at.name for at in tables),
                "Remove those too many.",
            )
        if tables:
            found[split] = tables[0]
    return nodes, found


def _found(folder: Path, name: str) -> list[Path]:
    return [at for end in ENDINGS if (at := folder / f"{name}{end}").is_file()]


def _table(folder: Path, name: str) -> Path:
    found = _found(folder, name)
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one table {name}.parquet or {name}.csv",
            f"{len(found)} of them",
            "Put it there, or remove those too many.",
        )
    return found[0]
