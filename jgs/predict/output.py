"""The file that `python -m jgs.predict` writes: columns of numbers, a row for each node.

An `.npy` file is a structured array with a field for each column, of the dtypes below. A `.csv`
file begins with a line of column names. A `.parquet` file needs pyarrow (the extra `tables`);
each row of a matrix is a list of fixed size. The columns are:

    node          int32, the id in the data set; if the data set has ids of its own
                  (`jgs.NodeIds`), these, int64 or text; otherwise with `--node-type` the id
                  in the type
    prediction    int32, the class; for multi-label data bool `[C]`, in CSV the predicted
                  labels with spaces between them
    probability   float32, the probability of that class; for multi-label data `[C]`, in CSV
                  those of the predicted labels
    class_name    text, the name of the class, where the data set names its classes; not for
                  multi-label data
    embedding     float32 `[W]`, in CSV W columns `embedding_0`, `embedding_1`, ...; with
                  `--embed`, in place of the other columns after `node`
    value         float64, where labels are numbers, in their unit; of several numbers `[T]`,
                  in CSV T columns `value_0`, `value_1`, ...; in place of the other columns
                  after `node`

For a run on labels at moments a row is a node at a time. Without `--at` it has the column
`time`, int64, after `node`.

For a run of `--task links` or `--task edges` a row with `--pairs` is a pair: `source` and
`target`, ids as in `node`, the pair's own `time` if the file of pairs has it, int64, and
`probability`; of edges `prediction` and `probability`, or `value`, float64. With `--top-k` it
is one of a node's targets: `source`, `target`, `place`, int32 from 1 on, and `score`, float32.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jgs.errors import InputError, refuse, refusing
from jgs.files.writing import whole_file

ENDINGS = (".csv", ".npy", ".parquet")
_ROWS = 1 << 14  # written at a time


def check_out(path: Path) -> None:
    refuse(
        (path.suffix not in ENDINGS, f"--out must end in {', '.join(ENDINGS)}", path,
         "Name the format by the ending."),
        (path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None,
         "an --out in .parquet must have pyarrow", "not installed",
         "pip install 'jgs[tables]', or name a .csv or .npy file."),
        (path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK),
         "--out must name a file in a folder that can be written", path, "Make the folder."),
    )  # fmt: skip


def check_not_read(path: Path, read: Iterable[Any]) -> None:
    """Raises `InputError` where `path` is a file that a run reads, or is in a folder that it
    reads. `read` are files and folders, and None."""
    for place in map(Path, filter(None, read)):
        there = path.exists() and place.exists()
        if there and (path.samefile(place) or place.resolve() in path.resolve().parents):
            raise InputError(
                "--out must not replace a file that the run reads, or one in a folder of those",
                path,
                "Name another file.",
            )


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Writes the columns, `[n]` or `[n, W]` each, whole or not at all. Raises `InputError`."""
    rule = f"{path} must be writable, with room on its disk"
    with refusing(OSError, rule, "Free space, or choose another."), whole_file(path) as file:
        _WRITERS[path.suffix](file, columns)


def _pieces(columns: dict[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    num = len(next(iter(columns.values())))
    for begin in range(0, max(num, 1), _ROWS):
        yield {name: array[begin : begin + _ROWS] for name, array in columns.items()}


def _write_npy(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    columns = {name: a.astype(str) if a.dtype == object else a for name, a in columns.items()}
    dtype = np.dtype([(name, a.dtype, a.shape[1:]) for name, a in columns.items()])
    num = len(next(iter(columns.values())))
    header = {"descr": dtype.descr, "fortran_order": False, "shape": (num,)}
    np.lib.format.write_array_header_1_0(file, header)
    for piece in _pieces(columns):
        rows = np.empty(len(next(iter(piece.values()))), dtype)
        for name, array in piece.items():
            rows[name] = array
        file.write(rows.tobytes())


def _write_csv(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    for number, piece in enumerate(_pieces(columns)):
        texts = _texts(piece)
        if number == 0:
            file.write((",".join(texts) + "\n").encode())
        lines = zip(*texts.values(), strict=True)
        file.write("".join(",".join(line) + "\n" for line in lines).encode())


def _texts(columns: dict[str, np.ndarray]) -> dict[str, Iterable[str]]:
    texts: dict[str, Iterable[str]] = {}
    for name, rows in columns.items():
        if name == "embedding" or (name == "value" and rows.ndim == 2):
            texts |= {f"{name}_{unit}": map(str, own) for unit, own in enumerate(rows.T)}
        elif rows.dtype.kind in "UO":
            texts[name] = map(_quoted, rows)
        elif rows.ndim == 1:
            texts[name] = map(str, rows)
        else:
            labels = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
            shown = labels if name == "prediction" else rows
            both = zip(shown, columns["prediction"], strict=True)
            texts[name] = [" ".join(map(str, row[predicted])) for row, predicted in both]
    return texts


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _write_parquet(file: BinaryIO, columns: dict[str, np.ndarray]) -> None:
    import pyarrow  # an optional dependency, and a slow import
    import pyarrow.parquet

    def column(rows: np.ndarray) -> Any:
        flat = pyarrow.array(rows.reshape(-1))
        if rows.ndim == 1:
            return flat
        return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])

    pieces = _pieces(columns)
    tables = (pyarrow.table({n: column(a) for n, a in piece.items()}) for piece in pieces)
    first = next(tables)
    with pyarrow.parquet.ParquetWriter(file, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


_WRITERS = dict(zip(ENDINGS, (_write_csv, _write_npy, _write_parquet), strict=True))
