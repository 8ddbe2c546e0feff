"""`Loader`: an epoch of mini-batches, sampled ahead in the background."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.ahead import Ahead
from jgs.sampling.algorithms.neighbors import sample_batches
from jgs.sampling.algorithms.neighbors_plain import Spec
from jgs.sampling.capacity import (
    Capacity,
    check_capacity,
    plan_capacity,
    worst_case,
)
from jgs.sampling.checks import check_fanouts, check_graph, check_seed_ids, require_int
from jgs.sampling.schedule import Deal, Schedule
from jgs.sampling.superbatch import choose_super_batch


class Loader:
    """Yields each seed once an epoch, as `MiniBatch`es of one static shape.

    `for batch in loader` yields what is left of the current epoch and then moves on to the
    next: the first loop runs epoch 0, a loop that was broken off is continued (broken off at
    the last batch, nothing is left: that loop only moves on). The last batch is padded
    (`MiniBatch.seed_mask`). A batch that overflows its capacity is drawn again, same key, with
    a larger one, for this batch only: so a batch depends on the key, its epoch and its step
    alone.

    Args:
      graph: the graph `[N]`.
      seeds: int `[n]` node ids, `n >= batch_size`.
      batch_size: `B`.
      fanouts, replace, weighted, return_edge_ids, return_edge_weights, relabel_inputs: as
        for `sample_neighbors`.
      key: a random key; batch `i` of epoch `e` is sampled with
        `fold_in(fold_in(key, e), 1 + i)`, the order of the seeds comes from
        `fold_in(fold_in(key, e), 0)`.
      shuffle: otherwise the seeds keep their order.
      capacity: None plans one (`plan_capacity`), which draws a few batches.
      prefetch: how many batches may wait, rounded up to whole super-batches; 0 samples in
        the caller's thread.
      super_batch: how many batches are sampled in one call, which makes small ones cheaper
        and changes none; None chooses (`choose_super_batch`), 1 turns it off.

    Attributes:
      epoch, step: the position; `step` batches of `epoch` have been yielded.
      capacity: the planned `Capacity`.
      super_batch: how many batches a call samples.
      redraws: how many batches were drawn again.
      waited: seconds the caller has waited for samples.

    Raises `InputError`. An exception or Ctrl-C in the loop's body stops the background
    thread; so do `close()` and the end of a `with` block.
    """

    def __init__(
        self,
        graph: Graph,
        seeds: Any,
        batch_size: int,
        fanouts: Sequence[int],
        *,
        key: Any,
        shuffle: bool = True,
        capacity: Capacity | None = None,
        replace: bool = False,
        weighted: bool = False,
        return_edge_ids: bool = False,
        return_edge_weights: bool = False,
        relabel_inputs: bool = True,
        prefetch: int = 2,
        super_batch: int | None = None,
    ):
        fanouts = check_fanouts(fanouts)
        check_graph(graph, weighted, return_edge_weights)
        self._graph, seeds = graph, check_seed_ids(seeds, graph.num_nodes)
        # What else decides the batches, so that a state of others is noticed.
        settings = repr((fanouts, bool(replace), bool(weighted), bool(shuffle)))
        deal = Deal.whole(seeds)
        self._schedule = Schedule(key, deal, batch_size, graph.num_nodes, shuffle, settings)
        self._prefetch = require_int("prefetch", prefetch, 0)
        if super_batch is not None:
            super_batch = require_int("super_batch", super_batch, 1)
        if capacity is None:
            capacity = plan_capacity(
                graph,
                batch_size,
                fanouts,
                seeds=seeds,
                replace=replace,
                weighted=weighted,
            )
        self.capacity = check_capacity(capacity, batch_size, len(fanouts))
        distinct = np.unique(seeds).size == seeds.size
        self._worst = worst_case(
            graph.num_nodes, graph.num_edges, batch_size, fanouts, replace, distinct
        )
        self._spec = Spec(
            fanouts,
            self.capacity,
            bool(replace),
            bool(weighted),
            bool(return_edge_ids),
            bool(return_edge_weights),
            bool(relabel_inputs),
            apart=True,
        )
        self.super_batch = min(super_batch or choose_super_batch(self._spec), len(self))
        self._draw = jax.jit(_draw, static_argnums=3)
        self.redraws, self.waited = 0, 0.0
        self._ahead: Ahead | None = None
        self._loop: object = None  # the loop under way, until `close`

    def __len__(self) -> int:
        return len(self._schedule)

    @property
    def epoch(self) -> int:
        return self._schedule.epoch

    @property
    def step(self) -> int:
        return self._schedule.step

    def __iter__(self) -> Iterator[MiniBatch]:
        self.close()
        loop = self._loop = object()
        first = self.step
        samples, ahead = self._super_batches(self.epoch, first), None
        if self._prefetch and first < len(self):
            samples = ahead = Ahead(samples, -(-self._prefetch // self.super_batch))
        self._ahead, batches = ahead, _each(samples)
        try:
            for step in range(first, len(self)):
                began = time.perf_counter()
                batch = next(batches)
                self.waited += time.perf_counter() - began
                self._schedule.step = step + 1
                yield batch
                if self._loop is not loop or self.step != step + 1:
                    raise RuntimeError("the loader was closed or moved inside its loop")
            self._schedule.epoch, self._schedule.step = self.epoch + 1, 0
        finally:
            if ahead is not None:
                ahead.stop()

    def _super_batches(self, epoch: int, first: int) -> Iterator[list[MiniBatch]]:
        """The batches of an epoch from step `first` on, `super_batch` at a time."""
        words, seeds = self._schedule.batches(epoch, self.super_batch)
        for step in range(first, len(self), self.super_batch):
            some = slice(step, step + self.super_batch)
            yield self._sample(words[some], seeds[some])[: len(self) - step]

    def _sample(self, words: np.ndarray, seeds: np.ndarray) -> list[MiniBatch]:
        batches, overflow = self._draw(words, self._graph, seeds, self._spec)
        for i in np.flatnonzero(overflow):
            batches[i] = self._redraw(words[i : i + 1], seeds[i : i + 1])
        return jax.block_until_ready(batches)

    def _redraw(self, words: np.ndarray, seeds: np.ndarray) -> MiniBatch:
        """The one batch of these keys and seeds, with as large a capacity as it needs."""
        capacity, overflow = self.capacity, True
        while overflow:
            if capacity == self._worst:
                raise InputError(
                    "a batch must fit the worst case of distinct seeds",
                    f"seeds repeated in a batch with fanout -1: {seeds[0].tolist()[:10]}...",
                    "Remove the repetitions from the loader's seeds.",
                )
            self.redraws += 1
            capacity = capacity.enlarge(self._worst)
            spec = self._spec._replace(capacity=capacity)
            (batch,), overflow = self._draw(words, self._graph, seeds, spec)
        return batch

    def state_dict(self) -> dict[str, int]:
        """The position and what it means: ints that `load_state_dict` takes back."""
        return self._schedule.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where the state was taken; see `Schedule.load_state_dict`."""
        self._schedule.load_state_dict(state)
        self.close()

    def close(self) -> None:
        """Stop sampling ahead. The position stays; a new loop goes on from it."""
        self._loop = None
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _draw(
    words: jax.Array, graph: Graph, seeds: jax.Array, spec: Spec
) -> tuple[list[MiniBatch], jax.Array]:
    """The batches, and bool `[S]`: which of them overflowed."""
    batches = sample_batches(words, graph, seeds, spec)
    return batches, jnp.stack([batch.overflow for batch in batches])


def _each(super_batches: Iterator[list[MiniBatch]]) -> Iterator[MiniBatch]:
    for batches in super_batches:
        while batches:
            yield batches.pop(0)  # and keep no reference to it
