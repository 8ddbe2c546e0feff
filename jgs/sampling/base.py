"""The contract that every sampler keeps; the loader, plans, ranks and commands use no more.

A sampler is a frozen dataclass of its hyper-parameters. It is hashable, so it can be a static
argument of `jax.jit`. A checkpoint stores its `repr` to identify the sampler that drew the
batches. Fields that change what is returned but not what is drawn are left out of the `repr`.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np

from jgs import kernels
from jgs.devices import computes_on_cpu
from jgs.graph import Graph, MiniBatch
from jgs.options import INT32, LONGEST, Option
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.edges.random import step_key_data
from jgs.sampling.fanouts import ByRelation

MOST_IN_TURN = 4  # batches that one program draws without a loop
State = Any  # a pytree of arrays; () if the sampler has no state

# Options that several samplers have.
_FANOUTS = Option(
    "neighbours to draw per node in each layer, seeds' hop first; -1: all, where the "
    "sampler can",
    default=(10, 10),
    name="fanouts",
    least=-1,
    most=INT32,
    never=0,
)
Fanouts = Annotated[tuple[int, ...], _FANOUTS]
BY_RELATION = _FANOUTS._replace(
    help="neighbours of a node by layer, seeds' first; -1: all; a=5,b=9: by relation"
)
FanoutsByRelation = Annotated[tuple[int | str | ByRelation, ...], BY_RELATION]
Sizes = Annotated[
    tuple[int, ...],
    Option(
        "nodes to draw per layer, seeds' hop first",
        default=(512, 512),
        name="sizes",
        least=1,
        most=INT32,
    ),
]
WINDOW = Option(
    "--temporal: draw edges of so much time before the cutoff alone",
    name="time_window",
    least=1,
    most=LONGEST,
    first=False,
)
Weighted = Annotated[
    bool, Option("draw in proportion to edge weights; evaluation leaves out edges of weight 0")
]


class Draws:
    """What samplers and walkers can do, with defaults. A class that can do more says so by an
    attribute of its own.

    Attributes:
      takes_excluded: bool; whether `Seeds.excluded` may be given: edges that are not drawn.
      takes_time: bool; whether `Seeds.time` may be given: a cutoff for each seed.
      takes_room: bool; whether it draws from graphs whose rows have room, as those of
        `jgs.graph.Live`. By default that is where it takes `excluded` or `time`.
      by_relation: bool; whether it draws from the edges of each relation by themselves, or by
        an index of them, so that seeds with times may be drawn for in a graph of several
        relations.
      pairs: bool; whether seeds are pairs of nodes, int `[B, 2]`, with `N` twice for padding. A
        loader then shuffles whole pairs, and a super-batch has `[S, B, 2]`.
      later_fields: the names of fields that the class got after checkpoints were written with
        its `repr`. They are left out of the `repr` where they have their defaults. The class is
        then a `dataclass(frozen=True, repr=False)`.
    """

    pairs: bool = False
    later_fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        def shown(field: dataclasses.Field) -> bool:
            own = getattr(self, field.name)
            return field.repr and (field.name not in self.later_fields or own != field.default)

        own: tuple[dataclasses.Field, ...] = dataclasses.fields(self)  # type: ignore[arg-type]
        texts = [f"{f.name}={getattr(self, f.name)!r}" for f in own if shown(f)]
        return f"{type(self).__name__}({', '.join(texts)})"

    @property
    def takes_excluded(self) -> bool:
        return False

    @property
    def takes_time(self) -> bool:
        return False

    @property
    def takes_room(self) -> bool:
        return self.takes_excluded or self.takes_time

    @property
    def by_relation(self) -> bool:
        return False

    @abstractmethod
    def init(self, graph: Graph) -> State:
        """The state: everything that depends on the graph alone, as a pytree; () if there is
        none. Raises `InputError` where the graph lacks what the sampler or walker needs."""


class Sampler(Draws):
    """Draws mini-batches: a pure function of (key, graph, state, seeds).

    A sampler is a subclass with `init`, `sample` and `bound`. What it can do beyond that it
    declares by the attributes below and those of `Draws`, and by its base class: `ByNode`,
    `Adaptive`.

    Attributes:
      by_node: bool; whether what a node draws at a hop depends on (key, hop, node) alone.
        Several ranks then draw together, each with its share of the seeds, what one rank draws
        with all of them. If nodes draw among their own in-edges (`ByNode`), the topology may
        also be split over the ranks.
      draws_seeds: bool; whether the sampler chooses a batch's seeds among all those of the data
        set, which it is given (`SubgraphSampler`).
      num_hops: int; the number of blocks of a batch, one for each layer of a model. None: it
        has one square block for all layers.
      node_columns: the names of the node columns that it reads (`Graph.with_node_columns`).
      relabel_inputs: bool; whether the last hop's sources get local ids.
      contextual: bool; whether a batch has `tokens` (`Context`).
    """

    draws_seeds: bool = False
    node_columns: tuple[str, ...] = ()
    relabel_inputs: bool = True
    contextual: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "update" in vars(cls) and not any(c.__name__ == "Adaptive" for c in cls.__mro__):
            raise TypeError(f"{cls.__name__} has update: name Adaptive as a base class too")

    @property
    def by_node(self) -> bool:
        return False

    @property
    def num_hops(self) -> int | None:
        return None

    def save(self, graph: Graph, state: State, folder: Path) -> None:
        """Writes what takes long to compute of a `state` that `init` returned to a new
        `folder`. By default nothing is written."""

    def restore(self, graph: Graph, folder: Path) -> State:
        """What `init` returns, with the help of what `save` wrote. A folder that does not
        exist, or that was written for another sampler or graph, is ignored."""
        return self.init(graph)

    @abstractmethod
    def sample(
        self, key: Any, graph: Graph, state: State, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        """The batch of `seeds`; jittable.

        Args:
          key: a Threefry key, typed or as its key data uint32 `[2]`, used once; or key data
            that the sampler's own `step_keys` made.
          graph: the graph; an argument of the jitted function, never a constant in it.
          state: what `init` returned for the graph; also an argument of the jitted function.
          seeds: `Seeds`, or nodes alone, int `[B]` with `N` for padding. If the sampler
            `draws_seeds`, the batch's seeds are some of these.
          capacity: static sizes. None: the sampler's `bound` for the shape of the graph. A
            sample that does not fit is empty, with `overflow` set, and `needed` as far as it is
            known.
        """

    @abstractmethod
    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        """A capacity that no sample of `batch_size` seeds exceeds. With `distinct` no seed is
        repeated within a batch.

        There is one exception. If `shape.max_degree` is None and seeds may repeat, a sampler
        whose rows are bounded by their degree alone may exceed the capacity, because each
        repetition of a seed draws again.
        """

    def step_keys(self, epoch_key_data: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The key that `sample` takes at each step of an epoch, uint32 `[n, W]`; a pure
        function.

        Args:
          epoch_key_data: uint32 `[2]`, the key of the epoch.
          steps: int `[n]`.

        By default these are `fold_in(epoch_key, 1 + step)`, and `W` is 2. A sampler whose
        batches depend on each other has other keys.
        """
        return step_key_data(epoch_key_data, steps)

    def sample_separately(
        self, key_data: jax.Array, graph: Graph, state: State, seeds: Any, capacity: Capacity
    ) -> list[MiniBatch]:
        """The batches of several steps, to be jitted.

        By default, on a CPU with kernels, up to 4 are drawn side by side, and more one after
        the other by a loop: the kernels use all threads for each. Others are drawn under
        `jax.vmap`. On a CPU that was slower than calls of one batch: LADIES by a third
        (`python -m benchmarks.superbatch --only layerwise`).

        Args:
          key_data: uint32 `[S, W]`, one key for each batch.
          seeds: `Seeds` or nodes with one more axis in front, `[S, B]`.
        """

        def one(of: Any) -> MiniBatch:
            return self.sample(of[0], graph, state, of[1], capacity)

        number, given = key_data.shape[0], (key_data, seeds)
        in_turn = kernels.available() and computes_on_cpu()
        if number == 1 or (in_turn and number <= MOST_IN_TURN):
            return [one(jax.tree.map(lambda a, i=i: a[i], given)) for i in range(number)]
        batches = jax.lax.map(one, given) if in_turn else jax.vmap(lambda *g: one(g))(*given)
        return [jax.tree.map(lambda a, i=i: a[i], batches) for i in range(number)]


