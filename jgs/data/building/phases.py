"""Both phases of a build, from shards of edges to the files of a graph's arrays."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from jgs.data.building import plan
from jgs.data.building.progress import bar
from jgs.data.building.records import Layout, Relation
from jgs.data.building.results import GrowingFile
from jgs.data.building.sorting import Order, sort
from jgs.data.building.spreading import Buckets, spread
from jgs.data.building.work import Work

_log = logging.getLogger("jgs")


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
    edges = plan.edges_known(relations)
    records = None if edges is None else edges * (1 + both)
    sizes = plan.sizes_of(memory, layout, symmetric, num_nodes, records)
    buckets = _buckets(work, layout, num_nodes, sizes.buckets, symmetric)
    shards = sum(len(one.shards) for one in relations)
    if work.state["spread"]["shard"] < shards or "sort" not in work.state:
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
    """The buckets of a new build, or those of one that goes on, whose files are checked."""
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
    shift, count = plan.bucket_shift(num_nodes, number)
    empty = plan.no_sizes(count, streams)
    begun = {"shard": 0, "row": 0, "edges": 0, "shift": shift, "sizes": empty.tolist()}
    work.save(spread=begun)
    return Buckets(work.buckets, layout.dtype, shift, count, streams, empty)
