"""What a build is to make, and how much of it is in memory at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jgs.data.building.records import Layout, Relation
from jgs.data.building.shards import open_shards
from jgs.data.building.tables import Columns
from jgs.errors import InputError
from jgs.graph.schema import Schema

LEAST_MEMORY, MEMORY = 64, 2048  # MiB
_PROGRAM = 512  # MiB that Python and its libraries take at most, beside the buffers
_MOST_BUCKETS = 1 << 10
_MOST_CHUNK = 1 << 22  # edges; more are not faster
_UNKNOWN = 1 << 31  # edges, where only reading tells how many there are


class Sizes(NamedTuple):
    """How much is in memory at once.

    Fields:
      chunk: edges that are read at once.
      group: records that are sorted at once.
      buckets: ranges of targets, about.
    """

    chunk: int
    group: int
    buckets: int


def checked_memory(memory: Any) -> int:
    """`memory` in MiB; raises `InputError`."""
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < LEAST_MEMORY:
        raise InputError(
            f"memory must be an int, at least {LEAST_MEMORY} MiB",
            repr(memory),
            "Give more; it need not hold the graph.",
        )
    return memory


def sizes_of(
    memory: int, layout: Layout, symmetric: bool, num_nodes: int, num_records: int | None
) -> Sizes:
    """The sizes for `memory` in MiB, and for about so many records, None where nothing is
    known of their number."""
    buffers = max(memory - _PROGRAM, memory // 2) << 20
    record = layout.dtype.itemsize
    names = set(layout.dtype.names or ())
    result = record - 4 + 8 * ("edge_weight" in names)
    by_keys = bool(names & {"edge_time", "edge_type"}) or (symmetric and len(names) > 2)
    # The records that are sorted and the next ones, keys and positions, one array that is
    # moved, the results of these edges and of those before, and what prefix sums need.
    each = 2 * record + 12 + 8 + 2 * result + 24 * by_keys + 64 * ("edge_weight" in names)
    group = max(1, buffers // each)
    chunk = min(_MOST_CHUNK, max(1, buffers // (64 + 6 * record)))
    records = _UNKNOWN if num_records is None else num_records
    wanted = max(8 * records // group, 96 * num_nodes // buffers) + 1
    return Sizes(chunk, group, min(_MOST_BUCKETS, wanted))


def counting_chunk(memory: int) -> int:
    """How many edges are read at once where only their largest id is wanted."""
    return min(_MOST_CHUNK, (memory << 20) // 128)


def relations_of(
    edges: Any,
    num_nodes: Any,
    columns: Columns,
    binary: str | None,
    both_ways: bool,
) -> tuple[list[Relation], Schema | None]:
    """The relations with their shards, and the schema of a typed graph, which also has the
    reverse relations if `both_ways`. Raises `InputError`."""
    if not (isinstance(edges, Mapping) and not {"src", "dst"} <= set(edges)):
        if isinstance(num_nodes, Mapping) or both_ways:
            raise InputError(
                "num_nodes by type, and both_ways, must be for edges by relation",
                "edges without relations",
                "Give edges as {('user', 'buys', 'item'): shards}, or symmetric=True.",
            )
        given = [edges] if isinstance(edges, Mapping) else edges
        shards = open_shards(given, columns, binary)
        return [Relation("", None, range(0), range(0), shards)], None
    if not isinstance(num_nodes, Mapping):
        raise InputError(
            "edges by relation must have the number of nodes of each type",
            repr(num_nodes),
            "Give num_nodes={'user': 1000, 'item': 500}.",
        )
    schema = Schema(tuple(num_nodes.items()), tuple(edges))
    found = []
    for number, (one, given) in enumerate(edges.items()):
        ends = schema.nodes(one[0]), schema.nodes(one[2])
        shards = open_shards(given, columns, binary)
        found.append(Relation(f" of ({', '.join(one)})", number, *ends, shards))
    if both_ways:
        reverse = tuple((b, f"rev_{name}", a) for a, name, b in schema.relations)
        schema = Schema(schema.node_types, schema.relations + reverse)
    return found, schema


def edges_known(relations: Sequence[Relation]) -> int | None:
    """How many edges all shards have, or None where only reading tells."""
    counts = [shard.rows for one in relations for shard in one.shards]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def bucket_shift(num_nodes: int, buckets: int) -> tuple[int, int]:
    """The width of buckets as a power of two, and their number, at least `buckets`, if there
    are so many nodes, and at most twice as many."""
    width = max(1, num_nodes // max(1, buckets))
    shift = width.bit_length() - 1
    return shift, (max(0, num_nodes - 1) >> shift) + 1


def no_sizes(buckets: int, streams: int) -> np.ndarray:
    return np.zeros((streams, buckets), np.int64)
