"""`open_run` opens the folder of a training run."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from jgs.dist.communicators.broadcast import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import check_choice
from jgs.predict.saved import PARAMS, Saved, fitting, read_run
from jgs.train.config import Config
from jgs.train.tasks.task import Task


def open_run(
    run_dir: str | os.PathLike,
    *,
    params: str = "best",
    comm: Communicator | None = None,
    **changed: Any,
) -> Any:
    """Opens the run in `run_dir`, a run folder of `python -m jgs.train`, finished or not.
    Returns what the task says that its runs are: a `Run` for tasks of nodes, for `--task edges`
    a `PairRun`, for `--task links` a `LinkRun` (of `--sampler seal` a `SealRun`), and for
    `--task embed` an `EmbedRun`.

    Nothing in the folder is changed. The newest whole checkpoint is read.

    Args:
      run_dir: the run folder.
      params: which parameters the model gets: `"best"`, those of the epoch of best validation,
        or `"last"`, those of the newest checkpoint.
      comm: the communicator of many ranks. All of them call this function, and rank 0's process
        reads the folder. None: one process.
      changed: settings that may differ from those in training: `root` and `partition` say where
        the data lie; `eval_memory`, `mode`, and the `batch_size` and `seed` of what is sampled;
        `progress=False` shows no bar on a terminal.

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
    config = everywhere(comm, lambda: Config.from_json(text, **{"progress": True, **own}))
    task: Task = config.made("task")
    model = everywhere(comm, lambda: task.model(config, record.get("shape", {})))
    found = arrays
    if model is not None:

        def fitted() -> dict[str, Any]:
            state = nnx.state(model)
            return {name: fitting(run_dir, state, arrays.get(name)) for name in PARAMS}

        found = broadcast_arrays(comm, everywhere(comm, fitted))
        found = {name: jax.tree.map(jax.numpy.asarray, found[name]) for name in PARAMS}
        nnx.update(model, found[params])
    module, _, name = task.run_of(config).partition(":")

    def opened() -> Any:
        kind = getattr(importlib.import_module(module), name)
        return kind(Saved(config, model, record, comm, found, rows, os.fspath(run_dir)))

    return everywhere(comm, opened)
