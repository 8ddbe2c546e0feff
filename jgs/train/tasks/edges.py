"""`--task edges`: what an edge is: its class, or a number such as a rating."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from jgs.dist.communicators.comm import Alone, Communicator
from jgs.errors import InputError, check_choice
from jgs.graph import MiniBatch
from jgs.models import LinkScores
from jgs.options import Option
from jgs.train.config import Config
from jgs.train.evaluation.baselines import Figures
from jgs.train.evaluation.metrics import ERRORS, METRICS
from jgs.train.loop.objective import Compared
from jgs.train.loop.step import real_pairs
from jgs.train.tasks.nodes import refuse_timed
from jgs.train.tasks.pair_job import PairJob, PairTask

_MOST_CLASSES = 1 << 16


# fmt: off
@dataclass(frozen=True)
class Edges(PairTask, Compared):
    """What an edge is: the class, or the number, in a column of the edges. Edges to learn from
    are never messages to their own ends."""

    label: Annotated[str, Option("the edges' column that is learned")] = "label"  # type: ignore[misc]
    numbers: Annotated[bool, Option(
        "labels are numbers, such as ratings, also where they are integers"
    )] = False

    like = "edges"
    defaults: ClassVar[dict[str, Any]] = {
        "sampler": "neighbors", "decoder": "mlp", "batch_size": 512, "epochs": 20,
        "dropout": 0.0, "lr": 5e-3,
    }
    # fmt: on

    def check(self, config: Config) -> None:
        super().check(config)
        refuse_timed(config)
        if config.metric is not None and ":" not in config.metric:
            check_choice("--metric of --task edges", config.metric, (*METRICS, *ERRORS))

    def open(self, config: Config, comm: Communicator | None = None) -> Any:
        return EdgeJob(config, self, comm)


class EdgeJob(PairJob):
    """The job of `--task edges`. All ranks make it and call it alike. Numbers are learned less
    their mean over the training edges, and divided by their deviation there."""

    task: Edges

    def _make_metric(self) -> str:
        train = self.targets.train["label"]
        self.numbers = self.task.numbers or train.dtype.kind == "f"
        name = self.config.metric
        if name in (*METRICS, *ERRORS) and (name in ERRORS) != self.numbers:
            raise InputError(
                f"--metric {name} must be for labels that are "
                + ("numbers" if name in ERRORS else "classes"),
                "numbers" if self.numbers else "classes",
                "Choose another, or give --numbers for integers that are numbers.",
            )
        if self.numbers:
            return self._judge_by(train, 1, numbers=True)
        every = [getattr(self.targets, split)["label"] for split in ("train", "val", "test")]
        num_classes = 1 + max(int(labels.max()) for labels in every)
        if not 2 <= num_classes <= _MOST_CLASSES:
            raise InputError(
                f"the edges must have from 2 to {_MOST_CLASSES} classes, from 0 on",
                num_classes,
                "Correct the labels, or give --numbers.",
            )
        return self._judge_by(train.astype(np.int32), num_classes)

    def decoder_shape(self) -> dict[str, Any]:
        own = self.objective.record()
        own["class_names"] = self.data.label_names if self.task.label == "label" else None
        return super().decoder_shape() | own | {"out_features": self.objective.num_outputs}

    def loss(self, outputs: LinkScores, batch: MiniBatch, labels: Any) -> jax.Array:
        return self.objective.loss(outputs.positive, batch.items["label"], outputs.mask)

    def count(self, batch: MiniBatch, labels: Any) -> jax.Array:
        return self.objective.count(batch.items["label"], real_pairs(batch))

    def judged_nodes(self, split: str) -> np.ndarray:
        edges = getattr(self.targets, split)
        return np.unique(np.concatenate([edges["src"], edges["dst"]]))

    def metric(self, params: Any, split: str, features: Any = None) -> float:
        edges, nodes = getattr(self.targets, split), self.judged_nodes(split)
        rows = self.rows_of(params, split, features)
        src, dst = (np.searchsorted(nodes, edges[end]) for end in ("src", "dst"))
        outputs = self.decode(params, rows, src, dst, edges.get("relation"))
        return self.objective.measure(Alone(), [outputs], [edges["label"]])

    def baselines(self) -> Figures:
        wanted = {split: getattr(self.targets, split)["label"] for split in ("val", "test")}
        return self._of_labels(self.targets.train["label"], wanted)
