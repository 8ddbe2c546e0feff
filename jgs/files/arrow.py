"""Columns of tables: of files, Parquet and text, as Arrow reads them, and of pandas, Polars and
Arrow, whose types are recognised by duck typing.

Arrow decides by a column's text what it is. Where that would change a name without a word, the
column is text here: `0x1A` is no number, and whole numbers of over 64 bits are no floats.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import as_numpy
from jgs.errors import InputError, one_line, refusing
from jgs.files.npy import plain_file

ENDINGS = (".parquet", ".csv", ".csv.gz")
_INTEGERS = ("int64", "uint64")  # of numbers that may be no floats
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
      ids: the columns of a file that name nodes; see `read_arrow`.

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
    if isinstance(kind, np.dtype) or str(kind).lower() not in _INTEGERS or drop is None:
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
    whole = [int(each) for each in array]
    found = np.array(whole)  # floats, where some are below 0 and some beyond int64
    return found if found.dtype.kind in "iuO" else np.array(whole, object)


def read_arrow(
    path: Path,
    types: Mapping[str, str],
    names: Iterable[str] | None = None,
    skip: int = 0,
    *,
    ids: Collection[str] = (),
    ids_are_text: bool = False,
    encoding: str | None = None,
) -> Any:
    """The Arrow table in a file, which is of Parquet if its name ends in `.parquet`, and else
    text: with commas between the columns if it ends in `.csv` or `.csv.gz`, with tabs if not.

    Args:
      types: Arrow's types of columns of text files, by name; others are inferred. What looks
        like a hexadecimal number is text. A column of `"token"` has integers where all its
        names are written as integers are, and else text.
      names: the names of a text file's columns. None: its first line has them.
      skip: the number of a text file's first lines that are not read.
      ids: the columns that name nodes, of those that are there. Whole numbers of more than 64
        bits are text in them.
      ids_are_text: whether they are text whatever they look like, so that `01` is not `1`.
      encoding: that of a text file, as Python names it; None is UTF-8.

    Raises `InputError`.
    """
    pyarrow = pyarrow_for(path)
    if not plain_file(path).exists():
        raise InputError(f"{path} must exist", "no such file", "Correct the path.")
    kind = "Parquet" if path.suffix == ".parquet" else "CSV"
    if kind == "Parquet" and names is not None:
        raise InputError(
            "only the columns of a text file may need names", path, "Leave them out."
        )
    errors = (pyarrow.ArrowException, OSError, ValueError)
    with refusing(errors, f"{path} must be a whole {kind} file", "Write it again."):
        if kind == "Parquet":
            with open(path, "rb") as file:
                table = pyarrow.parquet.read_table(file)
            return _as("string", table, ids) if ids_are_text else table
        made = {name: pyarrow.type_for_alias(_ALIASES.get(t, t)) for name, t in types.items()}
        header = None if names is None else list(names)
        text = _TextFile(path, header, skip, encoding)
        if ids_are_text:
            return text.read(made | dict.fromkeys(ids, pyarrow.string()))
        table = text.read(made)
        if wrong := text.words(table, [name for name in ids if name not in types], types):
            table = text.read(made | dict.fromkeys(wrong, pyarrow.string()))
        tokens = [n for n, t in types.items() if t == "token" and n in table.column_names]
        every = pyarrow.compute.all
        whole = [n for n in tokens if every(matches(table, n, _WRITTEN_WHOLE)).as_py()]
        return _as("int64", table, whole)


_ALIASES = {"token": "string"}
COMMAS = (".csv", ".csv.gz")
"""How the names of text files end that have commas between the columns; others have tabs."""
HEXADECIMAL = r"^\s*[+-]?0[xX]"
_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_WRITTEN_WHOLE = "^(0|-?[1-9][0-9]{0,17})$"


def _delimiter(path: Path) -> str:
    return "," if path.name.endswith(COMMAS) else "\t"


class _TextFile(NamedTuple):
    """A text file's table: its columns' names or None, and how many lines come before."""

    path: Path
    names: list[str] | None
    skip: int
    encoding: str | None

    def read(self, types: Mapping[str, Any]) -> Any:
        """The table, of which some columns have these Arrow types."""
        import pyarrow.csv

        with pyarrow.input_stream(self.path) as file:  # it unpacks .gz
            check_not_utf16(self.path, file.read(2))
        # Only one thread alone knows the number of a row that it cannot read.
        for threads in (True, False):
            try:
                table = pyarrow.csv.read_csv(
                    self.path,
                    pyarrow.csv.ReadOptions(
                        use_threads=threads,
                        column_names=self.names,
                        skip_rows=self.skip,
                        encoding=self.encoding or "utf8",
                    ),
                    pyarrow.csv.ParseOptions(delimiter=_delimiter(self.path)),
                    pyarrow.csv.ConvertOptions(column_types=types),
                )
                break
            except pyarrow.ArrowInvalid as error:
                if "UTF8" in str(error):
                    raise self._not_utf8(one_line(error)) from None
                if not threads:
                    raise
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pyarrow.types.is_binary(column.type):
                raise self._not_utf8(f"bytes that are none in the column {name!r}")
        return table

    def _not_utf8(self, found: str) -> InputError:
        return InputError(
            f"{self.path} must be text in UTF-8",
            found,
            "Say which encoding it is in, --data-options encoding=latin-1, or convert it: "
            "iconv -f latin1 -t utf8.",
        )

    def words(self, table: Any, ids: Collection[str], types: Collection[str]) -> list[str]:
        """The columns of `table` that Arrow takes for numbers and that are words: hexadecimal
        ones, and among `ids` whole numbers that do not fit 64 bits."""
        import pyarrow.compute as pc
        from pyarrow import string
        from pyarrow.types import is_floating, is_integer

        kinds = {n: c.type for n, c in zip(table.column_names, table.columns, strict=True)}
        integers = [n for n, kind in kinds.items() if is_integer(kind) and n not in types]
        integers = integers if integers and has_hexadecimal(self.path) else []
        floats = [n for n in ids if n in kinds and is_floating(kinds[n])]
        if not integers and not floats:
            return []
        texts = self.read(dict.fromkeys([*integers, *floats], string()))
        some, every = pc.any, pc.all
        found = [n for n in integers if some(matches(texts, n, HEXADECIMAL)).as_py()]
        return found + [n for n in floats if every(matches(texts, n, _WHOLE)).as_py()]


def has_hexadecimal(path: Path) -> bool:
    """Whether a file's text has `0x` or `0X` somewhere. Arrow reads `0x1A` as 26."""
    import pyarrow

    last = b""
    with pyarrow.input_stream(path) as file:  # it unpacks .gz
        while piece := file.read(1 << 20):
            # A table of numbers has no x, which is found out much faster.
            if (b"x" in piece or b"X" in piece) and b"0x" in (last + piece).lower():
                return True
            last = piece[-1:]
    return False


def check_not_utf16(path: Path, first: bytes) -> None:
    """Raises `InputError` where the `first` bytes of a text file are a mark of UTF-16."""
    if first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        remedy = "Convert it: iconv -f utf-16 -t utf-8."
        raise InputError(f"{path} must be text in UTF-8", "UTF-16", remedy)


def matches(table: Any, name: str, pattern: str) -> Any:
    """Arrow's booleans: which entries of a column of text have the pattern."""
    import pyarrow.compute as pc

    return pc.match_substring_regex(table.column(name), pattern)


def _as(kind: str, table: Any, columns: Iterable[str]) -> Any:
    for name in columns:
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(name).cast(kind))
    return table


def pyarrow_for(path: Any) -> Any:
    """The package that reads the table at `path`. Raises `InputError` where it is missing."""
    rule = f"pyarrow must be installed to read {path}"
    with refusing(ImportError, rule, "Install it with pip install 'jgs[tables]'."):
        # Optional, and a slow import.
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    return pyarrow
