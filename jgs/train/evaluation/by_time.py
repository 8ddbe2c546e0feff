"""Evaluation of items that have cutoffs: by sampled batches, whose draws a key decides.

Exact evaluation computes one row for each node. Under cutoffs a node has as many rows as there
are cutoffs, so here every item is judged by a sample of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import OWN, SAME
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.loop.model import make_sampler

_SEEDS = 1 << 14  # of a batch: its samples take memory


def batch_size(config: Config, num_negatives: int) -> int:
    """The items in a batch of a rank, where each has two ends and so many negatives."""
    return max(1, min(config.batch_size, _SEEDS // (2 + num_negatives)))


class ByTime:
    """Computes something of every item, in the order of the items, by the configuration's
    sampler. All ranks make it and call it alike."""

    def __init__(
        self,
        config: Config,
        data: Any,  # a `jgs.train.loop.data.Data`
        model: Any,  # gives what a batch is computed with
        columns: tuple[str, ...],  # of edges, which the model reads
        items: Mapping[str, Any],  # their columns `[n]`, with cutoffs
        key: Any,  # decides what is drawn
        # `judge(model, batch, x)` returns arrays float32 `[B, ...]`, one row an item.
        judge: Callable[..., tuple[jax.Array, ...]],
        stage: Any = None,  # with `size` and `states` as for `Data.loader`
        size: int | None = None,
        states: Mapping[Any, Any] = MappingProxyType({}),
    ):
        made = make_sampler(config, False, lambda: model.message_widths, columns)
        sampler = samplers_of(made)[0]
        known = {one: state for one, state in states.items() if repr(one) == repr(sampler)}
        self._comm, num = data.comm, len(items["time"])
        number = np.arange(max(num, data.comm.size))  # each rank has one: the last are copies
        judged = {name: np.asarray(each)[number % num] for name, each in items.items()}
        judged |= {"item": number, "real": number < num}
        self._loader = data.loader(sampler, key, None, known, (judged, stage), size)
        self._start, graphdef = self._loader.state_dict(), nnx.split(model)[0]

        def run(params: Any, batch: Any, x: Any) -> Any:
            number = jnp.where(batch.items["real"], batch.items["item"], -1)
            return number, judge(nnx.merge(graphdef, params), batch, x)

        self._run = data.comm.program(run, (SAME, OWN, OWN), OWN)

    def __call__(self, params: Any, fill: Callable[..., Any] | None = None) -> list[np.ndarray]:
        """The rows of the items, `[n, ...]`, on every rank; all ranks call it. `fill(batch, x)`
        returns the features with rows that are learned beside `params`, if it is given."""
        comm = self._comm
        params = comm.same(params)
        self._loader.load_state_dict(self._start)  # every call draws the same
        own: list[list[Any]] = [[] for _ in range(comm.num_local)]
        for batch, x in self._loader:
            x = x if fill is None else fill(batch, x)
            for found, each in zip(own, comm.local(self._run(params, batch, x)), strict=True):
                found.append(jax.tree.map(np.asarray, each))
        item, rows = [], []
        for found in own:
            numbers = np.concatenate([number for number, _ in found])
            real = numbers >= 0
            item.append(numbers[real])
            parts = zip(*(rows_of for _, rows_of in found), strict=True)
            rows.append([np.concatenate(part)[real] for part in parts])
        order = np.argsort(rows_on_all(comm, item), kind="stable")
        joined = []
        for part in zip(*rows, strict=True):
            shape = part[0].shape[1:]
            every = rows_on_all(comm, [each.reshape(-1) for each in part])
            joined.append(every.reshape(-1, *shape)[order])
        return joined

    def close(self) -> None:
        self._loader.close()
