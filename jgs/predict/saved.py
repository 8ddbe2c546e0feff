"""What a run folder has (`read_run`), and what the opened runs of all tasks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from jgs.data.stored import read_columns
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.graph import NodeIds, Schema
from jgs.graph.shown import Shown
from jgs.predict.progress import Advance
from jgs.predict.source import RunData
from jgs.train.config import Config
from jgs.train.evaluation.exact import exact_inference
from jgs.train.loop import checkpoint, folder
from jgs.train.loop.edge_features import edges_of
from jgs.train.loop.learned import rows_by_type
from jgs.train.loop.model import types_of
from jgs.train.tasks.task import Task

PARAMS = ("best", "last")


def read_run(
    run_dir: Path,
) -> tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Reads the folder of a run, with its newest whole checkpoint. Raises `InputError`.

    Returns the text of `config.json`; the checkpoint's arrays, nested dicts by name: the
    parameters `best` and `last` of a model, or the `rows` of a run without one; the
    checkpoint's record, with the number of `epochs` that were complete; and these epochs'
    metrics.
    """
    try:
        text = (run_dir / folder.CONFIG).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{run_dir} must be the folder of a run, with a {folder.CONFIG}",
            error,
            "Give the --run-dir of python -m jgs.train.",
        ) from None
    config = Config.from_json(text)
    found = checkpoint.read(run_dir / folder.CHECKPOINTS)
    if found is None or found[1].get("best_epoch", int("rows" in found[0])) < 1:
        raise InputError(
            f"the run in {run_dir} must have finished an epoch",
            "no whole checkpoint of one",
            "Let it train further, with --resume.",
        )
    arrays, record = found
    try:
        if "rows" in arrays:  # embeddings, without a model
            kept, needed = {"rows": arrays["rows"]}, {"data"}
        else:
            needed = {"data", "shape"}
            state = arrays["state"]
            averages = config.average != "none"
            last = state["opt_state"]["average"] if averages else state["params"]
            kept = {"best": arrays["best_params"], "last": last}
            if "learned" in arrays:
                _put_rows(kept["best"], record["shape"], arrays["best_learned"])
                _put_rows(kept["last"], record["shape"], arrays["learned"]["rows"])
        if missing := needed - set(record):
            raise KeyError(*missing)
    except (KeyError, TypeError):
        raise InputError(
            f"the run in {run_dir} must be of this version of jgs",
            "a checkpoint of another",
            "Open it with the version that wrote it, or train again.",
        ) from None
    epochs = record.get("loader", {}).get("epoch", 0)
    return text, kept, record | {"epochs": epochs}, folder.read_metrics(run_dir, epochs)


def _put_rows(params: dict[str, Any], shape: dict[str, Any], rows: np.ndarray) -> None:
    """Adds the rows that were learned beside the parameters to them, where the model of an
    opened run has them."""
    types = types_of(shape)
    assert types is not None
    inputs = params.get("encoder", params)["inputs"]
    inputs["embedding"] = {"value": rows_by_type(types.schema, types.widths, rows)}


class Saved(NamedTuple):
    """What an opened run is made of: `model` is None, and `params` are the arrays of the
    checkpoint, where no model was trained. `rows` are the metrics of the epochs."""

    config: Config
    model: Any
    record: dict[str, Any]
    comm: Communicator
    params: dict[str, Any]
    rows: Sequence[dict[str, Any]] = ()
    run_dir: str = ""


class Opened(Shown):
    """An opened run of any task, with fields of `jgs.predict.Run`, its `task`, and the
    `jgs.answers.Answer` that makes columns of what its `predict` returns. It raises
    `InputError` on several ranks, unless the class takes `ranks`.

    A class says what commands need to know:
      flags: those of `python -m jgs.predict` by which its runs are asked. With `split` a report
        judges its predictions of a split.
      timed: whether each prediction is for a time.
      untimed: the error for a timed run that is asked for what has no time.
      exports: whether `jgs.export_run` may write its model.
      learned: what the run learns, where that is not `--model`.
    """

    ranks: bool = False
    flags: frozenset[str]
    timed: bool = False
    untimed: ClassVar[tuple[str, str, str]]
    exports: bool = False
    learned: ClassVar[str] = ""

    def __init__(self, saved: Saved):
        config, comm, record = saved.config, saved.comm, saved.record
        if comm.size > 1 and not self.ranks:
            raise InputError(
                f"a run of --task {config.task} must be opened by one process",
                f"{comm.size} ranks",
                "Start one.",
            )
        self.config, self.metrics, self.run_dir = config, columns(saved.rows), saved.run_dir
        self.task: Task = config.made("task")
        self.answer = self.task.answer(record.get("shape", {}))
        self.epochs, self._digests = record.get("epochs", 0), record["data"]

    @property
    def _source(self) -> Any:
        """The run's data, which are opened when first needed."""
        raise NotImplementedError

    def num_nodes(self) -> int:
        """The number of nodes in the run's data."""
        return self._source.num_nodes

    @property
    def node_ids(self) -> NodeIds | None:
        """The ids of the user's tables for the nodes of the run's data; None where there are
        none. `run.node_ids[nodes]` are the ids of `nodes`."""
        return self._source.node_ids

    @property
    def schema(self) -> Schema | None:
        """The node types and relations of the run's data; None where there are none."""
        return self._source.schema

    def _facts(self) -> dict[str, str]:
        config = self.config
        return {
            "": repr(self.run_dir),
            "dataset": config.dataset,
            "model": self.learned or config.model,
            "sampler": config.sampler,
            "epochs": f"{self.epochs:,}/{config.epochs:,}",
        }


class OpenedModel(Opened):
    """An opened run that has trained a model."""

    def __init__(self, saved: Saved):
        super().__init__(saved)
        self.model, record = saved.model, saved.record
        self.best_params, self.last_params = (saved.params[name] for name in PARAMS)
        self.best_epoch, self.val_accuracy = record["best_epoch"], record["val_accuracy"]
        shape = self._shape = record["shape"]
        self.edges = edges_of(shape)
        self.feature_columns = read_columns(shape.get("feature_columns"))
        self.edge_feature_columns = read_columns(shape.get("edge_feature_columns"))

    @property
    def class_names(self) -> np.ndarray | None:
        """NumPy text `[C]`, so that `class_names[prediction]` names the predicted classes; None
        where the data set names none."""
        return self.answer.names

    def _inference(self, model: Any, source: RunData, advance: Advance) -> Callable[..., Any]:
        return exact_inference(
            model,
            source.graphs,
            source.features,
            self.config.eval_memory << 20,
            None,
            self.config.options.get("weighted", False),
            comm=source.comm,
            offsets=source.offsets,
            advance=advance,
        )

    def _check_untimed(self) -> None:
        if self.timed:
            raise InputError(*self.untimed)

    def _facts(self) -> dict[str, str]:
        best = {"best_epoch": str(self.best_epoch), "val": f"{self.val_accuracy:.4f}"}
        return super()._facts() | best


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """An array for each name in the rows. Numbers are int64, or float64 if one is a float or
    missing (NaN). Text that is missing is ""."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    return np.array(values, np.float64)  # None becomes NaN


def fitting(run_dir: Any, template: Any, found: dict[str, Any] | None) -> Any:
    """`template` with the arrays `found` in a checkpoint, nested dicts by name, in place of its
    own. It keeps its own where `found` is None or empty, as on ranks other than 0. Raises
    `InputError` for arrays that do not fit."""
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
