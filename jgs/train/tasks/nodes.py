"""`--task nodes`: classes of nodes, by a graph network that is trained on sampled batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import jax
import numpy as np

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError, refuse
from jgs.graph import MiniBatch
from jgs.options import INT32, Option, flag
from jgs.sampling.base import Adaptive, Sampler
from jgs.sampling.edges.random import threefry
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import OWNERS, Config
from jgs.train.evaluation.baselines import Figures
from jgs.train.loop.job import Job
from jgs.train.loop.model import (
    edges_of,
    is_contextual,
    make_model,
    make_sampler,
    num_layers,
    types_of,
)
from jgs.train.loop.objective import Compared
from jgs.train.loop.open_data import open_data
from jgs.train.tasks.task import Served, Task, served_nodes


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
        data = open_data(config, comm, trains=True)
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
        drawn = set() if is_contextual(config) else {"fanouts", "seed"}
        return frozenset({"split", "nodes", "node_type", "embed", *drawn})

    def opened(self, config: Config, comm: Communicator) -> tuple[Any, None]:
        return open_data(config, comm), None

    def served(self, run: Any, fanouts: Any = None) -> Served:
        return served_nodes(run, fanouts)

    def model(self, config: Config, shape: dict[str, Any]) -> Any:
        of = shape["num_features"], shape["num_classes"], shape["sparse"], threefry(0)
        return make_model(config, *of, types_of(shape), edges=edges_of(shape), head=self.head)


@dataclass(frozen=True)
class Nodes(NodeTask, Compared):
    """Classes of nodes, one each or any number each, or numbers (regression); or labels of
    nodes at moments."""


def check_layers(config: Config, sampler: Sampler) -> None:
    heads, remedy = config.options.get("heads", 1), "Leave it out, or choose such a sampler."
    refuse(
        (config.layers is not None and sampler.num_hops,
         "--layers must be for samplers of subgraphs; others have a layer a fanout or size",
         f"--layers {config.layers} for --sampler {config.sampler}", remedy),
        (config.state_age and not isinstance(sampler, Adaptive),
         "--state-age must be for a sampler that learns",
         f"--state-age {config.state_age} for --sampler {config.sampler}", remedy),
        (num_layers(config) > 1 and config.hidden % heads,
         "--hidden must be a multiple of --heads", f"{config.hidden} for {heads}",
         "Give the width of all heads together."),
    )  # fmt: skip


def refuse_timed(config: Config) -> None:
    """Raises `InputError` for a model, or draws, of seeds with times: the task has none."""
    timed = getattr(OWNERS["model"].find(config.model), "timed", False)
    given = [flag(n) for n in ("time_window", "latest", "half_life") if config.options.get(n)]
    given += ["--order latest"] if config.options.get("order") == "latest" else []
    if timed or given:
        raise InputError(
            "what sees times must be for --task links --temporal, or for labels at moments",
            f"--model {config.model}" if timed else given[0],
            "Add --temporal, or leave it out.",
        )


SPLITS = ("train", "val", "test")


class MomentJob(Job):
    """The job of `--task nodes` where the data have a `jgs.data.LabelTable`.

    Each row of the table is a seed with the row's time as its cutoff: its sample has what was
    before it alone, in training, validation and test. A node may have several rows. The splits
    and the classes are the table's. Evaluation is by sampled batches, with a key of its own.
    `by_time` is of training, as in `Loader`.
    """

    _by_samples = True

    def __init__(self, config: Config, data: Any, by_time: int | None = None):
        table = data.table
        refuse(
            (not samplers_of(make_sampler(config))[0].takes_time,
             "labels at moments must have a sampler that takes cutoffs",
             f"--sampler {config.sampler}", "Choose another, e.g. neighbors."),
            (data.graphs[0].edge_time is None,
             "labels at moments must have a graph whose edges have times",
             f"{data.name}, without", "Add a column time to the tables of edges, or of nodes."),
        )  # fmt: skip
        columns = {"nodes": table.nodes, "time": table.time, "label": table.labels}
        self.rows = {}
        for number, split in enumerate(SPLITS):
            some = table.split == number
            if not some.any():
                raise InputError(
                    f"the table of labels must have rows of the split {split}",
                    "none",
                    "Add some.",
                )
            self.rows[split] = {name: np.asarray(a)[some] for name, a in columns.items()}
        labelled = data.host_labels.max(initial=-1) >= 0  # then those are the nodes' classes
        known = 0 if labelled else data.num_classes
        data.num_classes = table.num_classes
        if not (table.numbers or table.several):
            data.num_classes = max(table.num_classes, known)
        if data.num_classes != known:
            data.class_names = None
        data.ask(self.rows["train"], None, data.graphs, by_time)
        super().__init__(config, data)
        self.refuse_degrees("labels at moments")
        if config.whole_topology:
            self.about += (_before(data.graphs[0].edge_time, table.time),)

    def _make_metric(self) -> str:
        table, of = self.data.table, {}
        if table.several:
            of = {"numbers": False, "missing": bool(np.isnan(table.labels).any())}
        return self._judge_by(self.rows["train"]["label"], self.data.num_classes, **of)

    def shape(self) -> dict[str, Any]:
        schema = self.data.schema
        own = {"moments": True, "multilabel": self.data.table.several}
        own["relations"] = None if schema is None else schema.relations
        return super().shape() | own | {"labelled_type": self._labelled_type}

    @cached_property
    def _labelled_type(self) -> str | None:
        if (schema := self.data.schema) is None:
            return None
        kinds = np.unique(schema.numbers(self.data.in_data_set(self.data.table.nodes)))
        return schema.node_types[kinds[0]][0] if kinds.size == 1 else None

    def _labels(self, batch: MiniBatch, labels: Any) -> jax.Array:
        return batch.items["label"]

    def _labelled(self, split: str) -> dict[str, np.ndarray]:
        return self.rows[split]

    def baselines(self) -> Figures:
        train, *others = (self.rows[split]["label"] for split in SPLITS)
        wanted = dict(zip(SPLITS[1:], others, strict=True))
        return self._of_labels(train, wanted)


def _before(edges: Any, moments: Any) -> str:
    time, first, last = np.asarray(edges), *(f(np.asarray(moments)) for f in (np.min, np.max))
    early, seen = int((time < first).sum()), int((time < last).sum())
    if not seen:
        return (
            f"no edge lies before a moment of the labels, {first} to {last}: are both counted "
            "in one unit (time_unit=)?"
        )
    return (
        f"of {time.size:,} edges {seen:,} lie before the last moment of the labels, and "
        f"{early:,} before the first"
    )
