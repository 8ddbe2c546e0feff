"""Fanouts: how many neighbours a node draws at each hop, of all its edges or of each relation.
Sizes: how many nodes a layer draws, of all nodes or of each node type.

A fanout is a positive number, or -1 for all neighbours, drawn from all the edges into a node.
Or it is a dict that has such a number for each relation by name, for example `{"writes": 5}`. A
node then draws from its edges of each relation by themselves. The command writes this dict
as `writes=5,cites=10`, with a triple as `author:writes:paper=5`.

A size is a positive number, or a dict that has one for each node type by name, for example
`{"author": 200}`. The nodes of each type are then drawn by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Schema

# The number and the fanout of each relation that a hop draws, ascending.
Relations = tuple[tuple[int, int], ...]

ANY = "*"  # stands for everything that is not named


class ByName(Mapping):
    """Numbers by name; hashable, and equal to its dict. `"*"` stands for every name that is not
    there."""

    def __init__(self, numbers: Mapping[Any, Any]):
        self._numbers = {name: int(k) for name, k in numbers.items()}

    def __getitem__(self, name: Any) -> int:
        return self._numbers[name]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __hash__(self) -> int:
        return hash(frozenset(self._numbers.items()))

    def __repr__(self) -> str:
        return repr(dict(sorted(self._numbers.items(), key=lambda item: str(item[0]))))

    def _in_order(self, count: int, place: Callable[[Any], int]) -> tuple[int, ...]:
        """The number of each of so many things, 0 for one without. A name says its `place`.
        Raises `InputError` where two names say one."""
        found, names = [self._numbers.get(ANY, 0)] * count, dict[int, Any]()
        for name, k in self._numbers.items():
            if name != ANY:
                at = place(name)
                if at in names:
                    rule, both = "each must be named once", f"{names[at]!r} and {name!r}"
                    raise InputError(f"of {self} {rule}", both, "Leave one out.")
                found[at], names[at] = k, name
        return tuple(found)


class ByRelation(ByName):
    """The fanouts of relations, by name or triple. A relation without a fanout is not drawn.
    Names are those of the graph's `Schema.relation`. Raises `InputError` for what is no fanout.
    """

    def __init__(self, fanouts: Mapping[Any, Any]):
        listed = {
            tuple(name) if isinstance(name, list) else name: k for name, k in fanouts.items()
        }
        if not listed or not all(map(is_fanout, listed.values())):
            raise InputError(
                "fanouts of relations must be positive 32-bit ints, or -1 for all neighbours",
                dict(fanouts),
                "Give {'writes': 5, ...}; leave out a relation that is not drawn.",
            )
        super().__init__(listed)

    def total(self, num_relations: int) -> int:
        """How many neighbours a node draws at most in a graph of so many relations, 0 where
        their number is not known; -1 where there is no limit, or where it is not known."""
        ks = [k for name, k in self.items() if name != ANY]
        if ANY in self:
            if num_relations == 0:
                return -1
            ks += [self[ANY]] * (num_relations - len(ks))
        return -1 if -1 in ks else sum(ks)

    def drawn(self, schema: Schema | None) -> tuple[tuple[int, int], ...]:
        """The number and the fanout of each of the graph's relations that is drawn, ascending.
        Raises `InputError` for a relation that the graph does not have."""
        if schema is None or not schema.relations:
            raise InputError(
                "fanouts by relation must be for a graph with relations",
                f"{self} for a graph without",
                "Give one number a hop, or make the graph with Graph.from_relations.",
            )
        found = self._in_order(len(schema.relations), schema.relation)
        return tuple((relation, k) for relation, k in enumerate(found) if k != 0)


class ByType(ByName):
    """The sizes of node types. A type without a size is not drawn. Names are those of the
    graph's `Schema.node_types`. Raises `InputError` for what is no size."""

    def __init__(self, sizes: Mapping[str, Any]):
        if not sizes or not all(is_fanout(k) and k > 0 for k in sizes.values()):
            raise InputError(
                "sizes of node types must be positive 32-bit ints",
                dict(sizes),
                "Give {'author': 200, ...}; leave out a type that is not drawn.",
            )
        super().__init__(sizes)

    def numbers(self, schema: Schema | None) -> tuple[int, ...]:
        """The size of each of the graph's node types, 0 for one that is not drawn. Raises
        `InputError` for a type that the graph does not have."""
        if schema is None:
            raise InputError(
                "sizes by node type must be for a graph with node types",
                f"{self} for a graph without",
                "Give one number a layer, or make the graph with Graph.from_relations.",
            )
        return self._in_order(len(schema.node_types), schema.number)


