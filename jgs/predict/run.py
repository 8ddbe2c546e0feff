"""`open_run`: a training run's model, and what it says of nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from jgs.dist.collect import rows_of_all
from jgs.dist.comm import Alone, Communicator
from jgs.dist.first import arrays_of_first, everywhere, text_of_first
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.models import DGCNN, GNN
from jgs.predict.links import LinkRun
from jgs.predict.saved import fitting, read_run
from jgs.predict.source import SPLITS, Source, of_graph, of_run
from jgs.train.config import Config
from jgs.train.evaluate import exact_inference
from jgs.train.evaluate_edges import check_nodes
from jgs.train.evaluate_rows import empty
from jgs.train.links import make_dgcnn
from jgs.train.model import make_model


class Predictions(NamedTuple):
    """What a run says of `n` nodes.

    Fields:
      prediction: int32 `[n]`, the class of the largest output; of multi-label data bool
        `[n, C]`, the labels whose output is above 0.
      probability: float32 `[n]`, of that class (softmax); of multi-label data `[n, C]`, of each
        label (sigmoid).
    """

    prediction: np.ndarray
    probability: np.ndarray


class Run:
    """A training run with its best parameters: see `open_run`.

    Its methods compute from all neighbours, in the bounded memory of the run's `--eval-memory`
    (`jgs.train.exact_inference`), for

      nodes: int `[n]`, ids of the data set, in any order; by default all nodes.
      graph, features: another graph, and its features `[N, F]` of the width that the run was
        trained with; by default the run's data, opened when first needed.

    They raise `InputError` for nodes or features that do not fit. On many ranks all call them;
    the process of rank 0 gets the rows of all nodes, the others None.

    Fields:
      config: `Config` of the run.
      model: `jgs.models.GNN` with the parameters of the best epoch, by which the run's
        `test_accuracy` is.
      best_epoch, val_accuracy: which, and its validation accuracy.
      num_features, num_classes, multilabel: of what it was trained on.
    """

    def __init__(self, config: Config, model: GNN, record: dict[str, Any], comm: Communicator):
        self.config, self.model = config, model
        self.best_epoch, self.val_accuracy = record["best_epoch"], record["val_accuracy"]
        shape = record["shape"]
        self.num_features, self.num_classes = shape["num_features"], shape["num_classes"]
        self.multilabel = shape["multilabel"]
        self._comm, self._digests = comm, record["data"]
        self._own: tuple[Source, Callable] | None = None

    def predict(
        self, nodes: Any = None, *, graph: Graph | None = None, features: Any = None
    ) -> Any:
        """`Predictions`: the classes of nodes."""
        if self.multilabel:
            logits = self.logits(nodes, graph=graph, features=features)
            if logits is None:
                return None
            return Predictions(logits > 0, _sigmoid(logits))
        rows = self._rows(nodes, graph, features, len(self.model.layers), _best_class, np.int32)
        if rows is None:
            return None
        return Predictions(rows[:, 0].copy(), rows[:, 1].copy().view(np.float32))

    def logits(
        self, nodes: Any = None, *, graph: Graph | None = None, features: Any = None
    ) -> Any:
        """float32 `[n, C]`: the model's outputs."""
        return self._rows(nodes, graph, features, len(self.model.layers))

    def embed(
        self, nodes: Any = None, *, graph: Graph | None = None, features: Any = None
    ) -> Any:
        """float32 `[n, hidden]`: the rows of the last hidden layer, as the last layer reads
        them. Raises `InputError` for a model of one layer."""
        if len(self.model.layers) < 2:
            raise InputError(
                "a run must have a hidden layer to embed nodes",
                "one layer",
                "Train a model of two layers or more.",
            )
        return self._rows(nodes, graph, features, len(self.model.layers) - 1)

    def split(self, name: str) -> np.ndarray:
        """int32, ascending: the nodes of the run's split "train", "val" or "test"."""
        if name not in SPLITS:
            raise InputError(
                f"a split must be one of {', '.join(SPLITS)}", repr(name), "Choose."
            )
        return self._data()[0].splits[name]

    def num_nodes(self) -> int:
        """Of the run's data."""
        return self._data()[0].num_nodes

    def _rows(
        self,
        nodes: Any,
        graph: Graph | None,
        features: Any,
        num_layers: int,
        finish: Callable[[np.ndarray], np.ndarray] = lambda rows: rows,
        dtype: Any = np.float32,
    ) -> Any:
        source, infer = self._data() if graph is None else self._other(graph, features)
        ids = np.arange(source.num_nodes, dtype=np.int32)
        if nodes is not None:
            ids = everywhere(source.comm, lambda: check_nodes(nodes, 0, source.num_nodes))
        owned = source.owned(ids)
        outputs = infer(nnx.state(self.model), [mine for _, mine in owned], num_layers)
        rows = [finish(output) for output in outputs]

        def table() -> np.ndarray | None:
            if source.comm.rank > 0:
                return None
            shape = (ids.size, rows[0].shape[1])
            return empty(shape, self._memory, None).view(dtype)

        out = everywhere(source.comm, table)
        rows_of_all(source.comm, [at for at, _ in owned], rows, out, self._memory)
        return out

    @property
    def _memory(self) -> int:
        return self.config.eval_memory << 20

    def _data(self) -> tuple[Source, Callable]:
        if self._own is None:
            source = of_run(self.config, self._comm, self._digests)
            self._own = source, self._inference(source)
        return self._own

    def _other(self, graph: Graph, features: Any) -> tuple[Source, Callable]:
        source = of_graph(graph, features)
        width = source.features[0].shape[1]
        if width != self.num_features:
            raise InputError(
                f"features must have the {self.num_features} columns of the run's",
                f"{width} columns",
                "Give the features that it was trained with.",
            )
        return source, self._inference(source)

    def _inference(self, source: Source) -> Callable:
        return exact_inference(
            self.model,
            source.graphs,
            source.features,
            self._memory,
            None,
            self.config.weighted,
            comm=source.comm,
            offsets=source.offsets,
        )


