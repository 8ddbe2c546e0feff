"""NumPy files without pickles: data sets in one `.npz` archive, and single `.npy` arrays.

The archive's arrays (`N` nodes, `E` edges, `F` features):
  the graph: `edge_index` integer `[2, E]` (row 0 sources, row 1 targets) or `indptr` `[N+1]`
    and `indices` `[E]` as in `jgs.Graph`; optional `edge_weight` `[E]` and `edge_time` integer
    `[E]`. The graph is taken as it is: directed, with parallel edges and self-loops.
    `symmetric=True` adds the reverse of every edge, for archives that list each edge once (see
    `jgs.Graph.symmetrized`).
  the features: `features` `[N, F]`, or a CSR matrix as `feature_indptr` `[N+1]`,
    `feature_indices`, `feature_values` `[nnz]` and `feature_shape` `[2]`.
  `labels` `[N]` (-1: none), or `[N, C]` of 0 and 1 (NaN: not known); or floats `[N]` that are
    not all whole, numbers (NaN: none).
  `train_idx`, `val_idx`, `test_idx`: node ids.
  optional: `num_nodes`, `num_classes`, and `class_names`, text `[C]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from jgs.arrays import require_array
from jgs.data.dataset import Dataset, Plain, assemble
from jgs.data.label_values import are_numbers, as_labels, check_labels, count_classes, labelled
from jgs.data.values import training_nodes
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.files.npy import map_npy
from jgs.graph import Graph

NAMES = {"facebook": "links between pages, from an archive of yours"}

# The reference accuracies of these data sets were measured with row-normalised features.
NORMALIZED = ("cora", "citeseer", "pubmed", "facebook")
_SPARSE = ("feature_values", "feature_indices", "feature_indptr", "feature_shape")
FEATURES = ("features", *_SPARSE)
"""The arrays of features in an archive: the first, or all others."""


def archive_path(name: str, root: Path, layout: str) -> Path:
    """`<root>/<name>.npz`; raises `InputError`, which names the module `layout`, if it is
    missing."""
    path = root / f"{name}.npz"
    if not path.is_file():
        raise InputError(
            f"the data set {name} must be in {root}",
            f"no file {path}",
            f"Put {name}.npz there (its arrays: see {layout}), or name another --root.",
        )
    return path


def load(
    name: str,
    root: Path,
    *,
    normalize_features: bool | None = None,
    symmetric: bool = False,
    split: str = "public",
    label_kind: str | None = None,
) -> Dataset:
    """The data set in `<root>/<name>.npz`, in the layout described above.

    `normalize_features` None normalises the rows of cora, citeseer, pubmed and facebook and no
    others. `symmetric` adds the reverse of every edge that lacks one. `split="public"` trains
    on `train_idx`, and "full" on every labelled node that is in neither of the other splits.
    `label_kind` is "class" or "number", whatever labels `[N]` look like. Raises `InputError`.
    """
    path = archive_path(name, root, "jgs.data.formats.npz")
    if normalize_features is None:
        normalize_features = name in NORMALIZED
    with storage.open_npz(path) as archive:
        needed = ["labels", "train_idx", "val_idx", "test_idx"]
        if missing := [k for k in needed if k not in archive]:
            raise InputError(
                f"{path} must hold the arrays {needed}",
                f"no {missing}",
                "Add them to the archive.",
            )
        arrays = {k: archive[k] for k in needed}
        labels = arrays["labels"] = as_labels(name, arrays["labels"], label_kind)
        arrays["train_idx"] = training_nodes(
            split,
            arrays["train_idx"],
            np.flatnonzero(labelled(labels)),
            arrays["val_idx"],
            arrays["test_idx"],
        )
        features = read_features(path, archive)
        if "num_nodes" not in archive:
            form = "[N, ...], as many rows as labels"
            remedy = "Give every node its row of features and its label."
            require_array(f"the features in {path}", features, form, remedy, N=len(labels))
        counts = {k: archive[k] for k in ("num_nodes", "num_classes") if k in archive}
        names = archive.get("class_names")
    for key, value in counts.items():
        if value.ndim or value.dtype.kind not in "iu":
            raise InputError(f"{key} in {path} must be an int", value, "Correct it.")
    if names is not None:
        remedy = "Give numpy.array of the names."
        require_array(f"class_names in {path}", names, "text [C]", remedy)
    num_classes = counts.get("num_classes")
    graph = Graph.from_npz(path)
    return assemble(
        name,
        graph.symmetrized() if symmetric else graph,
        features,
        *arrays.values(),
        num_classes=None if num_classes is None else int(num_classes),
        class_names=None if names is None else tuple(names.tolist()),
        normalize_features=normalize_features,
        label_kind="number" if are_numbers(labels) else "class",
    )


def is_events(path: Path) -> bool:
    """Whether it is an archive of edges with times, without labels of nodes."""
    with storage.open_npz(path) as archive:
        return "edge_time" in archive and "labels" not in archive


def load_plain(path: Path, *, symmetric: bool = False) -> Plain:
    """The graph of the archive at `path`, with its labels if it has some. Raises
    `InputError`."""
    with storage.open_npz(path) as archive:
        labels = archive.get("labels")
    graph = Graph.from_npz(path, symmetric=symmetric)
    return Plain(path.stem, graph, _labels(path, labels, graph), None, None)


def _labels(path: Path, labels: np.ndarray | None, graph: Graph) -> np.ndarray | None:
    if labels is None:
        return None
    labels = as_labels(path.stem, labels)
    if len(labels) != graph.num_nodes:
        raise InputError(
            f"{path} must have a label for every node",
            f"{len(labels)} labels for {graph.num_nodes} nodes",
            "Correct it, or leave the labels out.",
        )
    check_labels(path.stem, labels, max(1, count_classes(labels)), graph.num_nodes)
    return labels


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


def read_features(path: Path, archive: Mapping[str, np.ndarray], prefix: str = "") -> Any:
    """The features in an archive, a matrix or CSR matrix; `prefix` is before the names of their
    arrays. The two numbers of a CSR matrix's shape may be in either order."""
    dense = f"{prefix}features"
    if dense in archive:
        return archive[dense]
    names = [prefix + name for name in _SPARSE]
    if missing := [name for name in names if name not in archive]:
        raise InputError(
            f"{path} must hold `{dense}`, or {names}", f"no {missing}", "Add the features."
        )
    values, indices, indptr, shape = (archive[name] for name in names)
    turned = shape.shape == (2,) and shape[0] != indptr.size - 1 == shape[1]
    what = f"the features of {path}"
    return csr(what, values, indices, indptr, shape[::-1] if turned else shape)
