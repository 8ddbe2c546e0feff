"""A typed graph as tables in one folder, one for each node type and each relation.

  `nodes_<type>`: the nodes of a type (`jgs.data.node_table`).
  `edges_<source type>_<relation>_<target type>`: the edges of a relation
    (`jgs.data.edge_table`). The ends are `src` and `dst`, or columns called after the types,
    such as `user`, `user_id` and `UserID`, or their other names, or else the first two.
    `edges_<source type>_<target type>` has the relation `<source type>_<target type>`.

The files end in `.parquet`, `.csv`, `.csv.gz`, `.tsv` or `.tsv.gz`. Names of types and
relations may have underscores. The types that have a table of nodes, or that the option `types`
names, are known: the name of a table of edges is read with as many of them as it can be. A type
may have no table of nodes. Its name is then a single word, or in `types`, and its nodes are
those that edges name, in ascending order. A table's name that can be read in two ways is
refused. A type with a table may be an end of no relation, and a relation may have no edge.

Every edge must name nodes of its relation's types that are in their tables. Types are in
alphabetical order, and so are relations. With `both_ways` each relation has a reverse,
`rev_<relation>`, whose edges have the columns of the given ones. If one relation has times, all
must. Weights that are missing are 1. Where a relation lacks a column that another one has, its
edges have 0 there, and no label and no split.

Features are `jgs.graph.TypedFeatures`. Nodes have the names `<type>:<id>` in `node_ids`,
because nodes of different types may have equal ids. Labels are those of one type: where several
have a column `label`, the option `target` names it. A table `labels_<type>` has labels at
moments (`jgs.data.label_table`), and no table of nodes has a column `label` then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.column_rule import MAX_CATEGORIES, ColumnRule
from jgs.data.dataset import Dataset, Plain
from jgs.data.edge_table import ALIASES, PAIRS, EdgeTable, named_after, read_edges
from jgs.data.formats import tables
from jgs.data.formats.typed_labels import label_tables, named_tables, with_labels
from jgs.data.node_table import NodeTable, read_nodes
from jgs.data.padded import as_chosen
from jgs.data.random_split import SplitRule
from jgs.data.text import is_number
from jgs.data.times import Clock
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds, TypedFeatures
from jgs.graph.checks import refuse_words
from jgs.graph.formats.arrow import Reading, column_names
from jgs.graph.formats.tables import check_digits
from jgs.graph.schema import Relation

_FILE = re.compile(r"(nodes|edges)_(.+?)(\.parquet|\.csv|\.csv\.gz|\.tsv|\.tsv\.gz)")

_log = logging.getLogger("jgs")


def is_typed_tables(folder: Path) -> bool:
    """Whether `folder` has a table of a type or of a relation, and none of all nodes or
    edges."""
    return not tables.is_tables(folder) and any(
        _FILE.fullmatch(path.name) for path in folder.iterdir() if path.is_file()
    )


def load_plain(
    folder: Path,
    *,
    types: str | None = None,
    target: str | None = None,
    label_kind: str | None = None,
    both_ways: bool = True,
    encode: str | Mapping | None = None,
    max_categories: int = MAX_CATEGORIES,
    standardize: bool = False,
    normalize_features: bool = False,
    split: str | None = None,
    stratify: bool = False,
    split_seed: int = 0,
    features: str = "typed",
    time_unit: str | None = None,
    time_scale: int = 1,
    ids: str | None = None,
    encoding: str | None = None,
) -> Plain:
    """The graph of the tables in `folder`, with labels, a split and features if they have them.

    Args:
      types: the names of node types without a table, with commas between.
      target: the node type whose labels and split are meant; None: the only one with labels.
      label_kind: "class" or "number", whatever the labels of edges and of nodes look like; or
        those of a table of labels at moments, if there is one.
      both_ways: whether to add each relation's reverse.
      encode, max_categories, standardize, normalize_features: what the columns of the tables of
        nodes become; see `jgs.data.column_rule.ColumnRule`. `encode` names them as `user.age`.
      split, stratify, split_seed: as of `jgs.data.formats.tables.load_folder`.
      features: "typed", or "padded" for one matrix (`jgs.data.padded`).
      time_unit, time_scale: how times are counted; see `jgs.data.times.Clock`.
      ids, encoding: how text is read; see `jgs.graph.formats.arrow.Reading`.

    Raises `InputError`.
    """
    clock = Clock(time_unit, time_scale).check()
    reading = Reading(ids, encoding).check()
    timed = label_tables(folder)
    kind_of_edges = None if timed else label_kind
    files = _files(folder)
    declared = [] if types is None else [each.strip() for each in types.split(",")]
    rule = ColumnRule(encode, max_categories, standardize, normalize_features)
    drawn = SplitRule(split, stratify, split_seed)
    nodes = {
        name: read_nodes(path, rule.of_type(name, files["nodes"]), drawn, reading)
        for name, path in files["nodes"].items()
    }
    relations = _relations(folder, files["edges"], {*nodes, *declared})
    unused = {*nodes, *declared} - {end for a, _, b in relations for end in (a, b)}
    if wrong := unused - set(nodes):
        raise InputError(
            f"every node type without a table in {folder} must be an end of a relation",
            f"{min(wrong)!r}, which no table of edges names",
            "Correct the name, or remove the type.",
        )
    if unused:
        _log.warning("%s has no edges of the node type %s", folder, ", ".join(sorted(unused)))
    edges = {
        one: _edges(path, one, nodes, kind_of_edges, clock, reading)
        for one, path in sorted(relations.items())
    }
    names_of_labels = label_names(edges.values())
    plain, names = plain_of_tables(folder, edges, nodes, both_ways, clock, features, declared)
    plain = plain._replace(label_names=names_of_labels)
    return with_labels(plain, folder, names, nodes, timed, target, label_kind, clock, reading)


def plain_of_tables(
    where: Path,
    edges: Mapping[Relation, EdgeTable],
    nodes: Mapping[str, NodeTable],
    both_ways: bool,
    clock: Clock,
    features: str = "typed",
    declared: Collection[str] = (),
) -> tuple[Plain, dict[str, NodeIds]]:
    """The typed graph of these tables, which come from `where`, with features and without
    labels; and the names of the nodes by type. A log says which types have no table and are
    not `declared`. Raises `InputError`."""
    names = {name: table.ids for name, table in nodes.items()} | _ids_of_edges(edges, nodes)
    if new := sorted(names.keys() - nodes.keys() - set(declared)):
        _log.warning(
            "%s has no table of nodes of the type %s: its nodes are those that edges name",
            where,
            ", ".join(new),
        )
    names = {name: names[name] for name in sorted(names)}
    graph = _graph(edges, names, nodes, both_ways, clock)
    assert graph.schema is not None
    given = {name: t.features for name, t in nodes.items() if t.features is not None}
    name = where.resolve().name
    made = TypedFeatures.from_dict(graph.schema, given)
    plain = Plain(
        name,
        graph,
        None,
        None,
        None,
        as_chosen(name, made, features),
        typed_ids(names),
        filled={f"{n}.{c}": k for n, t in nodes.items() for c, k in t.columns.filled.items()},
        feature_columns={n: t.columns for n, t in nodes.items() if t.features is not None},
    )
    if plain.filled:
        shown = ", ".join(f"{column} {count}" for column, count in plain.filled.items())
        _log.info("%s: missing values were filled with 0: %s", where, shown)
    units = {table.time_unit for table in edges.values() if table.time is not None}
    units |= {clock.unit_of(table.time) for table in nodes.values() if table.time is not None}
    return plain._replace(time_unit=units.pop() if len(units) == 1 else None), names


@wraps(load_plain, assigned=(), updated=())  # its options alone
def load_folder(folder: Path, **options: Any) -> Dataset:
    """The data set of the tables in `folder`, one of which must have the columns `label` and
    `split`, or be one of labels at moments. The options are those of `load_plain`. Raises
    `InputError`."""
    plain = load_plain(folder, **options)
    if plain.label_table is None and (plain.labels is None or plain.train_idx is None):
        raise InputError(
            f"a table of nodes in {folder} must have the columns label and split",
            "none that has both",
            f"Add them, or train a task of edges, or embed; {tables.DRAW}",
        )
    return plain.dataset()


def typed_ids(ids: Mapping[str, NodeIds]) -> NodeIds:
    """The names `<type>:<id>` of the nodes of all types, in order."""
    names = [f"{kind}:{each}" for kind, own in ids.items() for each in own.values.tolist()]
    return NodeIds.of_known(np.array(names, object))


def _files(folder: Path) -> dict[str, dict[str, Path]]:
    """The tables of nodes and those of edges, by what is in their names behind the kind."""
    found: dict[str, dict[str, Path]] = {"nodes": {}, "edges": {}}
    found |= named_tables(folder, _FILE)
    if not found["edges"]:
        raise InputError(
            f"{folder} must hold tables edges_<source type>_<relation>_<target type>",
            "none",
            "Write one for each relation.",
        )
    return found


def _relations(
    folder: Path, files: Mapping[str, Path], known: set[str]
) -> dict[Relation, Path]:
    """The relation that each table of edges has by its name."""
    found: dict[Relation, Path] = {}
    for name, path in files.items():
        readings = _readings(name, known)
        if len(readings) != 1:
            ways = " or ".join(f"({', '.join(one)})" for one in readings)
            raise InputError(
                f"{path.name} in {folder} must name two node types and a relation in one way; "
                f"known types are {', '.join(sorted(known)) or 'none'}",
                ways or "no type at one of its ends",
                "Rename it, or name the types without a table of nodes by the option types.",
            )
        (one,) = readings
        if one in found:
            raise InputError(
                f"{folder} must hold one table of ({', '.join(one)})",
                f"{found[one].name} and {path.name}",
                "Rename one.",
            )
        found[one] = path
    return found


def _readings(name: str, known: set[str]) -> list[Relation]:
    """All relations that `name` may mean, as (source type, relation, target type): those with
    the most `known` types at their ends. The names of other types are single words."""
    words = name.split("_")
    found: list[list[Relation]] = [[], [], []]  # by the number of known types
    for i in range(1, len(words)):
        for j in range(i, len(words)):
            source, target = "_".join(words[:i]), "_".join(words[j:])
            new = [kind for kind in (source, target) if kind not in known]
            if source and target and not any("_" in kind for kind in new):
                found[2 - len(new)].append((source, "_".join(words[i:j]) or name, target))
    return next((readings for readings in reversed(found) if readings), [])


def _edges(
    path: Path,
    relation: Relation,
    nodes: Mapping[str, NodeTable],
    label_kind: str | None,
    clock: Clock,
    reading: Reading,
) -> EdgeTable:
    ends = {"src": relation[0], "dst": relation[2]}
    text = [
        end
        for end, kind in ends.items()
        if kind in nodes and nodes[kind].ids.values.dtype == object
    ]
    apart = ends["src"] != ends["dst"]
    return read_edges(
        {"": path},
        _end_names(path, relation),
        label_kind=label_kind,
        apart=apart,
        text=text,
        clock=clock,
        reading=reading,
        may_be_empty=True,
    )


def _end_names(path: Path, relation: Relation) -> dict[str, str | None]:
    """What the columns of the ends are called in a table of edges; {}: as in other tables."""
    names = column_names(path)
    own = [named_after(names, kind) for kind in (relation[0], relation[2])]
    unclear = {*own[0]} & {*own[1]}
    usual = [{*ALIASES[end]} & set(names) - unclear for end in ("src", "dst")]
    own = [[], []] if unclear else own
    known = [own[i] or sorted(usual[i] - {*own[1 - i]}) for i in (0, 1)]
    paired = not any(own) and any({*pair[:2]} <= {*names} for pair in PAIRS)
    as_usual = all(known) and all(map(set.issuperset, usual, known))
    if len(names) > 1 and (paired or as_usual or {"src", "dst"} & set(names)):
        return {}
    rest = [name for name in names[:2] if name not in known[0] + known[1]]
    ends = [one or rest for one in known] if any(known) else [rest[:1], rest[1:]]
    if any(len(one) != 1 for one in ends) or all(map(is_number, names)):
        raise InputError(
            f"{path} must have a column for each end of an edge",
            f"columns {', '.join(map(repr, names)) or 'none'}",
            "Call the two src and dst, in a line of names.",
        )
    return {"src": ends[0][0], "dst": ends[1][0]}


def _ids_of_edges(
    edges: Mapping[Relation, EdgeTable], nodes: Mapping[str, NodeTable]
) -> dict[str, NodeIds]:
    """The ids of the types that have no table of nodes."""
    columns: dict[str, list[np.ndarray]] = {}
    for (source, _, target), table in edges.items():
        for kind, column in ((source, table.src), (target, table.dst)):
            if kind not in nodes:
                columns.setdefault(kind, []).append(column)
    return {kind: NodeIds.of_edges(*ends) for kind, ends in columns.items()}


def _graph(
    edges: Mapping[Relation, EdgeTable],
    ids: Mapping[str, NodeIds],
    nodes: Mapping[str, NodeTable],
    both_ways: bool,
    clock: Clock,
) -> Graph:
    pairs, weights, times = {}, {}, {}
    for one, table in edges.items():
        source, _, target = one
        pairs[one] = (
            ids[source].nodes(table.src, _end_of("src", table, source, nodes)),
            ids[target].nodes(table.dst, _end_of("dst", table, target, nodes)),
        )
        if table.weight is not None:
            weights[one] = table.weight
        if table.time is not None:
            times[one] = table.time
    if times:
        times |= {one: np.empty(0, np.int64) for one, t in edges.items() if not t.src.size}
    if times and len(times) < len(edges):
        timed, other = next(iter(times)), next(one for one in edges if one not in times)
        raise InputError(
            "all relations must have times, or none",
            f"times in {edges[timed].what} and none in {edges[other].what}",
            "Add a column time, or remove the others; an early time is an edge always there.",
        )
    begun = {
        kind: clock.whole(str(table.path), table.time, "row")
        for kind, table in nodes.items()
        if table.time is not None
    }
    return Graph.from_relations(
        {kind: len(own) for kind, own in ids.items()},
        pairs,
        weights or None,
        edge_columns=_columns(edges),
        edge_time=times or None,
        node_time=begun or None,
        both_ways=both_ways,
    )


def _end_of(end: str, table: EdgeTable, kind: str, nodes: Mapping[str, NodeTable]) -> str:
    where = f" (a {kind} of {nodes[kind].path})" if kind in nodes else ""
    return f"{end} in {table.what}{where}"


def _columns(edges: Mapping[Relation, EdgeTable]) -> dict[Relation, dict[str, np.ndarray]]:
    """The edge columns of every relation, with the same names in all."""
    names = sorted({name for table in edges.values() for name in table.columns})
    found: dict[Relation, dict[str, np.ndarray]] = {one: {} for one in edges}
    for name in names:
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
        for one, table in edges.items():
            shape = (table.src.size, *next(iter(shapes)))
            lacking = np.full(shape, _lacking(name, dtype), dtype)
            found[one][name] = given.get(one, lacking)
    return found


def _lacking(name: str, dtype: np.dtype) -> float:
    """What edges have in a column that the table of their relation lacks."""
    if name == "label" and dtype.kind == "f":
        return np.nan
    return -1 if name in ("label", "split") else 0


def label_names(edges: Iterable[EdgeTable]) -> tuple[str, ...] | None:
    """The names of the classes of the edges' labels, or None unless these are text."""
    labelled = [table for table in edges if "label" in table.columns]
    named = [table for table in labelled if table.label_names is not None]
    if named and len(labelled) > 1:
        raise InputError(
            "one table of edges must have all labels that are text",
            " and ".join(table.what for table in labelled[:2]),
            "Number the classes in both, or remove one of the columns.",
        )
    return named[0].label_names if named else None
