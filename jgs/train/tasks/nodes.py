"""`--task nodes`: classes of nodes, by a graph network that is trained on sampled batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.models import GNN
from jgs.options import INT32, Option, flag
from jgs.sampling.base import Adaptive, Sampler
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import OWNERS, Config
from jgs.train.loop.edge_features import edges_of
from jgs.train.loop.job import Job
from jgs.train.loop.model import make_model, make_sampler, num_layers, types_of
from jgs.train.loop.objective import Compared
from jgs.train.loop.open_data import open_data
from jgs.train.tasks.moments import MomentJob
from jgs.train.tasks.task import Task


@dataclass(frozen=True)
class NodeTask(Task):
    """A task of nodes, or of nodes at moments. A subclass says its `objective`."""

    # fmt: off
    by_time: Annotated[int | None, Option(
        "for labels at moments: go through them in the order of time, so many that follow each "
        "other shuffled; 1: in order", least=1, most=INT32
    )] = None
    # fmt: on

    like = "nodes"

    def check(self, config: Config) -> None:
        check_layers(config, samplers_of(make_sampler(config))[0])

    def open(self, config: Config, comm: Communicator | None = None) -> Job:
        data = open_data(config, comm)
        if data.table is not None:
            return MomentJob(config, data, self.by_time)
        data.check_seeds()
        refuse_timed(config)
        if self.by_time is not None:
            raise InputError(
                "--by-time must be for labels at moments",
                f"{data.name}, which has none",
                "Leave it out.",
            )
        return Job(config, data)

    def flags(self, config: Config, shape: dict[str, Any]) -> frozenset[str]:
        if shape.get("moments"):
            return frozenset({"split", "nodes", "node_type", "at"})
        return frozenset({"split", "nodes", "node_type", "embed", "fanouts", "seed"})

    def opened(self, config: Config, comm: Communicator) -> tuple[Any, None]:
        return open_data(config, comm), None

    def model(self, config: Config, shape: dict[str, Any]) -> GNN:
        of = shape["num_features"], shape["num_classes"], shape["sparse"], threefry(0)
        return make_model(config, *of, types_of(shape), edges=edges_of(shape), head=self.head)


@dataclass(frozen=True)
class Nodes(NodeTask, Compared):
    """Classes of nodes, one each or any number each, or numbers (regression); or labels of
    nodes at moments."""


def check_layers(config: Config, sampler: Sampler) -> None:
    """Raises `InputError` for settings that do not fit the sampler or the layers."""
    if config.layers is not None and sampler.num_hops:
        raise InputError(
            "--layers must be for samplers of subgraphs; others have a layer a fanout or size",
            f"--layers {config.layers} for --sampler {config.sampler}",
            "Leave it out, or choose such a sampler.",
        )
    if config.state_age and not isinstance(sampler, Adaptive):
        raise InputError(
            "--state-age must be for a sampler that learns",
            f"--state-age {config.state_age} for --sampler {config.sampler}",
            "Leave it out, or choose such a sampler.",
        )
    heads = config.options.get("heads", 1)
    if num_layers(config) > 1 and config.hidden % heads:
        raise InputError(
            "--hidden must be a multiple of --heads",
            f"{config.hidden} for {heads}",
            "Give the width of all heads together.",
        )


def refuse_timed(config: Config) -> None:
    """Raises `InputError` for a model, or draws, of seeds with times: the task has none."""
    timed = getattr(OWNERS["model"].find(config.model), "timed", False)
    given = [flag(n) for n in ("time_window", "latest", "half_life") if config.options.get(n)]
    if timed or given:
        raise InputError(
            "what sees times must be for --task links --temporal, or for labels at moments",
            f"--model {config.model}" if timed else given[0],
            "Add --temporal, or leave it out.",
        )
