"""`split_targets`: the edges that a run learns to predict, and the graphs without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import require_array
from jgs.data.label_table import LinkTable
from jgs.data.values import nodes_of
from jgs.dist.communicators.collect import everywhere, rows_on_all
from jgs.dist.communicators.comm import Communicator, all_gather_rows
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.rows import row_of_edges
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.event_negatives import mixed
from jgs.sampling.pairs import added_edges
from jgs.train.evaluation.link_metrics import Ends

SPLITS = ("train", "val", "test")
HOW = ("auto", "random", "time", "column")
_NO_ITEMS = ("time", "split", "order")
Columns = dict[str, np.ndarray]


class Targets(NamedTuple):
    """The edges to predict, of all ranks together and the same on each. Each split has NumPy
    arrays `[n]`: `src` and `dst` int32, and `label`, `relation` and `time` (int64) where they
    are asked for. In an undirected graph an edge and its reverse are one target, and its `src`
    is the smaller id."""

    train: Columns
    val: Columns
    test: Columns
    messages: list[Graph]  # of each local rank, for training: without edges of `val` and `test`
    at_test: list[Graph]  # for the test: the same, or with the edges of `val`
    types: tuple[str, str] | None  # of src and dst, where all targets have the same
    # Whether every edge has its reverse, no edge of its own: one of the same time and label,
    # and of the same entry in the column that splits edges.
    undirected: bool

    def types_of(self, relation: int | None) -> tuple[str, str] | None:
        """The node types of the ends of a link of this relation, or of any; None: all nodes."""
        schema = self.messages[0].schema
        if schema is None or relation is None:
            return self.types
        return schema.relations[relation][0], schema.relations[relation][2]

    def ends(self, relation: int | None) -> Ends:
        """The nodes that a link of this relation, or any, may join."""
        graph, types = self.messages[0], self.types_of(relation)
        if types is None:
            every = np.arange(graph.num_nodes, dtype=np.int32)
            return Ends(every, every, self.undirected)
        assert graph.schema is not None
        return Ends(nodes_of(graph.schema, types[0]), nodes_of(graph.schema, types[1]), False)


def split_targets(
    comm: Communicator,
    graphs: Sequence[Graph],  # of each local rank, and the same on all with `links`
    # For each local rank the nodes `[first, last)` whose in-edges it names; those of all ranks
    # together are all nodes, or each rank names all.
    bounds: Sequence[tuple[int, int]],
    key: Any,  # decides a random split
    task: Any,  # a `jgs.train.tasks.pair_job.PairTask`
    links: LinkTable | None = None,  # the data's, the same on all ranks
) -> Targets:
    """Deals the edges of a graph to training, validation and test. All ranks call it.

    The split is one of these; with `"auto"` the first that the graph has:
      `"column"`: the edge column `split` says it: 0 train, 1 val, 2 test, -1: the edge is
        always a message and never a target. Targets are in the order of the data's files.
      `"time"`: the latest edges are the test, those before them validation; at least one each.
      `"random"`: shares, of at least one edge each.

    With a label, int, -1 for none, or float, NaN for none, targets are the edges that have one.
    Otherwise they are pairs of distinct nodes, and parallel edges are one target, unless they
    are split by time or column. With `temporal` they have their `time`, each split is later
    than the one before, and `messages` are the graphs themselves.

    A random split keeps all edges between the two nodes of a target of `val` and `test` out of
    `messages`, whatever their direction and relation. One by time or column keeps out the edges
    of that time or entry, and so their reverses.

    With a table of `links` at moments, and no label, these are the targets, and no edge is one.
    Raises `InputError`, on all ranks alike.
    """
    if links is not None and task.label is None:
        return _of_table(graphs, task, links)
    return _Split(comm, graphs, bounds, task).targets(key)


class _Split:
    def __init__(
        self,
        comm: Communicator,
        graphs: Sequence[Graph],
        bounds: Sequence[tuple[int, int]],
        task: Any,
    ):
        self.comm, self.graphs, self.task, self.label = comm, list(graphs), task, task.label
        # Where each rank has the whole graph, each names all its edges, and none are sent.
        self.split_up = bounds[0] != (0, graphs[0].num_nodes)
        self.ends = [_ends(graph) for graph in graphs]
        self.mine = [
            slice(*np.asarray(graph.indptr)[list(each)].tolist())
            for graph, each in zip(graphs, bounds, strict=True)
        ]
        self.begins: dict[int, Any] = {}  # by time: when validation (1) and the test (2) begin
        self.numbers = self._relations(task.relation)

    def targets(self, key: Any) -> Targets:
        temporal = self.task.temporal
        if temporal and self.graphs[0].edge_time is None:
            raise InputError(
                "--temporal must have edges with times",
                "a graph without",
                "Give a column time to the table of edges, or leave --temporal out.",
            )
        how = self._how(self.task.split)
        self.undirected = self._undirected(how)
        found = self._candidates(distinct=how == "random" and self.label is None)
        if how == "column":
            if (order := found.pop("order", None)) is not None:
                place = np.argsort(order, kind="stable")
                found = {name: array[place] for name, array in found.items()}
            number = found.pop("split")
        else:
            number = self._numbered(found, key, how)
        if temporal:
            _check_order(found["time"], number)
        parts = []
        for split, name in enumerate(SPLITS):
            part = {
                n: a[number == split]
                for n, a in found.items()
                if n not in _NO_ITEMS or (temporal and n == "time")
            }
            if not len(part["src"]):
                raise InputError(
                    f"some edges must be left for the split {name}",
                    f"none of {len(number)}, split by {how}",
                    "Give more edges, or change --test-share, --val-share or --split.",
                )
            parts.append(part)
        if temporal:
            graphs = [[_without(graph, (self.label, "split")) for graph in self.graphs]]
        else:
            graphs = [
                [
                    _messages(*each, (self.label, "split"))
                    for each in zip(self.graphs, self._kept(parts, how, first), strict=True)
                ]
                for first in ((1, 2) if self.task.val_messages else (1,))
            ]
        schema = self.graphs[0].schema
        types = None
        if schema is not None and schema.relations:
            ends = {(a, b) for a, _, b in (schema.relations[n] for n in self.numbers)}
            types = ends.pop() if len(ends) == 1 else None
        train, val, test = parts
        return Targets(train, val, test, graphs[0], graphs[-1], types, self.undirected)

    # -- what the graph has

    def _relations(self, relation: str | None) -> list[int]:
        schema = self.graphs[0].schema
        if schema is None or not schema.relations:
            if relation is not None:
                raise InputError(
                    "--relation must be for a graph with relations",
                    f"--relation {relation} for one without",
                    "Leave it out.",
                )
            return []
        if relation is not None:
            return [schema.relation(relation)]
        names = {(a, name, b): i for i, (a, name, b) in enumerate(schema.relations)}
        return [
            i
            for (a, name, b), i in names.items()
            if (b, name.removeprefix("rev_"), a) not in names or not name.startswith("rev_")
        ]

    def _undirected(self, how: str) -> bool:
        """As `Targets` says, by sums of hashes."""
        if self.numbers or added_edges(self.graphs[0]) is not None:
            return False  # the data say which edges are others' reverses
        total = np.zeros(2, np.uint64)
        for graph, (src, dst), mine in zip(self.graphs, self.ends, self.mine, strict=True):
            names = ["time"] * (graph.edge_time is not None) + ["split"] * (how == "column")
            names += [] if self.label is None else [self.label]
            same = [own[mine] for name in names if (own := self._column(graph, name)).ndim == 1]
            for i, (a, b) in enumerate(((src[mine], dst[mine]), (dst[mine], src[mine]))):
                total[i : i + 1] += _hashed(a, b, same).sum(dtype=np.uint64)  # it wraps around
            if not self.split_up:
                break
        if self.split_up:
            sums = [total.view(np.int64)] * self.comm.num_local
            sums[1:] = [np.zeros(2, np.int64)] * (self.comm.num_local - 1)
            total = all_gather_rows(self.comm, sums).view(np.uint64).sum(0, dtype=np.uint64)
        return bool(total[0] == total[1])

    def _how(self, how: str) -> str:
        graph = self.graphs[0]
        has = {
            "column": "split" in graph.edge_columns,
            "time": graph.edge_time is not None,
            "random": True,
        }
        if how == "auto":
            return next(name for name, there in has.items() if there)
        if not has[how]:
            raise InputError(
                f"--split {how} must be for edges with "
                + ("a column split" if how == "column" else "times"),
                "a graph without",
                "Choose --split random.",
            )
        return how

    def _column(self, graph: Graph, name: str) -> np.ndarray:
        if name == "time":
            return np.asarray(graph.edge_time)
        if name not in graph.edge_columns:
            raise InputError(
                f"the edges must have a column {name}",
                f"columns {', '.join(graph.edge_columns) or 'none'}",
                f"Add it, one {name} for each edge, to the table of edges.",
            )
        return np.asarray(graph.edge_columns[name])

    # -- which edges are targets

    def _candidates(self, distinct: bool) -> Columns:
        has = self.graphs[0]
        names = [] if self.label is None else [self.label]
        names += ["split"] * ("split" in has.edge_columns)
        names += ["time"] * (has.edge_time is not None)

        def of_rank() -> list[Columns]:
            found = []
            each = zip(self.graphs, self.ends, self.mine, strict=True)
            for graph, (src, dst), mine in list(each)[: None if self.split_up else 1]:
                columns = {"src": src[mine], "dst": dst[mine]}
                columns |= {name: self._column(graph, name)[mine] for name in names}
                if "split" in names and graph.edge_order is not None:
                    columns["order"] = np.asarray(graph.edge_order)[mine]
                keep = self._may_be(graph, mine, columns)
                if len(self.numbers) > 0:
                    columns["relation"] = np.asarray(graph.edge_type)[mine].astype(np.int32)
                if self.label is not None:
                    columns["label"] = columns.pop(self.label)
                columns = {name: array[keep] for name, array in columns.items()}
                found.append(_distinct(columns) if distinct else columns)
            return found

        found = everywhere(self.comm, of_rank)
        if not self.split_up:
            return found[0]
        return {name: rows_on_all(self.comm, [own[name] for own in found]) for name in found[0]}

    def _may_be(self, graph: Graph, mine: slice, columns: Columns) -> np.ndarray:
        src, dst = columns["src"], columns["dst"]
        keep = np.ones(src.size, bool)
        if (added := added_edges(graph)) is not None:
            keep &= ~np.asarray(added)[mine]
        if self.numbers:
            keep &= np.isin(np.asarray(graph.edge_type)[mine], self.numbers)
        if self.label is not None:
            label = columns[self.label]
            form = "integers or floats [E], one for each edge"
            require_array("labels of edges", label, form, "Number the classes from 0.")
            keep &= label >= 0 if label.dtype.kind in "iu" else np.isfinite(label)
        else:
            keep &= src != dst
        return keep & (src <= dst) if self.undirected else keep

    # -- which split each is in

    def _numbered(self, found: Columns, key: Any, how: str) -> np.ndarray:
        """int8: the split of each candidate. All edges between two nodes are in one."""
        count, at = len(found["src"]), None
        if how == "random" and not (self.undirected and self.label is None):
            codes, at = np.unique(_codes(found["src"], found["dst"]), return_inverse=True)
            count = len(codes)
        shares = self.task.test_share, self.task.val_share
        num_test, num_val = (max(1, int(share * count)) for share in shares)
        number = np.zeros(count, np.int8)
        if how == "random" or not count:
            chance = np.random.default_rng(np.asarray(as_key_data(key)).tolist())
            order = chance.permutation(count)
            number[order[: num_test + num_val]] = 1
            number[order[:num_test]] = 2
            return number if at is None else number[at]
        time = found["time"]
        ordered = np.sort(time)
        for split, latest in ((1, num_test + num_val), (2, num_test)):
            self.begins[split] = ordered[max(0, count - latest)]
            number[time >= self.begins[split]] = split  # edges of one time are together
        return number

    def _kept(self, parts: Sequence[Columns], how: str, first: int) -> list[np.ndarray]:
        """bool `[E]` for each local rank: the messages without the splits from `first` on."""
        if how == "column":
            return [np.asarray(graph.edge_columns["split"]) < first for graph in self.graphs]
        if how == "time":
            return [np.asarray(graph.edge_time) < self.begins[first] for graph in self.graphs]
        held = np.unique(np.concatenate([_codes(p["src"], p["dst"]) for p in parts[first:]]))
        return [~np.isin(_codes(*ends), held) for ends in self.ends]


def _of_table(graphs: Sequence[Graph], task: Any, links: LinkTable) -> Targets:
    if not task.temporal or graphs[0].edge_time is None:
        raise InputError(
            "links at moments must be learned from what was before, by edges with times",
            "a graph without" if task.temporal else "no --temporal",
            "Say the times of a table." if task.temporal else "Give --temporal.",
        )
    if task.split != "auto" or task.relation is not None:
        raise InputError(
            "links at moments must have the splits and the ends of their table",
            f"--split {task.split}" if task.split != "auto" else f"--relation {task.relation}",
            "Leave it out.",
        )
    _check_order(links.time, links.split)
    parts = []
    for number, name in enumerate(SPLITS):
        some = np.flatnonzero(links.split == number)
        columns = {"src": links.src, "dst": links.dst, "time": links.time}
        parts.append({name: np.asarray(array)[some] for name, array in columns.items()})
        if not some.size:
            raise InputError(
                f"the table of links must have rows of the split {name}", "none", "Add some."
            )
    schema, types = graphs[0].schema, None
    if schema is not None:
        ends = [np.unique(schema.numbers(links[end])) for end in (0, 1)]
        if any(end.size > 1 for end in ends):
            raise InputError(
                "the links of a table must have sources of one node type, and targets of one",
                f"{ends[0].size} and {ends[1].size} types",
                "Make a data set of those of two types.",
            )
        source, target = (schema.node_types[int(end[0])][0] for end in ends)
        types = source, target
    train, val, test = parts
    own = [_without(graph, ("label", "split")) for graph in graphs]
    return Targets(train, val, test, own, own, types, False)


def _ends(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    indptr = np.asarray(graph.indptr)
    return np.asarray(graph.indices)[: indptr[-1]], row_of_edges(indptr)


def _check_order(time: np.ndarray, number: np.ndarray) -> None:
    for split, name in enumerate(SPLITS[1:], 1):
        before, own = (time[number == each] for each in (split - 1, split))
        if before.size and own.size and before.max() > own.min():
            raise InputError(
                f"the split {name} of --temporal must be later than {SPLITS[split - 1]}",
                f"a link at {own.min()}, and one there at {before.max()}",
                "Correct the column split, or give --split time.",
            )


def _codes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """int64: one number for two nodes, whatever their order."""
    return (np.minimum(a, b).astype(np.int64) << 32) | np.maximum(a, b)


def _hashed(a: np.ndarray, b: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
    """uint64: a number of two in their order, and of columns `[n]` of integers or floats, of
    which all NaN are one value."""
    found = mixed((a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64))
    for own in columns:
        if own.dtype.kind == "f":
            own = np.where(np.isnan(own), np.nan, own.astype(np.float64) + 0.0).view(np.uint64)
        found = mixed(found + mixed(own.astype(np.uint64)))
    return found


def _distinct(columns: Columns) -> Columns:
    """One of all edges from one node to another, the first."""
    code = (columns["dst"].astype(np.int64) << 32) | columns["src"]
    if (code[1:] > code[:-1]).all():  # rows that are sorted, without copies
        return columns
    first = np.unique(code, return_index=True)[1]
    return {name: array[first] for name, array in columns.items()}


def _messages(graph: Graph, kept: np.ndarray, without: Sequence[str | None]) -> Graph:
    """The graph of the kept edges, without some columns, sorted by source where it can be."""
    plain = _without(graph, without)._with(edge_time=None)
    made = plain if kept.all() else plain.edge_subgraph(kept)
    return made if made.sorted_by_source or made.edge_type is not None else made.sorted()


def _without(graph: Graph, names: Sequence[str | None]) -> Graph:
    columns = {n: a for n, a in graph.edge_columns.items() if n not in names}
    return graph._with(edge_columns=columns)