def check_fanouts(fanouts: Any, by_relation: bool = False) -> tuple[Any, ...]:
    """`fanouts` as a tuple of ints; raises `InputError` unless each is positive or -1. With
    `by_relation` it may also be a dict of such numbers, which becomes a `ByRelation`."""
    listed = isinstance(fanouts, Sequence | np.ndarray) and not isinstance(fanouts, str)
    flat = listed and getattr(fanouts, "ndim", 1) == 1 and len(fanouts) > 0
    kinds = (Mapping, str) if by_relation else ()
    if not flat or not all(is_fanout(k) or isinstance(k, kinds) for k in fanouts):
        raise InputError(
            "fanouts must be static positive 32-bit ints, or -1 for all neighbours, one a hop",
            fanouts,
            "Give a tuple such as (10, 10); under jax.jit close over it or make it static.",
        )
    by_name = (ByRelation(_read(k)) if isinstance(k, str) else k for k in fanouts)
    return tuple(ByRelation(k) if isinstance(k, Mapping) else int(k) for k in by_name)


def check_layer_sizes(sizes: Any, by_type: bool) -> tuple[int | ByType, ...]:
    """`sizes` as a tuple of ints. With `by_type` a size may also be a dict, which becomes a
    `ByType`. Raises `InputError`."""
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str)
    if not (by_type and listed and any(isinstance(k, Mapping) for k in sizes)):
        return check_fanouts(sizes)
    ints = check_fanouts([1 if isinstance(k, Mapping) else k for k in sizes])
    both = zip(sizes, ints, strict=True)
    return tuple(ByType(k) if isinstance(k, Mapping) else number for k, number in both)


def _read(text: str) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for part in text.split(","):
        name, _, k = part.rpartition("=")
        relation = tuple(name.split(":")) if name.count(":") == 2 else name
        if not name or not k.removeprefix("-").isdecimal() or relation in found:
            raise InputError(
                "fanouts by relation must be written as writes=5,cites=10",
                repr(text),
                "Give each relation once, with a number.",
            )
        found[relation] = int(k)
    return found


def is_fanout(k: Any) -> bool:
    """Whether `k` is a positive 32-bit int, or -1."""
    is_int = isinstance(k, int | np.integer) and not isinstance(k, bool)
    return is_int and (0 < k < 2**31 or k == -1)


def relations_of(fanout: int | Relations) -> tuple[int, ...] | None:
    """The numbers of the relations that a hop draws by themselves; None for one that draws
    from all edges."""
    return None if isinstance(fanout, int) else tuple(relation for relation, _ in fanout)


def relation_draws(fanouts: Sequence[Any], schema: Schema | None) -> np.ndarray:
    """int64 `[L * R]`: the fanout of each of the `R` relations at each of the `L` hops, 0 for
    one that is not drawn and for a hop that draws from all edges. Empty without a schema."""
    if schema is None:
        return np.zeros(0, np.int64)
    table = np.zeros((len(fanouts), len(schema.relations)), np.int64)
    for h, fanout in enumerate(fanouts):
        if not isinstance(fanout, int):
            for relation, k in fanout:
                table[h, relation] = k
    return table.reshape(-1)
