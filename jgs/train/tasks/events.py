"""The job of `--task links --temporal`: every link is seen at its own time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.models import LinkScores, PairModel
from jgs.sampling import Links as LinkSeeds
from jgs.sampling.edges.random import threefry
from jgs.sampling.event_negatives import event_negatives
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation.by_time import ByTime, numbered
from jgs.train.evaluation.pairs import LINK_METRICS
from jgs.train.loop.model import make_sampler
from jgs.train.tasks.pairs import PairJob

METRICS = ("mrr", "ap", "auc")


def check_events(config: Config, task: Any) -> None:
    """Raises `InputError` for settings that no run of `--temporal` can have."""
    wrong: list[tuple[Any, ...]] = [
        (not samplers_of(make_sampler(config))[0].takes_time,
         "--temporal must have a sampler that takes cutoffs", f"--sampler {config.sampler}",
         "Choose another, e.g. neighbors."),
        (task.split not in ("auto", "time"), "--temporal must split the links by time",
         f"--split {task.split}", "Leave it out."),
        (task.shared, "--temporal must have negatives of each link's own time", "--shared",
         "Leave it out."),
        (task.val_messages, "--temporal has every earlier link among the messages anyway",
         "--val-messages", "Leave it out."),
        (config.metric not in (None, *METRICS),
         f"--metric of --temporal must be one of {', '.join(METRICS)}", config.metric,
         "Choose one."),
        (config.mode == "vanilla" and config.partition is not None,
         "--temporal must have every rank's topology whole", "--mode vanilla",
         "Leave it out."),
    ]  # fmt: skip
    for found, *said in wrong:
        if found:
            raise InputError(*said)


class EventJob(PairJob):
    """The job of `--task links --temporal`.

    The graph has all events, and a link's cutoff is its own time: its sample, and those of its
    negatives, have what was before it alone, in training, validation and test alike. The splits
    are parts of the time. A link of validation and test is judged against `--eval-negatives`
    nodes in place of its target, which the run's key decides (`event_negatives`); MRR ranks it
    among them, AP and AUC tell it from all of them. Samples of the evaluation have a key of
    their own, and are the same in every epoch. The task is a `jgs.train.tasks.links.Links`.
    """

    task: Any
    temporal = True

    def __init__(self, config: Config, task: Any, comm: Communicator | None = None):
        super().__init__(config, task, comm)
        self.data.refuse_learned_rows("--temporal")

    def stage(self, copies: int) -> LinkSeeds:
        task = self.task
        return LinkSeeds(
            task.num_negatives,
            task.negatives_by,
            sides=task.sides,
            filtered=task.filtered,
            types=self.targets.types,
        )

    def by_time(self) -> int | None:
        return self.task.by_time

    def _copies(self) -> int:
        return 1  # no edge is left out: the cutoff does it

    def loss(self, outputs: LinkScores, batch: Any, labels: Any) -> jax.Array:
        return self.task.losses[self.task.loss](outputs)

    def _make_metric(self) -> str:
        self._kind = LINK_METRICS[self.config.metric or "mrr"]
        self._negatives = {
            split: self._draw(split, number) for number, split in enumerate(("val", "test"), 2)
        }
        return self._kind.name

    def _draw(self, split: str, number: int) -> np.ndarray:
        targets, events = self.targets, getattr(self.targets, split)
        every = [getattr(targets, name) for name in ("train", "val", "test")]
        history = {
            n: np.concatenate([part[n] for part in every]) for n in ("src", "dst", "time")
        }
        if targets.undirected:  # each end is the other's partner
            src, dst = history["src"], history["dst"]
            history = {
                "src": np.concatenate([src, dst]),
                "dst": np.concatenate([dst, src]),
                "time": np.tile(history["time"], 2),
            }
        key = jax.random.fold_in(threefry(self.config.seed), number)
        candidates = self._candidates()
        return event_negatives(
            key,
            history,
            events,
            candidates,
            self.task.eval_negatives,
            self.task.eval_negatives_by,
            int(targets.val["time"].min()),
        )

    def _candidates(self) -> np.ndarray:
        """The nodes that a target may be: all of the types of the targets."""
        schema, kinds = self.targets.messages[0].schema, self.targets.types
        if schema is None or kinds is None:
            return np.arange(self.num_nodes)
        ranges = schema.ranges(kinds[1])
        return np.concatenate([np.arange(each.start, each.stop) for each in ranges])

    # -- evaluation

    def _prepare_metric(self, model: PairModel, scratch: Path | None) -> None:
        sampler = samplers_of(make_sampler(self.config, widths=lambda: model.message_widths))[0]
        states = {one: s for one, s in self._states.items() if repr(one) == repr(sampler)}
        self._judges = {}
        for number, split in enumerate(("val", "test"), 4):
            links = getattr(self.targets, split)
            items = numbered(links | {"negatives": self._negatives[split]})
            key = jax.random.fold_in(threefry(self.config.seed), number)
            stage = LinkSeeds(self.task.eval_negatives, types=self.targets.types)
            loader = self.data.loader(sampler, key, None, states, (items, stage))
            self._judges[split] = ByTime(self.comm, loader, model, _scores)

    def metric(self, params: Any, split: str, features: Any = None) -> float:
        """The metric of a split, see the class."""
        positive, negative = self.scores(params, split)
        measure = self._kind.measure
        assert measure is not None
        return measure(positive, negative, self._negatives[split] >= 0, 0)

    def scores(self, params: Any, split: str) -> tuple[np.ndarray, np.ndarray]:
        """The scores of the split's links, float32 `[n]`, and of their negatives `[n, K]`."""
        positive, negative = self._judges[split](params)
        return positive, negative

    def close(self) -> None:
        super().close()
        for judge in getattr(self, "_judges", {}).values():
            judge.close()


def _scores(model: PairModel, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    scores = model(batch, x)
    return scores.positive, scores.negative
