"""`Schema`: the node types and relations of a typed graph, by name.

A typed graph is one `Graph`. The ids of a node type are one range, or one range in each part
of a partitioned graph. `Graph.edge_type` has the number of each edge's relation. Each row is
sorted by it, so a node's neighbours by one relation are a contiguous range of its row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jgs.arrays import refuse_where, require_array
from jgs.errors import InputError, refusing
from jgs.graph.checks import check_node_time, first_fall, integers, node_count
from jgs.graph.rows import row_chunks

Relation = tuple[str, str, str]
ALWAYS = np.iinfo(np.int64).min  # the time of a node that has always existed
_MAX_RELATIONS = 2**15  # edge types are int16
REVERSE = "reverse"
"""The edge column, bool, that marks edges which are not the data's own: a reader added them, so
that messages pass both ways."""


@dataclass(frozen=True)
class Schema:
    """The types of a graph's nodes and edges. A schema is static: it is hashable, and `jax.jit`
    compiles once for each.

    Fields:
      node_types: pairs (name, number of nodes). Ids follow this order: the ids of the first
        type begin at 0, and those of the next type follow.
      relations: triples (source type, name, target type). The edges of the first relation have
        the type 0 in `Graph.edge_type`, and so on. Names may be repeated, triples may not.
        Empty: edges have no types.
      parts: for each part of a partitioned graph, the number of nodes of each type in the part.
        Ids are then given part by part, and within a part in the order of the types. Empty for
        a graph of one part, partitioned or not.

    Lists are converted to tuples. Raises `InputError`.
    """

    node_types: tuple[tuple[str, int], ...]
    relations: tuple[Relation, ...] = ()
    parts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        try:
            types = tuple((name, node_count(count)) for name, count in self.node_types)
            relations = tuple((a, name, b) for a, name, b in self.relations)
            parts = tuple(tuple(map(node_count, part)) for part in self.parts)
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError(
                "a schema must have pairs (node type, count) and triples (source type, name, "
                "target type)",
                f"{self.node_types!r} and {self.relations!r}",
                "Give both as tuples of tuples.",
            ) from None
        names = [name for name, _ in types]
        for name in (*names, *(word for relation in relations for word in relation)):
            if not isinstance(name, str) or not name:
                raise InputError(
                    "names of node types and relations must be text", repr(name), "Give a str."
                )
        for what, given in (("node types", names), ("relations", relations)):
            if twice := [one for one, times in Counter(given).items() if times > 1]:
                raise InputError(
                    f"{what} must be distinct", f"{twice[0]!r} twice", "Rename one."
                )
        if len(relations) > _MAX_RELATIONS:
            raise InputError(
                f"a graph can have {_MAX_RELATIONS} relations",
                len(relations),
                "Join some of them.",
            )
        counts = tuple(count for _, count in types)
        node_count(sum(counts))
        if parts and (
            any(len(part) != len(types) for part in parts)
            or tuple(map(sum, zip(*parts, strict=True))) != counts
        ):
            raise InputError(
                "the parts of a schema must have a count of each node type, and all nodes",
                f"{parts!r} for {counts!r}",
                "Correct the counts.",
            )
        object.__setattr__(self, "node_types", types)
        object.__setattr__(self, "relations", relations)
        object.__setattr__(self, "parts", parts if len(parts) > 1 else ())
        for a, _, b in relations:
            self.number(a), self.number(b)

    @property
    def num_nodes(self) -> int:
        return self.offsets[-1]

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where the ids of each node type begin, and where those of the last type end: one
        number more than there are types. In a partitioned graph, those of each part in turn."""
        counts = (count for part in self.every_part for count in part)
        return tuple(accumulate(counts, initial=0))

    @property
    def every_part(self) -> tuple[tuple[int, ...], ...]:
        """As `parts`, also for a graph of one part."""
        return self.parts or (tuple(count for _, count in self.node_types),)

    def nodes(self, node_type: str) -> range:
        """The ids of the nodes of a type. Raises `InputError` that lists the known types, also
        where each part of a graph has a range of its own (see `ranges`)."""
        ranges = self.ranges(node_type)
        if len(ranges) > 1:
            raise InputError(
                "the nodes of a type must be one range of ids",
                f"{len(ranges)}, one in each part of a partitioned graph",
                "Read schema.ranges(node_type).",
            )
        return ranges[0]

    def ranges(self, node_type: str) -> tuple[range, ...]:
        """The ids of the nodes of a type in each part, ascending; one range if the graph is not
        partitioned. Raises `InputError` that lists the known types."""
        ends = tuple(pairwise(self.offsets))
        return tuple(
            range(*each) for each in ends[self.number(node_type) :: len(self.node_types)]
        )

    def number(self, node_type: str) -> int:
        """The index of a node type in `node_types`. Raises `InputError` that lists them."""
        names = [name for name, _ in self.node_types]
        if node_type not in names:
            raise InputError(
                f"a node type must be one of {', '.join(names) or 'none'}",
                repr(node_type),
                "Give a name of this list." if names else "The graph has no types.",
            )
        return names.index(node_type)

    def relation(self, relation: str | Relation) -> int:
        """The number of a relation, given by its triple, or by its name if that is unique.

        Raises `InputError` that lists the known relations.
        """
        if isinstance(relation, list):
            relation = tuple(relation)
        found = [i for i, one in enumerate(self.relations) if relation in (one, one[1])]
        if len(found) != 1:
            known = ", ".join(f"({', '.join(one)})" for one in self.relations)
            raise InputError(
                f"a relation must be one of {known or 'none'}, or the name of only one",
                repr(relation),
                "Name it by its triple." if found else "Give a name of this list.",
            )
        return found[0]

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """int64, the shape of `ids`: the index in `node_types` of each node's type."""
        return (np.searchsorted(self.offsets, ids, "right") - 1) % max(1, len(self.node_types))

    def places(self, ids: np.ndarray) -> np.ndarray:
        """int64, the shape of `ids`: the place of each node among the nodes of its type, which
        count from 0 in the order of their ids."""
        stretch = np.searchsorted(self.offsets, ids, "right") - 1
        return ids - np.array(self.offsets)[stretch] + self._before[stretch]

    def ids(self, node_type: str, places: np.ndarray) -> np.ndarray:
        """int64, the shape of `places`: the nodes of a type that have these places."""
        kind, num = self.number(node_type), len(self.node_types)
        before, starts = self._before[kind::num], np.array(self.offsets)[kind:-1:num]
        part = np.searchsorted(before[1:], places, "right")
        return places - before[part] + starts[part]

    @property
    def _before(self) -> np.ndarray:
        """int64: for each stretch of ids how many nodes of its type are in earlier ones."""
        sizes = np.diff(self.offsets).reshape(-1, max(1, len(self.node_types)))
        return (np.cumsum(sizes, axis=0) - sizes).reshape(-1)

    def extended(self, more: Sequence[int]) -> Schema:
        """The schema with `more` nodes of each type. Their ids follow all others."""
        each = zip(self.node_types, more, strict=True)
        types = tuple((name, count + added) for (name, count), added in each)
        parts = (*self.every_part, tuple(more)) if any(more) else self.parts
        return Schema(types, self.relations, parts)

    def type_and_place(self, ids: Any) -> tuple[jax.Array, jax.Array]:
        """For each of `ids`, int32 `[S]`, the index of its type in `node_types`, and its place
        among the nodes of that type, which count from 0 in the order of their ids. Both int32
        `[S]`, and -1 for ids of no nodes. It works inside `jax.jit`."""
        starts = np.array(self.offsets, np.int32)
        if not self.node_types or starts[-1] == 0:
            return (jnp.full(ids.shape, -1, jnp.int32),) * 2
        before = self._before
        stretch = jnp.searchsorted(starts, ids, side="right").astype(jnp.int32) - 1
        real = (ids >= 0) & (ids < starts[-1])
        at = jnp.clip(stretch, 0, before.size - 1)
        place = ids - jnp.asarray(starts)[at] + jnp.asarray(before.astype(np.int32))[at]
        kind = at % len(self.node_types)
        return jnp.where(real, kind, -1).astype(jnp.int32), jnp.where(real, place, -1)

    def of_parts(self, first: int, stop: int) -> Schema:
        """The schema of the nodes of the parts `[first, stop)` alone, without relations. Its
        node `i` is their `i`-th node."""
        parts = self.every_part[first:stop]
        counts = map(sum, zip(*parts, strict=True))
        types = zip(self.node_types, counts, strict=True)
        return Schema(tuple((name, count) for (name, _), count in types), (), parts)

    def of_nodes(self, ids: np.ndarray, offsets: Iterable[int] | None = None) -> Schema | None:
        """The schema of a graph whose node `i` is `ids[i]` of this one. Its part `p` has the
        nodes `[offsets[p], offsets[p + 1])`; without `offsets` it has one part. None where the
        nodes of a part are not in the order of the types."""
        counts = []
        for first, last in pairwise([0, ids.size] if offsets is None else offsets):
            kind = self.numbers(ids[first:last])
            if (np.diff(kind) < 0).any():
                return None
            counts.append(np.bincount(kind, minlength=len(self.node_types)).tolist())
        types = zip(self.node_types, map(sum, zip(*counts, strict=True)), strict=True)
        return Schema(tuple((name, n) for (name, _), n in types), self.relations, tuple(counts))

    def without_relations(self) -> Schema:
        """The schema of the same node types, without relations."""
        return Schema(self.node_types, (), self.parts)

    def as_bytes(self) -> np.ndarray:
        """uint8: the JSON text of the schema, as a file of a saved graph holds it."""
        fields: dict[str, Any] = {"node_types": self.node_types, "relations": self.relations}
        if self.parts:
            fields["parts"] = self.parts
        return np.frombuffer(json.dumps(fields).encode(), np.uint8)

    @classmethod
    def from_bytes(cls, owner: str, array: np.ndarray | None) -> Schema | None:
        """The schema of what `as_bytes` returned, or None for None; raises `InputError` that
        names the `owner` of the array."""
        if array is None:
            return None
        errors = (ValueError, TypeError, KeyError, RecursionError)
        remedy = "Write the folder again with `Graph.save`."
        with refusing(errors, f"{owner} must hold a sound `schema`", remedy):
            fields = json.loads(np.asarray(array, np.uint8).tobytes())
            return cls(fields["node_types"], fields["relations"], fields.get("parts", ()))


