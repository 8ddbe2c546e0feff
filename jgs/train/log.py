"""`--log`: what `metrics.jsonl` says, for TensorBoard or Weights & Biases as well."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from jgs.errors import InputError
from jgs.train import folder
from jgs.train.config import Config

TENSORBOARD = "tensorboard"  # the folder, in that of the run


class Log(Protocol):
    """Who is told."""

    def add(self, row: dict[str, Any]) -> None:
        """An epoch is over; `row` is its line of `metrics.jsonl`."""

    def close(self) -> None:
        """No more are to come."""


class _Nobody:
    def add(self, row: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class _TensorBoard:
    """Event files in the run folder. They are written anew by a resumed run, from the rows that
    it continues: none is there twice."""

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
    """A run of the project "jgs", which is always the same of a folder; a resumed run goes on
    with it."""

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
        if row["epoch"] >= self._run.step:  # it has the others
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
    """That of a run whose `metrics.jsonl` holds the epochs so far; nobody's without
    a folder."""
    if run_dir is None or config.log == "none":
        return _Nobody()
    return LOGS[config.log](run_dir, config)


def _numbers(row: dict[str, Any]) -> dict[str, float]:
    return {n: v for n, v in row.items() if type(v) in (int, float) and n != "epoch"}
