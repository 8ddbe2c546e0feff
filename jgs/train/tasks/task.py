"""`Task`: the contract of what a run learns. `Served`: what an artifact of a run computes, rows
of nodes, and of pairs of rows scores."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import numpy as np

from jgs.answers import Answer, answer_of
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError, refuse
from jgs.models import GNN
from jgs.sampling import Neighbors, Sampler, Walker
from jgs.sampling.base import Draws
from jgs.sampling.edges.random import as_key_data, fold_each, step_key_data, threefry
from jgs.sampling.fanouts import ByRelation, check_fanouts
from jgs.sampling.loading.stages import samplers_of
from jgs.tables import SAMPLERS_AND_WALKERS
from jgs.train.config import Config
from jgs.train.evaluation.by_samples import outputs_of
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import is_contextual, make_sampler

if TYPE_CHECKING:
    from jgs.train.loop.learner import Learner
    from jgs.train.loop.objective import Objective
    from jgs.train.tasks.targets import Targets


class Task:
    """A task of the command: a frozen dataclass of its options, the job that learns it, and
    what a run of it answers."""

    like: ClassVar[str]  # the task of jgs whose settings it takes, such as "nodes"
    defaults: ClassVar[dict[str, Any]] = {}  # of settings, which differ from those of "nodes"
    # Of a task of nodes: what the model applies to its last layer's rows `[T, C]`, wherever it
    # is, in JAX and of the same shape, a static method; None: nothing.
    head: ClassVar[Any] = None

    @classmethod
    def defaults_of(cls, sampler: str | None) -> dict[str, Any]:
        """`defaults` for a run with this sampler, which is None where none is given."""
        return cls.defaults

    @classmethod
    def kind(cls, sampler: str) -> str:
        """What decides which settings a run takes: `like`, or "seal" by a sampler of pairs."""
        pairs = getattr(SAMPLERS_AND_WALKERS.find(sampler), "pairs", False)
        return "seal" if cls.like == "links" and pairs is True else cls.like

    @classmethod
    def check_sampler(cls, name: str) -> None:
        """Raises `InputError` unless the sampler `name` is one for this task: "embed" takes
        walkers, "links" samplers of pairs too, and all tasks but "embed" those of nodes."""
        maker, tasks = SAMPLERS_AND_WALKERS.find(name), ["nodes", "links", "edges"]
        kind = maker if isinstance(maker, type) and issubclass(maker, Draws) else Draws
        if issubclass(kind, Walker) or kind.pairs:
            tasks = ["embed" if issubclass(kind, Walker) else "links"]
        if cls.like not in tasks:
            raise InputError(
                f"--sampler {name} must be for --task {' or '.join(tasks)}",
                f"--task {cls.like}",
                "Choose that task, or another sampler.",
            )

    def check(self, config: Config) -> None:
        """Raises `InputError` for settings that no run of this task can have."""
        config.made("sampler")

    @abstractmethod
    def open(self, config: Config, comm: Communicator | None = None) -> Any:
        """The job of a configuration (`jgs.train.loop.job.Job`), for the ranks of `comm` or,
        with None, for one process. Raises `InputError`."""

    def objective(
        self, config: Config, train: np.ndarray, num_classes: int, **kind: Any
    ) -> Objective:
        """The loss and the metric of a run that learns labels, by default those of the options
        of `jgs.train.loop.objective.Compared`. What it records, a run's answers are made of.
        The arguments are those of `Objective`."""
        from jgs.train.loop.objective import Objective  # a slow import: Optax

        return Objective(config, train, num_classes, **kind)

    def figures(self, columns: dict[str, np.ndarray], truth: np.ndarray) -> dict[str, float]:
        """What a report says of the predictions' `columns` beside the labels `truth` `[n]`."""
        return {}

    def answer(self, shape: dict[str, Any]) -> Answer:
        """What the outputs of a saved run say. `shape` is what `Job.shape` returned."""
        return answer_of(shape)

    def model(self, config: Config, shape: dict[str, Any]) -> Any:
        """The model of a saved run, whose parameters are replaced; None for a run without."""
        raise NotImplementedError(f"{type(self).__name__}.model")

    @abstractmethod
    def flags(self, config: Config, shape: dict[str, Any]) -> frozenset[str]:
        """The flags of `python -m jgs.predict` by which an opened run is asked, whose `shape`
        is as for `answer`. With "pairs" it predicts pairs, with "at" each row at a time, with
        "fanouts" it also samples neighbours, and with "split" a report judges it."""

    @abstractmethod
    def opened(self, config: Config, comm: Communicator) -> tuple[Any, Targets | None]:
        """The data of an opened run, and of a run of pairs its targets. Raises `InputError`."""

    def served(self, run: Any, fanouts: Any = None) -> Served:
        """What an artifact of a run computes, for which its data need not be opened. Raises
        `InputError`, by default for every run."""
        raise InputError(
            "an exported run must be of a task that answers by a sample of each node",
            f"--task {run.config.task} --sampler {run.config.sampler}",
            "Predict with jgs.open_run there.",
        )

    def pair_form(self, run: Any) -> PairForm | None:
        """What the pairs of an opened run may be; None for a task of nodes."""
        return None

    def model_name(self, config: Config) -> str:
        """What a run of a configuration is said to learn."""
        return config.model

    def learner(self, job: Any, key: jax.Array, run_dir: Path | None) -> Learner:
        """Starts `job` and makes its learner, by default one that trains the job's model. `key`
        decides everything random. `run_dir` is None except in rank 0's process."""
        from jgs.train.loop.learner import ModelLearner  # a slow import: Flax and Optax

        return ModelLearner(job, key, run_dir)


