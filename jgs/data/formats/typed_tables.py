"""A typed graph as tables in one folder, one for each node type and each relation.

  `nodes_<type>`: the nodes of a type (`jgs.data.table_graph`).
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
from collections.abc import Mapping
from pathlib import Path

from jgs.data import table_graph
from jgs.data.dataset import Plain
from jgs.data.edge_table import ALIASES, PAIRS, EdgeTable, Roles, named_after, read_edges
from jgs.data.label_table import name_unread
from jgs.data.text import column_names, is_number
from jgs.errors import InputError
from jgs.graph.schema import Relation

_FILE = re.compile(r"(nodes|edges|labels)_(.+?)(\.parquet|\.csv|\.csv\.gz|\.tsv|\.tsv\.gz)")

_log = logging.getLogger("jgs")


def recognises(path: Path) -> bool:
    """Whether it is a folder with a table of a type or of a relation."""
    files = (each for each in path.iterdir() if each.is_file()) if path.is_dir() else ()
    return any((m := _FILE.fullmatch(each.name)) and m[1] != "labels" for each in files)


def read(
    path: Path,
    labelled: bool = False,
    *,
    types: str | None = None,
    target: str | None = None,
    label_kind: str | None = None,
    both_ways: bool = True,
    features: str = "typed",
    rules: table_graph.TableRules,
) -> Plain:
    """The graph of the tables in the folder, with labels, a split and features if they have
    them.

    Args:
      labelled: whether nodes must have labels and a split.
      types: the names of node types without a table, with commas between.
      target: the node type whose labels and split are meant; None: the only one with labels.
      label_kind: "class" or "number", whatever the labels of edges and of nodes look like; or
        those of a table of labels at moments, if there is one.
      both_ways: whether to add each relation's reverse.
      features: "typed", or "padded" for one matrix (`jgs.data.values`).
      rules: how tables are read; `encode` names columns of nodes as `user.age`.

    Raises `InputError`.
    """
    files = _files(path)
    timed = files["labels"]
    declared = [] if types is None else [each.strip() for each in types.split(",")]
    nodes = {
        kind: table_graph.read_nodes(file, rules.of_type(kind, files["nodes"]))
        for kind, file in files["nodes"].items()
    }
    relations = _relations(path, files["edges"], {*nodes, *declared})
    unused = {*nodes, *declared} - {end for a, _, b in relations for end in (a, b)}
    if wrong := unused - set(nodes):
        raise InputError(
            f"every node type without a table in {path} must be an end of a relation",
            f"{min(wrong)!r}, which no table of edges names",
            "Correct the name, or remove the type.",
        )
    if unused:
        _log.warning("%s has no edges of the node type %s", path, ", ".join(sorted(unused)))
    edges = {
        one: _edges(file, one, nodes, None if timed else label_kind, rules)
        for one, file in sorted(relations.items())
    }
    ids = table_graph.ids_by_type(path, edges, nodes, declared)
    plain = table_graph.plain_of_tables(
        path.resolve().name,
        edges,
        ids,
        nodes,
        both_ways=both_ways,
        clock=rules.clock,
        features=features,
    )
    plain = table_graph.with_labels(plain, path, nodes, label_kind, ids, rules, timed, target)
    lacks = plain.label_table is None and (plain.labels is None or plain.train_idx is None)
    if labelled and lacks:
        raise InputError(
            f"a table of nodes in {path} must have the columns label and split",
            "none that has both",
            f"Add them, or train a task of edges, or embed; {table_graph.DRAW}",
        )
    return plain


def _files(folder: Path) -> dict[str, dict[str, Path]]:
    found: dict[str, dict[str, Path]] = {"nodes": {}, "edges": {}, "labels": {}}
    for path in sorted(folder.iterdir()):
        if path.is_file() and (match := _FILE.fullmatch(path.name)):
            kind, name = match.group(1, 2)
            known = found[kind].setdefault(name, path)
            if known != path:
                raise InputError(
                    f"{folder} must hold one table {kind}_{name}",
                    f"{known.name} and {path.name}",
                    "Remove those too many.",
                )
    if not found["edges"]:
        raise InputError(
            f"{folder} must hold tables edges_<source type>_<relation>_<target type>",
            "none",
            "Write one for each relation.",
        )
    name_unread(folder, [path for own in found.values() for path in own.values()])
    return found


def _relations(
    folder: Path, files: Mapping[str, Path], known: set[str]
) -> dict[Relation, Path]:
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
    """What `name` may mean: the relations with the most `known` types at their ends."""
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
    nodes: Mapping[str, table_graph.NodeTable],
    label_kind: str | None,
    rules: table_graph.TableRules,
) -> EdgeTable:
    ends = {"src": relation[0], "dst": relation[2]}
    named = {end: nodes[kind].ids for end, kind in ends.items() if kind in nodes}
    return read_edges(
        {"": path},
        Roles(**_end_names(path, relation, rules.reading.encoding)),
        label_kind=label_kind,
        apart=ends["src"] != ends["dst"],
        text=[end for end, ids in named.items() if ids.values.dtype == object],
        clock=rules.clock,
        reading=rules.reading,
        may_be_empty=True,
    )


def _end_names(path: Path, relation: Relation, encoding: str | None) -> dict[str, str]:
    names = column_names(path, encoding)
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
