"""A table of edges, and the graph of one. One row is one edge; its columns:

  `src`, `dst`: its ends, integers or text (`jgs.NodeIds`).
  `label`: optional. Text (empty: none), booleans and whole numbers (from 0; -1 or empty: none)
      are classes. Numbers, of which one has a fraction, are numbers (empty or NaN: none); so is
      what a `.inter` file calls `float`.
  `time`: optional. Whole numbers, in any unit; or dates (`jgs.data.column_values`).
  `split`: optional. `train`, `val` or `test`; empty: the edge is only a message.
  `edge_weight`: optional; finite and not negative.
  all other columns: edge columns of the graph, which are numbers. The option `encode` makes
    numbers of text and dates, as `jgs.data.columns` says, where it names `edges.kind`.

The file is Parquet (`.parquet`), or text with commas (`.csv`, `.csv.gz`) or tabs (all others)
between the columns, whose first line names them. In RecBole's `.inter` files a name has its
type behind it, as in `rating:float`. `ALIASES` has other names of columns, which are taken
where a file lacks the first; two of them in one file are refused. Where no column is `src` but
one is `user_id`, `rating` is the label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import id_column, refuse_words
from jgs.data.column_values import Clock
from jgs.data.columns import ColumnRule, FeatureColumns, encoded
from jgs.data.label_values import edge_labels
from jgs.data.text import TextRule, column_names, first_line, is_number, unnamed
from jgs.data.values import SPLIT_NUMBERS, SPLITS, split_numbers
from jgs.errors import InputError, refusing, require_columns
from jgs.files.arrow import read_arrow, read_columns
from jgs.graph.schema import REVERSE, Relation

ROLES = ("src", "dst", "label", "time", "edge_weight")  # columns that may have other names
ALIASES = {
    "src": ("user_id", "source", "user"),
    "dst": ("item_id", "destination", "target", "item"),
    "time": ("timestamp", "ts", "unix_time", "day"),
    "edge_weight": ("weight",),
}
"""Other names of columns, as RecBole, TGB and others have them."""
PAIRS = (  # src, dst and time, where no column has a usual name of dst
    ("user_id", "genre", None),
    ("src", "subreddit", None),
    ("user_address", "token_address", None),
    ("nation", "trading nation", "year"),
    ("head", "tail", None),
    ("from", "to", None),
    ("subject", "object", None),
)
_RECBOLE = {"token": "token", "token_seq": "string", "float": "double"}  # types of columns


@dataclass(frozen=True)
class Roles:
    """What a user says of the columns of tables of edges; the options of a data set with these
    names.

    Fields:
      src, dst, label, time, weight: the names of these columns. None: as the module says.
      columns: the names of all columns, with commas between, of text files without a line of
        names.
      leave_out: the names of the columns that are not read, with commas between.
    """

    src: str | None = None
    dst: str | None = None
    label: str | None = None
    time: str | None = None
    weight: str | None = None
    columns: str | None = None
    leave_out: str | None = None

    def given(self) -> dict[str, str]:
        """The names of columns by role, of those of `ROLES` that the user names."""
        fields = ((role, getattr(self, role.removeprefix("edge_"))) for role in ROLES)
        return {role: name for role, name in fields if name is not None}


class EdgeTable(NamedTuple):
    """The edges of a table.

    Fields (`E` edges):
      what: what messages call it.
      src, dst: the columns of the names of the ends, `[E]`.
      weight: float `[E]`, or None.
      time: int64 `[E]`, or None.
      columns: the edge columns `[E, ...]` by name. `label` is int32 (-1: none) or float32 (NaN:
        none), and `split` int8: 0 train, 1 val, 2 test, -1 none.
      label_names: the names of the classes of `label`, or None unless they are text.
      time_unit: as in `jgs.data.Dataset`.
      became: what the columns became that `encode` names, or None.
    """

    what: str
    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None
    time: np.ndarray | None
    columns: dict[str, np.ndarray]
    label_names: tuple[str, ...] | None
    time_unit: str | None = None
    became: FeatureColumns | None = None

    @property
    def of_graph(self) -> dict[str, Any]:
        """Arguments of `Graph.from_edges`, where the ends are numbers of nodes."""
        own = {"src": self.src, "dst": self.dst, "edge_weight": self.weight}
        return own | {"edge_columns": self.columns, "edge_time": self.time}

    def take(self, rows: np.ndarray) -> EdgeTable:
        """The table of the edges in these rows."""
        return self.with_arrays({name: array[rows] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """All columns by name, `src`, `dst`, `edge_weight` and `time` among them."""
        own = {"src": self.src, "dst": self.dst, "edge_weight": self.weight, "time": self.time}
        return {name: a for name, a in own.items() if a is not None} | self.columns

    def with_arrays(self, found: dict[str, np.ndarray]) -> EdgeTable:
        """The table with these columns in place of its own, named as `arrays` names them."""
        rest = dict(found)
        src, dst = rest.pop("src"), rest.pop("dst")
        weight, time = rest.pop("edge_weight", None), rest.pop("time", None)
        return self._replace(src=src, dst=dst, weight=weight, time=time, columns=rest)


def two_types(src_type: str, dst_type: str, relation: str) -> Relation:
    """The relation between two types of nodes. Raises `InputError` if they are one."""
    if src_type == dst_type:
        raise InputError(
            "src_type and dst_type must be two types of nodes",
            repr(src_type),
            "Leave both out where src and dst are nodes of one kind.",
        )
    return src_type, relation, dst_type


def with_reverses(edges: EdgeTable) -> EdgeTable:
    """The edges, whose ends are numbers of nodes, and behind them the reverse of each, which
    has its weight, time and columns. A self-loop is its own reverse. The column `reverse`,
    bool, is True for the added ones."""
    src, dst = edges.src, edges.dst
    back = np.flatnonzero(src != dst)
    made = edges.take(np.concatenate([np.arange(src.size), back]))
    made.columns[REVERSE] = np.arange(made.src.size) >= src.size
    ends = np.concatenate([src, dst[back]]), np.concatenate([dst, src[back]])
    return made._replace(src=ends[0], dst=ends[1])


def read_edges(
    files: Mapping[str, Path],
    roles: Roles,
    *,
    clock: Clock,
    reading: TextRule,
    label_kind: str | None = None,
    apart: bool = False,
    text: Iterable[str] = (),
    encode: ColumnRule | None = None,
    may_be_empty: bool = False,
) -> EdgeTable:
    """The table of edges in one file, `{"": path}`, or in a file for each split.

    Args:
      files: by the names of the splits, in the order of `SPLIT_NUMBERS`. The edges of one file
        then have the split that it is named for.
      roles: what the columns are.
      clock, reading: how times are counted, and how text is read.
      label_kind: "class" or "number", whatever the labels look like; None: as above.
      apart: whether `src` and `dst` name different nodes. Where they name the same, and only
        one of the two looks like integers, both are read as text.
      text: those of `src` and `dst` that are text in any case.
      encode: what the edge columns become that it names; text and dates without an entry are
        refused. The edges of the split `train` are the rows for training, or all, if none is.
        None: columns stay as they are.
      may_be_empty: whether the table may have no row. It then has no columns but the ends.

    Raises `InputError`.
    """
    what = ", ".join(str(path) for path in files.values())
    as_text = [*text, *(encode.text() if encode is not None else ())]
    tables = [_read_table(path, roles, as_text, reading) for path in files.values()]
    groups = (("src",), ("dst",)) if apart else (("src", "dst"),)
    if mixed := [end for group in groups if _is_mixed(tables, group) for end in group]:
        as_text = sorted({*as_text, *mixed})
        tables = [_read_table(path, roles, as_text, reading) for path in files.values()]
    import pyarrow  # `read_arrow` has said what to do where it is not installed

    _check_alike(files, tables)
    rule = f"the columns of {what} must be of the same types"
    with refusing(pyarrow.ArrowException, rule, "Write all as text, or all as numbers."):
        table = pyarrow.concat_tables(tables, promote_options="permissive")
        if "label" in table.column_names and label_kind != "number":
            at = table.column_names.index("label")
            label = table.column(at)
            if pyarrow.types.is_integer(label.type):  # NumPy's integers have no NaN
                table = table.set_column(at, "label", label.cast("int64").fill_null(-1))
    if table.num_rows == 0 and may_be_empty:
        none = np.empty(0, object)
        return EdgeTable(what, none, none, None, None, {}, None)
    if table.num_rows == 0:
        raise InputError(f"{what} must have edges", "no row", "Write a row for each edge.")
    if label_kind is None and all(path.name.endswith(".inter") for path in files.values()):
        at = table.schema.get_field_index("label")
        if at >= 0 and pyarrow.types.is_floating(table.schema.field(at).type):
            label_kind = "number"  # the file calls it `float`
    splits = None
    if list(files) != [""]:
        numbers = [SPLIT_NUMBERS[split] for split in files]
        splits = np.repeat(np.array(numbers, np.int8), [t.num_rows for t in tables])
    columns = read_columns(table)
    return edges_of(what, columns, label_kind, clock, encode=encode, splits=splits)


def edges_of(
    what: str,
    columns: Mapping[str, np.ndarray],
    label_kind: str | None,
    clock: Clock,
    *,
    encode: ColumnRule | None = None,
    splits: np.ndarray | None = None,
) -> EdgeTable:
    """The table `what` of these columns, each `[n]`, by their names as the module has them;
    `splits` int8 `[n]` are numbers of splits, in place of a column. The other arguments are
    those of `read_edges`. Raises `InputError`."""
    back = {name: role for role, name in called(what, list(columns), Roles()).items()}
    found = {back.get(name, name): column for name, column in columns.items()}
    for end in ("src", "dst"):
        found[end] = end_names(f"{end} in {what}", found[end])
    label_names = None
    if "label" in found:
        found["label"], label_names = edge_labels(what, found["label"], label_kind)
    if splits is not None:
        found["split"] = splits
    elif "split" in found:
        rule = f"the split of an edge in {what} must be {', '.join(SPLITS)}, or empty"
        found["split"] = split_numbers(found["split"], "edge", rule)
    special, became = (*ROLES, "split"), None
    if encode is not None:
        found, became = encoded(what, found, encode, special)
        for name, column in found.items():
            kind = "date" if column.dtype.kind == "M" else "category"
            way = f"--data-options encode=edges.{name}"
            remedy = f"Say what it becomes, {way}:{kind}, or leave it out, {way}:drop."
            if name not in special:
                refuse_words(f"in {what} the edge column {name!r}", column, remedy)
    given = found.pop("time", None)
    time = None if given is None else clock.whole(what, given)
    unit = None if given is None else clock.unit_of(given)
    src, dst, weight = found.pop("src"), found.pop("dst"), found.pop("edge_weight", None)
    return EdgeTable(what, src, dst, weight, time, found, label_names, unit, became)


def _names(listed: str | None) -> list[str]:
    return [] if listed is None else [name.strip() for name in listed.split(",")]


def _read_table(path: Path, roles: Roles, text: Iterable[str], reading: TextRule) -> Any:
    """The Arrow table in a file, with columns named as the module says."""
    header = None if roles.columns is None else _names(roles.columns)
    types, skip = {}, 0
    if header is None and path.name.endswith(".inter"):
        fields = first_line(path).decode(errors="replace").strip().split("\t")
        pairs = [field.partition(":")[::2] for field in fields]
        header, skip = [name for name, _ in pairs], 1
        types = {name: _RECBOLE[kind] for name, kind in pairs if kind in _RECBOLE}
    names = column_names(path, reading.encoding) if header is None else header
    own = called(path, names, roles)
    types |= {own.get(name, name): "string" for name in text}
    ends = [own["src"], own["dst"]]
    table = read_arrow(path, types, header, skip, ids=ends, **reading.arguments)
    require_columns(str(path), table.column_names, without := _names(roles.leave_out))
    return renamed(path, table.drop_columns(without), {n: role for role, n in own.items()})


def renamed(path: Path, table: Any, names: Mapping[str, str]) -> Any:
    """The Arrow table in a file, whose columns get these names. Raises `InputError`."""
    new = [names.get(name, name) for name in table.column_names]
    twice = [name for name in new if new.count(name) > 1]
    if twice or REVERSE in new:
        raise InputError(
            f"{path} must have one column of each name, and none that means {REVERSE!r}",
            f"{(twice or [REVERSE])[0]!r} among {', '.join(map(repr, table.column_names))}",
            "Rename or remove the other one.",
        )
    return table.rename_columns(new)


def named_after(names: Iterable[str], kind: str) -> list[str]:
    """Those of the names of columns that are a node type's: `user`, `user_id`, `UserID`."""
    kind, *letters = ("".join(filter(str.isalnum, n)).lower() for n in (kind, *names))
    return [n for n, own in zip(names, letters, strict=True) if own in (kind, f"{kind}id")]


