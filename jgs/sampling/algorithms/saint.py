"""Nodes with all edges among them. `Saint`: GraphSAINT's node, edge and random-walk samplers.
`Subgraph`: the seeds and uniformly drawn nodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.errors import InputError, check_choice
from jgs.graph import Graph, MiniBatch, as_device
from jgs.graph.rows import neighbor_counts, row_chunks, row_of_edges, without_room
from jgs.options import INT32, Option
from jgs.sampling.algorithms.walk import Walk
from jgs.sampling.base import State
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import require_int
from jgs.sampling.edges.eligible import find, rows_of
from jgs.sampling.edges.hops import bad_seeds
from jgs.sampling.edges.random import below, fold, node_bits
from jgs.sampling.edges.slots import relabel
from jgs.sampling.matrix.edge_arrays import distinct
from jgs.sampling.seeds import Seeds
from jgs.sampling.subgraphs import BUDGET, NORM_ERROR, SquareSampler, SubgraphSampler

MODES = ("node", "degree", "edge", "walk")
_RUN = 64  # edges for which one prefix sum is stored
_PART = _RUN << 16  # edges handled at once, to bound the temporaries


@dataclass(frozen=True)
class Saint(SubgraphSampler):
    """The graph that drawn nodes induce (Zeng et al., "GraphSAINT: Graph Sampling Based
    Inductive Learning Method", ICLR 2020, section 3.4 and Algorithm 2).

    All draws are independent, with replacement, and decided in integers, so that every node and
    edge can be drawn, also the last one. Draw number `i` depends on (key, `i`) alone.

    Fields:
      mode: how the nodes are drawn. `d(v)` is an in-degree and `o(u)` an out-degree.
        "node": `budget` nodes, `u` in proportion to the squared norm of its column in the
          normalised adjacency `D^-1 A`: the sum of `1 / d(v)**2` over the edges `u -> v`. Each
          parallel edge counts.
        "degree": `budget` nodes in proportion to `d(u)`. The authors' program and DGL's
          `SAINTSampler` draw this way where the paper has "node".
        "edge": `budget` edges, `u -> v` in proportion to `1 / d(v) + 1 / o(u)`. The nodes are
          the ends of all of them. On a symmetric graph, which has every edge in both
          directions, that is the paper's `1 / deg(u) + 1 / deg(v)`.
        "walk": `budget` roots, uniform among all nodes, and from each a walk of `length` steps
          by `Walk(length)`, which goes along in-edges and ends at a node without any. The
          nodes are all that were visited.
      budget: the number of nodes, edges or walks. It may exceed the number of nodes.
      length: the number of steps of a walk; None for the other modes.
      norm_error, edge_ids, edge_weights: see `SubgraphSampler`.

    The graph must have an edge, unless the mode is "walk". The state of "node" is int64 `[N]`.
    The state of "edge" is `EdgeSums`: int32 `[n]`, int64 `[N]`, and an int64 for each 64 edges.
    The other modes have an empty state. Making it reads the graph's edges once or twice. Raises
    `InputError` for fields that break these rules.
    """

    mode: str
    budget: int
    length: int | None = None

    @classmethod
    def from_options(
        cls,
        draw: Annotated[
            str,
            Option(
                "what is drawn: nodes by the norm of their column (node) or by their degree "
                "(degree), edges, or walks",
                choices=MODES,
            ),
        ] = "walk",
        budget: Annotated[int, BUDGET] = 8000,
        walk_steps: Annotated[
            int,
            Option(
                "for --draw walk: the steps of a walk",
                least=1,
                most=1 << 16,
                only=("draw=walk",),
            ),
        ] = 2,
        norm_error: Annotated[float, NORM_ERROR] = 0.0,
    ) -> Saint:
        """How a command makes the sampler."""
        length = walk_steps if draw == "walk" else None
        return cls(draw, budget, length, norm_error=norm_error)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("mode", self.mode, MODES)
        object.__setattr__(self, "budget", require_int("budget", self.budget, 1))
        if self.mode == "walk":
            object.__setattr__(self, "length", require_int("length", self.length, 1))
        elif self.length is not None:
            raise InputError(
                'a length goes with mode="walk"',
                f"length={self.length!r}, mode={self.mode!r}",
                "Leave it out.",
            )
        if self._most_draws >= 2**31:
            raise InputError(
                "a subgraph must have fewer than 2**31 nodes", self._most_draws, "Draw fewer."
            )

    @property
    def _most_draws(self) -> int:
        per = {"edge": 2, "walk": 1 + (self.length or 0)}.get(self.mode, 1)
        return self.budget * per

    def most_nodes(self, shape: GraphShape) -> int:
        return min(self._most_draws, shape.num_nodes)

    def node_state(self, graph: Graph) -> State:
        if self.mode == "walk":
            return Walk(self.length or 1).init(graph)
        if graph.num_edges == 0:
            raise InputError(
                f'mode="{self.mode}" needs a graph with edges', "0 edges", 'Draw by "walk".'
            )
        if self.mode == "degree":
            return as_device(_packed(graph)[0]) if graph.has_room else ()
        return _column_norms(graph) if self.mode == "node" else _edge_sums(graph)

    def draw_nodes(
        self, key_data: jax.Array, graph: Graph, state: State, room: int
    ) -> tuple[jax.Array, jax.Array]:
        if self.mode == "walk":
            drawn = self._walked(key_data, graph)
        else:
            drawn = jax.vmap(partial(self._drawn, graph, state))(key_data)
        return distinct_nodes(drawn, room, graph.num_nodes)

    def _drawn(self, graph: Graph, state: Any, key_data: jax.Array) -> jax.Array:
        """int32 `[budget]` or, in mode "edge", `[2 * budget]`: the drawn nodes of one key."""
        if self.mode == "edge":
            return _ends(key_data, graph, state, self.budget)
        bits = _bits(key_data, self.budget)
        if self.mode == "node":  # by the prefix sums of their weights
            return _found(state, below(bits, state[-1])).astype(jnp.int32)
        offsets = state if graph.has_room else graph.indptr
        total = offsets[-1] if graph.has_room else graph.num_edges
        edges = jnp.full(self.budget, total, jnp.int64)
        return _target(offsets, below(bits, edges))  # those of uniformly drawn edges

    def _walked(self, key_data: jax.Array, graph: Graph) -> jax.Array:
        """int32 `[S, K]`: the nodes of all walks, `N` after a walk's end."""
        num_nodes = jnp.full(self.budget, graph.num_nodes, jnp.int64)
        keys = jax.vmap(lambda key: jnp.stack([fold(key, 0), fold(key, 1)]))(key_data)
        roots = jax.vmap(lambda key: below(_bits(key, self.budget), num_nodes))(keys[:, 0])
        walks = Walk(self.length or 1).sample(keys[:, 1], graph, (), roots.astype(jnp.int32))
        return walks.nodes.reshape(key_data.shape[0], -1)


def distinct_nodes(drawn: jax.Array, room: int, num_nodes: int) -> tuple[jax.Array, jax.Array]:
    """The nodes of `S` subgraphs, as `SubgraphSampler.draw_nodes` returns them, from what was
    drawn for each, int32 `[S, K]`, padded with `N`."""
    most = min(drawn.shape[1], num_nodes)
    nodes = jax.vmap(lambda ids: distinct(ids, most, num_nodes))(drawn)
    count = jnp.sum(nodes < num_nodes, axis=1, dtype=jnp.int32)
    wider = ((0, 0), (0, max(room - most, 0)))
    return jnp.pad(nodes, wider, constant_values=num_nodes)[:, :room], count


def _bits(key_data: jax.Array, budget: int, number: int = 0) -> jax.Array:
    """uint64 `[budget]`: the bits of each draw; another `number` gives other bits."""
    return node_bits(key_data, jnp.arange(budget, dtype=jnp.int32), number)


def _column_norms(graph: Graph) -> jax.Array:
    """int64 `[N]`: inclusive prefix sums of the nodes' weights in mode "node".

    The weights are float64, multiplied by a power of two so that their sum is below 2**61, and
    rounded; a positive weight becomes at least 1. That changes a probability by about `2**-60`.
    """
    indptr, indices = _packed(graph)
    norm, degree = np.zeros(graph.num_nodes), np.diff(indptr).astype(float)
    for first, stop in row_chunks(indptr):
        targets = first + row_of_edges(indptr[first : stop + 1])
        sources = indices[indptr[first] : indptr[stop]]
        norm += np.bincount(sources, degree[targets] ** -2.0, graph.num_nodes)
    units = np.rint(np.ldexp(norm, 61 - np.frexp(norm.sum())[1]))
    return as_device(np.cumsum(np.maximum(units, norm > 0).astype(np.int64)))


class EdgeSums(NamedTuple):
    """The state of mode "edge". An edge is drawn in one of two ways, in proportion to the
    numbers of targets and of sources: as a uniform in-edge of a uniform target, or as a uniform
    out-edge of a uniform source.

    Fields:
      targets: int32 `[n]`, the nodes with in-edges, ascending.
      num_sources: int64 `[]`, the number of nodes with out-edges.
      share: int64 `[N]`, the weight of each out-edge of a node: `unit // o(u)`, where the unit
        is a power of two that keeps the weight of all edges below 2**62.
      prefix: int64 `[ceil(E / 64)]`, inclusive prefix sums of the weights of 64 edges each.
      offsets: int64 `[N+1]`, of a graph whose rows have room: where they would begin without.
        Edges have numbers in these.
    """

    targets: jax.Array
    num_sources: jax.Array
    share: jax.Array
    prefix: jax.Array
    offsets: jax.Array | None = None

    def slot(self, graph: Graph, edge: jax.Array) -> jax.Array:
        """int64, the shape of `edge`: where the edges of these numbers are."""
        if self.offsets is None:
            return edge
        row = _target(self.offsets, edge)
        return graph.indptr[0, row] + edge - self.offsets[row]


def _packed(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` and `indices` as they would be if rows had no room."""
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    if graph.has_room:
        indptr, own = without_room(indptr, {"": indices})
        indices = own[""]
    return indptr, indices


def _edge_sums(graph: Graph) -> EdgeSums:
    num_nodes, (indptr, indices) = graph.num_nodes, _packed(graph)
    degree = np.diff(indptr)
    out_degree = neighbor_counts(indices, num_nodes).astype(np.int64)
    share = (1 << (62 - num_nodes.bit_length())) // np.maximum(out_degree, 1)
    sums = []
    for at in range(0, indices.size, _PART):
        weight = share[indices[at : at + _PART]]
        sums.append(np.add.reduceat(weight, np.arange(0, weight.size, _RUN)))
    return EdgeSums(
        as_device(np.flatnonzero(degree).astype(np.int32)),
        as_device(np.count_nonzero(out_degree, keepdims=True).astype(np.int64)[0]),
        as_device(share),
        as_device(np.cumsum(np.concatenate(sums))),
        as_device(indptr) if graph.has_room else None,
    )


def _ends(key_data: jax.Array, graph: Graph, sums: EdgeSums, budget: int) -> jax.Array:
    """int32 `[2 * budget]`: the ends of the drawn edges."""
    num_targets = sums.targets.shape[0]
    num_ends = jnp.full(budget, num_targets + sums.num_sources)
    number, bits = below(_bits(key_data, budget), num_ends), _bits(key_data, budget, 1)

    target = sums.targets.at[number].get(mode="clip")
    start, degree = rows_of(graph.indptr, target)
    of_target = start + below(bits, degree)

    point = below(bits, sums.prefix[-1])
    run = _found(sums.prefix, point)
    before = jnp.where(run > 0, sums.prefix.at[run - 1].get(mode="clip"), 0)
    edges = run[:, None] * _RUN + jnp.arange(_RUN)
    offsets = graph.indptr if sums.offsets is None else sums.offsets
    total = graph.num_edges if sums.offsets is None else offsets[-1]
    weight = sums.share[graph.indices.at[sums.slot(graph, edges)].get(mode="clip")]
    weight = jnp.where(edges < total, weight, 0)
    passed = jnp.cumsum(weight, axis=1) <= (point - before)[:, None]
    of_source = run * _RUN + jnp.sum(passed, axis=1)

    by_target = number < num_targets
    edge = jnp.where(by_target, of_target, sums.slot(graph, of_source))
    target = jnp.where(by_target, target, _target(offsets, of_source))
    return jnp.concatenate([graph.indices[edge], target])


def _found(prefix: jax.Array, point: jax.Array) -> jax.Array:
    """int64, the shape of `point`: the first position whose prefix sum exceeds `point`."""
    return find(prefix, jnp.zeros_like(point), jnp.full_like(point, prefix.shape[0]), point)


def _target(offsets: jax.Array, edge: jax.Array) -> jax.Array:
    """int32, the shape of `edge`: the node whose row has the edge, where rows begin at the
    `offsets` int64 `[N+1]`."""
    num_nodes = jnp.full_like(edge, offsets.shape[0] - 1)
    return find(offsets, jnp.ones_like(edge), num_nodes, edge).astype(jnp.int32)


@dataclass(frozen=True)
class Subgraph(SquareSampler):
    """One square block for all layers: the graph that a batch's nodes induce.

    The nodes are the seeds and `extra` draws, with replacement, from all nodes. This is
    GraphSAINT's node sampler (Zeng et al. 2020, section 3.4) with equal probabilities and
    without its normalisation. A node has one row, but each repetition of a seed has its own.
    The draws depend on the key alone, so batches of ranks have the same draws unless their keys
    differ.

    Fields:
      extra: the number of nodes that are drawn in addition to the seeds.
      edges, edge_ids, edge_weights: as in `Neighbors`.
    """

    extra: Annotated[
        int,
        Option(
            "nodes to draw beside the seeds, on each rank",
            name="extra_nodes",
            least=0,
            most=INT32,
        ),
    ] = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", require_int("extra", self.extra, 0))
        super().__post_init__()
        if self.extra >= 2**31:
            raise InputError("extra must be below 2**31", self.extra, "Draw fewer nodes.")

    takes_excluded = True

    def init(self, graph: Graph) -> tuple[()]:
        self._check_graph(graph)
        return ()

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        repeated = 0 if distinct else (batch_size - 1) * (shape.max_degree or 0)
        rows = min(batch_size + self.extra, shape.num_nodes + batch_size)
        return Capacity((shape.num_edges + repeated,), (rows,))

    def _batch(
        self, drawn: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        num_nodes, (most_edges,), (most_rows,) = graph.num_nodes, *capacity
        bad = bad_seeds(seeds, num_nodes, graph.num_edges)
        nodes, num_rows = _nodes(drawn, seeds.nodes, num_nodes, self.extra, most_rows)
        fits = ~bad & (num_rows <= most_rows)
        groups = jnp.stack([0, jnp.where(fits, num_rows, 0)])
        need = jnp.zeros((2, 0), jnp.int32), jnp.minimum(num_rows, most_rows + 1)
        of = (nodes, groups, most_edges, need, ~fits, seeds.excluded)
        nodes, block, overflow, needed = self._square(graph, *of)
        made = (seeds.nodes, nodes, (block,), overflow, num_nodes)
        return MiniBatch.drawn(*made, needed=jnp.where(bad, -1, needed), square=True)


def _nodes(
    key_data: jax.Array, seeds: jax.Array, num_nodes: int, extra: int, room: int
) -> tuple[jax.Array, jax.Array]:
    """The seeds, then the drawn nodes that are not among them, each once, int32 `[room]`; and
    the number of rows needed, also if they do not fit."""
    slot = jnp.arange(seeds.shape[0], dtype=jnp.int32)
    num_seeds = jnp.max(slot + 1, initial=0, where=seeds < num_nodes)
    number = jnp.arange(extra, dtype=jnp.int32)
    bits = node_bits(key_data, number, 0)
    drawn = below(bits, jnp.full(extra, num_nodes, jnp.int64)).astype(jnp.int32)
    wanted = jnp.full(extra, num_nodes > 0)
    nodes, num_rows, *_ = relabel(seeds, num_seeds, drawn, wanted, room, num_nodes)
    return nodes, num_rows
