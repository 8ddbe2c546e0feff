"""The job of `--task links --temporal`: every link is seen at its own time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.models import LinkScores, PairModel
from jgs.sampling import Links as LinkSeeds
from jgs.sampling.event_negatives import event_negatives
from jgs.sampling.loading.stages import samplers_of
from jgs.sampling.pairs import only_facts
from jgs.train.config import Config
from jgs.train.evaluation import baselines
from jgs.train.evaluation.baselines import EventCounts, Figures, figures
from jgs.train.evaluation.by_time import ByTime, batch_size, by_time
from jgs.train.evaluation.pairs import EVENT_METRICS
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import make_sampler
from jgs.train.tasks.pairs import PairJob
from jgs.train.tasks.targets import Columns


def check_events(config: Config, task: Any) -> None:
    """Raises `InputError` for settings that no run of `--temporal` can have."""
    wrong: list[tuple[Any, ...]] = [
        (not samplers_of(make_sampler(config))[0].takes_time,
         "--temporal must have a sampler that takes cutoffs", f"--sampler {config.sampler}",
         "Choose another, e.g. neighbors."),
        (task.split == "random", "--temporal must split the links by time",
         f"--split {task.split}", "Leave it out."),
        (task.shared, "--temporal must have negatives of each link's own time", "--shared",
         "Leave it out."),
        (task.val_messages, "--temporal has every earlier link among the messages anyway",
         "--val-messages", "Leave it out."),
        (config.metric not in (None, *EVENT_METRICS),
         f"--metric of --temporal must be one of {', '.join(EVENT_METRICS)}", config.metric,
         f"Give one of them, e.g. {next(iter(EVENT_METRICS))}."),
        (config.metric == "hits" and task.metric_k > task.eval_negatives,
         f"--metric hits must have at least --metric-k negatives, {task.metric_k}",
         f"--eval-negatives {task.eval_negatives}", "Lower --metric-k."),
        (task.negatives_by != "uniform",
         "--temporal must have negatives that no later link decides",
         f"--negatives-by {task.negatives_by}, by all links together", "Leave it out."),
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
    nodes in place of its target, which the run's key decides (`event_negatives`). MRR and
    Hits@k rank it among them. AP and AUC tell the links from all their negatives; DyGLib's have
    one each, as with `--eval-negatives 1`. Samples of the evaluation have a key of their own,
    and are the same in every epoch. The task is a `jgs.train.tasks.links.Links`.

    Fields:
      negatives: for "val" and "test" int32 `[n, K]`, the negatives of each link, and -1.
    """

    task: Any
    temporal = True

    def __init__(self, config: Config, task: Any, comm: Communicator | None = None):
        super().__init__(config, task, comm)
        self.refuse_degrees("--temporal")

    def stage(self, copies: int) -> LinkSeeds:
        task = self.task
        return LinkSeeds(
            task.num_negatives,
            sides=task.sides,
            filtered=task.filtered,
            types=self.targets.types,
        )

    def by_time(self) -> int | None:
        return self.task.by_time

    def _copies(self) -> int:
        return 1  # no edge is left out: the cutoff does it

    def loss(self, outputs: LinkScores, batch: Any, labels: Any) -> jax.Array:
        return self.task.mean_loss(outputs)

    def _make_metric(self) -> str:
        self._kind = EVENT_METRICS[self.config.metric or "mrr"]
        self.negatives = {split: self._draw(split) for split in ("val", "test")}
        return self._kind.name.format(k=self.task.metric_k)

    def _draw(self, split: str) -> np.ndarray:
        """int32 `[n, K]`: the negatives of a split; each relation has its own history."""
        events = getattr(self.targets, split)
        key = key_of(self.config, f"negatives of {split}")
        if "relation" not in events:
            return self._drawn(key, events, None)
        made = np.zeros((len(events["src"]), self.task.eval_negatives), np.int32)
        for relation in np.unique(events["relation"]).tolist():
            some = events["relation"] == relation
            own = {name: events[name][some] for name in ("src", "dst", "time")}
            made[some] = self._drawn(jax.random.fold_in(key, relation), own, relation)
        return made

    def _drawn(self, key: jax.Array, events: Columns, relation: int | None) -> np.ndarray:
        targets, graph = self.targets, self.targets.messages[0]
        parts = []
        for part in (targets.train, targets.val, targets.test):
            own = slice(None) if relation is None else part["relation"] == relation
            parts.append({name: part[name][own] for name in ("src", "dst", "time")})
            if targets.undirected:  # each end is the other's partner
                parts.append(parts[-1] | {"src": parts[-1]["dst"], "dst": parts[-1]["src"]})
        history = {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}
        candidates, born = self.ends(relation).dst, None
        if graph.node_time is not None:
            born = np.asarray(graph.node_time)[candidates]
        num, kind = self.task.eval_negatives, self.task.eval_negatives_by
        begin = int(targets.val["time"].min())
        return event_negatives(key, history, events, candidates, num, kind, begin, born)

    # -- evaluation

    def _prepare_metric(self, model: PairModel, scratch: Path | None) -> None:
        of = self.config, self.data, model, self.edges.columns
        stage = LinkSeeds(self.task.eval_negatives, types=self.targets.types)
        size = batch_size(self.config, self.task.eval_negatives)

        def judge(split: str) -> ByTime:
            items = getattr(self.targets, split) | {"negatives": self.negatives[split]}
            key = key_of(self.config, f"samples of {split}")
            return by_time(*of, items, key, _scores, stage, size, self._states)

        self._judges = {split: judge(split) for split in ("val", "test")}

    def metric(self, params: Any, split: str, given: Any = None) -> float:
        """The metric of a split, see the class."""
        positive, negative = self.scores(params, split, given)
        measure = self._kind.measure
        assert measure is not None
        return measure(positive, negative, self.negatives[split] >= 0, self.task.metric_k)

    def scores(self, params: Any, split: str, given: Any = None) -> tuple[np.ndarray, ...]:
        """The scores of the split's links, float32 `[n]`, and of their negatives `[n, K]`.
        `given` is as for `metric`."""
        positive, negative = self._judges[split](params, given)
        return positive, negative

    def baselines(self) -> Figures:
        """What counting the events before each moment reaches, see `EventCounts` and `figures`:
        the data's own events of the link's relation. All ranks call it alike."""
        graph, measured = self.targets.messages[0], self._kind.measure
        assert measured is not None

        @cache
        def counts(relation: int | None) -> EventCounts:
            facts = only_facts(graph, relation)
            src, dst = facts.edge_index()
            some = src != dst
            time = np.asarray(facts.edge_time)
            return EventCounts(src[some], dst[some], time[some], self.num_nodes)

        def measure(name: str, split: str) -> float | None:
            links, others = getattr(self.targets, split), self.negatives[split]
            if graph.num_edges > baselines.MOST_EDGES or others.size > baselines.MOST_STEPS:
                return None
            every = np.concatenate([links["dst"][:, None], np.maximum(others, 0)], axis=1)
            src, time = (np.repeat(links[end], every.shape[1]) for end in ("src", "time"))
            of = links.get("relation")
            number = None if of is None else np.repeat(of, every.shape[1])
            found = np.zeros(every.size)
            for relation in [None] if of is None else np.unique(of).tolist():
                some = slice(None) if number is None else number == relation
                given = src[some], every.reshape(-1)[some], time[some]
                found[some] = counts(relation).scores(name, *given)
            scores = found.reshape(every.shape)
            return measured(scores[:, 0], scores[:, 1:], others >= 0, self.task.metric_k)

        return figures(self.comm, ("latest_partner", "popularity"), measure)


def _scores(model: PairModel, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    scores = model(batch, x)
    return scores.positive, scores.negative
