"""Samplers whose batches are subgraphs: `SquareSampler`, and `SubgraphSampler`, which chooses
the batches' seeds itself."""

from __future__ import annotations

import contextlib
import zlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import is_real, require_array
from jgs.errors import InputError
from jgs.files.storage import open_arrays, save_arrays
from jgs.graph import Block, Extras, Graph, MiniBatch, as_device
from jgs.kernels.call import vary_alike
from jgs.options import INT32, Option
from jgs.sampling import checks
from jgs.sampling.base import Sampler, State
from jgs.sampling.capacity import Capacity, GraphShape, check_capacity
from jgs.sampling.edges.columns import check_edges, ids_needed, with_columns
from jgs.sampling.edges.hops import bad_seeds
from jgs.sampling.edges.induced import Coefficients, estimate, induced_blocks, rows_sorted
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.loading.schedule import graph_digest
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers

_KIND = "jgs-normalization"
NORM_ERROR = Option(
    "GraphSAINT's normalisation, estimated before training from enough subgraphs that its "
    "relative error is at most this, e.g. 0.15; 0: no normalisation. On sparse graphs give "
    "--norm layer too",
    default=0.0,
)
BUDGET = Option(
    "how many nodes, edges or roots of walks are drawn for a subgraph, on each rank",
    default=8000,
    least=1,
    most=INT32,
)


class SubgraphState(NamedTuple):
    """The state for a graph: what the sampler's `node_state` returned, whether the rows are
    sorted (`rows_sorted`), and the coefficients of the normalisation, or None."""

    node_state: State
    is_sorted: jax.Array
    coefficients: Coefficients | None


