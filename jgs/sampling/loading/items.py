"""Items: what a loader goes through in an epoch; and stages, which make seeds of them.

`Loader` says what both are. Times and positions of edges are 64-bit, so the program with a
stage is called under `jax.enable_x64` (`wide`). Within it alone `jax.random` would be lowered
without.
"""

from __future__ import annotations

import contextlib
import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import described, require_array
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.sampling.base import Sampler
from jgs.sampling.checks import check_seed_ids
from jgs.sampling.edges.random import fold
from jgs.sampling.seeds import Seeds

# stage(key, graph, items): see `Loader`. The key is a typed Threefry key.
Stage = Callable[[jax.Array, Graph, Any], Any]
_STAGES = 2**32 - 1  # a step's key folded with this less `i` is the key of stage `i`


@runtime_checkable
class PreparedStage(Protocol):
    """A stage that reads arrays which it makes of the graph beforehand, such as sums of
    degrees. `prepare(graph)` returns the graph with them, as node columns. Loaders call it."""

    def prepare(self, graph: Graph) -> Graph: ...


# The out-degrees and the in-degrees of all nodes, int `[N]` each.
Degrees = Callable[[], tuple[np.ndarray, np.ndarray]]


@runtime_checkable
class SplitStage(PreparedStage, Protocol):
    """A stage that can also be prepared where the topology is split over ranks.
    `prepare_split(graph, degrees)` returns what `prepare` does, for a graph that has the
    in-edges of one rank's nodes alone. All ranks call it, and it calls `degrees` on all of them
    or on none. It raises `InputError` where the stage reads other nodes' edges."""

    def prepare_split(self, graph: Graph, degrees: Degrees) -> Graph: ...


