"""Tables of edges with a column of relations: Neo4j's CSV, Hetionet, PrimeKG, and triples with
a line of names.

A file ends in `.csv`, `.tsv`, `.sif` (each also with `.gz`) or `.parquet`; `.csv` has commas
between the columns, others have tabs. Its line of names has one of these sets of columns:

  `:START_ID`, `:END_ID` and perhaps `:TYPE`: Neo4j's relationships. Other names may have a type
    behind them, such as `since:int`. Columns of `:IGNORE` are not read. Without `:TYPE` the
    file's name is the relation. `:START_ID(Person)` names nodes of the ID space Person.
  `source`, `metaedge`, `target`: Hetionet's edges. The type of a node is in its name, before
    `::`, as in `Gene::9021`.
  `x_index`, `relation`, `y_index`, `x_type`, `y_type`: PrimeKG. It lists each edge in both
    directions, so no reverse is added. Its columns of names and sources are not read.
  `head`, `relation`, `tail`, perhaps `head_type` and `tail_type`; or `subject`, `predicate`,
    `object`.

All other columns are as in tables of edges (`jgs.data.edge_table`). Nodes without a type are of
the type `entity`, or of the type that their ID space names. There is a relation for each triple
of a source type, a name and a target type that has edges.

A folder has Neo4j's relationships, in one file or several, and perhaps its nodes: tables with
`:ID`, the name of a node, and perhaps `:LABEL`, its type. Or it has a table of Hetionet's edges
and one of its nodes, `id`, `name`, `kind`. Other columns of nodes are features, as in
`jgs.data.table_graph`. Of several labels, `Movie;Sequel`, the first is the type, and a log says
how many nodes have several. Without `:LABEL` the type is the ID space or the file's name.

`node_ids` has the names `<type>:<id>`. Types, relations and reverses are those of
`jgs.data.formats.typed_tables`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import refuse_where
from jgs.data import table_graph
from jgs.data.dataset import Plain
from jgs.data.edge_table import EdgeTable, edges_of
from jgs.data.label_values import is_missing
from jgs.data.text import TextRule, column_names
from jgs.errors import InputError, require_columns
from jgs.files.arrow import read_arrow, read_columns
from jgs.graph import NodeIds
from jgs.graph.schema import Relation

_log = logging.getLogger("jgs")

_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".sif", ".sif.gz", ".parquet")
_TYPE = "entity"
_ARROW = dict.fromkeys(("int", "long", "short", "byte"), "int64")
_ARROW |= {"float": "double", "double": "double", "string": "string", "char": "string"}
_FIELD = re.compile(r"([^:]*):([A-Za-z_]+)(?:\[\])?(?:\(([^)]*)\))?(?:\{.*\})?")
_NAMED = ("src", "dst", "id")
_KINDS = {"START_ID": "src", "END_ID": "dst", "TYPE": "relation", "ID": "id", "LABEL": "kind"}


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are.

    Fields:
      names: what each column is called in the file, by its role: `src`, `dst`, `relation`,
        `src_type` and `dst_type`; or `id` and `kind` of a table of nodes.
      rename: what a property is called in the graph, by its name in the file.
      types: Arrow's types of columns, by their names in the file.
      unread: the columns that are not read.
      spaces: the ID spaces of `src`, `dst` and `id`.
      separator: what ends the type within the name of a node, or None.
      twice: whether the table lists each edge in both directions.
    """

    names: dict[str, str]
    rename: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    spaces: dict[str, str] = field(default_factory=dict)
    separator: str | None = None
    twice: bool = False


_PRIMEKG = dict(src="x_index", relation="relation", dst="y_index")
_KNOWN = (
    Columns(dict(src="source", relation="metaedge", dst="target"), separator="::"),
    Columns(
        _PRIMEKG | dict(src_type="x_type", dst_type="y_type"),
        unread=tuple(
            ["display_relation", *(f"{e}_{c}" for e in "xy" for c in ("id", "name", "source"))]
        ),
        twice=True,
    ),
    Columns(
        dict(src="head", relation="relation", dst="tail", src_type="head_type")
        | dict(dst_type="tail_type")
    ),
    Columns(dict(src="head", relation="relation", dst="tail")),
    Columns(dict(src="subject", relation="predicate", dst="object")),
    Columns(dict(id="id", kind="kind"), unread=("name",)),
)


def recognises(path: Path) -> bool:
    """Whether it is such a table of edges, or a folder with Neo4j's or Hetionet's."""
    if not path.is_dir():
        return _is_edges(_columns(path))
    found = [columns for file in _files(path) if _is_edges(columns := _columns(file))]
    return any(each.separator or "src" in each.spaces for each in found if each)


