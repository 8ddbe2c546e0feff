"""The graph that everything is measured on: RMAT (Chakrabarti, Zhan and Faloutsos, 2004).

Every undirected edge falls into one of the four quadrants of the adjacency matrix, with the
probabilities `QUADRANTS`. Then it falls into a quadrant of that quadrant, and so on. Each level
decides one bit of both ids. Self-loops are dropped, every edge is stored in both directions,
and the ids are shuffled. Parallel edges stay, and each is a neighbour of its own. They give the
graph of 62 million edges its largest degree of about 389,000 (2 * 62e6 * 0.76**21).
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

QUADRANTS = (0.57, 0.19, 0.19, 0.05)
_CHUNK = 1 << 16  # edges drawn at once, so that their work arrays stay in the cache
_PART = 1 << 24  # edges handled at once after sorting, to bound the temporaries


class Size(NamedTuple):
    """Fields: the graph has 2**scale nodes; this many undirected edges are drawn."""

    scale: int
    num_undirected: int

    @property
    def name(self) -> str:
        return f"rmat-{self.scale}-{self.num_undirected}"


FULL = Size(21, 62_000_000)
QUICK = Size(18, 4_000_000)


def rmat(size: Size, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`indptr` int64 `[N+1]` and `indices` int32 `[E]`, with each row sorted.

    They are a function of the two arguments alone.
    """
    scale, num = size
    shuffle = np.random.Generator(np.random.Philox(key=[seed, 2**63]))
    new_id = shuffle.permutation(1 << scale).astype(np.uint64)
    keys = np.empty(2 * num, np.uint64)  # target << scale | source

    def draw(start: int) -> None:
        stop = min(start + _CHUNK, num)
        a, b = (new_id[ids] for ids in rmat_edges(scale, stop - start, [seed, start // _CHUNK]))
        keys[start:stop] = a << scale | b
        keys[num + start : num + stop] = b << scale | a

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(draw, range(0, num, _CHUNK)))
    keys = keys[~_is_loop(keys, scale)]
    keys.sort()
    first_of_row = np.arange((1 << scale) + 1, dtype=np.uint64) << scale
    indptr = np.searchsorted(keys, first_of_row).astype(np.int64)
    indices = np.empty(keys.size, np.int32)
    for at in range(0, keys.size, _PART):
        indices[at : at + _PART] = keys[at : at + _PART] & ((1 << scale) - 1)
    return indptr, indices


def rmat_edges(scale: int, num: int, key: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of `num` edges, before shuffling: 16 random bits a level and edge."""
    words = np.random.Philox(key=key).random_raw(-(-num * scale // 4))
    bits = words.view(np.uint16)[: num * scale].reshape(scale, num)
    a, ab, abc = (round(2**16 * p) for p in np.cumsum(QUADRANTS)[:3])
    row, column = np.zeros(num, np.uint32), np.zeros(num, np.uint32)
    for first in range(0, scale, 8):  # bytes first: a vector holds many of them
        levels = bits[first : first + 8]
        row_byte, column_byte = np.zeros(num, np.uint8), np.zeros(num, np.uint8)
        for level in levels:
            below = level >= ab
            right = (level >= a) ^ below ^ (level >= abc)
            for byte, bit in ((row_byte, below), (column_byte, right)):
                np.left_shift(byte, 1, out=byte)
                np.bitwise_or(byte, bit.view(np.uint8), out=byte)
        row = row << len(levels) | row_byte
        column = column << len(levels) | column_byte
    return row, column


def _is_loop(keys: np.ndarray, scale: int) -> np.ndarray:
    loop = np.empty(keys.size, bool)
    for at in range(0, keys.size, _PART):
        part = keys[at : at + _PART]
        loop[at : at + _PART] = (part >> scale) == (part & ((1 << scale) - 1))
    return loop


def edge_weights(num_edges: int, seed: int = 0) -> np.ndarray:
    """float32 `[E]`, uniform in (0, 1]."""
    bits = np.random.Generator(np.random.Philox(key=[seed, 2**63 + 1]))
    return 1 - bits.random(num_edges, dtype=np.float32)


def cached(cache: Path, size: Size) -> Path:
    """The folder of this graph with weights, written by `jgs.Graph.save` when missing."""
    folder = cache / size.name
    if not (folder / "manifest.json").is_file():
        import jgs  # the generator alone needs NumPy only

        indptr, indices = rmat(size)
        jgs.Graph(indptr, indices, edge_weights(indices.size)).save(folder)
    return folder


def describe(folder: Path) -> dict:
    """What the report says about the graph."""
    indptr = np.load(folder / "indptr.npy", mmap_mode="r")
    degree = np.diff(indptr)
    return {
        "nodes": degree.size,
        "edges": int(indptr[-1]),
        "largest_degree": int(degree.max()),
        "without_edges": float((degree == 0).mean()),
        "array_bytes": (degree.size + 1) * 8 + int(indptr[-1]) * 4,
    }


def connected_nodes(folder: Path) -> np.ndarray:
    """int32 `[n]`: the nodes of degree > 0, shuffled with a fixed seed."""
    degree = np.diff(np.load(folder / "indptr.npy", mmap_mode="r"))
    nodes = np.flatnonzero(degree).astype(np.int32)
    return np.random.default_rng(1).permutation(nodes)
