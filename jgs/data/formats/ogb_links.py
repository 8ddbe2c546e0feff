"""OGB's link-prediction data sets of one kind of nodes and links, in their raw layout.

`raw/` has `edge.csv.gz` (the edges of training, a source and a target a line) and
`num-node-list.csv.gz`, and may have `node-feat.csv.gz`, and `edge_weight.csv.gz` and
`edge_year.csv.gz`, one number for each edge. `split/<kind>/` has `train`, `valid` and `test`,
each a dict of arrays as a file `.npz` or `.pt` (`jgs.data.unpickle`; torch is not needed), or
a table `.csv.gz` or `.csv` with a column for each one-dimensional array:
  `edge` `[n, 2]`, in a table `src` and `dst`; or `source_node` and `target_node` `[n]`, as
    citation2 has them.
  `weight` and `year` `[n]`, where `raw/` has them.
  `edge_neg` `[m, 2]`, or `target_node_neg` `[n, K]`; only in `valid` and `test`.

The graph has the edges of `raw/`, then those of `valid` and of `test`. The column `split` says
which is which; an edge of `raw/` that is not in `train` has the split -1. Years are
`edge_time`. Links from a `source_node` have a direction, and `both_ways` is then False unless
it is given. All other links have none, and the reverse of every edge is added.

The first load parses the files into `<folder>/jgs`. Later loads map what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import check_range, require_array
from jgs.data.array_files import open_npy
from jgs.data.column_values import Clock
from jgs.data.dataset import Plain
from jgs.data.download import Cache
from jgs.data.edge_table import EdgeTable, with_reverses
from jgs.data.text import read_rows, read_table
from jgs.data.unpickle import load_torch
from jgs.data.values import check_finite
from jgs.errors import InputError
from jgs.files import storage
from jgs.files.arrow import read_columns
from jgs.graph import Graph, as_device
from jgs.graph.checks import MAX_ID

_SPLITS = {"train": "train", "val": "valid", "test": "test"}  # our names and OGB's
AGAIN = "Unpack the data set's archive again."
_ENDINGS = (".npz", ".pt", ".csv.gz", ".csv")


def recognises(folder: Path) -> bool:
    """Whether `folder` has edges, and splits of them and not of nodes."""
    edges, labels = (folder / "raw" / f"{name}.csv.gz" for name in ("edge", "node-label"))
    return edges.is_file() and not labels.exists() and any(folder.glob("split/*/train.*"))


def read(
    folder: Path, *, split: str | None = None, both_ways: bool | None = None, kept: Cache
) -> Plain:
    """The data set in `folder`.

    Args:
      split: the folder below `split/`; needed if there are several.
      both_ways: whether to add every edge's reverse, with its columns; None: as above.
      kept: where the parsed files are kept.
      verify: whether to compare the checksums of the parsed files.

    Raises `InputError`.
    """
    splits = split_folder(folder, split)
    raw = folder / "raw"
    files = {name: _split_file(splits, theirs) for name, theirs in _SPLITS.items()}
    names = ("edge", "num-node-list", "node-feat", "edge_weight", "edge_year")
    sources = [raw / f"{name}.csv.gz" for name in names]
    if missing := [str(path) for path in sources[:2] if not path.is_file()]:
        raise InputError(f"{folder} must hold raw files", f"no {', '.join(missing)}", AGAIN)
    sources = [path for path in sources if path.is_file()]

    def build(target: Path) -> None:
        arrays = {name: _arrays(path) for name, path in files.items()}
        num_nodes = read_node_count(raw / "num-node-list.csv.gz")
        links = {name: _links(files[name], arrays[name], num_nodes) for name in files}
        edges = _edges(raw, files, arrays, links, num_nodes)
        if "source_node" not in arrays["train"] if both_ways is None else both_ways:
            edges = with_reverses(edges)
        Graph.from_edges(**edges.of_graph, num_nodes=num_nodes).save(target / "graph")
        for name in ("val", "test"):
            found = _negatives(files[name], arrays[name], len(links[name]), num_nodes)
            if found is not None:
                storage.save_npy(target / f"{name}.npy", found)
        if (raw / "node-feat.csv.gz").is_file():
            rows = raw / "node-feat.csv.gz"
            save_text_features(folder.name, rows, num_nodes, target / "features.npy")

    settings = {"split": splits.name, "both_ways": both_ways}
    parsed = kept.parsed(folder / "jgs", [*sources, *files.values()], settings, build)
    negatives = {
        name: open_npy(parsed / f"{name}.npy")
        for name in ("val", "test")
        if (parsed / f"{name}.npy").is_file()
    }
    features = parsed / "features.npy"
    return Plain(
        folder.resolve().name,
        Graph.open(parsed / "graph", verify=False),  # `parsed` has verified it
        features=as_device(open_npy(features)) if features.is_file() else None,
        negatives=negatives or None,
    )


def _split_file(folder: Path, name: str) -> Path:
    found = [at for end in _ENDINGS if (at := folder / f"{name}{end}").is_file()]
    if not found:
        raise InputError(
            f"{folder} must hold {name}.pt, {name}.npz or {name}.csv.gz", "none", AGAIN
        )
    return found[0]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        with storage.open_npz(path) as archive:
            return dict(archive)
    if path.suffix == ".pt":
        return load_torch(path)
    found = read_columns(path)
    if "src" in found and "dst" in found:
        found["edge"] = np.stack([found.pop("src"), found.pop("dst")], axis=1)
    return found


def _links(path: Path, arrays: dict[str, np.ndarray], num_nodes: int) -> np.ndarray:
    if "source_node" in arrays and "target_node" in arrays:
        ends = arrays["source_node"], arrays["target_node"]
        if ends[0].shape == ends[1].shape and ends[0].ndim == 1:
            return _nodes(f"source_node in {path}", np.stack(ends, axis=1), num_nodes)
    elif "edge" in arrays and arrays["edge"].shape[1:] == (2,):
        return _nodes(f"edge in {path}", arrays["edge"], num_nodes)
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
    raise InputError(
        f"{path} must hold edge [n, 2], or source_node and target_node [n]",
        shapes or "no array",
        "Only links of one kind between nodes of one kind can be read.",
    )


def _negatives(
    path: Path, arrays: dict[str, np.ndarray], count: int, num_nodes: int
) -> np.ndarray | None:
    for name, form in (("edge_neg", "[m, 2]"), ("target_node_neg", f"[{count}, m]")):
        if name in arrays:
            require_array(f"{name} in {path}", arrays[name], form, AGAIN)
            return _nodes(f"{name} in {path}", arrays[name], num_nodes)
    return None


def _nodes(what: str, ids: np.ndarray, num_nodes: int) -> np.ndarray:
    require_array(what, ids, "integers [n, m], ids of nodes", AGAIN)
    check_range(f"{what} must be node ids", ids.reshape(-1), num_nodes)
    return ids.astype(np.int32)


def _edges(
    raw: Path,
    files: dict[str, Path],
    arrays: dict[str, dict[str, np.ndarray]],
    links: dict[str, np.ndarray],
    num_nodes: int,
) -> EdgeTable:
    path = raw / "edge.csv.gz"
    given = _nodes(f"{path}", read_table(path, np.int64, columns=2), num_nodes)
    directed = "source_node" in arrays["train"]
    known = _codes(given, directed, num_nodes)
    trained = _codes(links["train"], directed, num_nodes)
    if (lost := ~np.isin(trained, known)).any():
        raise InputError(
            f"the links in {files['train']} must be edges in {path}",
            f"{links['train'][int(np.argmax(lost))].tolist()}, which is none",
            AGAIN,
        )
    ends = np.concatenate([given, links["val"], links["test"]])
    counts = [len(links["val"]), len(links["test"])]
    is_train = np.isin(known, trained)
    split = np.concatenate([np.where(is_train, 0, -1), np.repeat([1, 2], counts)])
    beside: dict[str, Any] = {}
    for name in ("weight", "year"):
        source = raw / f"edge_{name}.csv.gz"
        beside[name] = None
        if source.is_file():
            parts = [read_table(source, np.float64, columns=1)[:, 0]]
            parts += [_column(files[key], arrays[key], name) for key in ("val", "test")]
            where, sizes = (source, files["val"], files["test"]), (len(given), *counts)
            for at, part, size in zip(where, parts, sizes, strict=True):
                require_array(f"{name} in {at}", part, "[E], one an edge", AGAIN, E=size)
            beside[name] = np.concatenate(parts)
    time = beside["year"]
    return EdgeTable(
        str(raw.parent),
        ends[:, 0],
        ends[:, 1],
        beside["weight"],
        None if time is None else Clock().whole(str(raw.parent), time),
        {"split": split.astype(np.int8)},
        None,
    )


def _column(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        raise InputError(
            f"{path} must hold {name}, as raw/edge_{name}.csv.gz is there",
            f"arrays {sorted(arrays)}",
            AGAIN,
        )
    values = arrays[name]
    return values[:, 0] if values.shape[1:] == (1,) else values


def _codes(ends: np.ndarray, directed: bool, num_nodes: int) -> np.ndarray:
    """int64 `[n]`: a number for a pair, the same for its reverse unless `directed`."""
    pairs = ends.astype(np.int64) if directed else np.sort(ends.astype(np.int64), axis=1)
    return pairs[:, 0] * num_nodes + pairs[:, 1]


def split_folder(folder: Path, split: str | None) -> Path:
    """The folder `<folder>/split/<split>`; with None the only one. Raises `InputError`."""
    found = sorted(p.name for p in (folder / "split").glob("*") if p.is_dir())
    chosen = found[0] if split is None and len(found) == 1 else split
    if chosen is None or chosen not in found:
        raise InputError(
            f"{folder / 'split'} must hold one folder, or the option `split` name one",
            f"{split}, and folders {found}",
            "Unpack the data set's archive again, or correct the option.",
        )
    return folder / "split" / chosen


def read_node_count(path: Path) -> int:
    """The number of nodes in a file `num-node-list.csv.gz`. Raises `InputError`."""
    return single_count(path, read_table(path, np.int64).reshape(-1))


def save_text_features(name: str, source: Path, num_nodes: int, path: Path) -> None:
    """Writes the features in the text file `source` to `path`, float32 `[N, F]`. Raises
    `InputError`."""
    features, filled = np.empty((num_nodes, 0), np.float32), 0
    for rows in read_rows(source, np.float32):
        if filled == 0:
            features = np.lib.format.open_memmap(
                path, "w+", np.float32, (num_nodes, rows.shape[1])
            )
        if filled + rows.shape[0] <= num_nodes:
            check_finite(name, rows, filled)
            features[filled : filled + rows.shape[0]] = rows
        filled += rows.shape[0]
    if filled != num_nodes or filled == 0:
        raise InputError(
            f"{source} must have one row for every node",
            f"{filled} rows for {num_nodes} nodes",
            "It is cut short or of another data set: fetch it again.",
        )


def single_count(path: Path, num_nodes: np.ndarray) -> int:
    """The only one of the numbers of nodes in a file. Raises `InputError`."""
    whole = num_nodes.size == 1 and num_nodes.dtype.kind in "iu"
    if not whole or not 0 <= num_nodes[0] <= MAX_ID:
        raise InputError(
            f"{path} must give the number of nodes of one graph",
            num_nodes[:5],
            f"Only data sets of a single graph of at most {MAX_ID} nodes can be read.",
        )
    return int(num_nodes[0])
