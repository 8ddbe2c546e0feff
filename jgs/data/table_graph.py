"""Tables of the nodes of one type, and the graph of tables of edges, of nodes and of labels. A
graph without types is one of a single type, `""`, with the relation `UNTYPED`.

One row of a table of nodes is one node; its columns:
  `id`: distinct integers or text (`jgs.NodeIds`). Row `i` is the `i`-th node of the type.
  `label`: optional; integers from 0, or text; -1 or empty for none. Or numbers that are not all
    whole, of a regression; empty for none. Where a node can have several labels or numbers, a
    column `label:NAME` for each (`jgs.data.label_values`), or lists of them.
  `split`: optional; `train`, `val` or `test`; empty for none.
  `time`: optional; the node exists from then on. Whole numbers, or dates
    (`jgs.data.column_values`).
  all other columns, in order: the features, float32, by the rule of `jgs.data.columns`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import id_column, refuse_where, refuse_words
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule, FeatureColumns, is_feature
from jgs.data.dataset import Plain
from jgs.data.edge_table import EdgeTable, with_reverses
from jgs.data.label_table import read_label_table
from jgs.data.label_values import class_labels, is_missing, with_label
from jgs.data.splits import SplitRule
from jgs.data.text import TextRule
from jgs.data.values import as_chosen
from jgs.errors import InputError, require_columns
from jgs.files.arrow import check_digits, read_arrow, read_columns
from jgs.graph import Graph, NodeIds, TypedFeatures, as_device
from jgs.graph.schema import Relation

UNTYPED: Relation = ("", "", "")
_log = logging.getLogger("jgs")

DRAW = "--data-options split=0.6,0.2,0.2 draws train, val and test."


@dataclass(frozen=True)
class TableRules:
    """How tables are read; the options of a data set are those of these fields.

    Fields:
      columns: what the columns of nodes become, and those of edges that `encode` names.
      drawn: the split of nodes.
      clock: how times are counted.
      reading: how text is read.
    """

    columns: ColumnRule = field(default_factory=ColumnRule)
    drawn: SplitRule = field(default_factory=SplitRule)
    clock: Clock = field(default_factory=Clock)
    reading: TextRule = field(default_factory=TextRule)

    def of_type(self, node_type: str, types: Collection[str]) -> TableRules:
        """The rules for the table of one node type; see `ColumnRule.of_type`."""
        return replace(self, columns=self.columns.of_type(node_type, types))


class NodeTable(NamedTuple):
    """The nodes of a table.

    Fields (`n` nodes):
      path: the table's file.
      ids: their names.
      label, split, time: these columns `[n]`, or None; `label` may be `[n, C]`.
      features: float32 `[n, F]`, or None if there are no columns for them.
      columns: what each of their columns became.
      label_names: the names of `C` labels of which a node can have several, or None.
    """

    path: Path
    ids: NodeIds
    label: np.ndarray | None
    split: np.ndarray | None
    features: np.ndarray | None
    columns: FeatureColumns
    time: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None


def read_nodes(path: Path, rules: TableRules, labelled: bool = False) -> NodeTable:
    """The nodes of the table at `path`. Where they must be `labelled`, they must have a label,
    a split and features. Raises `InputError`."""
    types = dict.fromkeys(rules.columns.text(), "string")
    table = read_arrow(path, types, ids=["id"], **rules.reading.arguments)
    if len(set(table.column_names)) < len(table.column_names):
        raise InputError(
            f"{path} must have one column of each name",
            ", ".join(map(repr, table.column_names)),
            "Rename or remove the other one.",
        )
    return nodes_of(path, read_columns(table), rules, labelled)


def nodes_of(
    path: Path, columns: dict[str, np.ndarray], rules: TableRules, labelled: bool = False
) -> NodeTable:
    """The nodes of the table at `path` with these columns; see `read_nodes`."""
    found, label_names = with_label(str(path), columns)
    split = rules.drawn.column(found.get("label"), found.get("split"))
    if labelled:
        require_columns(str(path), found, ("id", "label"))
        known = found if split is None else [*found, "split"]
        require_columns(str(path), known, ["split"], f"Add it; {DRAW}")
        if not any(map(is_feature, found)):
            raise InputError(
                f"{path} must have columns of features beside id, label, split and time",
                "none",
                "Add them; a column of ones will do.",
            )
    require_columns(str(path), found, ["id"])
    if not len(found["id"]):
        raise InputError(f"{path} must have nodes", "no row", "Write a row for each node.")
    ids = ids_of_column(path, found["id"])
    # The rows for training, as `split_numbers` has them: spaces around a name do not count.
    train = None if split is None else np.array([str(n).strip() == "train" for n in split])
    became = FeatureColumns.fit(found, **asdict(rules.columns), train=train, name=str(path))
    rows = became.encode(found, str(path)) if became.columns else None
    label, time = found.get("label"), found.get("time")
    return NodeTable(path, ids, label, split, rows, became, time, label_names)


def ids_of_column(path: Path, column: np.ndarray) -> NodeIds:
    """The names of the nodes in a table at `path`. Raises `InputError`."""
    if column.dtype.kind in "fO":  # integers have none missing
        unnamed = np.array([is_missing(each) for each in column.tolist()], bool)
        rule = f"every node in {path} must have an id"
        refuse_where(unnamed, np.full(unnamed.size, "none"), "row", rule, "Name it.")
    try:
        return NodeIds(id_column("the ids of nodes", column, in_file=True))
    except InputError as error:
        raise InputError(f"{path}: {error.rule}", error.value, error.remedy) from None


def ids_of(
    edges: Mapping[Relation, EdgeTable], nodes: Mapping[str, NodeTable]
) -> dict[str, NodeIds]:
    """The names of the nodes of each type, in the order in which relations name the types. A
    type without a table has the nodes that edges name, in ascending order."""
    columns: dict[str, list[np.ndarray]] = {}
    for (source, _, target), table in edges.items():
        for kind, column in ((source, table.src), (target, table.dst)):
            columns.setdefault(kind, []).append(column)
    named = columns | {kind: [] for kind in nodes}
    return {
        kind: nodes[kind].ids if kind in nodes else NodeIds.of_edges(*ends)
        for kind, ends in named.items()
    }


def ids_by_type(
    where: Path,
    edges: Mapping[Relation, EdgeTable],
    nodes: Mapping[str, NodeTable],
    declared: Collection[str],
) -> dict[str, NodeIds]:
    """The names of the nodes of each type, in alphabetical order of the types. A log says which
    types have no table in `where` and are not `declared`."""
    found = ids_of(edges, nodes)
    if new := sorted(found.keys() - nodes.keys() - set(declared)):
        _log.warning(
            "%s has no table of nodes of the type %s: its nodes are those that edges name",
            where,
            ", ".join(new),
        )
    return dict(sorted(found.items()))


def plain_of_tables(
    name: str,
    edges: Mapping[Relation, EdgeTable],
    ids: Mapping[str, NodeIds] | None = None,
    nodes: Mapping[str, NodeTable] | None = None,
    *,
    both_ways: bool,
    symmetric: bool = False,
    clock: Clock | None = None,
    features: str = "typed",
) -> Plain:
    """The graph of these tables, with features and without labels.

    Args:
      ids: the names of the nodes of each type, in the order of types; None: by `ids_of`.
      nodes: the tables of nodes by type; None where there cannot be any.
      both_ways: whether to add every edge's reverse, which of types is a relation.
      symmetric: of a graph without types, as of `Graph.from_edges`.
      clock: how the times of nodes are counted.
      features: those of types, "typed" or "padded" (`jgs.data.values`).

    Raises `InputError`.
    """
    clock, tables = clock or Clock(), nodes or {}
    if symmetric and both_ways:
        raise InputError(
            "one of symmetric and both_ways must be true at most", "both", "Leave one out."
        )
    begun = {
        kind: clock.whole(str(table.path), table.time, "row")
        for kind, table in tables.items()
        if table.time is not None
    }
    label_names = label_names_of(edges.values())
    typed = UNTYPED not in edges
    edges = _aligned(edges) if typed and nodes is not None else edges
    units = {table.time_unit for table in edges.values() if table.time is not None}
    units |= {clock.unit_of(tables[kind].time) for kind in begun}
    unit = units.pop() if len(units) == 1 else None
    graph, ids = _graph(edges, ids, tables, begun, both_ways, symmetric)
    names = typed_ids(ids) if typed else ids[""]
    plain = Plain(name, graph, node_ids=names, label_names=label_names, time_unit=unit)
    became = {kind: t.columns for kind, t in tables.items() if t.features is not None}
    rows: dict[str, Any] = {kind: tables[kind].features for kind in became}
    if not typed and became:
        own = as_device(rows[""]) if rows[""].shape[1] else None
        filled = became[""].filled or None
        return replace(plain, features=own, feature_columns=became[""], filled=filled)
    if graph.schema is None or nodes is None:
        return plain
    filled = {f"{k}.{c}": n for k, t in tables.items() for c, n in t.columns.filled.items()}
    if filled:
        shown = ", ".join(f"{column} {count}" for column, count in filled.items())
        _log.info("%s: missing values were filled with 0: %s", name, shown)
    made = TypedFeatures.from_dict(graph.schema, rows)
    plain = replace(plain, features=made, feature_columns=became, filled=filled)
    return as_chosen(plain, features)


def typed_ids(ids: Mapping[str, NodeIds]) -> NodeIds:
    """The names `<type>:<id>` of the nodes of all types, in order."""
    return NodeIds.of_later(sum(map(len, ids.values())), partial(_typed_names, dict(ids)))


def _typed_names(ids: Mapping[str, NodeIds]) -> np.ndarray:
    names = [f"{kind}:{each}" for kind, own in ids.items() for each in own.values.tolist()]
    return np.array(names, object)


def _graph(
    edges: Mapping[Relation, EdgeTable],
    ids: Mapping[str, NodeIds] | None,
    nodes: Mapping[str, NodeTable],
    begun: Mapping[str, np.ndarray],
    both_ways: bool,
    symmetric: bool,
) -> tuple[Graph, Mapping[str, NodeIds]]:
    ids = ids_of(edges, nodes) if ids is None else ids
    places = {kind: f" (a {kind} of {table.path})" for kind, table in nodes.items() if kind}
    pairs = {}
    for one, table in edges.items():
        src, dst = (
            ids[kind].nodes(column, f"{end} in {table.what}{places.get(kind, '')}")
            for end, kind, column in (("src", one[0], table.src), ("dst", one[2], table.dst))
        )
        pairs[one] = src, dst
    if UNTYPED in edges:
        own = edges[UNTYPED]._replace(src=src, dst=dst)
        own = with_reverses(own) if both_ways else own
        more: dict[str, Any] = {"node_time": begun.get(""), "symmetric": symmetric}
        return Graph.from_edges(**own.of_graph, num_nodes=len(ids[""]), **more), ids
    weights = {one: t.weight for one, t in edges.items() if t.weight is not None}
    times = {one: t.time for one, t in edges.items() if t.time is not None}
    if times:
        times |= {one: np.empty(0, np.int64) for one, t in edges.items() if not t.src.size}
    if times and len(times) < len(edges):
        timed, other = next(iter(times)), next(one for one in edges if one not in times)
        raise InputError(
            "all relations must have times, or none",
            f"times in {edges[timed].what} and none in {edges[other].what}",
            "Add a column time, or remove the others; an early time is an edge always there.",
        )
    graph = Graph.from_relations(
        {kind: len(own) for kind, own in ids.items()},
        pairs,
        weights or None,
        edge_columns={one: table.columns for one, table in edges.items()},
        edge_time=times or None,
        node_time=dict(begun) or None,
        both_ways=both_ways,
    )
    return graph, ids


def _aligned(edges: Mapping[Relation, EdgeTable]) -> dict[Relation, EdgeTable]:
    """The tables with all columns; edges that lack one have 0, and no label and no split."""
    found: dict[Relation, dict[str, np.ndarray]] = {one: {} for one in edges}
    for name in sorted({name for table in edges.values() for name in table.columns}):
        given = {one: t.columns[name] for one, t in edges.items() if name in t.columns}
        for one, array in given.items():
            refuse_words(f"the edge column {name!r} in {edges[one].what}", array)
        dtype = np.result_type(*(array.dtype for array in given.values()))
        shapes = {array.shape[1:] for array in given.values()}
        kinds = {array.dtype.kind for array in given.values()}
        for array in given.values():
            if dtype.kind == "f" and array.dtype.kind in "iu":
                check_digits(name, array, "the numbers of another table")
        if len(shapes) > 1 or (name == "label" and len(kinds) > 1):
            raise InputError(
                f"the column {name!r} must be alike in all tables of edges",
                " and ".join(sorted(f"{a.dtype}{list(a.shape[1:])}" for a in given.values())),
                "Convert it, or rename one.",
            )
        none = -1.0 if name in ("label", "split") else 0.0
        none = np.nan if name == "label" and dtype.kind == "f" else none
        for one, table in edges.items():
            lacking = np.full((table.src.size, *next(iter(shapes))), none, dtype)
            found[one][name] = given.get(one, lacking)
    return {one: table._replace(columns=found[one]) for one, table in edges.items()}


def label_names_of(edges: Iterable[EdgeTable]) -> tuple[str, ...] | None:
    """The names of the classes of the edges' labels, or None unless these are text. Raises
    `InputError` where several files have some."""
    files = {table.what: table for table in edges if "label" in table.columns}
    labelled = [*files.values()]
    named = [table for table in labelled if table.label_names is not None]
    if named and len(labelled) > 1:
        raise InputError(
            "one table of edges must have all labels that are text",
            " and ".join(table.what for table in labelled[:2]),
            "Number the classes in both, or remove one of the columns.",
        )
    return named[0].label_names if named else None


def with_labels(
    plain: Plain,
    where: Path,
    nodes: Mapping[str, NodeTable],
    label_kind: str | None,
    ids: Mapping[str, NodeIds],
    rules: TableRules,
    timed: Mapping[str, Path],
    target: str | None = None,
) -> Plain:
    """The graph with the labels of the type `target`, or of the only one with labels: those in
    the tables of `nodes`, or in the tables of labels at moments `timed`, whose nodes have the
    names `ids`. Raises `InputError`."""
    labelled = [kind for kind, table in nodes.items() if table.label is not None]
    if timed and labelled:
        raise InputError(
            f"labels must be in {next(iter(timed.values()))}, or in the column label of "
            f"{nodes[labelled[0]].path}: all must be at moments, or in tables of nodes",
            "both",
            "Remove one; a label at a moment belongs into the first.",
        )
    having = list(timed) or labelled
    if target is None and len(having) < 2:
        if not having:
            return plain
        target = having[0]
    if target not in having:
        raise InputError(
            f"the labels in {where} must be of one type, which the option target names if "
            "several have some",
            f"target {target} and labels of {', '.join(having) or 'none'}",
            "Correct the option.",
        )
    if not timed:
        own = nodes[target]
        what, labels = str(own.path), own.label
        of_edges = label_kind == "number" and "label" in plain.graph.edge_columns
        made = Plain.of_arrays(
            what,
            plain.graph,
            labels={target: labels} if target else labels,
            splits=own.split,
            class_names=own.label_names,
            label_kind=None if of_edges and class_labels(what, labels)[1] else label_kind,
        )
        fields = ("labels", "train_idx", "val_idx", "test_idx", "class_names")
        return replace(plain, **{field: getattr(made, field) for field in fields})
    if target not in ids:
        raise InputError(
            f"{timed[target]} must be for a node type of the tables beside it",
            f"{target!r} and types {', '.join(ids)}",
            "Rename it.",
        )
    table, names = read_label_table(timed[target], ids[target], label_kind, rules)
    if target and plain.graph.schema is not None:
        first = table.nodes.dtype.type(plain.graph.schema.nodes(target).start)
        table = table._replace(nodes=table.nodes + first)
    return replace(plain, label_table=table, class_names=names)
