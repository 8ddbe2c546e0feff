"""Walks of first order: `Walk`, uniform, by edge weight or by recency, with restart; and
`Metapath`, along relations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from jgs.arrays import require_array
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.grouping import RelationIndex, index_of
from jgs.graph.schema import Relation
from jgs.options import LONGEST, Option
from jgs.sampling import checks
from jgs.sampling.algorithms.neighbors import runs_of
from jgs.sampling.base import Weighted
from jgs.sampling.edges.eligible import Eligible, before_cutoff, holes_of, of_relation, rows_of
from jgs.sampling.edges.random import node_bits
from jgs.sampling.edges.recency import Decayed, decayed_sums
from jgs.sampling.hopwise import check_indptr
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    JUMPS,
    LENGTH,
    Causal,
    Place,
    Rule,
    Walker,
    check_fields,
    check_probability,
    drawn_edge,
    edge_of_runs,
    eligible_of,
    happens,
    relation_path,
    step_halves,
)
from jgs.settings import exact_integers


@dataclass(frozen=True, repr=False)
class Walk(Walker):
    """Walks whose every step draws one of the node's in-neighbours.

    DeepWalk (Perozzi et al. 2014, section 4.1) makes such walks. With `restart` they are random
    walks with restart (Tong et al. 2006). With `causal` they are those of CTDNE (Nguyen et al.
    2018, section 3), read from their ends. Returns `Walks`; `Walker` says what a walk depends
    on, and how cutoffs hold.

    Fields:
      length: the largest number of steps of a walk.
      weighted: whether a step draws in proportion to `graph.edge_weight` instead of uniformly.
        A node whose edges all have weight 0 is then a dead end.
      restart: the probability, before each step but the first, that the walk jumps back to its
        root. The jump takes the place of the step, also at a dead end. The cutoff is then the
        root's again.
      stop: the probability, before each step but the first, that the walk ends. It is decided
        before `restart`. DGL's `restart_prob` is this probability.

      causal: for roots with times (`Seeds.time`): whether the times fall along a walk, see
        `Walker`.
      window: for roots with times: every step follows an edge with
        `cutoff - window <= time < cutoff`, where the cutoff is the step's. None: any edge
        before the cutoff.
      latest: for roots with times: a step draws from that many latest edges before its cutoff.
        None: from all.
      half_life: for roots with times: a step draws in proportion to `2**(-age / half_life)`,
        where an edge's age is the time from it to the step's cutoff. CTDNE's exponential bias
        is this one. The law is exact as far as that of `Neighbors` is. The state that `init`
        returns is then int64 `[E]`. None: age does not matter.

    Steps do not follow excluded edges (`Seeds.excluded`). In a graph of several relations a
    step draws among the node's edges of all relations together, by the position of an eligible
    edge in the row. If the edges have times, the state that `init` returns is a
    `RelationIndex`, of 8 bytes a node and 8 bytes for each relation that a node has edges of.
    There `latest` and `half_life` are refused for roots with times.

    Raises `InputError` for a length below 1, for a number that is not a probability, and for
    two of `weighted`, `latest` and `half_life`.
    """

    length: Annotated[int, LENGTH]
    weighted: Weighted = False
    restart: float = 0.0
    stop: float = 0.0
    window: int | None = field(default=None, kw_only=True)
    latest: int | None = field(default=None, kw_only=True)
    half_life: Annotated[
        int | None,
        Option(
            "the age, before each step's cutoff, at which an edge is drawn half as often",
            least=1,
            most=LONGEST,
        ),
    ] = field(default=None, kw_only=True)
    causal: Causal = field(default=False, kw_only=True)

    takes_excluded = takes_time = True
    later_fields = ("window", "latest", "half_life", "causal")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.half_life is not None:
            object.__setattr__(
                self, "half_life", checks.check_duration("half_life", self.half_life)
            )
        if self.latest is not None:
            object.__setattr__(self, "latest", checks.require_int("latest", self.latest, 1))
        ways = (self.weighted, self.latest is not None, self.half_life is not None)
        if sum(ways) > 1:
            raise InputError(
                "a step must draw by weight, or by recency, or from the latest edges",
                f"weighted={self.weighted}, latest={self.latest}, half_life={self.half_life}",
                "Leave out the others.",
            )
        for name in ("restart", "stop"):
            object.__setattr__(self, name, check_probability(name, getattr(self, name)))

    @property
    def by_relation(self) -> bool:
        """Whether it draws for roots with times in a graph of several relations."""
        return self.latest is None and self.half_life is None

    def init(self, graph: Graph) -> jax.Array | RelationIndex | tuple[()]:
        """The state is described above."""
        checks.check_graph(graph, self.weighted)
        if self.half_life is None:
            timed = graph.edge_time is not None and checks.has_relations(graph)
            return index_of(graph) if timed and self.by_relation else ()
        checks.check_has_times(graph)
        return decayed_sums(graph, self.half_life)

    def check_state(self, graph: Graph, state: Any) -> None:
        shape = getattr(state, "shape", None)
        if self.half_life is not None and shape != jnp.shape(graph.indices):
            raise InputError(
                "walks by recency read the state that init returns for the graph",
                repr(state) if shape is None else f"one of shape {list(shape)}",
                "Call walker.init(graph).",
            )
        if isinstance(state, RelationIndex):
            check_indptr(state.indptr, graph)

    def check_seeds(self, graph: Graph, state: Any, seeds: Seeds) -> None:
        super().check_seeds(graph, state, seeds)
        by_index = seeds.time is not None and checks.has_relations(graph)
        if by_index and (graph.schema is None or not isinstance(state, RelationIndex)):
            raise InputError(
                "walks from roots with times in a graph of several relations need its schema, "
                "and the state that init returns for the graph",
                "a graph without a schema" if graph.schema is None else type(state).__name__,
                "Make the graph with Graph.from_relations, and call walker.init(graph).",
            )

    def kernel_reads(self, graph: Graph, state: Any) -> dict[str, Any]:
        if self.half_life is not None:
            return {"sums": state}
        return {"index": state} if isinstance(state, RelationIndex) else {}

    def rule(self, graph: Graph, state: Any, seeds: Seeds) -> Rule:
        def step(keys: jax.Array, at: Place) -> jax.Array:
            of, bits = seeds.replace(time=at.cutoff), node_bits(keys, at.step, 0)
            if isinstance(state, RelationIndex) and at.cutoff is not None:
                runs = runs_of(graph, state, at.here)
                each = runs.nodes.shape[0] // at.here.shape[0]
                cutoff = jnp.repeat(at.cutoff, each)
                runs = before_cutoff(graph, runs, cutoff, self.window)
                runs = holes_of(runs, seeds.excluded)
                return edge_of_runs(graph, runs, bits, self.weighted)
            rows = eligible_of(graph, at.here, of, self.window)
            if self.half_life is None or graph.num_edges == 0:
                return drawn_edge(graph, rows, bits, self.weighted, self.latest)
            assert graph.edge_time is not None
            by = Decayed(rows, state, graph.edge_time, self.half_life)
            return jnp.where(by.some, by.drawn(bits), graph.num_edges)

        return step

    def jump(
        self, graph: Graph, seeds: Seeds, keys: jax.Array, at: Place, step: tuple[Any, Any]
    ) -> tuple[Any, Any]:
        if self.restart == self.stop == 0:
            return step
        there, cutoff = step
        back, end = step_halves(keys, at.step, JUMPS)
        walks = (at.here < graph.num_nodes) & (at.step > 1)
        back = walks & happens(back, self.restart)
        there = jnp.where(back, seeds.nodes, there)
        cutoff = None if cutoff is None else jnp.where(back, seeds.time, cutoff)
        return jnp.where(walks & happens(end, self.stop), graph.num_nodes, there), cutoff


@dataclass(frozen=True, repr=False)
class Metapath(Walker):
    """Walks whose steps draw among the neighbours along a relation (metapath2vec, Dong et al.
    2017, section 3.2.2).

    A step along the relation `(a, name, b)` goes from a node of type `b` to one of type `a`,
    because a node's row has the sources of its in-edges. With `both_ways` in
    `Graph.from_relations` the way back is the relation `(b, "rev_" + name, a)`. A walk from a
    node whose type is not the target type of the first relation ends at once. Steps do not
    follow excluded edges (`Seeds.excluded`). Returns `Walks`; `Walker` says what a walk depends
    on, and how cutoffs hold.

    Fields:
      relations: the relation of each step, in the forms of `Schema.relation`: triples, or names
        that only one relation has. Longer walks repeat the sequence.
      length: the largest number of steps of a walk. None: the number of relations.
      weighted: whether a step draws in proportion to `graph.edge_weight` instead of uniformly.
      window, causal: for roots with times (`Seeds.time`), see `Walker`.

    `init` and `sample` raise `InputError` for a graph without a schema, for relations that it
    does not have, and for a relation that does not continue where the one before it leads.
    """

    relations: tuple[str | Relation, ...]
    length: int = None  # type: ignore[assignment]  # always an int after __post_init__
    weighted: bool = False
    window: int | None = field(default=None, kw_only=True)
    causal: bool = field(default=False, kw_only=True)

    takes_excluded = takes_time = by_relation = True
    later_fields = ("window", "causal")

    @classmethod
    def from_options(
        cls,
        relations: Annotated[
            tuple[str, ...], Option("relations that the steps go along in turn")
        ] = (),
        length: Annotated[int, LENGTH] = 80,
        weighted: Weighted = False,
        causal: Causal = False,
    ) -> Metapath:
        """How a command makes the walker."""
        if not relations:
            raise InputError(
                "--sampler metapath must have --relations, which its steps go along in turn",
                "none",
                "Give e.g. --relations rev_buys buys.",
            )
        return cls(relations, length, weighted, causal=causal)

    def __post_init__(self) -> None:
        given: Any = self.relations
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise InputError(
                "relations must be names or triples, one a step",
                repr(given),
                'Give a tuple such as ("writes", "rev_writes").',
            )
        path = tuple(one if isinstance(one, str) else tuple(one) for one in given)
        object.__setattr__(self, "relations", path)
        if self.length is None:
            object.__setattr__(self, "length", len(self.relations))
        check_fields(self)

    def init(self, graph: Graph) -> jax.Array:
        """int64 `[U, N, 2]`: for each of the `U` different relations and each node, where the
        node's edges of that relation begin, and their number."""
        checks.check_graph(graph, self.weighted)
        different, _ = _path(self, graph)
        with exact_integers():
            return _stretches(graph, different)

    def check_state(self, graph: Graph, state: Any) -> None:
        sizes = {"U": len(_path(self, graph)[0]), "N": graph.num_nodes}
        remedy = "Give what `init` returned for this graph."
        require_array("the state", state, "int64 [U, N, 2]", remedy, **sizes)

    def kernel_reads(self, graph: Graph, state: Any) -> dict[str, Any]:
        return {"stretches": state, "relations": _path(self, graph)[1]}

    def rule(self, graph: Graph, state: Any, seeds: Seeds) -> Rule:
        turns = jnp.array(_path(self, graph)[1])

        def step(keys: jax.Array, at: Place) -> jax.Array:
            turn = turns[(at.step - 1) % len(turns)]
            part = state.at[turn, at.here].get(mode="fill", fill_value=0)
            row, _ = rows_of(graph.indptr, at.here)
            rows = Eligible(at.here, row, part[:, 0], part[:, 1], part[:, 1])
            if at.cutoff is not None:
                rows = before_cutoff(graph, rows, at.cutoff, self.window)
            rows = holes_of(rows, seeds.excluded)
            return drawn_edge(graph, rows, node_bits(keys, at.step, 0), self.weighted)

        return step


@partial(jax.jit, static_argnums=1)
def _stretches(graph: Graph, relations: tuple[int, ...]) -> jax.Array:
    nodes = jnp.arange(graph.num_nodes)
    rows = eligible_of(graph, nodes, Seeds(nodes))
    found = (of_relation(graph, rows, relation) for relation in relations)
    return jnp.array([(one.start, one.length) for one in found]).mT


def _path(walker: Metapath, graph: Graph) -> tuple[tuple[int, ...], list[int]]:
    """The different edge types of the steps, along the first axis of the state; and the index
    of each step's among them. Raises `InputError`."""
    steps = [walker.relations[i % len(walker.relations)] for i in range(walker.length)]
    relation_path(graph, steps[: len(walker.relations) + 1])  # also the first after the last
    path = relation_path(graph, walker.relations)
    different = tuple(dict.fromkeys(path))
    return different, [different.index(relation) for relation in path]
