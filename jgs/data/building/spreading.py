"""The first phase of a build: chunks of edges are checked and become records of fixed length,
in a file for each range of targets.

The fields of a record have the names of `Graph`'s arrays (`indices` is the source), and `row`
is the target. A record without other fields is a 64-bit integer with the target in the upper
half and the source in the lower.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jgs.data.building.shards import Chunk, Shard, not_ids
from jgs.data.building.work import Work, ahead, sync
from jgs.errors import InputError
from jgs.graph.arrays import TAKEN
from jgs.graph.checks import check_columns, check_times, times_with_nodes
from jgs.graph.grouping import group
from jgs.graph.weights import check_weights

COLUMN = "edge_columns."
_ENDS = [("indices", "<i4"), ("row", "<i4")]
_SPECIAL = ("src", "dst", "edge_weight", "edge_time")


@dataclass(frozen=True)
class Relation:
    """The edges of one relation, or of a graph without relations.

    Fields:
      what: what messages call it: "", or " of (user, buys, item)".
      number: the relation's, or None.
      sources, targets: the ids in the graph of the nodes that `src` and `dst` count.
      shards: where the edges come from.
    """

    what: str
    number: int | None
    sources: range
    targets: range
    shards: Sequence[Shard]


@dataclass(frozen=True)
class Layout:
    """What is kept of each edge, and how.

    Fields:
      dtype: of a record.
      relations: how many the given edges have; 0 for none.
      node_time: int64 `[N]` or None, as in `Graph.from_edges`.
    """

    dtype: np.dtype
    relations: int = 0
    node_time: np.ndarray | None = None

    @property
    def columns(self) -> dict[str, np.dtype]:
        """The user's columns by name."""
        fields = {n: self.dtype[n] for n in self.dtype.names or () if n.startswith(COLUMN)}
        return {name.removeprefix(COLUMN): dtype for name, dtype in fields.items()}

    def records(
        self, relation: Relation, shard: Shard, chunk: Chunk, row: int, position: int
    ) -> np.ndarray:
        """The records of a chunk.

        Args:
          row: the number of the chunk's first edge in its shard.
          position: its number among all given edges, those of earlier relations too.

        Raises `InputError` that names the shard and the row.
        """
        where = f"{shard.what}{relation.what}"
        ends = {"src": relation.sources, "dst": relation.targets}
        size = len(chunk["src"])
        for name, array in chunk.items():
            if len(array) != size:
                raise InputError(
                    f"the columns of {where} must be equally long",
                    f"{size} rows of 'src' and {len(array)} of {name!r} from row {row:,} on",
                    "Give each edge one entry in every column.",
                )
        made = np.empty(size, self.dtype)
        for (end, nodes), field in zip(ends.items(), ("indices", "row"), strict=True):
            ids = _checked_ids(f"{end} in {where}", chunk[end], len(nodes), row)
            np.add(ids, nodes.start, out=made[field], casting="unsafe")
        if relation.number is not None:
            made["edge_type"] = relation.number
        names = self.dtype.names or ()
        if "edge_order" in names:
            made["edge_order"] = np.arange(position, position + size)
        with _located(where, row):
            self._fill(made, chunk, names)
        return made

    def _fill(self, made: np.ndarray, chunk: Chunk, names: tuple[str, ...]) -> None:
        size = made.size
        if "edge_weight" in names:
            given = chunk.get("edge_weight")
            if given is None and self.relations < 2:
                raise _uneven("edge_weight")
            weight = np.ones(size, np.float32) if given is None else given
            made["edge_weight"] = check_weights(weight, size)
        if "edge_time" in names:
            times = chunk.get("edge_time")
            if times is None and self.node_time is None:
                raise _uneven("edge_time")
            times = None if times is None else check_times(times, size)
            if self.node_time is not None:
                given = (made["indices"], made["row"])
                times = times_with_nodes(times, self.node_time, *given)
            made["edge_time"] = times
        others = {name: chunk[name] for name in chunk if name not in _SPECIAL}
        found = check_columns(others, size, TAKEN)
        columns = self.columns
        if odd := sorted(set(found) ^ set(columns)):
            raise _uneven(odd[0])
        for name in ("edge_weight", "edge_time"):
            if name in chunk and name not in names:
                raise _uneven(name)
        for name, array in found.items():
            kind = columns[name]
            if array.shape[1:] != kind.shape or not np.can_cast(array.dtype, kind.base):
                raise InputError(
                    f"the edge column {name!r} must be {kind.base}{list(kind.shape)} an edge, "
                    "as in the first rows",
                    f"{array.dtype}{list(array.shape[1:])}",
                    "Write it with one dtype everywhere.",
                )
            made[COLUMN + name] = array

    def reversed(self, records: np.ndarray) -> np.ndarray:
        """The records of the reverse edges. Relation `r` becomes `r + relations`."""
        made = records.copy()
        made["indices"], made["row"] = records["row"], records["indices"]
        if "edge_type" in (self.dtype.names or ()):
            made["edge_type"] += np.int16(self.relations)
        return made


