"""`python -m jgs.train` with `--partition`, or as one of several processes."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import jax

import jgs
from jgs.allocator import keep_freed_memory
from jgs.command import loading, output_elsewhere, say, settle_jax
from jgs.dist.comm import Communicator
from jgs.dist.first import FailedElsewhere, everywhere, text_of_first
from jgs.dist.launch import agree, connect, unmet
from jgs.dist.watchdog import Watchdog
from jgs.errors import InputError
from jgs.interrupts import STATUS
from jgs.train import folder, loop
from jgs.train.config import Config, as_typed, flag
from jgs.train.ranks import RankJob

# What may differ from rank to rank: paths of other machines, and the rank.
_OWN = ("partition", "root", "run_dir", "process_id", "progress")


def train(given: dict[str, Any]) -> dict[str, Any] | int:
    """Trains with the flags `given`, together with all other ranks.

    Returns the result on rank 0; elsewhere, and where there is none, the exit status. Raises
    `InputError` on the rank that has the problem, or on rank 0 where all have.
    """
    settle_jax()
    with output_elsewhere():
        try:
            return _connected(given)
        except FailedElsewhere:
            return 2


def _connected(given: dict[str, Any]) -> dict[str, Any] | int:
    saved = ["none yet"]
    with ExitStack() as stack:
        with unmet():
            comm = connect(
                given.get("comm", "auto"),
                coordinator=given.get("coordinator"),
                num_ranks=given.get("num_processes"),
                rank=given.get("process_id"),
            )
            if comm.rank > 0:  # one rank speaks; warnings are everybody's
                logging.getLogger("jgs").setLevel(logging.WARNING)
            timeout = everywhere(comm, lambda: Config(**given)).watchdog
            watchdog = stack.enter_context(
                Watchdog(comm, timeout=timeout, last_checkpoint=lambda: saved[0])
            )
        try:
            return _train(comm, given, watchdog, saved)
        except loop.Interrupted as where:
            if comm.rank == 0:
                say(f"interrupted at {where}; --resume with the same --run-dir continues there")
            return STATUS
        except KeyboardInterrupt as error:  # outside the steps: others may wait for this rank
            watchdog.failed(error)
            if comm.rank > 0:  # one rank speaks
                raise SystemExit(STATUS) from error
            raise
        except Exception as error:
            if getattr(error, "told", False):
                watchdog.close()  # all ranks end by themselves
            raise


def _train(
    comm: Communicator, given: dict[str, Any], watchdog: Watchdog, saved: list[str]
) -> dict[str, Any] | int:
    said = {flag(n): as_typed(v) for n, v in given.items() if n not in _OWN}
    versions = {"the version of jgs": jgs.__version__, "the version of JAX": jax.__version__}
    _agree(comm, said | versions)
    given = {**given, "ranks": comm.size}
    text = text_of_first(comm, lambda: folder.configure(given).to_json())
    own = {name: given[name] for name in (*_OWN, "resume", "comm") if name in given}
    config = everywhere(comm, lambda: Config.from_json(text, **own))
    watchdog.timeout = config.watchdog  # a resumed run's, if none is given
    if config.keep_memory:
        keep_freed_memory()

    def make_job(config: Config) -> loop.Job:
        job = everywhere(comm, lambda: _job(config, comm))
        _agree(comm, {f"the {part}": digest[:12] for part, digest in job.digests.items()})
        return job

    def at_step(step: float | None) -> None:
        watchdog.step = step

    def at_checkpoint(path: str) -> None:
        saved[0] = path

    result = loop.run(config, make_job, at_step, at_checkpoint)
    return result if comm.rank == 0 else 0


def _job(config: Config, comm: Communicator) -> loop.Job:
    with loading():
        if config.partition is not None:
            return RankJob(config, comm)
        if comm.size == 1:
            return loop.LocalJob(config)
    raise InputError(
        "several ranks must have a partitioned data set",
        f"{comm.size} ranks and no --partition",
        "Write one with python -m jgs.partition, and give its folder.",
    )


def _agree(comm: Communicator, what: dict[str, str]) -> None:
    """`agree`, whose error rank 0 alone raises as it is; the others `FailedElsewhere`."""
    try:
        agree(comm, what)
    except InputError as error:
        error.told = True  # type: ignore[attr-defined]
        if comm.rank > 0:
            raise FailedElsewhere(str(error)) from None
        raise
