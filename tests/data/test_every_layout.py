"""One data set in every layout: what is read is what was written, edge by edge, label by label
and name by name.

`truths` draws a graph with types, and `hold` leaves of it what a layout can hold. A writer of
`LAYOUTS` writes that, and `read` makes the same of what jgs reads.

More examples for each layout: JGS_LAYOUT_EXAMPLES=300.
"""

import os
import tempfile
from collections import Counter
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import written
from hypothesis import HealthCheck, Phase, given, settings
from refusals import refusal
from written import FIELDS, LABELS, ONE, RELATIONS, SPLITS, A, Edge, Node, Truth, truths

from jgs.data.plain import Plain, load_plain

EXAMPLES = int(os.environ.get("JGS_LAYOUT_EXAMPLES", 6))


class Layout(NamedTuple):
    """A writer, and which parts of a truth it can hold."""

    write: Any  # a function of a truth and a folder; what jgs reads
    name: Any  # of node number `i` of a type
    calls: dict  # the relations that it holds, and what they are called when they are read
    fields: tuple = ()
    of_nodes: tuple = ()  # the kinds of labels of nodes of type A
    of_edges: tuple = tuple(LABELS)
    alone: bool = True  # nodes without edges, and the order of nodes
    empty: bool = False  # relations without edges
    gapless: tuple = ()  # the columns that have no gaps
    one_text: bool = False  # labels that are text, in one relation only
    once: bool = False  # of parallel edges one
    back: bool = False  # every edge in both directions
    fix: Any = None  # what else becomes of edge number `i`


def hold(truth, layout):
    """The part of the truth that the layout can hold, with the names that it has there."""
    has = [name for name in FIELDS if name in truth.has and name in layout.fields]
    if truth.kinds["edges"] not in layout.of_edges and "label" in has:
        has.remove("label")
    some = [e for r in layout.calls for e in truth.edges[r]]
    holes = {n for n in layout.gapless for e in some if getattr(e, n) is None}
    has = [n for n in has if n not in holes]
    names = {
        kind: [layout.name(kind, i, n) for i, n in enumerate(nodes)]
        for kind, nodes in truth.nodes.items()
    }
    labelled = truth.kinds["nodes"] in layout.of_nodes
    nodes, edges, named = {}, {}, {}
    for at, (relation, called) in enumerate(layout.calls.items()):
        source, _, target = relation
        lost = {n: Edge._field_defaults[n] for n in FIELDS if n not in has}
        if at and layout.one_text and truth.kinds["edges"] == "text":
            lost["label"] = None
        rows = [e._replace(**lost) for e in truth.edges[relation]]
        # A column without any number has no type, and is refused.
        rows = [
            e._replace(score=e.score or 0.0, count=e.count or 0) if not i else e
            for i, e in enumerate(rows)
        ]
        rows = [e._replace(**lost) for e in rows]
        rows = rows if layout.fix is None else [layout.fix(i, e) for i, e in enumerate(rows)]
        if layout.once:
            pair = frozenset if layout.back else tuple
            rows = [*{pair([e.src, e.dst]): e for e in rows}.values()]
        if layout.back:
            rows += [e._replace(src=e.dst, dst=e.src) for e in rows if e.src != e.dst]
        rows = [e._replace(src=names[source][e.src], dst=names[target][e.dst]) for e in rows]
        if not rows and not layout.empty:
            continue
        edges[called] = rows
        for kind, own, end in ((source, called[0], "src"), (target, called[2], "dst")):
            named.setdefault(own, set()).update(getattr(e, end) for e in rows)
            nodes[own] = [
                Node(name, 0, n.label if labelled and kind == A else None)
                for name, n in zip(names[kind], truth.nodes[kind], strict=True)
            ]
    if not layout.alone:
        nodes = {k: [n for n in own if n.name in named[k]] for k, own in nodes.items()}
    return Truth(nodes, edges, truth.kinds, tuple(has))


