"""`StagedSource`: the batches of a loader whose sampler changes from epoch to epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jgs.sampling.base import Sampler
from jgs.sampling.capacity import Capacity
from jgs.sampling.learning import Learning
from jgs.sampling.loading.schedule import Schedule
from jgs.sampling.loading.source import Source
from jgs.sampling.loading.stages import SamplerSchedule, Stages


class StagedSource:
    """See `jgs.sampling.loading.source.Source`.

    An epoch has the batches that a loader with only that epoch's sampler draws in it. Each
    sampler has a source of its own, with its own planned capacity and compiled programs. The
    source is made when it is first needed, and kept. The state of an adaptive sampler passes
    from one sampler to the next.

    Args:
      schedule: decides which sampler draws an epoch.
      make: makes the source of a sampler; all sources have the same seeds, key and settings.
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
        """The capacity of the sampler that draws now."""
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
        # Not in the background, so that the caller's thread plans a new source's capacity.
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
    """The source that `make` makes of a sampler, or a `StagedSource` for a schedule."""
    if isinstance(sampler, SamplerSchedule):
        return StagedSource(sampler, make)
    return make(sampler)


def _total(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of the numbers of all parts, by name."""
    total: dict[str, Any] = {}
    for part in parts:
        total |= {name: total.get(name, 0) + number for name, number in part.items()}
    return total
