"""`Frontier`: the subgraph of the nodes that a frontier of walkers visits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import is_real
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.kernels.call import call, vary_alike, where_it_is
from jgs.options import INT32, Option
from jgs.sampling.algorithms.saint import distinct_nodes
from jgs.sampling.capacity import GraphShape
from jgs.sampling.checks import require_int
from jgs.sampling.edges.random import below, node_bits
from jgs.sampling.seeds import Seeds
from jgs.sampling.subgraphs import BUDGET, SubgraphSampler
from jgs.sampling.walks import drawn_neighbor, eligible_of

UNITS = 1024  # `enlargement` is a multiple of 1 / UNITS
ATTEMPTS = 8  # the entries that a pop looks at before it cleans the table
# The second counter of random bits. The first counter is named beside it.
_INITIAL = 0  # slot: the node with which a slot of the frontier begins
_SUCCESSOR = 1  # entrance: the neighbour that replaces the node which entered then
_POP = 2  # pop: the entry that its first attempt looks at; later attempts have the next numbers


@dataclass(frozen=True)
class Frontier(SubgraphSampler):
    """Frontier sampling (Zeng et al., "Accurate, Efficient and Scalable Graph Embedding", IPDPS
    2019, Algorithm 2), a random walk with many walkers at a time.

    The frontier begins with `m` nodes, each uniform among all nodes, repetitions included. Then
    `budget - m` times one of its nodes is popped, in proportion to its capped degree, and one
    of that node's neighbours, chosen uniformly, takes its place. The subgraph's nodes are those
    of the first frontier and the popped ones, each once: at most `budget`. A node's degree is
    the length of its row, and its neighbours are its in-neighbours. A node without neighbours
    is never popped; sampling ends early when the frontier has no others. `m` may exceed the
    number of nodes.

    The Dashboard (Algorithms 3 and 4) finds the node to pop. It is a table in which each node
    of the frontier owns a range of as many entries as its capped degree. A pop looks at
    uniformly drawn entries until one has an owner, and pops the owner. The owner's entries are
    dead from then on, and its successor's are appended. A cleanup closes all gaps. It precedes
    a pop if the table is longer than `enlargement` times its live entries. Within a pop it
    comes after 8 dead entries; the next entry then has an owner, so no pop takes long.

    Fields:
      m: int; the size of the frontier, from 1 to `budget`.
      budget: int; the largest number of nodes in a subgraph.
      enlargement: float, at least 1, in steps of 1/1024. It decides when the table is cleaned
        up. Another value gives another subgraph for the same key, from the same distribution.
      degree_cap: int; a node with more neighbours is popped as if it had this number (section
        VI-C2). Otherwise the hubs of a skewed graph would be in every subgraph.

    Random bits are functions of (key, slot of the frontier) for the first nodes, of (key, pop,
    attempt) for the pops, and of (key, entrance into the frontier) for a node's successor.

    Raises `InputError` for fields out of range, for a table that may have 2**31 entries
    (`m * degree_cap * enlargement`), and for a graph without nodes.
    """

    m: Annotated[
        int,
        Option(
            "the number of nodes the frontier starts from",
            name="frontier_size",
            least=1,
            most=INT32,
        ),
    ] = 1000
    budget: Annotated[int, BUDGET] = 8000
    enlargement: float = 2.0
    degree_cap: Annotated[
        int,
        Option(
            "nodes of more neighbours are popped as if they had so many", least=1, most=INT32
        ),
    ] = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("m", "budget", "degree_cap"):
            object.__setattr__(self, name, require_int(name, getattr(self, name), 1))
        if self.budget < self.m or self.budget >= 2**31:
            raise InputError(
                "budget must be at least m, and below 2**31",
                f"budget={self.budget}, m={self.m}",
                "Raise the budget, or lower m (--frontier-size).",
            )
        large = self.enlargement
        if not is_real(large) or not large >= 1:
            raise InputError("enlargement must be at least 1", repr(large), "Give e.g. 2.")
        most = (self.m + 1) * self.degree_cap * float(large)
        if not math.isfinite(most) or most >= 2**31:
            raise InputError(
                "m * degree_cap * enlargement must be below 2**31",
                f"{self.m} * {self.degree_cap} * {large}",
                "Lower the degree cap.",
            )
        object.__setattr__(self, "enlargement", round(float(large) * UNITS) / UNITS)

    def node_state(self, graph: Graph) -> tuple[()]:
        if graph.num_nodes == 0:
            raise InputError("a frontier needs a graph with nodes", "none", "Add some.")
        return ()

    def most_nodes(self, shape: GraphShape) -> int:
        return min(self.budget, shape.num_nodes)

    def draw_nodes(
        self, key_data: jax.Array, graph: Graph, state: Any, room: int
    ) -> tuple[jax.Array, jax.Array]:
        ways = (partial(draw, sampler=self, room=room) for draw in (draw_kernel, draw_plain))
        return where_it_is(*ways, key_data, graph)


def draw_kernel(
    key_data: jax.Array, graph: Graph, sampler: Frontier, room: int
) -> tuple[jax.Array, jax.Array]:
    """The result of `draw_plain`, by jgs/kernels/frontier.cc."""
    num = key_data.shape[0]
    nodes, count = call(
        "jgs_frontier",
        [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((num, room), (num,))],
        (key_data, graph.indptr, graph.indices),
        kernels.NUM_THREADS,
        size=np.int64(sampler.m),
        pops=np.int64(sampler.budget - sampler.m),
        degree_cap=np.int64(sampler.degree_cap),
        enlargement=np.float64(sampler.enlargement),
    )
    return nodes, count


class _Board(NamedTuple):
    """The frontier, and the index of its table. The table itself is not stored: entry `e`
    belongs to the slot with `start <= e < start + degree`, and is dead if there is none.
    `node`, `successor` int32, `start` and `degree` int64 are `[m]`; a node without neighbours
    has the successor `N`. `used` is the length of the table, `pop` the number of the next pop,
    and `popped` int32 `[budget - m]` has the popped nodes."""

    node: jax.Array
    successor: jax.Array
    start: jax.Array
    degree: jax.Array
    used: jax.Array
    pop: jax.Array
    popped: jax.Array


def draw_plain(
    key_data: jax.Array, graph: Graph, sampler: Frontier, room: int
) -> tuple[jax.Array, jax.Array]:
    """See `SubgraphSampler.draw_nodes`."""
    drawn = jax.vmap(lambda key: _draw(key, graph, sampler))(key_data)
    return distinct_nodes(drawn, room, graph.num_nodes)


def _draw(key_data: jax.Array, graph: Graph, sampler: Frontier) -> jax.Array:
    """int32 `[budget]`: the first frontier's nodes and the popped ones, padded with `N`."""
    slot = jnp.arange(sampler.m, dtype=jnp.int32)
    size = jnp.full(sampler.m, graph.num_nodes, jnp.int64)
    first = below(node_bits(key_data, slot, _INITIAL), size).astype(jnp.int32)
    successor, degree = _entered(key_data, graph, sampler, first, slot)
    nobody = jnp.full(sampler.budget - sampler.m, graph.num_nodes, jnp.int32)
    start, used = _clean(degree)
    board = _Board(first, successor, start, degree, used, jnp.int32(0), nobody)

    def goes_on(board: _Board) -> jax.Array:
        return (board.pop < nobody.shape[0]) & jnp.any(board.degree > 0)

    if sampler.budget > sampler.m:
        board = vary_alike(board, key_data, graph)[0]
        board = jax.lax.while_loop(goes_on, partial(_pop, key_data, graph, sampler), board)
    return jnp.concatenate([first, board.popped])


