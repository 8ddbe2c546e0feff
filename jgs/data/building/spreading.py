"""The first phase of a build: edges become records, in a file for each range of targets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jgs.data.building.records import Layout, Relation
from jgs.data.building.work import Work, ahead, sync
from jgs.graph.grouping import group

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
