"""Checks of the samplers' arguments and of the process: each raises `InputError`."""

from __future__ import annotations

import os
import reprlib
import sys
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import check_range, described, fits, require_array
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.checks import check_distinct
from jgs.sampling.capacity import Capacity, GraphShape, check_capacity
from jgs.sampling.seeds import Seeds

# A process that was forked with XLA running would draw for ever: it has none of XLA's threads.
_users: list[int] = []  # the process that was forked last with XLA running in it


def _before_fork() -> None:
    # It is private to JAX, which has no public word for it. Without it nothing is refused.
    bridge = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "backends_are_initialized", bool)():
        _users[:] = [os.getpid()]


os.register_at_fork(before=_before_fork)


def refuse_forked() -> None:
    """Raises `InputError` in a process that was forked from one with XLA running in it."""
    if _users and _users[0] != os.getpid():
        raise InputError(
            "a process that draws batches must not be forked from one that has used JAX",
            f"process {os.getpid()}, forked from {_users[0]}",
            'Start it with multiprocessing.get_context("spawn"), or draw in a thread.',
        )


def require_int(name: str, value: Any, least: int) -> int:
    """`value` as an int of at least `least`; raises `InputError`."""
    wrong = isinstance(value, bool | np.timedelta64) or not isinstance(value, int | np.integer)
    if wrong or value < least:
        raise InputError(
            f"{name} must be an int of at least {least}", repr(value), "Change it."
        )
    return int(value)


def distinct_ids(what: str, nodes: Any, num_nodes: int) -> np.ndarray:
    """`nodes` as int32 `[K]`, distinct ids of `num_nodes`. Raises `InputError`."""
    array = np.asarray(nodes if np.size(nodes) else np.zeros(0, np.int32))
    remedy = "Give those that batches read most, or leave them out."
    require_array(what, array, "integers [K]", remedy)
    check_range(f"{what} must be ids", array, num_nodes, remedy)
    check_distinct(what, array)
    return array.astype(np.int32)


def check_seed_ids(seeds: Any, num_nodes: int, pairs: bool = False) -> np.ndarray:
    """`seeds` as int32 `[n]`, or `[n, 2]` for `pairs`. They must not be empty, and each must be
    in `[0, num_nodes)`. Raises `InputError`."""
    refuse_forked()
    try:
        array = np.asarray(seeds)
    except ValueError:  # ragged
        array = np.empty(0)
    form = "integers [n, 2]" if pairs else "integers [n]"
    if array.size == 0 or not fits(array, form):
        raise InputError(
            f"the seeds to draw batches from must be {form}, not empty",
            described(array),
            "Give both ends of each pair." if pairs else "Give the training nodes' ids.",
        )
    if array.min() < 0 or array.max() >= num_nodes:
        at = np.argwhere((array < 0) | (array >= num_nodes))[0]
        raise InputError(
            f"seeds must be node ids in [0, {num_nodes})",
            f"{int(array[tuple(at)])} at position {int(at[0])}",
            "Check where the seeds come from.",
        )
    return array.astype(np.int32)


def _check_nodes(seeds: Any, num_nodes: int, pairs: bool) -> jax.Array:
    """The nodes of seeds as int32 `[B]` or `[S, B]`, or with `pairs` as `[B, 2]`."""
    if pairs:
        remedy = "Give both ends of each pair; draw several batches under jax.vmap."
        require_array("the seeds of a sampler of pairs", seeds, "integers [B, 2]", remedy)
        return _check_nodes(seeds.reshape(-1), num_nodes, False).reshape(-1, 2)
    refuse_forked()
    if seeds.size == 0 or not fits(seeds, "integers [B] or [S, B]"):
        rule = "seeds must be integers [B], or [S, B], a batch a row, with at least one id"
        raise InputError(rule, described(seeds), "Give one id a seed.")
    if not isinstance(seeds, jax.core.Tracer):
        ids = np.asarray(seeds)
        outside = np.argwhere((ids < 0) | (ids > num_nodes))
        if outside.size:
            *batch, at = outside[0].tolist()
            where = f"batch {batch[0]}: " if batch else ""
            raise InputError(
                f"{where}seeds must be node ids in [0, {num_nodes}), or {num_nodes} for "
                "padding",
                f"{int(ids[(*batch, at)])} at position {at}",
                "Check where the seeds come from",
            )
    if isinstance(seeds, np.ndarray):  # a copy, as the caller may change it afterwards
        return jax.device_put(seeds.astype(np.int32))
    if not jnp.can_cast(seeds.dtype, jnp.int32):  # wide ids must not wrap into the range
        seeds = jnp.clip(seeds, 0 if seeds.dtype.kind == "u" else -1, num_nodes + 1)
    # jax.vmap of a NumPy int64 array says int32, but the array is int64 until it is copied.
    return jnp.array(seeds, jnp.int32, copy=isinstance(seeds, jax.core.Tracer))


