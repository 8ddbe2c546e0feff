"""Columns of tables: of Parquet and CSV files, and of pandas, Polars and Arrow, whose types are
recognised by duck typing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import as_numpy
from jgs.errors import InputError, refusing
from jgs.files.arrow import read_arrow

ENDINGS = (".parquet", ".csv", ".csv.gz")
_WHOLE = ("int64", "uint64")  # of numbers that may be no floats
_FILL = "Fill the gaps, or leave the column out."


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
      ids: the columns of a file that name nodes; see `jgs.files.arrow.read_arrow`.

    Raises `InputError`.
    """
    if isinstance(table, str | os.PathLike):
        path = Path(table)
        if not path.name.endswith(ENDINGS):
            must = f"a table's file must end in {', '.join(ENDINGS)}"
            raise InputError(must, path, "Convert or rename it.")
        table = read_arrow(path, dict.fromkeys(text, "string"), ids=ids)
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
    return {str(name): _column(str(name), table[name]) for name in names}


def check_digits(name: str, numbers: np.ndarray, beside: str = "missing values") -> None:
    """Raises `InputError` where one of the whole `numbers` of the column `name` would be
    another one as a float, which they become for what stands `beside` them."""
    for number in numbers[np.abs(numbers.astype(np.float64)) >= 2**53].tolist():
        if int(float(number)) != number:
            raise InputError(
                f"the column {name!r} must keep its digits",
                f"{number} beside {beside}, which would be {float(number):.0f}",
                _FILL,
            )


def _beside_gaps(values: Any) -> np.ndarray | None:
    """The whole numbers of a column of Arrow, polars or pandas that has gaps; or None."""
    kind = getattr(values, "type", getattr(values, "dtype", ""))
    drops = (getattr(values, name, None) for name in ("drop_null", "drop_nulls", "dropna"))
    drop = next(filter(None, drops), None)
    if isinstance(kind, np.dtype) or str(kind).lower() not in _WHOLE or drop is None:
        return None
    known = drop()
    return known.to_numpy().astype(str(kind).lower()) if len(known) < len(values) else None


def _column(name: str, values: Any) -> np.ndarray:
    if hasattr(getattr(values, "type", None), "index_type"):
        # Arrow's categories: `to_numpy` would give the last one for an entry that is missing.
        values = values.cast(values.type.value_type)
    if str(getattr(values, "dtype", "")) in ("Int128", "UInt128"):  # of polars
        array = np.array(values.to_list(), object)
    else:
        if (whole := _beside_gaps(values)) is not None:
            check_digits(name, whole)
        array = values.to_numpy() if hasattr(values, "to_numpy") else as_numpy(values)
    array = _exact(name, array)
    lists = array.dtype == object and array.ndim == 1 and array.size > 0
    if lists and all(isinstance(each, np.ndarray | list) for each in array):
        try:
            return np.stack([np.asarray(each) for each in array])
        except ValueError:
            pass  # lists of unequal lengths: whoever reads the column refuses it
    return array


def _exact(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype != object or array.ndim != 1:
        return array
    first = next((each for each in array if each is not None), None)
    if not isinstance(first, Decimal | int) or isinstance(first, bool):
        return array
    if not all(each is None or isinstance(each, Decimal | int) for each in array):
        return array
    if any(each is None for each in array):
        whole = [int(each) for each in array if each is not None and each == int(each)]
        check_digits(name, np.array(whole, object))
    if any(each is None or each != int(each) for each in array):
        return np.array([np.nan if each is None else float(each) for each in array])
    return np.array([int(each) for each in array])
