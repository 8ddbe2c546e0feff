"""Tables of edges, and of nodes: files that end in `.parquet`, `.csv` or `.csv.gz`.

`jgs.data.edge_table` says what a table of edges has. A data set is one of these:
  a file: a table of edges, which may also end in `.tsv`, `.tsv.gz` or `.inter`;
  a folder with the table `edges`, and beside it, optionally, the table `nodes`;
  a folder with the tables of edges `train`, `val` (or `valid`) and `test`, of which one or both
    of the last two may be missing. They have the same columns.

`nodes` has one node a row (`jgs.data.table_graph`). Where its `id` is text and `src` and `dst`
are integers, or the other way round, they are compared as text (`NodeIds`). A `Dataset` needs
all columns but `time`. For `load_plain`, only `id` must be there. Without `nodes` the nodes are
those that edges name, in ascending order.

A folder may also have the table `labels`, of labels at moments (`jgs.data.label_table`). Then
`nodes` must have no column `label`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jgs.data import table_graph, text
from jgs.data.dataset import Plain
from jgs.data.edge_table import ALIASES, Roles, named_after, read_edges, two_types
from jgs.data.label_table import label_files, name_unread
from jgs.errors import InputError, refuse
from jgs.files.arrow import ENDINGS

_FILES = (*ENDINGS, ".tsv", ".tsv.gz", ".inter")
_TAB = (".tsv", ".tsv.gz")  # may be an edge list of SNAP, which has no line of names


def recognises(path: Path) -> bool:
    """Whether it is a file with such a name, which has a line of names, or a folder with one of
    the tables."""
    if path.is_dir():
        return bool(text.files_named(path, ("edges", "nodes", "train"), ENDINGS))
    if path.name.endswith(_TAB):
        first = text.first_line(path).strip()
        named = first[:1] not in (b"", b"#", b"%")
        return named and not first.split()[0].lstrip(b"-").isdigit()
    return path.name.endswith(_FILES)


def recognises_named(path: Path) -> bool:
    """Whether it may be a table whose columns the user names."""
    return recognises(path) if path.is_dir() else path.suffix != ".npz"


def read(
    path: Path,
    labelled: bool = False,
    *,
    roles: Roles,
    label_kind: str | None = None,
    src_type: str | None = None,
    dst_type: str | None = None,
    relation: str = "to",
    symmetric: bool = False,
    both_ways: bool | None = None,
    rules: table_graph.TableRules,
) -> Plain:
    """The graph of the table of edges, or of the folder, at `path`.

    Args:
      labelled: whether nodes must have labels, a split and features.
      roles: what the columns of the tables of edges are.
      label_kind: "class" or "number", whatever labels look like: those of the table `labels`,
        if there is one; or those of edges; or, where edges have none or nodes must be
        `labelled`, those of nodes.
      src_type, dst_type: the names of two types of nodes, if `src` and `dst` name nodes of
        two kinds. A column called after a type is that end. Each type has names of its own: in
        `node_ids` the user 17 is `user:17`. There must be no table of nodes.
      relation: the name of the relation from `src_type` to `dst_type`.
      symmetric: whether to add every edge's reverse and keep each edge once, as
        `Graph.symmetrized` does.
      both_ways: whether to add every edge's reverse, with its label, time, split and all other
        columns, and to keep parallel edges. None: only where there are two types.
      rules: how tables are read; `encode` names columns of edges as `edges.kind`.

    Raises `InputError`.
    """
    of_nodes, of_edges = rules.columns.of_edges()
    typed = src_type is not None or dst_type is not None
    both_ways = typed if both_ways is None else both_ways
    nodes_path, files = _files(path, labelled)
    labels = label_files(path) if path.is_dir() else []
    moments = text.at_most_one(f"{path} must hold one table of labels", labels)
    timed = {} if moments is None else {"": moments}
    if path.is_dir():
        name_unread(path, [nodes_path, *files.values(), *labels])
    nodes: dict[str, table_graph.NodeTable] = {}
    if nodes_path is not None:
        own = replace(rules, columns=of_nodes)
        nodes[""] = table_graph.read_nodes(nodes_path, own, labelled and not timed)
    if (src_type is None) != (dst_type is None) or (typed and (nodes or symmetric)):
        raise InputError(
            "src_type and dst_type must be given together, without a table of nodes and "
            "without symmetric",
            f"src_type={src_type}, dst_type={dst_type}, symmetric={symmetric} and "
            f"{nodes_path or 'no table of nodes'}",
            "Leave both out for nodes of one kind; both_ways=true adds reverse edges.",
        )
    labelless = not nodes or nodes[""].label is None
    refuse(
        (relation != "to" and not typed, "relation must be beside src_type and dst_type",
         f"relation={relation}", "Leave it out, or say the types."),
        (rules.drawn.split is not None and labelless and not timed,
         "the option split must be of nodes with labels", f"none in {path}",
         "Leave it out. Edges are dealt by a column split, or --test-share and --val-share."),
    )  # fmt: skip
    one = table_graph.UNTYPED
    if src_type is not None and dst_type is not None:
        one = two_types(src_type, dst_type, relation)
        first = next(iter(files.values()))
        named_by = text.column_names(first, rules.reading.encoding)
        header = roles.columns.split(",") if roles.columns else named_by
        for end, kind in (("src", src_type), ("dst", dst_type)):
            named = [] if end in {*header, *roles.given()} else named_after(header, kind)
            if len(named) == 1 and named[0] not in ALIASES[end]:
                roles = replace(roles, **{end: named[0].strip()})
    as_text = bool(nodes) and nodes[""].ids.values.dtype == object
    table = read_edges(
        files,
        roles,
        clock=rules.clock,
        reading=rules.reading,
        label_kind=None if labelled or timed else label_kind,
        apart=typed,
        text=("src", "dst") if as_text else (),
        encode=of_edges,
    )
    name = path.resolve().name
    for ending in () if path.is_dir() else _FILES:
        name = name.removesuffix(ending)
    plain = table_graph.plain_of_tables(
        name,
        {one: table},
        nodes=None if typed else nodes,
        both_ways=both_ways,
        symmetric=symmetric,
        clock=rules.clock,
    )
    plain = replace(plain, edge_feature_columns=table.became)
    if not timed and "label" in table.columns and not labelled:
        label_kind = None  # it is of the edges
    if plain.node_ids is None or not (nodes or timed):
        return plain
    names_of = {"": plain.node_ids}
    return table_graph.with_labels(plain, path, nodes, label_kind, names_of, rules, timed)


def _files(path: Path, labelled: bool) -> tuple[Path | None, dict[str, Path]]:
    if not path.is_dir() and labelled:
        raise InputError(
            "a data set of labelled nodes must have a table of them beside that of edges",
            path,
            "Make a folder of edges and nodes (jgs.data.formats.tables), or train a task of "
            "edges, or embed.",
        )
    if not path.is_dir():
        return None, {"": path}
    needed = labelled and not label_files(path)
    nodes = _table(path, "nodes") if needed or _has(path, "nodes") else None
    if _has(path, "edges") or not _has(path, "train"):
        return nodes, {"": _table(path, "edges")}
    return nodes, text.files_of_splits(path, ENDINGS, "table of the edges")


def _has(folder: Path, name: str) -> bool:
    return bool(text.files_named(folder, [name], ENDINGS))


def _table(folder: Path, name: str) -> Path:
    found = text.files_named(folder, [name], ENDINGS)
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one table {name}.parquet or {name}.csv",
            f"{len(found)} of them",
            "Put it there, or remove those too many.",
        )
    return found[0]
