"""How a run begins: from Python, or by the command with `--partition` or on several ranks."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

import jgs
from jgs.allocator import keep_freed_memory
from jgs.command import configure_jax
from jgs.dist.communicators.collect import broadcast_text, everywhere
from jgs.dist.communicators.comm import Communicator
from jgs.dist.communicators.launch import agree, together
from jgs.dist.supervision.watchdog import Watch, Watchdog
from jgs.interrupts import status_of
from jgs.options import as_typed, flag
from jgs.train.config import Config
from jgs.train.loop import folder
from jgs.train.loop import training as loop
from jgs.train.loop.job import Job
from jgs.train.tasks.task import open_job

# Fields that may differ between ranks: paths and devices, which are of other machines, and the
# rank.
_OWN = (
    *("partition", "root", "run_dir", "scratch", "process_id", "interface", "progress"),
    "device",
)


def run(config: Config) -> Any:
    """Trains in this process, as the command does with the same flags. Returns the run, as
    `jgs.open_run` does.

    The run folder is `config.run_dir`, or by default a new one in `runs/`. Its `result.json` is
    what the command prints. Progress goes to standard error. With `resume=True` the run in that
    folder is continued; its configuration must be `config`, but `epochs` may be larger.

    Raises `InputError` for what cannot work, and `jgs.train.Interrupted` after Ctrl-C, when a
    checkpoint has been written.
    """
    if config.keep_memory:
        keep_freed_memory()
    settings = folder.configure(dataclasses.asdict(config))
    with jax.transfer_guard("allow"):  # Flax makes parameters of Python's numbers
        return jgs.open_run(loop.run(settings)["run_dir"])


def train(given: dict[str, Any], watch: Watch | None) -> dict[str, Any] | int:
    """Trains with the flags `given`, together with all other ranks."""
    configure_jax()
    saved = ["none yet"]

    def work(comm: Communicator, watchdog: Watchdog) -> dict[str, Any] | int:
        try:
            return _train(comm, given, watchdog, saved)
        except loop.Interrupted as where:
            return where.say() if comm.rank == 0 else status_of(where.number)

    return together(work, given, lambda: Config(**given).watchdog, lambda: saved[0], watch)


def _train(
    comm: Communicator, given: dict[str, Any], watchdog: Watchdog, saved: list[str]
) -> dict[str, Any] | int:
    said = {flag(n): as_typed(v) for n, v in given.items() if n not in _OWN}
    agree(comm, said, "the default")
    given = {**given, "ranks": comm.size}
    text = broadcast_text(comm, lambda: folder.configure(given).to_json())
    own = {name: given[name] for name in (*_OWN, "resume", "comm") if name in given}
    config = everywhere(comm, lambda: Config.from_json(text, **own))
    # Those of the resumed run, if none are given.
    watchdog.timeout, watchdog.phase_timeout = config.watchdog, config.phase_timeout
    if config.keep_memory:
        keep_freed_memory()

    def make_job(config: Config) -> Job:
        job = everywhere(comm, lambda: open_job(config, comm))
        agree(comm, {f"the {part}": digest[:12] for part, digest in job.data.digests.items()})
        return job

    def at_step(step: float | None) -> None:
        watchdog.step = step

    def at_checkpoint(path: str) -> None:
        saved[0] = path
        watchdog.report()

    result = loop.run(config, make_job, at_step, at_checkpoint)
    return result if comm.rank == 0 else 0
