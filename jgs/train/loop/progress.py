"""What the user sees while an epoch or a long prediction runs; the rows of `metrics.jsonl` for
TensorBoard or Weights & Biases, and as curves; and Ctrl-C and SIGTERM, which wait for the step
or checkpoint under way."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from jgs.command import say
from jgs.errors import InputError
from jgs.sampling import Loader
from jgs.train.config import Config
from jgs.train.loop import folder

PARTS = ("sampling", "features", "computing")
Advance = Callable[[int, int], None]
_PATIENCE = 1.0  # seconds after which a prediction is long
EXPLANATION = f"each epoch: seeds a second, and the time for {' / '.join(PARTS)}"
TENSORBOARD = "tensorboard"  # a folder in the run folder


class Log:
    """A program that gets the metrics. This one is nobody."""

    def add(self, row: dict[str, Any]) -> None:
        """Takes the row of an epoch that is over, its line of `metrics.jsonl`."""

    def close(self) -> None:
        """Ends the log; no rows come after it."""


class _TensorBoard(Log):
    """Event files in the run folder. A resumed run writes them again from the rows that it
    continues, so that no row is there twice."""

    def __init__(self, run_dir: Path, config: Config):
        from tensorboard.summary import Writer  # an optional dependency, and a slow import

        shutil.rmtree(run_dir / TENSORBOARD, ignore_errors=True)
        self._writer = Writer(str(run_dir / TENSORBOARD))

    def add(self, row: dict[str, Any]) -> None:
        for name, number in _numbers(row).items():
            self._writer.add_scalar(name, number, row["epoch"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb(Log):
    """The run at Weights & Biases of a run folder, which a resumed run continues."""

    def __init__(self, run_dir: Path, config: Config):
        import wandb  # an optional dependency, and a slow import

        own = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:16]
        self._run = wandb.init(
            project="jgs",
            id=own,
            name=run_dir.name,
            dir=str(run_dir),
            resume="allow",
            config=json.loads(config.to_json()),
        )

    def add(self, row: dict[str, Any]) -> None:
        if row["epoch"] >= self._run.step:  # it has the earlier rows
            self._run.log(_numbers(row), step=row["epoch"])

    def close(self) -> None:
        self._run.finish()


_LOGS: dict[str, Callable[[Path, Config], Log]] = {"tensorboard": _TensorBoard, "wandb": _Wandb}


def check_log(config: Config) -> None:
    if config.log != "none" and importlib.util.find_spec(config.log) is None:
        raise InputError(
            f"--log {config.log} must have the package {config.log}",
            "none installed",
            f"Run pip install 'jgs[{config.log}]', or leave --log out.",
        )


def open_log(config: Config, run_dir: Path | None) -> Log:
    """The log of a run, told of earlier epochs; with `run_dir` None nobody is told."""
    if run_dir is None or config.log == "none":
        return Log()
    log = _LOGS[config.log](run_dir, config)
    for row in folder.read_metrics(run_dir, config.epochs):
        log.add(row)
    return log


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {n: v for n, v in row.items() if type(v) in (int, float) and n != "epoch"}


def curves(rows: list[dict[str, Any]], title: str, best_epoch: int | None) -> Any:
    """A figure of the rows of `metrics.jsonl`; `best_epoch`, if given, is marked."""
    from matplotlib.figure import Figure  # an optional dependency, and a slow import

    epochs = [row["epoch"] for row in rows]
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    metric = rows[-1].get("metric", "accuracy") if rows else "accuracy"
    names = {"train_loss": "training loss", "val_accuracy": f"validation {metric}"}
    shown = [key for key in names if all(key in row for row in rows)]
    for axes, key in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        values = [row[key] for row in rows]
        axes.plot(epochs, values, marker="o", markersize=3)
        if best_epoch in epochs:
            axes.axvline(best_epoch, color="gray", linestyle=":")
            best = values[epochs.index(best_epoch)]
            label = f"best epoch, {best_epoch}: {best:.4f}"
            axes.plot([best_epoch], [best], "o", color="tab:orange", label=label)
            axes.legend()
        axes.set(xlabel="epoch", ylabel=names[key])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


class Meter:
    """The seconds spent in each part of an epoch, the seeds trained, and
    `RankSource.counts`."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.seeds = 0
        self.counts: dict[str, int] = {}
        self._last = self.started

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] += time.perf_counter() - begin

    def count(self, seeds: int) -> None:
        self.seeds += seeds
        self._last = time.perf_counter()

    def seeds_per_second(self) -> float:
        """Seeds trained in each second, up to the last step."""
        return self.seeds / max(self._last - self.started, 1e-9)

    def __str__(self) -> str:
        total = max(sum(self.seconds.values()), 1e-9)
        split = "/".join(f"{100 * s / total:.0f}" for s in self.seconds.values())
        return f"{_short(self.seeds_per_second())} seeds/s  {split}%"


