"""Columns of tables: of Parquet and CSV files, and of pandas, Polars and Arrow, whose types are
recognised by duck typing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError, refusing
from jgs.graph.device import as_numpy
from jgs.graph.formats.arrow import read_arrow
from jgs.graph.formats.convert import Edges, count_nodes
from jgs.graph.node_ids import NodeIds, id_column

ENDINGS = (".parquet", ".csv", ".csv.gz")
_WEIGHT = "edge_weight"


def table_edges(
    table: Any,
    num_nodes: int | None,
    ids: NodeIds | None,
    src: str,
    dst: str,
    weight: str | None,
    columns: Iterable[str] | None,
) -> tuple[Edges, dict[str, np.ndarray]]:
    """See `Graph.from_table`; also the edge columns."""
    name = table_name(table)
    # A CSV file says of no column whether 07 is text, which it is beside ids that are text.
    text = ids is not None and ids.values.dtype == object
    found = read_columns(table, [src, dst] if text else [], [src, dst])
    weight = weight or (_WEIGHT if _WEIGHT in found else None)
    special = [src, dst, *([] if weight is None else [weight])]
    needed = special if columns is None else [*special, *columns]
    require(name, found, needed)
    ends = found[src], found[dst]
    if ids is not None:
        if num_nodes is None:
            num_nodes = len(ids)
        ends = ids.nodes(ends[0], f"{src} in {name}"), ids.nodes(ends[1], f"{dst} in {name}")
    else:
        ends = id_column(f"{src} in {name}", ends[0]), id_column(f"{dst} in {name}", ends[1])
        if any(end.size and end.dtype == object for end in ends):
            raise InputError(
                f"{src} and {dst} in {name} must be node ids, integers from 0",
                "text",
                "Map them: ids = jgs.NodeIds.of_edges(src, dst), and give ids=ids.",
            )
    if num_nodes is None:
        num_nodes = count_nodes(*ends)
    others = [c for c in found if c not in special] if columns is None else list(columns)
    edges = Edges(*ends, num_nodes, None if weight is None else found[weight])
    return edges, {column: found[column] for column in others}


_WHOLE = ("int64", "uint64")  # Arrow's and polars' types of which a float may be another number
_FILL = "Fill the gaps, or leave the column out."


def require(
    name: str,
    found: Collection[str],
    needed: Iterable[str],
    remedy: str = "Rename the right one, or say which it is.",
) -> None:
    """Raises `InputError` unless the table `name` has the columns `needed`."""
    if missing := [column for column in needed if column not in found]:
        raise InputError(
            f"{name} must have a column {' and a column '.join(map(repr, missing))}",
            f"columns {', '.join(map(repr, found)) or 'none'}",
            remedy,
        )


def table_name(table: Any) -> str:
    """What error messages call a table: its path, or its type."""
    if isinstance(table, str | os.PathLike):
        return os.fspath(table)
    return f"the {type(table).__name__}"


def read_columns(
    table: Any, text: Iterable[str] = (), ids: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """The columns of a table by name, in order, each `[n]`; a column of equally long lists is
    `[n, k]`.

    Args:
      table: the path of a Parquet or CSV file, for which pyarrow must be installed; a data
        frame of pandas or Polars, also a lazy one; an Arrow table; a relation of DuckDB, for
        which pyarrow must be installed; or a dict of arrays.
      text: the columns that are text in a CSV file, whatever they look like.
      ids: the columns of a file that name nodes; see `jgs.graph.formats.arrow.read_arrow`.

    Raises `InputError`.
    """
    if isinstance(table, str | os.PathLike):
        table = _read_file(Path(table), text, ids)
    for name in ("collect", "to_arrow_table"):  # of lazy frames, and of DuckDB's relations
        if callable(make := getattr(table, name, None)):
            with refusing(Exception, f"{table_name(table)} must be readable", "Correct it."):
                table = make()
    names = getattr(table, "column_names", None)  # Arrow
    if names is None:
        names = list(table) if isinstance(table, Mapping) else getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__"):
        raise InputError(
            "a table must be a path, a data frame, an Arrow table or a dict of columns",
            f"a {type(table).__name__}",
            "Give one of them.",
        )
    names = list(names)
    if len({str(name) for name in names}) < len(names):
        raise InputError("columns must have different names", names, "Rename one.")
    found = {}
    for name in names:
        with refusing(_Lost, f"the column {name!r} must keep its digits", _FILL):
            found[str(name)] = _column(table[name])
    return found


class _Lost(ValueError):
    """A whole number beside gaps, with which it would become a float that is another number."""


def _check_digits(numbers: Iterable[int]) -> None:
    for number in numbers:
        if int(float(number)) != number:
            raise _Lost(f"{number} beside missing values, which would be {float(number):.0f}")


def _column(values: Any) -> np.ndarray:
    if hasattr(getattr(values, "type", None), "index_type"):
        # Arrow's categories: `to_numpy` would give the last one for an entry that is missing.
        values = values.cast(values.type.value_type)
    if str(getattr(values, "dtype", "")) in ("Int128", "UInt128"):  # of polars
        array = np.array(values.to_list(), object)
    else:
        for drop in ("drop_null", "drop_nulls"):  # Arrow, polars
            if str(getattr(values, "type", getattr(values, "dtype", ""))).lower() in _WHOLE:
                known = getattr(values, drop, lambda: values)()
                if len(known) < len(values):
                    large = known.to_numpy()
                    _check_digits(large[(large > 2**53) | (large < -(2**53))].tolist())
        array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    array = _exact(array)
    lists = array.dtype == object and array.ndim == 1 and array.size > 0
    if lists and all(isinstance(each, np.ndarray | list) for each in array):
        try:
            return np.stack([np.asarray(each) for each in array])
        except ValueError:
            pass  # lists of unequal lengths: whoever reads the column refuses it
    return array


def _exact(array: np.ndarray) -> np.ndarray:
    """Decimals and integers of 128 bits as NumPy's numbers; other arrays as they are."""
    if array.dtype != object or array.ndim != 1:
        return array
    first = next((each for each in array if each is not None), None)
    if not isinstance(first, Decimal | int) or isinstance(first, bool):
        return array
    if not all(each is None or isinstance(each, Decimal | int) for each in array):
        return array
    if any(each is None for each in array):
        _check_digits(each for each in array if isinstance(each, int))
    if any(each is None or each != int(each) for each in array):
        return np.array([np.nan if each is None else float(each) for each in array])
    return np.array([int(each) for each in array])


def _read_file(path: Path, text: Iterable[str], ids: Collection[str]) -> Any:
    if not path.name.endswith(ENDINGS):
        raise InputError(
            f"a table's file must end in {', '.join(ENDINGS)}", path, "Convert or rename it."
        )
    return read_arrow(path, dict.fromkeys(text, "string"), ids=ids)
