"""`jgs.train.run`: what `python -m jgs.train` does, in Python."""

from __future__ import annotations

import dataclasses
from typing import Any

import jgs
from jgs.allocator import keep_freed_memory
from jgs.train import folder, loop
from jgs.train.config import Config


def run(config: Config) -> Any:
    """Trains as the command does with these flags, in this process, and returns the run as
    `jgs.open_run` gives it: a `Run`, of task "links" a `LinkRun`, of "embed" an `EmbedRun`.

    What the command prints is in the run folder, `config.run_dir` or by default a new one in
    `runs/`, as `result.json`. Progress goes to standard error. With `resume=True` the run in
    that folder is continued, whose configuration must be this one; `epochs` may be more. A
    task other than "nodes" has the defaults of `Config`, not those of its own on the command
    line.

    Raises `InputError` for what cannot work, and `jgs.train.loop.Interrupted` after Ctrl-C,
    with a checkpoint.
    """
    if config.keep_memory:
        keep_freed_memory()
    settings = folder.configure(dataclasses.asdict(config))
    return jgs.open_run(loop.run(settings)["run_dir"])
