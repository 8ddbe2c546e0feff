"""`--log` writes the rows of `metrics.jsonl` for TensorBoard or Weights & Biases as well."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from jgs.errors import InputError
from jgs.train.config import Config
from jgs.train.loop import folder

TENSORBOARD = "tensorboard"  # a folder in the run folder


class Log(Protocol):
    """A program, or nobody, that gets the metrics."""

    def add(self, row: dict[str, Any]) -> None:
        """Takes the row of an epoch that is over, its line of `metrics.jsonl`."""

    def close(self) -> None:
        """Ends the log; no rows come after it."""


class _Nobody:
    def add(self, row: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class _TensorBoard:
    """Event files in the run folder. A resumed run writes them again from the rows that it
    continues, so that no row is there twice."""

    def __init__(self, run_dir: Path, config: Config):
        from tensorboard.summary import Writer  # an optional dependency, and a slow import

        shutil.rmtree(run_dir / TENSORBOARD, ignore_errors=True)
        self._writer = Writer(str(run_dir / TENSORBOARD))
        for row in folder.read_metrics(run_dir, config.epochs):
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        for name, number in _numbers(row).items():
            self._writer.add_scalar(name, number, row["epoch"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """A run of the project "jgs" at Weights & Biases. A run folder always has the same one,
    which a resumed run continues."""

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
        for row in folder.read_metrics(run_dir, config.epochs):
            self.add(row)

    def add(self, row: dict[str, Any]) -> None:
        if row["epoch"] >= self._run.step:  # it has the earlier rows
            self._run.log(_numbers(row), step=row["epoch"])

    def close(self) -> None:
        self._run.finish()


LOGS: dict[str, Callable[[Path, Config], Log]] = {"tensorboard": _TensorBoard, "wandb": _Wandb}


def check_log(config: Config) -> None:
    """Raises `InputError` where the package is not installed."""
    if config.log != "none" and importlib.util.find_spec(config.log) is None:
        raise InputError(
            f"--log {config.log} must have the package {config.log}",
            "none installed",
            f"Run pip install 'jgs[{config.log}]', or leave --log out.",
        )


def open_log(config: Config, run_dir: Path | None) -> Log:
    """The log of a run, told of the epochs that `metrics.jsonl` in `run_dir` already has. With
    `run_dir` None nobody is told."""
    if run_dir is None or config.log == "none":
        return _Nobody()
    return LOGS[config.log](run_dir, config)


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {n: v for n, v in row.items() if type(v) in (int, float) and n != "epoch"}
