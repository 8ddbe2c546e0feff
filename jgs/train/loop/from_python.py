"""`jgs.train.run`: what `python -m jgs.train` does, in Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

import jgs
from jgs.allocator import keep_freed_memory
from jgs.train.config import Config
from jgs.train.loop import folder
from jgs.train.loop import training as loop


def run(config: Config) -> Any:
    """Trains in this process, as the command does with the same flags. Returns the run, as
    `jgs.open_run` does: a `Run`, for task "links" a `LinkRun`, for "embed" an `EmbedRun`.

    The run folder is `config.run_dir`, or by default a new one in `runs/`. Its `result.json` is
    what the command prints. Progress goes to standard error. With `resume=True` the run in that
    folder is continued; its configuration must be `config`, but `epochs` may be larger. For a
    task other than "nodes" the defaults are those of `Config`, not the task's own defaults on
    the command line.

    Raises `InputError` for what cannot work, and `jgs.train.Interrupted` after Ctrl-C, when a
    checkpoint has been written.
    """
    if config.keep_memory:
        keep_freed_memory()
    settings = folder.configure(dataclasses.asdict(config))
    with jax.transfer_guard("allow"):  # Flax makes parameters of Python's numbers
        return jgs.open_run(loop.run(settings)["run_dir"])
