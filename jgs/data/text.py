"""Text files, plain or gzipped, read a chunk at a time: lines, names of columns, and tables of
numbers."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import warnings
import zlib
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jgs.errors import InputError, one_line, refuse, refusing
from jgs.files.arrow import COMMAS, check_not_utf16, pyarrow_for
from jgs.files.npy import plain_file

_LONGEST_LINE = 1 << 26
_ASCII = "".join(map(chr, range(128)))
_SPLIT_FILES = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


@dataclass(frozen=True)
class TextRule:
    """How text in tables is read; the options of a data set with these names.

    Fields:
      ids: "text": names of nodes are text whatever they look like, so that `01` is not `1`.
        None: names that are all whole numbers of 64 bits are numbers.
      encoding: that of text files, as Python names it; None is UTF-8.
    """

    ids: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.ids not in (None, "text"):
            raise InputError("the option ids must be text", repr(self.ids), "Or leave it out.")
        rule = "the option encoding must be one that Python knows, such as latin-1"
        with refusing((LookupError, UnicodeError), rule, "Correct it."):
            plain = _ASCII.encode(self.encoding or "utf-8").removeprefix(codecs.BOM_UTF8)
        refuse(
            (plain != _ASCII.encode(), f"{rule}, and have ASCII's characters as bytes",
             repr(self.encoding), f"Convert the file: iconv -f {self.encoding} -t utf-8."),
        )  # fmt: skip

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of `jgs.files.arrow.read_arrow` that say the same."""
        return {"ids_are_text": self.ids is not None, "encoding": self.encoding}


def read_rows(
    path: Path,
    dtype: type | np.dtype,
    *,
    delimiter: str | None = ",",
    comments: str | Sequence[str] | None = None,
    columns: int | None = None,
    more: bool = False,
    skip: int = 0,
    chunk_bytes: int = 1 << 24,
) -> Iterator[np.ndarray]:
    """The rows of a text table in order, as arrays `[rows, columns]` of `dtype`.

    Args:
      path: the file. It is gzipped if its first bytes say so, whatever its name is.
      dtype: the dtype of all numbers; `1.5` or `x` in a table of integers is an error. Of
        several fields, one for each column: the arrays are then `[rows]`.
      delimiter: separates columns; None is any white space. It may have several characters,
        such as `::`.
      comments: the beginning of a comment, or several, or None. Blank lines are skipped.
      columns: the number of columns; None takes that of the first row.
      more: whether a row may have further columns, with anything in them, which are not read.
      skip: the number of the file's first lines that are not read, whatever is in them.
      chunk_bytes: the size of the text that is parsed at once, which bounds the memory.

    Raises `InputError` for a file that is missing, cut short or not such a table.
    """
    line, first = 1, range(columns) if more and columns else None
    for text in line_chunks(path, chunk_bytes):
        while skip and text:
            text, skip, line = text.partition(b"\n")[2], skip - 1, line + 1
        one = delimiter
        if delimiter is not None and len(delimiter) > 1:  # NumPy takes one character
            text, one = text.replace(delimiter.encode(), b"\t"), "\t"
        rows = _parse(path, text, line, dtype, one, comments, first)
        line += text.count(b"\n")
        if rows.shape[0] == 0:
            continue
        if rows.dtype.names is not None:
            yield rows[:, 0]
            continue
        columns = rows.shape[1] if columns is None else columns
        if rows.shape[1] != columns:
            raise InputError(
                f"{path} must have {columns} columns",
                f"{rows.shape[1]} near line {line}",
                "Correct the file, or keep only those columns.",
            )
        yield rows


def read_named(
    path: Path, kinds: Mapping[str, type], perhaps: Collection[str] = (), **options: Any
) -> dict[str, np.ndarray]:
    """The columns of a text table by name, `[n]` each, of these dtypes. Those of `kinds` that
    `perhaps` names are float64 where one number in them has a point; others keep their digits.
    The options are those of `read_rows`. Raises `InputError`."""
    dtype = np.dtype([*kinds.items()])
    try:
        rows = np.concatenate([np.empty(0, dtype), *read_rows(path, dtype, **options)])
    except InputError:
        if not perhaps:
            raise
        made = {**kinds, **dict.fromkeys(perhaps, np.float64)}
        for name in perhaps if len(perhaps) > 1 else ():
            one = {**made, name: kinds[name]}
            with suppress(InputError):
                deque(read_rows(path, np.dtype([*one.items()]), **options), 0)
                made = one
        return read_named(path, made, **options)
    return {name: np.ascontiguousarray(rows[name]) for name in kinds}


