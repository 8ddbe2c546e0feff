"""What predictions at a time share: the cutoffs that are asked for, and sampled batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from jgs.arrays import described
from jgs.data.column_values import Clock
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.train.evaluation.by_time import by_time


def cutoffs(data: Any, ids: np.ndarray, time: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The `ids` `[num, ...]` of nodes as they are in `data`, and int64 `[num]`: the cutoff of
    each, from an array `[num]` of ints or dates, or one for all. Dates are counted in the
    data's unit. Raises `InputError`, which says `what` is asked for."""
    num, unit = len(ids), data.time_unit
    times = np.asarray(np.nan if time is None else time)
    if times.dtype.kind in "MUO" and times.shape in ((), (num,)):
        if unit is None:
            raise InputError(
                f"times of {what} must be whole numbers, as those of its data are",
                str(times.reshape(-1)[0]),
                "Give numbers, or train with --data-options time_unit=s or another unit.",
            )
        times = Clock(unit).whole(what, times.reshape(-1), "row").reshape(times.shape)
    whole = times.dtype.kind in "iu" and times.dtype != np.uint64  # which int64 does not hold
    if not whole or times.shape not in ((), (num,)):
        raise InputError(
            f"{what} must have times: integers of 64 bits, one for all {num} or one each",
            "none" if time is None else described(times),
            "Give time=, in the unit of the graph's times.",
        )
    own = ids if data.own_ids is None else data.own_ids[ids]
    return own, np.broadcast_to(times, num).astype(np.int64)


def judged_at(
    run: Any,
    data: Any,
    items: Mapping[str, Any],
    graph: Graph | None,
    key: jax.Array,
    outputs: Callable[..., tuple[jax.Array, ...]],
    stage: Any = None,
    size: int | None = None,
) -> np.ndarray:
    """What `outputs` computes of each item with the run's parameters, `[n, ...]`.

    Args:
      run: the `Run`.
      data: its `jgs.train.loop.data.Data`, with the graphs that it predicts on.
      items: have `time`, and nodes by their ids in `data`.
      graph: the user's, by the data set's ids, in place of the run's; or None.
      key: decides what is drawn, by the run's sampler.
      outputs, stage, size: as in `ByTime` and `Data.loader`.
    """
    own, of = data.graphs, (run.model, run.edges.columns, dict(items), key, outputs)
    try:  # a graph that is refused must not be asked again
        data.graphs = own if graph is None else [_by_own_ids(data, graph)]
        judge = by_time(run.config, data, *of, stage, size)
    finally:
        data.graphs = own
    try:
        return judge(nnx.state(run.model))[0]
    finally:
        judge.close()


def _by_own_ids(data: Any, graph: Graph) -> Graph:
    """A user's `graph`, with the ids that the nodes have in `data`."""
    num = data.graphs[0].num_nodes
    if graph.num_nodes != num:
        raise InputError(
            f"the graph must have the run's {num} nodes",
            graph.num_nodes,
            "Give a graph of the same nodes.",
        )
    if data.own_ids is None:
        return graph
    made = graph.subgraph(np.argsort(data.own_ids))
    return made._with(schema=graph.schema and data.graphs[0].schema)
