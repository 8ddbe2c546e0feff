"""`MatrixSampler`: a sampler made of a matrix program, which runs layer by layer.

Everything that a program computes of the graph alone is computed once (gSampler, SOSP 2023,
section 4.2). The program is traced to a jaxpr, and its equations are divided in two. Those that
depend on the graph alone run once, in the sampler's `init`; their results are the sampler's
state. The others run for every batch. The user marks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Block, Extras, Graph, MiniBatch
from jgs.kernels.call import vary_alike
from jgs.sampling.algorithms.neighbors import Neighbors
from jgs.sampling.base import Adaptive, Sampler, Sizes
from jgs.sampling.capacity import Capacity, GraphShape
from jgs.sampling.checks import check_call, check_graph, refuse_state
from jgs.sampling.edges.columns import check_edges, ids_needed, with_columns
from jgs.sampling.edges.hops import Sample, bad_seeds, empty_if
from jgs.sampling.edges.random import as_key_data
from jgs.sampling.fanouts import check_layer_sizes
from jgs.sampling.matrix.edge_arrays import clipped, distinct, expand
from jgs.sampling.matrix.entries import Room, more, to_block
from jgs.sampling.matrix.matrix import Matrix
from jgs.sampling.seeds import Seeds
from jgs.settings import exact_integers


@dataclass(frozen=True, repr=False)
class MatrixSampler(Sampler):
    """A sampler written as a matrix program: a subclass has one method, `layer`.

        @dataclass(frozen=True)
        class Ladies(MatrixSampler):
            def layer(self, A, frontier, k):
                sub = A[:, frontier]
                sample = sub.collective_sample(k, (sub ** 2).sum(axis=1))
                return sample.div(sample.row_probs, axis=1)

    At every layer, from the seeds on, `layer` selects edges into the frontier. The nodes known
    so far and the newly selected ones are the next frontier. The class keeps the whole contract
    `jgs.sampling.Sampler`.

    Fields:
      sizes: the `k` of every layer, the seeds' hop first.
      weighted: whether the values of `A` are the graph's `edge_weight`; otherwise they are 1.
      edges: as in `Neighbors`.
      edge_ids: whether the blocks carry `edge_id`.
      compact: the layout of slices of `A`, see `Matrix`; `choose_layout` finds the faster one.
        It changes no sample.
      stored: whether what a program makes of the edge values of the whole `A`, and slices
        later, is computed once, in `init`: the field `store` of `Matrix`. The state then has 4
        bytes an edge for each such product. `choose_stored` finds out what is faster.

    Edge weights: if the returned matrix has values other than the graph's own, the blocks carry
    them, multiplied by the number of the row's edges. `aggregate(block, x, "mean")` is then the
    sum of the values times the features. So a program gives each edge its weight in the mean
    over all neighbours. If the returned matrix has a column for each relation
    (`Matrix.by_relation`), the values are multiplied by the number of edges of the same
    relation: the same then holds for a mean over the drawn edges of one relation.

    Arrays of a sampler's own, such as learned weights, are its state. They are never its
    attributes: equal samplers share one compiled program. The method `arrays` returns the first
    ones, and `layer` takes the state as its last argument. Other weights are another state.
    `docs/guides/own_sampler.md` has an example.

    A class whose `layer` draws with replacement must have `repeats = True`. An edge may then be
    drawn up to `k` times, and `bound` has room for that. A class with `sizes_by_type = True`
    takes for a size also a dict by node type, which `collective_sample` takes as its `k`.

    Excluded edges (`Seeds.excluded`) are in no slice of columns: what a program computes of
    `A[:, frontier]`, and draws from it, is that of the graph without them. What it computes of
    the whole `A` counts them.

    A capacity has two entries for each layer: the edges of the slices that `layer` reads, with
    the nodes of the frontier; and the edges that it selects, with the nodes known afterwards.
    """

    sizes: Sizes
    weighted: bool = False
    edge_ids: bool = field(default=False, repr=False, kw_only=True)
    compact: bool = field(default=False, repr=False, kw_only=True)
    stored: bool = field(default=False, repr=False, kw_only=True)
    edges: tuple[str, ...] = field(default=(), repr=False, kw_only=True)

    repeats = False
    sizes_by_type = False
    takes_excluded = True

    @property
    def num_hops(self) -> int:
        return len(self.sizes)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", check_layer_sizes(self.sizes, self.sizes_by_type))
        check_edges(self)
        for name in ("weighted", "edge_ids", "compact", "stored"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        if self.stored and self.has_arrays:
            raise InputError(
                "a sampler with arrays of its own stores nothing that it computes of the graph",
                f"stored=True for {type(self).__name__}",
                "Leave stored out, or have arrays(graph) return the product.",
            )

    @property
    def has_arrays(self) -> bool:
        """Whether the class has the method `arrays`."""
        return type(self).arrays is not MatrixSampler.arrays

    def layer(self, A: Matrix, frontier: jax.Array, k: int, *arrays: Any) -> Matrix:
        """The edges drawn into `frontier`: a matrix whose columns are `frontier`.

        Args:
          A: the graph, with the batch's key.
          frontier: int32 `[C]`, distinct nodes in ascending order, then `N` as padding. What is
            drawn is therefore a function of the frontier as a set.
          k: int, the layer's size.
          arrays: the state, if the class has the method `arrays`; else there is none.
        """
        raise NotImplementedError("a MatrixSampler has a method layer(A, frontier, k)")

    def arrays(self, graph: Graph) -> Any:
        """The sampler's own arrays as they are at first, a pytree of `graph` and the fields
        alone; None: it has none."""
        return None

    def init(self, graph: Graph) -> Any:
        """The sampler's own arrays. If it has none: for each layer a tuple of arrays, what its
        program computes of the graph alone. A sampler with arrays computes that for every
        batch."""
        check_graph(graph, self.weighted)
        if (arrays := self.arrays(graph)) is not None:
            return jax.tree.map(jnp.asarray, arrays)
        state = prepared(graph, self)
        return () if not jax.tree.leaves(state) else _shared(state)

    def bound(self, shape: GraphShape, batch_size: int, distinct: bool = False) -> Capacity:
        most = shape.max_degree
        repeated = 0 if distinct else (batch_size - 1) * (most or 0)
        edges, sources, nodes = [], [], batch_size
        for k in self.sizes:
            looked, selected = shape.num_edges, shape.num_edges + repeated
            if most is not None:
                looked, selected = (min(e, nodes * most) for e in (looked, selected))
            if self.repeats and k != -1:
                selected = nodes * k if looked else 0
            sources.append(nodes)
            nodes = min(nodes + selected, shape.num_nodes + batch_size)
            sources.append(nodes)
            edges += [looked, selected]
        return Capacity(tuple(edges), tuple(sources))

    def sample(
        self, key: Any, graph: Graph, state: Any, seeds: Any, capacity: Capacity | None = None
    ) -> MiniBatch:
        if any(isinstance(x, jax.Array | np.ndarray) for x in jax.tree.leaves(vars(self))):
            raise InputError(
                "the attributes of a sampler must not be arrays, which are its state",
                f"{type(self).__name__} with {', '.join(vars(self))}",
                "Return them from arrays(graph); layer(A, frontier, k, state) has them.",
            )
        arrays = None
        if self.has_arrays:
            if not jax.tree.leaves(state):
                raise InputError(
                    f"{type(self).__name__} must be given its arrays",
                    f"the state {state!r}",
                    "Give what sampler.init(graph) returned, or a state like it.",
                )
            arrays = jax.tree.map(jnp.asarray, state)  # else NumPy's 64 bits would stay 64
            state = ()
        elif jax.tree.leaves(state):
            layers = state if isinstance(state, tuple) else ()
            if len(layers) != len(self.sizes) or not all(isinstance(a, tuple) for a in layers):
                refuse_state(state)
        check_graph(graph, self.weighted)
        checked, capacity = check_call(self, graph, seeds, capacity, 2 * len(self.sizes))
        remedy = "Draw several under jax.vmap, with a key each."
        require_array("the seeds of one batch", checked.nodes, "[B]", remedy)
        given = vary_alike(as_key_data(key), graph, checked, arrays)
        with exact_integers():  # edge offsets are 64-bit, whatever the caller's setting
            blocks, nodes, overflow, needed, _ = _sample(*given, state, self, capacity)
        blocks = tuple(blocks[::-1])
        extras = Extras(excluded=checked.excluded if isinstance(self, Adaptive) else None)
        batch = MiniBatch.drawn(
            checked.nodes,
            nodes,
            blocks,
            overflow,
            graph.num_nodes,
            needed=needed,
            extras=extras,
        )
        return with_columns(batch, graph, self)


@partial(jax.jit, static_argnums=(5, 6))
def _sample(
    key_data: jax.Array,
    graph: Graph,
    seeds: Seeds,
    arrays: Any,
    prepared: Any,
    sampler: MatrixSampler,
    capacity: Capacity,
) -> Sample:
    num_nodes, num_edges = graph.num_nodes, graph.num_edges
    if not sampler.weighted:
        graph = graph.unweighted()
    hops, edges = range(len(sampler.sizes)), [max(size, 1) for size in capacity.edges]
    rooms = [Room(*edges[2 * h : 2 * h + 2]) for h in hops]
    programs = [_program(sampler, h, rooms[h], arrays) for h in hops]
    if neighbors := _as_neighbors(programs, graph, key_data, ids_needed(sampler)):
        return _fused(neighbors, key_data, graph, seeds, capacity)
    nodes, bad = seeds.nodes, bad_seeds(seeds, num_nodes, num_edges)
    overflow, blocks, needed = bad, [], []
    nodes = jnp.where(bad, num_nodes, nodes)
    slot = jnp.arange(nodes.shape[0], dtype=jnp.int32)
    known = jnp.max(slot + 1, initial=0, where=nodes < num_nodes)
    for h in hops:
        selected = capacity.edges[2 * h + 1]
        columns, sources = capacity.sources[2 * h : 2 * h + 2]
        overflow |= known > columns
        needed.append([jnp.int32(0), jnp.where(overflow & (known <= columns), 0, known)])
        frontier = distinct(jnp.where(overflow, num_nodes, nodes), columns, num_nodes)
        program = programs[h]
        if prepared:
            program = partial(each_time, program, prepared[h])
        drawn = program(graph, key_data, frontier, seeds.excluded)
        block, nodes, edges_needed = to_block(drawn.joined(), nodes, sources)
        needs = more(drawn.needs)
        missed = needs.overflow | (edges_needed > selected) | (needs.selected > selected)
        edges_needed = jnp.maximum(clipped(edges_needed), needs.selected)
        before = overflow
        needed[-1][0] = jnp.where(before, 0, needs.looked)
        known = block.num_sources
        needed.append(
            [jnp.where(before, 0, edges_needed), jnp.where(before | missed, 0, known)]
        )
        overflow = before | missed | (known > sources)
        blocks.append(_finished(block, drawn, sampler))
    blocks = [empty_if(overflow, block, num_edges) for block in blocks]
    need = jnp.where(bad, -1, jnp.stack([jnp.stack(n) for n in needed], axis=1))
    return blocks, jnp.where(overflow, num_nodes, nodes), overflow, need.astype(jnp.int32), None


def _program(
    sampler: MatrixSampler, h: int, room: Room, arrays: Any = None
) -> Callable[..., Matrix]:
    fixed: dict[str, Any] = {"layer": h, "room": room}
    fixed |= {"compact": sampler.compact, "store": sampler.stored}

    def program(
        graph: Graph, key_data: jax.Array, frontier: jax.Array, excluded: Any = None
    ) -> Matrix:
        A = Matrix(graph, None, key_data, excluded=excluded, **fixed)
        k, given = sampler.sizes[h], () if arrays is None else (arrays,)
        drawn = sampler.layer(A, frontier, k, *given)
        if drawn.repeats > (k if sampler.repeats else 0):
            raise InputError(
                "a program that draws with replacement must say so, and draw k a column",
                f"{drawn.repeats} draws by {type(sampler).__name__} of size {k}, "
                f"repeats={sampler.repeats}",
                "Write repeats = True in the class, and give the layer that size.",
            )
        if excluded is not None and drawn.columns is None:
            drawn = drawn[:, frontier]  # drops what was drawn among all edges
        if drawn.relations and drawn.has_own_values:
            drawn = drawn.mul(drawn.count(axis=0), axis=0)
        return drawn.ready()

    return program


def prepared(graph: Graph, sampler: MatrixSampler) -> tuple[tuple[jax.Array, ...], ...]:
    """For each layer what its program computes of the graph alone."""
    with exact_integers():
        return _prepared(graph, sampler)


@partial(jax.jit, static_argnums=1)
def _prepared(graph: Graph, sampler: MatrixSampler) -> tuple[tuple[jax.Array, ...], ...]:
    if not sampler.weighted:
        graph = graph.unweighted()
    key_data = jax.ShapeDtypeStruct((2,), jnp.uint32)
    frontier = jax.ShapeDtypeStruct((1,), jnp.int32)
    programs = [_program(sampler, h, Room(1, 1)) for h in range(len(sampler.sizes))]
    return tuple(tuple(once(p, graph, key_data, frontier)) for p in programs)


def _shared(state: tuple[tuple[jax.Array, ...], ...]) -> Any:
    """The state, with one copy of the arrays where all layers have equal ones."""
    first = state[0]

    def like_first(layer: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        same = len(layer) == len(first) and all(
            a.shape == b.shape and a.dtype == b.dtype and bool((a == b).all())
            for a, b in zip(layer, first, strict=True)
        )
        return first if same else layer

    return tuple(map(like_first, state))


def _finished(block: Block, drawn: Matrix, sampler: MatrixSampler) -> Block:
    weight = block.edge_weight if drawn.has_own_values else None
    if weight is not None and not drawn.relations:  # else the program has counted them
        count = jnp.diff(block.indptr).astype(jnp.float32)
        targets = jnp.arange(count.shape[0], dtype=jnp.int32)
        _, row, _, _ = expand(block.indptr, targets, weight.shape[0])
        weight = weight * count.at[row].get(mode="clip")
    edge_id = block.edge_id if ids_needed(sampler) else None
    return replace(block, edge_weight=weight, edge_id=edge_id)


def _as_neighbors(
    programs: Sequence[Callable[..., Any]], graph: Graph, key_data: jax.Array, edge_ids: bool
) -> Neighbors | None:
    """The sampler of neighbours that draws what these programs draw, one program for each
    layer. None unless every program selects from the frontier's columns, by the batch's key,
    and returns the selection.

    Extract-select fusion (gSampler, SOSP 2023, section 4.2) makes one call of a slice and a
    selection from it. If every layer of a program is just that, all layers become one call
    too, which keeps its table of known nodes from layer to layer.
    """
    fanouts, ways = list[int](), set()

    def traced(program: Callable[..., Any], *arguments: Any) -> None:
        drawn = program(*arguments)
        own = zip((drawn.graph, drawn.key, drawn.columns), arguments, strict=True)
        given = drawn.layer == len(fanouts) and all(a is b for a, b in own)
        if drawn.origin and given and not drawn.has_own_values:
            fanouts.append(drawn.origin[0])
            ways.add(drawn.origin[1:])

    frontier = jax.ShapeDtypeStruct((1,), jnp.int32)
    for program in programs:
        jax.eval_shape(partial(traced, program), graph, key_data, frontier)
    if len(fanouts) < len(programs) or len(ways) > 1:
        return None
    ((replace, weighted),) = ways
    return Neighbors(tuple(fanouts), replace, weighted, edge_ids=edge_ids)


def _fused(
    neighbors: Neighbors, key_data: jax.Array, graph: Graph, seeds: Seeds, capacity: Capacity
) -> Sample:
    """The fields of a `MatrixSampler`'s sample, drawn by `neighbors`. Of the `capacity` only
    the entries of selections are used, because no slices are built."""
    selections = Capacity(capacity.edges[1::2], capacity.sources[1::2])
    batch = neighbors.sample(key_data, graph, (), seeds, selections)
    assert batch.needed is not None
    slot = jnp.arange(seeds.nodes.shape[0], dtype=jnp.int32)
    first = jnp.max(slot + 1, initial=0, where=seeds.nodes < graph.num_nodes)
    edges, sources = batch.needed
    frontiers = jnp.concatenate([jnp.where(edges[0] < 0, -1, first)[None], sources[:-1]])
    looked = jnp.where(edges < 0, -1, 0)
    needed = jnp.stack([jnp.stack([looked, edges]), jnp.stack([frontiers, sources])])
    needed = jnp.moveaxis(needed, 1, 2).reshape(2, -1)
    return list(batch.blocks[::-1]), batch.nodes, batch.overflow, needed, None


_CONSTANT, _OF_GRAPH, _OF_BATCH = range(3)


class _Split(NamedTuple):
    """A traced program: the variables that the graph's part computes and the batch's part
    reads, and what each equation depends on."""

    closed: core.ClosedJaxpr
    out_tree: Any
    kept: list[core.Var]
    owner: list[int]

    def part(self, owner: int, given: Sequence[Any], wanted: Sequence[Any]) -> Callable:
        """The equations of `owner`, and the constant ones, as a function of `given`."""
        owned = zip(self.closed.jaxpr.eqns, self.owner, strict=True)
        equations = [equation for equation, kind in owned if kind in (_CONSTANT, owner)]
        complete = self.closed.jaxpr
        names = complete.debug_info._replace(arg_names=None, result_paths=None)
        jaxpr = complete.replace(
            invars=list(given), outvars=list(wanted), eqns=equations, debug_info=names
        )
        return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, self.closed.consts))


def once(program: Callable[..., Any], graph: Any, *rest: Any) -> list[jax.Array]:
    """What `program(graph, *rest)` computes of `graph` alone. `rest` may be shapes."""
    split, leaves = _split(program, graph, *rest), jax.tree.leaves(graph)
    given = split.closed.jaxpr.invars[: len(leaves)]
    return split.part(_OF_GRAPH, given, split.kept)(*leaves)


def each_time(
    program: Callable[..., Any], kept: Sequence[jax.Array], graph: Any, *rest: Any
) -> Any:
    """The result of `program(graph, *rest)`, given what `once` computed, `kept`."""
    split = _split(program, graph, *rest)
    avals: list[Any] = [variable.aval for variable in split.kept]
    have, want = ([(a.shape, a.dtype) for a in each] for each in (kept, avals))
    if have != want:
        refuse_state(kept)
    jaxpr = split.closed.jaxpr
    run = split.part(_OF_BATCH, [*jaxpr.invars, *split.kept], jaxpr.outvars)
    return jax.tree.unflatten(split.out_tree, run(*jax.tree.leaves((graph, *rest)), *kept))


def _split(program: Callable[..., Any], graph: Any, *rest: Any) -> _Split:
    closed, shapes = jax.make_jaxpr(program, return_shape=True)(graph, *rest)
    jaxpr, num_leaves = closed.jaxpr, len(jax.tree.leaves(graph))
    of = dict.fromkeys(jaxpr.constvars, _CONSTANT)
    of |= dict.fromkeys(jaxpr.invars[:num_leaves], _OF_GRAPH)
    of |= dict.fromkeys(jaxpr.invars[num_leaves:], _OF_BATCH)
    given, owner = set(jaxpr.invars), []
    kept: dict[core.Var, None] = {}

    def keep(variables: list[Any]) -> None:
        kept.update({v: None for v in variables if of[v] == _OF_GRAPH and v not in given})

    for equation in jaxpr.eqns:
        inputs = [v for v in equation.invars if not isinstance(v, core.Literal)]
        kind = max((of[v] for v in inputs), default=_CONSTANT)
        kind = _OF_BATCH if equation.effects else kind
        owner.append(kind)
        of |= dict.fromkeys(equation.outvars, kind)
        if kind == _OF_BATCH:
            keep(inputs)
    keep([v for v in jaxpr.outvars if not isinstance(v, core.Literal)])
    return _Split(closed, jax.tree.structure(shapes), list(kept), owner)