def first_line(path: Path) -> bytes:
    """The file's first line. Raises `InputError` as `read_rows` does."""
    return next(line_chunks(path, 1 << 10), b"").partition(b"\n")[0]


def column_names(path: Path, encoding: str | None = None) -> list[str]:
    """The names of the columns of the table in a file, which has a line of names, in this
    encoding or UTF-8, if it is text. Raises `InputError`."""
    if path.suffix == ".parquet":
        pyarrow, rule = pyarrow_for(path), f"{path} must be a whole table"
        with refusing((pyarrow.ArrowException, OSError), rule, "Write it again."):
            return pyarrow.parquet.read_schema(plain_file(path)).names
    text = first_line(path).decode(encoding or "utf-8-sig", errors="replace")
    text = text.removeprefix("\ufeff").rstrip("\r")
    rule = f"{path} must begin with a line of names, which ends in a line feed"
    with refusing(csv.Error, rule, "Write it again."):
        between = "," if path.name.endswith(COMMAS) else "\t"
        return next(csv.reader([text], delimiter=between), [])


def first_row(path: Path, comments: bytes | tuple[bytes, ...] = b"#") -> bytes:
    """The file's first line that is neither blank nor begins with `comments`, or b"". Raises
    `InputError` as `read_rows` does."""
    lines = numbered_lines(path, 1 << 12)
    return next((line for _, line in lines if not line.startswith(comments)), b"")


def delimiter_of(path: Path) -> str | None:
    """What separates the columns of an edge list: commas if the first row of a file `.edges`
    has one, else white space. Raises `InputError` as `read_rows` does."""
    comma = path.name.endswith((".edges", ".edges.gz")) and b"," in first_row(
        path, (b"#", b"%")
    )
    return "," if comma else None


def last_comment(path: Path) -> bytes:
    """What the last comment before the first row says, behind `#`; b"" without one. Raises
    `InputError` as `read_rows` does."""
    found = b""
    for _, line in numbered_lines(path, 1 << 12):
        if not line.startswith(b"#"):
            return found
        found = line.lstrip(b"#").strip() or found
    return found


def read_lines(path: Path) -> list[str]:
    """All lines of a small text file but blank ones. Raises `InputError` as `read_rows`
    does."""
    text = b"".join(line_chunks(path, 1 << 16)).decode(errors="replace")
    return [line for line in text.splitlines() if line.strip()]


def read_table(
    path: Path, dtype: type, *, columns: int | None = None, **options: Any
) -> np.ndarray:
    """All rows of a text table at once, as `read_rows` reads them; for small tables."""
    parts = list(read_rows(path, dtype, columns=columns, **options))
    return np.concatenate(parts) if parts else np.empty((0, columns or 1), dtype)


def folders_with(folder: Path, names: Iterable[str]) -> list[Path]:
    """A folder and its folder `raw`, as PyG has it: those that have one of these files."""
    inner, known = (folder, folder / "raw"), tuple(names)
    return [at for at in inner if any((at / name).is_file() for name in known)]


def only(path: Path, files: Sequence[Path]) -> Path:
    """The only one of the files that a data set at `path` may be in. Raises `InputError`."""
    if len(files) != 1:
        raise InputError(
            f"{path} must hold one data set",
            f"{len(files)} of them",
            "Name the one that is meant, or the right folder.",
        )
    return files[0]


def files_named(folder: Path, names: Iterable[str], endings: Iterable[str]) -> list[Path]:
    """The files of a folder that have one of these names, without their endings."""
    files = (folder / f"{name}{end}" for name in names for end in endings)
    return [file for file in files if file.is_file()]


