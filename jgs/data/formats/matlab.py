"""MATLAB's `.mat` files of a network: BlogCatalog, PPI, Wikipedia's words and others, as
DeepWalk and node2vec have them.

A file has a square matrix `network`, sparse or dense, and perhaps `group` `[N, C]` of 0 and 1,
the labels, of which a node can have several. Other names are given by options. Entry `(i, j)`
is an edge from `i` to `j`: a network is directed or not as it is stored. Entries that are not
all 1 are the weights of edges. Files of version 7.3 are HDF5 and cannot be read.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from jgs.arrays import described
from jgs.data.array_files import csr
from jgs.data.dataset import Plain
from jgs.data.splits import SplitRule
from jgs.errors import InputError, require_columns
from jgs.files.storage import open_npz
from jgs.graph import Graph

ENDINGS = (".mat",)


def read(
    path: Path,
    *,
    network: str = "network",
    group: str | None = None,
    symmetric: bool = False,
    drawn: SplitRule,
) -> Plain:
    """The graph of the file.

    Args:
      network, group: the names of the two matrices. Without `group` there are labels if the
        file has a matrix of this name.
      symmetric: whether to add every edge's reverse and keep each edge once.
      drawn: the split of nodes.

    Raises `InputError`.
    """
    found = _open(path, [network, group or "group"])
    remedy = "Name the matrix of edges, --data-options network=NAME, and of labels, group=NAME."
    names = found["names"].tolist()
    require_columns(str(path), names, [network, *([] if group is None else [group])], remedy)
    adjacency = _matrix(path, network, found).tocoo()
    weighted = bool((adjacency.data != 1).any())
    graph = Graph.from_scipy(adjacency, weighted, symmetric=symmetric)
    if (group or "group") not in names:
        return Plain(path.stem, graph)
    labels = _matrix(path, group or "group", found)
    if labels.shape[0] != graph.num_nodes or not np.isin(labels.data, (0, 1)).all():
        raise InputError(
            f"{group or 'group'} in {path} must be 0 or 1, a row for each node",
            f"shape {list(labels.shape)} for {graph.num_nodes} nodes, and values to "
            f"{labels.data.max(initial=0)}",
            "Correct it, or name another matrix by group=NAME.",
        )
    marks = labels.toarray().astype(np.float32)
    splits = drawn.chosen(path.stem, marks)
    return Plain.of_arrays(path.stem, graph, None, marks, splits)


# SciPy ends the process for some damaged files.
_SCRIPT = """
import sys, numpy, scipy.io, scipy.sparse
source, target, *wanted = sys.argv[1:]
names = [name for name, _, _ in scipy.io.whosmat(source)]
arrays = {"names": numpy.array(names)}
for name, value in scipy.io.loadmat(source, variable_names=wanted).items():
    if name not in wanted:
        continue
    if scipy.sparse.issparse(value):
        parts = {part: getattr(value, part) for part in ("data", "indices", "indptr", "shape")}
        arrays |= {f"{name}.{part}": array for part, array in parts.items()}
    elif getattr(value, "dtype", None) is not None and value.dtype.kind in "fiubc":
        arrays[f"{name}.dense"] = value
numpy.savez(target, **arrays)
"""


def _open(path: Path, wanted: list[str]) -> dict[str, np.ndarray]:
    """The `names` of all that is in the file; and of the matrices `wanted` that are there
    `<name>.dense`, or the arrays of a CSC matrix. A process of its own reads the file."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "found.npz"
        done = subprocess.run(
            [sys.executable, "-P", "-c", _SCRIPT, str(path.resolve()), str(target), *wanted],
            stdout=2,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise InputError(
                f"{path} must be a whole MATLAB file of version 4 to 7.2",
                " ".join("".join(said).split())[:200] or "one that cannot be read",
                "Save it with -v7.",
            )
        with open_npz(target) as found:
            return dict(found)


def _matrix(path: Path, name: str, found: Mapping[str, np.ndarray]) -> Any:
    what = f"{name} in {path}"
    dense = found.get(f"{name}.dense")
    if dense is not None and dense.ndim == 2 and dense.dtype.kind != "c":
        return scipy.sparse.csr_array(dense)
    parts = [found.get(f"{name}.{part}") for part in ("data", "indices", "indptr", "shape")]
    if any(part is None for part in parts):
        shown = "another thing" if dense is None else described(dense)
        raise InputError(f"{what} must be a matrix of numbers", shown, "Name another one.")
    data, indices, indptr, shape = parts
    assert shape is not None
    return csr(what, data, indices, indptr, shape[::-1]).T.tocsr()