def check_call(
    sampler: Any, graph: Graph, seeds: Any, capacity: Any, num_hops: int
) -> tuple[Seeds, Capacity]:
    """The checked arguments of a sampler's `sample`: `seeds` from `checked_seeds`, and a
    `capacity` of `num_hops` hops that fits them, by default the sampler's bound."""
    checked = checked_seeds(sampler, graph, seeds)
    batch_size = checked.nodes.shape[-2 if sampler.pairs else -1]
    if capacity is None:
        shape = GraphShape.of(graph)
        if checked.time is not None:
            shape = shape.under(batch_size)
        capacity = sampler.bound(shape, batch_size)
    return checked, check_capacity(capacity, batch_size, num_hops)


def checked_seeds(sampler: Any, graph: Graph, seeds: Any) -> Seeds:
    """`seeds`, an array of nodes or `Seeds`, as `Seeds` with the dtypes of its docstring, for a
    sampler or walker. Values are checked only if they are known while tracing. Raises
    `InputError`."""
    given = Seeds.of(seeds)
    nodes = _check_nodes(given.nodes, graph.num_nodes, sampler.pairs)
    time, excluded, kind = given.time, given.excluded, type(sampler).__name__
    check_room(sampler, graph)
    if time is not None:
        if not sampler.takes_time:
            raise InputError(
                f"seeds of {kind} must have no times, which it does not know",
                "Seeds with time",
                "Leave them out, or use Neighbors, Labor or Walk.",
            )
        if graph.edge_time is None:
            raise InputError(
                "seeds with times need a graph whose edges have times",
                "a graph without edge_time",
                "Give edge_time when you make the graph.",
            )
        if has_relations(graph) and not sampler.by_relation:
            raise InputError(
                "seeds with times need a graph whose rows are sorted by time",
                "one of several relations, sorted by relation first",
                'Give fanouts by relation, such as {"*": 10} (--fanouts "*=10"); or use Walk '
                "without latest and half_life, Metapath, or one relation.",
            )
        _check_shape("time", time, nodes.shape, "Give one cutoff a seed.")
    if excluded is not None:
        if not sampler.takes_excluded:
            raise InputError(
                f"seeds of {kind} must exclude no edges, which it does not know",
                "Seeds with excluded",
                "Leave it out, or use a sampler that has takes_excluded.",
            )
        batches = nodes.shape[: -2 if sampler.pairs else -1]
        shape = (*batches, *excluded.shape[-1:])
        _check_shape("excluded", excluded, shape, "Give one array a batch.")
        if not isinstance(excluded, jax.core.Tracer):
            _check_excluded(np.asarray(excluded), graph.num_edges)
    return Seeds(nodes, time, excluded)


def check_room(sampler: Any, graph: Graph) -> None:
    """Raises `InputError` for a graph whose rows have room, unless the sampler takes it."""
    if graph.has_room and not sampler.takes_room:
        refuse_room(repr(sampler))


def refuse_state(state: Any) -> NoReturn:
    """Raises `InputError` for a state that is none of the graph, or a text about it."""
    raise InputError(
        "the state must be what init returned for this graph",
        state if isinstance(state, str) else reprlib.repr(state),
        "Call sampler.init(graph).",
    )


