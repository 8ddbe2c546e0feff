"""Exact evaluation: layer by layer, over all neighbours, in chunks of bounded memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.devices import computes_on_cpu, on_host
from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import Alone, Communicator, all_gather_rows
from jgs.dist.communicators.start import names
from jgs.errors import InputError
from jgs.files.row_file import RowFiles
from jgs.files.writing import mib
from jgs.graph import Graph, as_device
from jgs.graph.row_tables.table import as_table
from jgs.models import Model
from jgs.models.layer import uses_types
from jgs.train.evaluation.edge_pieces import (
    Asking,
    EdgePieces,
    Rank,
    Reduced,
    Turns,
    by_columns,
    check_nodes,
    reduced,
)
from jgs.train.evaluation.layer import message, stages, update
from jgs.train.evaluation.rows import (
    Rows,
    Spilled,
    as_rows,
    empty,
    mapped_at_most,
    on_disk,
    padded,
    project,
    take,
)

log = logging.getLogger(__name__)


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
    chunk's edges in pieces of one size; a hub spans several. A layer's output that is larger
    than `memory` lies in an unnamed file. Each layer compiles once.

    Files of rows, of an output or of memory-mapped features, are mapped if half of the
    machine's free memory can hold them. Larger ones are read past the page cache, in one
    process: layers with a sum, mean or maximum reduce some columns of all rows at a time, and
    others read, for each chunk, the rows of its sources in order.

    Args:
      model: see `jgs.models.Model`.
      graph: `jgs.Graph` of `N` nodes, with the edge columns that the layers read.
      features: `[N, F]`, a JAX array or `SparseFeatures`; for a model with `typed` also
        `TypedFeatures`. If the `inputs` of such a model have no learned rows, they are the
        tables of the types whose width is 0.
      memory: bytes; the command's `--eval-memory`.
      scratch: the folder of the unnamed file; None: the system's folder for temporary files.
      weighted: whether to leave out the edges of weight 0, which weighted sampling never draws.
      comm, offsets: for many ranks: their communicator, and int `[R+1]`: rank `r` owns the
        nodes from `offsets[r]` to `offsets[r+1] - 1`. Then `graph`, `features`, `nodes` and the
        result are lists with an item for each local rank: a graph of all `N` nodes with the
        in-edges of the rank's own nodes, the rows of its own nodes as `FeatureExchange` takes
        them (or `TypedFeatures`, whose schema is that of its own nodes), ids of nodes that it
        owns, and their outputs. All ranks call this function and `infer`, and no other thread
        may use `comm` meanwhile. An edge's "id" is its position in its rank's graph.
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
        self.typed = getattr(model, "typed", False)
        self.features = [self._opened(own) for own in features]
        first = self.features[0]
        if self.typed:
            width = model.inputs.out_features  # type: ignore[attr-defined]
        elif getattr(first, "schema", None) is not None:
            raise InputError(
                "a model must be one of typed graphs to read features of several widths",
                type(model).__name__,
                "Choose one of jgs.models, such as RGCN.",
            )
        else:
            width = first.shape[1] if hasattr(first, "shape") else as_table(first).shape[1]
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
        self.edges = EdgePieces(comm, offsets, graphs, weighted, sorted(names), widest, memory)
        self.turns = Turns(comm, self.edges)
        self._say_where()

    def _say_where(self) -> None:
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
            if features is not None:
                self.features = [self._opened(own) for own in features]
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
                rows = self._layer(params, rows, targets, layer, last=False)
            outputs = self._layer(params, rows, wanted[-1], depth - 1, last=True)
            in_order = [np.array_equal(*each) for each in zip(ids, wanted[-1], strict=True)]
            return [
                output
                if same
                else output[at]  # the indexing copies rows that may lie in a file
                for output, same, (_, at) in zip(outputs, in_order, unique, strict=True)
            ]

    @cached_property
    def _mapped(self) -> int:
        return mapped_at_most(self.memory)

    def _opened(self, features: Any) -> Rows:
        found = None
        if self.comm.size == 1 and not self.typed:
            found = on_disk(features, self._mapped)
        return as_rows(features) if found is None else found

    def _checked(self, nodes: Sequence[Any], depth: int) -> list[np.ndarray]:
        if not 1 <= depth <= len(self.stages):
            raise InputError(
                f"num_layers must be one of 1 to {len(self.stages)}, the model's layers",
                depth,
                "Give None for all layers, or a number of this range.",
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
    ) -> list[Any]:
        """The outputs of `targets`, a row each if `last`, else in rows of all nodes."""
        stage, edges = self.stages[layer], self.edges
        messages = self._messages(params, rows, targets, layer)
        alone, table, stored = self.comm.size == 1, messages[0], None
        if isinstance(table, Spilled) and len(table.columns) > 1:
            of_rank = edges.ranks[0], table, targets[0]
            stored = Reduced(edges, *of_rank, stage.reduce, self.scratch)
        fetched = 0 if alone else 2 * stage.message_width
        size = edges.piece_size(stage.edge_floats + fetched, stage.edge_columns)
        conv = nnx.split(nnx.merge(self.graphdef, params).layers[layer])

        def compute(rank: Rank, rows: Rows, table: Any, asked: Any, output: Any) -> Asking:
            done = 0
            for chunk in edges.chunks(asked):
                x = take(rows, padded(chunk - rank.first, edges.num_rows, rank.num_own))
                kind = jax.device_put(self._kind(chunk))
                if stored is None:
                    of = edges, stage, conv, size, rank, table
                    state, count = yield from reduced(*of, chunk, x, kind)
                else:
                    state, count = stored.chunk(done, chunk.size)
                ids = padded(chunk, edges.num_rows, edges.num_nodes)
                degree = padded(rank.degree(chunk), edges.num_rows, 0)
                given = jax.device_put((count.astype(np.float32), degree, kind, ids))
                h = update(self.graphdef, params, x, state, *given, layer)
                at = np.arange(done, done + chunk.size) if last else chunk - rank.first
                output[at] = jax.device_get(h)[: chunk.size]
                done += chunk.size
                self.done += chunk.size
                if self.advance is not None:
                    self.advance(self.done, self.total)

        each = zip(edges.ranks, targets, strict=True)
        sizes = [asked.size if last else rank.num_own for rank, asked in each]
        outputs = self._empty(sizes, stage.out_width, None if last else layer + 1)
        of_ranks = zip(edges.ranks, rows, messages, targets, outputs, strict=True)
        askings = [compute(*of_rank) for of_rank in of_ranks]
        if alone:
            next(askings[0], None)  # it asks for nothing
        else:
            changed = layer > 0 or self.replaced or self.typed or stage.projects_first
            self.turns.run(layer, messages, askings, targets, size, changed)
        return outputs if last else [self._settled(output) for output in outputs]

    def _messages(
        self, params: Any, rows: Sequence[Rows], targets: list[np.ndarray], layer: int
    ) -> Sequence[Rows]:
        """For each local rank a row for each own node, the messages that `targets` read."""
        stage, ranks = self.stages[layer], self.edges.ranks
        columns = by_columns(stage, self.edges.num_nodes, self.memory)
        if not stage.projects_first and not (columns and isinstance(rows[0], RowFiles)):
            return rows

        def of(rank: Rank, own: Rows, chunk: np.ndarray, places: np.ndarray) -> jax.Array:
            x = take(own, places)
            if not stage.projects_first:
                return x
            degree = padded(rank.degree(chunk), self.edges.num_rows, 0)
            given = jax.device_put((degree, self._kind(chunk)))
            return message(self.graphdef, params, x, *given, layer)

        nodes = self.edges.with_neighbours(targets)
        outputs = self._empty([r.num_own for r in ranks], stage.message_width, layer, True)
        return self._filled(outputs, rows, nodes, of)

    def _inputs(self, params: Any, nodes: list[np.ndarray]) -> list[Rows]:
        def of(rank: Rank, own: Rows, chunk: np.ndarray, places: np.ndarray) -> jax.Array:
            ids = padded(chunk, self.edges.num_rows, self.edges.num_nodes)
            given = jax.device_put((ids, places))
            return project(self.graphdef, params, own, *given, self.schema)

        outputs = self._empty([r.num_own for r in self.edges.ranks], self.in_width, 0)
        return self._filled(outputs, self.features, nodes, of)

    def _filled(
        self,
        outputs: Sequence[Any],
        rows: Sequence[Rows],
        nodes: Sequence[np.ndarray],
        of: Callable[..., jax.Array],
    ) -> list[Rows]:
        """The `outputs`, with `of(rank, rows, chunk, places)` for each chunk of `nodes`."""
        each = zip(self.edges.ranks, rows, nodes, outputs, strict=True)
        for rank, own, asked, output in each:
            for chunk in self.edges.chunks(asked):
                at = chunk - rank.first
                places = padded(at, self.edges.num_rows, rank.num_own)
                output[at] = jax.device_get(of(rank, own, chunk, places))[: chunk.size]
        return [self._settled(output) for output in outputs]

    def _kind(self, chunk: np.ndarray) -> np.ndarray:
        """int32 `[C]`: the types of the nodes, -1 in padding, where a layer reads them."""
        if not self.reads_types:
            return padded(np.zeros(0, np.int32), self.edges.num_rows, -1)
        kind = self.schema.numbers(chunk).astype(np.int32)  # type: ignore[union-attr]
        return padded(kind, self.edges.num_rows, -1)

    def _empty(
        self, sizes: Sequence[int], width: int, layer: int | None, messages: bool = False
    ) -> list[Any]:
        """A matrix for each local rank; all ranks raise where one lacks room."""

        def of(num: int) -> np.ndarray | Spilled:
            small = 4 * num * width <= self.memory or self.comm.size > 1 or layer is None
            if small or 4 * num * width <= self._mapped:
                return empty((num, width), self.memory, self.scratch)
            stage, columns = self.stages[layer or 0], 0
            if messages or not stage.projects_first:  # else they are read in order
                columns = by_columns(stage, num, self.memory)
            return Spilled((num, width), columns or width, self.scratch)

        return everywhere(self.comm, lambda: [of(num) for num in sizes])

    def _settled(self, output: Any) -> Rows:
        if isinstance(output, Spilled):
            return output
        small = computes_on_cpu() or output.nbytes <= self.memory
        return as_device(output) if small or self.comm.size > 1 else output
