"""The tasks of the command: how the job of each is opened, and what learns in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.train.config import Config, as_typed, flag
from jgs.train.loop.data import open_data
from jgs.train.loop.job import Job
from jgs.train.loop.learner import Learner, ModelLearner
from jgs.train.samplers import SAMPLERS
from jgs.train.tasks import embed_flags, link_flags
from jgs.train.tasks.embed import WALKERS, EmbedJob, EmbedLearner, open_walks
from jgs.train.tasks.links import LinkJob, open_links


class Entry(NamedTuple):
    """One task.

    Fields:
      open: makes the job of a configuration, for the ranks of a communicator or, with None, for
        one process.
      learner: makes the learner of a job, a key and the run folder, which is None except in
        rank 0's process.
      others: the configuration's fields that belong to other tasks.
    """

    open: Callable[[Config, Communicator | None], Any]
    learner: Callable[[Any, jax.Array, Path | None], Learner]
    others: tuple[str, ...]


def _open_nodes(config: Config, comm: Communicator | None) -> Job:
    if config.sampler not in SAMPLERS:
        task = "embed" if config.sampler in WALKERS else "links"
        raise InputError(
            f"--sampler {config.sampler} must be for --task {task}",
            f"--task {config.task}",
            "Choose that task, or another sampler.",
        )
    return Job(config, open_data(config, comm))


def _open_embed(config: Config, comm: Communicator | None) -> EmbedJob:
    return EmbedJob(config, open_walks(config, comm))


def _open_links(config: Config, comm: Communicator | None) -> LinkJob:
    return LinkJob(config, open_links(config, comm))


_OF_WALKERS = {"weighted", *(name for entry in WALKERS.values() for name in entry.flags)}
_BATCHES = {name for entry in SAMPLERS.values() for name in entry.flags} - _OF_WALKERS
_OF_NODES = (*sorted(_BATCHES), *embed_flags.OF_NODES)
_NOT_OF_LINKS = {*_OF_NODES, *_OF_WALKERS, *embed_flags.OF_EMBED} - {*link_flags.SHARED}
TASKS = {
    "nodes": Entry(_open_nodes, ModelLearner, (*embed_flags.OF_EMBED, *link_flags.OF_LINKS)),
    "embed": Entry(_open_embed, EmbedLearner, (*_OF_NODES, *link_flags.OF_LINKS)),
    "links": Entry(_open_links, ModelLearner, tuple(sorted(_NOT_OF_LINKS))),
}


def open_job(config: Config, comm: Communicator | None = None) -> Any:
    """The job of a configuration, for the ranks of `comm` or, with None, for one process.
    Raises `InputError`, also for flags of another task."""
    own = TASKS[config.task]
    for name in own.others:
        if (value := getattr(config, name)) != getattr(Config, name):
            takers = [task for task, entry in TASKS.items() if name not in entry.others]
            raise InputError(
                f"{flag(name)} must be for --task {' or '.join(takers)}",
                f"{flag(name)} {as_typed(value)} for --task {config.task}",
                "Leave it out, or choose that task.",
            )
    return own.open(config, comm)


def make_learner(job: Any, key: jax.Array, run_dir: Path | None) -> Learner:
    """Starts `job` and makes its learner; `key` decides everything random."""
    return TASKS[job.config.task].learner(job, key, run_dir)
