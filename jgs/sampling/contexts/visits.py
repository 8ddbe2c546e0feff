"""`ByVisits`: contexts of the nodes that random walks with restart visit most."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jgs import kernels
from jgs.arrays import aligned_empty
from jgs.errors import InputError
from jgs.graph import Graph, as_device
from jgs.graph.rows import row_chunks
from jgs.kernels.call import call, vary_alike, where_it_is
from jgs.sampling.algorithms.walk import Walk
from jgs.sampling.base import State
from jgs.sampling.checks import require_int
from jgs.sampling.contexts.way import Found, Way
from jgs.sampling.edges.eligible import bad_excluded
from jgs.sampling.edges.hops import longs_or_empty
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import kernel_arguments, paths

_COUNT_BITS = 24  # of RowTime in jgs/kernels/walk.h
_STEPS_AT_ONCE = 1 << 20  # of the plain form, whose temporaries are some hundred bytes a step


class VisitState(NamedTuple):
    """What contexts by visits read beside the graph.

    Fields:
      walk: the state of the `Walk`.
      rows: int64 `[N+1, 2]`: where the edges of each node begin, times 2**24, plus their
        number, or 2**24 - 1 if there are more; and the time of the latest one. The kernel does
        not read the times of a row whose latest edge is before the cutoff, and refuses rows of
        another graph if a seed's row tells. It takes 16 bytes a node. () where edges have no
        times, where steps have a `window` or draw by weight, and where rows have room. With ()
        in its place the draws are the same.
    """

    walk: State
    rows: jax.Array | tuple[()]


def _row_times(graph: Graph) -> np.ndarray:
    """The `rows` of a `VisitState`. It reads the times once, in pieces."""
    indptr, times = np.asarray(graph.indptr), np.asarray(graph.edge_time)
    rows = aligned_empty(2 * indptr.size, np.int64).reshape(-1, 2)
    rows[:, 0], rows[:, 1] = indptr << _COUNT_BITS, np.iinfo(np.int64).min
    rows[:-1, 0] |= np.minimum(np.diff(indptr), (1 << _COUNT_BITS) - 1)
    for first, stop in row_chunks(indptr):
        some = first + np.flatnonzero(np.diff(indptr[first : stop + 1]))
        if some.size:
            begin, end = indptr[first], indptr[stop]
            rows[some, 1] = np.maximum.reduceat(times[begin:end], indptr[some] - begin)
    return rows


@dataclass(frozen=True)
class ByVisits(Way):
    """The nodes that `num_walks` random walks with restart from the seed visit most (Tong et
    al. 2006; for transformers over rows of tables: Ranjan et al. 2025).

    The walks of a seed are those of `Walk(length, weighted, restart, window=window)` from
    `num_walks` roots that are the seed with its cutoff. A visit is a step that ends at another
    node than the seed. It has a hop: the number of steps since the walk was last at the seed.

    A node's first visit is the one of the smallest hop; among those, the one of the walk with
    the smallest number; among those, the earliest. `hop`, `parent` and `edge` are those of the
    first visit. Nodes with more visits come first; among nodes visited equally often, those
    with the earlier first visit. The kernel keeps 12 bytes for each step of a seed's walks, for
    each thread.

    Fields:
      num_walks: the number of walks of a seed.
      length: the number of steps of a walk.
      restart: the probability, before each step but the first, that the walk jumps back to the
        seed. The jump takes the place of the step, also at a dead end.
      weighted: whether a step draws in proportion to `graph.edge_weight` instead of uniformly.
      window: for seeds with times: every step follows an edge with
        `cutoff - window <= time < cutoff`. None: any edge before the cutoff.

    The state that `init` returns is a `VisitState`. Raises `InputError` for fields that
    break these rules, and for 2**31 steps or more of a seed.
    """

    num_walks: int
    length: int
    restart: float = 0.0
    weighted: bool = False
    window: int | None = field(default=None, kw_only=True)

    takes_excluded = takes_time = by_relation = True

    def __post_init__(self) -> None:
        walk = self._walk
        for name in ("length", "restart", "weighted", "window"):
            object.__setattr__(self, name, getattr(walk, name))
        object.__setattr__(self, "num_walks", require_int("num_walks", self.num_walks, 1))
        if self.num_walks * self.length >= 2**31:
            raise InputError(
                "num_walks times length must be below 2**31",
                self.num_walks * self.length,
                "Make fewer or shorter walks.",
            )

    @property
    def _walk(self) -> Walk:
        return Walk(self.length, self.weighted, self.restart, window=self.window)

    def init(self, graph: Graph) -> VisitState:
        walk = self._walk.init(graph)
        read = graph.edge_time is not None and self.window is None and not self.weighted
        if not read or graph.has_room:
            return VisitState(walk, ())
        return VisitState(walk, as_device(_row_times(graph)))

    def check_state(self, graph: Graph, state: Any) -> None:
        fits = isinstance(state, VisitState)
        shape = getattr(state.rows, "shape", (0,)) if fits else ()
        if shape != (0,) and (graph.has_room or shape != (graph.num_nodes + 1, 2)):
            raise InputError(
                "contexts by visits read the state that init returns for the graph",
                f"rows of shape {list(shape)}" if fits else type(state).__name__,
                "Call sampler.init(graph).",
            )
        self._walk.check_state(graph, state.walk)

    def find(
        self, key_data: jax.Array, graph: Graph, state: State, seeds: Seeds, size: int
    ) -> Found:
        """See `Way.find`. Raises `InputError` where the walks from these seeds need another
        state."""
        self._walk.check_seeds(graph, state.walk, seeds)
        forms = (partial(form, way=self, size=size) for form in (find_kernel, find_plain))
        return where_it_is(*forms, *vary_alike(key_data, graph, state, seeds))


def find_kernel(
    key_data: jax.Array, graph: Graph, state: VisitState, seeds: Seeds, way: ByVisits, size: int
) -> Found:
    """The result of `find_plain`, by jgs/kernels/context_visits.cc. It fails for seeds that are
    neither nodes nor `N`."""
    edges, attributes = kernel_arguments(graph, state.walk, seeds, way._walk)
    limits = longs_or_empty(seeds.time), longs_or_empty(seeds.excluded)
    names = ("length", "weighted", "restart", "window")
    attributes = {name: attributes[name] for name in names}
    attributes["num_walks"] = np.int64(way.num_walks)
    (indptr, indices, prefix, _, edge_time, *_, index, runs) = edges
    shape = (seeds.nodes.shape[0], size)
    out = [jax.ShapeDtypeStruct(shape, kind) for kind in (jnp.int32,) * 3 + (jnp.int64,)]
    rows = jnp.reshape(jnp.asarray(state.rows, jnp.int64), (-1, 2))
    operands = (indptr, indices, prefix, edge_time, index, runs, rows, seeds.nodes, *limits)
    return Found(
        *call(
            "jgs_context_visits", out, (key_data, *operands), kernels.NUM_THREADS, **attributes
        )
    )


def find_plain(
    key_data: jax.Array, graph: Graph, state: VisitState, seeds: Seeds, way: ByVisits, size: int
) -> Found:
    """What `ByVisits.find` returns. Seeds that are no nodes are padding, and all are where the
    excluded edges do not ascend."""
    bad = (seeds.nodes < 0) | (seeds.nodes > graph.num_nodes)
    if seeds.excluded is not None:
        bad |= bad_excluded(seeds.excluded, graph.num_edges)
    nodes = jnp.where(bad, graph.num_nodes, seeds.nodes)

    def one(seed: tuple[jax.Array, jax.Array | None]) -> Found:
        root, time = (None if a is None else jnp.full(way.num_walks, a) for a in seed)
        of = Seeds.tree_unflatten(None, (root, time, seeds.excluded))
        return _of_walks(key_data, graph, state, of, way, size)

    at_once = max(1, _STEPS_AT_ONCE // (way.num_walks * way.length))
    return jax.lax.map(one, (nodes, seeds.time), batch_size=at_once)


def _of_walks(
    key_data: jax.Array, graph: Graph, state: VisitState, roots: Seeds, way: ByVisits, size: int
) -> Found:
    """The context of one seed, which is all `roots`."""
    num_nodes, seed, most = graph.num_nodes, roots.nodes[0], way.num_walks * way.length
    number = jnp.arange(way.num_walks, dtype=jnp.int32)
    nodes, edges = paths(key_data, graph, state.walk, roots, way._walk, number)
    step = jnp.arange(way.length + 1, dtype=jnp.int32)
    last = jax.lax.cummax(jnp.where(nodes == seed, step, 0), axis=1)
    visited = jnp.where(nodes == seed, num_nodes, nodes)[:, 1:].reshape(-1)
    hop = (step - last)[:, 1:].reshape(-1)
    place = jnp.arange(most, dtype=jnp.int32)
    # The visits to each node follow each other, the first one first.
    visited, hop, place = jax.lax.sort((visited, hop, place), num_keys=3)
    starts = jnp.concatenate([jnp.ones(1, bool), visited[1:] != visited[:-1]])
    slot = jnp.arange(most, dtype=jnp.int32)
    after = jax.lax.cummin(jnp.where(starts, slot, most), reverse=True)
    after = jnp.concatenate([after[1:], jnp.full_like(after[:1], most)])
    count = jnp.where(starts & (visited < num_nodes), after - slot, 0)
    count, hop, place, visited = jax.lax.sort((-count, hop, place, visited), num_keys=3)
    real = count < 0

    def column(of_seed: Any, values: jax.Array, fill: int) -> jax.Array:
        first = jnp.where(seed < num_nodes, of_seed, fill).astype(values.dtype)
        found = jnp.where(real, values, fill)[: size - 1]
        room = jnp.full(max(0, size - 1 - most), fill, values.dtype)
        return jnp.concatenate([first[None], found, room])

    return Found(
        nodes=column(seed, visited, num_nodes),
        hop=column(0, hop, 0),
        parent=column(num_nodes, nodes[:, :-1].reshape(-1)[place], num_nodes),
        edge=column(graph.num_edges, edges.reshape(-1)[place], graph.num_edges),
    )