def prepared(stages: Sequence[Stage], graph: Graph, degrees: Degrees | None = None) -> Graph:
    """The graph with what the stages read. With `degrees` it has the in-edges of one rank's
    nodes, see `SplitStage`; raises `InputError`."""
    for stage in stages:
        if degrees is not None and isinstance(stage, SplitStage):
            graph = stage.prepare_split(graph, degrees)
        elif degrees is None and isinstance(stage, PreparedStage):
            graph = stage.prepare(graph)
        elif isinstance(stage, PreparedStage):
            raise InputError(
                "a stage with prepare must have prepare_split too, where ranks split the "
                "topology",
                name_of(stage),
                'Add it (jgs.sampling.loading.items.SplitStage), or use mode="hybrid".',
            )
    return graph


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
    def is_column(node: Any) -> bool:  # a list of numbers, not one of arrays
        return isinstance(node, list) and bool(node) and isinstance(node[0], int | float | str)

    found = jax.tree.map(np.array, items, is_leaf=is_column)
    leaves = jax.tree.leaves(found)
    remedy = "Number the values, e.g. by numpy.unique(values, return_inverse=True)."
    for leaf in leaves:
        require_array("items", leaf, "numbers [...]", remedy)
    shapes = sorted({leaf.shape[:1] for leaf in leaves})
    if len(shapes) != 1 or shapes[0] in ((), (0,)):
        raise InputError(
            "items must be arrays with one row for each item, and at least one item",
            ", ".join(map(described, leaves[:9])) or "nothing",
            "Give arrays of one length.",
        )
    return jax.tree.map(_narrow, found)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Integers of 16 bits and more as int32 where they fit, so that padding is known by `N`."""
    limit = np.iinfo(np.int32)
    integers = array.dtype.kind in "iu" and array.dtype.itemsize > 1
    if integers and limit.min <= array.min() and array.max() < limit.max:
        return array.astype(np.int32)
    return array


def num_items(items: Any) -> int:
    """The number of rows."""
    return len(jax.tree.leaves(items)[0])


def padding_of(array: np.ndarray, num_nodes: int) -> int:
    """What stands in rows of padding: `N` in int32 and int64, as for nodes; else 0."""
    return num_nodes if array.dtype in (np.int32, np.int64) else 0


def seeds_of(stages: Sequence[Stage], graph: Graph, asked: Any) -> tuple[Any, Any]:
    """The seeds of a batch, and the items that come back with it.

    `asked` is an `Asked` of which the stages make seeds. Without stages it is the items; then
    ids and pairs are the seeds themselves, and None comes back.
    """
    if not stages:
        named = isinstance(asked, Mapping)
        return (Seeds(asked["nodes"], asked.get("time")), asked) if named else (asked, None)

    def made(items: Any) -> tuple[Seeds, Any]:
        seeds: Any = items
        for i, stage in enumerate(stages):
            key_data = fold(asked.key_data, _STAGES - i)
            seeds = stage(jax.random.wrap_key_data(key_data, impl="threefry2x32"), graph, seeds)
        if isinstance(seeds, tuple) and not hasattr(seeds, "_fields") and len(seeds) == 2:
            seeds, items = seeds
        if not isinstance(seeds, Seeds | jax.Array | np.ndarray):
            several = f" of {len(seeds)}" if isinstance(seeds, tuple) else ""
            raise InputError(
                "a stage must return Seeds, or an array of nodes, or a pair of these and items",
                f"{type(seeds).__name__}{several}",
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
    remedy = "Return jgs.sampling.Seeds(nodes, time, excluded)."
    require_array("nodes that a stage returns", nodes, "integers [n, ...]", remedy)
    return nodes.shape[0], seeds.time is not None


def check_stages(stages: Any) -> tuple[Stage, ...]:
    """A stage, or a sequence of them, or None, as a tuple; raises `InputError`."""
    found = check_functions(stages, "a stage must be a function of (key, graph, items)")
    for stage in found:
        name_of(stage)  # by which a loader's state knows it
    return found


def check_asked(
    items: Any, before: Any, samplers: Sequence[Sampler], num_nodes: int
) -> tuple[Any, tuple[Stage, ...]]:
    """The items and the stages of a loader with these samplers; raises `InputError`."""
    stages = check_stages(before)
    items = check_items(items, num_nodes, samplers[0].pairs, bool(stages))
    own = [sampler for sampler in samplers if sampler.draws_seeds]
    if own and (stages or not isinstance(items, np.ndarray)):
        raise InputError(
            "a sampler that draws its seeds takes node ids alone",
            f"{own[0]!r} with {'a stage' if stages else 'named items'}",
            "Give an array of ids and no stage, or choose another sampler.",
        )
    return items, stages


def check_functions(functions: Any, rule: str = "after must be functions") -> tuple[Any, ...]:
    """A function, or a sequence of them, or None, as a tuple; raises `InputError`."""
    if functions is None:
        return ()
    found = tuple(functions) if isinstance(functions, list | tuple) else (functions,)
    for each in found:
        if not callable(each):
            raise InputError(rule, repr(each), "Give one, or several in a list.")
    return found


def name_of(value: Any, inside: tuple[Any, ...] = ()) -> str:
    """A text that is equal for equal stages, in any process: the `repr` of an object, the name
    of a function with its defaults and what it has enclosed. `inside` are the values that this
    one is a part of. Raises `InputError` for an object without a `repr`."""

    def named(part: Any) -> str:
        if any(part is outer for outer in inside):  # a function that encloses itself
            return "..."
        return name_of(part, (*inside, value))

    if isinstance(value, partial):
        given = [*map(named, (value.func, *value.args))]
        given += [f"{name}={named(v)}" for name, v in value.keywords.items()]
        return f"partial({', '.join(given)})"
    if inspect.ismethod(value):
        return f"{named(value.__self__)}.{value.__name__}"
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer):
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        array = np.ascontiguousarray(jax.device_get(value))
        return f"{array.dtype}{list(array.shape)}{zlib.crc32(array.tobytes())}"
    if hasattr(value, "__qualname__"):
        value = inspect.unwrap(value)  # what jax.jit was given
        held = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        held += getattr(value, "__defaults__", None) or ()
        held += (getattr(value, "__kwdefaults__", None) or {}).values()
        return f"{value.__module__}.{value.__qualname__}({', '.join(map(named, held))})"
    if type(value).__repr__ is object.__repr__:
        raise InputError(
            "a stage, and what it holds, must have a repr: a loader's state knows it by that",
            f"an object of {type(value).__qualname__}",
            "Make its class a frozen dataclass, or give it a __repr__.",
        )
    return repr(value)
