"""`Run`: the model of a training run, and its predictions for nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from flax import nnx

from jgs.dist.communicators.broadcast import everywhere
from jgs.dist.communicators.collect import rows_of_all
from jgs.errors import InputError, check_choice
from jgs.graph import Graph
from jgs.ops import gather
from jgs.predict.by_time import cutoffs, judged_at
from jgs.predict.explain import Explanation, explain
from jgs.predict.progress import Advance, bar
from jgs.predict.sampled import batches, neighbor_sampler, sampled_logits
from jgs.predict.saved import OpenedModel, Saved
from jgs.predict.source import SPLITS, RunData, check_digests, of_graph, of_run
from jgs.predict.types import ids_of
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.edges.random import threefry
from jgs.train.evaluation.rows import empty
from jgs.train.loop.model import types_of
from jgs.train.loop.open_data import open_data
from jgs.train.tasks.moments import judges_key, outputs_of


class Run(OpenedModel):
    """A training run with its parameters, which `open_run` opens.

    Its methods compute from all neighbours, in the bounded memory of the run's `--eval-memory`
    (see `jgs.train.exact_inference`).

    Arguments of several methods:
      nodes: int `[n]`, ids of the data set in any order; by default all nodes.
      node_type: the name of a node type. `nodes` are then nodes of this type, and their ids
        count from 0 in it; by default all nodes of the type.
      graph, features: another graph, and its features `[N, F]`, as wide as those that the run
        was trained with, or of a model of typed graphs `TypedFeatures`. By default they are the
        run's data, opened when first needed.
      fanouts: how many neighbours to sample in each layer, seeds' hop first, in place of all.
        One process only.
      key: the random key of what `fanouts` draw, by default that of the run's `--seed`. A
        node's draws depend on the key, the hop and the node alone, so its rows do not depend
        on the other nodes.

    They raise `InputError` for nodes or features that do not fit. All ranks of a run on many
    ranks call them; rank 0's process gets the rows of all nodes, the others get None.

    Fields:
      config: the run's `Config`.
      model: the `jgs.models.GNN`, with the parameters of the best epoch, which the run's
        `test_accuracy` is about, or of the newest checkpoint after
        `open_run(..., params="last")`.
      best_params, last_params: `nnx.State`, the parameters of the epoch of best validation, and
        those of the newest checkpoint; `nnx.update(run.model, run.last_params)` puts them into
        the model.
      best_epoch, val_accuracy: the epoch of best validation, and its validation metric.
      epochs: the number of epochs that were complete at the newest checkpoint.
      metrics: dict of NumPy arrays `[epochs]`, the columns of `metrics.jsonl`: `"epoch"`,
        `"train_loss"`, `"val_accuracy"`, seconds and more.
      run_dir: str, the path as it was given.
      num_features, num_classes, multilabel, numbers: properties of the data that it was trained
        on; `numbers` says whether labels are numbers.
      scale: two floats, the mean and the deviation of the training labels that are numbers; of
        several numbers a node two lists of them.
      timed: whether the run is on a `jgs.data.LabelTable`, labels at moments. A node is then
        predicted at a time, by `predict(nodes, time=)`; it has no outputs, rows, split or
        explanation without one.
      feature_columns: `jgs.data.FeatureColumns`, whose `encode` makes features of new rows of
        the user's table; a dict of them by node type; None for other data.
      edge_feature_columns: as in `jgs.data.Dataset`.
    """

    ranks = exports = True
    untimed = (
        "outputs and rows of nodes must be of a run without labels at moments",
        "a run with them",
        "Predict at a time: run.predict(nodes, time=...).",
    )
    flags = frozenset({"split", "nodes", "node_type", "embed", "fanouts", "seed"})

    def __init__(self, saved: Saved):
        shape = saved.record["shape"]
        self.timed = bool(shape.get("moments"))
        if self.timed:
            self.ranks = self.exports = False
            self.flags = frozenset({"split", "nodes", "node_type", "at"})
        super().__init__(saved)
        self.num_features, self.num_classes = shape["num_features"], shape["num_classes"]
        self.multilabel, self.numbers = shape["multilabel"], shape.get("numbers", False)
        self.scale = shape.get("mean", 0.0), shape.get("deviation", 1.0)
        self._comm, self._types = saved.comm, types_of(shape)
        self._advance: Advance = lambda done, total: None

    def predict(
        self,
        nodes: Any = None,
        *,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
        fanouts: Any = None,
        key: Any = None,
        time: Any = None,
    ) -> Any:
        """The `Predictions` for nodes: their classes and probabilities. Where labels are
        numbers float64 `[n]`, or `[n, C]` of several, in the unit of the labels.

        For a run on labels at moments, `time` is the cutoff of each node `[n]`, or one for all:
        ints in the unit of the graph's times, or dates (NumPy's, or text) where that unit is
        known. A prediction depends on edges before it alone. `graph` then has the same nodes,
        by the data set's ids, and other edges. Neighbours are drawn by the run's sampler, with
        the key that drew them for the run's validation and test. By a sampler that is by-node a
        prediction depends on its node and time alone.
        """
        if self.timed:
            others = {"node_type": node_type, "features": features, "fanouts": fanouts}
            self._refuse(others | {"key": key}, "without labels at moments", "a run with them")
            return self.answer.of(self._at(nodes, time, graph))
        self._refuse({"time": time}, "on labels at moments", "a run without them")
        of_nodes = nodes, node_type, graph, features
        if fanouts is None:
            last, kept = len(self.model.layers), self.answer.kept
            rows = self._rows(*of_nodes, last, kept)
            return None if rows is None else self.answer.read(rows)
        return self.answer.of(self._sampled(*of_nodes, fanouts, key))

    def logits(
        self,
        nodes: Any = None,
        *,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
        fanouts: Any = None,
        key: Any = None,
    ) -> Any:
        """float32 `[n, C]`: the model's outputs. Where labels are numbers these are deviations
        from the mean of the training labels; `predict` has them in the labels' unit."""
        of_nodes = nodes, node_type, graph, features
        if fanouts is None:
            return self._rows(*of_nodes, len(self.model.layers))
        return self._sampled(*of_nodes, fanouts, key)

    def _sampled(
        self, nodes: Any, node_type: Any, graph: Any, features: Any, fanouts: Any, key: Any
    ) -> np.ndarray:
        sampler = neighbor_sampler(self.config, self.model, fanouts)
        source, ids = self._on_one_machine(nodes, node_type, graph, features)
        of = (source.graphs[0], source.table, ids, sampler, self._key(key))
        with bar("predicting", self.config.progress) as advance:
            return sampled_logits(self.model, *of, self.config.batch_size, advance)

    def embed(
        self,
        nodes: Any = None,
        *,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> Any:
        """float32 `[n, hidden]`: the nodes' rows of the last hidden layer, the input of the
        last layer. Raises `InputError` for a model of one layer."""
        if len(self.model.layers) < 2:
            raise InputError(
                "a run must have a hidden layer to embed nodes",
                "one layer",
                "Train a model of two layers or more.",
            )
        return self._rows(nodes, node_type, graph, features, len(self.model.layers) - 1)

    def explain(
        self,
        node: Any,
        *,
        target: int | None = None,
        fanouts: Any = None,
        key: Any = None,
        method: str = "gradient",
        steps: int = 50,
        node_type: str | None = None,
        graph: Graph | None = None,
        features: Any = None,
    ) -> Explanation:
        """The `Explanation` of the output for `node`: what each feature and each edge adds.

        Args:
          node: int, the node's id; with `node_type` its id in this type.
          target: the class whose output is explained; None: the class of the largest output.
          fanouts: how many neighbours to sample in each layer for the explained neighbourhood,
            by default 10. With -1 in each layer all neighbours are taken, and the output is the
            exact one.
          method: `"gradient"` (times input) or `"integrated"` (gradients); see
            `jgs.predict.explain`.
          steps: the number of steps of `"integrated"`.
        """
        fanouts = (10,) * len(self.model.layers) if fanouts is None else fanouts
        sampler = neighbor_sampler(self.config, self.model, fanouts, edge_ids=True)
        node = np.asarray(node)
        source, ids = self._on_one_machine(
            node.reshape(1) if node.ndim == 0 else node, node_type, graph, features
        )
        if ids.size != 1:
            raise InputError(
                "one node is explained at a time", f"{ids.size}", "Loop over them."
            )
        own = source.graphs[0]
        batch = batches(own, sampler, ids, 1, self._key(key))(ids)
        if self.model.uses_degrees:
            batch = batch.with_degrees(own.degrees())
        x = gather(source.table, batch.nodes)
        found = explain(self.model, batch, x, target, method, steps)
        if own.edge_type is not None:
            edge_type = np.asarray(own.edge_type)[found.edge_id]
            found = dataclasses.replace(found, edge_type=edge_type)
        found = dataclasses.replace(found, schema=source.schema)
        if source.own_ids is None:
            return found
        names = np.argsort(source.own_ids).astype(np.int32)
        ids_of = {name: names[getattr(found, name)] for name in ("nodes", "src", "dst")}
        return dataclasses.replace(found, node=int(names[found.node]), **ids_of)

    def split(self, name: str) -> np.ndarray:
        """int32, ascending: the nodes of the run's split `name`, "train", "val" or "test"."""
        check_choice("a split", name, SPLITS)
        if self.timed:
            raise InputError(
                "a split of nodes must be of a run without labels at moments",
                "a run with them",
                "Take run.rows(split): nodes and times.",
            )
        return self._source.splits[name]

    def rows(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The nodes int32 `[n]` and times int64 `[n]` of the label table's rows in a split,
        "train", "val" or "test", in the table's order. Raises `InputError`."""
        check_choice("a split", split, SPLITS)
        if not self.timed:
            self._refuse({"rows": split}, "on labels at moments", "a run without them")
        table, ids = self._opened.table, self._opened.own_ids
        some = table.split == SPLITS.index(split)
        nodes = table.nodes[some]
        return nodes if ids is None else ids.argsort()[nodes].astype(np.int32), table.time[some]

    def _rows(
        self,
        nodes: Any,
        node_type: str | None,
        graph: Graph | None,
        features: Any,
        num_layers: int,
        finish: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
    ) -> Any:
        self._check_untimed()
        source = self._with(graph, features)
        infer = self._infer if graph is None else self._exact(source)
        of_nodes = source.schema, source.num_nodes, nodes, node_type
        ids = everywhere(source.comm, lambda: ids_of(*of_nodes))
        owned = source.owned(ids)
        with bar("predicting", self.config.progress and source.comm.rank == 0) as advance:
            self._advance = advance
            outputs = infer(nnx.state(self.model), [mine for _, mine in owned], num_layers)
        rows = [finish(output) for output in outputs]

        def table() -> np.ndarray | None:
            if source.comm.rank > 0:
                return None
            shape = (ids.size, rows[0].shape[1])
            return empty(shape, self._memory, None).view(rows[0].dtype)

        out = everywhere(source.comm, table)
        rows_of_all(source.comm, [at for at, _ in owned], rows, out, self._memory)
        return out

    def source(self, graph: Graph | None = None, features: Any = None) -> RunData:
        """The graph and the features that sampled predictions read. Raises `InputError` on
        several ranks."""
        source = self._with(graph, features)
        if source.comm.size > 1:
            raise InputError(
                "one process must predict by sampled neighbours",
                f"{source.comm.size} ranks",
                "Open the run without comm, or leave fanouts out.",
            )
        return source

    def _key(self, key: Any) -> Any:
        return threefry(self.config.seed) if key is None else key

    def _on_one_machine(
        self, nodes: Any, node_type: str | None, graph: Graph | None, features: Any
    ) -> tuple[RunData, np.ndarray]:
        """The data, and the ids int32 of `nodes` in their graph."""
        self._check_untimed()
        source = self.source(graph, features)
        ids = ids_of(source.schema, source.num_nodes, nodes, node_type)
        return source, ids if source.own_ids is None else source.own_ids[ids]

    @property
    def _memory(self) -> int:
        return self.config.eval_memory << 20

    def _refuse(self, arguments: dict[str, Any], taker: str, own: str) -> None:
        for name, value in arguments.items():
            if value is not None:
                raise InputError(f"{name} must be for a run {taker}", own, "Leave it out.")

    def _at(self, nodes: Any, time: Any, graph: Graph | None) -> np.ndarray:
        """float32 `[n, C]`: the model's outputs for nodes at times."""
        data, num = self._opened, self._opened.graphs[0].num_nodes
        ids = check_seed_ids(np.arange(num) if nodes is None else nodes, num)
        own, times = cutoffs(data, ids, time, "nodes of a run on labels at moments")
        items = {"nodes": own, "time": times}
        return judged_at(self, data, items, graph, judges_key(self.config), outputs_of)

    @cached_property
    def _opened(self) -> Any:
        comm = self._comm

        def opened() -> Any:
            data = open_data(self.config, comm)
            check_digests(data.name, self._digests, data.digests)
            return data

        return everywhere(comm, opened)

    @cached_property
    def _source(self) -> RunData:
        return of_run(self._opened, self.timed)

    def _with(self, graph: Graph | None, features: Any) -> RunData:
        if graph is None:
            return self._source
        return of_graph(graph, features, self.num_features, self._types)

    @cached_property
    def _infer(self) -> Callable:
        return self._exact(self._source)

    def _exact(self, source: RunData) -> Callable:
        return self._inference(self.model, source, lambda *done: self._advance(*done))