@dataclass(frozen=True)
class SquareSampler(Sampler):
    """A sampler whose batches have one square block for all layers.

    Fields:
      edges: as in `Neighbors`.
      edge_ids, edge_weights: whether the block carries `edge_id` and `edge_weight`.

    A capacity has the entries of what a batch is made of (none, if that is the key), and then
    the edges and rows of the block.
    """

    _: KW_ONLY
    edge_ids: bool = field(default=False, repr=False)
    edge_weights: bool = field(default=False, repr=False)
    edges: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_edges(self)

    def _check_graph(self, graph: Graph) -> None:
        checks.check_graph(graph, False, self.edge_weights)

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        self._check_graph(graph)
        num_entries = len(self.bound(GraphShape.of(graph), 1).edges)
        seeds, capacity = checks.check_call(self, graph, seeds, capacity, num_entries)
        if not self.pairs:
            remedy = "Draw several under jax.vmap, with a key each."
            require_array("the seeds of one subgraph", seeds.nodes, "[B]", remedy)
        drawn = self._draw(key, graph, state, seeds, capacity)
        operands = vary_alike(drawn, graph, state, seeds)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            batch = _batch(*operands, self, capacity)
        return with_columns(batch, graph, self)

    def _draw(
        self, key: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> Any:
        """What `_batch` makes the batch of."""
        return as_key_data(key)

    def _batch(
        self, drawn: Any, graph: Graph, state: Any, seeds: Seeds, capacity: Capacity
    ) -> MiniBatch:
        raise NotImplementedError

    def _square(
        self,
        graph: Graph,
        nodes: jax.Array,
        groups: jax.Array,
        room: int,
        needed: tuple[jax.Array, jax.Array],
        failed: jax.Array,
        excluded: jax.Array | None = None,
        is_sorted: jax.Array | None = None,
    ) -> tuple[jax.Array, Block, jax.Array, jax.Array]:
        """The nodes of a batch, its block, `overflow` and `needed`.

        Args:
          nodes, groups: as in `induced_blocks`.
          room: for the block's edges.
          needed: int32 `[2, H]`, what the entries before the block needed, all -1 for seeds
            that are no nodes; and the number of rows that the block needs.
          failed: whether something did not fit before.
        """
        ((block, edges),) = induced_blocks(
            graph,
            nodes,
            groups,
            room,
            edge_ids=ids_needed(self),
            edge_weight=graph.edge_weight if self.edge_weights else None,
            is_sorted=is_sorted,
            excluded=[excluded],
        )
        overflow, (earlier, rows) = failed | (edges > room), needed
        last = jnp.stack([jnp.minimum(edges, 2**31 - 1).astype(jnp.int32), rows])[:, None]
        every = jnp.concatenate([earlier.astype(jnp.int32), last], axis=1)
        return jnp.where(overflow, graph.num_nodes, nodes), block, overflow, every


@partial(jax.jit, static_argnums=(4, 5))
def _batch(
    drawn: Any,
    graph: Graph,
    state: Any,
    seeds: Seeds,
    sampler: SquareSampler,
    capacity: Capacity,
) -> MiniBatch:
    return sampler._batch(drawn, graph, state, seeds, capacity)


@dataclass(frozen=True)
class SubgraphSampler(SquareSampler):
    """Draws nodes by the key alone, and returns the graph that they induce as one square block
    for all layers. A model of any depth can be trained on such a subgraph (Zeng et al.,
    "Accurate, Efficient and Scalable Graph Embedding", IPDPS 2019, Algorithm 1).

    A subclass is a frozen dataclass that says which nodes a subgraph has. It has the methods
    `draw_nodes` and `most_nodes` and, if these need something of the graph, `node_state`.

    `seeds` must be all nodes whose loss counts, each once, in any order, with `N` for padding.
    The seeds of a batch are those among the nodes of its subgraph: int32 `[R]`, one for each of
    the block's rows, `N` for the other rows. Padding and the order of the seeds change nothing.
    The number of seeds and a loader's `batch_size` determine only the number of batches in an
    epoch. A capacity has one hop: the block's edges and the subgraph's nodes.

    The edges `Seeds.excluded` are left out of the block. Which nodes are drawn does not depend
    on them: a walk or an edge that draws nodes may be an excluded one.

    Fields:
      norm_error: None, or a float that switches on GraphSAINT's normalisation (Zeng et al.,
        "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020, section 3.2).
        See `Coefficients` for its effect. `init` then draws subgraphs until a node is on
        average in `1 / norm_error**2` of them, so that `norm_error` is the relative standard
        error of that count. The paper draws about 50, an error of 0.14.
      edges, edge_ids, edge_weights: as in `Neighbors`.

    Each rank draws subgraphs of its own, and a seed may be in several of them.
    """

    _: KW_ONLY
    norm_error: Annotated[float | None, NORM_ERROR] = None

    draws_seeds = True
    takes_excluded = True

    def __post_init__(self) -> None:
        error: Any = self.norm_error
        good = is_real(error) and (error == 0 or 1e-4 <= error <= 1)
        if error is not None and not good:
            raise InputError(
                "norm_error must be a number from 0.0001 to 1, or None for no normalisation",
                repr(error),
                "0.15 is usual.",
            )
        object.__setattr__(self, "norm_error", float(error) if error else None)
        super().__post_init__()

    @abstractmethod
    def draw_nodes(
        self, key_data: jax.Array, graph: Graph, state: State, room: int
    ) -> tuple[jax.Array, jax.Array]:
        """The nodes of `S` subgraphs. Traced under x64.

        Args:
          key_data: uint32 `[S, 2]`, one key for each subgraph.
          state: what `node_state` returned.
          room: int; the number of nodes that fit.

        Returns int32 `[S, room]`, distinct ascending nodes padded with `N`, and int32 `[S]`,
        the number of nodes of each subgraph. If that is larger than `room`, the nodes are
        undefined.
        """

    @abstractmethod
    def most_nodes(self, shape: GraphShape) -> int:
        """An upper bound of the number of nodes of a subgraph."""

    def node_state(self, graph: Graph) -> State:
        """What `draw_nodes` needs of the graph, as a pytree. Raises `InputError` if the graph
        lacks it."""
        return ()

    def init(self, graph: Graph) -> SubgraphState:
        """See `Sampler`. This reads all edges, and with `norm_error` it draws many
        subgraphs."""
        state = self._unnormalized(graph)
        if self.norm_error is None:
            return state
        weight = graph.edge_weight if self.edge_weights else None
        bound, draw = self.bound(GraphShape.of(graph), 1), partial(_subgraphs, sampler=self)
        made = estimate(draw, graph, state, weight, bound, self.norm_error)
        return state._replace(coefficients=made)

    def _unnormalized(self, graph: Graph) -> SubgraphState:
        self._check_graph(graph)
        checks.check_room(self, graph)
        return SubgraphState(self.node_state(graph), rows_sorted(graph), None)

    def save(self, graph: Graph, state: SubgraphState, folder: Path) -> None:
        """Writes the coefficients of the normalisation to a new folder, if there are any."""
        if (coefficients := state.coefficients) is not None:
            arrays = {name: np.asarray(a) for name, a in coefficients._asdict().items()}
            save_arrays(folder, _KIND, {**arrays, "of": self._drawn_from(graph)})

    def restore(self, graph: Graph, folder: Path) -> SubgraphState:
        """See `Sampler`: the coefficients that `save` wrote need not be drawn again."""
        arrays = {}
        if self.norm_error is not None:
            with contextlib.suppress(InputError):
                arrays = open_arrays(folder, _KIND)
        if not np.array_equal(arrays.pop("of", np.zeros(0)), self._drawn_from(graph)):
            return self.init(graph)
        kept = Coefficients(**{name: as_device(array) for name, array in arrays.items()})
        return self._unnormalized(graph)._replace(coefficients=kept)

    def _drawn_from(self, graph: Graph) -> np.ndarray:
        """uint32 `[1]`: a checksum of the sampler and the graph, with the weights that the
        coefficients have."""
        text, digest = f"{self!r} {self.edge_weights}", graph_digest(graph)
        if self.edge_weights:
            digest = zlib.crc32(np.ascontiguousarray(graph.edge_weight).data, digest)
        return np.array([zlib.crc32(text.encode(), digest)], np.uint32)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        return Capacity((shape.num_edges,), (min(self.most_nodes(shape), shape.num_nodes),))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        seeds = Seeds.of(seeds)
        batches = self.sample_separately(key, graph, state, seeds, capacity)
        if seeds.nodes.ndim == 1:
            return batches[0]
        return jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)

    def sample_separately(
        self, key_data: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None
    ) -> list[MiniBatch]:
        """See `Sampler.sample_separately`. Each subgraph is drawn by one thread."""
        self._check_graph(graph)
        if not isinstance(state, SubgraphState):
            checks.refuse_state(state)
        seeds = checks.checked_seeds(self, graph, seeds)
        if capacity is None:
            capacity = self.bound(GraphShape.of(graph), 1)
        capacity = check_capacity(capacity, 0, 1)
        shape = seeds.nodes.shape[:-1]
        key_data = as_key_data(key_data, shape).reshape(-1, 2)
        every = [seeds.batch(i) for i in range(shape[0])] if shape else [seeds]
        key_data, graph, state, every = vary_alike(key_data, graph, state, every)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            batches = _batches(key_data, graph, state, every, self, capacity)
        return [with_columns(batch, graph, self) for batch in batches]


