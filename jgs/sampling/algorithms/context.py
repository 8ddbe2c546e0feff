"""`Context`: a fixed number of tokens around each seed, as transformers read them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.graph import Block, Extras, Graph, MiniBatch, Tokens
from jgs.kernels.call import call, vary_alike, where_it_is
from jgs.options import Option
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.algorithms.visits import WALKS, check_walks
from jgs.sampling.base import BY_RELATION, Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_call, check_graph, require_int
from jgs.sampling.contexts.hops import ORDERS, ByHops
from jgs.sampling.contexts.pagerank import ByPageRank
from jgs.sampling.contexts.visits import ByVisits
from jgs.sampling.contexts.way import Found, Way
from jgs.sampling.edges.columns import check_edges, column_at, column_of, since, with_columns
from jgs.sampling.edges.hops import bad_seeds
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.fanouts import ByRelation
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

FILLS = ("hops", "visits", "pagerank")  # the ways, for a command


@dataclass(frozen=True)
class Context(Sampler):
    """Draws a context for each seed: at most `size` nodes around it, in a told order.

    Contexts are what transformers on graphs read in place of a tree (Dwivedi et al.,
    "Relational Graph Transformer", 2025, section 3.1; Ranjan et al., "Relational Transformer",
    2025, section 3). A context depends on (key, seed, cutoff) alone. No node is twice in it. It
    begins with the context of a smaller `size`.

    Fields:
      size: `T`, the number of tokens of a context, the seed's included.
      way: which nodes a context has, and their order: `jgs.sampling.contexts.ByHops`,
        `ByVisits` or `ByPageRank`. Fanouts stand for `ByHops`.
      edges, edge_ids, edge_weights: as in `Neighbors`, of the edges along which tokens were
        reached.

    A batch of `B` seeds always has `B * T` rows: token `i` of seed `b` is row `b * T + i` of
    `nodes`, and padding stands at the end of each context. `batch.tokens` `[B, T]` tell what a
    token is, and how it was reached (`jgs.graph.Tokens`). The square block is the contexts'
    tree: an edge from each token to its parent, if that one is in the context. Message passing
    along it leads to the seeds, whose rows are `seed_rows`. Seeds with times have contexts of
    edges before their cutoffs alone, and `cutoff` has a row's own.

    A capacity has one hop. Every batch needs `B * T` edges and rows, and has as many. Raises
    `InputError` for a size below 1.
    """

    size: int
    way: Way
    _: KW_ONLY
    edge_ids: bool = field(default=False, repr=False)
    edge_weights: bool = field(default=False, repr=False)
    edges: tuple[str, ...] = field(default=(), repr=False)
    contextual = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", require_int("the size of a context", self.size, 1))
        if not isinstance(self.way, Way):
            given: Any = self.way
            object.__setattr__(self, "way", ByHops(given))
        check_edges(self)

    @classmethod
    def from_options(
        cls,
        fanouts: Annotated[
            tuple[int | str | ByRelation, ...], BY_RELATION._replace(only=("fill=hops",))
        ],
        context_size: Annotated[
            int, Option("tokens of a context, the seed's included", least=1, most=1 << 16)
        ] = 256,
        fill: Annotated[
            str,
            Option(
                "what contexts have: what --fanouts draw hop by hop, what walks visit most, or "
                "the largest personalised PageRank",
                choices=FILLS,
            ),
        ] = "hops",
        order: Annotated[
            str,
            Option("--fill hops: which tokens are first", choices=ORDERS, only=("fill=hops",)),
        ] = "hop",
        walks: Annotated[tuple[int, ...], WALKS._replace(only=("fill=visits",))] = (200, 10),
        restart: Annotated[
            float,
            Option(
                "--fill visits, pagerank: probability that a walk goes back to its seed",
                least=0,
                most=1,
                only=("fill=visits,pagerank",),
            ),
        ] = 0.15,
        epsilon: Annotated[
            float,
            Option(
                "--fill pagerank: how small a part is not pushed on",
                least=1e-9,
                only=("fill=pagerank",),
            ),
        ] = 1e-4,
        latest: Annotated[
            bool,
            Option(
                "--temporal: take the latest edges before the cutoff",
                first=False,
                only=("fill=hops",),
            ),
        ] = False,
        edges: tuple[str, ...] = (),
    ) -> Context:
        """How a command makes the sampler."""
        way: Way = ByHops(Neighbors(fanouts, latest=latest), order)
        if fill == "visits":
            way = ByVisits(*check_walks(walks), restart)
        elif fill == "pagerank":
            way = ByPageRank(restart, epsilon)
        return cls(context_size, way, edges=edges)

    @property
    def takes_excluded(self) -> bool:
        return self.way.takes_excluded

    @property
    def takes_time(self) -> bool:
        return self.way.takes_time

    @property
    def by_relation(self) -> bool:
        return self.way.by_relation

    @property
    def by_node(self) -> bool:
        return self.way.by_node

    def init(self, graph: Graph) -> State:
        """See `Sampler`: the state of the way."""
        check_graph(graph, False, self.edge_weights)
        return self.way.init(graph)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        return Capacity((batch_size * self.size,), (batch_size * self.size,))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        check_graph(graph, False, self.edge_weights)
        self.way.check_state(graph, state)
        seeds, capacity = check_call(self, graph, seeds, capacity, 1)
        shape = seeds.nodes.shape[:-1]
        key_data = as_key_data(key, shape)
        draw = partial(_drawn, sampler=self, capacity=capacity)
        for _ in shape:
            draw = jax.vmap(draw, (0, None, None, 0))
        operands = vary_alike(key_data, graph, state, seeds)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            batch = draw(*operands)
        return with_columns(batch, graph, self)


@partial(jax.jit, static_argnames=("sampler", "capacity"))
def _drawn(
    key_data: jax.Array,
    graph: Graph,
    state: State,
    seeds: Seeds,
    sampler: Context,
    capacity: Capacity,
) -> MiniBatch:
    num_nodes, size = graph.num_nodes, sampler.size
    bad = bad_seeds(seeds, num_nodes, graph.num_edges)
    overflow = bad | (min(*capacity.edges, *capacity.sources) < seeds.nodes.size * size)
    asked = seeds.replace(nodes=jnp.where(overflow, num_nodes, seeds.nodes))
    found = sampler.way.find(key_data, graph, state, asked, size)
    rows = found.nodes.size
    parent, indptr, tree = tree_of(found, num_nodes)
    nodes, mask = found.nodes.reshape(-1), found.nodes < num_nodes
    cutoff = None
    if seeds.time is not None:
        cutoff = jnp.where(mask, seeds.time[:, None], 0).reshape(-1)
    some = jnp.where(overflow, 0, rows).astype(jnp.int32)
    edge = found.edge.reshape(-1).at[tree].get(mode="fill", fill_value=graph.num_edges)
    weight = column_at(column_of(graph, "weight"), edge) if sampler.edge_weights else None
    block = Block(indptr, tree, some, some, indptr[-1], edge, weight, source_capacity=rows)
    needed = jnp.where(bad, -1, jnp.full((2, 1), rows, jnp.int32))
    groups = jnp.arange(0, rows + 1, size, dtype=jnp.int32)
    tokens = _tokens(found, parent, mask, graph, seeds.time)
    return MiniBatch.drawn(
        *(seeds.nodes, nodes, (block,), overflow, num_nodes),
        needed=needed,
        seed_rows=groups[:-1],
        cutoff=cutoff,
        extras=Extras(groups=groups, tokens=tokens),
        square=True,
    )


def _tokens(
    found: Found, parent: jax.Array, mask: jax.Array, graph: Graph, cutoff: jax.Array | None
) -> Tokens:
    kind = jnp.where(mask, 0, -1)
    if graph.schema is not None:
        kind, _ = graph.schema.type_and_place(found.nodes)
    reached = found.edge < graph.num_edges
    relation = jnp.where(reached, 0, -1)
    if graph.edge_type is not None:
        types = column_at(graph.edge_type, found.edge).astype(jnp.int32)
        relation = jnp.where(reached, types, -1)
    age = None
    if cutoff is not None:
        time = column_at(column_of(graph, "time"), found.edge)
        age = jnp.where(reached, since(time, cutoff[:, None]), 0)
    kind, hop, parent, relation = (
        a.astype(jnp.int32) for a in (kind, found.hop, parent, relation)
    )
    return Tokens(mask, kind, hop, parent, relation, age)


def tree_of(found: Found, num_nodes: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The tree of contexts `[B, T]`: int32 `[B, T]`, the position of each token's parent, `T`
    where that is not in the context; int32 `[B*T+1]` and `[B*T]`, for each row the rows whose
    parent it is, ascending, as `indptr` and `indices` of a `Block`."""

    nodes, parent, padding = found.nodes, found.parent, num_nodes
    if not isinstance(num_nodes, int):  # of a program for graphs of any size
        padding = 2**31 - 1
        nodes, parent = (jnp.where(a < num_nodes, a, padding) for a in (nodes, parent))

    def kernel(nodes: jax.Array, parent: jax.Array) -> Any:
        rows = nodes.size
        shapes = nodes.shape, (rows + 1,), (rows,)
        out = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]
        number = np.int64(padding)
        operands = (nodes, parent)
        return tuple(
            call("jgs_context_tree", out, operands, kernels.NUM_THREADS, num_nodes=number)
        )

    def plain(nodes: jax.Array, parent: jax.Array) -> Any:
        return _tree(nodes, parent, padding)

    return where_it_is(kernel, plain, nodes, parent)


def _tree(nodes: jax.Array, parent: jax.Array, num_nodes: int) -> Any:
    rows, size = nodes.size, nodes.shape[1]
    order = jnp.argsort(nodes, axis=1, stable=True).astype(jnp.int32)
    ordered = jnp.take_along_axis(nodes, order, axis=1)
    at = jax.vmap(jnp.searchsorted)(ordered, parent)
    there = jnp.take_along_axis(ordered, at, axis=1, mode="clip") == parent
    place = jnp.take_along_axis(order, at, axis=1, mode="clip")
    place = jnp.where(there & (parent < num_nodes), place, size)
    first = jnp.arange(0, rows, size, dtype=jnp.int32)[:, None]
    row = jnp.where(place < size, first + place, rows).reshape(-1)
    child = jnp.argsort(row, stable=True).astype(jnp.int32)
    child = jnp.where(row[child] < rows, child, rows)
    counts = jnp.zeros(rows, jnp.int32).at[row].add(1, mode="drop")
    indptr = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts, dtype=jnp.int32)])
    return place.astype(jnp.int32), indptr, child
