"""Schedules of samplers: the sampler changes by epoch, or when the loss no longer falls.
`StagedSource` draws as they say.

FastSample (2023) names an adaptive fanout schedule as future work: an epoch with few neighbours
is cheap, and early epochs need no more.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np

from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.base import Adaptive, Sampler, State
from jgs.sampling.capacity import Capacity
from jgs.sampling.checks import require_int
from jgs.sampling.loading.items import Stage, name_of
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.loading.source import OverSource
from jgs.sampling.shorthand import NeighborOptions, as_sampler

T = TypeVar("T")


class Progress(NamedTuple):
    """What a schedule remembers of the losses. All fields are numbers, so a checkpoint can
    store them.

    Fields:
      losses: the number of epochs whose loss is known.
      stage: the index of the sampler that draws now.
      best: the smallest loss of an epoch in this stage.
      stalled: the number of epochs since the loss last fell.
    """

    losses: int = 0
    stage: int = 0
    best: float = math.inf
    stalled: int = 0


@runtime_checkable
class SamplerSchedule(Protocol):
    """Decides which sampler draws an epoch. A `Loader` takes a schedule in place of a sampler.

    Attributes:
      samplers: one for each stage. All or none of them must be adaptive, with states of the
        same shapes.
      by_loss: whether the losses decide. If so, `Loader.report` must be called.
    """

    @property
    def samplers(self) -> tuple[Sampler, ...]: ...

    @property
    def by_loss(self) -> bool: ...

    def stage(self, epoch: int, progress: Progress) -> int:
        """The index of the sampler that draws `epoch`, which counts from 0."""

    def after(self, progress: Progress, loss: float) -> Progress:
        """What is remembered after one more epoch, whose mean training loss is `loss`."""


@dataclass(frozen=True)
class ByEpoch:
    """Each sampler draws from a given epoch on: `ByEpoch({0: (5, 5), 10: (10, 10)})`.

    Fields:
      stages: pairs of an epoch and a sampler, or a mapping. The epochs must ascend from 0. A
        tuple of fanouts stands for `Neighbors`.

    Raises `InputError`.
    """

    stages: Any
    by_loss = False

    def __post_init__(self) -> None:
        given = self.stages
        pairs = [*given.items()] if isinstance(given, Mapping) else given
        if not isinstance(pairs, Sequence) or not all(
            isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs
        ):
            raise InputError(
                "the stages of a schedule must be pairs of an epoch and a sampler",
                repr(given),
                "Write ByEpoch({0: (5, 5), 10: (10, 10)}).",
            )
        epochs = [require_int("a stage's epoch", epoch, 0) for epoch, _ in pairs]
        if epochs[:1] != [0] or epochs != sorted(set(epochs)):
            raise InputError(
                "the epochs of a schedule must ascend from 0",
                epochs,
                "Write ByEpoch({0: (5, 5), 10: (10, 10)}).",
            )
        samplers = [as_sampler(sampler) for _, sampler in pairs]
        object.__setattr__(self, "stages", tuple(zip(epochs, samplers, strict=True)))

    @property
    def samplers(self) -> tuple[Sampler, ...]:
        return tuple(sampler for _, sampler in self.stages)

    def stage(self, epoch: int, progress: Progress) -> int:
        return sum(begin <= epoch for begin, _ in self.stages) - 1

    def after(self, progress: Progress, loss: float) -> Progress:
        return progress


@dataclass(frozen=True)
class OnPlateau:
    """The next sampler takes over when the loss no longer falls:
    `OnPlateau([(5, 5), (10, 10)])`.

    Fields:
      samplers: one for each stage. A tuple of fanouts stands for `Neighbors`.
      fraction: a loss has fallen if it is below the stage's smallest loss by this fraction.
      epochs: the number of epochs without a fall after which the next stage begins.

    The decision is a pure function of the losses, so a resumed run makes the same one. Raises
    `InputError`.
    """

    samplers: Any
    fraction: float = 0.01
    epochs: int = 3
    by_loss = True

    def __post_init__(self) -> None:
        given, fraction = self.samplers, self.fraction
        good = is_real(fraction) and 0 <= fraction < 1
        if not isinstance(given, Sequence) or not given or not good:
            raise InputError(
                "a schedule must have samplers, and a fraction in [0, 1)",
                f"{given!r}, fraction {fraction}",
                "Write OnPlateau([(5, 5), (10, 10)], fraction=0.01).",
            )
        object.__setattr__(self, "samplers", tuple(map(as_sampler, given)))
        object.__setattr__(self, "fraction", float(fraction))
        object.__setattr__(self, "epochs", require_int("epochs", self.epochs, 1))

    def stage(self, epoch: int, progress: Progress) -> int:
        return progress.stage

    def after(self, progress: Progress, loss: float) -> Progress:
        losses, stage, best, stalled = progress
        if loss < best - self.fraction * abs(best) or best == math.inf:
            return Progress(losses + 1, stage, loss, 0)
        if stalled + 1 < self.epochs or stage + 1 == len(self.samplers):
            return Progress(losses + 1, stage, best, stalled + 1)
        return Progress(losses + 1, stage + 1)


@dataclass(frozen=True)
class Drawing:
    """How a loader draws. The fields are arguments of `Loader`. Raises `InputError`."""

    capacity: Capacity | None = None
    super_batch: int | None = None
    prefetch: int = 2
    age: int | None = 0
    states: Mapping[Sampler, State] | None = None

    def __post_init__(self) -> None:
        require_int("prefetch", self.prefetch, 0)
        if self.super_batch is not None:
            require_int("super_batch", self.super_batch, 1)


class DrawingOptions(NeighborOptions, total=False):
    """The options of all loaders: those of `sample_neighbors`, and fields of `Epochs` and
    `Drawing`."""

    fanouts: Sequence[int]
    by_time: int | None
    one_key: bool
    prefetch: int
    age: int | None
    states: Mapping[Sampler, State] | None


class LoaderOptions(DrawingOptions, total=False):
    """The `options` of `Loader`."""

    drop_last: bool
    capacity: Capacity | None
    super_batch: int | None


def taken(record: type[T], options: dict[str, Any], *but: str, **fields: Any) -> T:
    """A record of these fields and of the options that are others of it, which are taken out of
    `options`; not those named in `but`."""
    names = [f.name for f in dataclasses.fields(record) if f.name in options]  # type: ignore[arg-type]
    return record(**fields, **{name: options.pop(name) for name in names if name not in but})


def samplers_of(sampler: Any, **options: Any) -> tuple[Sampler, ...]:
    """The samplers of a schedule, or of anything else that `as_sampler` takes."""
    if isinstance(sampler, SamplerSchedule):
        if options:
            raise InputError(
                "the options of neighbour sampling go with a tuple of fanouts",
                f"{', '.join(sorted(options))} beside {sampler!r}",
                "Give them to the schedule's samplers.",
            )
        return sampler.samplers
    return (as_sampler(sampler, **options),)


class Samplers(NamedTuple):
    """What a loader draws with.

    Fields:
      given: the sampler, or the schedule.
      each: the samplers.
      states: by sampler, what its `init` returned.
    """

    given: Any
    each: tuple[Sampler, ...]
    states: dict[Sampler, State]

    @classmethod
    def of(cls, sampler: Any, drawing: Drawing = Drawing(), **options: Any) -> Samplers:
        """Raises `InputError` where the samplers cannot follow one another."""
        samplers = samplers_of(sampler, **options)
        if len(samplers) > 1 and drawing.capacity is not None:
            raise InputError(
                "a capacity must be of one sampler",
                f"one for {len(samplers)} samplers",
                "Leave it out: each sampler's is planned.",
            )
        kinds = {
            "adaptive": {isinstance(one, Adaptive) for one in samplers},
            "of pairs": {one.pairs for one in samplers},
        }
        for kind, answers in kinds.items():
            if len(answers) > 1:
                raise InputError(
                    f"a schedule's samplers must be {kind} all or none",
                    ", ".join(type(one).__name__ for one in samplers),
                    "Give one kind of sampler with other sizes.",
                )
        states = {as_sampler(one): state for one, state in (drawing.states or {}).items()}
        if other := [one for one in states if one not in samplers]:
            raise InputError(
                f"states must be by sampler, of {', '.join(map(repr, samplers))}",
                repr(other[0]),
                "Give {sampler: state} with the loader's own sampler.",
            )
        given = sampler if isinstance(sampler, SamplerSchedule) else samplers[0]
        return cls(given, samplers, states)

    @property
    def learn(self) -> bool:
        return isinstance(self.each[0], Adaptive)

    @property
    def by_node(self) -> bool:
        return all(one.by_node for one in self.each)

    def state(self, sampler: Sampler, graph: Graph) -> State:
        if sampler not in self.states:
            self.states[sampler] = sampler.init(graph)
        return self.states[sampler]

    def settings(
        self, *others: Any, age: int | None, stages: Sequence[Stage] = (), devices: int = 1
    ) -> str:
        """A text of what decides the batches beside key and items: the samplers, the `others`,
        the age of the state of those that learn, the stages, and the devices unless they draw
        together what one would."""
        text = repr((self.given, *others, *((age,) if self.learn else ())))
        apart = [f"devices={devices}"] if devices > 1 and not self.by_node else []
        return " ".join([text, *map(name_of, stages), *apart])

    def source(self, make: Callable[[Sampler], Any]) -> Any:
        """The source that `make` makes of the sampler, or a `StagedSource`."""
        if isinstance(self.given, SamplerSchedule):
            return StagedSource(self.given, make)
        return make(self.given)


class StagedSource(OverSource):
    """A source whose samplers change. An epoch has the batches that a loader with only that
    epoch's sampler draws in it.

    Each sampler has a source of its own, with its own planned capacity and compiled programs,
    which is made when it is first needed, and kept. The state of an adaptive sampler passes
    from one sampler to the next.

    Args:
      plan: decides which sampler draws an epoch.
      make: makes the source of a sampler; all sources have the same seeds, key and settings.

    Attributes:
      source: that of the sampler that draws now.
    """

    def __init__(self, plan: SamplerSchedule, make: Callable[[Sampler], Any]):
        self._plan, self._progress = plan, Progress()
        self._logged = 0  # the stage that was logged last
        self._make, self._made = make, dict[Sampler, Any]()
        self.source = self._of(0)
        self.schedules: list[Schedule] = self.source.schedules

    def _of(self, epoch: int) -> Any:
        known = self._progress.losses
        if self._plan.by_loss and known < epoch:
            raise InputError(
                "a loader that follows the loss must be told that of every epoch",
                f"{known} losses before epoch {epoch}",
                "Call loader.report(loss) after each epoch.",
            )
        stage = self._plan.stage(epoch, self._progress)
        sampler = self._plan.samplers[stage]
        if stage != self._logged:
            self._logged = stage
            logging.getLogger("jgs").info("from epoch %d on: %r", epoch + 1, sampler)
        if sampler not in self._made:
            self._made[sampler] = self._make(sampler)
        return self._made[sampler]

    def close(self) -> None:
        for source in self._made.values():
            source.close()

    @property
    def redraws(self) -> int:
        return sum(source.redraws for source in self._made.values())

    @property
    def seconds(self) -> dict[str, float]:
        return _total(source.seconds for source in self._made.values())

    @property
    def counts(self) -> dict[str, int]:
        return _total(source.counts for source in self._made.values())

    def drawn(self, epoch: int, first: int) -> Iterator[list[Any]]:
        return self.of_epoch(epoch).drawn(epoch, first)

    def of_epoch(self, epoch: int) -> Any:
        """The source of the sampler that draws `epoch`, at the position of this one."""
        # Not in the background, so that the caller's thread plans a new source's capacity.
        before, self.source = self.source, self._of(epoch)
        if self.source is not before and self.source.learning and before.learning:
            self.source.learning.states = before.learning.states
        for schedule in self.source.schedules:
            schedule.load_state_dict(self.schedules[0].state_dict())
        return self.source

    def report(self, loss: Any, finished: int) -> None:
        if not self._plan.by_loss:
            return
        if self._progress.losses != finished - 1:
            raise InputError(
                "a loader's loss must be reported once after each epoch",
                f"{self._progress.losses} losses after {finished} epochs",
                "Call loader.report(loss) after the loop over the epoch's batches.",
            )
        self._progress = self._plan.after(self._progress, float(loss))

    def state_dict(self) -> dict[str, int]:
        """The progress of the losses; empty where the epoch alone decides."""
        if not self._plan.by_loss:
            return {}
        best = int(np.float64(self._progress.best).view(np.int64))
        return self._progress._replace(best=best)._asdict()

    def load_state_dict(self, state: Any) -> Any:
        if not (self._plan.by_loss and isinstance(state, Mapping)):
            return state
        if missing := [name for name in Progress._fields if name not in state]:
            raise InputError(
                "the state of a loader that follows the loss must have the losses so far",
                f"none of {', '.join(missing)}",
                "Pass what Loader.state_dict returned.",
            )
        rest = dict(state)
        found = {name: int(rest.pop(name)) for name in Progress._fields}
        best = float(np.int64(found["best"]).view(np.float64))
        self._progress = Progress(**found)._replace(best=best)
        return rest


def _total(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for part in parts:
        total |= {name: total.get(name, 0) + number for name, number in part.items()}
    return total