def refuse_room(who: str) -> NoReturn:
    """Raises `InputError` for a graph whose rows have room."""
    raise InputError(
        f"{who} draws from graphs whose rows have no room, for what it reads is of the whole "
        "graph",
        "a live graph",
        "Take one that does not grow by live.packed(), or use a sampler that has takes_room.",
    )


def has_relations(graph: Graph) -> bool:
    """Whether rows are sorted by relation first: the graph has types of edges, and not one
    relation alone."""
    relations = () if graph.schema is None else graph.schema.relations
    return graph.edge_type is not None and len(relations) != 1


def _check_shape(name: str, array: Any, shape: tuple[int, ...], remedy: str) -> None:
    if array.shape != shape:
        raise InputError(
            f"the {name} of these seeds must have the shape {list(shape)}",
            list(array.shape),
            remedy,
        )


def _check_excluded(excluded: np.ndarray, num_edges: int) -> None:
    falls = (excluded[..., 1:] <= excluded[..., :-1]) & (excluded[..., 1:] < num_edges)
    outside = (excluded < 0) | (excluded > num_edges)
    if falls.any() or outside.any():
        wrong = excluded[..., 1:][falls] if falls.any() else excluded[outside]
        remedy = "Use numpy.unique, or jgs.sampling.edges_between."
        if (excluded[..., :1] == -1).any():
            remedy = "They did not fit: give edges_between more room, or Links more copies."
        raise InputError(
            f"excluded edges must be positions below {num_edges} that ascend without "
            f"repetition, then {num_edges} for padding",
            f"{int(wrong[0])}" + (" after one that is not less" if falls.any() else ""),
            remedy,
        )


def needs_times(sampler: Any) -> bool:
    """Whether a sampler or walker draws for seeds with times alone, because a field of its says
    how it draws under cutoffs."""
    names = ("window", "latest", "half_life", "causal")
    return any(getattr(sampler, name, None) for name in names)


def check_timed(sampler: Any, seeds: Seeds) -> None:
    """Raises `InputError` where a sampler that needs times gets `seeds` without."""
    if seeds.time is None and needs_times(sampler):
        raise InputError(
            "windows, half-lives, latest edges and causal walks are counted from the cutoffs "
            "of the seeds",
            "seeds without times",
            "Give jgs.sampling.Seeds(nodes, time).",
        )


def check_has_times(graph: Graph) -> None:
    """Raises `InputError` for a graph whose edges have no times."""
    if graph.edge_time is None:
        raise InputError(
            "draws by time need a graph whose edges have times",
            "a graph without edge_time",
            "Give edge_time when you make the graph.",
        )


def check_duration(name: str, value: Any) -> int:
    """`value`, a time, as an int of at least 1; raises `InputError`."""
    what = f"the {name.replace('_', '-')}"
    if require_int(what, value, 1) >= 2**63:
        raise InputError(f"{what} must be below 2**63", value, "None is no limit.")
    return int(value)


def check_graph(graph: Any, weighted: bool, return_edge_weights: bool = False) -> None:
    """Raises `InputError` unless `graph` is a graph with the weights that the sampler needs."""
    if not isinstance(graph, Graph):
        raise InputError(
            "the second argument must be a jgs.Graph",
            type(graph).__name__,
            "Make one with Graph.from_edges, from_scipy, from_networkx, from_npz or open.",
        )
    remedy = "Build the graph with Graph(...): its arrays keep their dtypes outside x64."
    require_array("the graph's indptr", graph.indptr, "int64 [n] or [2, n]", remedy)
    require_array("the graph's indices", graph.indices, "int32 [E]", remedy)
    for name, form in (("edge_weight", "float32 [E]"), ("edge_weight_prefix", "int64 [E]")):
        if (array := getattr(graph, name)) is not None:
            require_array(f"the graph's {name}", array, form, remedy, E=graph.num_edges)
    missing = (weighted and graph.edge_weight_prefix is None) or (
        return_edge_weights and graph.edge_weight is None
    )
    if missing:
        raise InputError(
            "weighted sampling needs a graph with edge weights",
            "a graph without",
            "Give edge_weight when you make the graph, outside jax.jit.",
        )
