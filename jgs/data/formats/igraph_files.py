"""GraphML (`.graphml`) and GML (`.gml`), read by igraph.

A graph is directed if the file says so; an undirected edge goes both ways. Node `i` is the
`i`-th in the file. `node_ids` has the `id` of GraphML; of GML the `label` where all are
distinct and not empty, or else the `id`. What the file says of an edge in numbers are edge
columns, and `weight` is its weight. The options name what is known of nodes; everything else
that the file has is not read, and a log names it. igraph's numbers are float64, so ids, columns
of edges and labels from 2^53 on, which it may have rounded, are refused.
"""

from __future__ import annotations

import logging
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.dataset import Plain
from jgs.data.splits import SplitRule
from jgs.data.text import line_chunks
from jgs.errors import InputError, refusing, require_columns
from jgs.graph import Graph, NodeIds
from jgs.graph.foreign import igraph_edges

_log = logging.getLogger("jgs")
ENDINGS = (".graphml", ".gml")
_DIRECTED = re.compile(rb"<edge\b[^>]*\bdirected\s*=\s*[\"'](true|false)")


def read(
    path: Path,
    *,
    label: str | None = None,
    features: str | None = None,
    symmetric: bool = False,
    drawn: SplitRule,
) -> Plain:
    """The graph of the file.

    Args:
      label: the attribute of nodes that is their class or number.
      features: the attributes of nodes that are their features, with commas between.
      symmetric: whether to add every edge's reverse and keep each edge once.
      drawn: the split of nodes.

    Raises `InputError`.
    """
    found = _open(path)
    of_nodes = found.vs.attributes()
    wanted = [] if features is None else [name.strip() for name in features.split(",")]
    asked = [*wanted, *([] if label is None else [label])]
    require_columns(f"the nodes of {path}", of_nodes, asked)
    columns = {n: np.array(found.es[n]) for n in found.es.attributes() if n not in ("id",)}
    numbers = {n: c for n, c in columns.items() if n != "weight" and c.dtype.kind in "fib"}
    for name, column in numbers.items():
        _check_exact(f"the attribute {name!r} of edges", path, column)
    edges, which = igraph_edges(found, "weight" if "weight" in columns else None)
    of_edges = {name: column[which] for name, column in numbers.items()}
    graph = Graph.from_edges(*edges, edge_columns=of_edges, symmetric=symmetric)
    ids, named = _ids(path, found)
    left = [f"{n} of nodes" for n in of_nodes if n not in (*wanted, label, *named)]
    left += [f"{n} of edges" for n in columns if n not in numbers and n != "weight"]
    if left:
        _log.warning("%s: not read: %s", path, ", ".join(left))
    rows = None
    if wanted:
        table = [np.array(found.vs[name]) for name in wanted]
        if any(column.dtype.kind not in "fib" for column in table):
            raise InputError(
                f"the features of the nodes in {path} must be numbers", "text", "Leave it out."
            )
        rows = np.stack(table, axis=1).astype(np.float64)
    labels = None if label is None else np.array(found.vs[label])
    if labels is not None:
        _check_exact(f"the attribute {label!r} of nodes", path, labels)
    splits = None if label is None else drawn.chosen(path.stem, labels)
    return replace(Plain.of_arrays(path.stem, graph, rows, labels, splits), node_ids=ids)


def _open(path: Path) -> Any:
    rule = f"igraph must be installed to read {path}"
    with refusing(ImportError, rule, "pip install igraph."):
        import igraph  # optional
    kind = "GML" if path.suffix == ".gml" else "GraphML"
    load = igraph.Graph.Read_GML if path.suffix == ".gml" else igraph.Graph.Read_GraphML
    errors = (igraph.InternalError, OSError, ValueError, TypeError, SystemError)
    rule = f"{path} must be a whole file of {kind}"
    with refusing(errors, rule, "Write it again."), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what igraph leaves out
        found = load(str(path))
    if kind == "GraphML":
        for text in line_chunks(path):
            for match in _DIRECTED.finditer(text):
                if (match.group(1) == b"true") != found.is_directed():
                    raise InputError(
                        f"all edges in {path} must be directed, or none",
                        f"directed={match.group(1).decode()} in a graph that is not so",
                        "Write both directions of undirected edges in a directed graph.",
                    )
    return found


def _ids(path: Path, found: Any) -> tuple[NodeIds | None, tuple[str, ...]]:
    attributes = found.vs.attributes()
    if path.suffix == ".gml" and "label" in attributes:
        labels = [str(each) for each in found.vs["label"]]
        if len(set(labels)) == len(labels) and all(labels):
            return NodeIds(np.array(labels, object)), ("label", "id")
    if "id" not in attributes:
        return None, ()
    ids = np.array(found.vs["id"])
    _check_exact("the ids of nodes", path, ids)
    return NodeIds(ids.astype(np.int64) if ids.dtype.kind == "f" else ids), ("id",)


def _check_exact(what: str, path: Path, values: np.ndarray) -> None:
    if values.dtype.kind != "f":
        return
    large = values[np.isfinite(values) & (abs(values) >= 2**53)]
    if large.size:
        raise InputError(
            f"{what} in {path} must be less than 2^53, from where on igraph rounds integers",
            f"{large[0]:.0f}, perhaps rounded",
            "Write the graph as a table of edges, e.g. CSV.",
        )
