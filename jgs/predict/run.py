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
from jgs.models import GNN
from jgs.predict.source import SPLITS, Source, of_graph, of_run
from jgs.train import checkpoint, folder
from jgs.train.config import Config
from jgs.train.evaluate import exact_inference
from jgs.train.evaluate_edges import check_nodes
from jgs.train.evaluate_rows import empty
from jgs.train.model import make_model

# What a run of another task is for.
_OTHER_TASKS = {
    "embed": "Its result is embeddings.npy.",
    "links": "Its result is the AUC of its test.",
}


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
) -> Run:
    """The run in the folder `run_dir` of `python -m jgs.train`, finished or not; see `Run`.

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
        text, found, record = _read(Path(run_dir))
        arrays.update(found)
        return json.dumps([text, record])

    text, record = json.loads(text_of_first(comm, read))
    own = {name: value for name, value in changed.items() if value is not None}
    config = everywhere(comm, lambda: Config.from_json(text, **own))
    shape = record["shape"]
    widths = (shape["num_features"], shape["num_classes"], shape["sparse"])
    model = everywhere(comm, lambda: make_model(config, *widths, jax.random.key(0)))
    params = everywhere(comm, lambda: _params(run_dir, nnx.state(model), arrays))
    nnx.update(model, jax.tree.map(jax.numpy.asarray, arrays_of_first(comm, params)))
    return Run(config, model, record, comm)


def _read(run_dir: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The configuration's text, the best parameters and the record of the last checkpoint."""
    try:
        text = (run_dir / folder.CONFIG).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{run_dir} must be the folder of a run, with a {folder.CONFIG}",
            error,
            "Give the --run-dir of python -m jgs.train.",
        ) from None
    if (config := Config.from_json(text)).task != "nodes":
        raise InputError(
            f"the run in {run_dir} must have trained a model of nodes",
            f"--task {config.task}",
            _OTHER_TASKS[config.task],
        )
    found = checkpoint.read(run_dir / folder.CHECKPOINTS)
    if found is None or found[1].get("best_epoch", 0) < 1:
        raise InputError(
            f"the run in {run_dir} must have finished an epoch",
            "no whole checkpoint of one",
            "Let it train further, with --resume.",
        )
    arrays, record = found
    if "shape" not in record or "best_params" not in arrays:
        raise InputError(
            f"the run in {run_dir} must be of this version of jgs",
            "a checkpoint of another",
            "Open it with the version that wrote it, or train again.",
        )
    return text, arrays["best_params"], record


def _params(run_dir: Any, template: Any, found: dict[str, Any]) -> Any:
    """The arrays of a checkpoint, nested dicts by name, in the place of the template's; the
    template's own where `found` is empty (on other ranks)."""
    if not found:
        return template

    def pick(path: Any, like: jax.Array) -> np.ndarray:
        node: Any = found
        for key in path:
            name = str(next(getattr(key, k) for k in ("key", "name", "idx") if hasattr(key, k)))
            node = node.get(name) if isinstance(node, dict) else None
        if getattr(node, "shape", None) != like.shape:
            raise InputError(
                f"the checkpoint in {run_dir} must fit the model of its {folder.CONFIG}",
                f"{jax.tree_util.keystr(path)} of shape {getattr(node, 'shape', None)}",
                "Was the file changed? Train again.",
            )
        return np.asarray(node, like.dtype)

    return jax.tree_util.tree_map_with_path(pick, template)


def _best_class(logits: np.ndarray) -> np.ndarray:
    """int32 `[n, 2]`: the class of the largest output, and the bits of its probability."""
    found = np.empty((len(logits), 2), np.int32)
    step = max(1, (1 << 22) // logits.shape[1])  # bounds the temporaries
    for begin in range(0, len(logits), step):
        some = logits[begin : begin + step]
        best = np.argmax(some, axis=1)  # as `jgs.train.evaluate.accuracy`
        top = np.take_along_axis(some, best[:, None], axis=1)
        probability = 1 / np.exp(some - top).sum(axis=1)
        found[begin : begin + step, 0] = best
        found[begin : begin + step, 1] = probability.astype(np.float32).view(np.int32)
    return found


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    """Without overflow."""
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)