def timed(loader: Loader, meter: Meter) -> Iterator[Any]:
    """Yields what is left of the loader's epoch; `meter` counts the time spent on waiting."""
    if loader.step == len(loader):  # the run was interrupted after the last step
        loader.finish_epoch()
        return
    before, sent, early = loader.seconds, loader.counts, loader.drawn_early
    for item in loader:
        # Drawn within the step's time, and counted among the others.
        meter.seconds["computing"] -= loader.drawn_early - early
        early = loader.drawn_early
        for name, seconds in loader.seconds.items():
            # Shares of a common wait are estimates and may shrink a little.
            meter.seconds[name] = max(seconds - before.get(name, 0.0), 0.0)
        yield item
    meter.counts = {name: num - sent.get(name, 0) for name, num in loader.counts.items()}


def _short(number: float) -> str:
    """`number` in three digits: 513, 2.94k, 1.2M."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:,.0f}G"


def _on_terminal(enabled: bool, *columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    disable = not (enabled and console.is_terminal)
    return Progress(*columns, console=console, transient=True, disable=disable)


class Bar:
    """A progress bar on standard error. It shows nothing unless `enabled` and on a terminal."""

    def __init__(self, enabled: bool):
        self._progress = _on_terminal(
            enabled,
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}", table_column=Column(no_wrap=True)),
        )
        self.shown = not self._progress.disable
        self._task = self._progress.add_task("", total=None, status="")
        self._next = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def epoch(self, name: str, done: int, total: int) -> None:
        self._progress.reset(
            self._task, description=name, total=total, completed=done, status=""
        )

    def due(self) -> bool:
        """Whether the numbers shown are old. Reading the loss waits for the device."""
        return self.shown and time.perf_counter() >= self._next

    def show(self, done: int, loss: float, meter: Meter) -> None:
        self._next = time.perf_counter() + 0.2
        self._progress.update(self._task, completed=done, status=f"loss {loss:.4f}  {meter}")


@contextmanager
def bar(name: str, enabled: bool) -> Iterator[Advance]:
    """A block that yields `advance(done, total)`, which moves a bar on standard error if that
    is a terminal and `enabled`. The bar appears after a second and is removed at the end."""
    made = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = _on_terminal(enabled, *made)
    task = progress.add_task(name, total=None)
    begun, started = time.monotonic(), False

    def advance(done: int, total: int) -> None:
        nonlocal started
        if not started and time.monotonic() - begun >= _PATIENCE:
            progress.start()
            started = True
        if started:
            progress.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if started:
            progress.stop()


@contextmanager
def stop_flag(after: str, speak: bool) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether Ctrl-C has been pressed. A second Ctrl-C does as
    before this block: in a command it raises KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    again = before if callable(before) else signal.default_int_handler
    said = f"stopping after this {after} (Ctrl-C again: at once)" if speak else ""
    with _noted(signal.SIGINT, said, again) as pressed:
        yield pressed


@contextmanager
def terminated_flag(speak: bool) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether SIGTERM has come. A second one is ignored, as
    launchers send it twice: to the ranks, and to mpiexec, which passes it on."""
    said = "terminated: stopping after this step, evaluation or checkpoint" if speak else ""
    with _noted(signal.SIGTERM, said, _ignore) as terminated:
        yield terminated


def _ignore(*_: object) -> None:
    """Python prints a traceback of a signal that comes just when SIG_IGN becomes its handler,
    as a launcher's second SIGTERM may. A function has no such moment."""


@contextmanager
def _noted(
    number: int, said: str, again: Callable[..., object]
) -> Iterator[Callable[[], bool]]:
    """A block that yields a function: whether signal `number` has come. When it comes, `said`
    is written, and `again` is the signal's handler until the end of the block. As it may come
    again meanwhile, `note` takes no lock, for which its second call would wait for ever."""
    came: list[bool] = []

    def has_come() -> bool:
        return bool(came)

    if threading.current_thread() is not threading.main_thread():
        yield has_come
        return

    def note(*_: object) -> None:
        signal.signal(number, again)
        if came:
            return
        came.append(True)
        if said:
            say(said)

    before = signal.signal(number, note)
    try:
        yield has_come
    finally:
        signal.signal(number, before)
