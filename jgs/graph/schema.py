"""`Schema`: the node types and relations of a typed graph, by name.

A typed graph is one `Graph`. The ids of a node type are a range, an edge's type is a number of
the column `Graph.edge_type`, and each row is sorted by it: a relation's neighbours of a node
are one stretch of its row.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph.checks import integers, node_count
from jgs.graph.rows import row_chunks

Relation = tuple[str, str, str]
_MOST = 2**15  # edge types are int16


@dataclass(frozen=True)
class Schema:
    """The types of a graph's nodes and edges. Static: it is hashable, and `jax.jit` compiles
    once for each.

    Fields:
      node_types: pairs (name, number of nodes). Ids are given in this order: those of the first
        type begin at 0, those of the next follow.
      relations: triples (source type, name, target type). The edges of the first have the type
        0 in `Graph.edge_type`, and so on. Names may be repeated, triples may not. None: edges
        have no types.

    Lists are taken as tuples. Raises `InputError`.
    """

    node_types: tuple[tuple[str, int], ...]
    relations: tuple[Relation, ...] = ()

    def __post_init__(self) -> None:
        try:
            types = tuple((name, node_count(count)) for name, count in self.node_types)
            relations = tuple((a, name, b) for a, name, b in self.relations)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
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
                    "names of node types and relations must be text", repr(name), "Name it."
                )
        for what, given in (("node types", names), ("relations", relations)):
            if twice := [one for one, times in Counter(given).items() if times > 1]:
                raise InputError(
                    f"{what} must be distinct", f"{twice[0]!r} twice", "Rename one."
                )
        if len(relations) > _MOST:
            raise InputError(
                f"a graph can have {_MOST} relations", len(relations), "Join some of them."
            )
        node_count(sum(count for _, count in types))
        object.__setattr__(self, "node_types", types)
        object.__setattr__(self, "relations", relations)
        for a, _, b in relations:
            self.nodes(a), self.nodes(b)

    @property
    def num_nodes(self) -> int:
        return self.offsets[-1]

    @property
    def offsets(self) -> tuple[int, ...]:
        """One more than there are node types: where the ids of each begin, and the last end."""
        return tuple(accumulate((count for _, count in self.node_types), initial=0))

    def nodes(self, node_type: str) -> range:
        """The ids of the nodes of a type. Raises `InputError` that lists the known types."""
        names = [name for name, _ in self.node_types]
        if node_type not in names:
            raise InputError(
                f"a node type must be one of {', '.join(names) or 'none'}",
                repr(node_type),
                "Correct the name.",
            )
        at = names.index(node_type)
        return range(*self.offsets[at : at + 2])

    def relation(self, relation: str | Relation) -> int:
        """The number of a relation, given by its triple or by its name if no other has it.

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
                "Name it by its triple." if found else "Correct the name.",
            )
        return found[0]

    def of_nodes(self, ids: np.ndarray) -> Schema | None:
        """The schema of a graph whose node `i` is `ids[i]`; None where the ids of a type would
        be no range, in the order of the types."""
        kind = np.searchsorted(self.offsets[1:], ids, "right")
        if (np.diff(kind) < 0).any():
            return None
        counts = np.bincount(kind, minlength=len(self.node_types)).tolist()
        types = zip(self.node_types, counts, strict=True)
        return Schema(tuple((name, n) for (name, _), n in types), self.relations)

    def without_relations(self) -> Schema:
        """The node types alone."""
        return Schema(self.node_types)

    def as_bytes(self) -> np.ndarray:
        """uint8: the schema as a file of a saved graph holds it, JSON text."""
        text = json.dumps({"node_types": self.node_types, "relations": self.relations})
        return np.frombuffer(text.encode(), np.uint8)

    @classmethod
    def from_bytes(cls, owner: str, array: np.ndarray) -> Schema:
        """The schema of `as_bytes`; raises `InputError` that names the `owner`."""
        try:
            fields = json.loads(np.asarray(array, np.uint8).tobytes())
            return cls(fields["node_types"], fields["relations"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InputError(
                f"{owner} must hold a sound `schema`",
                " ".join(str(error).split()),
                "Write the folder again with `Graph.save`.",
            ) from None


def check_schema(schema: Any, num_nodes: int, has_edge_types: bool) -> None:
    """Raises `InputError` unless it is None, or the schema of such a graph."""
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
    """`edge_type` as int16 `[E]`: in range, ascending in each row, and, with a schema, of
    relations between the types of each edge's ends. Raises `InputError`."""
    types = integers("edge_type", edge_type, np.int16)
    if types.size != indices.size:
        raise InputError(
            "edge_type must have one entry for every edge",
            f"{types.size} entries, {indices.size} edges",
            "Give the number of each edge's relation.",
        )
    most = _MOST if schema is None else len(schema.relations)
    if types.size and (types.min() < 0 or types.max() >= most):
        at = int(np.argmax((types < 0) | (types >= most)))
        raise InputError(
            f"edge_type must be in [0, {most})",
            f"{types[at]} at edge {at}",
            "Give the number of a relation in the schema.",
        )
    for first, stop in row_chunks(indptr):
        begin, end = int(indptr[first]), int(indptr[stop])
        some = types[begin:end]
        row = np.repeat(np.arange(first, stop), np.diff(indptr[first : stop + 1]))
        falls = (np.diff(some) < 0) & (row[1:] == row[:-1])
        if falls.any():
            raise InputError(
                "each row must be sorted by edge_type",
                f"{some[np.argmax(falls)]} before a lower one at node {row[np.argmax(falls)]}",
                "Sort the edges of each row, or make the graph with Graph.from_relations.",
            )
        if schema is not None:
            for ids, ends in ((indices[begin:end], 0), (row, 2)):
                _check_ends(schema, begin, some, ids, ends)
    return types


def _check_ends(schema: Schema, begin: int, types: Any, ids: Any, end: int) -> None:
    """Raises unless each of the edges from `begin` on has, at this `end` of its relation, a
    node of the type that the relation says."""
    spans = np.array(
        [[(r := schema.nodes(one[end])).start, r.stop] for one in schema.relations]
    )
    low, high = spans.reshape(-1, 2)[types].T
    wrong = (ids < low) | (ids >= high)
    if wrong.any():
        at = int(np.argmax(wrong))
        relation = schema.relations[types[at]]
        raise InputError(
            f"a {'source' if end == 0 else 'target'} of ({', '.join(relation)}) must be a node "
            f"in [{low[at]}, {high[at]})",
            f"{ids[at]} at edge {begin + at}",
            "Correct the edge's type, or the counts of the node types.",
        )
