"""`Loader`: an epoch of mini-batches, drawn ahead in the background, from any source."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NoReturn, Self, Unpack, cast

from jgs.devices import computes_on_cpu, host_device, on_host
from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.graph.shown import Shown
from jgs.sampling.base import Sampler
from jgs.sampling.capacity import Capacity
from jgs.sampling.checks import refuse_forked, require_int
from jgs.sampling.loading.disk_rows import DiskRows
from jgs.sampling.loading.disk_source import DiskSource
from jgs.sampling.loading.items import Stage, check_asked, check_functions, prepared
from jgs.sampling.loading.schedule import Epochs, Order, Schedule, SeedParts, graph_digest
from jgs.sampling.loading.sending import Ahead, Destination, SentSource, each, on_host_each
from jgs.sampling.loading.source import Learning, LocalSource
from jgs.sampling.loading.stages import Drawing, LoaderOptions, Samplers, taken


class Loader(Shown):
    """Yields each seed once an epoch, as `MiniBatch`es of one static shape.

    `for batch in loader` yields the rest of the current epoch and then moves on to the next.
    The first loop runs epoch 0. A loop that was broken off is continued by the next one. A loop
    that begins where nothing is left runs the next epoch. `peek` looks at the next batch
    without taking it. The last batch is padded (`MiniBatch.seed_mask`). A batch that overflows
    its capacity is drawn again with the same key and, for this batch only, a larger capacity.
    So a batch depends on the key, its epoch and its step alone.

    Args:
      graph: the graph `[N]`.
      seeds: the items that an epoch goes through: int `[n]` node ids, `n >= batch_size`. A node
        that is given twice may come twice in one batch. For a sampler of pairs int `[n, 2]`.
        Or `Seeds`, or any pytree of arrays of numbers `[n, ...]`, such as a dict of `src`,
        `dst`, `time` and `label`: rows are shuffled, padded and dealt whole, and come back as
        `batch.items`. They are copied. Integers of 16 bits and more become int32 where all of
        a column fit. In rows of padding int32 and int64 arrays hold `N`, others 0. A stage gets
        `Seeds` as a dict of `nodes` and `time`.
      batch_size: `B`, the items in a batch. A sampler of subgraphs draws the seeds itself; for
        it `B` only sets the number of batches in an epoch, `n / B` rounded up.
      sampler: the `Sampler`, or a tuple of ints with the `options` of `sample_neighbors`, or a
        schedule of samplers, `ByEpoch` or `OnPlateau`. With a schedule, each epoch is what a
        loader of that epoch's sampler alone would draw, and each sampler is planned and
        compiled once.
      key: a random key. Batch `i` of epoch `e` is sampled with
        `fold_in(fold_in(key, e), 1 + i)`, or with the `step_keys` of step `i` where the sampler
        has them. The order of the seeds comes from `fold_in(fold_in(key, e), 0)`.
      before: a stage that makes the seeds of items, or several: pure functions
        `stage(key, graph, items)` that return `Seeds`, or nodes, or a pair of these and the
        `batch.items`. Each takes what the one before returned. They run in the program that
        samples, with keys of their own, under `jax.enable_x64`: integers are 64-bit. None: the
        items are nodes or pairs, or have `nodes` and perhaps `time`.
      after: a function that makes of a batch what the loader yields, or several. The background
        thread calls them, so the caller does not wait for them.
      shuffle: whether the items are shuffled in each epoch. Otherwise they keep their order. Or
        a function `order(items, bits, epoch)`, an order of its own (`jgs.sampling.Order`).
      read: a function of a batch, for example one that gathers its features. The loader then
        yields pairs of the batch and the function's result. Or `DiskRows`, which the background
        thread reads.
      device: where the batches are put, with what `read` returned: a device; None: JAX's
        default device. The graph stays on the host (`jgs.devices`), which draws and reads, and
        the background thread sends. At most `prefetch + 2` batches are on the device: those
        that wait, one on its way, and that of the loop, which may donate it. Or a sharding of
        a leading axis over `D` devices, such as `NamedSharding(mesh, P("data"))`, of which `B`
        must be a multiple. Device `d` then gets a batch of the `d`-th `B / D` items, and every
        array has a leading axis: `[D, ...]`. The shares of a by-node sampler are together the
        batch that one device gets. `read` and `after` get one share at a time.
      options: those of `sample_neighbors` that go with a tuple of fanouts, and the following.
      drop_last: whether an epoch leaves out the items that do not fill a batch.
      by_time: the items have a column `time`, and come in its order: in each epoch so many that
        follow each other are shuffled among themselves. With 1 no item comes before an earlier
        one. It takes the place of `shuffle`.
      one_key: whether all batches of an epoch are drawn with one key. Then what a by-node
        sampler draws for a seed depends on its node and cutoff alone, not on its batch: as a
        judgement of it should.
      capacity: None plans one (`plan_capacity`), which draws a few batches; or takes the bound
        (`worst_case`) if that is at most 2,048 edges. With a sharding it is that of a share, of
        `B / D` items.
      prefetch: how many batches may wait, by default 2, rounded up to whole super-batches. With
        0 the loader samples in the caller's thread.
      super_batch: how many batches are sampled in one call. More make small batches cheaper and
        change none of them. None chooses a number by the capacity and the threads, and
        `choose_super_batch` one by timing; 1 turns it off.
      age: for an adaptive sampler, whose state `update` changes after every step. Batch `t` is
        drawn with the state after step `t - 1 - age`, and at most `age` batches wait; by
        default 0. With None the state never changes, and `update` is not called.
      states: by sampler, what its `init` returned for the graph, or other arrays like it.
        `init` is called for samplers that are not there.

    Attributes:
      epoch, step: the position; `step` batches of `epoch` have been yielded.
      source: the `Source` of the batches.
      capacity: the planned `Capacity`.
      super_batch: how many batches a call samples.
      redraws: how many batches were drawn again.
      waited: seconds that the caller has waited for batches, or has drawn them itself.
      drawn_early: those of them that `draw_next` took.

    Raises `InputError`. The background thread is stopped by an exception or Ctrl-C in the
    loop's body, by `close()`, and by the end of a `with` block. A loader holds a thread and
    cannot be copied: make another one, and give it this one's `state_dict`.
    """

    _read: Callable[[Any], Any] | None = None
    _drawn_by = ""

    def __init__(
        self,
        graph: Graph,
        seeds: Any,
        batch_size: int,
        sampler: Any = None,
        *,
        key: Any,
        before: Stage | Sequence[Stage] | None = None,
        after: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
        shuffle: bool | Order = True,
        read: Callable[[MiniBatch], Any] | DiskRows | None = None,
        device: Any = None,
        **options: Unpack[LoaderOptions],
    ):
        given = cast(dict[str, Any], options)
        epochs, drawing = taken(Epochs, given, shuffle=shuffle), taken(Drawing, given)
        destination = Destination.of(device)
        disk, reads = (read, None) if isinstance(read, DiskRows) else (None, read)
        shares = destination.shares if destination else None
        with on_host():
            samplers = Samplers.of(sampler, drawing, **given)
            items, stages = check_asked(seeds, before, samplers.each, graph.num_nodes)
            graph = prepared(stages, graph)
            functions = check_functions(after)
            age, devices = drawing.age, shares or 1
            settings = samplers.settings(bool(shuffle), age=age, stages=stages, devices=devices)
            parts = SeedParts.whole(items, graph_digest(graph))

            def make(sampler: Sampler) -> Any:
                state, staged = samplers.state(sampler, graph), bool(stages)
                of_all = (key, parts, batch_size, graph.num_nodes, epochs, settings)
                schedule = Schedule(*of_all, sampler, staged, devices=devices)
                learning = Learning.of(sampler, state, age, graph)
                if learning is not None and shares:
                    raise InputError(
                        "an adaptive sampler must have one device, which tells it of its steps",
                        f"{shares} devices for {sampler!r}",
                        "Give one device, or age=None, which leaves its state as it is.",
                    )
                sizes = (drawing.capacity, drawing.super_batch)
                of_steps = (schedule, items, stages, *sizes, learning, shares is not None)
                source: Any = LocalSource(graph, sampler, state, *of_steps)
                source.after = functions
                ahead = drawing.prefetch > 0 and learning is None
                if disk is not None:
                    source = DiskSource(source, disk, ahead)
                if destination is None:
                    return source
                return SentSource(source, destination, reads, ahead)

            source = samplers.source(make)
        self._begin(source, drawing.prefetch, destination)
        self._read = None if destination else reads
        self._drawn_by = repr(samplers.given)

    @classmethod
    def over(
        cls, source: Any, prefetch: int = 2, destination: Destination | None = None
    ) -> Self:
        """A loader of the batches that `source` draws, at most `prefetch` of them ahead.
        `destination`: where it puts them; None: they stay on the host."""
        loader = object.__new__(cls)
        loader._begin(source, prefetch, destination)
        return loader

    def _begin(self, source: Any, prefetch: int, destination: Destination | None) -> None:
        if source.learning is not None:
            prefetch = min(prefetch, source.learning.age)
        self.source, self._prefetch, self._destination = source, prefetch, destination
        self.waited, self.drawn_early, self._finishing = 0.0, 0.0, 0.0
        self._ahead: Ahead | None = None
        self._ahead_of = (0, 0)  # epoch and step of its first batch
        self._loop: object = None  # the loop under way, until `close`
        self._items: Iterator[Any] | None = None  # what it draws itself
        self._early: list[Any] = []  # what `draw_next` drew

    @property
    def destination(self) -> Any:
        """The device or the sharding where batches are put; the host device if they stay."""
        if self._destination is None:
            return host_device()
        return self._destination.sharding or self._destination.devices[0]

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
        """Rounds, bytes and the like that drawing has taken so far, by name (see
        `RankSource.counts`); `{}` on one machine."""
        return self.source.counts

    @property
    def super_batch(self) -> int:
        return self.source.drawing.at_once

    @property
    def capacity(self) -> Capacity:
        return self.source.capacity

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds that the caller has waited, by kind of work; sending batches to a device is
        among that of features. Drawing in the background takes
        longer than the caller waits for it, so the wait is shared out in proportion."""
        drawing = self.source.seconds
        share = min(self.waited / max(sum(drawing.values()), 1e-9), 1)
        parts = {name: s * share for name, s in drawing.items()}
        return parts | {"features": parts.get("features", 0.0) + self._finishing}

    def start_prefetch(self) -> None:
        """Starts to draw the next loop's batches in the background, before the loop begins.
        Nothing happens if they are being drawn already, or with `prefetch=0`. On ranks that
        draw together, all ranks call it. With `OnPlateau` call it after `report`."""
        if self._prefetch and self._ahead is None:
            calls, size = self._drawn(*self._next()), self._prefetch
            if self._destination is None:
                size = -(-size // self.source.at_once)
            self._ahead_of = self._next()
            with on_host():
                self._ahead = Ahead(calls, size)

    def __iter__(self) -> Iterator[Any]:
        refuse_forked()
        if self._loop is not None or self._ahead_of != self._next():
            self._stop()
        self._move(*self._next())
        self.start_prefetch()
        loop, first = object(), self.step
        self._loop, ahead = loop, self._ahead
        items = each(self._drawn(self.epoch, first) if ahead is None else ahead)
        self._items = items if ahead is None else None
        try:
            for step in range(first, len(self)):
                began = time.perf_counter()
                item = self._early.pop() if self._early else next(items)
                drawn = time.perf_counter()
                item = self._finished(item)
                self.waited += drawn - began
                self._finishing += time.perf_counter() - drawn
                self._move(self.epoch, step + 1)
                if self.source.learning is not None:
                    self.source.learning.yielded += 1
                yield item
                if self._loop is not loop or self.step != step + 1:
                    raise RuntimeError("the loader was closed or moved inside its loop")
            self.finish_epoch()
            self._stop()
        finally:
            if self._loop is loop:
                self.close()

    def draw_next(self) -> None:
        """Draws the loop's next batch now, unless batches are drawn in the background, or with
        the state of a sampler that learns. Call it in the loop's body when a device has been
        given its step: the host draws while the device computes. Nothing changes but the time.
        On ranks that draw together, all ranks call it."""
        free = self._items is not None and self.source.learning is None
        if free and not self._early and self.step < len(self):
            began = time.perf_counter()
            self._early.append(next(self._items))  # type: ignore[arg-type]
            took = time.perf_counter() - began
            self.waited, self.drawn_early = self.waited + took, self.drawn_early + took

    def _finished(self, item: Any) -> Any:
        """What is yielded for an item of the source; in the caller's thread."""
        return item if self._read is None else (item, self._read(item))

    def _next(self) -> tuple[int, int]:
        return (self.epoch, self.step) if self.step < len(self) else (self.epoch + 1, 0)

    def peek(self) -> Any:
        """The batch that the next loop begins with; the position stays. A call in the body of a
        loop would end the loop. The batch is drawn for this call alone, by all ranks together
        if there are several, and a planned cache is planned for it too."""
        refuse_forked()
        self._stop()
        items = self._drawn(*self._next())
        item = self._finished(next(items)[0])
        items.close()  # type: ignore[attr-defined]
        return item

    def rehearse(self, num: int | None = None) -> Iterator[MiniBatch]:
        """The first `num` batches of the epoch, by default all, drawn for this call alone. They
        stay on the host, and nothing is read for them. The position stays. With a sharding
        these are the batches of one device after the other. It is for what is planned by what
        an epoch reads, such as `HotRows`."""
        left = len(self) if num is None else min(require_int("num", num, 1), len(self))
        for items in self._drawn(self.epoch, 0, sent=False):
            for item in items[:left]:
                yield from item if isinstance(item, list) else [item]
            left -= len(items)
            if left <= 0:
                break

    def _drawn(self, epoch: int, first: int, sent: bool = True) -> Iterator[list[Any]]:
        """What the source draws, computed on the host; unless `sent`, it stays there."""
        with on_host():
            source = self.source if sent else self.source.of_epoch(epoch).drawing
            calls = source.drawn(epoch, first)
        return calls if computes_on_cpu() else on_host_each(calls)

    # -- adaptive samplers ---------------------------------------------------------------------

    @property
    def learns(self) -> bool:
        """Whether the sampler is adaptive, so that `update` must be called after every step."""
        return self.source.learning is not None

    def update(self, batch: Any, feedback: Any) -> None:
        """Gives an adaptive sampler the feedback of the step on `batch`, which changes its
        state. Call it once for each batch, in order, and before the next batch is asked for;
        up to `age` batches may be behind. On ranks, all ranks call it, with `OWN` values.
        Raises `InputError`."""
        if self._destination is not None:
            batch, feedback = self._destination.back((batch, feedback))
        with on_host():
            self._learning.update(batch, feedback)

    @property
    def sampler_state(self) -> Any:
        """The newest state of an adaptive sampler. The next `update` may reuse its buffers, so
        copy what you want to keep."""
        return self._learning.states[-1]

    @property
    def sampler_states(self) -> tuple[Any, ...]:
        """The `1 + age` states that the next batches are drawn with, the newest last. A
        checkpoint keeps them beside `state_dict()`, and sets them after `load_state_dict`."""
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
        """Gives a loader that follows the loss (`OnPlateau`) the mean training loss of the
        epoch that has ended. Call it once, before the next epoch begins. On ranks, all ranks
        call it with the same number. Other loaders ignore it. Raises `InputError`."""
        self.source.report(loss, self.epoch + (self.step == len(self)))

    # -- the position --------------------------------------------------------------------------

    def finish_epoch(self) -> None:
        """Moves to the beginning of the next epoch."""
        self._move(self.epoch + 1, 0)

    def _move(self, epoch: int, step: int) -> None:
        for schedule in self.source.schedules:
            schedule.epoch, schedule.step = epoch, step

    def state_dict(self) -> dict[str, int]:
        """The position, and what decides the batches: ints that `load_state_dict` takes back.
        With a by-node sampler it may be taken back on another number of ranks. With `OnPlateau`
        the state has the progress of the losses too."""
        return self._schedule.state_dict() | self.source.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues where the state was taken; see `Schedule.load_state_dict`."""
        state = self.source.load_state_dict(state)
        for schedule in self.source.schedules:
            schedule.load_state_dict(state)
        self.close()

    get_state, set_state = state_dict, load_state_dict  # the names that Grain uses

    def close(self) -> None:
        """Stops drawing ahead. The position stays, and a new loop continues from it. Ranks that
        draw together first finish what they are drawing, so that all stop at one position."""
        self._stop()
        self.source.close()

    def _stop(self) -> None:
        """Ends the loop. What a source does for the next epoch goes on."""
        items, self._items, self._loop = self._items, None, None
        if isinstance(items, Generator):
            items.close()
        self._early.clear()
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
