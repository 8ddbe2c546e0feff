"""What outputs are asked for: ids of nodes, of a type, where they count from 0, or of the whole
graph; pairs; their cutoffs; and files of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jgs.arrays import described
from jgs.data.column_values import moments
from jgs.data.values import check_pairs, nodes_of
from jgs.errors import InputError, refusing
from jgs.files.npy import map_npy, plain_file
from jgs.graph import NodeIds, Schema
from jgs.sampling.checks import check_seed_ids
from jgs.train.evaluation.edge_pieces import check_nodes


def ids_of(
    schema: Schema | None, num_nodes: int, nodes: Any = None, node_type: str | None = None
) -> np.ndarray:
    """int32 `[n]`: the ids in the graph of `nodes`, int `[n]`, by default all. With a node type
    they are nodes of this type, and count from 0 in it. Raises `InputError`."""
    if node_type is None:
        if nodes is None:
            return np.arange(num_nodes, dtype=np.int32)
        return check_nodes(nodes, 0, num_nodes)
    if schema is None:
        raise InputError(
            "a node type must be for a graph with node types",
            f"{node_type!r} for a graph without",
            "Leave it out.",
        )
    every = nodes_of(schema, node_type)
    return every if nodes is None else every[check_nodes(nodes, 0, every.size)]


def named(schema: Schema, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The names of the types of nodes `ids`, text `[n]`, and their ids in these, int32
    `[n]`."""
    kind, place = schema.type_and_place(ids)
    names = np.array([name for name, _ in schema.node_types] or [""])
    return names[np.asarray(kind)], np.asarray(place, np.int32)


def pairs_of(
    schema: Schema | None, num_nodes: int, pairs: Any, relation: int | None
) -> np.ndarray:
    """int32 `[n, 2]`: `pairs`, at least one. Raises `InputError` unless they are nodes of the
    relation's source and target types."""
    ids = check_seed_ids(pairs, num_nodes, pairs=True)
    if schema is None or relation is None:
        return ids
    check_pairs(schema, ids, relation)
    return ids


def cutoffs(data: Any, ids: np.ndarray, time: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """The `ids` `[num, ...]` of nodes as they are in `data`, and int64 `[num]`: the cutoff of
    each, from an array `[num]` of ints or dates, or one for all. Dates are counted in the
    data's unit. Raises `InputError`, which says `what` is asked for."""
    return data.in_graph(ids), moments(what, time, len(ids), data.time_unit)


def read_ids(
    path: Path,
    num_nodes: int,
    width: int = 1,
    names: NodeIds | None = None,
    timed: bool = False,
) -> tuple[np.ndarray, Any]:
    """int32 `[n, width]`: the nodes whose ids are in a text file with `width` ids a line, or in
    an `.npy` file of this shape, `[n]` for a width of 1. With `names` they are the data set's
    own ids; of text a line is one id, or several words with a tab or spaces between them.

    With `timed` a line, or a row, has a time after its ids; returns these `[n]` too: int64, or
    text where one is no whole number; otherwise None. Raises `InputError`.
    """
    text = names is not None and names.values.dtype == object
    what = ("node ids", "pairs of node ids")[width - 1]
    if timed:
        what = ("a node id", "two node ids")[width - 1] + " and a time, without --at,"
    which = f"from 0 to {num_nodes - 1}" if names is None else "of the data set"
    rule = f"{path} must hold {what} {which}, one a line, or as .npy"
    read = _read(path, rule, width + timed, 0 if text else width, text)
    ids, times = read[:, :width], read[:, width:].reshape(-1)
    ids = ids if text else ids.astype(np.int64)
    if names is not None:
        found = names.nodes(ids.reshape(-1), f"every id in {path}").reshape(ids.shape)
    elif bad := np.argwhere((ids < 0) | (ids >= num_nodes))[:1].tolist():
        row, column = bad[0]
        raise InputError(rule, f"{ids[row, column]} (number {row + 1})", "Correct the file.")
    else:
        found = ids.astype(np.int32)
    if not timed:
        return found, None
    whole = times.dtype != object or all(map(_is_whole, times))
    return found, times.astype(np.int64) if whole else times


def _read(path: Path, rule: str, width: int, numbers: int, text: bool) -> np.ndarray:
    """The numbers or words `[n, width]` in a file; the first `numbers` of a line are whole."""
    with refusing((OSError, ValueError), rule, "Correct the file."):
        if path.suffix != ".npy":
            return _of_text(plain_file(path), rule, width, numbers, text).reshape(-1, width)
        ids = map_npy(path)
        kinds, given = ("U", "text") if text else ("iu", "ints")
        if ids.dtype.kind not in kinds or ids.shape[1:] != (width,) * (width > 1):
            shape = "[n]" if width == 1 else f"[n, {width}]"
            raise InputError(rule, described(ids), f"Give {given} {shape}.")
        return (ids.astype(object) if text else ids).reshape(-1, width)


def _of_text(path: Path, rule: str, width: int, numbers: int, text: bool) -> np.ndarray:
    words: list[str] = []
    with open(path, encoding="utf-8-sig") as file:  # which drops a byte order mark
        for number, line in enumerate(file, 1):
            line = line.removesuffix("\n")
            if not line.strip():
                continue
            found = [line] if text and width == 1 else line.split()
            if text and "\t" in line and width > 1:
                found = line.split("\t")
            if len(found) != width or not all(map(_is_whole, found[:numbers])):
                raise InputError(rule, f"{line[:40]!r} in line {number}", "Correct the file.")
            words += found
    return np.array(words, object)


def _is_whole(word: str) -> bool:
    digits = word.removeprefix("-")
    good = digits.isascii() and digits.isdigit() and len(word) < 21
    return good and -1 << 63 <= int(word) < 1 << 63