def read(
    path: Path,
    *,
    both_ways: bool | None = None,
    target: str | None = None,
    label_kind: str | None = None,
    leave_out: str | None = None,
    rules: table_graph.TableRules,
) -> Plain:
    """The typed graph of the table or the folder at `path`.

    `both_ways` adds each relation's reverse; None: unless the layout lists both directions.
    `leave_out` names columns of edges that are not read, with commas between. The other options
    are those of `jgs.data.formats.typed_tables.read`. Raises `InputError`.
    """
    of_nodes, of_edges = rules.columns.of_edges()
    without = [] if leave_out is None else [name.strip() for name in leave_out.split(",")]
    rows = {
        file: _read(file, path, without, rules.reading)
        for file in (_files(path) if path.is_dir() else [path])
    }
    named = [(t.columns, n) for t in rows.values() for n in _NAMED if n in t.columns]
    if any(columns[name].dtype == object for columns, name in named):
        for columns, name in named:  # `01` beside `1` is another node
            columns[name] = columns[name].astype(str).astype(object)
    tables = {file: table for file, table in rows.items() if "id" in table.columns}
    nodes, spaces = _nodes(tables, replace(rules, columns=of_nodes))
    edges: dict[Relation, EdgeTable] = {}
    wholes = []
    for file, table in rows.items():
        if "id" in table.columns:
            continue
        typed = _typed(file, table, spaces)
        whole = edges_of(str(file), table.columns, label_kind, rules.clock, encode=of_edges)
        wholes.append(whole)
        for one, at in typed.items():
            edges[one] = _joined(edges.get(one), whole.take(at))
    if not edges:
        raise InputError(f"{path} must have edges", "no row", "Write a row for each edge.")
    table_graph.label_names_of(wholes)  # which refuses names of several files
    if both_ways is None:
        both_ways = not any(table.of.twice for table in rows.values())
    declared = {end for a, _, b in edges for end in (a, b)} if not nodes else set()
    edges = dict(sorted(edges.items()))
    ids = table_graph.ids_by_type(path, edges, nodes, declared)
    name = path.resolve().name if path.is_dir() else _stem(path)
    plain = table_graph.plain_of_tables(
        name, edges, ids, nodes, both_ways=both_ways, clock=rules.clock
    )
    return table_graph.with_labels(plain, path, nodes, label_kind, ids, rules, {}, target)


class RelationRows(NamedTuple):
    """A table as it was read.

    Fields:
      columns: `[n]` each, by role or by name.
      texts: Arrow's texts `[n]` of `relation`, `src_type`, `dst_type` and `kind`, which are
        there.
      of: what the table's columns are.
    """

    columns: dict[str, np.ndarray]
    texts: dict[str, Any]
    of: Columns


Space = tuple[NodeIds, np.ndarray]
"""The nodes of an ID space: their ids, and the type of each."""


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_file() and p.name.endswith(_ENDINGS))


def _stem(path: Path) -> str:
    return path.name[: -max(len(end) for end in _ENDINGS if path.name.endswith(end))]


def _columns(path: Path, encoding: str | None = None) -> Columns | None:
    if not path.is_file() or not path.name.endswith(_ENDINGS):
        return None
    header = column_names(path, encoding)
    known = (each for each in _KNOWN if set(each.names.values()) <= set(header))
    return _of_neo4j(header) or next(known, None)


def _of_neo4j(header: list[str]) -> Columns | None:
    found = Columns({})
    for name in header:
        match = _FIELD.fullmatch(name)
        if match is None:
            continue
        own, kind, space = match.groups()
        arrow = _ARROW.get(kind.lower())
        if role := _KINDS.get(kind):
            found.names[role] = name
            found.spaces[role] = space or ""
            arrow = None
        elif kind == "IGNORE":
            found = replace(found, unread=(*found.unread, name))
        elif own:
            found.rename[name] = own
        if arrow is not None and kind != "IGNORE":
            found.types[name] = arrow
    ends = {"src", "dst"} <= set(found.names)
    return found if ends or "id" in found.names else None


def _is_edges(columns: Columns | None) -> bool:
    return columns is not None and "src" in columns.names


def _read(path: Path, where: Path, without: list[str], reading: TextRule) -> RelationRows:
    of = _columns(path, reading.encoding)
    if of is None:
        raise InputError(
            f"every table in {where} must have columns of edges or of nodes",
            f"{path.name} with {', '.join(map(repr, column_names(path)[:6]))}",
            "Move it elsewhere, or name the table of edges as the data set.",
        )
    words = ("relation", "src_type", "dst_type", "kind")
    types = {of.names[role]: "string" for role in words if role in of.names}
    named = [of.names[role] for role in _NAMED if role in of.names]
    types |= of.types | dict.fromkeys(named, "token")
    table = read_arrow(path, types, ids=named, **reading.arguments)
    if _is_edges(of):
        require_columns(str(path), table.column_names, without)
        table = table.drop_columns(without)
    table = table.drop_columns([name for name in of.unread if name in table.column_names])
    require_columns(str(path), table.column_names, of.names.values())
    back = of.rename | {name: role for role, name in of.names.items()}
    names = [back.get(name, name) for name in table.column_names]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(
            f"{path} must have one column of each name", repr(twice[0]), "Rename one."
        )
    table = table.rename_columns(names)
    texts = {role: _texts(path, role, table.column(role)) for role in words if role in names}
    if of.separator:
        for end in ("src", "dst"):
            texts[f"{end}_type"] = _before(path, end, table.column(end), of.separator)
    columns = read_columns(table.drop_columns([role for role in words if role in names]))
    return RelationRows(columns, texts, of)


