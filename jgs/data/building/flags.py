"""`python -m jgs.data build`: the flags of `jgs.data.build`, and what the command does."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jgs import command
from jgs.data.building import plan
from jgs.data.building.build import build
from jgs.data.building.shards import BINARY
from jgs.errors import InputError, refusing
from jgs.files.npy import map_npy, plain_file

_log = logging.getLogger("jgs")


def parser() -> command.Parser:
    """The parser of the command line."""
    found = command.Parser(
        "python -m jgs.data build",
        "Build the data set of edges and features that may be larger than memory. After it was "
        "stopped or killed, the same command goes on where it stood.",
    )
    add = found.add_argument
    add("edges", nargs="*", metavar="EDGES", help="shards: .npy, .bin, .parquet, .csv, .csv.gz")
    add("--out", required=True, metavar="GRAPH", help="the folder that is written")
    add("--name", help="the name in messages (default: that of the folder)")
    add(
        "--memory", type=int, default=plan.MEMORY, metavar="MIB",
        help="private memory that may be used (default: %(default)s)",
    )  # fmt: skip
    edges = found.add_argument_group("edges")
    add = edges.add_argument
    add(
        "--nodes", nargs="+", metavar="N",
        help="the number of nodes, or TYPE=N for each node type (default: the rows of the "
        "features, or one more than the largest id)",
    )  # fmt: skip
    add(
        "--relation", nargs="+", action="append", metavar=("SRC NAME DST", "EDGES"),
        help="the shards of one relation: source type, name, target type, files",
    )  # fmt: skip
    add("--binary", choices=list(BINARY), help="the integers of .bin files")
    add("--src", metavar="COLUMN", help="the sources in tables (default: src)")
    add("--dst", metavar="COLUMN", help="the targets in tables (default: dst)")
    add("--weight", metavar="COLUMN", help="the weights (default: edge_weight, if there)")
    add("--time", metavar="COLUMN", help="the times (default: edge_time or time, if there)")
    add("--columns", nargs="*", metavar="COLUMN", help="the edge columns (default: all others)")
    add = partial(add, action="store_true")
    add("--symmetric", help="add the reverse of every edge, and keep each edge once")
    add("--both-ways", help="add the reverse of every relation")
    add("--edge-order", help="keep where each edge was among the given ones")
    nodes = found.add_argument_group("nodes")
    add = nodes.add_argument
    add("--features", nargs="+", metavar="PART", help="parts in order: .npy or tables")
    add(
        "--features-of", nargs="+", action="append", metavar=("TYPE", "PART"),
        help="the features of one node type",
    )  # fmt: skip
    add("--labels", metavar="FILE", help=".npy, [N] (-1: none) or [N, C] of 0 and 1")
    add("--labels-of", metavar="TYPE", help="the node type that labels and splits are of")
    add("--classes", type=int, metavar="C", help="(default: the largest label + 1)")
    for split in ("train", "val", "test"):
        add(f"--{split}", metavar="FILE", help=f".npy, the ids of the {split} split, or a mask")
    add("--node-time", metavar="FILE", help=".npy, [N]: the time from which each node exists")
    return found


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Builds what the command line says; returns the result. Raises `InputError`."""
    given = vars(parser().parse_args(argv))
    begun = time.monotonic()
    labels, splits = _labels(given)
    same = ("symmetric", "both_ways", "edge_order", "src", "dst", "weight", "time", "columns")
    options = {each: given[each] for each in (*same, "binary", "name") if each in given}
    times = given.get("node_time")
    data = build(
        given["out"],
        _edges(given),
        _nodes(given),
        features=_features(given),
        labels=labels,
        splits=splits,
        num_classes=given.get("classes"),
        node_time=None if times is None else _array(times),
        memory=given["memory"],
        show_progress=True,
        **options,
    )
    graph, took = data.graph, time.monotonic() - begun
    counts = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
    _log.info("built %s: %s, in %.0f s", given["out"], counts, took)
    return {
        "dataset": os.path.abspath(given["out"]),
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": getattr(data.features, "shape", [None, None])[1],
        "seconds": round(took, 1),
    }


def _edges(given: dict[str, Any]) -> Any:
    paths, relations = given.get("edges", []), given.get("relation", [])
    if bool(paths) == bool(relations):
        raise InputError(
            "edges must be named, either all by --relation or none",
            "both" if paths else "none",
            "See python -m jgs.data build --help.",
        )
    if paths:
        return paths
    found: dict[tuple[str, ...], list[str]] = {}
    for words in relations:
        if len(words) < 4:
            raise InputError(
                "--relation must have a source type, a name, a target type and files",
                " ".join(words),
                "Write --relation user buys item edges.parquet.",
            )
        found.setdefault(tuple(words[:3]), []).extend(words[3:])
    return found


def _nodes(given: dict[str, Any]) -> Any:
    words = given.get("nodes")
    if words is None:
        return None
    typed = all("=" in word for word in words)
    rule = "--nodes must be a number, or TYPE=NUMBER for each node type"
    with refusing(ValueError, rule, "Write --nodes 1000, or --nodes user=1000 item=500."):
        if typed:
            pairs = [word.rpartition("=") for word in words]
            return {name: int(number) for name, _, number in pairs}
        if len(words) > 1:
            raise ValueError(" ".join(words))
        return int(words[0])


def _features(given: dict[str, Any]) -> Any:
    whole, typed = given.get("features"), given.get("features_of", [])
    if whole is None and not typed:
        return None
    if whole is not None and typed:
        raise InputError(
            "features must be those of all nodes, or those of types",
            "both",
            "Leave out --features or --features-of.",
        )
    return {kind: parts for kind, *parts in typed} if typed else whole


def _labels(given: dict[str, Any]) -> tuple[Any, Any]:
    splits = {s: _array(given[s]) for s in ("train", "val", "test") if s in given}
    if "labels" not in given and not splits:
        return None, None
    if "labels" not in given or "train" not in splits:
        raise InputError(
            "--labels and --train must be given together",
            "one of the two",
            "Give both, or neither for a graph without labels.",
        )
    labels = _array(given["labels"])
    return ({given["labels_of"]: labels} if "labels_of" in given else labels), splits


def _array(path: str) -> np.ndarray:
    if not plain_file(path).exists():
        raise InputError(f"{path} must exist", "no such file", "Correct the path.")
    with refusing(
        (OSError, ValueError), f"{path} must be a whole .npy file", "Write it again."
    ):
        return np.array(map_npy(Path(path)))
