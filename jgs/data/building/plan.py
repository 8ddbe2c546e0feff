"""What a build is to make, how much of it is in memory at once, and both of its phases.
Features from parts: `.npy` files `[n, F]`, tables, or a user's own arrays, one after the other,
in the order of the nodes."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
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

from jgs.arrays import require_array
from jgs.data.building.shards import FixedRows, open_shards, stamp_of
from jgs.data.building.sorting import Order, sort
from jgs.data.building.spreading import KEEP_EVERY, Buckets, Layout, Relation, spread
from jgs.data.building.table_pieces import TABLES, Columns, TableFile
from jgs.data.building.work import GrowingFile, Work, ahead
from jgs.data.values import Digits, as_features, check_finite
from jgs.errors import InputError, refusing
from jgs.files.npy import map_npy, plain_file
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


_BYTES = 1 << 25  # of a piece
_ALIKE = "Write them with one dtype and one width."


class Parts:
    """Rows of features, read piece by piece.

    Fields:
      what: what messages call them.
      rows: how many there are, or None where only reading tells.
      width, dtype: `F`, and float16 or float32.
      stamp: what tells that they are the same and unchanged, as JSON can hold it.
    """

    def __init__(self, what: str, given: Any):
        if isinstance(given, str | Path):
            given = [given]
        self.what = what
        self.rows: int | None = 0
        self._read: list[Callable[[int], Iterator[np.ndarray]]] = []
        self._counts: list[int | None] = []
        self.stamp: list[Any] = []
        shapes: list[tuple[str, int, np.dtype]] = []
        if isinstance(given, list | tuple) and all(isinstance(g, str | Path) for g in given):
            for path in map(Path, given):
                shapes.append((str(path), *self._open(path)))
                self.stamp.append(stamp_of(path))
        elif isinstance(given, np.ndarray):
            shapes.append((what, *self._take([given], given, len(given))))
        elif isinstance(given, Iterable):
            arrays = iter(given)
            first = next(arrays, np.empty((0, 0), np.float32))
            shapes.append((what, *self._take(chain([first], arrays), first, None)))
        else:
            raise InputError(
                f"the {what} must be files, an array, or an iterable of arrays",
                f"a {type(given).__name__}",
                "Give arrays of numbers [n, F].",
            )
        if not shapes:
            raise InputError(f"the {what} must have parts", "none", "Name their files.")
        first_name, self.width, self.dtype = shapes[0]
        for name, width, dtype in shapes[1:]:
            if (width, dtype) != (self.width, self.dtype):
                raise InputError(
                    f"all parts of the {what} must be {self.dtype}[n, {self.width}], as "
                    f"{first_name} is",
                    f"{dtype}[n, {width}] in {name}",
                    _ALIKE,
                )
        known = [count for count in self._counts if count is not None]
        self.rows = sum(known) if len(known) == len(self._counts) else None

    def _take(self, arrays: Iterable, first: Any, rows: int | None) -> tuple[int, np.dtype]:
        checked = as_features(self.what, np.asarray(first)[:0])
        self.stamp.append(secrets.token_hex(8))
        self._counts.append(rows)
        self._read.append(lambda _: map(np.asarray, arrays))
        return checked.shape[1], checked.dtype

    def _open(self, path: Path) -> tuple[int, np.dtype]:
        if not plain_file(path).exists():
            raise InputError(f"{path} must exist", "no such file", "Correct the path.")
        if path.name.endswith(TABLES):
            return self._open_table(path)
        if not path.name.endswith(".npy"):
            raise InputError(
                f"a part of the {self.what} must end in .npy, {', '.join(TABLES)}",
                path,
                "Convert or rename it.",
            )
        with refusing((OSError, ValueError), f"{path} must be a whole .npy file", "Write it."):
            array = map_npy(path)
        checked = as_features(str(path), array[:0])
        rows = FixedRows(path, array.dtype, getattr(array, "offset", 0), array.shape[1:])
        step = max(1, _BYTES // max(1, array.dtype.itemsize * array.shape[1]))

        def read(first: int) -> Iterator[np.ndarray]:
            for at in range(first, len(array), step):
                stop = min(at + step, len(array))
                yield rows.read(at, stop - at) if array.flags.c_contiguous else array[at:stop]

        self._counts.append(len(array))
        self._read.append(read)
        return checked.shape[1], checked.dtype

    def _open_table(self, path: Path) -> tuple[int, np.dtype]:
        table = TableFile(path, None)
        first = next(table.chunks(0, 1), None)
        names = table.names
        if first is None:
            raise InputError(f"{path} must have rows", "none", "Leave it out.")
        step = max(1, _BYTES // max(1, 8 * sum(each[0].size for each in first.values())))

        def read(row: int) -> Iterator[np.ndarray]:
            for chunk in table.chunks(row, step):
                yield _stacked(path, [chunk[name] for name in names])

        self._counts.append(table.rows)
        self._read.append(read)
        return _stacked(path, list(first.values())).shape[1], np.dtype(np.float32)

    def pieces(self, first: int) -> Iterator[np.ndarray]:
        """The rows from number `first` on; checked. Raises `InputError`."""
        at, row, digits = 0, 0, Digits(f"the {self.what}")
        for count, read in zip(self._counts, self._read, strict=True):
            if count is not None and first >= row + count:
                row += count
                continue
            for piece in read(max(0, first - row) if count is not None else 0):
                made = as_features(self.what, piece, digits)
                what = f"the {self.what} from row {at + first:,} on"
                require_array(what, made, f"{self.dtype} [n, F]", _ALIKE, F=self.width)
                check_finite(self.what.removeprefix("features of "), made, first + at)
                at += len(made)
                yield made
            row = first + at
        digits.check()


def _stacked(path: Path, columns: list[np.ndarray]) -> np.ndarray:
    for column in columns:
        what, form = f"the columns of {path}", "numbers [n] or [n, F], equally long lists"
        require_array(what, column, form, "Convert or remove the column.")
    return np.column_stack([column.astype(np.float64) for column in columns])


def copy(
    work: Work, name: str, parts: Parts, rows: int, advance: Callable[[int], None]
) -> GrowingFile:
    """Writes the features as the array `name` of `work.new`, and returns its file.

    `work.state["features"][name]` is how many rows are on the disk already. There must be as
    many `rows`. `advance` gets the number of rows done. Raises `InputError`.
    """
    done = 0 if parts.rows is None else work.state["features"].get(name, 0)
    file = GrowingFile(work.new, name, (rows, parts.width), parts.dtype, done)
    kept = time.monotonic()

    def keep() -> None:
        file.sync()
        work.save(features=work.state["features"] | {name: done})

    with file:
        for piece in ahead(parts.pieces(done)) if done < rows else ():
            if done + len(piece) > rows:
                raise another_number(parts.what, rows, "more")
            file.append(piece)
            done += len(piece)
            advance(done)
            if time.monotonic() - kept >= KEEP_EVERY:
                keep()
                kept = time.monotonic()
        if done < rows:
            raise another_number(parts.what, rows, f"{done:,}")
        keep()
    return file


def another_number(what: str, rows: int, found: str) -> InputError:
    """The error for features that have not a row for each of these nodes."""
    return InputError(
        f"the {what} must have a row for each of the {rows:,} nodes",
        found,
        "Correct the number of nodes, or the parts.",
    )