def _texts(path: Path, role: str, column: Any) -> Any:
    import pyarrow.compute as pc

    texts = column.cast("string").fill_null("").combine_chunks()
    none = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    rule = f"every row of {path} must have a {role.replace('_', ' of ')}"
    if role != "kind":
        refuse_where(none, np.full(len(none), "nothing"), "row", rule, "Write it.")
    return texts.dictionary_encode()


def _before(path: Path, end: str, column: Any, separator: str) -> Any:
    import pyarrow.compute as pc

    column = column.cast("string").fill_null("")
    rule = f"{end} in {path} must be a type, {separator} and an id, as in Gene{separator}9021"
    has = pc.match_substring(column, separator).to_numpy()
    refuse_where(~has, column.to_numpy(), "row", rule, "Correct it.")
    types = pc.replace_substring_regex(column, f"{separator}.*$", "")
    return _texts(path, f"{end}_type", types)


def _nodes(
    tables: Mapping[Path, RelationRows], rules: table_graph.TableRules
) -> tuple[dict[str, table_graph.NodeTable], dict[str, Space]]:
    parts: dict[str, list[tuple[Path, dict[str, np.ndarray]]]] = {}
    spaces: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for path, table in tables.items():
        ids, space = table.columns["id"], table.of.spaces.get("id", "")
        labels = table.texts["kind"].to_pylist() if "kind" in table.texts else [""] * len(ids)
        if several := sum(";" in label for label in labels):
            text = "%s: %s nodes have several labels; the first is their type"
            _log.warning(text, path, several)
        other = space or _stem(path)
        firsts = {text: text.partition(";")[0].strip() or other for text in set(labels)}
        types = np.array([firsts[label] for label in labels], object)
        spaces.setdefault(space, []).append((ids, types))
        for kind in sorted(set(firsts.values())):
            own = {name: column[types == kind] for name, column in table.columns.items()}
            if len(set(firsts.values())) > 1:  # nodes of other types have the columns they lack
                own = {n: c for n, c in own.items() if not all(map(is_missing, c.tolist()))}
            parts.setdefault(kind, []).append((path, own))
    known = {
        kind: table_graph.nodes_of(
            few[0][0], _stacked(f"the tables of {kind}", few), rules.of_type(kind, parts)
        )
        for kind, few in parts.items()
    }
    made = {}
    for space, some in spaces.items():
        ids, kinds = map(np.concatenate, zip(*some, strict=True))
        made[space] = table_graph.ids_of_column(next(iter(tables)).parent, ids), kinds
    return known, made


def _stacked(
    what: str, parts: Sequence[tuple[Any, dict[str, np.ndarray]]]
) -> dict[str, np.ndarray]:
    first, columns = parts[0]
    for path, others in parts[1:]:
        if odd := sorted(set(columns) ^ set(others)):
            raise InputError(
                f"{what} must have the same columns",
                f"{odd[0]!r} in only one of {first} and {path}",
                "Write it in both, or in none.",
            )
    return {name: np.concatenate([own[name] for _, own in parts]) for name in columns}


def _typed(
    path: Path, table: RelationRows, spaces: Mapping[str, Space]
) -> dict[Relation, np.ndarray]:
    import pyarrow

    count = len(table.columns["src"])
    keys = {"relation": table.texts.get("relation", pyarrow.repeat(_stem(path), count))}
    for end in ("src", "dst"):
        space, role = table.of.spaces.get(end, ""), f"{end}_type"
        keys[role] = table.texts.get(role, pyarrow.repeat(space or _TYPE, count))
        if space in spaces and role not in table.texts:
            ids, types = spaces[space]
            keys[role] = types[ids.nodes(table.columns[end], f"{end} in {path}")]
    rows = pyarrow.table({**keys, "row": np.arange(count)})
    found = rows.group_by([*keys], use_threads=False).aggregate([("row", "list")])
    ends = [found.column(key).to_pylist() for key in ("src_type", "relation", "dst_type")]
    lists = found.column("row_list")
    names = zip(*ends, strict=True)
    return {one: rows.values.to_numpy() for one, rows in zip(names, lists, strict=True)}


def _joined(first: EdgeTable | None, other: EdgeTable) -> EdgeTable:
    if first is None:
        return other
    parts = [(table.what, table.arrays()) for table in (first, other)]
    return first.with_arrays(_stacked("two tables of one relation", parts))
