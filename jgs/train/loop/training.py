"""The training loop: epochs of batches, evaluation, checkpoints, and the result."""

from __future__ import annotations

import gc
import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jgs.command import say
from jgs.devices import on_host
from jgs.dist.communicators.collect import broadcast_arrays, broadcast_text, everywhere
from jgs.dist.communicators.comm import all_gather_rows
from jgs.dist.supervision.phases import WAITING, enter, phase
from jgs.errors import InputError
from jgs.files.row_file import DiskError
from jgs.interrupts import WORDS, status_of
from jgs.sampling.edges.random import threefry
from jgs.train.config import Config
from jgs.train.loop import checkpoint, folder
from jgs.train.loop.learner import Learner
from jgs.train.loop.open_data import changed_parts
from jgs.train.loop.progress import (
    EXPLANATION,
    Bar,
    Log,
    Meter,
    check_log,
    curves,
    open_log,
    stop_flag,
    terminated_flag,
)
from jgs.train.tasks.task import open_job


class Interrupted(Exception):
    """Training was asked to stop by signal `number`; the run folder has a checkpoint of it."""

    def __init__(self, where: str, number: int):
        super().__init__(where)
        self.number = number

    def say(self) -> int:
        """Says where training stopped and how to continue; returns the exit status."""
        word = WORDS[signal.Signals(self.number)]
        say(f"{word} at {self}; --resume with the same --run-dir continues there")
        return status_of(self.number)


def run(
    config: Config,
    make_job: Callable[[Config], Any] = open_job,
    at_step: Callable[[float | None], None] = lambda step: None,
    at_checkpoint: Callable[[str], None] = lambda path: None,
) -> dict[str, Any]:
    """Trains in the run folder, and returns the result. All ranks of the job call this.

    Args:
      config: the settings of the run.
      make_job: opens the job; by default that of one process.
      at_step: is told how far this rank is, as `Watchdog` takes it.
      at_checkpoint: is told the path of each checkpoint.

    Returns a dict with the keys of the command's JSON line, which the run folder has too:
      test_accuracy, val_accuracy: the metric on the test and the validation split, with the
        parameters of the best epoch.
      metric: the name of their metric, e.g. "accuracy"; see `--metric`.
      baselines: by name what is reached without a model, both numbers of the same metric and
        rows; None for a baseline that would take too long.
      best_epoch, epochs: the epoch of the best validation, and the number of epochs made.
      seconds: the time of the run, with the earlier sessions of a resumed run.
      params_sha256: the digest of the last parameters.
      run_dir: the run folder.
    Some tasks have other keys, see their learners.

    Rank 0 alone shows progress and writes to the run folder.

    Ctrl-C during the training steps lets the step end, writes a checkpoint and raises
    `Interrupted`, on all ranks after the same step. Elsewhere it raises KeyboardInterrupt; a
    checkpoint under way is written first. SIGTERM, to one rank or several, lets the step or the
    evaluation end, writes a checkpoint and raises `Interrupted`. Raises `InputError`.
    """
    started = time.perf_counter()
    before = enter("opening")
    with ExitStack() as stack:
        stack.enter_context(on_host())
        job = make_job(config)

        def claim() -> Path | None:
            check_log(config)
            return stack.enter_context(folder.claimed(config)) if job.comm.rank == 0 else None

        run_dir = everywhere(job.comm, claim)
        place = getattr(job, "place", None)  # embeddings are trained where they lie
        if place and run_dir is not None:
            say(f"training on {place}")
            own = config.of_model and f"by default of --model {config.model}: {config.of_model}"
            for line in filter(None, (own, *job.about)):
                say(line)
        learner = config.made("task").learner(job, threefry(config.seed), run_dir)
        stack.callback(job.close)
        training = _Training(config, run_dir, job, learner, started, at_step, at_checkpoint)
        if config.resume:
            training.restore()
        training.log = everywhere(job.comm, lambda: open_log(config, run_dir))
        stack.callback(training.log.close)
        enter(before)
        with (
            Bar(config.progress and run_dir is not None) as bar,
            terminated_flag(run_dir is not None) as training.terminated,
        ):
            while job.loader.epoch < config.epochs and not training.ended():
                training.one_epoch(bar)
        with phase("result"):
            return training.result()