def layout_of(
    relations: Sequence[Relation], edge_order: bool, node_time: np.ndarray | None
) -> Layout:
    """The layout for these edges, by the first rows of each relation; raises `InputError`."""
    peeked = []
    for one in relations:
        for shard in one.shards:
            if (chunk := shard.peek()) is not None:
                with _located(f"{shard.what}{one.what}", 0):
                    others = {n: a for n, a in chunk.items() if n not in _SPECIAL}
                    columns = check_columns(others, len(chunk["src"]), TAKEN)
                peeked.append((set(chunk) & set(_SPECIAL), columns))
                break
    fields: list[Any] = list(_ENDS)
    typed = any(one.number is not None for one in relations)
    fields += [("edge_type", "<i2")] if typed else []
    fields += [("edge_order", "<i8")] if edge_order else []
    has = set().union(*(special for special, _ in peeked))
    fields += [("edge_weight", "<f4")] if "edge_weight" in has else []
    timed = "edge_time" in has or node_time is not None
    fields += [("edge_time", "<i8")] if timed else []
    names = {name: None for _, columns in peeked for name in columns}  # in order
    for name in names:
        if any(name not in columns for _, columns in peeked):
            raise _uneven(name)
        arrays = [columns[name] for _, columns in peeked]
        kind = np.result_type(*(array.dtype for array in arrays))
        fields.append((COLUMN + name, kind, arrays[0].shape[1:]))
    return Layout(np.dtype(fields), len(relations) if typed else 0, node_time)


def _checked_ids(what: str, given: Any, count: int, row: int) -> np.ndarray:
    ids = np.asarray(given)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise not_ids(what, ids)
    if ids.size and (ids.min() < 0 or ids.max() >= count):
        at = int(np.argmax((ids < 0) | (ids >= count)))
        raise InputError(
            f"{what} must be node ids in [0, {count})",
            f"{ids[at]} in row {row + at:,}",
            "Raise the number of nodes, or renumber them from 0.",
        )
    return ids


def _uneven(name: str) -> InputError:
    return InputError(
        "either all edges must have a column or none", f"{name!r} for some", "Add or remove it."
    )


@contextmanager
def _located(where: str, row: int) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        place = f", counted from row {row:,}" if row else ""
        value = f"{error.value}{place} of {where}"
        raise InputError(error.rule, value, error.remedy) from None


KEEP_EVERY = 20.0  # seconds between two states that a killed build can go on from


