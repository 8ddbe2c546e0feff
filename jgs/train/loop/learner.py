"""`Learner`, the contract of what a run trains, and `ModelLearner`, which trains a model."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.dist.communicators.collect import everywhere
from jgs.dist.communicators.comm import all_gather_rows
from jgs.errors import InputError
from jgs.graph import MiniBatch
from jgs.train.loop.keys import of_use
from jgs.train.loop.learned import LearnedRows, learned_rows
from jgs.train.loop.step import (
    Rate,
    TrainState,
    averaged,
    init_state,
    judged,
    learning_rate,
    make_optimizer,
    make_train_step,
    rate_at,
    start_epoch,
)

_SECONDS = 0.5  # a program of several steps takes about that, so that Ctrl-C is heard
_SCALED = ("scales", "edge_scales", "feature_times")  # of the record's shape


class Learner(Protocol):
    """What a run changes from step to step beside its position. All ranks call it alike.

    Attributes:
      record: numbers and text that a checkpoint keeps beside `arrays`.
    """

    record: dict[str, Any]

    def step(self, batch: Any, x: Any, stop: bool) -> bool:
        """Makes one whole step, and those that wait; False: it waits for later ones. `stop`
        says whether this process was asked to stop."""

    def stopping(self) -> bool:
        """Whether any rank was asked to stop in the last step."""

    def loss(self) -> float:
        """The mean loss of this epoch so far, the same on all ranks."""

    def start_epoch(self) -> None:
        """Starts the epoch's mean loss again."""

    def evaluate(self, epoch: int) -> dict[str, Any]:
        """What the epoch's row of metrics has beside the loss, numbers and text."""

    def spent(self, epoch: int) -> bool:
        """Whether training ends early, after `epoch` epochs; equal on all ranks."""

    def arrays(self) -> dict[str, Any]:
        """The arrays of a checkpoint, in NumPy. On rank 0 they are those of all ranks."""

    def load(self, arrays: dict[str, Any]) -> None:
        """Continues from `arrays`, which are the same on all ranks."""

    def result(self, run_dir: Path | None) -> dict[str, Any]:
        """The keys that the task adds to the result, and `params_sha256`. Files may be written
        to `run_dir`, which is None except in rank 0's process."""


