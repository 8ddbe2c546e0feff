"""`Task`: the contract of what a run learns."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from jgs.answers import Answer, answer_of
from jgs.dist.communicators.comm import Communicator
from jgs.errors import InputError
from jgs.sampling import Walker
from jgs.sampling.base import Draws
from jgs.tables import SAMPLERS_AND_WALKERS

if TYPE_CHECKING:
    from jgs.train.config import Config
    from jgs.train.loop.learner import Learner
    from jgs.train.loop.objective import Objective
    from jgs.train.tasks.served import PairForm, Served
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
