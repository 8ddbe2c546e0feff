"""A data set that is drawn, and what writes it in each layout: for `test_every_layout`."""

import csv
import gzip
import io
from dataclasses import dataclass
from typing import Any, NamedTuple

import networkx
import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
from hypothesis import strategies as st

import jgs
from jgs.data import Dataset, build
from jgs.data.plain import Plain

ONE = ("", "", "")  # the relation of a graph without types
A, B = "a", "b_c"  # the types of nodes
RELATIONS = ((A, "r", A), (A, "q p", A), (A, "s_t", B), (B, "é", A))
FIELDS = ("weight", "time", "label", "score", "count", "split")
SPLITS = ("train", "val", "test")
ODD = ["7", "007", "-0", "+5", "0x1A", "1e5", "1.0", "inf", "nan", "NA", "null", "None", "true"]
ODD += ["2020-01-01", "12:30:00", "9007199254740993", "18446744073709551617", " x", "x ", "x y"]
ODD += [
    '"',
    "'",
    "a,b",
    "a:b",
    "A::b",
    "a;b",
    "#c",
    "% d",
    "-",
    "ü",
    "名前",
    "\u00a0",
    "\u2028z",
]
TEXTS = ["7", "007", "0x1A", "1e5", "NA", "nan", "true", "2020-01-01", "ü b", " x", '"', "a,b"]
WORD = "word"  # every column of text has it, so that files without types show that it is text
EDGES = (2**53 + 1, 2**62, 2**63 - 2, 1_700_000_001, 0)
WHOLE = st.sampled_from([sign * n for n in EDGES for sign in (1, -1)]) | st.integers(-9, 9)
LABELS = {
    "bool": (True, st.booleans()),
    "class": (0, st.integers(0, 65_535)),
    "text": (WORD, st.sampled_from(TEXTS)),
    "number": (-0.5, st.floats(allow_nan=False, allow_infinity=False)),
}


class Edge(NamedTuple):
    src: Any  # positions among the nodes of their types, or their names
    dst: Any
    weight: float = 1.0  # no weight is 1
    time: int | None = None
    label: Any = None
    score: float | None = None  # a column of numbers; None is NaN
    count: int | None = None  # a column of whole numbers
    split: str = ""


class Node(NamedTuple):
    name: str
    number: int  # its name in layouts of numbers
    label: Any = None


@dataclass
class Truth:
    nodes: dict[str, list[Node]]  # by type
    edges: dict[tuple[str, str, str], list[Edge]]  # by relation
    kinds: dict[str, str]  # of the labels of `nodes` and of `edges`, one of `LABELS`
    has: tuple[str, ...]  # of FIELDS

    def columns(self, relation):
        """The columns of the edges that the graph has, by name."""
        rows = self.edges[relation]
        return {n: [getattr(e, n) for e in rows] for n in ("src", "dst", *self.has)}

    def at(self, relation):
        """The same, with positions in place of names."""
        place = [{n.name: i for i, n in enumerate(self.nodes[t])} for t in relation[::2]]
        found = self.columns(relation)
        ends = {
            e: np.array([p[n] for n in found[e]], int)
            for e, p in zip(("src", "dst"), place, strict=True)
        }
        return found | ends


@st.composite
def truths(draw):
    """A graph with few nodes, so that edges are parallel and loops, and every gap."""
    text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=3)
    kinds = {what: draw(st.sampled_from(sorted(LABELS))) for what in ("nodes", "edges")}
    has = tuple(draw(st.lists(st.sampled_from(FIELDS), min_size=2, unique=True)))
    gaps = draw(st.booleans())
    nodes, edges = {}, {}

    def labels(what, size):
        first, some = LABELS[kinds[what]]
        rest = draw(st.lists(some | st.none(), min_size=size, max_size=size))
        return [first, *rest][:size]

    for kind in (A, B):
        names = draw(st.lists(st.sampled_from(ODD) | text, min_size=3, max_size=9, unique=True))
        names = [WORD, *(n for n in names if n != WORD)]
        size = len(names)
        numbers = draw(st.lists(WHOLE, min_size=size, max_size=size, unique=True))
        nodes[kind] = [*map(Node, names, numbers, labels("nodes", size))]
    some = {
        "weight": st.sampled_from([0.0, 1.0, 0.1]) | st.floats(0, 1e30),
        "time": WHOLE,
        "score": st.sampled_from([-1.5, -(2.0**60), 1e-300, None]) | st.floats(-9, 9),
        "count": WHOLE | st.none() if gaps else WHOLE,
        "split": st.sampled_from([*SPLITS, ""]),
    }
    one = st.fixed_dictionaries({n: s for n, s in some.items() if n in has})
    for relation in RELATIONS:
        ends = [st.integers(0, len(nodes[kind]) - 1) for kind in relation[::2]]
        least = 2 if relation is RELATIONS[0] else relation is RELATIONS[2]
        rows = draw(st.lists(st.tuples(*ends, one), min_size=least, max_size=7))
        of = labels("edges", len(rows)) if "label" in has else [None] * len(rows)
        edges[relation] = [
            Edge(src, dst, **more | {"label": label})
            for (src, dst, more), label in zip(rows, of, strict=True)
        ]
    edges = {
        r: [e._replace(weight=float(np.float32(e.weight))) for e in rows]
        for r, rows in edges.items()
    }
    return Truth(nodes, edges, kinds, has)


