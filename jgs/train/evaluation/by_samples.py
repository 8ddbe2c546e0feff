"""Evaluation by sampled batches, whose draws a key decides.

Exact evaluation computes one row for each node, layer by layer. Under cutoffs a node has as
many rows as there are cutoffs, and a model of contexts has no such layers. Here every item is
judged by a sample of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jgs.dist.communicators.collect import rows_on_all
from jgs.dist.communicators.comm import OWN, SAME
from jgs.models import top_k
from jgs.sampling.loading.items import num_items
from jgs.sampling.loading.stages import samplers_of
from jgs.train.config import Config
from jgs.train.evaluation.link_metrics import Decoded
from jgs.train.loop.keys import key_of
from jgs.train.loop.model import make_sampler

_SEEDS = 1 << 14  # of a batch: its samples take memory


def judges_key(config: Config) -> jax.Array:
    """The key of what is drawn to judge a row, and to predict one: both draw the same."""
    return key_of(config, "samples of moments")


def outputs_of(model: Any, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    """What `BySamples` computes of a batch of nodes: the model's outputs."""
    return (model(batch, x),)


def rows_of(model: Any, batch: Any, x: Any) -> tuple[jax.Array, ...]:
    """What it computes of nodes that a decoder scores, or that are embedded: their rows."""
    return (model.rows(batch, x),)


class BySamples:
    """Computes something of every item, in the order of the items, by the configuration's
    sampler. All ranks make it and call it alike."""

    def __init__(
        self,
        config: Config,
        data: Any,  # a `jgs.train.loop.data.Data`
        model: Any,  # gives what a batch is computed with
        columns: tuple[str, ...],  # of edges, which the model reads
        items: Mapping[str, Any],  # their columns `[n]`; `time` has cutoffs
        key: Any,  # decides what is drawn
        # `judge(model, batch, x)` returns arrays float32 `[B, ...]`, one row an item.
        judge: Callable[..., tuple[jax.Array, ...]],
        stage: Any = None,  # a `jgs.sampling.Links` that makes the seeds of pairs
        states: Mapping[Any, Any] = MappingProxyType({}),  # as for `Data.loader`
        graphs: Any = None,  # in place of those of the data
    ):
        made = make_sampler(config, False, lambda: model.message_widths, columns)
        sampler = samplers_of(made)[0]
        known = {one: state for one, state in states.items() if repr(one) == repr(sampler)}
        self._comm, num = data.comm, num_items(items)
        number = np.arange(max(num, data.comm.size))  # each rank has one: the last are copies
        columns_of = {name: np.asarray(each) for name, each in items.items()}
        if num == 0:  # one that is not real, by which the rows have their width
            columns_of = {
                n: np.zeros((1, *a.shape[1:]), a.dtype) for n, a in columns_of.items()
            }
        judged = {name: own[number % max(num, 1)] for name, own in columns_of.items()}
        judged |= {"item": number, "real": number < num}
        own, size = data.graphs, None
        if stage is not None:  # each item has two ends, and negatives
            size = max(1, min(config.batch_size, _SEEDS // (2 + stage.num_negatives)))
        try:  # graphs that are refused must not be asked again
            data.graphs = own if graphs is None else graphs
            self._loader = data.loader(sampler, key, None, known, (judged, stage), size)
        finally:
            data.graphs = own
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


class ListsAt(BySamples):
    """The targets that sources, each at a moment, have the highest scores with: of those
    candidates that exist before the moment. All ranks make it and call it alike."""

    def __init__(
        self,
        config: Config,
        data: Any,
        model: Any,  # a `PairModel`
        columns: tuple[str, ...],
        sources: tuple[np.ndarray, np.ndarray],  # nodes int32 `[n]`, moments int64 `[n]`
        candidates: np.ndarray,  # distinct nodes
        key: Any,
        states: Mapping[Any, Any] = MappingProxyType({}),
    ):
        nodes, time = sources
        self._num, first, items = len(nodes), 0, []
        # Of each moment: its sources among all, its rows, their nodes, and the places of the
        # sources and of the candidates among these.
        self._moments: list[tuple[np.ndarray, slice, np.ndarray, np.ndarray, np.ndarray]] = []
        for asked, known in at_moments(time, candidates, data.graphs[0].node_time):
            every, place = np.unique(np.concatenate([nodes[asked], known]), return_inverse=True)
            rows, first = slice(first, first + every.size), first + every.size
            own, others = np.split(place, [asked.size])
            self._moments.append((asked, rows, every, own, others))
            items.append((every, np.full(every.size, time[asked[0]])))
        names, every_item = ("nodes", "time"), map(np.concatenate, zip(*items, strict=True))
        of = dict(zip(names, every_item, strict=True))
        super().__init__(config, data, model, columns, of, key, rows_of, states=states)
        self._decode = Decoded(model)

    def best(
        self, params: Any, k: int, fill: Any = None, relation: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """int32 `[n, k]`, the best targets first, and their scores float32 `[n, k]`. Where
        fewer exist there is -1, of score `-inf`. `fill` as of a call."""
        (rows,), decoder = self(params, fill), self._decode.decoder(params)
        best = np.full((self._num, k), -1, np.int32)
        scores = np.full((self._num, k), -np.inf, np.float32)
        for asked, some, every, own, others in self._moments:
            if others.size:
                found, scores[asked] = top_k(
                    decoder, rows[some], own, others, k, relation=relation
                )
                best[asked] = np.where(found >= 0, every[found], -1)
        return best, scores


def at_moments(
    time: np.ndarray, candidates: np.ndarray, born: Any
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each moment of `time` `[n]`: which of the `n` have it, and the candidates that exist
    before it; `born` int64 `[N]` are the times of all nodes, or None."""
    for moment in np.unique(time):
        some = slice(None) if born is None else np.asarray(born)[candidates] < moment
        yield np.flatnonzero(time == moment), candidates[some]
