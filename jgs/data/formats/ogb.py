"""OGB's node-property data sets, read from their raw files, which are fetched if missing.

A data set's folder has one of two layouts, recognised by its files:
  text: `raw/edge.csv.gz`, `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`,
    `raw/num-node-list.csv.gz` (arxiv, products);
  binary: `raw/data.npz` with `edge_index`, `node_feat` and `num_nodes_list`, and
    `raw/node-label.npz` with `node_label`, NaN for nodes without a label (papers100M).
Both have `split/<kind>/{train,valid,test}.csv.gz`.

The first load parses the files into `<folder>/jgs` (a saved `Graph` and `.npy` files, about the
size of the data) in bounded memory. Later loads compare these with their checksums, unless
`verify=False`, and map them into memory.

ogbn-products is undirected and stores each edge once. ogbn-arxiv and ogbn-papers100M are
citation graphs with an edge from the citing paper to the cited one. By default citations go
both ways, as in OGB's own examples: `symmetric=True` adds every edge's reverse, keeps each edge
once and drops self-loops. `symmetric=False` keeps the edges as stored.
"""

from __future__ import annotations

import logging
import shutil
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jgs.arrays import require_array
from jgs.data import download
from jgs.data.array_files import open_npy
from jgs.data.cache import Cache
from jgs.data.dataset import Dataset
from jgs.data.edges import save_graph
from jgs.data.label_values import as_labels
from jgs.data.text import read_rows, read_table
from jgs.data.values import SPLITS, as_features, check_finite
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.files.npy import NOT_ZIP
from jgs.graph import Graph
from jgs.graph.checks import MAX_ID

NAMES = {
    "ogbn-arxiv": "OGB's citations between papers of arXiv",
    "ogbn-products": "OGB's products that are bought together",
    "ogbn-papers100M": "OGB's citations between 111 million papers",
}
ADDRESS = "http://snap.stanford.edu/ogb/data/nodeproppred"
_EDGES_AT_ONCE = 1 << 22
_TEXT = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "num-node-list.csv.gz")
_BINARY = ("data.npz", "node-label.npz")
SPLIT_FILES = {
    "train_idx": "train.csv.gz",
    "val_idx": "valid.csv.gz",
    "test_idx": "test.csv.gz",
}

_log = logging.getLogger("jgs")


class Published(NamedTuple):
    """How OGB publishes a data set."""

    zip_name: str
    folder: str  # the folder that OGB's own package uses
    num_classes: int
    directed: bool


PUBLISHED = {
    "ogbn-arxiv": Published("arxiv.zip", "ogbn_arxiv", 40, True),
    "ogbn-products": Published("products.zip", "ogbn_products", 47, False),
    "ogbn-papers100M": Published("papers100M-bin.zip", "ogbn_papers100M", 172, True),
}


def load(
    name: str,
    root: Path,
    *,
    symmetric: bool = True,
    download: bool = True,
    kept: Cache,
) -> Dataset:
    """One of `PUBLISHED`, from a folder or archive in `root`, or downloaded into it.

    This looks for `raw` in `<root>/ogbn_arxiv` (and so on), in `<root>/<name>`, in the
    archive's own folder, and in `root` itself; then for the zip archive in `root`. Unless
    `download=False` it then fetches the archive from OGB. `symmetric` is described above.
    `kept` says where the parsed files are kept. Raises `InputError`.
    """
    published = PUBLISHED[name]
    if not symmetric and not published.directed:
        raise InputError(
            f"{name} is undirected and stores each edge once: symmetric must be True",
            symmetric,
            "Leave the option out.",
        )
    return read(
        find_folder(name, root, published, download),
        name=name,
        symmetric=symmetric,
        num_classes=published.num_classes,
        kept=kept,
    )


def recognises(path: Path) -> bool:
    """Whether it is a folder with one of the two layouts, and with labels of nodes."""
    raw = path / "raw"
    named = any((raw / file).is_file() for file in (_TEXT[0], _BINARY[0]))
    return named and not is_links(path)


def is_links(folder: Path) -> bool:
    """Whether `folder` has edges, and splits of them and not of nodes."""
    edges, labels = (folder / "raw" / _TEXT[i] for i in (0, 2))
    return edges.is_file() and not labels.exists() and any(folder.glob("split/*/train.*"))


def read(
    folder: Path,
    *,
    name: str | None = None,
    symmetric: bool = True,
    num_classes: int | None = None,
    split: str | None = None,
    kept: Cache,
) -> Dataset:
    """Any data set in one of the two layouts.

    `split` names the folder below `split/`, and is needed if there are several. `num_classes`
    None takes the largest label + 1. `kept` says where the parsed files are kept. Raises
    `InputError`.
    """
    name = name or folder.name
    raw, binary = folder / "raw", _is_binary(folder)
    sources = [raw / file for file in (_BINARY if binary else _TEXT)]
    sources += [split_folder(folder, split) / file for file in SPLIT_FILES.values()]
    if missing := [str(s.relative_to(folder)) for s in sources if not s.is_file()]:
        raise InputError(
            f"{folder} must hold all of {name}'s raw files",
            f"no {', '.join(missing)}",
            "Unpack the data set's archive again.",
        )

    def build(target: Path) -> None:
        labels = (_parse_binary if binary else _parse_text)(name, raw, target, symmetric)
        np.save(target / "labels.npy", as_labels(name, labels))
        for field, path in zip(SPLIT_FILES, sources[-3:], strict=True):
            np.save(target / f"{field}.npy", read_table(path, np.int64, columns=1)[:, 0])
        _assemble(name, target, num_classes)  # so that data that breaks a rule is not kept

    settings = {"symmetric": symmetric, "num_classes": num_classes}
    return _assemble(name, kept.parsed(folder / "jgs", sources, settings, build), num_classes)


