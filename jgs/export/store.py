"""`Store`: the graph and the features that an exported model reads, with room for new nodes.
`Candidates`: rows of the nodes that may be the targets of links, and the best of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import scipy

from jgs.arrays import as_numpy, described, require_array
from jgs.data.values import check_finite, normalized
from jgs.errors import InputError
from jgs.export.spec import COLUMNS, ROWS, Spec, array_key, ids_below
from jgs.files.npy import shared, with_room, with_rows
from jgs.graph import Graph, Schema, as_device
from jgs.graph.changed import inserted
from jgs.graph.checks import check_paired
from jgs.graph.row_tables.dense import not_finite
from jgs.graph.row_tables.table import RowTable, as_table
from jgs.graph.row_tables.versioned import PARTS, VersionedFeatures
from jgs.graph.rows import row_offsets
from jgs.graph.weights import check_weights, weight_prefix_sums

Lists = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The rows of candidates, which were computed once, for many requests.

    Fields:
      nodes: int32 `[C]`, ascending.
      rows: float32 `[C, W]`, on the model's device.
      time: int64 scalar, the moment at which they were computed; None without times.
      known: the links that are left out by `new_only`, by source: int64 `[N+1]` and int32
        `[m]`, as `indptr` and `indices` of a `Graph`, and their relations int16 `[m]` or None;
        or None.
    """

    nodes: np.ndarray
    rows: jax.Array
    time: np.ndarray | None = None
    known: tuple[np.ndarray, np.ndarray, np.ndarray | None] | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of their files, without the known links."""
        time = {} if self.time is None else {"candidates.time": np.asarray(self.time)}
        own = {"candidates.nodes": self.nodes, "candidates.rows": np.asarray(self.rows)}
        return own | time

    @classmethod
    def stored(cls, arrays: Any, device: Any) -> Self | None:
        """The candidates of an artifact, or None."""
        if "candidates.nodes" not in arrays:
            return None
        rows, known = np.asarray(arrays["candidates.rows"]), None
        if "known.indptr" in arrays:
            names = ("known.indptr", "known.indices", "known.type")
            known = tuple(None if n not in arrays else np.asarray(arrays[n]) for n in names)
        own = as_device(rows) if device.platform == "cpu" else jax.device_put(rows, device)
        nodes, time = np.asarray(arrays["candidates.nodes"]), arrays.get("candidates.time")
        return cls(nodes, own, time, known)  # type: ignore[arg-type]

    def of_type(self, schema: Schema | None, node_type: str | None) -> slice:
        """Those of the candidates that are of a node type, or all for None. In a graph that has
        grown they are nodes of its first part."""
        if schema is None or node_type is None:
            return slice(0, self.nodes.size)
        own = schema.ranges(node_type)[0]
        return slice(*np.searchsorted(self.nodes, [own.start, own.stop]).tolist())

    def linked(self, node: int, relation: int | None) -> np.ndarray:
        """int32: the nodes to which one is linked, by a relation if it is given; none for a
        node that came later."""
        assert self.known is not None
        indptr, indices, types = self.known
        some = slice(*indptr[np.minimum([node, node + 1], indptr.size - 1)].tolist())
        kept = indices[some]
        return kept if types is None or relation is None else kept[types[some] == relation]

    def best(
        self,
        scores: np.ndarray,
        nodes: np.ndarray,
        k: int,
        some: slice,
        left_out: np.ndarray | None,
        new_only: bool,
        relation: int | None,
    ) -> Lists:
        """The `k` best of `some` candidates, but nodes that are `left_out`, bool `[N]` or None,
        for each of `nodes`, whose `scores` are float32 `[n, C]`, as `jgs.predict.Run.recommend`
        returns them."""
        best = np.full((len(nodes), k), -1, np.int32)
        values = np.full((len(nodes), k), -np.inf, np.float32)
        others = self.nodes[some]
        for row, node in enumerate(nodes.tolist()):
            left, gone = scores[row, some].copy(), np.array([node], np.int32)
            if left_out is not None:
                left[left_out[others]] = -np.inf
            if new_only:
                gone = np.append(self.linked(node, relation), gone)
            at = np.searchsorted(others, gone)
            at, gone = at[at < others.size], gone[at < others.size]
            left[at[others[at] == gone]] = -np.inf
            place = _largest(left, k)
            best[row, : place.size], values[row, : place.size] = others[place], left[place]
        return best, values


def _largest(scores: np.ndarray, k: int) -> np.ndarray:
    """The places of the `k` largest of `scores`, the largest first, and of equal ones the
    first; fewer where others are `-inf`."""
    if k < scores.size:
        least = np.partition(scores, scores.size - k)[scores.size - k]
        above = np.flatnonzero(scores > least)
        equal = np.flatnonzero(scores == least)[: k - above.size]
        place = np.sort(np.concatenate([above, equal]))
    else:
        place = np.arange(scores.size)
    place = place[np.argsort(-scores[place], kind="stable")]
    return place[scores[place] > -np.inf]


_MADE = ("edge_weight_prefix",)  # which a graph makes itself


class NewNodes(NamedTuple):
    """Nodes that are in a request alone, with their features and edges.

    Fields (`n` new nodes, after the `N` of the graph):
      features: `[n, F]`, an array or a SciPy sparse matrix; row `i` is that of node `N + i`.
      src, dst: int `[m]`, edges `src[j] -> dst[j]` between any nodes, new ones too. A node
        reads the sources of its edges. An edge that counts both ways is given both ways. Edges
        into nodes of the graph come after the ones that these have.
      edge_weight: float `[m]`, for a model that reads weights, or None.
      raw: whether the features are still to be normalised as the run's were (see `Spec`).

    Edges into new nodes alone cost time for themselves. An edge into a node of the graph costs
    a copy of all edges.
    """

    features: Any
    src: Any
    dst: Any
    edge_weight: Any = None
    raw: bool = False


class Store:
    """The arrays that programs read, of one graph; all that an `ExportedModel` asks of a graph.
    They are not changed: new nodes have arrays of their own, whose pages are those of the
    graph.

    Fields:
      num_nodes, num_edges, schema: of the graph.
      arrays: by name, as the program takes them, without new nodes.
      node_time: int64 `[N]`, from when nodes exist, or None.
      candidates: the prepared `Candidates` of a run on links, or None.
      gone: bool `[N]`, nodes that were deleted, which are recommended to nobody; or None.
    """

    candidates: Candidates | None = None
    gone: np.ndarray | None = None

    def __init__(
        self,
        spec: Spec,
        graph: Graph,
        features: Any,
        new_nodes: int,
        new_edges: int,
        device: Any,
        state: Callable[[], Mapping[str, Any]] = dict,
    ):
        """`state()` has the arrays of the sampler's state for the graph, by the names of their
        inputs. The graph is checked first."""
        _check(spec, graph, features)
        self._spec, self._device, self._most = spec, device, (new_nodes, new_edges)
        self.num_nodes, self.num_edges = graph.num_nodes, graph.num_edges
        self.schema, born = graph.schema, graph.node_time
        self.node_time = None if born is None else np.asarray(born)
        if not spec.takes_new:
            self.arrays = self._put(self._of_graph(graph, as_table(features), state()))
            return
        self._nodes = graph.num_nodes + new_nodes
        self._edges = max(spec.least_edges, graph.num_edges + new_edges)
        names = ["indices"]
        names += ["edge_weight", "edge_weight_prefix"] if "edge_weight" in spec.inputs else []
        self._of_edges = {name: shared(getattr(graph, name)) for name in names}
        self._indptr = shared(graph.indptr)
        if spec.sparse:
            # A new row may have twice as many entries as the longest one.
            self._row = max(1, min(2 * features.max_row, spec.num_features))
        self._table = as_table(features)
        self._features = {n: shared(array) for n, array in self._table.arrays().items()}
        nothing = NewNodes(np.empty((0, spec.num_features)), [], [])
        self.arrays = self.with_new(nothing)[1]

    def _of_graph(
        self, graph: Graph, table: RowTable, state: Mapping[str, Any]
    ) -> dict[str, Any]:
        indptr, inputs = np.asarray(graph.indptr), self._spec.inputs
        if self._spec.room and not graph.has_room:  # as of rows that have none left
            indptr = np.stack([indptr, np.append(indptr[1:], indptr[-1])])
        free = (self._spec.new_nodes or []) if self._spec.schema else []
        if any(free):  # ids that no node has
            indptr = np.pad(indptr, [(0, 0), (0, sum(free))], "edge")
        arrays = {"indptr": indptr}
        size = max(self._spec.least_edges, graph.num_edges)
        for name, array in (graph.edge_arrays() | dict(state)).items():
            if name in inputs:
                of_edges = inputs[name].partition("[")[2][:1] == "e"
                arrays[name] = with_room(array, size) if of_edges else np.asarray(array)
        typed = table.schema is not None
        for number, own in enumerate(table.by_type.values()):
            begin = f"of_type_{number}." if typed else ""
            more = sum(free[number : number + 1] if typed else free)
            for name, array in () if own is None else own.arrays().items():
                arrays[array_key(begin + name)] = with_room(array, len(array) + more)
            if array_key(begin + PARTS[1]) in inputs:  # no row holds from a moment on
                own = VersionedFeatures.of_parts(arrays[array_key(begin)])
                arrays |= {array_key(begin + name): each for name, each in own.parts.items()}
            if own is not None and own.by_entries:
                most = max(1, own.max_row)  # type: ignore[attr-defined]
                arrays[array_key(begin + "row")] = np.zeros(most, bool)
        return arrays

    def with_new(self, new: NewNodes) -> tuple[int, dict[str, jax.Array]]:
        """The number of new nodes, and the arrays with these. Raises `InputError`."""
        if not self._spec.takes_new:
            raise InputError(
                "new nodes must be for a model of nodes without types, times, learned rows and "
                "columns of edges",
                f"--task {self._spec.task} --model {self._spec.model}",
                "Load the model with a graph and features that hold them.",
            )
        rows = self._rows(new)
        num, total = rows.shape[0], self.num_nodes + rows.shape[0]
        src, dst = ids_below("src", new.src, total), ids_below("dst", new.dst, total)
        check_paired("src and dst", src, dst)
        if dst.size > self._most[1]:
            raise _too_many("edges", dst.size, self._most[1])
        order = np.argsort(dst, kind="stable")
        edges = {"indices": src[order]}
        if "edge_weight" in self._of_edges:
            weight = np.ones(dst.size) if new.edge_weight is None else new.edge_weight
            edges["edge_weight"] = check_weights(weight, dst.size)[order]
        graph = self._graph_arrays(dst[order], edges)
        return num, self._put(graph | self._feature_arrays(rows))

    def _graph_arrays(self, dst: np.ndarray, edges: dict[str, Any]) -> dict[str, Any]:
        num_nodes = self.num_nodes
        ends = np.full(self._nodes - num_nodes, self.num_edges, np.int64)
        if dst.size == 0 or dst[0] >= num_nodes:  # the rows of new nodes come last
            counts = np.bincount(dst - num_nodes, minlength=ends.size)
            ends += np.cumsum(counts)
            if "edge_weight" in edges:
                sums = weight_prefix_sums(row_offsets(counts), edges["edge_weight"])
                edges = edges | {"edge_weight_prefix": sums}
            arrays = {n: with_rows(a, edges[n], self._edges) for n, a in self._of_edges.items()}
            return {"indptr": with_rows(self._indptr, ends, self._nodes + 1), **arrays}
        indptr = np.concatenate([self._indptr, ends])
        at = indptr[dst + 1]
        indptr = indptr + row_offsets(np.bincount(dst, minlength=self._nodes))
        arrays = {n: inserted(self._of_edges[n], at, added) for n, added in edges.items()}
        if "edge_weight" in arrays:
            arrays["edge_weight_prefix"] = weight_prefix_sums(indptr, arrays["edge_weight"])
        return {"indptr": indptr, **{n: with_room(a, self._edges) for n, a in arrays.items()}}

    def _feature_arrays(self, rows: Any) -> dict[str, Any]:
        own, size = self._features, self._nodes
        if not self._spec.sparse:
            (name,) = self._table.row_names
            made = own | {name: with_rows(own[name], self._table.encoded(rows), size)}
            return {array_key(n): array for n, array in made.items()}
        entries = own["indices"].size
        counts = np.diff(rows.indptr)
        ends = entries + np.cumsum(np.pad(counts, (0, size - self.num_nodes - counts.size)))
        given = {"indices": rows.indices, "values": rows.data}
        room = max(1, entries + self._most[0] * self._row)
        arrays = {n: with_rows(own[n], np.asarray(given[n]), room) for n in given}
        arrays["indptr"] = with_rows(own["indptr"], ends, size + 1)
        row = {"features.row": np.zeros(self._row, bool)}
        return row | {f"features.{name}": array for name, array in arrays.items()}

    def _rows(self, new: NewNodes) -> Any:
        spec, rows = self._spec, new.features
        if isinstance(rows, RowTable) and rows.schema is None:
            rows = rows.host()
        if not hasattr(rows, "tocsr"):
            rows = as_numpy(rows)
        form, remedy = "numbers [n, F]", "Give the columns that the model was trained with."
        what = "the features of new nodes"
        require_array(what, rows, form, remedy, F=spec.num_features)
        if rows.shape[0] > self._most[0]:
            raise _too_many("nodes", rows.shape[0], self._most[0])
        if new.raw:
            rows = self._normalized(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            if not spec.sparse:
                dense = rows.toarray() if hasattr(rows, "tocsr") else rows
                kept = np.float16 if spec.feature_dtype == "float16" else np.float32
                check_finite("new nodes", dense.astype(kept))
                return dense
            csr = scipy.sparse.csr_matrix(rows, dtype=np.float32)
        finite = np.isfinite(csr.data)
        if not finite.all():
            row = np.searchsorted(csr.indptr, int(np.argmin(finite)), "right") - 1
            raise not_finite("the features of new nodes", int(row))
        csr.sum_duplicates()
        if (longest := int(np.diff(csr.indptr).max(initial=0))) > self._row:
            raise InputError(
                f"a new node must have at most {self._row} features that are not 0",
                longest,
                "Load the model with a graph and features that hold the node.",
            )
        return csr

    def _normalized(self, rows: Any) -> Any:
        if self._spec.normalization == COLUMNS:
            raise InputError(
                "raw features must be of a run whose columns were not standardized",
                self._spec.normalization,
                "Shift and scale them by the training nodes' means and deviations.",
            )
        if self._spec.normalization != ROWS:
            return rows
        rows = rows.tocsr() if hasattr(rows, "tocsr") else rows
        return normalized("new nodes", rows.astype(np.float32))

    def _put(self, arrays: dict[str, Any]) -> dict[str, jax.Array]:
        if self._device.platform == "cpu":
            return {name: as_device(array) for name, array in arrays.items()}
        with jax.enable_x64(True):
            return jax.device_put(arrays, self._device)


def _check(spec: Spec, graph: Graph, features: Any) -> None:
    if not isinstance(graph, Graph):
        raise InputError("graph must be a jgs.Graph", type(graph).__name__, "Make or open one.")
    if not spec.room:
        graph._refuse_room()
    if "edge_weight" in spec.inputs and graph.edge_weight is None:
        raise InputError("the graph must have edge weights", "none", "Give edge_weight to it.")
    have = graph.edge_arrays()
    for name, form in spec.inputs.items():
        if Graph.is_edge_array(name) and name not in _MADE:
            seen = described(have.get(name))
            if seen.partition("[")[0] != form.partition("[")[0]:
                raise InputError(
                    f"the graph must have {name} as {form}", seen, "Make it as in training."
                )
    if spec.learned not in (0, graph.num_nodes):
        raise InputError(
            f"the graph must have the {spec.learned} nodes that have learned rows",
            graph.num_nodes,
            "Give such a graph, or train with features and --learned 0.",
        )
    if spec.schema is not None:
        own = graph.schema
        types = None if own is None else [own.node_types, own.relations]
        if json.loads(json.dumps(types)) != json.loads(json.dumps(spec.schema)):
            raise InputError(
                f"the graph must have the node types and relations {spec.schema}",
                types,
                "Export the run again with this graph, which may have more nodes.",
            )
    wanted: list[Any] = [("sparse" if spec.sparse else spec.feature_dtype, spec.num_features)]
    wanted = [t and (t[1], t[2]) for t in spec.tables or ()] if spec.typed else wanted
    given = isinstance(features, RowTable) or getattr(features, "ndim", 0) == 2
    table = as_table(features if given else np.empty((0, 0)))
    kinds = [t and (t.kind, t.shape[1]) for t in table.by_type.values()]
    found = kinds, table.schema is not None, table.shape[0]
    if not given or found != (wanted, spec.typed, graph.num_nodes):
        shown = wanted if spec.typed else f"{wanted[0][0]} [{graph.num_nodes}, {wanted[0][1]}]"
        raise InputError(
            f"features must be {shown}{', by node type' * spec.typed}",
            f"{kinds} for {table.shape[0]} nodes" if given else f"a {type(features).__name__}",
            "Give those of the graph's nodes, as in training.",
        )
    if spec.typed or not spec.sparse:
        table.check_values("the features of the graph")


def _too_many(what: str, number: int, most: int) -> InputError:
    return InputError(
        f"a request must have at most {most} new {what}",
        number,
        f"Ask for fewer at a time, or load the model with new_{what}={number}.",
    )
