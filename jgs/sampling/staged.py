"""`StagedSource`: a loader's batches, by the sampler whose turn it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jgs.sampling.base import Sampler
from jgs.sampling.capacity import Capacity
from jgs.sampling.learning import Learning
from jgs.sampling.schedule import Schedule
from jgs.sampling.source import Source
from jgs.sampling.stages import SamplerSchedule, Stages


class StagedSource:
    """See `jgs.sampling.source.Source`.

    An epoch is what a loader of its sampler alone draws in that epoch: each sampler has a
    source of its own, with its planned capacity and compiled programs, which is made when it is
    first needed and kept. An adaptive sampler's state goes on from one to the next.

    Args:
      schedule: which sampler draws an epoch.
      make: the source of a sampler; all have the same seeds, key and settings.
    """

    def __init__(self, schedule: SamplerSchedule, make: Callable[[Sampler], Source]):
        self.stages: Stages | None = Stages(schedule)
        self._make, self._made = make, {}  # type: Any, dict[Sampler, Source]
        self._now = self._of(self.stages.sampler(0))
        self.schedules: list[Schedule] = self._now.schedules
        self.together = self._now.together

    def _of(self, sampler: Sampler) -> Source:
        if sampler not in self._made:
            self._made[sampler] = self._make(sampler)
        return self._made[sampler]

    @property
    def at_once(self) -> int:
        return self._now.at_once

    @property
    def capacity(self) -> Capacity:
        """That of the sampler whose turn it is."""
        return self._now.capacity  # type: ignore[attr-defined]

    @property
    def learning(self) -> Learning | None:
        return self._now.learning

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
        # Here, not in the background: a new source is planned by whoever asks for the epoch.
        assert self.stages is not None
        before, self._now = self._now, self._of(self.stages.sampler(epoch))
        if self._now is not before and self._now.learning and before.learning:
            self._now.learning.states = before.learning.states
        for schedule in self._now.schedules:
            schedule.load_state_dict(self.schedules[0].state_dict())
        return self._now.drawn(epoch, first)

    def finish(self, item: Any) -> Any:
        return self._now.finish(item)


def source_of(sampler: Any, make: Callable[[Sampler], Source]) -> Source:
    """What `make` makes of a sampler; or a `StagedSource`, of a schedule."""
    if isinstance(sampler, SamplerSchedule):
        return StagedSource(sampler, make)
    return make(sampler)


def _total(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sums of numbers by name."""
    total: dict[str, Any] = {}
    for part in parts:
        total |= {name: total.get(name, 0) + number for name, number in part.items()}
    return total
