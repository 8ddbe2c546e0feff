"""OGB's node-property data sets, read from their raw files, which are fetched if missing.

A data set's folder has one of three layouts, recognised by its files:
  text: `raw/edge.csv.gz`, `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`,
    `raw/num-node-list.csv.gz` (arxiv, products);
  binary: `raw/data.npz` with `edge_index`, `node_feat` and `num_nodes_list`, and
    `raw/node-label.npz` with `node_label`, NaN for nodes without a label (papers100M);
  typed (mag):
    `raw/num-node-dict.csv.gz`: a line of the names of the node types, and a line of their
      counts.
    `raw/triplet-type-list.csv.gz`: a line `source type,relation,target type` for each relation.
    `raw/relations/<source>___<relation>___<target>/edge.csv.gz`: its edges, source and target,
      which count from 0 within each type; beside it `num-edge-list.csv.gz`, their number.
    `raw/node-feat/<type>/node-feat.csv.gz`, or `node-feat.npy`: the features of a type that has
      some.
    `raw/node-label/<type>/node-label.csv.gz`: the labels of one type (NaN: none).
All have `split/<kind>/{train,valid,test}.csv.gz`; the typed one `split/<kind>/<type>/` with
these, and perhaps `split/<kind>/nodetype-has-split.csv.gz`, which types have a split.

The first load parses the files into `<folder>/jgs` (a saved `Graph` and `.npy` files, about the
size of the data) in bounded memory; the edges of a typed graph must fit in memory. Later loads
compare these with their checksums, unless `verify=False`, and map them into memory.

ogbn-products is undirected and stores each edge once. ogbn-arxiv and ogbn-papers100M are
citation graphs with an edge from the citing paper to the cited one. By default citations go
both ways, as in OGB's own examples: `symmetric=True` adds every edge's reverse, keeps each edge
once and drops self-loops. `symmetric=False` keeps the edges as stored. Of a typed graph types
and relations have the order of the files. With `both_ways` each relation has a reverse,
`rev_<relation>`. Features are `jgs.graph.TypedFeatures`.
"""

from __future__ import annotations

import logging
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jgs.arrays import check_range, require_array
from jgs.data import download
from jgs.data.array_files import open_npy
from jgs.data.dataset import Dataset
from jgs.data.download import Cache
from jgs.data.edge_stream import save_graph
from jgs.data.formats import ogb_links
from jgs.data.formats.ogb_links import (
    AGAIN,
    read_node_count,
    save_text_features,
    single_count,
    split_folder,
)
from jgs.data.label_values import as_labels
from jgs.data.text import read_lines, read_rows, read_table
from jgs.data.values import SPLITS, as_chosen, as_features, check_finite
from jgs.errors import InputError, refusing
from jgs.files import storage
from jgs.files.npy import NOT_ZIP
from jgs.graph import Graph
from jgs.graph.checks import MAX_ID
from jgs.graph.schema import Relation

NAMES = {
    "ogbn-arxiv": "OGB's citations between papers of arXiv",
    "ogbn-products": "OGB's products that are bought together",
    "ogbn-papers100M": "OGB's citations between 111 million papers",
    "ogbn-mag": "OGB's papers, authors, institutions and fields of study, with types",
}
ADDRESS = "http://snap.stanford.edu/ogb/data/nodeproppred"
_EDGES_AT_ONCE = 1 << 22
_TEXT = ("edge.csv.gz", "node-feat.csv.gz", "node-label.csv.gz", "num-node-list.csv.gz")
_BINARY = ("data.npz", "node-label.npz")
_RELATIONS, _COUNTS = "triplet-type-list.csv.gz", "num-node-dict.csv.gz"

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
    "ogbn-mag": Published("mag.zip", "ogbn_mag", 349, True),
}


def load(
    name: str,
    root: Path,
    *,
    symmetric: bool = True,
    both_ways: bool = True,
    features: str = "typed",
    download: bool = True,
    kept: Cache,
) -> Dataset:
    """One of `PUBLISHED`, from a folder or archive in `root`, or downloaded into it.

    This looks for `raw` in `<root>/ogbn_arxiv` (and so on), in `<root>/<name>`, in the
    archive's own folder, and in `root` itself; then for the zip archive in `root`. Unless
    `download=False` it then fetches the archive from OGB. The other options are those of
    `read`. Raises `InputError`.
    """
    published = PUBLISHED[name]
    if not symmetric and not published.directed:
        raise InputError(
            f"{name} is undirected and stores each edge once: symmetric must be True",
            symmetric,
            "Leave the option out.",
        )
    return read(
        _find_folder(name, root, published, download),
        name=name,
        symmetric=symmetric,
        both_ways=both_ways,
        features=features,
        num_classes=published.num_classes,
        kept=kept,
    )


def recognises(path: Path) -> bool:
    """Whether it is a folder with one of the layouts, and with labels of nodes."""
    known = any((path / "raw" / file).is_file() for file in (_RELATIONS, _TEXT[0], _BINARY[0]))
    return known and not ogb_links.recognises(path)


