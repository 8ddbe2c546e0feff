"""A tuple of fanouts stands for `Neighbors(fanouts)` wherever a sampler is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Graph, MiniBatch
from jgs.sampling.algorithms.nodewise.neighbors import Neighbors
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape

_CONTRACT = ("by_node", "init", "sample", "bound")
_ABILITIES = ("update", "draw_hop", "pairs", "draws_seeds", "node_columns", "step_keys")
# Each option of `sample_neighbors`, and the field of `Neighbors` that it sets.
_OPTIONS = {
    "replace": "replace",
    "weighted": "weighted",
    "return_edge_ids": "edge_ids",
    "return_edge_weights": "edge_weights",
    "relabel_inputs": "relabel_inputs",
    "window": "window",
    "latest": "latest",
    "edges": "edges",
}


def as_sampler(sampler: Any = None, **options: Any) -> Sampler:
    """`sampler` itself, or for a tuple of fanouts `Neighbors` with the `options` of
    `sample_neighbors`. Raises `InputError`."""
    if "fanouts" in options:
        if sampler is not None:
            raise TypeError("give a sampler or fanouts, not both")
        sampler = options.pop("fanouts")
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
    if not isinstance(sampler, Sampler | type) and all(hasattr(sampler, n) for n in _CONTRACT):
        sampler = Plain(sampler)
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
    given: dict[str, Any] = {_OPTIONS[name]: v for name, v in options.items()}
    return Neighbors(sampler, **given)


@dataclass(frozen=True, repr=False)
class Plain(Sampler):
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