@dataclass
class _Training:
    """The position of a run, and what it learns. `save` and `restore` cover all of it."""

    config: Config
    run_dir: Path | None
    job: Any
    learner: Learner
    started: float
    at_step: Callable[[float | None], None]
    at_checkpoint: Callable[[str], None]
    earlier: float = 0.0
    explained: bool = False
    log: Log = field(default_factory=Log)
    terminated: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.loader = self.job.loader
        self.place = broadcast_text(self.job.comm, lambda: str(self.run_dir))

    def step(self) -> int:
        return self.loader.epoch * len(self.loader) + self.loader.step

    def say(self, text: str) -> None:
        if self.run_dir is not None:
            say(text)

    def seconds(self) -> float:
        return round(self.earlier + time.perf_counter() - self.started, 3)

    # -- checkpoints ---------------------------------------------------------------------------

    def save(self, row: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint, after an epoch's `row` of metrics if that is given."""
        loader, learner = self.loader, self.learner

        def write() -> None:
            if self.run_dir is None:
                return
            if row is not None:
                folder.append_metrics(self.run_dir, row)
            record = learner.record | {"seconds": self.seconds(), "loader": loader.state_dict()}
            record["data"] = self.job.data.digests
            place = self.run_dir / folder.CHECKPOINTS
            checkpoint.save(place, loader.epoch, self.step(), arrays, record, self.config.keep)

        self.at_step(None)
        # Orbax's threads must not be interrupted.
        speaks = self.job.comm.rank == 0
        with phase("checkpoint"), stop_flag("checkpoint", speaks) as stopped:
            arrays = learner.arrays()
            everywhere(self.job.comm, write)
        self.at_checkpoint(f"that of step {self.step()} in {self.place}")
        if stopped():
            signal.raise_signal(signal.SIGINT)  # for the handler outside this function

    def _end_where_terminated(self, where: str) -> None:
        if number := self._asked_by(False):
            raise Interrupted(where, number)

    def _asked_by(self, pressed: bool) -> int:
        own = signal.SIGTERM if self.terminated() else signal.SIGINT if pressed else 0
        comm = self.job.comm
        return int(all_gather_rows(comm, [np.array([own], np.int32)] * comm.num_local).max())

    def restore(self) -> None:
        """Continues from the newest whole checkpoint, or from the start if there is none."""
        comm, arrays = self.job.comm, self.learner.arrays()

        def read() -> str:
            assert self.run_dir is not None
            found = checkpoint.restore(self.run_dir / folder.CHECKPOINTS, arrays)
            if found is None:
                say("no checkpoint to resume from: starting at the beginning")
                folder.truncate_metrics(self.run_dir, 0)
                return "{}"
            arrays.update(found[0])
            if changed := changed_parts(found[1].pop("data", {}), self.job.data.digests):
                raise InputError(
                    "a run must be resumed on the data set that it began with",
                    f"{self.job.data.name} with other {', '.join(changed)}",
                    "Restore its files, or start a new run in another --run-dir.",
                )
            folder.truncate_metrics(self.run_dir, found[1]["loader"]["epoch"])
            return json.dumps(found[1])

        if record := json.loads(broadcast_text(comm, read)):
            self.loader.load_state_dict(record.pop("loader"))
            self.learner.load(broadcast_arrays(comm, arrays))
            self.earlier = record.pop("seconds")
            self.learner.record = record
            self.at_checkpoint(f"that of step {self.step()} in {self.place}")
            self.say(f"resuming after {self.loader.epoch} epochs and {self.loader.step} steps")
        everywhere(comm, lambda: folder.keep_config(self.run_dir, self.config))

    # -- epochs --------------------------------------------------------------------------------

    def one_epoch(self, bar: Bar) -> None:
        epoch = self.loader.epoch + 1
        name = f"epoch {epoch}/{self.config.epochs}"
        meter = self._steps(name, bar)
        loss = self._finite_loss(name)
        self.loader.report(loss)
        self.learner.start_epoch()
        begun = time.perf_counter()
        with phase("evaluation"):
            found = self.learner.evaluate(epoch)
        evaluation = time.perf_counter() - begun
        row = {
            "epoch": epoch,
            "train_loss": loss,
            **found,
            **{f"{part}_seconds": round(s, 4) for part, s in meter.seconds.items()},
            **meter.counts,
            "evaluation_seconds": round(evaluation, 4),
            "seeds_per_second": round(meter.seeds_per_second(), 1),
            "seconds": self.seconds(),
        }
        self.save(row)
        everywhere(self.job.comm, lambda: self.log.add(row))
        if not self.explained:
            self.say(EXPLANATION)
            self.explained = True
        value = "val {metric} {val_accuracy:.4f}  ".format(**found) if found else ""
        self.say(f"{name}  loss {loss:.4f}  {value}{meter}")
        # Flax leaves reference cycles that hold parameters, and `jgs.command.run` has the
        # collector run rarely. It takes milliseconds, since it looks at new objects alone.
        gc.collect(0)
        self._end_where_terminated(f"the end of {name}")

    def ended(self) -> bool:
        epoch = self.loader.epoch
        if not self.learner.spent(epoch):
            return False
        epochs = self.config.patience
        self.say(f"no better validation for {epochs} epochs: training ends after epoch {epoch}")
        return True

    def _finite_loss(self, name: str) -> float:
        """The epoch's mean loss so far. Raises `InputError` where it is not finite. It is
        called before every checkpoint, so that a run can continue from each."""
        loss = self.learner.loss()

        def check() -> None:
            if self.job.comm.rank == 0 and not math.isfinite(loss):
                raise InputError(
                    "the training loss must stay finite",
                    f"{loss} in {name}",
                    "Start a new run in another --run-dir with a lower --lr.",
                )

        everywhere(self.job.comm, check)
        return loss

    def _steps(self, name: str, bar: Bar) -> Meter:
        job, loader, every = self.job, self.loader, self.config.checkpoint_every
        bar.epoch(name, loader.step, len(loader))
        meter, learner = Meter(), self.learner

        def where() -> str:
            return f"{name}, step {loader.step} of {len(loader)}"

        first = loader.epoch * len(loader)
        with phase(WAITING), stop_flag("step", job.comm.rank == 0) as pressed:

            def stopped() -> bool:
                return pressed() or self.terminated()

            # A step begins when its batch is there: the epoch's cache may be planned before it.
            for batch, x in self._batches(meter):
                self.at_step(first + loader.step - 0.5)
                with meter.timing("computing"), phase("computing"):
                    made = learner.step(batch, x, stopped())
                seen = (loader.step - 1) * job.batch_size
                meter.count(min(job.batch_size, job.num_seeds - seen))
                if made and bar.due():
                    bar.show(loader.step, learner.loss(), meter)
                # Several ranks all stop after the step in which one of them was asked to.
                if stopped() if job.comm.size == 1 else made and learner.stopping():
                    number = self._asked_by(pressed())
                    self._finite_loss(name)
                    self.save()
                    raise Interrupted(where(), number)
                if every and loader.step % every == 0 and loader.step < len(loader):
                    self._finite_loss(name)
                    self.save()
                    self._end_where_terminated(where())
                self.at_step(first + loader.step)
        self.at_step(None)
        if pressed():  # it came after the last step
            raise KeyboardInterrupt
        return meter

    def _batches(self, meter: Meter) -> Iterator[tuple[Any, Any]]:
        """The batches left; where rows cannot be read, a checkpoint keeps the steps made."""
        first = self.loader.step
        try:
            yield from self.job.batches(meter)
        except DiskError:
            if self.job.comm.size == 1 and self.loader.step > first:
                self._finite_loss("the epoch under way")
                self.save()
                self.say(f"a checkpoint has what was learned up to step {self.step()}")
            raise

    # -- the end -------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        own = self.learner.result(self.run_dir)
        last = {"params_sha256": own.pop("params_sha256"), "run_dir": self.place}
        result = own | {"epochs": self.loader.epoch, "seconds": self.seconds()} | last

        everywhere(self.job.comm, lambda: folder.keep_result(self.run_dir, result))
        if self.run_dir is not None:
            self._draw(self.run_dir, result)
        return result

    def _draw(self, run_dir: Path, result: dict[str, Any]) -> None:
        rows = folder.read_metrics(run_dir, self.config.epochs)
        title = self.job.data.name
        if "test_accuracy" in result:
            title += ": test {metric} {test_accuracy:.4f}".format(**result)
        try:
            figure = curves(rows, title, result.get("best_epoch"))
            figure.savefig(run_dir / "curve.png", dpi=120)
        except ImportError:
            say("matplotlib is not installed: no curve.png (pip install 'jgs[viz]')")
        except (OSError, ValueError, RuntimeError) as error:  # e.g. bad matplotlib settings
            say(f"no curve.png: {' '.join(str(error).split())[:200]}")
