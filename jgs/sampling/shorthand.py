"""`sample_neighbors`: `Neighbors` in one call. A tuple of fanouts stands for
`Neighbors(fanouts)` wherever a sampler is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape

_CONTRACT = ("by_node", "init", "sample", "bound")
_ABILITIES = ("update", "draw_hop", "pairs", "draws_seeds", "node_columns", "step_keys")


class NeighborOptions(TypedDict, total=False):
    """The options of `sample_neighbors`: fields of `Neighbors`, of which `edge_ids` and
    `edge_weights` are called `return_edge_ids` and `return_edge_weights`."""

    replace: bool
    weighted: bool
    return_edge_ids: bool
    return_edge_weights: bool
    relabel_inputs: bool
    window: int | None
    latest: bool
    edges: tuple[str, ...]


def sample_neighbors(
    key: Any,
    graph: Graph,
    seeds: Any,
    fanouts: Sequence[int],
    capacity: Capacity | None = None,
    **options: Unpack[NeighborOptions],
) -> MiniBatch:
    """Sample the in-neighbourhood of `seeds`, hop by hop, as message-passing blocks:
    `Neighbors` in one call.

    At hop `h` every node known so far (the seeds and all neighbours drawn before) draws
    `fanouts[h]` of its in-neighbours. What node `v` draws at hop `h` depends on `(key, h, v)`
    alone: not on the other seeds, their order, the padding, the device or the number of
    threads. The function is jittable; `fanouts` and what comes after it is static.

    Args:
      key: a Threefry key (`jax.random.key(0)`), used once. For several batches an array of as
        many keys (`jax.random.split(key, S)`).
      graph: the graph, of `N` nodes. Under `jax.jit` pass it as an argument, do not close over
        it.
      seeds: `Seeds`, or integer `[B]` node ids, `B >= 1`. `N` marks padding, at any position:
        it draws nothing. Each repetition of a seed has a row of its own, with an equal sample;
        edges from the seed name its first row. `[S, B]` are S batches (gSampler, SOSP 2023,
        super-batches), drawn in one call, each separately.
      fanouts: as in `Neighbors`.
      capacity: static sizes, from `plan_capacity`. None takes the worst case, which is large. A
        sample that does not fit comes back empty with `overflow` set.
      options: fields of `Neighbors`: `replace`, `weighted`, `relabel_inputs`, `window`,
        `latest` and `edges`; `return_edge_ids` and `return_edge_weights` are its `edge_ids` and
        `edge_weights`.

    Returns:
      A `MiniBatch` of `len(fanouts)` blocks, the hop of the seeds last. For S batches all its
      arrays have a leading axis S, and each batch has the bits of a call with its own key and
      seeds.

    Raises:
      InputError: for arguments that break these rules. Seeds out of range are noticed where
        their values are known. Under `jax.jit` on a CPU the kernel fails with the same message
        (a `jax.errors.JaxRuntimeError`; a `ValueError` if the program's first call was right).
        The plain form, which cannot fail, returns an empty batch with `overflow` set and with
        -1 for `needed`.
    """
    return as_sampler(fanouts, **options).sample(key, graph, (), seeds, capacity)


def as_sampler(sampler: Any = None, **options: Any) -> Sampler:
    """`sampler` itself, or for a tuple of fanouts `Neighbors` with the `options` of
    `sample_neighbors`. Raises `InputError`."""
    if "fanouts" in options:
        if sampler is not None:
            raise TypeError("give a sampler or fanouts, not both")
        sampler = options.pop("fanouts")
    if unknown := sorted({*options} - {*NeighborOptions.__annotations__}):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    if not isinstance(sampler, Sampler | type) and all(hasattr(sampler, n) for n in _CONTRACT):
        sampler = Adopted(sampler)
    if isinstance(sampler, Sampler):
        if options:
            raise InputError(
                "the options of neighbour sampling go with a tuple of fanouts",
                f"{', '.join(sorted(options))} beside {sampler!r}",
                "Give them to the sampler itself.",
            )
        return sampler
    if not isinstance(sampler, str | Sequence | np.ndarray) and hasattr(sampler, "sample"):
        missing = [name for name in _CONTRACT if not hasattr(sampler, name)]
        raise InputError(
            "a sampler must be an instance with by_node, init, sample and bound",
            f"{sampler!r}" + (f" without {', '.join(missing)}" if missing else ""),
            "Make its class a subclass of jgs.sampling.Sampler.",
        )
    given: dict[str, Any] = {name.removeprefix("return_"): v for name, v in options.items()}
    return Neighbors(sampler, **given)


@dataclass(frozen=True, repr=False)
class Adopted(Sampler):
    """A sampler of a class that has `by_node`, `init`, `sample` and `bound`, and is no subclass
    of `Sampler`. It can do nothing else: a subclass declares what it can."""

    own: Any

    def __post_init__(self) -> None:
        if more := [name for name in _ABILITIES if hasattr(self.own, name)]:
            raise InputError(
                f"a sampler with {more[0]} must be of a subclass of jgs.sampling.Sampler, "
                "Adaptive or ByNode",
                repr(self.own),
                "Name that class as its base class.",
            )

    def __repr__(self) -> str:
        return repr(self.own)

    @property
    def by_node(self) -> bool:
        return self.own.by_node

    def init(self, graph: Graph) -> State:
        return self.own.init(graph)

    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        return self.own.sample(key, graph, state, seeds, capacity)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        return self.own.bound(shape, batch_size, distinct)