def table(path, columns):
    """A table of these columns, of Parquet or of text, as its ending says."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return path
    text = io.StringIO()
    to = csv.writer(text, delimiter="," if ".csv" in path.name else "\t", lineterminator="\n")
    to.writerows([columns, *zip(*columns.values(), strict=True)])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def lines(path, rows, between=" "):
    path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows))
    return path


def node_table(nodes):
    made = {"id": [n.name for n in nodes], "label": [n.label for n in nodes]}
    return made if any(x is not None for x in made["label"]) else {"id": made["id"]}


def edge_table(truth, relation):
    made = truth.columns(relation)
    if not any(x is not None for x in made.get("label", [])):
        made.pop("label", None)  # a table without labels has no column of them
    return made


def typed_tables(truth, folder, end):
    for kind, nodes in truth.nodes.items():
        table(folder / f"nodes_{kind}{end}", node_table(nodes))
    for relation in truth.edges:
        table(folder / f"edges_{'_'.join(relation)}{end}", edge_table(truth, relation))
    return folder, {"both_ways": False}


def tables(truth, folder, end):
    table(folder / f"nodes{end}", node_table(truth.nodes[""]))
    table(folder / f"edges{end}", edge_table(truth, ONE))
    return folder, {}


def one_file(truth, folder, end, **options):
    return table(folder / f"edges{end}", edge_table(truth, ONE)), options


def label_array(labels, kind):
    """Labels as an array, with what stands for none."""
    none = {"text": "", "number": np.nan}.get(kind, -1)
    dtype = {"text": object, "number": float}.get(kind, np.int64)
    return np.array([none if x is None else x for x in labels], dtype)


def arrays(truth, relation):
    """The columns of edges as arrays, with the positions of the ends."""
    made = truth.at(relation)
    if "label" in made:
        made["label"] = label_array(made["label"], truth.kinds["edges"])
    if "split" in made:
        made["split"] = np.array([[*SPLITS, ""].index(x) for x in made["split"]], np.int8)
        made["split"][made["split"] == 3] = -1
    types = {"weight": np.float32, "time": np.int64, "score": float, "count": np.int64}
    return made | {n: np.array(made[n], t) for n, t in types.items() if n in made}


def graph_of(truth):
    counts = {kind: len(nodes) for kind, nodes in truth.nodes.items()}
    made = {relation: arrays(truth, relation) for relation in truth.edges}
    some = next(iter(made.values()))
    return jgs.Graph.from_relations(
        counts,
        {r: (a.pop("src"), a.pop("dst")) for r, a in made.items()},
        {r: a.pop("weight") for r, a in made.items()} if "weight" in some else None,
        edge_time={r: a.pop("time") for r, a in made.items()} if "time" in some else None,
        edge_columns=made,
    )


def about_nodes(truth):
    """The labels, by type, and a split, as data sets take them."""
    found = [n.label for n in truth.nodes[A]]
    none = all(label is None for label in found)
    labels = label_array(
        [0, *found[1:]] if none else found, "class" if none else truth.kinds["nodes"]
    )
    return {"labels": {A: labels}, "splits": {"train": [0]}}


def saved(truth, folder):
    graph = graph_of(truth)
    names = [f"{kind}:{n.name}" for kind, nodes in truth.nodes.items() for n in nodes]
    ids = jgs.NodeIds(np.array(names, object))
    rows = np.ones((graph.num_nodes, 1))
    Dataset.from_arrays(graph, rows, **about_nodes(truth), node_ids=ids).save(folder / "saved")
    return folder / "saved", {}


def built(truth, folder, end):
    counts = {kind: len(nodes) for kind, nodes in truth.nodes.items()}
    shards = {}
    for i, relation in enumerate(truth.edges):
        own = arrays(truth, relation)
        if end == "chunks":
            again = {"weight": "edge_weight", "time": "edge_time"}
            shards[relation] = [{again.get(n, n): a for n, a in own.items()}]
        elif end == ".npy":
            rows = np.zeros(len(own["src"]), [(n, a.dtype) for n, a in own.items()])
            for n, a in own.items():
                rows[n] = a
            np.save(folder / f"{i}.npy", rows)
            shards[relation] = folder / f"{i}.npy"
        else:
            shards[relation] = table(
                folder / f"{i}{end}", {n: a.tolist() for n, a in own.items()}
            )
    weight = "weight" if "weight" in truth.has and end not in ("chunks", ".npy") else None
    build(folder / "built", shards, counts, weight=weight, **about_nodes(truth))
    return folder / "built", {}


def npz(truth, folder, rows):
    """An archive of pairs, or of compressed rows."""
    made, nodes = arrays(truth, ONE), truth.nodes[""]
    ends = {"edge_index": np.stack([made["src"], made["dst"]]), "num_nodes": len(nodes)}
    named = {"weight": "edge_weight", "time": "edge_time"}
    of_edges = {named[n]: made[n] for n in truth.has}
    if rows:
        order = np.lexsort([of_edges.get("edge_time", made["dst"]), made["dst"]])
        counts = np.bincount(made["dst"], minlength=len(nodes))
        ends = {"indptr": np.r_[0, np.cumsum(counts)], "indices": made["src"][order]}
        of_edges = {n: a[order] for n, a in of_edges.items()}
    if any(n.label is not None for n in nodes):
        of_edges["labels"] = label_array([n.label for n in nodes], truth.kinds["nodes"])
    np.savez(folder / "g.npz", **ends, **of_edges)
    return folder / "g.npz", {}


def from_table(truth, folder):
    found = pandas.DataFrame(truth.columns(ONE))
    ids = jgs.NodeIds([n.name for n in truth.nodes[""]])
    weight = "weight" if "weight" in truth.has else None
    return Plain("", jgs.Graph.from_table(found, ids=ids, weight=weight), node_ids=ids)


def neo4j(truth, folder, end):
    """A file of nodes for each type, each with an ID space, and one of edges for each pair."""
    typed = {"weight": "double", "time": "long", "score": "double", "count": "long"}
    typed |= {
        "label": {"text": "string", "bool": "boolean"}.get(truth.kinds["edges"], "double"),
        "split": "string",
    }
    for kind, nodes in truth.nodes.items():
        made = node_table(nodes)
        made = {f":ID({kind})": made.pop("id"), ":LABEL": [kind] * len(nodes), **made}
        table(folder / f"nodes {kind}{end}", made)
    for i, (source, name, target) in enumerate(truth.edges):
        own = edge_table(truth, (source, name, target))
        ends = {f":START_ID({source})": own.pop("src"), f":END_ID({target})": own.pop("dst")}
        more = {f"{n}:{typed[n]}": column for n, column in own.items()}
        table(
            folder / f"r{i}{end}",
            ends | {":TYPE": [name] * len(ends[f":END_ID({target})"])} | more,
        )
    return folder, {"both_ways": False}


def relation_table(truth, folder, called):
    """One table of all edges, whose columns of ends, relations and types have these names."""
    found = {name: [] for name in (*called, *truth.has)}
    for (source, name, target), rows in truth.edges.items():
        for e in rows:
            first = (e.src, name, e.dst, source, target)[: len(called)]
            for column, x in zip(
                found, (*first, *(getattr(e, n) for n in truth.has)), strict=True
            ):
                found[column].append(x)
    return table(folder / "g.csv", found), {"both_ways": False}


def triples(truth, folder):
    for split in SPLITS:
        rows = [
            (e.src, name, e.dst, *([e.time] if "time" in truth.has else []))
            for (_, name, _), edges in truth.edges.items()
            for e in edges
            if e.split == split
        ]
        if rows:
            lines(folder / f"{split}.txt", rows, "\t")
    return folder, {"both_ways": False}


def networkx_of(truth):
    found = networkx.MultiDiGraph()
    found.add_nodes_from(n.name for n in truth.nodes[""])
    for e in truth.edges[ONE]:
        found.add_edge(e.src, e.dst, **{n: getattr(e, n) for n in truth.has})
    return found


def edge_list(truth, folder):
    networkx.write_edgelist(networkx_of(truth), folder / "g.edgelist")
    return folder / "g.edgelist", {"symmetric": False}


def konect(truth, folder):
    ((_, rows),) = truth.edges.items()
    sizes = [len(rows), *(len(nodes) for nodes in truth.nodes.values())]
    rows = [(e.src, e.dst, e.weight, *[e.time] * ("time" in truth.has)) for e in rows]
    head = [["%", "bip", "posweighted"], ["%", *sizes]]
    return lines(folder / "out.g", [*head, *rows]), {"both_ways": False}


def listed(truth, folder):
    own = truth.columns(ONE)
    path = lines(folder / "g.txt", zip(*own.values(), strict=True))
    return path, {"columns": ",".join(own)}


def jodie(truth, folder):
    ((_, rows),) = truth.edges.items()
    head = "user_id item_id timestamp state_label comma_separated_list_of_features".split()  # noqa: SIM905
    events = [(e.src, e.dst, e.time or 0, e.label or 0, 0.5) for e in rows]
    return lines(folder / "g.csv", [head, *events], ","), {"both_ways": False}