def called(path: Any, found: list[str], roles: Roles) -> dict[str, str]:
    """What each of `ROLES` that the table `path` with these columns has is called there. Raises
    `InputError`."""
    given = roles.given()
    if found and not given and all(map(is_number, found)):
        raise unnamed(path, found)
    usual = {}
    for role, others in ALIASES.items():
        named = [name for name in others if name in found and name not in given.values()]
        if role in found or role in given or not named:
            continue
        if len(named) > 1:
            raise InputError(
                f"one column of {path} must mean {role!r}",
                " and ".join(map(repr, named)),
                f"Say which by --data-options {role}={named[0]}.",
            )
        usual[role] = named[0]
    if not {"dst", *ALIASES["dst"]} & set(found) and "dst" not in given:
        columns = next((each for each in PAIRS if set(each[:2]) <= set(found)), ())
        for role, name in zip(("src", "dst", "time"), columns, strict=False):
            if name in found and role not in given:
                usual[role] = name
    if usual.get("src") == "user_id" and "rating" in found and "label" not in found:
        usual["label"] = "rating"
    own = {role: given.get(role) or usual.get(role, role) for role in ROLES}
    require_columns(str(path), found, [own["src"], own["dst"], *given.values()])
    if len(set(given.values())) < len(given):
        raise InputError(
            "each option that names a column must name another one",
            ", ".join(f"{role}={name}" for role, name in given.items()),
            "Correct them.",
        )
    taken = set(given.values())
    return {r: n for r, n in own.items() if n in found and (r in given or n not in taken)}


