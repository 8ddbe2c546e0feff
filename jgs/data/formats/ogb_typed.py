"""OGB's node-property data sets of typed graphs, such as ogbn-mag, read from their raw files.

A data set's folder:
  `raw/num-node-dict.csv.gz`: a line of the names of the node types, and a line of their counts.
  `raw/triplet-type-list.csv.gz`: a line `source type,relation,target type` for each relation.
  `raw/relations/<source>___<relation>___<target>/edge.csv.gz`: its edges, source and target,
    which count from 0 within each type; beside it `num-edge-list.csv.gz`, their number.
  `raw/node-feat/<type>/node-feat.csv.gz`, or `node-feat.npy`: the features of a type that has
    some.
  `raw/node-label/<type>/node-label.csv.gz`: the labels of one type (NaN: none).
  `split/<kind>/<type>/{train,valid,test}.csv.gz`: nodes of that type.
  `split/<kind>/nodetype-has-split.csv.gz`: optional; which types have a split.

Types and relations have the order of these files. With `both_ways` each relation has a reverse,
`rev_<relation>`. Features are `jgs.graph.TypedFeatures`.

The first load parses the files into `<folder>/jgs`, as `jgs.data.formats.ogb` does. Features
are parsed in bounded memory; the edges must fit in memory.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from jgs.arrays import require_array
from jgs.data.array_files import open_npy
from jgs.data.cache import Cache
from jgs.data.dataset import Dataset
from jgs.data.formats.ogb import (
    SPLIT_FILES,
    Published,
    find_folder,
    save_text_features,
    split_folder,
)
from jgs.data.label_values import as_labels
from jgs.data.text import read_lines, read_rows, read_table
from jgs.data.values import SPLITS, as_chosen, as_features, as_ids, check_finite
from jgs.errors import InputError
from jgs.graph import Graph
from jgs.graph.checks import MAX_ID, check_range
from jgs.graph.schema import Relation

NAMES = {"ogbn-mag": "OGB's papers, authors, institutions and fields of study, with types"}
PUBLISHED = {"ogbn-mag": Published("mag.zip", "ogbn_mag", 349, True)}
_RELATIONS, _COUNTS = "triplet-type-list.csv.gz", "num-node-dict.csv.gz"
_AGAIN = "Unpack the data set's archive again."

_log = logging.getLogger("jgs")


def recognises(path: Path) -> bool:
    """Whether it is a folder with the raw files of a typed graph."""
    return (path / "raw" / _RELATIONS).is_file()


def load(
    name: str,
    root: Path,
    *,
    both_ways: bool = True,
    features: str = "typed",
    download: bool = True,
    kept: Cache,
) -> Dataset:
    """One of `PUBLISHED`, from a folder or archive in `root`, or downloaded into it, as
    `jgs.data.formats.ogb.load` does. The other options are those of `read`. Raises
    `InputError`."""
    published = PUBLISHED[name]
    return read(
        find_folder(name, root, published, download),
        name=name,
        num_classes=published.num_classes,
        both_ways=both_ways,
        features=features,
        kept=kept,
    )


def read(
    folder: Path,
    *,
    name: str | None = None,
    num_classes: int | None = None,
    both_ways: bool = True,
    features: str = "typed",
    split: str | None = None,
    kept: Cache,
) -> Dataset:
    """Any data set in this layout.

    Args:
      both_ways: whether to add each relation's reverse.
      features: "typed", or "padded" for one matrix (`jgs.data.values`).
      split: the folder below `split/`; needed if there are several.
      num_classes: None takes the largest label + 1.
      kept: where the parsed files are kept.

    Raises `InputError`.
    """
    name, raw = name or folder.resolve().name, folder / "raw"
    counts = _node_counts(raw / _COUNTS)
    relations = _relations(raw / _RELATIONS, counts)
    splits = split_folder(folder, split)
    target = _target(raw, splits, counts)
    edges = {one: raw / "relations" / "___".join(one) / "edge.csv.gz" for one in relations}
    found = {kind: _features_of(raw, kind) for kind in counts}
    tables = {kind: path for kind, path in found.items() if path is not None}
    labels = raw / "node-label" / target / "node-label.csv.gz"
    ids = {field: splits / target / file for field, file in SPLIT_FILES.items()}
    sources = [raw / _COUNTS, raw / _RELATIONS, *edges.values(), labels, *ids.values()]
    if missing := [str(path.relative_to(folder)) for path in sources if not path.is_file()]:
        raise InputError(
            f"{folder} must hold all of {name}'s raw files",
            f"no {', '.join(missing)}",
            _AGAIN,
        )

    def build(place: Path) -> None:
        pairs = {one: _edges(path, one, counts) for one, path in edges.items()}
        graph = Graph.from_relations(counts, pairs, both_ways=both_ways)
        graph.save(place / "graph")
        for number, kind in enumerate(counts):
            if kind in tables:
                made = place / f"features{number}.npy"
                _save_features(name, tables[kind], counts[kind], made)
        np.save(place / "labels.npy", as_labels(str(labels), read_table(labels, np.float64)))
        for field, path in ids.items():
            own = read_table(path, np.int64, columns=1)[:, 0]
            split_name = field.removesuffix("_idx")
            np.save(place / f"{field}.npy", as_ids(name, split_name, own, counts[target]))
        opened(place)  # so that data that breaks a rule is not kept

    def opened(place: Path) -> Dataset:
        # `parsed` compares checksums, and `_save_features` has checked the features.
        graph = Graph.open(place / "graph", verify=False)
        rows = {
            kind: open_npy(place / f"features{number}.npy")
            for number, kind in enumerate(counts)
            if kind in tables
        }
        data = Dataset.from_arrays(
            graph,
            rows,
            {target: open_npy(place / "labels.npy")},
            {split: open_npy(place / f"{split}_idx.npy") for split in SPLITS},
            name=name,
            num_classes=num_classes,
        )
        return as_chosen(data, features)

    settings = {"typed": True, "both_ways": both_ways, "split": splits.name}
    # Files of one name in several folders: their paths tell them apart.
    settings |= {str(p.relative_to(folder)): _state(p) for p in (*sources, *tables.values())}
    return opened(kept.parsed(folder / "jgs", [], settings, build))


def _state(path: Path) -> list[int]:
    return [path.stat().st_size, path.stat().st_mtime_ns]


def _node_counts(path: Path) -> dict[str, int]:
    lines = read_lines(path)
    rule = f"{path} must have a line of the names of node types and a line of their counts"
    if len(lines) != 2 or len(lines[0].split(",")) != len(lines[1].split(",")):
        raise InputError(rule, f"{len(lines)} lines, of one graph or unlike", _AGAIN)
    pairs = zip(lines[0].split(","), lines[1].split(","), strict=True)
    counts = {kind.strip(): count.strip() for kind, count in pairs}
    for kind, count in counts.items():
        if not count.isdecimal() or not 0 < int(count) <= MAX_ID:
            raise InputError(
                f"{path} must have at least one node of each type, and at most {MAX_ID}",
                f"{count!r} for {kind}",
                _AGAIN,
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
                _AGAIN,
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
            check_range(f"{path} must name nodes of {kind}", column, counts[kind], _AGAIN)
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


def _features_of(raw: Path, kind: str) -> Path | None:
    files = (raw / "node-feat" / kind / f"node-feat{end}" for end in (".csv.gz", ".npy"))
    return next((path for path in files if path.is_file()), None)


def _save_features(name: str, source: Path, num_nodes: int, path: Path) -> None:
    """Writes the features in `source` to `path`."""
    if source.suffix != ".npy":
        save_text_features(name, source, num_nodes, path)
        return
    rows = as_features(name, open_npy(source))
    require_array(f"{source}", rows, "[N, F], one row for each node", _AGAIN, N=num_nodes)
    check_finite(name, rows)
    np.save(path, rows)


def _target(raw: Path, splits: Path, counts: dict[str, int]) -> str:
    """The node type that has labels and a split."""
    labelled = [
        kind for kind in counts if (raw / "node-label" / kind / "node-label.csv.gz").is_file()
    ]
    found = [kind for kind in labelled if (splits / kind).is_dir()]
    says = splits / "nodetype-has-split.csv.gz"
    if says.is_file():
        lines = [[word.strip() for word in line.split(",")] for line in read_lines(says)]
        if len(lines) != 2 or len(lines[0]) != len(lines[1]):
            raise InputError(
                f"{says} must have a line of node types, and one of True and False",
                f"{len(lines)} lines",
                _AGAIN,
            )
        has = dict(zip(*lines, strict=True))
        found = [kind for kind in labelled if has.get(kind) == "True"]
    if len(found) != 1:
        raise InputError(
            f"one node type in {raw.parent} must have labels and a split",
            f"labels of {', '.join(labelled) or 'none'}, and both for {len(found)}",
            _AGAIN,
        )
    return found[0]
