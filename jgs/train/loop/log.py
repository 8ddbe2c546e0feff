"""The rows of `metrics.jsonl` elsewhere: for TensorBoard or Weights & Biases, and as curves."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jgs.errors import InputError
from jgs.train.config import Config
from jgs.train.loop import folder

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
