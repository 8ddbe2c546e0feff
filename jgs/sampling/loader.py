"""`Loader`: an epoch of mini-batches, drawn ahead in the background, from any source."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, Self

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.graph.shown import Shown
from jgs.sampling.ahead import Ahead
from jgs.sampling.base import Sampler, draws_seeds, is_adaptive, of_pairs, step_keys
from jgs.sampling.capacity import Capacity
from jgs.sampling.checks import check_seed_ids, require_int
from jgs.sampling.learning import Learning
from jgs.sampling.schedule import Schedule, SeedParts, graph_digest
from jgs.sampling.source import LocalSource, Source
from jgs.sampling.staged import source_of
from jgs.sampling.stages import SamplerSchedule, check_alike, samplers_of


class Loader(Shown):
    """Yields each seed once an epoch, as `MiniBatch`es of one static shape.

    `for batch in loader` yields what is left of the current epoch and then moves on to the
    next: the first loop runs epoch 0, a loop that was broken off is continued, and one that
    begins where nothing is left runs the next epoch. `peek` looks at the next batch without
    taking it. The last batch is padded (`MiniBatch.seed_mask`). A batch that overflows its
    capacity is drawn again, same key, with a larger one, for this batch only: so a batch
    depends on the key, its epoch and its step alone.

    Args:
      graph: the graph `[N]`.
      seeds: int `[n]` node ids, `n >= batch_size`. A node that is there twice may meet itself.
        Of a sampler of pairs int `[n, 2]`.
      batch_size: `B`. Of a sampler that draws the seeds itself, as those of subgraphs do, it
        says how many batches an epoch has, `n / B` rounded up, and no more.
      sampler: the `Sampler`, or a tuple of ints with the `options` of `sample_neighbors`; or a
        schedule of samplers, `ByEpoch` or `OnPlateau`: each epoch is what a loader of its
        sampler alone draws in that epoch, and each sampler is planned and compiled once.
      key: a random key; batch `i` of epoch `e` is sampled with
        `fold_in(fold_in(key, e), 1 + i)` (of a sampler with `step_keys`: with those of step
        `i`), the order of the seeds comes from `fold_in(fold_in(key, e), 0)`.
      shuffle: otherwise the seeds keep their order.
      capacity: None plans one (`plan_capacity`), which draws a few batches.
      prefetch: how many batches may wait, rounded up to whole super-batches; 0 samples in
        the caller's thread.
      super_batch: how many batches are sampled in one call, which makes small ones cheaper
        and changes none; None chooses (`choose_super_batch`), 1 turns it off.
      read: a function of a batch, e.g. one that gathers its features; the loader then yields
        pairs of the batch and what it returns.
      age: of an adaptive sampler, whose state `update` changes after every step: batch `t` is
        drawn with the state after step `t - 1 - age`, and at most `age` batches wait. None:
        the state never changes, and `update` is not called.

    Attributes:
      epoch, step: the position; `step` batches of `epoch` have been yielded.
      source: the `Source` of the batches.
      capacity: the planned `Capacity`.
      super_batch: how many batches a call samples.
      redraws: how many batches were drawn again.
      waited: seconds the caller has waited for what is drawn in the background.

    Raises `InputError`. An exception or Ctrl-C in the loop's body stops the background
    thread; so do `close()` and the end of a `with` block. A loader holds a thread and cannot be
    copied: make another, and give it this one's `state_dict`.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Any,
        batch_size: int,
        sampler: Any = None,
        *,
        key: Any,
        shuffle: bool = True,
        capacity: Capacity | None = None,
        prefetch: int = 2,
        super_batch: int | None = None,
        read: Callable[[MiniBatch], Any] | None = None,
        age: int | None = 0,
        **options: Any,
    ):
        samplers = samplers_of(sampler, **options)
        check_alike(samplers, capacity)
        if not isinstance(sampler, SamplerSchedule):
            (sampler,) = samplers
        seeds = check_seed_ids(seeds, graph.num_nodes, of_pairs(samplers[0]))
        # What else decides the batches, so that a state of others is noticed.
        settings = decided_by(sampler, bool(shuffle), age)
        prefetch = require_int("prefetch", prefetch, 0)
        if super_batch is not None:
            super_batch = require_int("super_batch", super_batch, 1)
        sizes, seed_parts = (capacity, super_batch), SeedParts.whole(seeds, graph_digest(graph))

        def make(sampler: Sampler) -> Source:
            state = sampler.init(graph)
            learning, keys = (
                Learning.of(sampler, state, age, graph),
                partial(step_keys, sampler),
            )
            of_seeds: dict[str, Any] = {"step_keys": keys, "whole": draws_seeds(sampler)}
            sizes_of = (batch_size, graph.num_nodes, shuffle, settings)
            schedule = Schedule(key, seed_parts, *sizes_of, **of_seeds)
            return LocalSource(graph, sampler, state, schedule, seeds, *sizes, read, learning)

        source = source_of(sampler, make)
        self._begin(source, prefetch)
        self._drawn_by = repr(sampler)

    @classmethod
    def over(cls, source: Source, prefetch: int = 2) -> Self:
        """A loader of what `source` draws, with at most `prefetch` items ahead."""
        loader = object.__new__(cls)
        loader._begin(source, prefetch)
        return loader

    def _begin(self, source: Source, prefetch: int) -> None:
        if source.learning is not None:
            prefetch = min(prefetch, source.learning.age)
        self.source, self._prefetch = source, prefetch
        self.waited, self._finishing = 0.0, 0.0
        self._ahead: Ahead | None = None
        self._ahead_of = (0, 0)  # epoch and step of its first batch
        self._loop: object = None  # the loop under way, until `close`
        self._drawn_by = ""

    @property
    def _schedule(self) -> Schedule:
        return self.source.schedules[0]

    def _facts(self) -> dict[str, str]:
        schedule = self._schedule
        return {
            "seeds": f"{schedule.num_seeds:,}",
            "batches": f"{len(self):,} of {schedule.batch_size:,}",
            "epoch": str(self.epoch),
            "step": str(self.step),
            "": self._drawn_by,
        }

    def __len__(self) -> int:
        return len(self._schedule)

    @property
    def epoch(self) -> int:
        return self._schedule.epoch

    @property
    def step(self) -> int:
        return self._schedule.step

    @property
    def redraws(self) -> int:
        return self.source.redraws

    @property
    def counts(self) -> dict[str, int]:
        """What drawing has sent so far, by name (see `RankSource.counts`); `{}` on one
        machine."""
        return self.source.counts

    @property
    def super_batch(self) -> int:
        return self.source.at_once

    @property
    def capacity(self) -> Capacity:
        return self.source.capacity  # type: ignore[attr-defined]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds the caller has waited, by what was being done: what is drawn ahead takes
        longer than anybody waits for it."""
        drawing = self.source.seconds
        share = min(self.waited / max(sum(drawing.values()), 1e-9), 1)
        parts = {name: s * share for name, s in drawing.items()}
        return parts | {"features": parts.get("features", 0.0) + self._finishing}

    def start_prefetch(self) -> None:
        """Starts to draw the next loop's batches in the background, before the loop begins.
        Nothing happens where they are being drawn already, or with `prefetch=0`. Ranks that
        draw together all call it."""
        if self._prefetch and self._ahead is None:
            calls = self.source.drawn(*self._next())
            self._ahead_of = self._next()
            self._ahead = Ahead(calls, -(-self._prefetch // self.source.at_once))

    def __iter__(self) -> Iterator[Any]:
        if self._loop is not None or self._ahead_of != self._next():
            self.close()
        self._move(*self._next())
        self.start_prefetch()
        loop, first = object(), self.step
        self._loop, ahead = loop, self._ahead
        items = _each(self.source.drawn(self.epoch, first) if ahead is None else ahead)
        try:
            for step in range(first, len(self)):
                began = time.perf_counter()
                item = next(items)
                drawn = time.perf_counter()
                item = self.source.finish(item)
                self.waited += drawn - began
                self._finishing += time.perf_counter() - drawn
                self._move(self.epoch, step + 1)
                if self.source.learning is not None:
                    self.source.learning.next()
                yield item
                if self._loop is not loop or self.step != step + 1:
                    raise RuntimeError("the loader was closed or moved inside its loop")
            self.finish_epoch()
        finally:
            if self._loop is loop:
                self.close()

    def _next(self) -> tuple[int, int]:
        """Epoch and step of the batch that the next loop begins with."""
        return (self.epoch, self.step) if self.step < len(self) else (self.epoch + 1, 0)

    def peek(self) -> Any:
        """The batch that the next loop begins with; the position stays. Not for the body of a
        loop, which it would end. It is drawn for this alone, by all ranks together where there
        are several; a planned cache is planned for it too."""
        self.close()
        items = self.source.drawn(*self._next())
        item = self.source.finish(next(items)[0])
        items.close()  # type: ignore[attr-defined]
        return item

    # -- adaptive samplers ---------------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether the sampler is adaptive, and `update` to be called after every step."""
        return self.source.learning is not None

    def update(self, batch: Any, feedback: Any) -> None:
        """Tells an adaptive sampler what the step on `batch` reported: its state changes. Once
        for each batch, in their order, before the next is asked for; `age` batches may be
        behind. Of ranks all call it, with `OWN` values. Raises `InputError`."""
        self._learning.update(batch, feedback)

    @property
    def sampler_state(self) -> Any:
        """The newest state of an adaptive sampler. The next `update` may take over its buffers:
        copy what is to be kept."""
        return self._learning.states[-1]

    @property
    def sampler_states(self) -> tuple[Any, ...]:
        """The `1 + age` states that the next batches are drawn with, the newest last: what a
        checkpoint keeps beside `state_dict()`, and sets again after `load_state_dict`."""
        return self._learning.states

    @sampler_states.setter
    def sampler_states(self, states: Sequence[Any]) -> None:
        self.close()
        self._learning.states = tuple(states)

    @property
    def _learning(self) -> Learning:
        if self.source.learning is None:
            raise InputError(
                "only a loader of an adaptive sampler has a state that changes",
                "one that does not learn",
                "Use a sampler with update, and age=0 or more.",
            )
        return self.source.learning

    def report(self, loss: Any) -> None:
        """Tells a loader that follows the loss (`OnPlateau`) the mean training loss of the
        epoch that is over: once, before the next begins. Of ranks all call it, with the same
        number. Other loaders take no notice. Raises `InputError`."""
        if self.source.stages is not None:
            self.source.stages.report(loss, self.epoch + (self.step == len(self)))

    # -- the position --------------------------------------------------------------------------

    def finish_epoch(self) -> None:
        """Moves to the beginning of the next epoch."""
        self._move(self.epoch + 1, 0)

    def _move(self, epoch: int, step: int) -> None:
        for schedule in self.source.schedules:
            schedule.epoch, schedule.step = epoch, step

    def state_dict(self) -> dict[str, int]:
        """The position and what it means: ints that `load_state_dict` takes back, of a by-node
        sampler with any number of ranks. Of `OnPlateau` also what it knows of the losses."""
        stages = self.source.stages
        return self._schedule.state_dict() | ({} if stages is None else stages.state_dict())

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where the state was taken; see `Schedule.load_state_dict`."""
        stages = self.source.stages
        position = state if stages is None else stages.load_state_dict(state)
        for schedule in self.source.schedules:
            schedule.load_state_dict(position)
        self.close()

    def get_state(self) -> dict[str, int]:
        """`state_dict`, by the name that Grain's iterators have."""
        return self.state_dict()

    def set_state(self, state: dict[str, int]) -> None:
        """`load_state_dict`, by the name that Grain's iterators have."""
        self.load_state_dict(state)

    def close(self) -> None:
        """Stop drawing ahead. The position stays; a new loop goes on from it. Ranks that draw
        together close at the same position: what they are drawing is drawn first."""
        self._loop = None
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if self.source.together:
                ahead.wait_until_full()
            ahead.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "a Loader cannot be copied or pickled: it holds a thread and compiled programs. "
            "Make another with the same arguments and give it this one's state_dict()"
        )


def decided_by(sampler: Sampler | SamplerSchedule, *others: Any) -> str:
    """What decides the batches beside key and seeds, as text: the sampler or the schedule, the
    `others`, and the last of them, the age of the state, where samplers are adaptive."""
    learns = is_adaptive(samplers_of(sampler)[0])
    return repr((sampler, *(others if learns else others[:-1])))


def _each(calls: Iterator[list[Any]]) -> Iterator[Any]:
    for items in calls:
        while items:
            yield items.pop(0)  # and keep no reference to it
