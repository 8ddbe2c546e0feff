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

import numpy as np

from jgs.arrays import require_array
from jgs.data.dataset import Dataset, assemble
from jgs.data.scipy_file import read_graph
from jgs.data.values import as_features
from jgs.errors import InputError
from jgs.files import storage
from jgs.graph.checks import refuse_where

_DATA, _GRAPHS = "reddit_data.npz", ("reddit_graph.npz", "reddit_self_loop_graph.npz")
_ARRAYS = ("feature", "label", "node_types")


def is_dgl_reddit(folder: Path) -> bool:
    """Whether `folder` has one of the files of this layout."""
    return any((folder / file).is_file() for file in (_DATA, *_GRAPHS))


def load_folder(
    name: str, folder: Path, *, symmetric: bool = False, normalize_features: bool = False
) -> Dataset:
    """The data set in `folder`, in the layout described above.

    `symmetric` adds the reverse of every edge that lacks one, and keeps each edge once.
    `normalize_features` makes the rows of the features sum to 1. Raises `InputError`.
    """
    path, graphs = folder / _DATA, [folder / g for g in _GRAPHS if (folder / g).is_file()]
    if not path.is_file() or len(graphs) != 1:
        found = ", ".join(each.name for each in (path, *graphs) if each.is_file())
        raise InputError(
            f"{folder} must hold {_DATA} and one of {', '.join(_GRAPHS)}",
            found,
            "Put them there, or remove the graph that is not meant.",
        )
    with storage.open_npz(path) as archive:
        if missing := [array for array in _ARRAYS if array not in archive]:
            raise InputError(
                f"{path} must hold {', '.join(_ARRAYS)}",
                f"no {', '.join(missing)}",
                "Fetch it again.",
            )
        rows, labels, types = (archive[array] for array in _ARRAYS)
    features = as_features(str(path), rows)
    what, form = f"node_types in {path}", "integers [N], one for each node"
    require_array(what, types, form, "Fetch it again.", N=len(features))
    rule = f"{what} must be 1, 2 or 3"
    refuse_where((types < 1) | (types > 3), types, "node", rule, "Give each node a split.")
    return assemble(
        name,
        read_graph(graphs[0], len(features), symmetric=symmetric),
        features,
        labels,
        *(np.flatnonzero(types == number) for number in (1, 2, 3)),
        normalize_features=normalize_features,
    )