def open_run(
    run_dir: str | os.PathLike,
    *,
    comm: Communicator | None = None,
    **changed: Any,
) -> Any:
    """The run in the folder `run_dir` of `python -m jgs.train`, finished or not: a
    `Run`, or of `--task links` a `LinkRun`.

    Nothing in the folder is changed. The newest whole checkpoint is read.

    Args:
      comm: on many ranks, which all call it; that of rank 0 reads the folder.
      changed: settings that may be others now than in training: `root` and `partition`, where
        the data lie, `eval_memory`, `mode`.

    Raises `InputError` where the folder holds no run, or none that has finished an epoch.
    """
    comm = Alone() if comm is None else comm
    arrays: dict[str, Any] = {}

    def read() -> str:
        text, found, record = read_run(Path(run_dir))
        arrays.update(found)
        return json.dumps([text, record])

    text, record = json.loads(text_of_first(comm, read))
    own = {name: value for name, value in changed.items() if value is not None}
    config = everywhere(comm, lambda: Config.from_json(text, **own))
    made = everywhere(comm, lambda: _MODELS[config.task](config, record["shape"]))
    model: Any = made
    params = everywhere(comm, lambda: fitting(run_dir, nnx.state(model), arrays))
    nnx.update(model, jax.tree.map(jax.numpy.asarray, arrays_of_first(comm, params)))
    if config.task == "links":
        return everywhere(comm, lambda: LinkRun(config, model, record, comm))
    return Run(config, model, record, comm)


def _model_of_nodes(config: Config, shape: dict[str, Any]) -> GNN:
    widths = (shape["num_features"], shape["num_classes"], shape["sparse"])
    return make_model(config, *widths, jax.random.key(0))


def _model_of_links(config: Config, shape: dict[str, Any]) -> DGCNN:
    return make_dgcnn(config, shape["num_features"], shape["pool_rows"], jax.random.key(0))


_MODELS = {"nodes": _model_of_nodes, "links": _model_of_links}


def _best_class(logits: np.ndarray) -> np.ndarray:
    """int32 `[n, 2]`: the class of the largest output, and the bits of its probability."""
    found = np.empty((len(logits), 2), np.int32)
    step = max(1, (1 << 22) // logits.shape[1])  # bounds the temporaries
    for begin in range(0, len(logits), step):
        some = logits[begin : begin + step]
        best = np.argmax(some, axis=1)  # as `jgs.train.metrics.confusion`
        top = np.take_along_axis(some, best[:, None], axis=1)
        probability = 1 / np.exp(some - top).sum(axis=1)
        found[begin : begin + step, 0] = best
        found[begin : begin + step, 1] = probability.astype(np.float32).view(np.int32)
    return found


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    """Without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)
