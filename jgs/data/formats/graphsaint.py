"""GraphSAINT's folders (Zeng et al., 2020): PPI, PPI-large, Reddit, Yelp, Flickr and Amazon.

  `adj_full.npz`: the edges, a sparse matrix `[N, N]` as `scipy.sparse.save_npz` writes it (csr,
    csc or coo). The entry `(u, v)` is an edge from `u` to `v`, whatever its value is. The
    published matrices have each edge both ways.
  `feats.npy`: the features, `[N, F]`.
  `class_map.json`: an object. Its keys are all node ids, as text. Its values are the classes of
    the nodes, integers; or lists of 0 and 1, all of one length, if a node has several labels.
  `role.json`: an object of three lists of node ids, `tr`, `va` and `te`: the nodes to train on,
    to validate with and to test with. A node may be in none of them.

`adj_train.npz`, which has the edges between training nodes, is not read: training sees all
edges. PyG keeps these files in a folder `raw`.

The graph has the edges as they are, with self-loops.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import refuse_where
from jgs.data.array_files import open_npy, read_graph
from jgs.data.dataset import Dataset
from jgs.data.text import folders_with, only, require_all
from jgs.data.values import SPLITS, as_features, as_ids, standardized
from jgs.errors import InputError, refusing
from jgs.files.npy import plain_file

_FILES = ("adj_full.npz", "feats.npy", "class_map.json", "role.json")
_OWN = ("adj_full.npz", "role.json")  # which no other layout has
_ROLES = ("tr", "va", "te")
_AGAIN = "Fetch the file again, or correct it."


def recognises(path: Path) -> bool:
    """Whether it is a folder with one of the files that only this layout has, perhaps in
    `raw`."""
    return bool(folders_with(path, _OWN))


def read(
    path: Path,
    *,
    symmetric: bool = False,
    standardize: bool = False,
    normalize_features: bool = False,
) -> Dataset:
    """The data set in the folder.

    Args:
      symmetric: whether to add the reverse of every edge that lacks one, and keep each edge
        once.
      standardize: whether to shift and scale each column of the features to the mean 0 and the
        deviation 1 over the training nodes, as GraphSAINT does; this copies them.
      normalize_features: whether to make the rows of the features sum to 1.

    Raises `InputError`.
    """
    name, folder = path.resolve().name, only(path, folders_with(path, _OWN))
    check_files(folder, _FILES)
    edges, feats, class_map, role = (folder / file for file in _FILES)
    features = as_features(str(feats), open_npy(feats))
    num_nodes = len(features)
    ids = _splits(role, num_nodes)
    classes, nodes = read_object(class_map), list(map(str, range(num_nodes)))
    labels = labels_of(class_map, classes, nodes)
    if len(classes) > num_nodes:
        raise InputError(
            f"{class_map} must name nodes in [0, {num_nodes})",
            reprlib.repr(min(classes.keys() - set(nodes))),
            "Remove it, or give it features.",
        )
    return Dataset.from_arrays(
        read_graph(edges, num_nodes, symmetric=symmetric),
        standardized(str(feats), features, ids[0]) if standardize else features,
        labels,
        dict(zip(SPLITS, ids, strict=True)),
        name=name,
        normalize_features=normalize_features,
        label_kind="class",
    )


def check_files(folder: Path, files: Sequence[str]) -> None:
    """Raises `InputError` unless `folder` has all `files`."""
    found = [file for file in files if (folder / file).is_file()]
    require_all(f"{folder} must hold {', '.join(files)}", found, files, "Put them there.")


def read_object(path: Path, hook: Callable[[dict], Any] | None = None) -> dict[str, Any]:
    """The object in a JSON file; `hook` is the `object_hook` of `json.loads`. Raises
    `InputError`."""
    rule = f"{path} must be whole JSON, an object"
    with refusing((OSError, ValueError, RecursionError), rule, _AGAIN):
        found = json.loads(plain_file(path).read_text("utf-8"), object_hook=hook)
    if type(found) is not dict:
        raise InputError(rule, f"a {type(found).__name__}", _AGAIN)
    return found


def values_of(path: Path, found: dict[str, Any], names: Sequence[str]) -> list[Any]:
    """The value in the object `found` of each of the nodes `names`. Raises `InputError`."""
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise InputError(
            f"{path} must name every node", f"no node {reprlib.repr(missing)}", "Add it there."
        )
    return [found[name] for name in names]


def labels_of(path: Path, classes: dict[str, Any], names: Sequence[str]) -> np.ndarray:
    """The labels of the nodes `names` in a class map: float64 `[N]`, or float32 `[N, C]` where
    its values are lists. Raises `InputError`."""
    values = values_of(path, classes, names)
    rule = f"{path} must give every node an integer, or every node as many 0 and 1 in a list"
    lengths = np.fromiter((len(v) if type(v) is list else -1 for v in values), np.int64)
    if (lengths != lengths[:1]).any():
        at = int(np.argmax(lengths != lengths[0]))
        pairs = (
            f"{reprlib.repr(values[i])} for node {reprlib.repr(names[i])}" for i in (0, at)
        )
        raise InputError(rule, " and ".join(pairs), _AGAIN)
    with refusing((TypeError, ValueError, OverflowError), rule, _AGAIN):
        if lengths.max(initial=-1) < 0:
            return np.fromiter(values, np.float64, len(values))
        flat = np.fromiter(chain.from_iterable(values), np.float32, int(lengths.sum()))
        return flat.reshape(len(values), -1)


def _splits(path: Path, num_nodes: int) -> list[np.ndarray]:
    roles = read_object(path)
    rule = f"{path} must have lists tr, va and te of node ids"
    require_all(rule, roles, _ROLES, _AGAIN)
    with refusing(ValueError, rule, _AGAIN):
        given = [np.array(roles[role]) for role in _ROLES]
    pairs = zip(SPLITS, given, strict=True)
    ids = [as_ids(str(path), split, own, num_nodes) for split, own in pairs]
    count = np.bincount(np.concatenate(ids), minlength=num_nodes)
    rule = f"{path} must name each node at most once, in tr, va or te"
    refuse_where(count > 1, count, "node", rule, "Give each node one role.")
    return ids
