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

import logging
from collections.abc import Container, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data import label_values
from jgs.data.array_files import csr
from jgs.data.dataset import Dataset, Plain
from jgs.data.label_values import are_numbers, as_labels, count_classes
from jgs.data.values import SPLITS, training_nodes
from jgs.errors import InputError
from jgs.files import storage
from jgs.graph import Graph

_log = logging.getLogger("jgs")

NAMES = {"facebook": "links between pages, from an archive of yours"}

UNLABELLED = True  # of events: all others are refused here
# The reference accuracies of these data sets were measured with row-normalised features.
NORMALIZED = ("cora", "citeseer", "pubmed", "facebook")
_LABELLED = ("labels", "train_idx", "val_idx", "test_idx")
_SPARSE = ("feature_values", "feature_indices", "feature_indptr", "feature_shape")
FEATURES = ("features", *_SPARSE)
"""The arrays of features in an archive: the first, or all others."""
_KNOWN = {"edge_index", "indptr", "indices", "edge_weight", "edge_time", "node_time"}
_KNOWN |= {"num_nodes", "num_classes", "class_names", *_LABELLED, *FEATURES}


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


def recognises(path: Path) -> bool:
    """Whether it is an archive."""
    return path.suffix == ".npz" and not path.is_dir()


def read(
    path: Path,
    labelled: bool = False,
    *,
    normalize_features: bool | None = None,
    symmetric: bool = False,
    split: str = "public",
    label_kind: str | None = None,
) -> Dataset | Plain:
    """The data set in the archive; or, where it has no labels or no split, the graph.

    Args:
      labelled: whether the archive must have labels and a split, unless its edges have times.
      normalize_features: None normalises the rows of cora, citeseer, pubmed and facebook and no
        others.
      symmetric: whether to add the reverse of every edge that lacks one.
      split: "public" trains on `train_idx`, and "full" on every labelled node that is in
        neither of the other splits.
      label_kind: "class" or "number", whatever labels `[N]` look like.

    Raises `InputError`.
    """
    name = path.stem
    normalized = name in NORMALIZED if normalize_features is None else normalize_features
    with storage.open_npz(path) as archive:
        name_unread(path, archive, _KNOWN)
        events = "edge_time" in archive and "labels" not in archive
        if events or not (labelled or set(_LABELLED) <= set(archive)):
            labels = archive.get("labels")
            given = {*archive} & {*FEATURES} - {"feature_shape"}  # which may say N alone
            rows = read_features(path, archive) if given else None
            graph = Graph.from_npz(path, symmetric=symmetric)
            kinds: Any = {"label_kind": label_kind, "normalize_features": normalized}
            return Plain.of_arrays(name, graph, rows, labels, **kinds)
        needed = list(_LABELLED)
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
            np.flatnonzero(label_values.labelled(labels)),
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
    splits = {split: arrays[f"{split}_idx"] for split in SPLITS}
    return Dataset.from_arrays(
        graph.symmetrized() if symmetric else graph,
        features,
        labels,
        splits,
        name=name,
        num_classes=count_classes(labels) if num_classes is None else int(num_classes),
        class_names=None if names is None else tuple(names.tolist()),
        normalize_features=normalized,
        label_kind="number" if are_numbers(labels) else "class",
    )


@wraps(read, assigned=(), updated=())  # its options alone
def load(name: str, root: Path, **options: Any) -> Dataset | Plain:
    """The data set in `<root>/<name>.npz`; see `read`."""
    return read(archive_path(name, root, "jgs.data.formats.npz"), labelled=True, **options)


def name_unread(path: Path, archive: Mapping[str, Any], known: Container[str]) -> None:
    """Warns of the arrays of an archive that are not `known`."""
    if unread := [name for name in sorted(archive) if name not in known]:
        _log.warning("%s has arrays that are not read: %s", path, ", ".join(unread))


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