def _is_mixed(tables: list[Any], ends: Iterable[str]) -> bool:
    from pyarrow import types

    kinds = [table.column(end).type for table in tables for end in ends]
    text = (types.is_string(kind) or types.is_large_string(kind) for kind in kinds)
    return any(text) and any(map(types.is_integer, kinds))


def _check_alike(files: Mapping[str, Path], tables: list[Any]) -> None:
    paths, first = list(files.values()), {*tables[0].column_names, "label"}
    for path, table in zip(paths, tables, strict=True):
        names = {*table.column_names, "label"}
        if list(files) != [""] and "split" in names:
            raise InputError(
                f"{path} must have no column 'split', for its name says it",
                "one",
                "Remove the column, or write one table of all edges.",
            )
        if odd := sorted(names ^ first):
            raise InputError(
                f"{path} must have the columns of {paths[0]}",
                f"{odd[0]!r} in only one of them",
                "Write the same columns in both.",
            )


def end_names(what: str, values: np.ndarray) -> np.ndarray:
    """The names of nodes in a column, int64 or objects that are text."""
    names = id_column(what, values, in_file=True)
    if names.dtype == object and (names == "").any():
        at = int(np.argmax(names == ""))
        raise InputError(f"{what} must name a node", f"nothing in row {at}", "Name it.")
    return names