class DrawnSubgraph(NamedTuple):
    """A subgraph: its nodes int32 `[R]`, the block that they induce, and the numbers of nodes
    and of edges that it needed."""

    nodes: jax.Array
    num_nodes: jax.Array
    block: Block
    needed: jax.Array


def _subgraphs(
    key_data: jax.Array,
    graph: Graph,
    state: SubgraphState,
    capacity: Capacity,
    sampler: SubgraphSampler,
    edge_ids: bool = True,
    wanted: jax.Array | bool = True,
    excluded: Sequence[jax.Array | None] = (),
) -> list[DrawnSubgraph]:
    """A subgraph for each of the keys `key_data` uint32 `[S, 2]`. It is empty where it does not
    fit the capacity, or where `wanted`, bool `[S]`, is False."""
    (room,), (max_edges,) = capacity.sources, capacity.edges
    nodes, counts = sampler.draw_nodes(key_data, graph, state.node_state, room)
    keep = wanted & (counts <= room)
    nodes = jnp.where(keep[:, None], nodes, graph.num_nodes)
    weight = graph.edge_weight if sampler.edge_weights else None
    if state.coefficients is not None:
        weight = state.coefficients.edges
    counts_of_blocks = jnp.where(keep, counts, 0)
    blocks = induced_blocks(
        graph,
        nodes,
        jnp.stack([jnp.zeros_like(counts), counts_of_blocks], axis=1),
        max_edges,
        edge_ids=edge_ids,
        edge_weight=weight,
        by_row=state.coefficients is not None,
        is_sorted=state.is_sorted,
        excluded=excluded,
    )
    return [DrawnSubgraph(nodes[i], counts[i], *both) for i, both in enumerate(blocks)]