def read(found, truth):
    """The truth that jgs has read: a `Plain`, or a path and the options of its loader."""
    if not isinstance(found, Plain):
        path, options = found
        found = load_plain(path, path.parent, **options)
    graph = found.graph
    types, relations = {"": range(graph.num_nodes)}, [ONE]
    if graph.schema:
        types = {kind: graph.schema.nodes(kind) for kind, _ in graph.schema.node_types}
        relations = graph.schema.relations
    names = [str(i) for own in types.values() for i in range(len(own))]
    if found.node_ids is not None:
        names = [str(name) for name in found.node_ids.values]
    known = any(n.label is not None for own in truth.nodes.values() for n in own)
    label = _labels(found.labels, found.class_names) if known else None
    for kind, at in types.items():
        if all(names[i].startswith(f"{kind}:") for i in at):
            names[at.start : at.stop] = [names[i].removeprefix(f"{kind}:") for i in at]
    nodes = {
        kind: [Node(names[i], 0, label[i] if label else None) for i in own]
        for kind, own in types.items()
    }
    columns = {"weight": graph.edge_weight, "time": graph.edge_time, **graph.edge_columns}
    columns = {
        n: np.asarray(a).tolist() for n, a in columns.items() if a is not None and n in FIELDS
    }
    columns = {n: [None if x != x else x for x in a] for n, a in columns.items()}
    if "label" in columns:
        columns["label"] = _labels(graph.edge_columns["label"], found.label_names)
    if "split" in columns:
        columns["split"] = [[*SPLITS, ""][number] for number in columns["split"]]
    kinds = [0] * graph.num_edges if graph.edge_type is None else np.asarray(graph.edge_type)
    for name in {"label", "time"} - set(truth.has):
        columns.pop(name, None)  # a layout may not be able to leave it out
    edges = {relation: [] for relation in relations}
    for i, (src, dst) in enumerate(graph.edge_index().T.tolist()):
        own = {name: column[i] for name, column in columns.items()}
        edges[relations[kinds[i]]].append(Edge(names[src], names[dst], **own))
    return Truth(nodes, edges, truth.kinds, truth.has)


def _labels(labels, names):
    """The labels as they were written; None for none."""
    if labels is None:
        return None
    labels = np.asarray(labels)
    if labels.dtype.kind == "f":
        return [None if x != x else x for x in labels.tolist()]
    return [None if i < 0 else names[i] if names else i for i in labels.tolist()]


def as_text(truth, in_order):
    """What is compared: names as text, edges in any order."""
    nodes = {k: [n._replace(name=str(n.name)) for n in own] for k, own in truth.nodes.items()}
    if not in_order:
        nodes = {kind: Counter(own) for kind, own in nodes.items()}
    pairs = {
        r: [e._replace(src=str(e.src), dst=str(e.dst)) for e in rows]
        for r, rows in truth.edges.items()
    }
    return nodes, {relation: Counter(rows) for relation, rows in pairs.items()}


TYPED = {relation: relation for relation in RELATIONS}
SINGLE = {RELATIONS[0]: ONE}
ENTITIES = {r: ("entity", r[1], "entity") for r in RELATIONS[:2]}
ALL, CODES = tuple(LABELS), ("bool", "class", "number")  # the latter are labels in arrays
HEADS = ("head", "relation", "tail", "head_type", "tail_type")
PRIME = ("x_index", "relation", "y_index", "x_type", "y_type")


def lossy(truth):
    """Whether floats, which a column with gaps has, lose digits of its whole numbers."""
    counts = [e.count for rows in truth.edges.values() for e in rows]
    return None in counts and any(int(float(n)) != n for n in counts if n is not None)


def in_files(i, e):
    """Every edge is in a split, and the first is to train on."""
    return e._replace(split=e.split or "train" if i else "train")


def as_named(kind, i, node):
    return node.name


def as_number(kind, i, node):
    return node.number


def as_huge(kind, i, node):
    return node.number + 2**64 * (i % 2)


def as_row(kind, i, node):
    return i