def check_schema(schema: Any, num_nodes: int, has_edge_types: bool) -> None:
    """Raises `InputError` unless `schema` is None or fits a graph of `num_nodes` nodes, whose
    edges have types or not."""
    if schema is None:
        return
    if not isinstance(schema, Schema):
        raise InputError(
            "the schema must be a jgs.Schema", f"a {type(schema).__name__}", "Make one."
        )
    if schema.num_nodes != num_nodes:
        raise InputError(
            "the node types of a schema must have as many nodes as the graph together",
            f"{schema.num_nodes} for {num_nodes} nodes",
            "Correct the counts.",
        )
    if bool(schema.relations) != has_edge_types:
        raise InputError(
            "a schema must have relations where edges have types, and only there",
            f"{len(schema.relations)} relations and {'an' if has_edge_types else 'no'} "
            "edge_type",
            "Give both, or neither.",
        )


def check_edge_types(
    edge_type: Any, schema: Schema | None, indptr: np.ndarray, indices: np.ndarray
) -> np.ndarray:
    """`edge_type` as int16 `[E]`. It must be in range and ascending in each row. With a schema,
    the ends of each edge must be of the types of its relation. Raises `InputError`."""
    types = integers("edge_type", edge_type, np.int16)
    form = "integers [E], one entry for every edge"
    remedy = "Give the number of each edge's relation."
    require_array("edge_type", types, form, remedy, E=indices.size)
    most = _MAX_RELATIONS if schema is None else len(schema.relations)
    rule, remedy = f"edge_type must be in [0, {most})", "Give the number of a relation."
    refuse_where((types < 0) | (types >= most), types, "edge", rule, remedy)
    if found := first_fall(types, indptr):
        at, node = found
        raise InputError(
            "each row must be sorted by edge_type",
            f"{types[at - 1]} before a lower one at node {node}",
            "Sort the edges of each row, or make the graph with Graph.from_relations.",
        )
    if schema is None:
        return types
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        row = np.repeat(np.arange(first, stop), np.diff(indptr[first : stop + 1]))
        _check_ends(schema, begin, types[begin:end], indices[begin:end], 0)
        _check_ends(schema, begin, types[begin:end], row, 2)
    return types


