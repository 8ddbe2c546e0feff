"""Tables of edges or of features, read piece by piece: Parquet and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.errors import InputError, one_line, refusing, require_columns
from jgs.files.arrow import (
    HEXADECIMAL,
    check_not_utf16,
    has_hexadecimal,
    matches,
    pyarrow_for,
    read_columns,
)

TABLES = (".parquet", ".csv", ".csv.gz")
_BLOCK = 1 << 24  # bytes of text that are parsed at once


class Columns(NamedTuple):
    """What the columns of tables of edges are called.

    Fields:
      src, dst: the ends of the edges.
      weight: the weights; None: `edge_weight`, if there is one.
      time: the times; None: `edge_time` or `time`, if there is one.
      columns: those that become edge columns; None: all others.
    """

    src: str = "src"
    dst: str = "dst"
    weight: str | None = None
    time: str | None = None
    columns: tuple[str, ...] | None = None

    def roles(self, what: str, found: list[str]) -> dict[str, str]:
        """What each column that is read becomes, by its name in a table that has the columns
        `found`. Raises `InputError` where one is missing."""
        weight = self.weight or ("edge_weight" if "edge_weight" in found else None)
        times = [name for name in ("edge_time", "time") if name in found]
        time = self.time or (times[0] if times else None)
        special = {self.src: "src", self.dst: "dst"}
        special |= {} if weight is None else {weight: "edge_weight"}
        special |= {} if time is None else {time: "edge_time"}
        others = (
            [n for n in found if n not in special] if self.columns is None else self.columns
        )
        require_columns(what, found, [*special, *others])
        return special | {name: name for name in others if name not in special}


class TableFile:
    """A Parquet or CSV file. `rows` is their number, None for text. Raises `InputError`."""

    def __init__(self, path: Path, columns: Columns | None):
        self._path, self.rows = path, None
        self._arrow = pyarrow_for(path)
        kind = "Parquet" if path.suffix == ".parquet" else "CSV"
        self._rule = f"{path} must be a whole {kind} file"
        if kind == "Parquet":
            with self._refusing():
                file = self._arrow.parquet.ParquetFile(path)
                self.rows, names = file.metadata.num_rows, file.schema_arrow.names
        else:
            with self._refusing(), self._open_csv({}) as file:
                names = file.schema.names
        if len(set(names)) < len(names):
            raise InputError(f"{path} must have columns of different names", names, "Rename.")
        self.names = names
        plain = {name: name for name in names}
        self._roles = plain if columns is None else columns.roles(str(path), names)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        errors = (self._arrow.ArrowException, OSError, ValueError)
        with refusing(errors, self._rule, "Write it again."):
            try:
                yield
            except self._arrow.ArrowInvalid as error:
                if "conversion error" not in str(error):
                    raise
                raise InputError(
                    f"the ends and weights of edges in {self._path} must be numbers",
                    one_line(error),
                    "Number the nodes from 0 (jgs.NodeIds).",
                ) from None

    def _open_csv(self, types: dict[str, Any], only: list[str] | None = None) -> Any:
        csv = self._arrow.csv
        with self._arrow.input_stream(self._path) as file:  # it unpacks .gz
            check_not_utf16(self._path, file.read(2))
        return csv.open_csv(
            self._path,
            csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=only),
        )

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The Arrow types of columns of text. Arrow takes them from the first block; those
        that a later one may change are taken from all, in Arrow's order."""
        arrow = self._arrow
        known = {"src": arrow.int64(), "dst": arrow.int64(), "edge_weight": arrow.float64()}
        types = {n: known[role] for n, role in self._roles.items() if role in known}
        if has_hexadecimal(self._path):
            self._refuse_hexadecimal()
        if self._path.stat().st_size <= _BLOCK and self._path.suffix != ".gz":
            return types
        seconds = [arrow.time32("s"), arrow.timestamp("s"), arrow.timestamp("ns")]
        order = [arrow.null(), arrow.int64(), arrow.bool_(), arrow.date32(), *seconds]
        order += [arrow.float64(), arrow.string()]
        with self._open_csv(types) as file:
            found = {f.name: f.type for f in file.schema if f.name in self._roles}
        for name, kind in found.items():
            if name not in types and kind in order[:-2]:
                choices = order[order.index(kind) :]
                types[name] = next(k for k in choices if self._holds(name, k))
        return types

    def _refuse_hexadecimal(self) -> None:
        names, text = list(self._roles), self._arrow.string()
        with self._open_csv(dict.fromkeys(names, text), names) as file:
            for batch, name in ((batch, name) for batch in file for name in names):
                if found := batch.column(name).filter(matches(batch, name, HEXADECIMAL)):
                    rule = f"the column {name!r} in {self._path} must be numbers"
                    remedy = "Number the nodes from 0 (jgs.NodeIds), or leave the column out."
                    raise InputError(rule, repr(found[0].as_py()), remedy)

    def _holds(self, name: str, kind: Any) -> bool:
        if kind == self._arrow.string():
            return True
        try:
            with self._open_csv({name: kind}, [name]) as file:
                return all(True for _ in file)
        except self._arrow.ArrowInvalid as error:
            if "conversion error" in str(error):
                return False
            raise

    def chunks(self, first: int, most: int) -> Iterator[dict[str, np.ndarray]]:
        """The rows from number `first` on, at most `most` a chunk, with their columns by what
        they become."""
        for batch in self._batches(first, most):
            table = self._arrow.Table.from_batches([batch]).select(list(self._roles))
            found = read_columns(table)
            for at in range(0, len(table), most):
                yield {self._roles[n]: array[at : at + most] for n, array in found.items()}

    def _batches(self, first: int, most: int) -> Iterator[Any]:
        if self.rows is None:
            with self._refusing():
                source = self._open_csv(self._types)
            skip = first
        else:
            with self._refusing():
                file = self._arrow.parquet.ParquetFile(self._path)
                groups, skip = _groups_from(file.metadata, first)
                source = file.iter_batches(most, groups, list(self._roles), use_threads=False)
        batches = iter(source)
        while True:
            with self._refusing():
                batch = next(batches, None)
            if batch is None:
                return
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            yield batch.slice(skip)
            skip = 0

    def largest_id(self) -> int | None:
        """The largest id of a node, as a Parquet file's statistics have it; None where none
        are there."""
        if self.rows is None:
            return None
        with self._refusing():
            found = self._arrow.parquet.ParquetFile(self._path).metadata
        ends = [name for name, role in self._roles.items() if role in ("src", "dst")]
        most = -1
        for group in range(found.num_row_groups):
            columns = [found.row_group(group).column(i) for i in range(found.num_columns)]
            for column in (c for c in columns if c.path_in_schema in ends):
                known = column.statistics
                if column.num_values == 0:
                    continue
                if known is None or not known.has_min_max or not isinstance(known.max, int):
                    return None
                most = max(most, known.max)
        return most


def _groups_from(metadata: Any, first: int) -> tuple[list[int], int]:
    """The row groups from that of row `first` on, and how many rows come before it."""
    begin = 0
    for group in range(metadata.num_row_groups):
        size = metadata.row_group(group).num_rows
        if first < begin + size:
            return list(range(group, metadata.num_row_groups)), first - begin
        begin += size
    return [], 0
