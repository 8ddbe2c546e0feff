"""Planetoid's citation graphs (Yang, Cohen, Salakhutdinov, 2016): cora, citeseer, pubmed.

Eight raw files: `ind.<name>.x .tx .allx` (CSR features of the training nodes, of the test
nodes, and of all nodes but the test nodes), `.y .ty .ally` (their one-hot labels), `.graph` (a
dict of neighbour lists), which are pickles, and `.test.index`, the test nodes' ids in the order
of `tx`, as text.

The public split: the nodes of `y` train, the next 500 validate, and those of `test.index` test.
Test ids may leave gaps (CiteSeer: 15). The nodes in the gaps get zero features and class 0, as
in the other libraries, and are in no split. The full split (`split="full"`) trains on all nodes
before the test nodes that are not validation nodes. Edges go both ways, each once, without
self-loops.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import scipy

from jgs.data.dataset import Dataset, Plain
from jgs.data.download import fetch
from jgs.data.edge_stream import simple_symmetric_graph
from jgs.data.formats import npz
from jgs.data.text import only, read_table, require_all
from jgs.data.unpickle import load_pickle
from jgs.data.values import training_nodes
from jgs.errors import InputError

NAMES = {
    "cora": "Planetoid's citations between papers on machine learning",
    "citeseer": "Planetoid's citations between papers on computer science",
    "pubmed": "Planetoid's citations between papers on diabetes",
}
ADDRESS = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VALIDATION = 500


def load(
    name: str,
    root: Path,
    *,
    normalize_features: bool = True,
    symmetric: bool = False,
    split: str = "public",
    download: bool = True,
) -> Dataset | Plain:
    """The data set in `<root>/<name>.npz` if it exists; or in the raw files in `root`,
    `root/<name>` or `root/<name>/raw`; or, with `download`, in raw files fetched into the last
    of these.

    `normalize_features` makes the rows of the features sum to 1. `symmetric` adds the reverse
    of every edge of an archive that lacks one; the raw files' edges go both ways in any case.
    `split="full"` trains on all nodes that are in neither of the other splits. Raises
    `InputError`.
    """
    if (root / f"{name}.npz").is_file():
        ways = {"normalize_features": normalize_features, "symmetric": symmetric}
        return npz.load(name, root, **ways, split=split)
    folders = [root, root / name, root / name / "raw"]
    held = [folder for folder in folders if (folder / f"ind.{name}.graph").is_file()]
    if not held and not download:
        raise InputError(
            f"the data set {name} must be in {root}",
            f"neither {name}.npz nor ind.{name}.graph there",
            f"Put {ADDRESS}/ind.{name}.* into {folders[-1]}.",
        )
    folder = held[0] if held else folders[-1]
    for part in () if held else PARTS:
        fetch(f"{ADDRESS}/ind.{name}.{part}", folder / f"ind.{name}.{part}")
    return _read(name, folder, normalize_features, split)


def recognises(path: Path) -> bool:
    """Whether it is a folder with such files, or with one that has them in `raw`."""
    return bool(_graphs(path))


def read(path: Path, *, normalize_features: bool = True, split: str = "public") -> Dataset:
    """The only data set in the folder; the options are those of `load`. Raises
    `InputError`."""
    graph = only(path, _graphs(path))
    name = graph.name.removeprefix("ind.").removesuffix(".graph")
    return _read(name, graph.parent, normalize_features, split)


def _graphs(folder: Path) -> list[Path]:
    return [file for inner in (folder, folder / "raw") for file in inner.glob("ind.*.graph")]


def _read(name: str, folder: Path, normalize_features: bool, split: str) -> Dataset:
    files = {part: folder / f"ind.{name}.{part}" for part in PARTS}
    names = [file.name for file in files.values()]
    there = [file.name for file in files.values() if file.is_file()]
    rule = f"{folder} must hold all eight files of {name}"
    require_all(rule, there, names, f"Fetch them from {ADDRESS}.")
    tx, allx = (_matrix(files[part]) for part in ("tx", "allx"))
    y, ty, ally = (_one_hot(files[part]) for part in ("y", "ty", "ally"))
    test_idx = read_table(files["test.index"], np.int64, columns=1)[:, 0]
    neighbours = load_pickle(files["graph"])

    num_train, num_other = y.shape[0], allx.shape[0]
    num_nodes = len(neighbours) if isinstance(neighbours, dict) else -1
    _check_sizes(folder, allx, tx, ally, ty, y, test_idx, num_nodes)
    src, dst = _edges(files["graph"], neighbours)
    # Row i of tx is node test_idx[i]; nodes in the gaps between test ids stay zero.
    place = scipy.sparse.csr_matrix(
        (np.ones(test_idx.size, np.float32), (test_idx - num_other, np.arange(test_idx.size))),
        shape=(num_nodes - num_other, test_idx.size),
    )
    features = scipy.sparse.vstack([allx, place @ tx]).tocsr()
    labels = np.zeros(num_nodes, np.int32)
    labels[:num_other] = ally.argmax(axis=1)
    labels[test_idx] = ty.argmax(axis=1)
    val_idx = np.arange(num_train, min(num_train + _NUM_VALIDATION, num_other))
    train_idx, every = np.arange(num_train), np.arange(num_other)
    train_idx = training_nodes(split, train_idx, every, val_idx, test_idx)
    return Dataset.from_arrays(
        simple_symmetric_graph(src, dst, num_nodes),
        features,
        labels,
        {"train": train_idx, "val": val_idx, "test": np.sort(test_idx)},
        name=name,
        num_classes=ally.shape[1],
        normalize_features=normalize_features,
    )


def _check_sizes(folder, allx, tx, ally, ty, y, test_idx, num_nodes) -> None:
    rows = f"{allx.shape} {tx.shape} {ally.shape} {ty.shape} {y.shape}, {test_idx.size} ids"
    fits = (
        allx.shape[0] == ally.shape[0] >= y.shape[0]
        and tx.shape[0] == ty.shape[0] == test_idx.size == np.unique(test_idx).size
        and allx.shape[1] == tx.shape[1]
        and ally.shape[1] == ty.shape[1] == y.shape[1]
    )
    if not fits:
        raise InputError(
            f"allx, tx, ally, ty, y and test.index in {folder} must fit one another",
            rows,
            "The files are of different data sets or damaged: fetch them again.",
        )
    if test_idx.size and not allx.shape[0] <= test_idx.min() <= test_idx.max() < num_nodes:
        raise InputError(
            f"test.index in {folder} must name nodes after the {allx.shape[0]} of allx, "
            f"among the {num_nodes} that graph lists",
            f"{int(test_idx.min())} to {int(test_idx.max())}",
            "The files are of different data sets or damaged: fetch them again.",
        )


def _matrix(path: Path) -> scipy.sparse.csr_matrix:
    value = load_pickle(path)
    if isinstance(value, np.ndarray) and value.ndim == 2:
        value = scipy.sparse.csr_matrix(value)
    if not scipy.sparse.issparse(value):
        raise InputError(
            f"{path} must hold a CSR matrix", type(value).__name__, "Fetch the file again."
        )
    return value.astype(np.float32)


def _one_hot(path: Path) -> np.ndarray:
    value = load_pickle(path)
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.shape[1] == 0:
        raise InputError(
            f"{path} must hold a matrix of one-hot labels",
            type(value).__name__,
            "Fetch the file again.",
        )
    return value


def _edges(path: Path, neighbours: dict) -> tuple[np.ndarray, np.ndarray]:
    ids = [neighbours.keys(), *neighbours.values()]
    if not all(isinstance(v, list) for v in ids[1:]) or not all(
        type(i) is int and 0 <= i < len(neighbours) for i in chain.from_iterable(ids)
    ):
        raise InputError(
            f"{path} must map every node in [0, {len(neighbours)}) to a list of such nodes",
            "something else",
            "Fetch the file again.",
        )
    degree = [len(v) for v in ids[1:]]
    src = np.fromiter(chain.from_iterable(ids[1:]), np.int64, sum(degree))
    return src, np.repeat(np.fromiter(neighbours, np.int64, len(degree)), degree)
