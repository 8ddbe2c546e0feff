"""`--task nodes`: classes of nodes, by a graph network that is trained on sampled batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.sampling.base import Adaptive
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.data import open_data
from jgs.train.loop.job import Job
from jgs.train.loop.learner import Learner, ModelLearner
from jgs.train.loop.model import check_model
from jgs.train.loop.sampler import make_sampler
from jgs.train.tasks.task import Task


@dataclass(frozen=True)
class Nodes(Task):
    """Classes of nodes, one each or any number each."""

    like = "nodes"

    def check(self, config: Config) -> None:
        sampler = samplers_of(make_sampler(config))[0]
        if config.layers is not None and sampler.num_hops:
            raise InputError(
                "--layers must be for samplers of subgraphs; others have a layer a fanout or "
                "size",
                f"--layers {config.layers} for --sampler {config.sampler}",
                "Leave it out, or choose such a sampler.",
            )
        if config.state_age and not isinstance(sampler, Adaptive):
            raise InputError(
                "--state-age must be for a sampler that learns",
                f"--state-age {config.state_age} for --sampler {config.sampler}",
                "Leave it out, or choose such a sampler.",
            )
        check_model(config)

    def open(self, config: Config, comm: Communicator | None = None) -> Job:
        return Job(config, open_data(config, comm))

    def learner(self, job: Any, key: jax.Array, run_dir: Path | None) -> Learner:
        return ModelLearner(job, key, run_dir)