class Feedback(NamedTuple):
    """What a training step tells an adaptive sampler about a batch.

    Fields, one entry for each layer, in the order of the blocks:
      messages: float32 `[S, M]`, the rows that were aggregated; rows in padding are undefined.
      gradients: float32 `[T, M]`, the gradient of the batch's mean loss with respect to each
        target's aggregated row; 0 in padding.
    """

    messages: tuple[jax.Array, ...]
    gradients: tuple[jax.Array, ...]


class Adaptive(Sampler):
    """A sampler that learns: its state changes after every training step (`Learning`)."""

    @abstractmethod
    def update(self, state: State, batch: MiniBatch, feedback: Feedback) -> State:
        """The state after a step on `batch`, of the same shapes; pure and jittable. It is not
        called for a batch that has overflowed. The update of a sampler with `node_columns`
        takes the graph too: `update(state, batch, feedback, graph)`."""


def update_of(sampler: Adaptive) -> Callable[[State, MiniBatch, Feedback, Graph], State]:
    """The `update` of an adaptive sampler as a function that always takes the graph."""
    if sampler.node_columns:
        return sampler.update  # type: ignore[return-value]
    return lambda state, batch, feedback, graph: sampler.update(state, batch, feedback)


class HopRows(NamedTuple):
    """What `T` nodes have drawn at one hop, with a capacity of `E` edges.

    Fields:
      indptr: int32 `[..., T+1]`; node `t` drew the neighbours `indptr[t]:indptr[t+1]`.
      neighbors: int32 `[..., E]` node ids, padded with `N`.
      needed: int32 `[...]`, the number of edges that is compared with the capacity. If it is
        larger than `E`, the hop has overflowed and nothing was drawn.
      types: int16 `[..., E]`, the relation of each edge, 0 in padding; None if the sampler was
        not asked for `edges=("type",)`.
      times: int64 `[..., E]`, the time of each edge, 0 in padding; None if the sampler was not
        asked for `"time"` or `"elapsed"`.
      ids: int64 `[..., E]`, the position of each edge in `Graph.indices`, `E` of the graph in
        padding; None if the sampler was not asked for `"id"`.
    """

    indptr: jax.Array
    neighbors: jax.Array
    needed: jax.Array
    types: jax.Array | None = None
    times: jax.Array | None = None
    ids: jax.Array | None = None