class _Raw(NamedTuple):
    """The raw files of a data set.

    Fields:
      sources: all of them that must be there.
      parse: writes the graph and the features to a folder, and returns the labels.
      settings: what the parsed files depend on.
      tables: the names of the parsed files of features by node type; "" for all nodes.
      splits: the folder of the files of splits.
      target: the node type that has the labels, or None.
    """

    sources: list[Path]
    parse: Callable[[Path], np.ndarray]
    settings: dict[str, Any]
    tables: dict[str, str]
    splits: Path
    target: str | None = None


def read(
    folder: Path,
    *,
    name: str | None = None,
    symmetric: bool = True,
    both_ways: bool = True,
    features: str = "typed",
    num_classes: int | None = None,
    split: str | None = None,
    kept: Cache,
) -> Dataset:
    """Any data set in one of the layouts.

    Args:
      symmetric: see above; for a graph without types.
      both_ways, features: whether to add each relation's reverse, and "typed", or "padded" for
        one matrix (`jgs.data.values`); for a typed graph.
      num_classes: None takes the largest label + 1.
      split: the folder below `split/`; needed if there are several.
      kept: where the parsed files are kept.

    Raises `InputError`.
    """
    typed = (folder / "raw" / _RELATIONS).is_file()
    given = {"symmetric": symmetric, "both_ways": both_ways, "features": features}
    usual = {"symmetric": True, "both_ways": True, "features": "typed"}
    for option, value in given.items():
        if value != usual[option] and typed == (option == "symmetric"):
            kind = "without" if typed else "with"
            rule = f"the option {option} must be for a data set {kind} node types"
            raise InputError(rule, f"{value} for {folder}", "Leave it out.")
    name = name or (folder.resolve() if typed else folder).name
    if typed:
        raw = _typed(name, folder, split, both_ways)
    else:
        raw = _untyped(name, folder, split, symmetric, num_classes)
    ids = {one: raw.splits / f"{file}.csv.gz" for one, file in _SPLITS.items()}
    if missing := [
        str(path.relative_to(folder))
        for path in (*raw.sources, *ids.values())
        if not path.is_file()
    ]:
        raise InputError(
            f"{folder} must hold all of {name}'s raw files", f"no {', '.join(missing)}", AGAIN
        )

    def build(target: Path) -> None:
        labels = raw.parse(target)
        storage.save_npy(target / "labels.npy", as_labels(name, labels))
        for one, path in ids.items():
            storage.save_npy(
                target / f"{one}_idx.npy", read_table(path, np.int64, columns=1)[:, 0]
            )
        opened(target)  # so that data that breaks a rule is not kept

    def opened(target: Path) -> Dataset:
        rows = {kind: open_npy(target / file) for kind, file in raw.tables.items()}
        labels = open_npy(target / "labels.npy")
        return Dataset.from_arrays(
            Graph.open(target / "graph", verify=False),  # `parsed` has verified it
            rows.get("", rows),
            labels if raw.target is None else {raw.target: labels},
            {one: np.array(open_npy(target / f"{one}_idx.npy")) for one in SPLITS},
            name=name,
            num_classes=num_classes,
            check_values=False,  # checked once, while parsing
        )

    settings, sources = raw.settings, [*raw.sources, *ids.values()]
    if typed:  # files of one name in several folders: their paths tell them apart
        states = ((path.relative_to(folder), path.stat()) for path in sources)
        settings |= {str(path): [at.st_size, at.st_mtime_ns] for path, at in states}
        sources = []
    data = opened(kept.parsed(folder / "jgs", sources, settings, build))
    return as_chosen(data, features)


_SPLITS = {"train": "train", "val": "valid", "test": "test"}  # our names and OGB's


def _untyped(
    name: str, folder: Path, split: str | None, symmetric: bool, num_classes: int | None
) -> _Raw:
    raw = folder / "raw"
    text, binary = ((raw / files[0]).is_file() for files in (_TEXT, _BINARY))
    if text == binary:
        raise InputError(
            f"{folder} must hold raw/{_TEXT[0]} or raw/{_BINARY[0]}",
            "both" if text else "neither",
            "Keep the one layout." if text else "Unpack the data set's archive there.",
        )
    return _Raw(
        [raw / file for file in (_BINARY if binary else _TEXT)],
        lambda to: (_parse_binary if binary else _parse_text)(name, raw, to, symmetric),
        {"symmetric": symmetric, "num_classes": num_classes},
        {"": "features.npy"},
        split_folder(folder, split),
    )


