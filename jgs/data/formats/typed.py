"""Data sets with node types, in one `.npz` archive such as `acm.npz`.

The archive's arrays, for node types named `a` and `b`:
  `num_<a>`: integer, the number of nodes of type `a`, for each type.
  `<a>_<b>` integer `[2, E]`: edges from `a` (row 0) to `b` (row 1); ids count from 0 within
    each type.
  for each type that has features, `<a>_features` `[n, F]`, or a CSR matrix as
    `<a>_feature_indptr`, `<a>_feature_indices`, `<a>_feature_values` and `<a>_feature_shape`
    `[2]`, whose two numbers may be in either order.
  for one type, `<a>_labels` `[n]`, as `labels` in `jgs.data.formats.npz`.
  `train_idx`, `val_idx`, `test_idx`: ids of that type.

The graph has the relation `(a, "a_b", b)` for each array of edges and, with `both_ways`,
`(b, "rev_a_b", a)`. Types are in the archive's order. Nodes without labels have the label -1.
Features are `jgs.graph.TypedFeatures`: each type has its own width, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.dataset import Dataset
from jgs.data.formats.npz import FEATURES, archive_path, name_unread, read_features
from jgs.data.label_values import as_labels, labelled
from jgs.data.values import SPLITS, as_chosen, training_nodes
from jgs.errors import InputError
from jgs.files import storage
from jgs.graph import Graph

NAMES = {"acm": "papers, authors and subjects, with types, from an archive of yours"}
_COUNT, _SPLITS = "num_", tuple(f"{split}_idx" for split in SPLITS)


def recognises(path: Path) -> bool:
    """Whether it is an archive with edges between named types; raises `InputError`."""
    if path.suffix != ".npz" or not path.is_file():
        return False
    with storage.open_npz(path) as archive:
        return bool(_pairs(archive))


def read(
    path: Path,
    *,
    normalize_features: bool = False,
    both_ways: bool = True,
    split: str = "public",
    features: str = "typed",
) -> Dataset:
    """The data set in the archive.

    `normalize_features` makes the rows of the features sum to 1. `both_ways` adds each
    relation's reverse. `split="public"` trains on `train_idx`, and "full" on every labelled
    node that is in neither of the other splits. `features="padded"` gives one matrix, with rows
    of zeros for types without features (`jgs.data.values`), as models without types need it.
    Raises `InputError`.
    """
    name = path.stem
    with storage.open_npz(path) as archive:
        edges = {(a, f"{a}_{b}", b): archive[f"{a}_{b}"] for a, b in _pairs(archive)}
        counts = {kind: archive[_COUNT + kind] for kind in _types(archive)}
        having = [kind for kind in counts if f"{kind}_labels" in archive]
        if len(having) != 1 or any(split not in archive for split in _SPLITS):
            raise InputError(
                f"{path} must hold the labels of one type, and {', '.join(_SPLITS)}",
                f"labels of {', '.join(having) or 'none'} and arrays {sorted(archive)}",
                "Add what is missing to the archive.",
            )
        (target,) = having
        target_labels = archive[f"{target}_labels"]
        splits = [archive[split] for split in _SPLITS]
        known = {*_SPLITS, f"{target}_labels", *(relation for _, relation, _ in edges)}
        known |= {_COUNT + kind for kind in counts}
        known |= {f"{kind}_{part}" for kind in counts for part in FEATURES}
        name_unread(path, archive, known)
        tables = {
            kind: read_features(path, archive, f"{kind}_")
            for kind in counts
            if any(f"{kind}_{part}" in archive for part in FEATURES)
        }
    for kind, count in counts.items():
        if count.ndim or count.dtype.kind not in "iu":
            raise InputError(f"{_COUNT}{kind} in {path} must be an int", count, "Correct it.")
        if count < 1:
            raise InputError(f"{path} must have nodes of the type {kind}", count, "Remove it.")
    for (_, relation, _), pair in edges.items():
        require_array(relation, pair, "[2, E]", "Transpose it?")
    given = {kind: int(count) for kind, count in counts.items()}
    graph = Graph.from_relations(
        given, {one: (pair[0], pair[1]) for one, pair in edges.items()}, both_ways=both_ways
    )
    labels, remedy = as_labels(f"{target} in {path}", target_labels), "Give as many."
    form = "[n] or [n, C], one for every node of their type"
    require_array(f"the labels of {target} in {path}", labels, form, remedy, n=given[target])
    splits[0] = training_nodes(split, splits[0], np.flatnonzero(labelled(labels)), *splits[1:])
    ids, own = dict(zip(SPLITS, splits, strict=True)), {target: labels}
    ways: dict[str, Any] = {"name": name, "normalize_features": normalize_features}
    return as_chosen(Dataset.from_arrays(graph, tables, own, ids, **ways), features)


@wraps(read, assigned=(), updated=())  # its options alone
def load(name: str, root: Path, **options: Any) -> Dataset:
    """The data set in `<root>/<name>.npz`; see `read`."""
    return read(archive_path(name, root, "jgs.data.formats.typed"), **options)


def _types(archive: Mapping[str, Any]) -> list[str]:
    return [name.removeprefix(_COUNT) for name in archive if name.startswith(_COUNT)]


def _pairs(archive: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = _types(archive)
    return [(a, b) for a in names for b in names if f"{a}_{b}" in archive]
