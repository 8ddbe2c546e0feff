"""`open_run` opens the folder of a training run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.dist.communicators.collect import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError, check_choice, refusing
from jgs.predict.run import Run
from jgs.predict.saved import PARAMS
from jgs.train.config import Config
from jgs.train.loop import checkpoint, folder
from jgs.train.loop.learned import rows_by_type
from jgs.train.loop.model import types_of
from jgs.train.tasks.task import Task


def open_run(
    run_dir: str | os.PathLike,
    *,
    params: str = "best",
    comm: Communicator | None = None,
    **changed: Any,
) -> Run:
    """Opens the run in `run_dir`, a run folder of `python -m jgs.train`, finished or not.
    Nothing in the folder is changed. The newest whole checkpoint is read.

    Args:
      run_dir: the run folder.
      params: which parameters the model gets: `"best"`, those of the epoch of best validation,
        or `"last"`, those of the newest checkpoint.
      comm: the communicator of many ranks. All of them call this function, and rank 0's process
        reads the folder. None: one process.
      changed: settings that may differ from those in training: `root` and `partition` say where
        the data lie; `dataset` another database than that of the run, whose columns are encoded
        as the run's were; `eval_memory`, `mode`, and the `batch_size` and `seed` of what is
        sampled; `progress=False` shows no bar on a terminal.

    Raises `InputError` where the folder holds no run, or a run that has finished no epoch.
    """
    comm = Alone() if comm is None else comm
    check_choice("params", params, PARAMS)
    arrays: dict[str, Any] = {}

    def read() -> str:
        text, found, *rest = read_run(Path(run_dir))
        arrays.update(found)
        return json.dumps([text, *rest])

    text, record, rows = json.loads(broadcast_text(comm, read))
    own = {name: value for name, value in changed.items() if value is not None}
    own |= {"partition": None} if "dataset" in own else {}
    config = everywhere(comm, lambda: Config.from_json(text, **{"progress": True, **own}))
    task: Task = config.made("task")
    model = everywhere(comm, lambda: task.model(config, record.get("shape", {})))
    found = arrays
    if model is not None:

        def fitted() -> dict[str, Any]:
            state, remedy = nnx.state(model), "Was the file changed? Train again."
            rule = f"the checkpoint in {run_dir} must fit the model of its {folder.CONFIG}"
            if not arrays:  # on ranks other than 0
                return dict.fromkeys(PARAMS, state)
            return {n: checkpoint.fitted(rule, remedy, state, arrays[n]) for n in PARAMS}

        found = broadcast_arrays(comm, everywhere(comm, fitted))
        found = {name: jax.tree.map(jax.numpy.asarray, found[name]) for name in PARAMS}
        nnx.update(model, found[params])
    of_run = (config, model, record, comm, found, rows, os.fspath(run_dir), "dataset" in own)
    return everywhere(comm, lambda: Run(*of_run))


def read_run(run_dir: Path) -> tuple[str, dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Reads the folder of a run, with its newest whole checkpoint: the text of `config.json`;
    the checkpoint's arrays, nested dicts by name: the parameters `best` and `last` of a model,
    or the `rows` of a run without one; its record, with the number of complete `epochs`; and
    these epochs' metrics. Raises `InputError`."""
    rule = f"{run_dir} must be the folder of a run, with a {folder.CONFIG}"
    remedy = "Give the --run-dir of python -m jgs.train."
    with refusing((OSError, UnicodeDecodeError), rule, remedy):
        text = (run_dir / folder.CONFIG).read_text("utf-8")
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
    types = types_of(shape)
    assert types is not None
    inputs = params.get("encoder", params)["inputs"]
    inputs["embedding"] = {"value": rows_by_type(types.schema, types.widths, rows)}