def _typed(name: str, folder: Path, split: str | None, both_ways: bool) -> _Raw:
    raw = folder / "raw"
    counts = _node_counts(raw / _COUNTS)
    relations = _relations(raw / _RELATIONS, counts)
    splits = split_folder(folder, split)
    target = _target(raw, splits, counts)
    edges = {one: raw / "relations" / "___".join(one) / "edge.csv.gz" for one in relations}
    labels = raw / "node-label" / target / "node-label.csv.gz"
    places = [raw / "node-feat" / kind / "node-feat" for kind in counts]
    files = [(Path(f"{at}.csv.gz"), Path(f"{at}.npy")) for at in places]
    found = [next((file for file in each if file.is_file()), None) for each in files]
    rows = {kind: file for kind, file in zip(counts, found, strict=True) if file is not None}
    tables = {kind: f"features{i}.npy" for i, kind in enumerate(counts) if kind in rows}

    def parse(place: Path) -> np.ndarray:
        pairs = {one: _edges(path, one, counts) for one, path in edges.items()}
        Graph.from_relations(counts, pairs, both_ways=both_ways).save(place / "graph")
        for kind, file in tables.items():
            _save_features(name, rows[kind], counts[kind], place / file)
        return as_labels(str(labels), read_table(labels, np.float64))

    settings = {"typed": True, "both_ways": both_ways, "split": splits.name}
    sources = [raw / _COUNTS, raw / _RELATIONS, *edges.values(), labels, *rows.values()]
    return _Raw(sources, parse, settings, tables, splits / target, target)


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
        num_nodes = single_count(data, arrays["num_nodes_list"].reshape(-1))
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
        storage.save_npy(target / "converted.npy", ready)
        (target / "converted.npy").replace(target / "features.npy")
    check_finite(name, ready)
    with storage.open_npz(raw / _BINARY[1]) as arrays:
        return np.array(arrays["node_label"])


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


def _find_folder(name: str, root: Path, published: Published, may_download: bool) -> Path:
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


def _by_type(path: Path, what: str) -> dict[str, str]:
    lines = [[word.strip() for word in line.split(",")] for line in read_lines(path)]
    if len(lines) != 2 or len(lines[0]) != len(lines[1]):
        found = f"{len(lines)} lines, of one graph or unlike"
        raise InputError(f"{path} must have {what}", found, AGAIN)
    return dict(zip(*lines, strict=True))


def _node_counts(path: Path) -> dict[str, int]:
    counts = _by_type(path, "a line of the names of node types and a line of their counts")
    for kind, count in counts.items():
        if not count.isdecimal() or not 0 < int(count) <= MAX_ID:
            raise InputError(
                f"{path} must have at least one node of each type, and at most {MAX_ID}",
                f"{count!r} for {kind}",
                AGAIN,
            )
    return {kind: int(count) for kind, count in counts.items()}


def _relations(path: Path, counts: dict[str, int]) -> tuple[Relation, ...]:
    found = []
    for number, line in enumerate(read_lines(path), 1):
        words = [word.strip() for word in line.split(",")]
        if len(words) != 3 or not {words[0], words[2]} <= set(counts):
            raise InputError(
                f"every line of {path} must be source type,relation,target type, with types "
                f"{', '.join(counts)}",
                f"{line[:60]!r} in line {number}",
                AGAIN,
            )
        found.append((words[0], words[1], words[2]))
    return tuple(found)


def _edges(
    path: Path, relation: Relation, counts: dict[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of a relation's edges, int32 `[E]` each."""
    parts = [np.empty((0, 2), np.int32)]
    for rows in read_rows(path, np.int64, columns=2):
        for column, kind in zip(rows.T, (relation[0], relation[2]), strict=True):
            check_range(f"{path} must name nodes of {kind}", column, counts[kind], AGAIN)
        parts.append(rows.astype(np.int32))
    edges = np.concatenate(parts)
    number = path.with_name("num-edge-list.csv.gz")
    if number.is_file() and read_table(number, np.int64).tolist() != [[len(edges)]]:
        raise InputError(
            f"{path} must have as many edges as {number.name} says",
            f"{len(edges)}",
            "It is cut short: unpack the data set's archive again.",
        )
    return edges[:, 0], edges[:, 1]


def _save_features(name: str, source: Path, num_nodes: int, path: Path) -> None:
    if source.suffix != ".npy":
        save_text_features(name, source, num_nodes, path)
        return
    rows = as_features(name, open_npy(source))
    require_array(f"{source}", rows, "[N, F], one row for each node", AGAIN, N=num_nodes)
    check_finite(name, rows)
    storage.save_npy(path, rows)


def _target(raw: Path, splits: Path, counts: dict[str, int]) -> str:
    labelled = [
        kind for kind in counts if (raw / "node-label" / kind / "node-label.csv.gz").is_file()
    ]
    found = [kind for kind in labelled if (splits / kind).is_dir()]
    says = splits / "nodetype-has-split.csv.gz"
    if says.is_file():
        has = _by_type(says, "a line of node types, and one of True and False")
        found = [kind for kind in labelled if has.get(kind) == "True"]
    if len(found) != 1:
        raise InputError(
            f"one node type in {raw.parent} must have labels and a split",
            f"labels of {', '.join(labelled) or 'none'}, and both for {len(found)}",
            AGAIN,
        )
    return found[0]
