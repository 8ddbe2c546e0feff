"""The second phase of a build: the edges of each range of targets are sorted, on all cores and
without memory for each node, and appended to the graph's arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jgs.data.building.spreading import Buckets, Layout
from jgs.data.building.work import GrowingFile, Work, ahead
from jgs.errors import InputError
from jgs.graph.checks import MAX_ID
from jgs.graph.grouping import group, taken, threads
from jgs.graph.rows import order_dtype, row_offsets
from jgs.graph.weights import weight_prefix_sums

Arrays = dict[str, np.ndarray]
_READ = 1 << 20  # records
_DIGIT = 20  # bits


def stable_order(keys: Sequence[np.ndarray]) -> np.ndarray | None:
    """The positions of entries sorted by integer `keys` `[n]`, the first of which decides the
    least; equal entries keep their order. None if that is the order that they have."""
    order: np.ndarray | None = None
    for key in keys:
        for digit, size in _digits(key):
            _, next_order = group(digit if order is None else taken(digit, order), size)
            order = next_order if order is None else taken(order, next_order)
    return order


def _digits(key: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The digits of a key, the least first: int32 `[n]`, and the bound that they are below."""
    if not key.size:
        return
    least = key.min()
    # Differences of 64-bit integers fit in 64 bits without a sign.
    rest = key.astype(np.int64).view(np.uint64) - np.int64(least).view(np.uint64)
    bits = int(rest.max()).bit_length()
    count = -(-bits // _DIGIT)
    for number in range(count):
        width = -(-bits // count)
        digit = (rest >> np.uint64(number * width)) & np.uint64((1 << width) - 1)
        yield digit.astype(np.int32), 1 << width


def sorted_parts(keys: np.ndarray, ends: Sequence[int]) -> np.ndarray:
    """Sorts in place `keys`, each part of which, up to one of `ends`, is above those before."""
    starts = [0, *ends[:-1]]

    def sort(at: int) -> None:
        keys[starts[at] : ends[at]].sort()

    with threads(len(ends)) as run:
        for _ in run(sort, range(len(ends))):
            pass
    return keys


@dataclass(frozen=True)
class Order:
    """How edges become the rows of a graph.

    Fields:
      layout: of the records.
      num_nodes: `N`.
      num_edges: how many edges were given, without reverse ones.
      symmetric: as in `Graph.from_edges`.
      both_ways: as in `Graph.from_relations`.
      sort_rows: whether to sort the sources in each row, where edges have nothing else.
    """

    layout: Layout
    num_nodes: int
    num_edges: int
    symmetric: bool
    both_ways: bool
    sort_rows: bool = False

    def files(self, work: Work) -> dict[str, GrowingFile]:
        """The files of the graph's arrays by name, continued as `work.state["sort"]` says."""
        edges, row = (work.state["sort"][name] for name in ("edges", "row"))
        count = None if self.symmetric else self.num_edges * (1 + self.both_ways)
        names = [n for n in self.layout.dtype.names or () if n != "row"]
        kinds = {name: self.layout.dtype[name] for name in names}
        if "edge_order" in kinds:
            kinds["edge_order"] = np.dtype(order_dtype(self.num_edges * (1 + self.both_ways)))
        if "edge_weight" in kinds:
            kinds["edge_weight_prefix"] = np.dtype(np.int64)
        files = {
            name: GrowingFile(work.new, f"graph.{name}", (count, *t.shape), t.base, edges)
            for name, t in kinds.items()
        }
        done = row + 1 if row else 0
        offsets = (self.num_nodes + 1,), np.dtype(np.int64), done
        return {"indptr": GrowingFile(work.new, "graph.indptr", *offsets)} | files

    def rows(self, load: Load) -> tuple[np.ndarray, Arrays]:
        """The row offsets of a range of targets, int64 from 0, and the edges' arrays."""
        names = set(self.layout.dtype.names or ())
        if self.sort_rows or (self.symmetric and names == {"indices", "row"}):
            degree, arrays = _sorted_pairs(load, self.symmetric)
            indptr = row_offsets(degree)
        elif self.symmetric:
            degree, arrays = _merged(load, names)
            indptr = row_offsets(degree)
        else:
            indptr, arrays = _sorted(load, names)
        if "edge_order" in arrays:
            order = arrays["edge_order"]
            if self.both_ways:
                order[arrays["edge_type"] >= self.layout.relations] += self.num_edges
            kind = order_dtype(self.num_edges * (1 + self.both_ways))
            arrays["edge_order"] = order.astype(kind, copy=False)
        if "edge_weight" in arrays:
            arrays["edge_weight_prefix"] = weight_prefix_sums(indptr, arrays["edge_weight"])
        if (most := int(np.diff(indptr).max(initial=0))) > MAX_ID:
            raise InputError("a node's degree must fit in 31 bits", most, "Split the node.")
        return indptr, arrays


class Load(NamedTuple):
    """The records of the edges into nodes `[first, stop)`.

    Fields:
      records: in the order of the given edges; behind them those of reverses, if these are in
        files of their own.
      buckets: how many records there are up to the end of each bucket, if there is one stream.
      whole: the number of buckets that are done once these edges are on the disk.
    """

    first: int
    stop: int
    records: np.ndarray
    buckets: list[int]
    whole: int


def sort(
    work: Work, order: Order, buckets: Buckets, most: int, advance: Callable[[int], None]
) -> dict[str, GrowingFile]:
    """Writes the arrays of the graph to `work.new`, and removes the buckets as it goes.

    `work.state["sort"]` says how far that is: the `row` up to which everything is written, and
    the number of `edges` before it. About `most` records are sorted at once; a row is always
    sorted at once. `advance` gets the number of records done. Returns the files by the names of
    the arrays.
    """
    files = order.files(work)
    if not all(file.is_there() for file in files.values()):
        raise OSError(f"files in {work.new} are missing: remove {work.folder}")
    state = work.state["sort"]
    row, edges, sorted_records = state["row"], state["edges"], state["records"]
    with ExitStack() as stack:
        for file in files.values():
            stack.enter_context(file)
        if row == 0:
            files["indptr"].append(np.zeros(1, np.int64))
        writer = stack.enter_context(ThreadPoolExecutor(1))
        written: Future | None = None
        for load in ahead(_loads(buckets, order.num_nodes, row, most)):
            indptr, arrays = order.rows(load)
            indptr = indptr[1:] + edges
            edges += int(arrays["indices"].size)
            sorted_records += load.records.size
            place = {"row": load.stop, "edges": edges, "records": sorted_records}
            if written is not None:
                written.result()
            whole = load.whole
            del load
            written = writer.submit(_write, work, files, indptr, arrays, place, buckets, whole)
            del indptr, arrays
            advance(sorted_records)
        if written is not None:
            written.result()
    return files


def _write(
    work: Work,
    files: dict[str, GrowingFile],
    indptr: np.ndarray,
    arrays: Arrays,
    place: dict,
    buckets: Buckets,
    whole: int,
) -> None:
    for name, array in {"indptr": indptr, **arrays}.items():
        files[name].append(array)
    for file in files.values():
        file.sync()
    before = work.state["sort"]["row"] >> buckets.shift
    work.save(sort=place)
    buckets.remove(before, whole)


def _loads(buckets: Buckets, num_nodes: int, row: int, most: int) -> Iterator[Load]:
    """The records of the nodes from `row` on, about `most` at a time, in whole buckets."""
    if row >= num_nodes:
        return
    sizes = buckets.sizes.sum(axis=0)
    bucket = row >> buckets.shift
    while bucket < buckets.count:
        start = bucket << buckets.shift
        stop = min(start + (1 << buckets.shift), num_nodes)
        if row > start or sizes[bucket] > most:
            yield from _pieces(buckets, bucket, max(row, start), stop, most)
            bucket += 1
            continue
        last = bucket + 1
        weights = sizes + ((1 << buckets.shift) >> 1)  # a node costs memory too
        total = weights[bucket]
        while last < buckets.count and total + weights[last] <= most:
            total += weights[last]
            last += 1
        files = [(s, b) for s in range(buckets.streams) for b in range(bucket, last)]
        ends = np.cumsum([buckets.sizes[each] for each in files]).tolist()
        records = np.empty(ends[-1], buckets.dtype)
        for (stream, each), first, end in zip(files, [0, *ends], ends, strict=False):
            buckets.read(stream, each, 0, records[first:end])
        yield Load(start, min(last << buckets.shift, num_nodes), records, ends, last)
        bucket = last


def _pieces(buckets: Buckets, bucket: int, row: int, stop: int, most: int) -> Iterator[Load]:
    """The records of the nodes `[row, stop)` in one bucket, read once for each piece."""
    start = bucket << buckets.shift
    degree = np.zeros(stop - start, np.int64)
    for part in _read(buckets, bucket):
        degree += np.bincount(part["row"] - start, minlength=degree.size)
    total = row_offsets(degree)
    while row < stop:
        begin = total[row - start]
        end = start + int(np.searchsorted(total, begin + most, "right")) - 1
        end = min(max(end, row + 1), stop)
        records = np.empty(int(total[end - start] - begin), buckets.dtype)
        at = 0
        for part in _read(buckets, bucket):
            mine = part[(part["row"] >= row) & (part["row"] < end)]
            records[at : at + mine.size] = mine
            at += mine.size
        yield Load(row, end, records, [records.size], bucket + (end == stop))
        row = end


def _read(buckets: Buckets, bucket: int) -> Iterator[np.ndarray]:
    for stream in range(buckets.streams):
        size = int(buckets.sizes[stream, bucket])
        for first in range(0, size, _READ):
            part = np.empty(min(_READ, size - first), buckets.dtype)
            buckets.read(stream, bucket, first, part)
            yield part


# -- how records become rows -------------------------------------------------------------------


def _sorted(load: Load, names: set[str]) -> tuple[np.ndarray, Arrays]:
    records = load.records
    # The key that decides the least comes first.
    keys = [records[name] for name in ("edge_time", "edge_type") if name in names]
    order = stable_order(keys)
    rows = records["row"] - np.int32(load.first)
    indptr, by_row = group(
        rows if order is None else taken(rows, order), load.stop - load.first
    )
    del rows
    order = by_row if order is None else taken(order, by_row)
    fields = sorted(names - {"row"})
    return indptr, {n: taken(np.ascontiguousarray(records[n]), order) for n in fields}


def _sorted_pairs(load: Load, distinct: bool) -> tuple[np.ndarray, Arrays]:
    """The degrees and edges, each once if `distinct`, sorted by source."""
    keys = sorted_parts(load.records.view(np.int64), load.buckets)
    if distinct:
        kept = np.ones(keys.size, bool)
        np.not_equal(keys[1:], keys[:-1], out=kept[1:])
        keys = keys[kept]
    ends = keys.view(load.records.dtype)
    degree = np.bincount(ends["row"] - load.first, minlength=load.stop - load.first)
    return degree, {"indices": np.ascontiguousarray(ends["indices"])}


def _merged(load: Load, names: set[str]) -> tuple[np.ndarray, Arrays]:
    """The degrees and edges, each once; in `load` given edges are before reverse ones."""
    records = load.records
    rows = records["row"] - np.int32(load.first)
    times = [records["edge_time"]] if "edge_time" in names else []
    order = stable_order([records["indices"], *times, rows])
    if order is None:
        order = np.arange(records.size)
    first = np.zeros(records.size, bool)
    first[:1] = True
    for key in (rows, records["indices"], *times):
        key = taken(key, order)
        first[1:] |= key[1:] != key[:-1]
    kept = np.flatnonzero(first)
    made = {
        name: taken(np.ascontiguousarray(records[name]), order[kept])
        for name in sorted(names - {"row"})
    }
    if "edge_weight" in names and kept.size:
        weights = taken(np.ascontiguousarray(records["edge_weight"]), order)
        made["edge_weight"] = np.maximum.reduceat(weights, kept)
    degree = np.bincount(rows[order[kept]], minlength=load.stop - load.first)
    return degree, made