@partial(jax.jit, static_argnums=(4, 5))
def _batches(
    key_data: jax.Array,
    graph: Graph,
    state: SubgraphState,
    seeds: list[Seeds],
    sampler: SubgraphSampler,
    capacity: Capacity,
) -> list[MiniBatch]:
    num_nodes, (room,), (max_edges,) = graph.num_nodes, capacity.sources, capacity.edges
    all_bad = [bad_seeds(each, num_nodes, graph.num_edges) for each in seeds]
    options = (ids_needed(sampler), ~jnp.stack(all_bad), [each.excluded for each in seeds])
    every = _subgraphs(key_data, graph, state, capacity, sampler, *options)
    batches = []
    for drawn, own, bad in zip(every, seeds, all_bad, strict=True):
        overflow = bad | (drawn.num_nodes > room) | (drawn.needed > max_edges)
        nodes = jnp.where(overflow, num_nodes, drawn.nodes)
        chosen, num_seeds = _among(nodes, own.nodes, num_nodes)
        weight = None
        if state.coefficients is not None:
            # With these weights the batch's mean estimates the mean over all seeds.
            share = jnp.sum(chosen) / jnp.maximum(num_seeds, 1)
            coefficient = state.coefficients.nodes.at[nodes].get(mode="fill", fill_value=0)
            weight = jnp.where(chosen, coefficient * share.astype(jnp.float32), 0)
        needed = jnp.stack([jnp.minimum(drawn.needed, 2**31 - 1), drawn.num_nodes])[:, None]
        batches.append(
            MiniBatch.drawn(
                jnp.where(chosen, nodes, num_nodes),
                nodes,
                (drawn.block,),
                overflow,
                num_nodes,
                needed=jnp.where(bad, -1, needed).astype(jnp.int32),
                extras=Extras(seed_weight=weight),
                square=True,
            )
        )
    return batches


def _among(nodes: jax.Array, seeds: jax.Array, num_nodes: int) -> tuple[jax.Array, jax.Array]:
    """Which of the nodes are among the seeds, bool `[R]`; and the number of distinct seeds."""
    rising = jnp.all(seeds[1:] >= seeds[:-1])  # as a loader gives them
    ordered = jax.lax.cond(rising, lambda s: s, jnp.sort, seeds)
    fresh = jnp.concatenate([jnp.ones(1, bool), ordered[1:] > ordered[:-1]])
    place = jnp.clip(jnp.searchsorted(ordered, nodes), 0, seeds.shape[0] - 1)
    found = (ordered[place] == nodes) & (nodes < num_nodes)
    return found, jnp.sum(fresh & (ordered < num_nodes))
