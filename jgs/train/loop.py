"""The training loop: epochs of batches, evaluation, checkpoints, and the result."""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jgs.data
import jgs.ops
from jgs.command import say
from jgs.data import Dataset
from jgs.errors import InputError
from jgs.features import SparseFeatures
from jgs.graph import MiniBatch
from jgs.models import GraphSAGE, Inputs, read_inputs
from jgs.sampling import Loader
from jgs.train import checkpoint, curve, folder
from jgs.train.config import Config
from jgs.train.evaluate import accuracy, make_inference
from jgs.train.fingerprint import fingerprint
from jgs.train.interrupt import stop_flag
from jgs.train.progress import Bar, Meter
from jgs.train.step import init_state, make_optimizer, make_train_step, start_epoch

gather = jax.jit(jgs.ops.gather)
read = jax.jit(read_inputs, static_argnames="reduce")


class Interrupted(Exception):
    """Training was asked to stop; a checkpoint of that moment is in the run folder."""


def run(config: Config) -> dict[str, Any]:
    """Loads the data set, trains in the run folder, and returns the result.

    Returns the keys of the command's JSON line: `test_accuracy` (with the parameters of the
    epoch of best validation accuracy), `val_accuracy` (that epoch's), `best_epoch`,
    `epochs`, `seconds` (earlier sessions of a resumed run included), `params_sha256` (of the
    last parameters) and `run_dir`. Accuracy is micro-F1 for multi-label data.

    Ctrl-C during the training steps lets the step end, writes a checkpoint and raises
    `Interrupted`; elsewhere it raises KeyboardInterrupt (after a
    checkpoint being written). Raises `InputError`.
    """
    started = time.perf_counter()
    data = jgs.data.load(config.dataset, config.root, **config.data_arguments())
    _check(config, data)
    with folder.claimed(config) as run_dir:
        return _run(config, data, run_dir, started)


def _run(config: Config, data: Dataset, run_dir: Path, started: float) -> dict[str, Any]:
    params_key, loader_key, dropout_key = jax.random.split(jax.random.key(config.seed), 3)
    model = make_model(config, data, params_key)
    with Loader(
        data.graph,
        data.train_idx,
        config.batch_size,
        config.fanouts,
        key=loader_key,
        replace=config.replace,
        weighted=config.weighted,
        prefetch=config.prefetch,
        relabel_inputs=model.input_dropout > 0,  # else their rows are aggregated as read
    ) as loader:
        training = _Training(config, run_dir, data, loader, model, dropout_key, started)
        if config.resume:
            training.restore()
        with Bar(config.progress) as bar:
            while loader.epoch < config.epochs:
                training.one_epoch(bar)
        return training.result()