def _check_ends(schema: Schema, begin: int, types: Any, ids: Any, end: int) -> None:
    """Raises `InputError` unless each edge has, at this `end` of its relation (0 or 2), a node
    of the type that the relation says. The first edge has the id `begin`."""
    of_relation = np.array([schema.number(one[end]) for one in schema.relations], int)
    wrong = schema.numbers(ids) != of_relation[types]
    if wrong.any():
        at = int(np.argmax(wrong))
        relation = schema.relations[types[at]]
        within = " or ".join(f"[{r.start}, {r.stop})" for r in schema.ranges(relation[end]))
        raise InputError(
            f"a {'source' if end == 0 else 'target'} of ({', '.join(relation)}) must be a node "
            f"in {within}",
            f"{ids[at]} at edge {begin + at}",
            "Correct the edge's type, or the counts of the node types.",
        )


def times_of_types(schema: Schema, given: Mapping[str, Any]) -> np.ndarray:
    """int64 `[N]`: the times of the nodes of each type, by its name; raises `InputError`."""
    names = [name for name, _ in schema.node_types]
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        wrong = (
            sorted(set(given) - set(names), key=str) if isinstance(given, Mapping) else given
        )
        raise InputError(
            "node_time must be a dict by node types",
            repr(wrong),
            f"Choose among {', '.join(names)}.",
        )
    times: np.ndarray = np.full(schema.num_nodes, ALWAYS)
    for name, value in given.items():
        nodes = schema.nodes(name)
        times[nodes.start : nodes.stop] = check_node_time(value, len(nodes))
    return times
