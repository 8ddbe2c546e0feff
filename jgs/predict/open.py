"""`open_run` opens the folder of a training run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
from flax import nnx

from jgs.dist.communicators.broadcast import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import check_choice
from jgs.models import DGCNN, GNN, PairModel
from jgs.predict.embeddings import EmbedRun
from jgs.predict.events import EventRun
from jgs.predict.moments import MomentRun
from jgs.predict.pairs import EdgeRun, LinkRun
from jgs.predict.run import Run
from jgs.predict.saved import PARAMS, fitting, read_run
from jgs.predict.seal import SealRun
from jgs.sampling.edges.random import threefry
from jgs.tables import TASKS
from jgs.train.config import Config
from jgs.train.loop.edge_features import edges_of
from jgs.train.loop.model import make_model, make_pair_model, types_of
from jgs.train.tasks.seal import make_dgcnn


def open_run(
    run_dir: str | os.PathLike,
    *,
    params: str = "best",
    comm: Communicator | None = None,
    **changed: Any,
) -> Any:
    """Opens the run in `run_dir`, a run folder of `python -m jgs.train`, finished or not.
    Returns a `Run`, for `--task links` a `LinkRun` (of `--sampler seal` a `SealRun`), for
    `--task edges` an `EdgeRun`, and for `--task embed` an `EmbedRun`.

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
    about = {"rows": rows, "run_dir": os.fspath(run_dir)}
    if config.task == "embed":
        return everywhere(comm, lambda: EmbedRun(config, arrays, record, comm, **about))
    kind, make = _KINDS[TASKS.find(config.task).kind(config.sampler)]
    if kind is LinkRun and config.options.get("temporal"):
        kind = EventRun
    if kind is Run and record["shape"].get("moments"):
        kind = MomentRun
    model: Any = everywhere(comm, lambda: make(config, record["shape"]))

    def fitted() -> dict[str, Any]:
        state = nnx.state(model)
        return {name: fitting(run_dir, state, arrays.get(name)) for name in PARAMS}

    found = broadcast_arrays(comm, everywhere(comm, fitted))
    found = {name: jax.tree.map(jax.numpy.asarray, found[name]) for name in PARAMS}
    nnx.update(model, found[params])
    return everywhere(comm, lambda: kind(config, model, record, comm, params=found, **about))


def _model_of_nodes(config: Config, shape: dict[str, Any]) -> GNN:
    widths = (shape["num_features"], shape["num_classes"], shape["sparse"])
    types, edges = types_of(shape), edges_of(shape)
    return make_model(config, *widths, threefry(0), types, edges=edges)


def _model_of_pairs(config: Config, shape: dict[str, Any]) -> PairModel:
    return make_pair_model(config, shape, threefry(0))


def _model_of_seal(config: Config, shape: dict[str, Any]) -> DGCNN:
    return make_dgcnn(config, shape["num_features"], shape["pool_rows"], threefry(0))


_KINDS: dict[str, tuple[Any, Any]] = {
    "nodes": (Run, _model_of_nodes),
    "links": (LinkRun, _model_of_pairs),
    "edges": (EdgeRun, _model_of_pairs),
    "seal": (SealRun, _model_of_seal),
}
