"""Items: what a loader goes through in an epoch; and stages, which make seeds of them.

Items are a pytree of arrays `[n, ...]`, a row an item: node ids, or edges with their ends,
times and labels. A stage is a function `stage(key, graph, items)` that returns `Seeds`, or
nodes, or a pair of these and the items to come back as `batch.items`. It is pure and runs in
the same program as the sampler. Several stages are composed: each takes what the one before
returned.

Times and positions of edges are 64-bit, so the program with a stage is called under
`jax.enable_x64` (`wide`). Within it alone `jax.random` would be lowered without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.random import fold
from jgs.sampling.seeds import Seeds

# stage(key, graph, items): see above. The key is a typed Threefry key.
Stage = Callable[[jax.Array, Graph, Any], Any]
_STAGES = 2**32 - 1  # a step's key folded with this less `i` is the key of stage `i`


class Asked(NamedTuple):
    """What a stage makes the seeds of a batch of.

    Fields:
      items: the rows `[B, ...]` of the batch, or of a rank's share of it.
      every: the rows of the whole batch, of all ranks together. Their `Seeds.excluded` are
        those of the batch, so that N ranks leave out what one rank does.
      key_data: uint32 `[2]`, the key of the step.
    """

    items: Any
    every: Any
    key_data: Any


def check_items(items: Any, num_nodes: int, pairs: bool, staged: bool) -> Any:
    """The items of a loader as a pytree of NumPy arrays of its own, `[n, ...]`. Raises
    `InputError`.

    Without a stage they are node ids, pairs of ids with `pairs`, `Seeds`, or a mapping with
    `nodes` and perhaps `time`.
    """
    if isinstance(items, Seeds):
        if items.excluded is not None:
            raise InputError(
                "the edges to leave out must be named for each batch",
                "Seeds with excluded as the items of a loader",
                "Make them in a stage: Loader(..., before=stage).",
            )
        items = {"nodes": items.nodes, "time": items.time}
    if staged:
        return _rows(items)
    if not isinstance(items, Mapping):
        return check_seed_ids(items, num_nodes, pairs)
    named = {name: each for name, each in items.items() if each is not None}
    if "nodes" not in named:
        raise InputError(
            "a loader needs the nodes of its seeds, or a stage that makes seeds of items",
            f"items {', '.join(map(str, named))} and no stage",
            "Give Loader(..., before=stage), or call the column of ids nodes.",
        )
    return _rows(named | {"nodes": check_seed_ids(named["nodes"], num_nodes, pairs)})


def _rows(items: Any) -> Any:
    found = jax.tree.map(lambda leaf: np.array(leaf), items)
    leaves = jax.tree.leaves(found)
    shapes = sorted({leaf.shape[:1] for leaf in leaves})
    numbers = all(leaf.dtype.kind in "biuf" for leaf in leaves)
    if not numbers or len(shapes) != 1 or shapes[0] in ((), (0,)):
        raise InputError(
            "items must be arrays of numbers with one row for each item, and at least one item",
            ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in leaves) or "nothing",
            "Give arrays of one length.",
        )
    return jax.tree.map(_narrow, found)


def _narrow(array: np.ndarray) -> np.ndarray:
    """64-bit integers as int32 where they fit, as JAX has them outside x64."""
    limit = np.iinfo(np.int32)
    wide_integers = array.dtype.kind in "iu" and array.dtype.itemsize == 8
    if wide_integers and limit.min <= array.min() and array.max() < limit.max:
        return array.astype(np.int32)
    return array


def num_items(items: Any) -> int:
    """The number of rows."""
    return len(jax.tree.leaves(items)[0])


def padding_of(array: np.ndarray, num_nodes: int) -> int:
    """What stands in rows of padding: `N` in int32 and int64, as for nodes; else 0."""
    return num_nodes if array.dtype in (np.int32, np.int64) else 0


def default_seeds(items: Any) -> Any:
    """The seeds of items that need no stage."""
    if not isinstance(items, Mapping):
        return items
    return Seeds(items["nodes"], items.get("time"))


def seeds_of(stages: Sequence[Stage], graph: Graph, asked: Asked) -> tuple[Seeds, Any]:
    """The seeds that the stages make, and the items that come back with the batch."""

    def made(items: Any) -> tuple[Seeds, Any]:
        value = items
        for i, stage in enumerate(stages):
            key = jax.random.wrap_key_data(
                fold(asked.key_data, _STAGES - i), impl="threefry2x32"
            )
            value = stage(key, graph, value)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            seeds, items = value
        else:
            seeds = value
        if not isinstance(seeds, Seeds | jax.Array | np.ndarray):
            raise InputError(
                "a stage must return Seeds, or an array of nodes",
                type(seeds).__name__,
                "Return jgs.sampling.Seeds(nodes, time, excluded).",
            )
        return Seeds.of(seeds), items

    seeds, items = made(asked.items)
    if seeds.excluded is not None and asked.every is not asked.items:
        seeds = seeds.replace(excluded=made(asked.every)[0].excluded)
    return seeds, items


def wide(stages: Sequence[Stage]) -> AbstractContextManager[None]:
    """The block in which a program with these stages is called."""
    return jax.enable_x64(True) if stages else contextlib.nullcontext()


def num_seeds_of(
    stages: Sequence[Stage], graph: Graph, items: Any, batch_size: int
) -> tuple[int, bool]:
    """The number of seeds that the stages make of a batch of items, and whether the seeds have
    times. Raises `InputError`."""

    def some(array: np.ndarray) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((batch_size, *array.shape[1:]), array.dtype)

    def make(graph: Graph, items: Any, key_data: jax.Array) -> Seeds:
        return seeds_of(stages, graph, Asked(items, items, key_data))[0]

    with wide(stages):
        key_data = jax.ShapeDtypeStruct((2,), jnp.uint32)
        seeds = jax.eval_shape(make, graph, jax.tree.map(some, items), key_data)
    nodes = seeds.nodes
    if not nodes.shape or not jnp.issubdtype(nodes.dtype, jnp.integer):
        raise InputError(
            "a stage must return Seeds, or an array of nodes",
            f"{nodes.dtype}{list(nodes.shape)}",
            "Return jgs.sampling.Seeds(nodes, time, excluded).",
        )
    return nodes.shape[0], seeds.time is not None


def check_stages(stages: Any) -> tuple[Stage, ...]:
    """A stage, or a sequence of them, or None, as a tuple; raises `InputError`."""
    return check_functions(stages, "a stage must be a function of (key, graph, items)")


def check_functions(functions: Any, rule: str = "after must be functions") -> tuple[Any, ...]:
    """A function, or a sequence of them, or None, as a tuple; raises `InputError`."""
    if functions is None:
        return ()
    found = tuple(functions) if isinstance(functions, list | tuple) else (functions,)
    for each in found:
        if not callable(each):
            raise InputError(rule, repr(each), "Give one, or several in a list.")
    return found


def name_of(stage: Any) -> str:
    """A text that is equal for equal stages, in any process: the `repr` of an object, the name
    of a function."""
    if isinstance(stage, partial):
        return f"partial({name_of(stage.func)}, {stage.args!r}, {stage.keywords!r})"
    if hasattr(stage, "__qualname__"):
        return f"{stage.__module__}.{stage.__qualname__}"
    return repr(stage)
