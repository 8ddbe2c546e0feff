"""The contract of a way to fill contexts: which nodes a seed's context has, and their order."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import jax

from jgs.graph import Graph
from jgs.sampling.base import Draws, State
from jgs.sampling.seeds import Seeds


class Found(NamedTuple):
    """The nodes of `B` contexts, at most `T` each. No node is twice in a context.

    Fields:
      nodes: int32 `[B, T]`; the seed first, the others in the order of the way, then `N` for
        padding. All are `N` for a seed that is padding.
      hop: int32 `[B, T]`; the number of edges from the seed along which a node was reached; 0
        in padding.
      parent: int32 `[B, T]`; the node from which it was reached, `N` for the seed and in
        padding. It need not be in the context.
      edge: int64 `[B, T]`; the position in `Graph.indices` of the edge along which it was
        reached; `E` for the seed and in padding.
    """

    nodes: jax.Array
    hop: jax.Array
    parent: jax.Array
    edge: jax.Array


class Way(Draws):
    """A way to fill contexts: a frozen dataclass of its hyper-parameters, as a `Sampler` is.

    What it finds for a seed depends on (key, graph, seed, cutoff, excluded) alone: not on the
    other seeds, their order, or the number of threads. A context of `T` begins with that of a
    smaller `T`. Under a cutoff it goes along edges before the cutoff alone, as if the graph had
    no others.

    Attributes:
      by_node: bool; as of a `Sampler`.
    """

    by_node: bool = True

    @abstractmethod
    def init(self, graph: Graph) -> State: ...

    @abstractmethod
    def find(
        self, key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, size: int
    ) -> Found:
        """The contexts of `seeds` `[B]` of at most `size` tokens each. Traced under x64.

        Args:
          key_data: uint32 `[2]`.
          state: what `init` returned for the graph.
          seeds: checked by `jgs.sampling.checks.checked_seeds`.
        """

    def check_state(self, graph: Graph, state: Any) -> None:
        """Raises `InputError` unless `state` may be what `init` returned for the graph."""
