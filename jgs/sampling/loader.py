"""`Loader`: an epoch of mini-batches, sampled ahead in the background."""

from __future__ import annotations

import queue
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.capacity import (
    Capacity,
    check_capacity,
    plan_capacity,
    worst_case,
)
from jgs.sampling.checks import check_fanouts, check_graph, check_seed_ids, require_int
from jgs.sampling.neighbors import sample_neighbors
from jgs.sampling.random import key_words, node_bits

_UINT32_MAX = 2**32 - 1


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
      prefetch: how many batches may wait; 0 samples in the caller's thread.

    Attributes:
      epoch, step: the position; `step` batches of `epoch` have been yielded.
      capacity: the planned `Capacity`.
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
    ):
        fanouts = check_fanouts(fanouts)
        self._words = np.asarray(key_words(key))
        check_graph(graph, weighted, return_edge_weights)
        self._graph, self._seeds = graph, check_seed_ids(seeds, graph.num_nodes)
        batch_size = _check_batch_size(batch_size, self._seeds.size)
        prefetch = require_int("prefetch", prefetch, 0)
        if capacity is None:
            capacity = plan_capacity(
                graph,
                batch_size,
                fanouts,
                seeds=self._seeds,
                replace=replace,
                weighted=weighted,
            )
        self.capacity = check_capacity(capacity, batch_size, len(fanouts))
        distinct = np.unique(self._seeds).size == self._seeds.size
        self._worst = worst_case(
            graph.num_nodes, graph.num_edges, batch_size, fanouts, replace, distinct
        )
        # What else decides the batches, as one int, so that a state of others is noticed.
        settings = repr((fanouts, bool(replace), bool(weighted), bool(shuffle)))
        self._digest = zlib.crc32(settings.encode(), zlib.crc32(self._seeds.tobytes()))
        self._batch_size, self._shuffle, self._prefetch = batch_size, shuffle, prefetch

        def draw(key, graph, seeds, capacity):
            return sample_neighbors(
                key,
                graph,
                seeds,
                fanouts,
                capacity,
                replace,
                weighted,
                return_edge_ids,
                return_edge_weights,
                relabel_inputs,
            )

        self._draw = jax.jit(draw, static_argnums=3)
        self.epoch = self.step = self.redraws = 0
        self.waited = 0.0
        self._ahead: _Ahead | None = None

    def __len__(self) -> int:
        return -(-self._seeds.size // self._batch_size)

    def __iter__(self) -> Iterator[MiniBatch]:
        self.close()
        first = self.step
        if self._prefetch and first < len(self):
            ahead = self._ahead = _Ahead(self._batches(self.epoch, first), self._prefetch)
            batches: Iterator[MiniBatch] = iter(ahead)
        else:
            ahead, batches = None, self._batches(self.epoch, first)
        try:
            for step in range(first, len(self)):
                began = time.perf_counter()
                batch = next(batches)
                self.waited += time.perf_counter() - began
                self.step = step + 1
                yield batch
                if self._ahead is not ahead or self.step != step + 1:
                    raise RuntimeError("the loader was closed or moved inside its loop")
            self.epoch, self.step = self.epoch + 1, 0
        finally:
            if ahead is not None:
                ahead.stop()

    def _batches(self, epoch: int, first: int) -> Iterator[MiniBatch]:
        key = jax.random.wrap_key_data(jnp.asarray(self._words), impl="threefry2x32")
        epoch_key = jax.random.fold_in(key, epoch)
        seeds = self._seeds
        if self._shuffle:
            seeds = seeds[_order(jax.random.fold_in(epoch_key, 0), seeds.size)]
        for step in range(first, len(self)):
            some = seeds[step * self._batch_size : (step + 1) * self._batch_size]
            padded = np.full(self._batch_size, self._graph.num_nodes, np.int32)
            padded[: some.size] = some
            yield self._sample(jax.random.fold_in(epoch_key, 1 + step), padded)

    def _sample(self, key: jax.Array, seeds: np.ndarray) -> MiniBatch:
        capacity = self.capacity
        batch = self._draw(key, self._graph, seeds, capacity)
        while batch.overflow:
            if capacity == self._worst:
                raise InputError(
                    "a batch must fit the worst case of distinct seeds",
                    f"seeds repeated in a batch with fanout -1: {seeds.tolist()[:10]}...",
                    "Remove the repetitions from the loader's seeds.",
                )
            self.redraws += 1
            capacity = capacity.enlarge(self._worst)
            batch = self._draw(key, self._graph, seeds, capacity)
        return jax.block_until_ready(batch)

    def state_dict(self) -> dict[str, int]:
        """The position and what it means: ints that `load_state_dict` takes back."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "key_0": int(self._words[0]),
            "key_1": int(self._words[1]),
            "num_seeds": self._seeds.size,
            "batch_size": self._batch_size,
            "digest": self._digest,
        }

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue where the state was taken: the next batch is the one that came next there.

        The key is restored too. Raises `InputError` when the state is of other seeds, batch
        size, fanouts or modes, for then the batches would not be the same.
        """
        mine = self.state_dict()
        if set(state) != set(mine):
            raise InputError(
                f"a loader's state must have the entries {sorted(mine)}",
                sorted(state),
                "Pass what Loader.state_dict returned.",
            )
        most = {"epoch": _UINT32_MAX, "step": len(self)}
        for name, value in state.items():
            limit = most.get(name, _UINT32_MAX)
            if require_int(f"the state's {name}", value, 0) > limit:
                raise InputError(
                    f"the state's {name} must be at most {limit}",
                    value,
                    "Pass what Loader.state_dict returned.",
                )
        for name in ("num_seeds", "batch_size", "digest"):
            if state[name] != mine[name]:
                raise InputError(
                    f"the state's {name} must be the loader's, {mine[name]}",
                    state[name],
                    "Make the loader as it was when the state was taken: the same seeds, "
                    "batch size, fanouts and modes.",
                )
        self.close()
        self._words = np.array([state["key_0"], state["key_1"]], np.uint32)
        self.epoch, self.step = int(state["epoch"]), int(state["step"])

    def close(self) -> None:
        """Stop sampling ahead. The position stays; a new loop goes on from it."""
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ahead:
    """Runs an iterator in a background thread, at most `size` items ahead."""

    def __init__(self, items: Iterator[Any], size: int):
        self._ready: queue.SimpleQueue = queue.SimpleQueue()
        self._free = threading.Semaphore(size)
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=_fill,
            args=(items, self._ready, self._free, self._stopping),
            name="jgs-loader",
            daemon=True,
        )
        # Also at exit and when forgotten: a thread inside XLA must not outlive Python.
        self.stop: Callable[[], object] = weakref.finalize(
            self, _stop, self._free, self._stopping, self._thread
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item, error = self._ready.get()
        self._free.release()
        if error is not None:
            raise error
        return item


def _fill(
    items: Iterator[Any],
    ready: queue.SimpleQueue,
    free: threading.Semaphore,
    stopping: threading.Event,
) -> None:
    while True:
        free.acquire()
        if stopping.is_set():
            return
        try:
            ready.put((next(items), None))
        except StopIteration:
            return
        except BaseException as error:
            ready.put((None, error))
            return


def _stop(
    free: threading.Semaphore, stopping: threading.Event, thread: threading.Thread
) -> None:
    stopping.set()
    free.release()
    thread.join()


def _order(key: jax.Array, n: int) -> np.ndarray:
    """A permutation of `n`: positions sorted by the 64 random bits that `key` gives each."""
    with jax.enable_x64(True):
        bits = node_bits(jax.random.key_data(key), jnp.arange(n, dtype=jnp.int32), 0)
        return np.argsort(np.asarray(bits), kind="stable")


def _check_batch_size(batch_size: Any, num_seeds: int) -> int:
    if require_int("batch_size", batch_size, 1) > num_seeds:
        raise InputError(
            f"the batch size must be at most {num_seeds}, the number of seeds",
            batch_size,
            "Choose a smaller batch.",
        )
    return int(batch_size)
