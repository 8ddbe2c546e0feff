"""`plan_capacity`: a tight capacity for a sampler, measured by drawing; and `shared`: one
compiled program for all that draw alike."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from jgs import kernels
from jgs.errors import InputError
from jgs.graph import Graph, as_device
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import Capacities, Capacity, GraphShape
from jgs.sampling.checks import check_graph, require_int
from jgs.sampling.edges.random import as_key_data, fold_each
from jgs.sampling.loading.items import (
    Asked,
    Stage,
    check_items,
    check_stages,
    num_items,
    num_seeds_of,
    padding_of,
    seeds_of,
    wide,
)
from jgs.sampling.shorthand import as_sampler

SMALL = 1 << 11  # edges in all hops together


def worst_case(
    graph: Graph,
    batch_size: int,
    sampler: Any = None,
    *,
    distinct: bool = False,
    **options: Any,
) -> Capacity:
    """The capacity that no batch of `batch_size` seeds exceeds.

    Args:
      sampler, options: as in `plan_capacity`.
      distinct: whether no seed is repeated within a batch, which gives a tighter bound.

    The graph's offsets are read once where seeds may repeat. Raises `InputError`.
    """
    sampler = as_sampler(sampler, **options)
    sampler.init(graph)
    shape = GraphShape.of(graph, degrees=not distinct)
    return sampler.bound(shape, require_int("batch_size", batch_size, 1), distinct)


def plan_capacity(
    graph: Graph,
    batch_size: int,
    sampler: Any = None,
    *,
    seeds: Any = None,
    key: Any = None,
    trials: int = 10,
    margin: float = 0.05,
    distinct: bool = True,
    state: State | None = None,
    before: Any = None,
    **options: Any,
) -> Capacity:
    """A tight capacity, measured: what `trials` samples needed, plus a margin.

    Args:
      batch_size: int; `B`, the number of seeds in a batch, padding included; with `before` the
        number of items.
      sampler: the `Sampler`, or a tuple of ints with the `options` of `sample_neighbors`.
      seeds: int `[n]`, the nodes that batches are drawn from. None: all nodes. For a sampler of
        pairs it is int `[n, 2]`, and required. Or other items, as `Loader` takes them.
      key: a Threefry key. None: that of seed 0. The plan is a pure function of it.
      trials: int; the number of batches that are drawn to measure.
      margin: float; what is added to the largest need, as a fraction of it. The sizes are then
        rounded up to one of 16 steps between powers of two, so that few shapes exist, and
        limited to the worst case.
      distinct: True: repeated `seeds` are drawn from once. False: a node may occur several
        times among a batch's seeds, as ends of edges do; trials then draw seeds with
        replacement.
      state: what the sampler's `init` returned for the graph. None: it is called here.
      before: the stages that make seeds of items, as in `Loader`.

    A batch that needs more overflows (see `MiniBatch.overflow`) and must be drawn again with
    `Capacity.enlarge`, as `Loader` does. The time that the plan took and the size that it saves
    are logged to the logger `jgs` at level INFO. Raises `InputError`.
    """
    sampler = as_sampler(sampler, **options)
    check_graph(graph, False)
    batch_size = require_int("batch_size", batch_size, 1)
    trials = require_int("trials", trials, 1)
    if not 0 <= margin < math.inf:
        raise InputError("margin must be a fraction of at least 0", margin, "0.05 is usual.")
    key_data = np.zeros(2, np.uint32) if key is None else jax.device_get(as_key_data(key))
    stages = check_stages(before)
    pool = np.arange(graph.num_nodes) if seeds is None else seeds
    pool = check_items(pool, graph.num_nodes, sampler.pairs, bool(stages))
    distinct = distinct and isinstance(pool, np.ndarray) and not stages
    if distinct:
        pool = np.unique(pool, axis=0)
    began = time.perf_counter()
    state = sampler.init(graph) if state is None else state
    chooser = np.random.default_rng(key_data.tolist())
    capacities = bound_of(sampler, graph, pool, batch_size, distinct, stages)
    draw = shared(_draw, sampler, tuple(stages))

    def attempt(capacity: Capacity, key_data: np.ndarray, items: Any) -> Any:
        # JAX keeps all that it has traced, also these few sizes. So on a CPU only the kernel is
        # traced, and not the long plain form.
        with kernels.this_host_only(), wide(stages):
            return draw(jax.device_put(key_data), graph, state, items, capacity)

    need, level = np.zeros((2, len(capacities.worst.edges)), np.int64), 0
    count = num_items(pool)
    size = min(batch_size, count) if distinct else batch_size
    for trial_key_data in fold_each(key_data, np.arange(trials)):
        rows = chooser.choice(count, size, replace=not distinct)
        items = jax.tree.map(partial(_chosen, rows, batch_size, graph.num_nodes), pool)
        again = partial(attempt, key_data=trial_key_data, items=items)
        needed, level = capacities.fit(again, level)
        need = np.maximum(need, jax.device_get(needed))
    planned = capacities.with_margin(need, margin).capacity
    log = logging.getLogger("jgs")
    log.info(
        "capacity planned from %d batches in %.2f s, %.1f times below the worst case",
        trials,
        time.perf_counter() - began,
        sum(capacities.worst.edges) / max(1, sum(planned.edges)),
    )
    log.info("  edges %s, sources %s", planned.edges, planned.sources)
    return planned


def capacities_for(
    sampler: Sampler,
    graph: Graph,
    items: Any,
    batch_size: int,
    distinct: bool,
    stages: Sequence[Stage] = (),
    state: State | None = None,
) -> Capacities:
    """The planned capacities for batches of `batch_size` of the `items`. A bound of at most
    `SMALL` edges is taken as it is: its padding costs less than the programs that measuring
    compiles."""
    capacities = bound_of(sampler, graph, items, batch_size, distinct, stages)
    if sum(capacities.worst.edges) <= SMALL:
        return capacities._replace(capacity=capacities.worst)
    options: dict[str, Any] = {"distinct": distinct, "state": state, "before": stages}
    planned = plan_capacity(graph, batch_size, sampler, seeds=items, **options)
    return capacities._replace(capacity=planned)


def bound_of(
    sampler: Sampler,
    graph: Graph,
    items: Any,
    batch_size: int,
    distinct: bool,
    stages: Sequence[Stage] = (),
    shape: GraphShape | None = None,
) -> Capacities:
    """The capacities for a batch of `batch_size` items before anything is measured. Its seeds
    are 0 where the sampler draws them. `shape` is that of the whole graph, where `graph` is a
    part of it."""
    num_seeds, timed = batch_size, False
    if stages:
        num_seeds, timed = num_seeds_of(stages, graph, items, batch_size)
    elif isinstance(items, Mapping):
        timed = "time" in items
    shape = shape or GraphShape.of(graph, degrees=not distinct)
    if timed:
        shape = shape.under(num_seeds)
    worst = sampler.bound(shape, num_seeds, distinct)
    return Capacities.modest(worst, 0 if sampler.draws_seeds else num_seeds)


def _chosen(rows: np.ndarray, size: int, num_nodes: int, array: np.ndarray) -> jax.Array:
    chosen = np.full((size, *array.shape[1:]), padding_of(array, num_nodes), array.dtype)
    chosen[: rows.size] = array[rows]
    return as_device(chosen)


def _draw(
    sampler: Sampler,
    stages: Sequence[Stage],
    key_data: jax.Array,
    graph: Graph,
    state: State,
    items: Any,
    capacity: Capacity,
) -> tuple[jax.Array, jax.Array]:
    asked = Asked(items, items, key_data) if stages else items
    seeds, _ = seeds_of(stages, graph, asked)
    batch = sampler.sample(key_data, graph, state, seeds, capacity)
    assert batch.needed is not None, "every sampler says what its batches needed"
    return batch.needed, batch.overflow


_KEPT = 16  # functions; each keeps what JAX has compiled for it
_functions: dict[Any, Callable[..., Any]] = {}  # the newest comes last


def shared(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """`function(*first, ...)`, jitted, where `capacity` is static.

    A second call with the same `first` gives the function of the first call, so JAX compiles
    nothing again for arguments of the same shapes. That needs parts that cannot change: numbers
    and strings, and tuples, frozen dataclasses and hashable mappings of them. With any other
    part the function is new.
    """
    made: Any = jax.jit(partial(function, *first), static_argnames="capacity")
    try:
        key = function, _key(first)
    except TypeError:
        return made
    _functions[key] = made = _functions.pop(key, made)
    for old in list(_functions)[:-_KEPT]:
        _functions.pop(old, None)
    return made


def _key(part: Any) -> Any:
    """Tells `part` from others, also 2 from 2.0, which are equal. Raises `TypeError`."""
    if isinstance(part, tuple):
        return type(part), *map(_key, part)
    if is_dataclass(part) and type(part).__dataclass_params__.frozen:  # type: ignore[union-attr]
        names = [field.name for field in fields(part)]
        if {*getattr(part, "__dict__", ())} <= {*names}:  # else it holds what no field says
            return type(part), *(_key(getattr(part, name)) for name in names)
    if isinstance(part, Mapping) and type(part).__hash__ is not None:
        return type(part), _key(tuple(part.items()))
    if part is None or isinstance(part, bool | int | float | str):
        return type(part), repr(part)
    raise TypeError("it may change")