class ByNode(Sampler):
    """A sampler whose hops can be drawn by any rank that has the nodes' in-edges.

    Attributes:
      num_hops: int; `L`.
      edge_ids, edge_weights: bool; whether the blocks carry `edge_id` and `edge_weight`.
      edges: the names of the columns of edges that the blocks carry.
    """

    edge_ids: bool
    edge_weights: bool
    edges: tuple[str, ...] = ()

    @property
    @abstractmethod
    def num_hops(self) -> int: ...

    @abstractmethod
    def draw_hop(
        self,
        key_data: jax.Array,
        graph: Graph,
        nodes: jax.Array,
        hop: int,
        num_edges: int,
        excluded: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> HopRows:
        """What each of the `nodes` draws at `hop`, in at most `num_edges` edges. Traced under
        x64.

        Args:
          key_data: uint32 `[..., 2]`, the key's data; or `[..., W]`, made by the sampler's own
            `step_keys`.
          nodes: int32 `[..., T]`, with `N` for padding.
          excluded: as in `Seeds`, int64 `[X]`, of all batches; None, or for a sampler that has
            `takes_excluded`.
          time: int64 `[..., T]`, the cutoff of each node; None, or for a sampler that has
            `takes_time`.
        """

    @abstractmethod
    def expected_draws(self, hop: int, degree: np.ndarray) -> np.ndarray:
        """The expected number of neighbours that a node of each `degree` draws at `hop`."""
