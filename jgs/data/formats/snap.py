"""Text edge lists of SNAP and KONECT, with features, labels and a split in `.npy` files beside
them.

The edge list has one edge a line, source and target separated by white space, and `#` comments.
In a file that ends in `.edges` commas may be between them, as Network Repository has it.
It may be gzipped. A list that begins with `%` is one of KONECT's: `%` begins comments, and
weights and times may follow the two ids. They are not read. In the same folder there are:
  `features.npy` `[N, F]`; float32 and float16 are used without a copy (memory-mapped);
  `labels.npy` `[N]` (-1: none) or `[N, C]` of 0 and 1; its length is the number of nodes;
  `train_idx.npy`, `val_idx.npy`, `test_idx.npy`: node ids.

Node ids are rows of these arrays, `[0, N)`: a list with other ids must be renumbered. KONECT's
ids count from 1, so its arrays need a row 0 that belongs to no node.
The parsed graph is kept in `<folder>/jgs-<edge list>`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jgs.arrays import require_array
from jgs.data.cache import parsed
from jgs.data.dataset import Dataset, assemble
from jgs.data.edges import save_graph
from jgs.data.formats.npz import open_npy
from jgs.data.text import delimiter_of, first_line, read_rows
from jgs.errors import InputError
from jgs.graph import Graph

NAMES = {"snap": "an edge list of yours, with its arrays beside it"}
ENDINGS = (".txt", ".txt.gz", ".edges", ".edges.gz", ".tsv", ".tsv.gz")


def load(
    name: str,
    root: Path,
    *,
    symmetric: bool = True,
    normalize_features: bool = False,
    cache: str | os.PathLike | None = None,
    verify: bool = True,
) -> Dataset:
    """The data set of the edge list `<root>/<name>`; or of the only one in that folder or, if
    neither exists, in `root`.

    Args:
      symmetric: True adds every edge's reverse, keeps each edge once and drops self-loops (an
        undirected SNAP graph lists each edge once). False keeps the edges as listed.
      normalize_features: whether to make the rows of the features sum to 1; this copies them.
      cache: another folder for the parsed graph.
      verify: whether to read the parsed graph once and compare its checksums (about a second a
        gigabyte); a damaged graph is parsed again.

    Raises `InputError`.
    """
    path = root / name if (root / name).exists() else root
    edges = find_edges(path) if path.is_dir() else path
    if not edges.is_file():
        raise InputError(
            "an edge list must be a file, or in a folder with its arrays",
            f"{edges}, which is neither",
            "Correct the path.",
        )
    folder = edges.parent
    arrays = {
        k: open_npy(folder / f"{k}.npy")
        for k in ("features", "labels", "train_idx", "val_idx", "test_idx")
    }
    require_array(f"{folder}/labels.npy", arrays["labels"], "[N] or [N, C]", "Correct it.")
    num_nodes = arrays["labels"].shape[0]
    kept = Path(cache) if cache else folder / f"jgs-{edges.name}"

    def build(target: Path) -> None:
        chunks = ((rows[:, 0], rows[:, 1]) for rows in read_edges(edges))
        save_graph(target, chunks, num_nodes, symmetric=symmetric, what=str(edges))

    parsed(kept, [edges], {"symmetric": symmetric, "num_nodes": num_nodes}, build, verify)
    features = arrays.pop("features")
    return assemble(
        folder.name,
        Graph.open(kept / "graph", verify=False),  # `parsed` has verified it
        features,
        *(np.array(a) for a in arrays.values()),
        normalize_features=normalize_features,
    )


def is_edge_list(path: Path) -> bool:
    """Whether it is a file with a name of an edge list: a text's, or KONECT's `out.NAME`."""
    named = path.name.endswith(ENDINGS) or path.name.startswith("out.")
    return named and path.is_file()


def read_edges(path: Path) -> Iterator[np.ndarray]:
    """The edges in the list `path`, in order, as int64 arrays `[n, 2]`. Raises `InputError`."""
    first = first_line(path)
    konect = first.startswith(b"%")
    if konect and first[1:].split()[:1] == [b"bip"]:
        raise InputError(
            "an edge list must join nodes of one kind",
            f"{path}, which its first line calls bipartite",
            "Its columns count their nodes separately: name the file itself, for a task of "
            "edges, or write a typed archive (jgs.data.formats.typed).",
        )
    comments = "%" if konect else "#"
    between = delimiter_of(path)
    return read_rows(
        path, np.int64, delimiter=between, comments=comments, columns=2, more=konect
    )


def find_edges(folder: Path) -> Path:
    """The folder's edge list: `edges.txt`, `edges.txt.gz`, or else the only text file."""
    lists = sorted(p for p in folder.glob("*") if p.is_file() and p.name.endswith(ENDINGS))
    named = [p for p in lists if p.name in ("edges.txt", "edges.txt.gz")]
    found = named or lists
    if len(found) != 1:
        raise InputError(
            f"{folder} must hold one edge list, edges.txt[.gz] or another *.txt[.gz]",
            [p.name for p in found],
            "Name the edge list itself as the data set.",
        )
    return found[0]