class ModelLearner:
    """A `Learner` of a model of `jgs.models`. It keeps the parameters that were best on the
    validation split.

    Args:
      job: a `jgs.train.loop.job.Job`, or another class with its methods; the learner starts it.
      key: decides the parameters, the batches and the dropout.
      scratch: as in `Job.start`.
    """

    _state: TrainState

    def __init__(self, job: Any, key: jax.Array, scratch: Path | None):
        config = job.config
        uses = ("parameters", "batches", "dropout")
        params_key, loader_key, dropout_key = (of_use(key, use) for use in uses)
        model = job.model(params_key)
        # The rows that are learned beside the model's parameters, or None.
        self.learned: LearnedRows | None = None
        if (inputs := learned_rows(model)) is not None:
            of_data = job.data.types.schema, job.data.offsets, jax.random.fold_in(params_key, 1)
            place = job.place if job.sharded and config.partition is None else None
            of_rows = job.data.comm, inputs, *of_data, config.weight_decay, place
            self.learned = LearnedRows(*of_rows)
            job.data.learned = self.learned.table  # `data.mesh` trains them, if there is one
        job.start(model, loader_key, scratch)
        self.job, self.loader, self.place = job, job.loader, job.place
        comm = self.place.comm
        self._rate = rate = everywhere(job.comm, lambda: learning_rate(config, len(job.loader)))
        graphdef, params = nnx.split(model)
        self.best: dict[str, Any] = {"best_epoch": 0, "val_accuracy": -1.0}
        self.best_params = _on_host(params)
        optimizer = self._optimizer(rate)
        self._together: StepsTogether | None = None
        self.state = comm.same(jax.block_until_ready(init_state(params, optimizer)))
        self.key = comm.same(jax.random.key_data(dropout_key))
        self.labels = job.data.labels
        if self.place.destination is not None or job.sharded:
            self.labels = comm.same(np.asarray(job.data.labels))
        self.metric = job.metric_name
        self.best_learned = self._own_rows()
        how = (job.loss, job.loader.learns, job.count, self.learned is not None)
        of_step = graphdef, optimizer, comm, *how, config.precision
        if job.sharded:
            train_step = make_train_step(*of_step, compiled=False)
            of_learned = None if self.learned is None else rate
            self._together = StepsTogether(train_step, job, of_learned)
        else:
            self._step = make_train_step(*of_step)
        everywhere(job.comm, self._refuse_rows)

    @property
    def state(self) -> TrainState:
        """After all steps that were taken so far."""
        if self._together is not None:
            self._state = self._together.made(self._state, self.key, self.labels)
        return self._state

    @state.setter
    def state(self, state: TrainState) -> None:
        self._state = state

    def _optimizer(self, rate: Rate) -> Any:
        config, steps = self.job.config, len(self.job.loader)
        of_step = config.weight_decay, config.clip_norm, config.accumulate
        optimizer = make_optimizer(rate, *of_step)
        begin = config.average_from * steps
        if config.average == "ema":
            return averaged(optimizer, config.average_decay, config.accumulate, begin)
        return averaged(optimizer, None, steps, begin) if config.average == "swa" else optimizer

    def _refuse_rows(self) -> None:
        config = self.job.config
        given = {
            "--accumulate": config.accumulate > 1,
            "--clip-norm": config.clip_norm is not None,
            "--average": config.average != "none",
        }
        asked = [name for name, there in given.items() if there]
        if self.learned is not None and asked:
            raise InputError(
                f"{asked[0]} must be for a model that learns no rows of nodes",
                "node types without features, whose rows are learned",
                "Leave it out, or give these types features.",
            )

    def _own_rows(self) -> list[np.ndarray]:
        return [] if self.learned is None else self.learned.own_rows()

    @property
    def record(self) -> dict[str, Any]:
        return self.best | {"shape": self.job.shape()}

    @record.setter
    def record(self, saved: dict[str, Any]) -> None:
        self._check_reads(saved.get("shape", {}), self.job.shape())
        self.best = {name: saved[name] for name in self.best}

    def _check_reads(self, saved: dict[str, Any], own: dict[str, Any]) -> None:
        names = [name for name in _SCALED if name in saved and name in own]
        if other := [n for n in names if json.dumps(saved[n]) != json.dumps(own[n])]:
            raise InputError(
                "a resumed run must scale what it reads as it has done",
                f"other {', '.join(other)}, as of another version of jgs",
                "Resume it with the version that made it, or start anew.",
            )

    def step(self, batch: Any, x: Any, stop: bool) -> bool:
        comm, place, job = self.place.comm, self.place, self.job
        if self._together is not None:
            if not self._together.take(batch):
                return False
            said = [np.array([stop], np.float32)] * job.comm.num_local
            stops = all_gather_rows(job.comm, said).max()
            self.state = self.state._replace(stop=comm.same(stops))
            return True
        asked = comm.own([np.float32(stop)] * comm.num_local)
        if self.learned is not None:
            x, token = self.learned.fill(batch, x)
            number = int(self.state.step)
        given = (batch, x) if job.sent else place.send((batch, x))
        done = self._step(self.state, self.key, *given, self.labels, asked)
        if self.learned is not None:
            done, gradient = done
            self.learned.push(token, place.back(gradient), rate_at(self._rate, number))
        elif self.loader.learns:
            done, feedback = done
            self.loader.update(batch, place.back(feedback))
        self.state = done
        if job.sent and not job.comm.concurrent:
            self.loader.draw_next()  # no other thread may, and this one would only wait
        jax.block_until_ready(self.state.step)
        return True

    def stopping(self) -> bool:
        return float(self.state.stop) > 0

    def loss(self) -> float:
        return float(self.state.loss_sum) / (float(self.state.num_seeds) or 1.0)

    def start_epoch(self) -> None:
        self.state = self.place.comm.same(start_epoch(self.state))

    def evaluate(self, epoch: int) -> dict[str, Any]:
        params = _on_host(judged(self.state.params, self.state.opt_state))
        learned = self._own_rows()
        found = np.array([self._metric(params, learned, "val")])
        comm = self.job.comm  # whose ranks may each judge, and must agree
        value = float(all_gather_rows(comm, [found] * comm.num_local)[0, 0])
        best, sign = self.best["val_accuracy"], self.job.sign
        if self.best["best_epoch"] == 0 or sign * value > sign * best:
            self.best = {"best_epoch": epoch, "val_accuracy": value}
            self.best_params, self.best_learned = params, learned
        return {"val_accuracy": value, "metric": self.metric}

    def _metric(self, params: Any, learned: Any, split: str) -> float:
        if self.learned is None:
            return self.job.metric(params, split)
        return self.job.metric(params, split, self.job.given_rows(self.learned, learned))

    def spent(self, epoch: int) -> bool:
        patience = self.job.config.patience
        return 0 < patience <= epoch - self.best["best_epoch"]

    def arrays(self) -> dict[str, Any]:
        arrays = {"state": self.state, "key": self.key, "best_params": self.best_params}
        if self.loader.learns:
            arrays["sampler_states"] = self.loader.sampler_states
        if self.learned is not None:
            table = self.learned.table
            arrays["learned"] = table.joined(table.state())
            arrays["best_learned"] = self.learned.joined(self.best_learned)
        return _on_host(arrays)

    def load(self, arrays: dict[str, Any]) -> None:
        if self.learned is not None:
            self.learned.table.load_state(arrays.pop("learned"))
            self.best_learned = self.learned.split(arrays.pop("best_learned"))
        # Copied into JAX's own buffers, which the steps can donate.
        arrays, comm = jax.tree.map(jnp.array, arrays), self.place.comm
        self.state, self.key = comm.same(arrays["state"]), comm.same(arrays["key"])
        self.best_params = _on_host(arrays["best_params"])
        if self.loader.learns:
            self.loader.sampler_states = self.job.comm.same(arrays["sampler_states"])

    def result(self, run_dir: Path | None) -> dict[str, Any]:
        test = self._metric(self.best_params, self.best_learned, "test")
        own = {"test_accuracy": test, **self.best, "metric": self.metric}
        own["baselines"] = self.job.baselines()
        # With an average, its own bits too.
        params = [self.state.params]
        if self.job.config.average != "none":
            params.append(judged(self.state.params, self.state.opt_state))
        if self.learned is not None:
            params.append(self.learned.table.rows())
        return own | {"params_sha256": digest(params)}


