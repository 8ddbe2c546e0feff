"""Reddit as DGL has it (`dgl.data.RedditDataset`); PyG keeps the same files in a folder `raw`.

  `reddit_data.npz`: `feature` `[N, F]`; `label` integer `[N]`; and `node_types` integer `[N]`:
    1 for the nodes to train on, 2 to validate with, 3 to test with.
  `reddit_graph.npz`, or `reddit_self_loop_graph.npz`: the edges, a sparse matrix `[N, N]` as
    `scipy.sparse.save_npz` writes it (csr, csc or coo). The entry `(u, v)` is an edge from `u`
    to `v`, whatever its value is. The published matrices have each edge both ways.

The graph has the edges as they are, with self-loops.
"""

from __future__ import annotations

from pathlib import Path

from jgs.arrays import refuse_where, require_array
from jgs.data.array_files import read_graph
from jgs.data.dataset import Dataset
from jgs.data.text import folders_with, only, require_all
from jgs.data.values import SPLITS, as_features
from jgs.errors import InputError
from jgs.files import storage

_DATA, _GRAPHS = "reddit_data.npz", ("reddit_graph.npz", "reddit_self_loop_graph.npz")
_ARRAYS = ("feature", "label", "node_types")


def recognises(path: Path) -> bool:
    """Whether it is a folder with one of the files of this layout, perhaps in `raw`."""
    return bool(folders_with(path, (_DATA, *_GRAPHS)))


def read(path: Path, *, symmetric: bool = False, normalize_features: bool = False) -> Dataset:
    """The data set in the folder.

    `symmetric` adds the reverse of every edge that lacks one, and keeps each edge once.
    `normalize_features` makes the rows of the features sum to 1. Raises `InputError`.
    """
    name, folder = path.resolve().name, only(path, folders_with(path, (_DATA, *_GRAPHS)))
    path, graphs = folder / _DATA, [folder / g for g in _GRAPHS if (folder / g).is_file()]
    if not path.is_file() or len(graphs) != 1:
        found = ", ".join(each.name for each in (path, *graphs) if each.is_file())
        raise InputError(
            f"{folder} must hold {_DATA} and one of {', '.join(_GRAPHS)}",
            found,
            "Put them there, or remove the graph that is not meant.",
        )
    with storage.open_npz(path) as archive:
        rule = f"{path} must hold {', '.join(_ARRAYS)}"
        require_all(rule, archive, _ARRAYS, "Fetch it again.")
        rows, labels, types = (archive[array] for array in _ARRAYS)
    features = as_features(str(path), rows)
    what, form = f"node_types in {path}", "integers [N], one for each node"
    require_array(what, types, form, "Fetch it again.", N=len(features))
    rule = f"{what} must be 1, 2 or 3"
    refuse_where((types < 1) | (types > 3), types, "node", rule, "Give each node a split.")
    return Dataset.from_arrays(
        read_graph(graphs[0], len(features), symmetric=symmetric),
        features,
        labels,
        {split: types == number for number, split in enumerate(SPLITS, 1)},
        name=name,
        normalize_features=normalize_features,
    )
