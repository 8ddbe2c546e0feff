"""Files of NumPy's arrays and of SciPy's sparse matrices, read without pickles and checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from jgs.arrays import described, require_array
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.files.npy import map_npy
from jgs.graph import Graph

_PARTS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def open_npy(path: Path) -> np.ndarray:
    """The array in a `.npy` file, memory-mapped read-only; raises `InputError`."""
    rule = f"{path} must be a whole NumPy .npy file without pickles"
    with refusing((ValueError, OSError), rule, "Write it again with numpy.save."):
        try:
            return map_npy(path)
        except FileNotFoundError:
            raise InputError(f"{path} must exist", "no such file", "Put it there.") from None


def csr(what: str, data, indices, indptr, shape) -> scipy.sparse.csr_matrix:
    """A SciPy CSR matrix of arrays, with every rule of the format checked. `what` it is goes
    into messages. Raises `InputError`."""
    errors = (ValueError, TypeError, OverflowError, IndexError)
    rule = f"{what} must be a sound CSR matrix"
    with refusing(errors, rule, "Write them again."):
        if not all(a.ndim == 1 and a.dtype.kind in "fiub" for a in (data, indices, indptr)):
            raise ValueError("its arrays must be one-dimensional and of numbers")
        if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
            raise ValueError("its indices must be integers")
        rows, columns = (int(n) for n in shape)
        if columns >= 2**31:
            raise ValueError(f"its columns must fit in 31 bits: {columns:,}")
        matrix = scipy.sparse.csr_matrix((data, indices, indptr), shape=(rows, columns))
        matrix.check_format(full_check=True)
        return matrix


def read_graph(path: Path, num_nodes: int, *, symmetric: bool) -> Graph:
    """The graph of the matrix `[num_nodes, num_nodes]` in a file. The entry `(u, v)` is an edge
    from `u` to `v`, whatever its value is.

    Self-loops are kept, and so are entries that a file has twice. `symmetric` adds the reverse
    of every edge (`jgs.Graph.symmetrized`). Raises `InputError`.
    """
    with storage.open_npz(path) as archive:
        arrays = dict(archive)
    matrix = sparse_matrix(path, arrays, f"the edges in {path}")
    form = "[N, N], a row and a column for each node"
    remedy = "The files are of different data sets or damaged: fetch them again."
    require_array(f"{path}", matrix, form, remedy, N=num_nodes)
    return Graph.from_scipy(matrix, symmetric=symmetric)


def sparse_matrix(path: Path, arrays: Mapping[str, np.ndarray], what: str) -> Any:
    """The CSR, CSC or COO matrix of the `arrays` in the file `path`, with every rule of its
    format checked. `what` it is goes into messages. Raises `InputError`."""
    stated = arrays["format"].reshape(-1).tolist() if "format" in arrays else ["no format"]
    kind = stated[0] if len(stated) == 1 else stated
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else str(kind)
    needed = ("data", "shape", *_PARTS.get(kind, ()))
    if kind not in _PARTS or any(part not in arrays for part in needed):
        raise InputError(
            f"{path} must hold a sparse matrix of SciPy in the format csr, csc or coo",
            f"{' '.join(kind.split())} with {', '.join(arrays)}",
            "Write it with scipy.sparse.save_npz(path, matrix.tocsr()).",
        )
    data, shape = arrays["data"], arrays["shape"].reshape(-1)
    if kind == "coo":
        return _coo(path, data, arrays["row"], arrays["col"], shape)
    flip = -1 if kind == "csc" else 1
    matrix = csr(what, data, arrays["indices"], arrays["indptr"], shape[::flip])
    return matrix.T if kind == "csc" else matrix


def _coo(path: Path, data: Any, row: Any, col: Any, shape: Any) -> scipy.sparse.coo_matrix:
    one_each = data.ndim == 1 and row.shape == col.shape == data.shape
    whole = all(each.dtype.kind in "iu" for each in (row, col, shape)) and shape.size == 2
    inside = one_each and whole and data.dtype.kind in "fiub" and shape.min() >= 0
    for ids, size in ((row, shape[0]), (col, shape[-1])) if inside else ():
        inside = inside and not (ids.size and (ids.min() < 0 or ids.max() >= size))
    if not inside:
        raise InputError(
            f"{path} must hold a sound coo matrix",
            f"{described(data)} for the shape {shape.tolist()}, and ids that do not fit",
            "Write it again with scipy.sparse.save_npz.",
        )
    return scipy.sparse.coo_matrix((data, (row, col)), tuple(shape.tolist()))