def as_word(kind, i, node):
    """A name without blanks."""
    good = node.name.split() == [node.name] and not set("#,{") & set(node.name)
    return node.name if good else f"node{i}"


def typed(write, name=as_named, **more):
    return Layout(write, name, TYPED, FIELDS, ALL, one_text=True, **more)


def single(write, name=as_named, of_nodes=ALL, fields=FIELDS, **more):
    return Layout(write, name, SINGLE, fields, of_nodes, **more)


def in_arrays(write, name=as_row):
    of = {"of_edges": CODES[1:], "gapless": ("count",), "empty": True}
    return Layout(write, name, TYPED, FIELDS, ALL, **of)


def bipartite(write, name, fields, *called, **more):
    return Layout(write, name, {RELATIONS[2]: called}, fields, **more)


def without(write, name, calls=TYPED, fields=FIELDS, **more):
    """A layout of edges alone."""
    return Layout(write, name, calls, fields, alone=False, **more)


P, W = partial, written
LAYOUTS = {}
for end in (".csv", ".csv.gz", ".tsv", ".parquet"):
    names = as_number if end == ".parquet" else as_huge
    LAYOUTS |= {
        f"typed tables {end}": typed(P(W.typed_tables, end=end), empty=True),
        f"typed tables, numbers {end}": typed(P(W.typed_tables, end=end), names, empty=True),
        f"one file {end}": without(P(W.one_file, end=end, ids="text"), as_named, SINGLE),
        f"one file, numbers {end}": without(P(W.one_file, end=end), names, SINGLE),
    }
    if end != ".tsv":
        LAYOUTS[f"tables {end}"] = single(P(W.tables, end=end))
        LAYOUTS[f"tables, numbers {end}"] = single(P(W.tables, end=end), names)
NUMBERS = {"of_edges": CODES[1:], "gapless": FIELDS}
TIMED = ("weight", "time")
LAYOUTS |= {f"built {e}": in_arrays(P(W.built, end=e)) for e in ("chunks", ".csv", ".parquet")}
LAYOUTS |= {
    "one file .inter": without(P(W.one_file, end=".inter", ids="text"), as_named, SINGLE),
    "saved": in_arrays(W.saved, as_named),
    "npz, pairs": single(P(W.npz, rows=False), as_row, CODES, TIMED),
    "npz, rows": single(P(W.npz, rows=True), as_row, CODES, TIMED),
    "from_table": single(W.from_table, of_nodes=(), fields=("weight", "score")),
    "neo4j": typed(P(W.neo4j, end=".csv")),
    "neo4j, numbers": typed(P(W.neo4j, end=".parquet"), as_number),
    "triples with names": without(P(W.relation_table, called=HEADS), as_named),
    "primekg": without(P(W.relation_table, called=PRIME), as_number),
    "triples": without(W.triples, as_word, ENTITIES, ("time", "split"), fix=in_files),
    "edgelist": without(W.edge_list, as_word, SINGLE, FIELDS[:-1], **NUMBERS),
    "list with columns": without(W.listed, as_number, SINGLE, FIELDS[:-1], **NUMBERS),
    "konect": bipartite(W.konect, lambda _, i, n: i + 1, TIMED, "left", "to", "right"),
    "jodie": bipartite(
        W.jodie, as_number, ("time", "label"), "user", "to", "item", alone=False, **NUMBERS
    ),
}
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_read_is_what_was_written(tmp_path_factory, name):
    layout, base = LAYOUTS[name], tmp_path_factory.mktemp("layouts")

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
        suppress_health_check=QUIET, phases=[Phase.generate],  # to shrink takes minutes
    )  # fmt: skip
    @given(truths())
    def check(truth):
        wanted = hold(truth, layout)
        ending = refusal("must keep its digits") if lossy(wanted) else nullcontext()
        with tempfile.TemporaryDirectory(dir=base) as folder, ending:
            found = read(layout.write(wanted, Path(folder)), wanted)
        assert lossy(wanted) or as_text(found, layout.alone) == as_text(wanted, layout.alone)

    check()