@dataclass
class Buckets:
    """The files of the first phase. Bucket `b` has the edges into nodes `[b << shift, ...)`.

    Fields:
      folder: where the files are.
      dtype: of a record.
      shift, count: the buckets' width, as a power of two, and their number.
      streams: 1, or 2 where the reverses of edges are in files of their own.
      sizes: int64 `[streams, count]`: how many records each file has.
    """

    folder: Path
    dtype: np.dtype
    shift: int
    count: int
    streams: int
    sizes: np.ndarray

    def path(self, stream: int, bucket: int) -> Path:
        return self.folder / f"{bucket:05}.{stream}"

    def append(self, stream: int, indptr: np.ndarray, records: np.ndarray) -> None:
        """Appends records, those of bucket `b` at `indptr[b]:indptr[b+1]`."""
        data = records.view(np.uint8).data
        width = self.dtype.itemsize
        for bucket in np.flatnonzero(np.diff(indptr)).tolist():
            begin, end = int(indptr[bucket]), int(indptr[bucket + 1])
            with open(self.path(stream, bucket), "ab", buffering=0) as file:
                left = data[begin * width : end * width]
                while left:
                    left = left[file.write(left) :]
            self.sizes[stream, bucket] += end - begin

    def read(self, stream: int, bucket: int, first: int, out: np.ndarray) -> None:
        """Fills `out` with the records of a file from number `first` on."""
        if not out.size:
            return
        path, left = self.path(stream, bucket), out.view(np.uint8).data
        with open(path, "rb", buffering=0) as file:
            file.seek(first * self.dtype.itemsize)
            while left:
                if not (count := file.readinto(left)):
                    raise OSError(f"{path} is cut short: remove {self.folder.parent}")
                left = left[count:]

    def remove(self, first: int, stop: int) -> None:
        for bucket in range(first, stop):
            for stream in range(self.streams):
                self.path(stream, bucket).unlink(missing_ok=True)

    def cut(self, first: int) -> bool:
        """Cuts off what is behind the known records of the buckets from `first` on. Returns
        whether all of these are there."""
        width = self.dtype.itemsize
        for stream, bucket in np.ndindex(*self.sizes.shape):
            if bucket < first:
                continue
            path, size = self.path(stream, bucket), int(self.sizes[stream, bucket]) * width
            have = path.stat().st_size if path.exists() else 0
            if have < size:
                return False
            if have > size:
                os.truncate(path, size)
        return True

    def sync(self) -> None:
        for stream, bucket in np.ndindex(*self.sizes.shape):
            sync(self.path(stream, bucket))


def spread(
    work: Work,
    layout: Layout,
    relations: Sequence[Relation],
    buckets: Buckets,
    *,
    both: bool,
    most: int,
    advance: Callable[[int], None],
) -> None:
    """Writes the records of all edges to `buckets`, and of their reverses too if `both`.

    `work.state["spread"]` says how far that is: the `shard` among those of all relations, the
    `row` in it, and the number of `edges` so far. `most` edges are read at once. `advance` gets
    the number of edges done. Raises `InputError`.
    """
    place = work.state["spread"]
    flat = [(one, shard) for one in relations for shard in one.shards]
    edges, row = place["edges"], place["row"]
    kept = time.monotonic()
    with ThreadPoolExecutor(1) as writer, ThreadPoolExecutor(1) as keeper:
        written: Future | None = None
        keeping: Future | None = None
        for number in range(place["shard"], len(flat)):
            relation, shard = flat[number]
            for chunk in ahead(iter(shard.chunks(row, most))):
                records = layout.records(relation, shard, chunk, row, edges)
                row, edges = row + records.size, edges + records.size
                made = [(0, records)]
                if both:
                    made.append((buckets.streams - 1, layout.reversed(records)))
                for stream, each in made:
                    indptr, order = group(each["row"] >> buckets.shift, buckets.count)
                    _wait(written)
                    written = writer.submit(_write, buckets, stream, indptr, order, each)
                    del each, indptr, order
                del made, records, chunk
                advance(edges)
                if time.monotonic() - kept >= KEEP_EVERY:
                    _wait(written)
                    _wait(keeping)
                    now = {"shard": number, "row": row, "edges": edges}
                    now |= {"shift": buckets.shift, "sizes": buckets.sizes.tolist()}
                    keeping, kept = keeper.submit(_keep, work, buckets, now), time.monotonic()
            row = 0
        _wait(written)
        _wait(keeping)
    now = {"shard": len(flat), "row": 0, "edges": edges}
    now |= {"shift": buckets.shift, "sizes": buckets.sizes.tolist()}
    _keep(work, buckets, now)


def _wait(task: Future | None) -> None:
    if task is not None:
        task.result()


def _write(
    buckets: Buckets, stream: int, indptr: np.ndarray, order: np.ndarray, records: np.ndarray
) -> None:
    if records.itemsize == 8:  # as integers, which are moved faster
        moved = np.take(records.view(np.int64), order).view(records.dtype)
    else:
        moved = np.take(records, order)
    buckets.append(stream, indptr, moved)


def _keep(work: Work, buckets: Buckets, place: dict) -> None:
    buckets.sync()
    work.save(spread=place)
