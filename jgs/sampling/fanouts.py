"""Fanouts: how many neighbours a node draws at each hop, of all its edges or of each relation.

A fanout is a positive number, or -1 for all neighbours, drawn from all the edges into a node.
Or it is a dict that has such a number for each relation by name, for example `{"writes": 5}`. A
node then draws from its edges of each relation by themselves. The command writes this dict
as `writes=5,cites=10`, with a triple as `author:writes:paper=5`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jgs.errors import InputError
from jgs.graph import Schema

ANY = "*"  # stands for every relation that is not named


class ByRelation(Mapping):
    """The fanouts of relations, by name or triple; hashable, and equal to its dict.

    `"*"` stands for every relation that is not named. A relation without a fanout is not drawn.
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
        self._fanouts = {name: int(k) for name, k in listed.items()}

    def __getitem__(self, relation: Any) -> int:
        return self._fanouts[relation]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fanouts)

    def __len__(self) -> int:
        return len(self._fanouts)

    def __hash__(self) -> int:
        return hash(frozenset(self._fanouts.items()))

    def __repr__(self) -> str:
        return repr(dict(sorted(self._fanouts.items(), key=lambda item: str(item[0]))))

    def total(self, num_relations: int) -> int:
        """How many neighbours a node draws at most in a graph of so many relations, 0 where
        their number is not known; -1 where there is no limit, or where it is not known."""
        ks = [k for name, k in self._fanouts.items() if name != ANY]
        if ANY in self._fanouts:
            if num_relations == 0:
                return -1
            ks += [self._fanouts[ANY]] * (num_relations - len(ks))
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
        found = [self._fanouts.get(ANY, 0)] * len(schema.relations)
        for name, k in self._fanouts.items():
            if name != ANY:
                found[schema.relation(name)] = k
        return tuple((relation, k) for relation, k in enumerate(found) if k != 0)


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


def _read(text: str) -> dict[Any, int]:
    """The fanouts that a text such as `writes=5,cites=10` stands for."""
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
