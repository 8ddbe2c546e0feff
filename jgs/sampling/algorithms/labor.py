"""Layer-neighbour sampling: `Labor`. `labor_plain.py` defines what it draws. On CPU devices a
fused C++ kernel, jgs/kernels/labor.cc, draws the same bits in one call. With the hubs' edges by
source it is faster, since it need not read the hubs' rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.devices import host_device
from jgs.errors import InputError
from jgs.graph import Graph, as_device
from jgs.graph.grouping import group_kernel
from jgs.options import INT32, Option
from jgs.sampling.algorithms.labor_plain import sample_plain
from jgs.sampling.base import WINDOW, FanoutsByRelation
from jgs.sampling.capacity import GraphShape
from jgs.sampling.checks import check_duration, check_graph, require_int
from jgs.sampling.edges.columns import check_edges
from jgs.sampling.edges.hops import HopDraw, Sample, call_hops
from jgs.sampling.edges.random import step_key_data
from jgs.sampling.fanouts import check_fanouts
from jgs.sampling.hopwise import Hopwise, check_indptr
from jgs.sampling.seeds import Seeds

LEAST_DEGREE = 1 << 13  # at a fanout of 8 one neighbour in a thousand is taken


class HubEdges(NamedTuple):
    """The edges of `K` nodes with many neighbours, by source. A target of LABOR-0 with `d`
    neighbours takes those whose random number is below `k / d`. For a hub these are few of all
    nodes, and nobody need look at the others.

    Fields:
      nodes: int32 `[K]`, the hubs, ascending.
      indptr: int32 `[N+1]`; the edges of source `u` are `edges[indptr[u]:indptr[u+1]]`.
      edges: int32 `[H]`, positions among the edges of all hubs, one hub after the other.
    """

    nodes: jax.Array
    indptr: jax.Array
    edges: jax.Array


Hubs = HubEdges | tuple[()]


def hubs_of(graph: Graph) -> Hubs:
    """The `HubEdges` of the nodes that have `LEAST_DEGREE` neighbours or more; of the largest
    of them, if they have more than a quarter of all edges. It is () where it saves nothing:
    where the kernel does not draw, and where the hubs have fewer edges than the graph has
    nodes; and if the graph is damaged or
    traced, or its rows have room."""
    changes = graph.has_room or isinstance(graph.indptr, jax.core.Tracer)
    if changes or not kernels.available() or host_device().platform != "cpu":
        return ()
    indptr, indices = np.asarray(graph.indptr), np.asarray(graph.indices)
    degree = np.diff(indptr)
    hubs = np.flatnonzero(degree >= LEAST_DEGREE)
    hubs = hubs[np.argsort(-degree[hubs], kind="stable")]
    room = min(graph.num_edges // 4, np.iinfo(np.int32).max)
    hubs = np.sort(hubs[np.cumsum(degree[hubs]) <= room])
    if degree[hubs].sum() < max(1, graph.num_nodes):
        return ()
    sources = np.concatenate([indices[indptr[hub] : indptr[hub + 1]] for hub in hubs])
    groups = group_kernel(sources, None, graph.num_nodes)
    if groups is None:  # some sources are no nodes
        return ()
    arrays = hubs.astype(np.int32), groups.indptr.astype(np.int32), groups.order
    return HubEdges(*map(as_device, arrays))


def sample_kernel(
    key_data: jax.Array, graph: Graph, hubs: Hubs, seeds: Seeds, spec: HopDraw
) -> list[Sample]:
    """The result of `sample_plain`."""
    how = spec.sampler
    return call_hops(
        "jgs_sample_labor",
        key_data,
        graph,
        hubs or (jnp.zeros(0, jnp.int32),) * 3,
        seeds,
        spec,
        key_words=np.int64(key_data.shape[-1]),
        importance=np.int64(how.importance),
        layer_dependency=np.bool_(how.layer_dependency),
        unbiased=np.bool_(how.unbiased),
    )


@dataclass(frozen=True, repr=False)
class Labor(Hopwise):
    """Layer-neighbour sampling: targets share their neighbours' random numbers.

    LABOR (Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing Neighborhood Explosion in
    GNNs", NeurIPS 2023, section 3): at hop `h` every node `u` has one random number `r_u` in
    [0, 1), a function of `(key, h, u)`. Target `t` takes its in-neighbour `u` if
    `r_u < c_t pi_u`, independently for each neighbour. So targets with common neighbours take
    the same ones, and a batch has fewer distinct nodes than with `Neighbors`.

    LABOR-0 (`importance=0`): `pi = 1`, and `c_t = k / d` for a target with `d` neighbours and
    the fanout `k`. The target draws `k` neighbours on average, and all `d` if `d` is at most
    `k`.

    LABOR-i makes `i` rounds of the paper's fixed-point iteration. A round multiplies `pi_u` by
    the largest `c_t` of the targets that have the neighbour `u`. It then solves for every `c_t`
    so that the estimate's variance stays that of LABOR-0:
    `sum over u of 1 / min(1, c_t pi_u) = d**2 / k`. So a target draws `k` or more on average,
    and the batch has fewer distinct nodes. The iteration ends early once the expected number of
    distinct nodes falls by less than 0.01 %.

    Random numbers are 64-bit integers. LABOR-0 compares them with `k / d` in units of 2**-64,
    rounded down. In LABOR-i, `1 / c` and `1 / pi` are float32, and their sums are integers in
    units of 2**-12, so no result depends on an order of summation.

    Estimates: with LABOR-0 the plain mean of what was drawn, `aggregate(block, x, "mean")`, is
    the paper's estimate (Hajek's) of the mean over all neighbours. It is a ratio, so it is
    slightly biased. With `edge_weights=True` the blocks carry weights that make `aggregate`
    Hajek's estimate for any `importance`: `1 / p_u` with `p_u = min(1, c_t pi_u)`, times a
    factor that makes the weights of a row sum to their number. With `unbiased=True` too the
    estimate is that of Horvitz and Thompson, `sum over drawn u of x_u / (p_u d)`, which is
    unbiased and varies more. The graph's `edge_weight` is not used.

    Dependent batches (Balin, LaSalle and Catalyurek, "Cooperative Minibatching in Graph Neural
    Networks", arXiv 2310.12403, section 3.2): with `period=k` a node keeps its number for about
    `k` steps, so consecutive batches share most of their nodes, and caches hit more often.
    Steps come in groups of `k`, and each group has its own key; the first step of an epoch
    begins a group. At step `s` of group `g` node `u` has the number of group `g + 1` if
    `(s mod k) / k` has passed a uniform random number of `(g, u)`, and the number of group `g`
    otherwise. The paper instead mixes Gaussian quantiles of the two numbers by `cos` and `sin`.
    That moves every number a little: about `0.8 / k` of the nodes drawn with probability 0.1
    change in a step. Here `1 / k` of all numbers change, whatever the probability. The numbers
    are exactly uniform at every step, and decided in integers, so they are equal on every
    device.

    By relation: where a hop's fanout is a dict, each target and relation is a target of its own
    in all of the above: its neighbours are those by the relation, `d` is their number, and `k`
    the relation's fanout. All of them share the numbers `r_u`, so a node is taken by many
    relations at once. The weights of `edge_weights` are then those of estimates of the mean
    over the neighbours by each relation. A block's edges into a target are in the order of the
    relations.

    Seeds with times (`Seeds.time`): a target is a node with its cutoff, and its neighbours are
    those by eligible edges, of which `d` is the number. Every cutoff has numbers `r_u` of its
    own, so that targets of one cutoff share their neighbours, and others are independent.
    LABOR-i iterates over the targets of each cutoff by themselves, in time and memory of the
    number of nodes for each. Batches whose seeds have few cutoffs gain most.

    Fields:
      fanouts: the number of neighbours that each node draws on average, the seeds' hop first.
        -1 takes all. On a graph with relations a fanout may be a dict of such numbers by
        relation, as in `Neighbors`: `({"writes": 5, "cites": 10}, 10)`.
      importance: the `i` of LABOR-i. -1 iterates until convergence, which is LABOR-*.
      layer_dependency: whether a node has the same number at every hop, that of hop 0.
      period: the number of steps over which a loader's batches depend on each other; 1 makes
        them independent.
      window, edges: as in `Neighbors`.
      edge_ids: whether the blocks carry `edge_id`.
      edge_weights: whether the blocks carry the estimate's weights.
      unbiased: whether the weights are those of the unbiased estimate.
      relabel_inputs: False: the first block names its sources by node id.

    With LABOR-0 what a node draws depends on (key, hop, node, cutoff) alone; with LABOR-i it
    depends on all targets of the hop that have its cutoff. Raises `InputError` for fields that
    break these rules.
    """

    fanouts: FanoutsByRelation
    importance: Annotated[
        int,
        Option(
            "rounds of importance sampling, for fewer distinct nodes; -1: all",
            least=-1,
            most=1000,
        ),
    ] = 0
    layer_dependency: Annotated[
        bool, Option("a node has the same random number at every hop")
    ] = False
    period: Annotated[
        int,
        Option(
            "for how many steps batches share most of their nodes; 1: not at all",
            least=1,
            most=INT32,
        ),
    ] = 1
    edge_ids: bool = field(default=False, repr=False)
    edge_weights: bool = field(default=False, repr=False)
    relabel_inputs: bool = field(default=True, repr=False)
    unbiased: bool = field(default=False, repr=False)
    window: Annotated[int | None, WINDOW] = field(default=None, kw_only=True)
    edges: tuple[str, ...] = field(default=(), repr=False, kw_only=True)

    forms = sample_kernel, sample_plain
    takes_excluded = takes_time = True
    later_fields = ("window",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", check_fanouts(self.fanouts, by_relation=True))
        for name, least in (("importance", -1), ("period", 1)):
            object.__setattr__(self, name, require_int(name, getattr(self, name), least))
        names = "layer_dependency", "edge_ids", "edge_weights", "relabel_inputs", "unbiased"
        for name in names:
            object.__setattr__(self, name, bool(getattr(self, name)))
        check_edges(self)
        if self.window is not None:
            object.__setattr__(self, "window", check_duration("window", self.window))
        if self.unbiased and not self.edge_weights:
            raise InputError(
                "an unbiased estimate needs the edges' weights",
                "unbiased=True, edge_weights=False",
                "Give edge_weights=True too.",
            )

    @property
    def by_node(self) -> bool:
        return self.importance == 0

    def init(self, graph: Graph) -> Hubs:
        """See `Sampler`. For LABOR-0 the state of a graph with nodes of many neighbours is an
        index of their edges, `jgs.sampling.algorithms.labor.HubEdges`. With ()
        in its place the draws are the same, and take more time. Draws by relation and under
        cutoffs have no use for it."""
        check_graph(graph, False)
        by_relation = self._draws_relations(graph)
        return hubs_of(graph) if self.by_node and not by_relation else ()

    def _most_edges(self, hop: int, shape: GraphShape, targets: int, repeated: int) -> int:
        # A row may draw all its neighbours, whatever its fanout.
        most = shape.num_edges + repeated * (shape.max_degree or 0)
        return most if shape.max_degree is None else min(most, targets * shape.max_degree)

    def step_keys(self, epoch_key_data: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """With a `period` above 1 uint32 `[n, 5]`: the key
        of the step's group, the key of the next group, and the part of the period that has
        passed, in units of 2**-32."""
        if self.period == 1:
            return step_key_data(epoch_key_data, steps)
        group, passed = np.divmod(np.asarray(steps, np.int64), self.period)
        phase = ((passed << 32) // self.period).astype(np.uint32)
        now, after = (step_key_data(epoch_key_data, group + i) for i in (0, 1))
        return np.concatenate([now, after, phase[:, None]], axis=1)

    def _reads(self, graph: Graph, state: Any) -> Hubs:
        if not isinstance(state, HubEdges):
            return ()
        check_indptr(state.indptr, graph)
        by_relation = not all(isinstance(k, int) for k in self.fanouts)
        return state if self.by_node and not by_relation else ()

    def _key_data(self, key: Any, shape: tuple[int, ...]) -> jax.Array:
        """The key's data, which may be one of the `step_keys`. With any other key the batch
        depends on no other batch, whatever the period."""
        is_step_key = self.period > 1 and getattr(key, "shape", None) == (*shape, 5)
        if is_step_key and key.dtype == jnp.uint32:
            return jnp.asarray(key)
        return super()._key_data(key, shape)
