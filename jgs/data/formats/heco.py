"""The folders of typed graphs in HeCo's layout (Wang et al., KDD 2021): acm, dblp, aminer and
freebase. A node type is a single letter, which file names have:

  `<a><b>.txt`, for instance `pa.txt`: the edges from the type `a` to the type `b`, two ids a
    line, separated by white space. Ids count from 0 within each type.
  `<a>_feat.npz`: the features of the type `a`, if it has some: a sparse matrix as
    `scipy.sparse.save_npz` writes it (csr, csc or coo), or one dense matrix, which may also be
    a `.npy` file under this name, as in the published dblp.
  `labels.npy`: the classes of the nodes of one type, `[n]` (-1: none).
  `train_<split>.npy`, `val_<split>.npy`, `test_<split>.npy`: ids of that type, for instance
    `train_20.npy`, which has 20 nodes of each class.

All other files, such as `pap.npz` and `nei_a.npy`, are made from these and not read.

A type has as many nodes as rows of features, or as the largest id in the edges says. The labels
are those of the type with as many nodes as labels; the option `target` names it if several
have. The relation of `pa.txt` is `("p", "pa", "a")` and, with `both_ways`, there is `("a",
"rev_pa", "p")`. Types and relations are in alphabetical order. Features are
`jgs.graph.TypedFeatures`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.array_files import open_npy, sparse_matrix
from jgs.data.dataset import Dataset
from jgs.data.label_values import as_labels
from jgs.data.text import read_table
from jgs.data.values import SPLITS, as_chosen, as_features, as_ids, normalized
from jgs.errors import InputError
from jgs.files import storage
from jgs.graph import Graph
from jgs.graph.checks import MAX_ID

_EDGES, _SPLIT = re.compile(r"([A-Za-z])([A-Za-z])\.txt"), re.compile(r"train_(.+)\.npy")
_NPY = b"\x93NUMPY"
_AGAIN = "Fetch the data set again, or correct the file."


def recognises(path: Path) -> bool:
    """Whether it is a folder with labels, and edges between types with names of one letter."""
    return (path / "labels.npy").is_file() and bool(_edge_files(path))


def read(
    folder: Path,
    *,
    split: str | int | None = None,
    target: str | None = None,
    both_ways: bool = True,
    normalize_features: bool = False,
    features: str = "typed",
) -> Dataset:
    """The data set in `folder`, in the layout described above.

    Args:
      split: which of the splits, such as 20; needed if there are several.
      target: the letter of the node type that has the labels; needed if several types have as
        many nodes.
      both_ways: whether to add each relation's reverse.
      normalize_features: whether to make the rows of the features of each type sum to 1.
      features: "typed", or "padded" for one matrix (`jgs.data.values`).

    Raises `InputError`.
    """
    name, edges = folder.resolve().name, {}
    for (a, b), path in _edge_files(folder).items():
        edges[(a, f"{a}{b}", b)] = _edges(path)
    letters = sorted({end for a, _, b in edges for end in (a, b)})
    tables = {kind: _features(folder / f"{kind}_feat.npz", name) for kind in letters}
    tables = {kind: rows for kind, rows in tables.items() if rows is not None}
    own = as_labels(name, open_npy(folder / "labels.npy"), "class")
    require_array(f"{folder}/labels.npy", own, "[n], one class a node", _AGAIN)
    least = dict.fromkeys(letters, 0)  # for the ids in the edges
    for (a, _, b), ends in edges.items():
        for kind, most in zip((a, b), ends.max(axis=0).tolist(), strict=True):
            least[kind] = max(least[kind], most + 1)
    counts = {k: tables[k].shape[0] if k in tables else least[k] for k in letters}
    target = _target(folder, counts, {*letters} - {*tables}, len(own), target)
    if target not in tables:  # edges do not name its last nodes, if these have none
        counts[target] = len(own)
    for kind, count in counts.items():
        if least[kind] > count:
            raise InputError(
                f"the edges in {folder} must name nodes of {kind} in [0, {count})",
                f"{least[kind] - 1}",
                f"Give every {kind} its features and label.",
            )
    pairs = {one: (ends[:, 0], ends[:, 1]) for one, ends in edges.items()}
    graph = Graph.from_relations(counts, pairs, both_ways=both_ways)
    ids = _split(folder, name, None if split is None else str(split), counts[target])
    if normalize_features:
        tables = {kind: normalized(name, rows) for kind, rows in tables.items()}
    splits = dict(zip(SPLITS, ids, strict=True))
    data = Dataset.from_arrays(graph, tables, {target: own}, splits, name=name)
    return as_chosen(data, features)


def _edge_files(folder: Path) -> dict[tuple[str, str], Path]:
    found = ((_EDGES.fullmatch(path.name), path) for path in sorted(folder.glob("??.txt")))
    return {(match[1], match[2]): path for match, path in found if match}


def _edges(path: Path) -> np.ndarray:
    edges = read_table(path, np.int64, delimiter=None, columns=2)
    if not len(edges):
        raise InputError(f"{path} must have edges", "none", _AGAIN)
    if edges.min() < 0 or edges.max() >= MAX_ID:
        raise InputError(
            f"{path} must have ids that count from 0", f"{edges.min()} to {edges.max()}", _AGAIN
        )
    return edges


def _features(path: Path, name: str) -> Any:
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        if file.read(len(_NPY)) == _NPY:
            return as_features(name, open_npy(path))
    with storage.open_npz(path) as archive:
        arrays = dict(archive)
    if "format" not in arrays:
        if len(arrays) != 1:
            raise InputError(
                f"{path} must hold a sparse matrix of SciPy, or one array",
                ", ".join(arrays) or "none",
                _AGAIN,
            )
        return as_features(name, next(iter(arrays.values())))
    return sparse_matrix(path, arrays, f"the features of {path}").tocsr()


def _target(
    folder: Path, counts: dict[str, int], grows: set[str], num_labels: int, target: str | None
) -> str:
    """The node type of the labels; those that `grows` names may have more nodes."""
    fit = [kind for kind, count in counts.items() if count == num_labels]
    if target is None and len(fit) == 1:
        return fit[0]
    if target in fit or (target in counts and counts[target] < num_labels and target in grows):
        return str(target)
    raise InputError(
        f"the {num_labels} labels in {folder} must be of one type with as many nodes, which "
        "the option target names if not just one has",
        f"target {target} and {', '.join(f'{k} {n}' for k, n in counts.items())}",
        "Name it by its letter.",
    )


def _split(folder: Path, name: str, split: str | None, num_nodes: int) -> list[np.ndarray]:
    found = [
        m[1] for p in sorted(folder.glob("train_*.npy")) if (m := _SPLIT.fullmatch(p.name))
    ]
    chosen = found[0] if split is None and len(found) == 1 else split
    if chosen not in found:
        raise InputError(
            f"{folder} must hold one split, or the option split name one",
            f"{split}, and splits {', '.join(found) or 'none'}",
            "Correct the option, or put train_NAME.npy, val_NAME.npy and test_NAME.npy there.",
        )
    arrays = ((each, open_npy(folder / f"{each}_{chosen}.npy")) for each in SPLITS)
    return [as_ids(name, each, np.array(ids), num_nodes) for each, ids in arrays]
