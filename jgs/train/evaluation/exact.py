"""Exact evaluation: layer by layer, over all neighbours, in chunks of bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jgs.devices import computes_on_cpu, on_host
from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.comm import Alone, Communicator, all_gather_rows
from jgs.dist.communicators.rendezvous import names
from jgs.dist.rows.exchange import FeatureExchange
from jgs.errors import InputError
from jgs.files.writing import mib
from jgs.graph import Block, Graph, SparseFeatures, as_device
from jgs.graph.typed_features import TypedFeatures
from jgs.models import Model
from jgs.models.layer import uses_types
from jgs.train.evaluation.edges import Edges, Rank, block, check_nodes
from jgs.train.evaluation.layer import (
    attend,
    begin,
    combine,
    combine_edges,
    message,
    nothing,
    stages,
    update,
)
from jgs.train.evaluation.relations import rows_by_relation
from jgs.train.evaluation.rows import Rows, as_rows, empty, padded, project, take

log = logging.getLogger(__name__)
# A generator that yields node ids, is sent their rows, and so fills a layer's output.
Asking = Generator[np.ndarray, jax.Array, None]


class _Work(NamedTuple):
    """A layer to compute: its number, the model's state, the number of edges in a piece,
    whether the messages are one table on this device that is read where it lies, and whether
    the output has rows for the targets alone."""

    layer: int
    params: Any
    size: int
    in_place: bool
    last: bool


def exact_inference(
    model: Model,
    graph: Any,
    features: Any,
    memory: int = 256 << 20,
    scratch: Path | None = None,
    weighted: bool = False,
    *,
    comm: Communicator | None = None,
    offsets: Any = None,
    advance: Callable[[int, int], None] | None = None,
) -> Callable[..., Any]:
    """Returns `infer(params, nodes, num_layers=None, features=None)`, a function that gives a
    model's exact outputs float32 `[len(nodes), C]`.

    Each layer is computed from all neighbours, for every node that the next layer reads, before
    the next layer begins. So the cost is linear in edges and layers. `infer` computes and
    `activate`s the first `num_layers` layers, by default all. Its `params` are
    `nnx.state(model)`, or arrays like it, and its `features` are others of the same shape.

    Working memory is about `memory` bytes. Rows are processed in chunks of one size, and a
    chunk's edges in pieces of one size. A hub spans several pieces, whose sums, maxima or
    softmaxes are combined. If a layer's output (nodes x width) is larger than `memory`, it lies
    in an unnamed file, memory-mapped. Each layer compiles once.

    Args:
      model: see `jgs.models.Model`.
      graph: `jgs.Graph` of `N` nodes, with the edge columns that the layers read.
      features: `[N, F]`, a JAX array or `SparseFeatures`; for a model with `typed` also
        `TypedFeatures`. Such a model's input rows are computed first, for every node that the
        first layer reads. If its `inputs` have no learned rows, they are the tables of the
        types whose width is 0.
      memory: bytes; the command's `--eval-memory`.
      scratch: the folder of the unnamed file; None: the system's folder for temporary files.
      weighted: whether to leave out the edges of weight 0, which weighted sampling never draws.
        The weights change nothing else here, as they change only the draws in training.
      comm, offsets: for many ranks: their communicator, and int `[R+1]`: rank `r` owns the
        nodes from `offsets[r]` to `offsets[r+1] - 1`. Then `graph`, `features`, `nodes` and the
        result are lists with an item for each local rank: a graph of all `N` nodes with the
        in-edges of the rank's own nodes, the rows of its own nodes as `FeatureExchange` takes
        them (or `TypedFeatures`, whose schema is that of its own nodes), ids of nodes that it
        owns, and their outputs. All ranks call this function and `infer`, and no other thread
        may use `comm` meanwhile. A rank fetches the rows of other ranks' nodes that its pieces
        read; all ranks make equally many exchanges. A single rank exchanges nothing and reads
        rows where they lie. An edge's "id" is its position in its rank's graph.
      advance: called with (done, total) after each chunk, which count the rows of all layers on
        this process.

    Raises `InputError`, on all ranks alike, for nodes that the graph or the rank does not
    have, and where the disk lacks room.
    """
    own = (memory, scratch, weighted, advance)
    if comm is not None:
        return _Evaluation(comm, model, graph, offsets, features, *own)
    every = np.array([0, graph.num_nodes])
    evaluation = _Evaluation(Alone(), model, [graph], every, [features], *own)

    def infer(params, nodes, num_layers=None, features=None):
        own = None if features is None else [features]
        return evaluation(params, [nodes], num_layers, own)[0]

    return infer


class _Evaluation:
    """The function that `exact_inference` returns for many ranks."""

    def __init__(
        self,
        comm: Communicator,
        model: Model,
        graphs: Sequence[Graph],
        offsets: Any,
        features: Sequence[Any],
        memory: int,
        scratch: Path | None,
        weighted: bool,
        advance: Callable[[int, int], None] | None,
    ):
        self.comm, self.memory, self.scratch = comm, memory, scratch
        self.advance, self.done, self.total = advance, 0, 0
        self.graphdef, _ = nnx.split(model)
        self.features = [as_rows(own) for own in features]
        first = self.features[0]
        self.typed = getattr(model, "typed", False)
        if self.typed:
            width = model.inputs.out_features  # type: ignore[attr-defined]
        elif isinstance(first, TypedFeatures):
            raise InputError(
                "a model must be one of typed graphs to read features of several widths",
                type(model).__name__,
                "Choose one of jgs.models, such as RGCN.",
            )
        else:
            width = (first[0] if isinstance(first, tuple) else first).shape[1]
        self.in_width, self.schema = width, graphs[0].schema
        self.reads_types = self.typed or any(map(uses_types, model.layers))
        if self.reads_types and self.schema is None:
            raise InputError(
                "the graph must have node types, which the model reads",
                "a graph without a schema",
                "Make it with Graph.from_relations.",
            )
        self.stages = stages(model, width)
        of_layers = jax.tree.leaves(nnx.state(model.layers))
        widest = max(width, *(max(np.shape(p), default=1) for p in of_layers))
        widest = max(widest, *(stage.row_floats for stage in self.stages))
        names = {name for stage in self.stages for name in stage.edge_columns}
        self.edges = Edges(comm, offsets, graphs, weighted, sorted(names), widest, memory)
        self.exchanges: dict[int, FeatureExchange] = {}
        self._say_where()

    def _say_where(self) -> None:
        """Logs which ranks will write to the system's temporary folder for want of another."""
        widths = [stage.out_width for stage in self.stages[:-1]]
        widths += [stage.message_width for stage in self.stages if stage.projects_first]
        size = 4 * max(widths, default=0) * int(np.diff(self.edges.offsets).max())
        if self.comm.size == 1 or size <= self.memory:
            return
        own = np.array([self.scratch is None], np.int32)
        unset = np.flatnonzero(all_gather_rows(self.comm, [own] * self.comm.num_local))
        if unset.size:
            log.info(
                "evaluation keeps up to %d MiB a rank in files, on %s in the system's folder "
                "for such (TMPDIR): --scratch names one for all",
                *(mib(size), names(unset.tolist())),
            )

    def __call__(
        self,
        params: Any,
        nodes: Sequence[Any],
        num_layers: int | None = None,
        features: Sequence[Any] | None = None,
    ) -> list[np.ndarray]:
        with on_host():
            return self._infer(params, nodes, num_layers, features)

    def _infer(
        self,
        params: Any,
        nodes: Sequence[Any],
        num_layers: int | None,
        features: Sequence[Any] | None,
    ) -> list[np.ndarray]:
        if features is not None:
            self.features = [as_rows(own) for own in features]
        self.replaced = features is not None
        depth = len(self.stages) if num_layers is None else num_layers
        ids = everywhere(self.comm, lambda: self._checked(nodes, depth))
        params = jax.device_put(jax.device_get(params))  # they may lie on a device
        unique = [np.unique(asked, return_inverse=True) for asked in ids]
        wanted = [[ids for ids, _ in unique]]  # the nodes whose output each layer computes
        for _ in range(depth - 1):
            wanted.insert(0, self.edges.with_neighbours(wanted[0]))
        self.done, self.total = 0, sum(t.size for layer in wanted for t in layer)
        rows: Sequence[Rows] = self.features
        if self.typed:
            rows = self._inputs(params, self.edges.with_neighbours(wanted[0]))
        for layer, targets in enumerate(wanted[:-1]):
            outputs = self._layer(params, rows, targets, layer, last=False)
            rows = [self._settled(output) for output in outputs]
        outputs = self._layer(params, rows, wanted[-1], depth - 1, last=True)
        in_order = [np.array_equal(*each) for each in zip(ids, wanted[-1], strict=True)]
        return [
            output if same else output[at]  # the indexing copies rows that may lie in a file
            for output, same, (_, at) in zip(outputs, in_order, unique, strict=True)
        ]

    def _checked(self, nodes: Sequence[Any], depth: int) -> list[np.ndarray]:
        if not 1 <= depth <= len(self.stages):
            raise InputError(
                f"num_layers must be one of 1 to {len(self.stages)}, the model's layers",
                depth,
                "Choose one.",
            )
        ranks = self.edges.ranks
        return [check_nodes(n, *rank[:2]) for n, rank in zip(nodes, ranks, strict=True)]

    # -- a layer

    def _layer(
        self,
        params: Any,
        rows: Sequence[Rows],
        targets: list[np.ndarray],
        layer: int,
        last: bool,
    ) -> list[np.ndarray]:
        """For each local rank a matrix with the outputs of its `targets`. Its rows are the
        targets if `last`, else all nodes of the rank; those of no targets mean nothing."""
        stage, edges, messages = self.stages[layer], self.edges, rows
        if stage.projects_first:
            messages = self._messages(params, rows, edges.with_neighbours(targets), layer)
        alone, table = self.comm.size == 1, messages[0]
        in_place = alone and isinstance(table, jax.Array) and table.dtype == np.float32
        fetched = 0 if in_place else 2 * stage.message_width
        size = edges.piece_size(stage.edge_floats + fetched, stage.edge_columns)
        work = _Work(layer, params, size, in_place, last)
        ranks = list(zip(edges.ranks, targets, strict=True))
        sizes = [asked.size if last else rank.num_own for rank, asked in ranks]
        outputs = self._empty(sizes, stage.out_width)
        of_ranks = zip(edges.ranks, rows, messages, targets, outputs, strict=True)
        askings = [self._compute(work, *of_rank) for of_rank in of_ranks]
        if alone:
            self._together(None, askings, 0, 0)
        else:
            turns = [np.array([edges.num_pieces(*r, size)], np.int32) for r in ranks]
            most = int(all_gather_rows(self.comm, turns).max())
            num_sources = self._num_sources(size)
            exchange = self._exchange(layer, messages, num_sources)
            self._together(exchange, askings, most, num_sources)
        return outputs

    def _compute(
        self,
        work: _Work,
        rank: Rank,
        rows: Rows,
        messages: Any,
        targets: np.ndarray,
        output: np.ndarray,
    ) -> Asking:
        """Fills `output` with the outputs of one local rank's `targets`."""
        edges, num_rows, alone, done = self.edges, self.edges.num_rows, self.comm.size == 1, 0
        stage, num_sources = self.stages[work.layer], self._num_sources(work.size)
        layer = nnx.split(nnx.merge(self.graphdef, work.params).layers[work.layer])

        relations, num_states = stage.num_relations, num_rows * max(stage.num_relations, 1)

        def add(state: Any, part: Block, table: Any) -> Any:
            part = jax.device_put(part)
            if stage.reduce == "attention":
                return attend(*layer, state, part, table)
            if stage.by_each_edge:
                return combine_edges(*layer, state, part, table)
            return combine(state, part.with_edge_arrays({}), table, stage.reduce)

        for chunk in edges.chunks(targets):
            own = padded(chunk - rank.first, num_rows, rank.num_own)
            x = take(rows, own)
            state: Any = nothing((num_states, stage.reduced_width), stage.reduce)
            kind = jax.device_put(self._kind(chunk))
            if state is None:
                state = begin(*layer, x, take(messages, own), kind)
            count = np.zeros(num_states, np.int64)
            for row_starts, sources, at in edges.pieces(rank, chunk, work.size):
                if relations:
                    of_edges = rank.columns["type"][at]
                    row_starts = rows_by_relation(row_starts, of_edges, relations)
                count += np.diff(row_starts)
                columns = rank.edge_arrays(stage.edge_columns, at, work.size)
                if work.in_place:  # the kernel reads the rows where they lie
                    part = block(row_starts, sources, edges.num_nodes, columns)
                    state = add(state, part, messages)
                    continue
                found, place = np.unique(sources, return_inverse=True)
                asked = padded(found.astype(np.int32), num_sources, edges.num_nodes)
                table = take(messages, asked) if alone else (yield asked)
                part = block(row_starts, place.astype(np.int32), num_sources, columns)
                state = add(state, part, table)
            ids = padded(chunk, num_rows, edges.num_nodes)
            numbers = (count.astype(np.float32), padded(rank.degree(chunk), num_rows, 0))
            given = jax.device_put((*numbers, kind, ids))
            h = update(self.graphdef, work.params, x, state, *given, work.layer)
            at = np.arange(done, done + chunk.size) if work.last else chunk - rank.first
            output[at] = jax.device_get(h)[: chunk.size]
            done += chunk.size
            self.done += chunk.size
            if self.advance is not None:
                self.advance(self.done, self.total)

    def _messages(
        self, params: Any, rows: Sequence[Rows], nodes: list[np.ndarray], layer: int
    ) -> list[Rows]:
        """For each local rank a row for each own node, with messages for those in `nodes`."""
        ranks = self.edges.ranks
        outputs = self._empty([r.num_own for r in ranks], self.stages[layer].message_width)
        for rank, own, asked, output in zip(ranks, rows, nodes, outputs, strict=True):
            for chunk in self.edges.chunks(asked):
                x = take(own, padded(chunk - rank.first, self.edges.num_rows, rank.num_own))
                degree = padded(rank.degree(chunk), self.edges.num_rows, 0)
                given = jax.device_put((degree, self._kind(chunk)))
                m = message(self.graphdef, params, x, *given, layer)
                output[chunk - rank.first] = jax.device_get(m)[: chunk.size]
        return [self._settled(output) for output in outputs]

    def _inputs(self, params: Any, nodes: list[np.ndarray]) -> list[Rows]:
        """For each local rank a row for each own node, with the input rows of a typed model for
        those in `nodes`."""
        edges = self.edges
        outputs = self._empty([r.num_own for r in edges.ranks], self.in_width)
        of_ranks = zip(edges.ranks, self.features, nodes, outputs, strict=True)
        for rank, features, asked, output in of_ranks:
            for chunk in edges.chunks(asked):
                ids = padded(chunk, edges.num_rows, edges.num_nodes)
                own = padded(chunk - rank.first, edges.num_rows, rank.num_own)
                given = jax.device_put((ids, own))
                h = project(self.graphdef, params, features, *given, self.schema)
                output[chunk - rank.first] = jax.device_get(h)[: chunk.size]
        return [self._settled(output) for output in outputs]

    def _kind(self, chunk: np.ndarray) -> np.ndarray:
        """int32 `[C]`: the types of the nodes, -1 in padding, where a layer reads them."""
        if not self.reads_types:
            return padded(np.zeros(0, np.int32), self.edges.num_rows, -1)
        kind = self.schema.numbers(chunk).astype(np.int32)  # type: ignore[union-attr]
        return padded(kind, self.edges.num_rows, -1)

    def _empty(self, sizes: Sequence[int], width: int) -> list[np.ndarray]:
        """An uninitialised matrix for each local rank; all raise where one lacks room."""
        return everywhere(
            self.comm, lambda: [empty((n, width), self.memory, self.scratch) for n in sizes]
        )

    def _settled(self, output: np.ndarray) -> Rows:
        small = computes_on_cpu() or output.nbytes <= self.memory
        return as_device(output) if small or self.comm.size > 1 else output

    # -- rows of other ranks

    def _num_sources(self, size: int) -> int:
        return max(size, self.edges.num_rows)  # a block has a source for every target

    def _exchange(self, layer: int, messages: Sequence[Rows], size: int) -> FeatureExchange:
        """The exchange that fetches `size` rows of the layer's messages at a time."""
        tables = [m if isinstance(m, SparseFeatures | tuple) else (m,) for m in messages]
        exchange = self.exchanges.get(layer)
        if exchange is None:
            capacity = -(-size // self.comm.size)
            exchange = FeatureExchange(self.comm, self.edges.offsets, tables, capacity)
            self.exchanges[layer] = exchange
        elif layer > 0 or self.replaced or self.typed or self.stages[layer].projects_first:
            exchange.replace(tables)
        return exchange

    def _together(
        self, exchange: Any, askings: Sequence[Asking], turns: int, size: int
    ) -> None:
        """Runs each local rank's generator to its end. All ranks exchange `size` rows `turns`
        times, as often as the rank that asks most; a rank that has finished asks for nothing.
        """
        comm, nobody = self.comm, np.full(size, np.iinfo(np.int32).max, np.int32)

        def advance(asking: Asking, rows: Any) -> np.ndarray:
            try:
                return asking.send(rows)
            except StopIteration:
                return nobody

        wanted = [advance(asking, None) for asking in askings]
        for _ in range(turns):
            x, _ = exchange(comm.own(wanted))
            wanted = list(map(advance, askings, comm.local(x)))
