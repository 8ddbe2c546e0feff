"""The graphs of the battery, as folders of arrays that every adapter reads.

A folder has `indptr` int64 `[N+1]` and `indices` int32 `[E]`, the sources of the edges into
each node, and perhaps `weight` float32, `time` int64 or `kind` int16 `[E]`, the number of each
edge's relation. Rows are sorted by relation, then time, then source. The relations are r0, r1
and so on, among nodes of one type."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SPREAD = 10.0 ** (np.arange(8) * 9 / 7)  # weights over nine orders of magnitude
HUB_WEIGHTS = 10.0 ** np.arange(5, -5, -1)
HUB_NUMBERS = np.minimum(10 ** np.arange(10), 300_000)  # edges of each of these weights
HALF_LIFE, NOW = 10, 100
AGES = np.array([45, 30, 21, 21, 13, 8, 3, 1])  # of the edges of each row of "ages"
LAYER = np.array([3, 1, 4, 1, 2, 6])  # of the seeds of "layer", how many have the i-th source
NEAR = ((0, 1), (0, 2), (1, 2), (1, 3), (2, 4), (3, 4), (3, 5), (0, 5))  # edges of "near"


class Saved(NamedTuple):
    """A graph in a folder, with its arrays."""

    folder: Path
    arrays: dict[str, np.ndarray]

    @property
    def num_nodes(self) -> int:
        return self.arrays["indptr"].size - 1

    def targets(self, edges: Any) -> np.ndarray:
        return np.searchsorted(self.arrays["indptr"], edges, side="right") - 1

    def sources(self, edges: Any) -> np.ndarray:
        return self.arrays["indices"][edges].astype(np.int64)

    def positions(self, edges: Any) -> np.ndarray:
        """Where the edges stand in their rows."""
        return edges - self.arrays["indptr"][self.targets(edges)]


class Graphs:
    """Makes the graphs by name in a folder. `copies` is the number of equal rows of those that
    have some."""

    def __init__(self, folder: Path, copies: int):
        self.folder, self.copies = folder, copies
        self.of = cache(self._of)

    def _of(self, name: str) -> Saved:
        folder = self.folder / name
        folder.mkdir(parents=True)
        arrays = MAKERS[name](self.copies)
        for array, values in arrays.items():
            np.save(folder / f"{array}.npy", values)
        return Saved(folder, arrays)


def _rows(copies: int, degree: int, sources: int = 0, **columns: Any) -> dict[str, np.ndarray]:
    """The targets 0 to `copies - 1`, each with the same `degree` sources, or as many edges from
    `sources` of them; columns are repeated."""
    sources = sources or degree
    indptr = np.minimum(np.arange(copies + sources + 1), copies) * degree
    arrays = {"indptr": indptr, "indices": copies + np.arange(degree) % sources}
    arrays["indices"] = np.tile(arrays["indices"], copies).astype(np.int32)
    types = {"weight": np.float32, "time": np.int64}
    return arrays | {n: np.tile(v, copies).astype(types[n]) for n, v in columns.items()}


def _tree(copies: int) -> dict[str, np.ndarray]:
    """Targets with six sources each, which have six sources each."""
    numbers = copies * 6 ** np.arange(3)
    degree = np.repeat([6, 6, 0], numbers)
    return {
        "indptr": np.r_[0, np.cumsum(degree)],
        "indices": (copies + np.arange(degree.sum())).astype(np.int32),
    }


def _random(copies: int, *columns: str) -> dict[str, np.ndarray]:
    """A graph of hubs and small nodes with every edge both ways, without parallel edges."""
    rng, num_nodes = np.random.default_rng(1), min(2000, copies)
    ends = (rng.random((2, 10 * num_nodes)) ** 2 * num_nodes).astype(int)
    ends = ends[:, ends[0] != ends[1]]
    pairs = np.unique(np.r_[ends.T, ends.T[:, ::-1]], axis=0)
    source, target = pairs.T
    made: dict[str, np.ndarray] = {}
    if "kind" in columns:
        made["kind"] = rng.integers(0, 3, source.size).astype(np.int16)
    if "time" in columns:
        made["time"] = rng.integers(0, NOW, source.size)
    if "weight" in columns:
        made["weight"] = rng.random(source.size, np.float32) + np.float32(0.1)
    by = [source, *(made[n] for n in ("time", "kind") if n in made), target]
    order = np.lexsort(by)
    degree = np.bincount(target, minlength=num_nodes)
    found = {"indptr": np.r_[0, np.cumsum(degree)], "indices": source[order].astype(np.int32)}
    return found | {name: values[order] for name, values in made.items()}


def renumbering(num_nodes: int) -> np.ndarray:
    """The new ids of the nodes of "plain" in "renumbered"."""
    return np.random.default_rng(2).permutation(num_nodes)


def _renumbered(copies: int) -> dict[str, np.ndarray]:
    plain = _random(copies, "weight")
    new = renumbering(plain["indptr"].size - 1)
    target = new[np.repeat(np.arange(new.size), np.diff(plain["indptr"]))]
    source = new[plain["indices"]]
    order = np.lexsort([source, target])
    degree = np.bincount(target, minlength=new.size)
    return {
        "indptr": np.r_[0, np.cumsum(degree)],
        "indices": source[order].astype(np.int32),
        "weight": plain["weight"][order],
    }


def _spread_hub(_: int) -> dict[str, np.ndarray]:
    weight = np.random.default_rng(3).permutation(np.repeat(HUB_WEIGHTS, HUB_NUMBERS))
    return _rows(1, weight.size, 1000, weight=weight)


def _layer(_: int) -> dict[str, np.ndarray]:
    """Seeds 0 to 5 of unlike degree; the sources are joined to unlike numbers of them."""
    joined = np.arange(6)[:, None] < LAYER  # [seed, source]
    degree = np.r_[joined.sum(axis=1), np.zeros(LAYER.size, int)]
    sources = 6 + np.nonzero(joined)[1]
    return {"indptr": np.r_[0, np.cumsum(degree)], "indices": sources.astype(np.int32)}


def _near(_: int) -> dict[str, np.ndarray]:
    pairs = np.array([*NEAR, *(pair[::-1] for pair in NEAR)])
    pairs = pairs[np.lexsort(pairs.T)]
    degree = np.bincount(pairs[:, 1], minlength=6)
    return {"indptr": np.r_[0, np.cumsum(degree)], "indices": pairs[:, 0].astype(np.int32)}


def _full(_: int) -> dict[str, np.ndarray]:
    """Every node is joined to all nodes, itself among them."""
    num = 20
    return {
        "indptr": np.arange(num + 1) * num,
        "indices": np.tile(np.arange(num, dtype=np.int32), num),
    }


MAKERS: dict[str, Callable[[int], dict[str, np.ndarray]]] = {
    "six": lambda copies: _rows(copies, 6),
    "ten": lambda copies: _rows(2, 10),
    "tree": _tree,
    "hub": lambda copies: _rows(50, 40_000),
    "vast hub": lambda copies: _rows(1, 5_000_000, 1000),
    "spread": lambda copies: _rows(copies, 8, weight=SPREAD),
    "spread hub": _spread_hub,
    "ages": lambda copies: _rows(copies, 8, time=NOW - AGES),
    "plain": lambda copies: _random(copies, "weight"),
    "timed": lambda copies: _random(copies, "time"),
    "typed": lambda copies: _random(copies, "kind"),
    "typed and timed": lambda copies: _random(copies, "kind", "time"),
    "renumbered": _renumbered,
    "layer": _layer,
    "near": _near,
    "full": _full,
    "no weight": lambda copies: _rows(3, 4, weight=np.zeros(4)),
    "below zero": lambda copies: _rows(3, 4, weight=np.array([1.0, -1.0, 2.0, 1.0])),
}
