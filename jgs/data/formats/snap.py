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

import logging
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import require_array
from jgs.data.array_files import open_npy
from jgs.data.dataset import Dataset, Plain
from jgs.data.download import Cache
from jgs.data.edge_stream import save_graph, simple_symmetric_graph
from jgs.data.text import delimiter_of, first_line, first_row, read_rows
from jgs.data.values import SPLITS
from jgs.errors import InputError
from jgs.graph import Graph

_log = logging.getLogger("jgs")

NAMES = {"snap": "an edge list of yours, with its arrays beside it"}
ENDINGS = (".txt", ".txt.gz", ".edges", ".edges.gz", ".tsv", ".tsv.gz")


def recognises(path: Path) -> bool:
    """Whether it is such a list, or a folder with `features.npy`."""
    return (path / "features.npy").is_file() if path.is_dir() else is_edge_list(path)


def read(
    path: Path,
    labelled: bool = False,
    *,
    symmetric: bool = True,
    normalize_features: bool = False,
    kept: Cache,
) -> Dataset | Plain:
    """The data set of the edge list, or of the only one in the folder at `path`.

    Args:
      labelled: whether the arrays must be there. Without them the list alone is the graph.
      symmetric: True adds every edge's reverse, keeps each edge once and drops self-loops (an
        undirected SNAP graph lists each edge once). False keeps the edges as listed.
      normalize_features: whether to make the rows of the features sum to 1; this copies them.
      kept: where the parsed graph is kept.

    Raises `InputError`.
    """
    edges = find_edges(path) if path.is_dir() else path
    if not edges.is_file():
        raise InputError(
            "an edge list must be a file, or in a folder with its arrays",
            f"{edges}, which is neither",
            "Correct the path.",
        )
    folder = edges.parent
    if not (labelled or path.is_dir() or (folder / "labels.npy").exists()):
        if (folder / "features.npy").exists():
            _log.warning("%s: features.npy beside it is not read without labels.npy", path)
        return _edges_alone(path, symmetric)
    arrays = {
        k: open_npy(folder / f"{k}.npy")
        for k in ("features", "labels", "train_idx", "val_idx", "test_idx")
    }
    require_array(f"{folder}/labels.npy", arrays["labels"], "[N] or [N, C]", "Correct it.")
    num_nodes = arrays["labels"].shape[0]

    def build(target: Path) -> None:
        chunks = ((rows[:, 0], rows[:, 1]) for rows in read_edges(edges))
        save_graph(target, chunks, num_nodes, symmetric=symmetric, what=str(edges))

    settings = {"symmetric": symmetric, "num_nodes": num_nodes}
    parsed = kept.parsed(folder / f"jgs-{edges.name}", [edges], settings, build)
    return Dataset.from_arrays(
        Graph.open(parsed / "graph", verify=False),  # `parsed` has verified it
        arrays["features"],
        arrays["labels"],
        {split: np.array(arrays[f"{split}_idx"]) for split in SPLITS},
        name=folder.name,
        normalize_features=normalize_features,
    )


@wraps(read, assigned=(), updated=())  # its options alone
def load(name: str, root: Path, **options: Any) -> Dataset | Plain:
    """The data set `<root>/<name>`, or in `root` if there is none; see `read`."""
    place = root / name
    return read(place if place.exists() else root, labelled=True, **options)


def _edges_alone(path: Path, symmetric: bool) -> Plain:
    if (width := len(first_row(path, b"%").split())) > 2 and first_line(path)[:1] == b"%":
        asked = ",".join(["src", "dst", "weight", "time"][:width])
        left = "edges go both ways, and the columns behind their ends are not read"
        _log.warning("%s: %s; --data-options columns=%s reads all as listed", path, left, asked)
    edges = np.concatenate([np.empty((0, 2), np.int64), *read_edges(path)])
    if edges.size == 0 or edges.min() < 0 or edges.max() >= 2**31 - 1:
        raise InputError(
            f"{path} must have edges between nodes numbered from 0",
            "no edge" if edges.size == 0 else f"{edges.min()} to {edges.max()}",
            "Renumber the nodes.",
        )
    (src, dst), count = edges.T, int(edges.max()) + 1
    graph = simple_symmetric_graph(src, dst, count)
    if not symmetric:
        graph = Graph.from_edges(src, dst, count)
    return Plain(path.name.removeprefix("out.").partition(".")[0], graph)


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
