"""GraphSAGE's files (Hamilton, Ying and Leskovec, 2017): PPI and Reddit, as a prefix `ppi` or
`reddit` before the names of the files.

  `<prefix>-G.json`: the graph in NetworkX's node-link form, with the lists `nodes` and `links`
    (or `edges`). A node has an `id`, an integer or text, and `val` and `test`, true or false; a
    node without either is for training. A link has a `source` and a `target`, which are ids of
    nodes (NetworkX 2 and later) or positions in `nodes` (NetworkX 1).
  `<prefix>-id_map.json`: an object with the row of each node id, as text, in the features.
  `<prefix>-class_map.json`: the labels by node id, as in `jgs.data.formats.graphsaint`.
  `<prefix>-feats.npy`: the features, `[rows, F]`. Without it nodes have features of width 0.

All other files, such as `<prefix>-walks.txt`, are not read. What the two objects and the
features have of nodes that are not in `nodes` is not read either: the published Reddit has
features of 1,522 such nodes.

The nodes are in the order of their rows. Where this is not the order of their ids, `node_ids`
has the ids. Unless the graph says that it is `directed`, its edges go both ways, each once.
Self-loops are kept.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import check_range
from jgs.data.array_files import open_npy
from jgs.data.dataset import Dataset
from jgs.data.formats.graphsaint import check_files, labels_of, read_object, values_of
from jgs.data.text import only
from jgs.data.values import as_features, standardized
from jgs.errors import InputError
from jgs.graph import Graph, NodeIds
from jgs.graph.checks import integers

GRAPH = "-G.json"
_FILES = (GRAPH, "-id_map.json", "-class_map.json")
_AGAIN = "Fetch the file again, or correct it."


def recognises(path: Path) -> bool:
    """Whether it is the file of a graph, or a folder that has one, perhaps in `raw`."""
    return bool(_graphs(path))


def read(
    path: Path,
    *,
    symmetric: bool = False,
    ends: str | None = None,
    standardize: bool = False,
    normalize_features: bool = False,
) -> Dataset:
    """The data set of the file `<prefix>-G.json`, or of the only one in the folder.

    Args:
      symmetric: whether to add the reverse of every edge of a directed graph that lacks one,
        and keep each edge once.
      ends: what a link's source and target are, "ids" or "positions"; needed where they can be
        both and these differ.
      standardize: whether to shift and scale each column of the features to the mean 0 and the
        deviation 1 over the training nodes, as GraphSAGE does; this copies them.
      normalize_features: whether to make the rows of the features sum to 1.

    Raises `InputError`.
    """
    graph = only(path, _graphs(path))
    folder, name = graph.parent, graph.name.removesuffix(GRAPH)
    check_files(folder, [f"{name}{file}" for file in _FILES])
    path, id_map, class_map = (folder / f"{name}{file}" for file in _FILES)
    found = read_object(path, _pair_of_link)
    ids, roles = _nodes(path, found.get("nodes"))
    src, dst = _links(path, found.get("links", found.get("edges")), ids, ends)
    symmetric = symmetric or not found.get("directed")
    del found
    names = list(map(str, ids))
    rows = integers(
        f"the rows in {id_map}", values_of(id_map, read_object(id_map), names), np.int64
    )
    order = np.argsort(rows)
    if (twice := np.flatnonzero(np.diff(rows[order]) == 0)).size:
        raise InputError(
            f"every node of {path} must have an id and a row of its own",
            f"row {rows[order[twice[0]]]} twice",
            _AGAIN,
        )
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    train, val, test = (np.flatnonzero(roles[order] == role) for role in range(3))
    features = _features(folder / f"{name}-feats.npy", id_map, rows[order])
    data = Dataset.from_arrays(
        Graph.from_edges(place[src], place[dst], order.size, symmetric=symmetric),
        standardized(name, features, train) if standardize else features,
        labels_of(class_map, read_object(class_map), names)[order],
        {"train": train, "val": val, "test": test},
        name=name,
        normalize_features=normalize_features,
        label_kind="class",
    )
    ids = [ids[at] for at in order.tolist()]
    if ids == list(range(len(ids))):
        return data
    whole = all(type(each) is int and abs(each) < 2**63 for each in ids)
    shown = np.array(ids, np.int64) if whole else np.array(list(map(str, ids)), object)
    return replace(data, node_ids=NodeIds(shown))


def _graphs(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for inner in (path, path / "raw") for file in inner.glob(f"*{GRAPH}")]
    return [path] * path.name.endswith(GRAPH)


def _pair_of_link(found: dict) -> Any:
    """A link as a pair, which takes a third of the memory, and any other object as it is."""
    is_link = "source" in found and "target" in found and "val" not in found
    return (found["source"], found["target"]) if is_link else found


def _nodes(path: Path, nodes: Any) -> tuple[list[int | str], np.ndarray]:
    """The ids of the nodes; and their splits, int8: 0 train, 1 val, 2 test."""
    if type(nodes) is not list:
        raise InputError(f"{path} must have a list nodes", reprlib.repr(nodes), _AGAIN)
    for node in nodes:
        roles = (node.get("val"), node.get("test")) if type(node) is dict else ()
        sound = len(roles) == 2 and type(node.get("id")) in (int, str)
        if not sound or not all(type(role) is bool for role in roles) or all(roles):
            raise InputError(
                f"every node in {path} must have an id, and val and test, true or false and "
                "not both true",
                reprlib.repr(node),
                _AGAIN,
            )
    splits = (1 if node["val"] else 2 * node["test"] for node in nodes)
    return [node["id"] for node in nodes], np.fromiter(splits, np.int8, len(nodes))


def _links(path: Path, links: Any, ids: list[int | str], ends: str | None) -> np.ndarray:
    """Sources and targets of the links as positions in `ids`, int64 `[2, E]`."""
    if type(links) is not list or not all(type(link) is tuple for link in links):
        raise InputError(
            f"{path} must have a list links, each with a source and a target",
            reprlib.repr(links),
            _AGAIN,
        )
    given = list(chain.from_iterable(links))
    position = dict(zip(ids, range(len(ids)), strict=True))
    can_be: dict[str, Callable[[Any], bool]] = {
        "ids": lambda end: type(end) in (int, str) and end in position,
        "positions": lambda end: type(end) is int and 0 <= end < len(ids),
    }
    if ends not in (None, *can_be):
        raise InputError("the option ends must be ids or positions", repr(ends), "Correct it.")
    fit = [kind for kind in can_be if ends in (None, kind) and all(map(can_be[kind], given))]
    if not fit:
        tried = [check for kind, check in can_be.items() if ends in (None, kind)]
        wrong = (end for end in given if not any(check(end) for check in tried))
        raise InputError(
            f"the ends of links in {path} must be {ends or 'all ids or all positions'} of its "
            f"{len(ids)} nodes",
            next(map(reprlib.repr, wrong), "some of each"),
            "Name every node, or correct the link.",
        )
    if given and len(fit) == 2 and ids != list(range(len(ids))):
        raise InputError(
            f"the option ends must say whether links in {path} have ids or positions of nodes",
            "None, where both are possible",
            "Files of NetworkX 1 have positions, those of later versions ids.",
        )
    numbers = map(position.__getitem__, given) if fit[0] == "ids" else given
    return np.fromiter(numbers, np.int64, len(given)).reshape(-1, 2).T


def _features(path: Path, id_map: Path, rows: np.ndarray) -> np.ndarray:
    """The features in the ascending `rows` of a file, a memory map where these are all."""
    if not path.is_file():
        return np.empty((rows.size, 0), np.float32)
    features = as_features(str(path), open_npy(path))
    check_range(f"{id_map} must name rows of {path}", rows, len(features), _AGAIN)
    return features if rows.size == len(features) else features[rows]