class _Training:
    """What a run carries from step to step; `save` and `restore` move all of it."""

    def __init__(
        self,
        config: Config,
        run_dir: Path,
        data: Dataset,
        loader: Loader,
        model: GraphSAGE,
        dropout_key: jax.Array,
        started: float,
    ):
        self.config, self.run_dir, self.data, self.loader = config, run_dir, data, loader
        self.key, self.started, self.earlier = dropout_key, started, 0.0
        self.best: dict[str, Any] = {"best_epoch": 0, "val_accuracy": -1.0}
        graphdef, self.best_params = nnx.split(model)
        optimizer = make_optimizer(config.lr, config.weight_decay)
        self.state = init_state(self.best_params, optimizer)
        self.labels = jnp.asarray(data.labels)
        self.metric = "accuracy" if data.labels.ndim == 1 else "micro-F1"
        self.step = make_train_step(graphdef, optimizer)
        self.input_dropout = model.input_dropout
        self.infer = make_inference(
            model, data.graph, data.features, config.eval_memory << 20, run_dir, config.weighted
        )
        self.data_digests = fingerprint(data)

    def seconds(self) -> float:
        return round(self.earlier + time.perf_counter() - self.started, 3)

    def accuracy(self, params: Any, nodes: np.ndarray) -> float:
        return accuracy(self.infer(params, nodes), self.data.labels[nodes])

    def inputs(self, batch: MiniBatch) -> jax.Array | Inputs:
        if self.input_dropout > 0:
            return gather(self.data.features, batch.nodes)
        return read(self.data.features, batch, reduce=self.config.reduce)

    # -- checkpoints ---------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Any]:
        key = jax.random.key_data(self.key)
        return {"state": self.state, "key": key, "best_params": self.best_params}

    def save(self) -> None:
        loader = self.loader
        record = self.best | {
            "seconds": self.seconds(),
            "loader": loader.state_dict(),
            "data": self.data_digests,
        }
        step = loader.epoch * len(loader) + loader.step
        place = self.run_dir / folder.CHECKPOINTS
        with stop_flag("checkpoint") as stopped:  # Orbax's threads take no interruption
            checkpoint.save(place, loader.epoch, step, self._arrays(), record, self.config.keep)
        if stopped():
            raise KeyboardInterrupt

    def restore(self) -> None:
        """Continues from the newest whole checkpoint, or from the start without one."""
        loader = self.loader
        found = checkpoint.restore(self.run_dir / folder.CHECKPOINTS, self._arrays())
        if found is None:
            say("no checkpoint to resume from: starting at the beginning")
        else:
            # Copied into buffers of JAX's own, which the steps can take over.
            arrays, record = jax.tree.map(jnp.array, found[0]), found[1]
            self._check_data(record.pop("data", {}))
            self.state, self.best_params = arrays["state"], arrays["best_params"]
            self.key = jax.random.wrap_key_data(arrays["key"])
            loader.load_state_dict(record.pop("loader"))
            self.earlier = record.pop("seconds")
            self.best = record
            say(f"resuming after {loader.epoch} epochs and {loader.step} steps")
        folder.truncate_metrics(self.run_dir, loader.epoch)

    def _check_data(self, saved: dict[str, str]) -> None:
        mine = self.data_digests
        if changed := [part for part in mine if saved.get(part) != mine[part]]:
            raise InputError(
                f"a run must be resumed on the data set that it began with, {self.data.name}",
                f"other {', '.join(changed)}",
                "Restore its files, or start a new run in another --run-dir.",
            )

    # -- epochs --------------------------------------------------------------------------------

    def one_epoch(self, bar: Bar) -> None:
        """What is left of the loader's epoch, its evaluation, metrics and checkpoint."""
        epoch = self.loader.epoch + 1
        name = f"epoch {epoch}/{self.config.epochs}"
        meter = self._steps(name, bar)
        loss = self._finite_loss(name)
        self.state = start_epoch(self.state)
        begun = time.perf_counter()
        value = self.accuracy(self.state.params, self.data.val_idx)
        evaluation = time.perf_counter() - begun
        if value > self.best["val_accuracy"]:
            self.best = {"best_epoch": epoch, "val_accuracy": value}
            self.best_params = jax.tree.map(jnp.copy, self.state.params)
        row = {"epoch": epoch, "train_loss": loss, "val_accuracy": value}
        row |= {f"{part}_seconds": round(s, 4) for part, s in meter.seconds.items()}
        row |= {
            "evaluation_seconds": round(evaluation, 4),
            "seeds_per_second": round(meter.seeds_per_second(), 1),
            "seconds": self.seconds(),
        }
        folder.append_metrics(self.run_dir, row)  # before the checkpoint that says it is there
        self.save()
        say(f"{name}  loss {loss:.4f}  val {self.metric} {value:.4f}  {meter}")

    def _finite_loss(self, name: str) -> float:
        """The loss so far; asked before every checkpoint, so that each can be continued."""
        loss = float(self.state.loss_sum / self.state.num_seeds)
        if not math.isfinite(loss):
            raise InputError(
                "the training loss must stay finite",
                f"{loss} in {name}",
                "Start a new run in another --run-dir with a lower --lr.",
            )
        return loss

    def _steps(self, name: str, bar: Bar) -> Meter:
        loader, every = self.loader, self.config.checkpoint_every
        batch_size, num_seeds = self.config.batch_size, len(self.data.train_idx)
        bar.epoch(name, loader.step, len(loader))
        meter, waited = Meter(), loader.waited
        with stop_flag("step") as stopped:
            for batch in loader:
                with meter.timing("features"):
                    x = jax.block_until_ready(self.inputs(batch))
                with meter.timing("computing"):
                    self.state = self.step(self.state, self.key, batch, x, self.labels)
                    jax.block_until_ready(self.state.step)
                meter.seconds["sampling"] = loader.waited - waited
                meter.count(min(batch_size, num_seeds - (loader.step - 1) * batch_size))
                if bar.due():
                    bar.show(
                        loader.step, float(self.state.loss_sum / self.state.num_seeds), meter
                    )
                if stopped():
                    self._finite_loss(name)
                    self.save()
                    raise Interrupted(f"{name}, step {loader.step} of {len(loader)}")
                if every and loader.step % every == 0 and loader.step < len(loader):
                    self._finite_loss(name)
                    self.save()
        if stopped():  # pressed after the last step was over
            raise KeyboardInterrupt
        return meter

    # -- the end -------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        test = self.accuracy(self.best_params, self.data.test_idx)
        rows = folder.read_metrics(self.run_dir, self.config.epochs)
        title = f"{self.data.name}: test {self.metric} {test:.4f}"
        try:
            curve.draw(self.run_dir / "curve.png", rows, title)
        except ImportError:
            say("matplotlib is not installed: no curve.png (pip install 'jgs[viz]')")
        except OSError as error:
            say(f"no curve.png: {error}")
        return {
            "test_accuracy": test,
            **self.best,
            "epochs": self.config.epochs,
            "seconds": self.seconds(),
            "params_sha256": digest(self.state.params),
            "run_dir": str(self.run_dir),
        }


def make_model(config: Config, data: Dataset, key: jax.Array) -> GraphSAGE:
    """The model of a configuration, its parameters drawn by `key`."""
    input_dropout = config.input_dropout
    if input_dropout is None:  # bags of words are redundant, dense features seldom
        input_dropout = config.dropout if isinstance(data.features, SparseFeatures) else 0.0
    return GraphSAGE(
        data.features.shape[1],
        config.hidden,
        data.num_classes,
        len(config.fanouts),
        reduce=config.reduce,
        dropout=config.dropout,
        input_dropout=input_dropout,
        norm=config.norm,
        rngs=nnx.Rngs(key),
    )


def digest(params: Any) -> str:
    """SHA-256 of the parameters' bits, to compare two runs by."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        total.update(np.asarray(leaf).tobytes())
    return total.hexdigest()


def _check(config: Config, data: Dataset) -> None:
    """What only the data set can tell about a configuration; raises `InputError`."""
    for split in ("train", "val", "test"):
        if len(getattr(data, f"{split}_idx")) == 0:
            raise InputError(
                f"the {split} split must not be empty", data.name, "Name its nodes."
            )
    if config.batch_size > len(data.train_idx):
        raise InputError(
            "--batch-size must not exceed the number of training nodes",
            f"{config.batch_size} for {len(data.train_idx)}",
            "Lower it.",
        )
    if config.weighted and data.graph.edge_weight is None:
        raise InputError(
            "--weighted must have a graph with edge weights", data.name, "Leave it out."
        )
