"""The negatives of `--task links --temporal`, where every link is seen at its own time."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jgs.errors import InputError
from jgs.sampling.event_negatives import event_negatives
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation.pairs import EVENT_METRICS
from jgs.train.loop.model import make_sampler
from jgs.train.tasks.targets import Columns, Targets


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


def negatives_at(
    key: jax.Array,
    task: Any,
    targets: Targets,
    links: Columns,
    relation: int | None,
    candidates: np.ndarray,
) -> np.ndarray:
    """int32 `[n, K]`: nodes in place of the target of each of the `links`, which are of one
    relation, whose history alone decides them; -1 where there are fewer."""
    parts, graph = [], targets.messages[0]
    for part in (targets.train, targets.val, targets.test):
        own = slice(None) if relation is None else part["relation"] == relation
        parts.append({name: part[name][own] for name in ("src", "dst", "time")})
        if targets.undirected:  # each end is the other's partner
            parts.append(parts[-1] | {"src": parts[-1]["dst"], "dst": parts[-1]["src"]})
    history = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    born = None if graph.node_time is None else np.asarray(graph.node_time)[candidates]
    num, kind = task.eval_negatives, task.eval_negatives_by
    begin = int(targets.val["time"].min())
    return event_negatives(key, history, links, candidates, num, kind, begin, born)