def _assemble(name: str, kept: Path, num_classes: int | None) -> Dataset:
    return Dataset.from_arrays(
        Graph.open(kept / "graph", verify=False),  # `parsed` has verified it
        open_npy(kept / "features.npy"),
        open_npy(kept / "labels.npy"),
        {split: np.array(open_npy(kept / f"{split}_idx.npy")) for split in SPLITS},
        name=name,
        num_classes=num_classes,
        check_values=False,  # checked once, while parsing
    )


def _parse_text(name: str, raw: Path, target: Path, symmetric: bool) -> np.ndarray:
    num_nodes = read_node_count(raw / _TEXT[3])
    edges = (
        (rows[:, 0], rows[:, 1]) for rows in read_rows(raw / _TEXT[0], np.int64, columns=2)
    )
    what = str(raw / _TEXT[0])
    save_graph(target, edges, num_nodes, symmetric=symmetric, what=what)
    save_text_features(name, raw / _TEXT[1], num_nodes, target / "features.npy")
    return read_table(raw / _TEXT[2], np.float64)


def _parse_binary(name: str, raw: Path, target: Path, symmetric: bool) -> np.ndarray:
    data = raw / _BINARY[0]
    with storage.open_npz(data) as arrays:
        if missing := [
            k for k in ("edge_index", "node_feat", "num_nodes_list") if k not in arrays
        ]:
            raise InputError(f"{data} must hold {missing}", sorted(arrays), "Fetch it again.")
        num_nodes = _single(data, arrays["num_nodes_list"].reshape(-1))
    # A member of an .npz is an .npy file. Unpacked, it can be mapped, and be larger than RAM.
    edge_index = _unpack(data, "edge_index", target / "edge_index.npy")
    require_array(f"edge_index in {data}", edge_index, "integers [2, E]", "Fetch it again.")
    starts = range(0, edge_index.shape[1], _EDGES_AT_ONCE)
    edges = (
        (edge_index[0, i : i + _EDGES_AT_ONCE], edge_index[1, i : i + _EDGES_AT_ONCE])
        for i in starts
    )
    save_graph(target, edges, num_nodes, symmetric=symmetric, what=str(data))
    (target / "edge_index.npy").unlink()

    features = _unpack(data, "node_feat", target / "features.npy")
    ready = as_features(name, features)
    if ready.dtype != features.dtype or not features.flags.c_contiguous:
        np.save(target / "converted.npy", ready)
        (target / "converted.npy").replace(target / "features.npy")
    check_finite(name, ready)
    with storage.open_npz(raw / _BINARY[1]) as arrays:
        return np.array(arrays["node_label"])


def read_node_count(path: Path) -> int:
    """The number of nodes in a file `num-node-list.csv.gz`. Raises `InputError`."""
    return _single(path, read_table(path, np.int64).reshape(-1))


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


def _unpack(path: Path, member: str, target: Path) -> np.ndarray:
    rule = f"{member} in {path} must be whole, and fit the disk"
    with (
        refusing(NOT_ZIP, rule, "Free space, or fetch the archive again."),
        zipfile.ZipFile(path) as file,
        file.open(f"{member}.npy") as source,
        open(target, "wb") as copy,
    ):
        shutil.copyfileobj(source, copy, 1 << 20)
    return open_npy(target)


def _single(path: Path, num_nodes: np.ndarray) -> int:
    whole = num_nodes.size == 1 and num_nodes.dtype.kind in "iu"
    if not whole or not 0 <= num_nodes[0] <= MAX_ID:
        raise InputError(
            f"{path} must give the number of nodes of one graph",
            num_nodes[:5],
            f"Only data sets of a single graph of at most {MAX_ID} nodes can be read.",
        )
    return int(num_nodes[0])


def _is_binary(folder: Path) -> bool:
    text, binary = ((folder / "raw" / f[0]).is_file() for f in (_TEXT, _BINARY))
    if text == binary:
        raise InputError(
            f"{folder} must hold raw/{_TEXT[0]} or raw/{_BINARY[0]}",
            "both" if text else "neither",
            "Keep the one layout." if text else "Unpack the data set's archive there.",
        )
    return binary


def split_folder(folder: Path, split: str | None) -> Path:
    """The folder `<folder>/split/<split>`; with None the only one. Raises `InputError`."""
    found = sorted(p.name for p in (folder / "split").glob("*") if p.is_dir())
    if split is None and len(found) == 1:
        return folder / "split" / found[0]
    if split is None or split not in found:
        raise InputError(
            f"{folder / 'split'} must hold one folder, or the option `split` name one",
            f"{split}, and folders {found}",
            "Unpack the data set's archive again, or correct the option.",
        )
    return folder / "split" / split


def find_folder(name: str, root: Path, published: Published, may_download: bool) -> Path:
    """The folder of a published data set in `root`, unpacked and fetched if need be. Raises
    `InputError`."""
    archive_name = published.zip_name.removesuffix(".zip")
    home = root / published.folder
    for folder in (home, root / name, root / archive_name, root):
        if (folder / "raw").is_dir():
            return folder
    zipped, url = root / published.zip_name, f"{ADDRESS}/{published.zip_name}"
    if zipped.is_file():
        download.verified(zipped)
    elif may_download:
        download.fetch(url, zipped)
    else:
        raise InputError(
            f"the data set {name} must be in {root}",
            f"neither {published.folder}/raw nor {zipped.name} there",
            f"Put {url} into {root}.",
        )
    if home.exists():
        raise InputError(
            f"{home} must be the unpacked {zipped.name}, or absent",
            "a folder without raw/",
            "Move it away.",
        )
    download.extract(zipped, home)
    _log.info("unpacked %s as %s; the archive is no longer needed", zipped, home)
    return home
