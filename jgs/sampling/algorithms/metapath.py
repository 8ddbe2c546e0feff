"""`Metapath`: walks on a typed graph that follow a sequence of relations."""

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
from jgs.graph.schema import Relation
from jgs.options import Option
from jgs.sampling.base import Weighted
from jgs.sampling.checks import check_graph
from jgs.sampling.edges.eligible import Eligible, before_cutoff, holes_of, of_relation, rows_of
from jgs.sampling.edges.random import node_bits
from jgs.sampling.seeds import Seeds
from jgs.sampling.walks import (
    LENGTH,
    Causal,
    Place,
    Rule,
    Walker,
    check_fields,
    drawn_edge,
    eligible_of,
    relation_path,
)
from jgs.settings import exact_integers


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
        check_graph(graph, self.weighted)
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