def _entered(
    key_data: jax.Array, graph: Graph, sampler: Frontier, node: jax.Array, entrance: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The successors, int32 `[n]`, and the capped degrees, int64 `[n]`, of nodes that enter."""
    rows = eligible_of(graph, node, Seeds(node))
    bits = node_bits(key_data, entrance, _SUCCESSOR)
    successor = drawn_neighbor(graph, rows, bits, weighted=False)
    return successor, jnp.minimum(rows.num, sampler.degree_cap)


def _clean(degree: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`start` and `used` of a table without gaps, in the order of the slots."""
    ends = jnp.cumsum(degree)
    return ends - degree, ends[-1]


def _owners(start: jax.Array, degree: jax.Array, entry: jax.Array) -> jax.Array:
    """bool `[n, m]`: whether each slot owns each entry."""
    entry = entry[:, None]
    return (start <= entry) & (entry < start + degree)


def _pop(key_data: jax.Array, graph: Graph, sampler: Frontier, board: _Board) -> _Board:
    degree, (clean, live) = board.degree, _clean(board.degree)
    number = jnp.full(ATTEMPTS + 1, board.pop)
    bits = node_bits(key_data, number, _POP + jnp.arange(ATTEMPTS + 1, dtype=jnp.uint32))

    full = board.used * UNITS > round(sampler.enlargement * UNITS) * live
    start, used = jnp.where(full, clean, board.start), jnp.where(full, live, board.used)
    looked_at = _owners(start, degree, below(bits[:-1], used))
    alive = jnp.any(looked_at, axis=1)
    found = jnp.any(alive)
    (at_last,) = _owners(clean, degree, below(bits[-1:], live))
    start, used = jnp.where(found, start, clean), jnp.where(found, used, live)
    # The first that is True. (Lowering jnp.argmax loses x64.)
    owner = jnp.where(found, looked_at[jax.lax.argmax(alive, 0, jnp.int32)], at_last)
    slot = jax.lax.argmax(owner, 0, jnp.int32)

    node = board.successor[slot]
    (successor,), (own_degree,) = _entered(
        key_data, graph, sampler, node[None], number[:1] + sampler.m
    )
    return _Board(
        board.node.at[slot].set(node),
        board.successor.at[slot].set(successor),
        start.at[slot].set(used),
        degree.at[slot].set(own_degree),
        used + own_degree,
        board.pop + 1,
        board.popped.at[board.pop].set(board.node[slot]),
    )
