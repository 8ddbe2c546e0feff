"""Sizes of layers: how many nodes a layer draws, of all nodes or of each node type.

A size is a positive number, drawn from all nodes. Or it is a dict that has such a number for
each node type by name, for example `{"author": 200}`. The nodes of each type are then drawn by
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jgs.errors import InputError
from jgs.graph import Schema
from jgs.sampling.fanouts import ANY, check_fanouts, is_fanout


class ByType(Mapping):
    """The sizes of node types, by name; hashable, and equal to its dict.

    `"*"` stands for every type that is not named. A type without a size is not drawn. Names are
    those of the graph's `Schema.node_types`. Raises `InputError` for what is no size.
    """

    def __init__(self, sizes: Mapping[str, Any]):
        if not sizes or not all(is_fanout(k) and k > 0 for k in sizes.values()):
            raise InputError(
                "sizes of node types must be positive 32-bit ints",
                dict(sizes),
                "Give {'author': 200, ...}; leave out a type that is not drawn.",
            )
        self._sizes = {name: int(k) for name, k in sizes.items()}

    def __getitem__(self, node_type: str) -> int:
        return self._sizes[node_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __hash__(self) -> int:
        return hash(frozenset(self._sizes.items()))

    def __repr__(self) -> str:
        return repr(dict(sorted(self._sizes.items(), key=lambda item: str(item[0]))))

    def numbers(self, schema: Schema | None) -> tuple[int, ...]:
        """The size of each of the graph's node types, 0 for one that is not drawn. Raises
        `InputError` for a type that the graph does not have."""
        if schema is None:
            raise InputError(
                "sizes by node type must be for a graph with node types",
                f"{self} for a graph without",
                "Give one number a layer, or make the graph with Graph.from_relations.",
            )
        found = [self._sizes.get(ANY, 0)] * len(schema.node_types)
        for name, k in self._sizes.items():
            if name != ANY:
                found[schema.number(name)] = k
        return tuple(found)


def check_layer_sizes(sizes: Any, by_type: bool) -> tuple[int | ByType, ...]:
    """`sizes` as a tuple of ints. With `by_type` a size may also be a dict, which becomes a
    `ByType`. Raises `InputError`."""
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str)
    if not (by_type and listed and any(isinstance(k, Mapping) for k in sizes)):
        return check_fanouts(sizes)
    ints = check_fanouts([1 if isinstance(k, Mapping) else k for k in sizes])
    both = zip(sizes, ints, strict=True)
    return tuple(ByType(k) if isinstance(k, Mapping) else number for k, number in both)