def open_job(config: Config, comm: Communicator | None = None) -> Any:
    return config.made("task").open(config, comm)


class PairForm(NamedTuple):
    """What pairs of nodes may be.

    Fields:
      relation: the number of the relation of pairs for which none is named; None where it must
        be named, or where the graph has none.
      named: whether a relation must be named.
      types: the node types of a pair's ends where no relation says them; None: any.
      lists: whether the best targets of a node can be asked for.
      new_only: whether known links can be left out of these.
    """

    relation: int | None
    named: bool
    types: tuple[str, str] | None
    lists: bool
    new_only: bool


class Served(NamedTuple):
    """What an artifact of a run computes.

    Fields:
      sampler: draws, by node, what a row is computed of.
      key: uint32 `[2]`, what it draws with where a request has no key.
      rows: `rows(model, batch, x)` returns a tuple of float32 `[B, W]`, a row for each seed.
      pairs: whether the model's decoder makes outputs of pairs of rows; or rows are outputs.
    """

    sampler: Sampler
    key: np.ndarray
    rows: Callable[..., Any]
    pairs: bool = False


def neighbor_sampler(
    config: Config, model: GNN, fanouts: Any, edge_ids: bool = False
) -> Neighbors:
    """The sampler `Neighbors` with these fanouts, which draws like the run's sampler. Raises
    `InputError` unless there is one for each layer."""
    fanouts = check_fanouts(fanouts, by_relation=True)
    if len(fanouts) != len(model.layers):
        raise InputError(
            f"fanouts must be one for each of the model's {len(model.layers)} layers",
            fanouts,
            "Give as many, the seeds' hop first; -1 takes all neighbours.",
        )
    own = {name: config.options.get(name, False) for name in ("replace", "weighted")}
    return Neighbors(fanouts, **own, edge_ids=edge_ids, edges=model.edge_columns)


def served_nodes(
    run: Any,
    fanouts: Any,
    rows: Callable[..., Any] = outputs_of,
    use: str = "samples of moments",
) -> Served:
    """What is computed of each node. Draws are those of `run.predict` at a time or of contexts,
    by the key of this `use`, or else those of `run.predict(..., fanouts=)`. Raises
    `InputError`."""
    config, model = run.config, run.model
    if run.timed or is_contextual(config):
        columns = run.edges.columns
        made = make_sampler(config, False, lambda: model.message_widths, columns)
        sampler: Any = samplers_of(made)[0]
        sampler = sampler if fanouts is None else _with_fanouts(sampler, fanouts)
        key = _first_key(as_key_data(key_of(config, use)))
    else:
        given = config.options.get("fanouts") if fanouts is None else fanouts
        refuse(
            (given is None,
             "an exported model must draw a number of neighbours in each layer",
             f"no fanouts, for a run of --sampler {config.sampler}",
             "Give fanouts (--fanouts), such as 10 10."),
        )  # fmt: skip
        sampler = neighbor_sampler(config, getattr(model, "encoder", model), given)
        key = np.asarray(as_key_data(threefry(config.seed)))
    _check(sampler)
    return Served(sampler, key, rows)


def _first_key(key_data: Any) -> np.ndarray:
    """The key with which a loader that has `one_key` draws its first epoch."""
    return step_key_data(fold_each(key_data, [0])[0], [0])[0]


def _with_fanouts(sampler: Any, fanouts: Any) -> Sampler:
    if isinstance(sampler, Neighbors) and len(sampler.fanouts) == len(fanouts):
        return dataclasses.replace(sampler, fanouts=fanouts)
    raise InputError(
        "fanouts must be for a sampler that has as many",
        f"{len(fanouts)} for {sampler!r}",
        "Leave them out.",
    )


def _check(sampler: Any) -> None:
    own: Any = sampler.fanouts if isinstance(sampler, Neighbors) else ()
    least = [min(k.values()) if isinstance(k, ByRelation) else k for k in own]
    refuse(
        (min(least, default=1) < 1,
         "the fanouts of an exported model must be positive, for its memory is bounded", own,
         "Give the number of neighbours that each layer draws, such as 10 10."),
        (not (sampler.by_node and (isinstance(sampler, Neighbors) or sampler.contextual)),
         "an exported model must draw each node's neighbours by itself, and a bounded number",
         repr(sampler), "Train with --sampler neighbors or context."),
    )  # fmt: skip