def files_of_splits(
    folder: Path, endings: Sequence[str], what: str = "file"
) -> dict[str, Path]:
    """The files `train`, `valid` (or `val`) and `test` of a folder, which may lack some, by the
    names of the splits. Raises `InputError` where it has two of one split."""
    found = {}
    for split, names in _SPLIT_FILES.items():
        rule = f"{folder} must hold one {what} of the {split} split"
        if file := at_most_one(rule, files_named(folder, names, endings)):
            found[split] = file
    return found


def at_most_one(rule: str, files: Sequence[Path]) -> Path | None:
    """The only one of the files, or None for none. Raises `InputError`, by this rule."""
    if len(files) > 1:
        found = ", ".join(file.name for file in files)
        raise InputError(rule, found, "Remove those too many.")
    return files[0] if files else None


def require_all(rule: str, found: Container[Any], needed: Iterable[Any], remedy: str) -> None:
    """Raises `InputError` by this rule, which says what lacks, unless all `needed` are
    `found`."""
    if missing := [str(each) for each in needed if each not in found]:
        raise InputError(rule, f"no {', '.join(missing)}", remedy)


def is_number(field: bytes | str) -> bool:
    """Whether Python reads it as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def unnamed(path: Path, row: Sequence[Any], where: str = "its first row") -> InputError:
    """The refusal of a list or a table of edges whose columns have no names."""
    shown = " ".join(w.decode(errors="replace") if isinstance(w, bytes) else w for w in row)
    rest = [f"column_{number}" for number in range(4, len(row) + 1)]
    names = (["src", "dst", name, *rest][: len(row)] for name in ("weight", "time"))
    ways = dict.fromkeys(f"columns={','.join(each)}" for each in names)
    return InputError(
        f"{path} must say what its columns are",
        f"{shown[:60]!r} in {where}, and no names",
        f"Give --data-options {' or '.join(ways)}.",
    )


def _parse(path, text, line, dtype, delimiter, comments, columns) -> np.ndarray:
    dtype = np.dtype(dtype)
    kinds = [dtype[name].name for name in dtype.names or ()] or [dtype.name]
    rule = f"{path} must be a table of {', '.join(kinds)} numbers"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # NumPy only warns of an integer read from "1.5"
            warnings.filterwarnings("ignore", message=".*input contained no data")
            return np.loadtxt(
                io.BytesIO(text), dtype, comments, delimiter, usecols=columns, ndmin=2
            )
    except (ValueError, OverflowError, Warning) as error:
        found = f"{one_line(error)}, counting rows from line {line}"
        raise InputError(rule, found, "Fetch the file again, or correct it.") from None


def numbered_lines(path: Path, chunk_bytes: int = 1 << 24) -> Iterator[tuple[int, bytes]]:
    """The file's lines that are not blank, with their numbers from 1. Raises `InputError` as
    `line_chunks` does."""
    lines = (line for text in line_chunks(path, chunk_bytes) for line in text.splitlines())
    return ((number, line) for number, line in enumerate(lines, 1) if line.strip())


def from_utf8(path: Path, number: int, text: bytes) -> str:
    """The text of the line `number` of the file. Raises `InputError`."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InputError(
            f"{path} must be text in UTF-8", f"other bytes in line {number}", "Convert it."
        ) from None


def line_chunks(path: Path, chunk_bytes: int = 1 << 24) -> Iterator[bytes]:
    """The file's text in pieces of about `chunk_bytes`, each of which ends at the end of a
    line. The file is gzipped if its first bytes say so. Raises `InputError`."""
    if not plain_file(path).exists():
        raise InputError(f"{path} must exist", "no such file", "Put it there.")
    remedy = "It is damaged or cut short: fetch it again."
    with (
        refusing((OSError, EOFError, zlib.error), f"{path} must be a whole file", remedy),
        open(path, "rb") as plain,
    ):
        first = plain.read(2)
        check_not_utf16(path, first)
        zipped = first == b"\x1f\x8b"
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if zipped else plain
        rest = b""
        while data := file.read(chunk_bytes):
            lines, newline, tail = data.rpartition(b"\n")
            if newline:
                yield rest + lines + newline
                rest = tail
            else:
                rest += tail
            if len(rest) > max(_LONGEST_LINE, chunk_bytes):
                raise InputError(
                    f"{path} must be text in lines",
                    f"a line of over {len(rest)} bytes",
                    "Check what the file is.",
                )
        if rest:
            yield rest
