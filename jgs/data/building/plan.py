"""What a build is to make, how much of it is in memory at once, and both of its phases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from jgs.data.building.shards import open_shards
from jgs.data.building.sorting import Order, sort
from jgs.data.building.spreading import Buckets, Layout, Relation, spread
from jgs.data.building.table_pieces import Columns
from jgs.data.building.work import GrowingFile, Work
from jgs.errors import InputError
from jgs.graph.schema import Schema

_log = logging.getLogger("jgs")
LEAST_MEMORY, MEMORY = 64, 2048  # MiB
_PROGRAM = 512  # MiB that Python and its libraries take at most, beside the buffers
_MOST_BUCKETS = 1 << 10
MOST_CHUNK = 1 << 22  # edges; more are not faster
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
    chunk = min(MOST_CHUNK, max(1, buffers // (64 + 6 * record)))
    records = _UNKNOWN if num_records is None else num_records
    wanted = max(8 * records // group, 96 * num_nodes // buffers) + 1
    return Sizes(chunk, group, min(_MOST_BUCKETS, wanted))


def relations_of(
    edges: Any, num_nodes: Any, columns: Columns, binary: str | None, both_ways: bool
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


def graph_files(
    work: Work,
    relations: Sequence[Relation],
    layout: Layout,
    num_nodes: int,
    memory: int,
    symmetric: bool,
    both_ways: bool = False,
    show_progress: bool = False,
    sort_rows: bool = False,
) -> dict[str, GrowingFile]:
    """Writes the arrays of the graph of these edges to files in `work.new`, and returns these
    by name. Each phase goes on where it stood.

    `symmetric` and `both_ways` are those of `build`. `sort_rows` sorts the sources in each row,
    for edges that have nothing else.
    """
    both = symmetric or both_ways
    counts = [shard.rows for one in relations for shard in one.shards]
    known = [count for count in counts if count is not None]
    # Where one of the shards does not know it, only reading tells.
    edges = sum(known) if len(known) == len(counts) else None
    records = None if edges is None else edges * (1 + both)
    sizes = sizes_of(memory, layout, symmetric, num_nodes, records)
    buckets = _buckets(work, layout, num_nodes, sizes.buckets, symmetric)
    if work.state["spread"]["shard"] < len(counts) or "sort" not in work.state:
        with bar("reading edges", edges, show_progress) as advance:
            spread(
                work, layout, relations, buckets, both=both, most=sizes.chunk, advance=advance
            )
        work.save(sort={"row": 0, "edges": 0, "records": 0})
    edges = work.state["spread"]["edges"]
    order = Order(layout, num_nodes, edges, symmetric, both_ways, sort_rows)
    with bar("sorting edges", edges * (1 + both), show_progress) as advance:
        return sort(work, order, buckets, sizes.group, advance)


def _buckets(
    work: Work, layout: Layout, num_nodes: int, number: int, symmetric: bool
) -> Buckets:
    # Which of two equal edges is a reverse one matters where they carry something.
    columns = set(layout.dtype.names or ()) - {"indices", "row", "edge_time", "edge_weight"}
    streams = 2 if symmetric and columns else 1
    place = work.state.get("spread")
    if place is not None:
        known = np.array(place["sizes"], np.int64)
        made = (place["shift"], known.shape[1], streams, known)
        buckets = Buckets(work.buckets, layout.dtype, *made)
        done = work.state.get("sort", {"row": 0})["row"] >> place["shift"]
        buckets.remove(0, done)
        if buckets.cut(done):
            return buckets
        _log.info("edges that were read are missing in %s: begun anew", work.folder)
        work.restart("spread", "sort")
    # At least so many buckets, if there are so many nodes, and at most twice as many.
    shift = max(1, num_nodes // max(1, number)).bit_length() - 1
    count = (max(0, num_nodes - 1) >> shift) + 1
    empty = np.zeros((streams, count), np.int64)
    begun = {"shard": 0, "row": 0, "edges": 0, "shift": shift, "sizes": empty.tolist()}
    work.save(spread=begun)
    return Buckets(work.buckets, layout.dtype, shift, count, streams, empty)


@contextmanager
def bar(name: str, total: int | None, enabled: bool) -> Iterator[Callable[[int], None]]:
    """A block that yields `advance(done)`, which moves a bar on standard error if that is a
    terminal and `enabled`. The bar is removed at the end."""
    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    shown = enabled and console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(name, total=total)
        yield lambda done: progress.update(task, completed=done)