class StepsTogether:
    """Keeps the steps of `jgs.dist.mesh_loader` until someone asks what they lead to.

    Args:
      train_step: that of `make_train_step`, not compiled.
      job: has the loader and the degrees.
      rate: the learning rate of learned rows, where `train_step` returns their gradient too.
    """

    def __init__(self, train_step: Callable[..., Any], job: Any, rate: Rate | None = None):
        def step(state: Any, batch: MiniBatch, x: Any, key: Any, labels: Any, degrees: Any):
            batch = batch if degrees is None else batch.with_degrees(degrees)
            done = train_step(state, key, batch, x, labels)
            if rate is None:
                return done
            return *done, jnp.asarray(rate_at(rate, state.step), jnp.float32)

        self._step, self._job, self._waiting, self._most = step, job, list[Any](), 1

    def take(self, step: Any) -> bool:
        """Takes one more step. Returns whether it is time to make those that wait."""
        self._waiting.append(step)
        loader = self._job.loader
        most = min(self._most, loader.source.most)
        return len(self._waiting) >= most or loader.step == len(loader)

    def made(self, state: Any, *given: Any) -> Any:
        """The state after the steps that wait, from the `state` before them."""
        if not self._waiting:
            return state
        steps, self._waiting, began = self._waiting, [], time.perf_counter()
        run = self._job.loader.source.run
        state = jax.block_until_ready(run(steps, self._step, state, *given, self._job.degrees))
        comm, seconds = self._job.comm, np.array([time.perf_counter() - began])
        if all_gather_rows(comm, [seconds] * comm.num_local).max() < _SECONDS:
            self._most *= 2
        return state


def digest(params: Any) -> str:
    """SHA-256 of the parameters' bits, by which two runs can be compared."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(params):
        total.update(np.asarray(leaf).tobytes())
    return total.hexdigest()


def _on_host(arrays: Any) -> Any:
    """Copies in NumPy: steps donate their state, and ranks compute on other devices."""
    return jax.tree.map(np.array, jax.block_until_ready(arrays))
