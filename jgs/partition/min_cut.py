"""Min-cut partitioners of other libraries.

METIS's k-way partitioner with several vertex weights, from the library inside `pymetis`:
Karypis & Kumar, "Multilevel algorithms for multi-constraint graph partitioning" (1998). The
function of pymetis passes one weight for each vertex. The extension module of pymetis also
exports METIS's C functions, which take several.

KaMinPar's multilevel partitioner on compressed graphs, faster than METIS, in less memory:
Gottesbüren et al., "Deep multilevel graph partitioning" (2021); Salwasser et al., "Tera-scale
multilevel graph partitioning" (2025). It balances one weight for each node. It runs in a
process of its own, which reads the graph from a file. So its memory is freed at its end, Ctrl-C
ends it, and a system that kills it for its memory does not kill jgs.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jgs.command import output_elsewhere
from jgs.data.edge_stream import build_graph
from jgs.errors import InputError
from jgs.graph.grouping import pointer
from jgs.graph.rows import row_chunks
from jgs.partition import kaminpar_run
from jgs.partition.balance import CONSTRAINTS, Adjacency, in_neighbors, pieces

# The header of a ParHiP file with 32-bit ids, 64-bit offsets, and edges that all weigh 1.
_VERSION = 1 | 8 | 16 | 32
_HEADER = 24
_EDGES = CONSTRAINTS.index("edges")


def check_kaminpar() -> None:
    """Raises `InputError` unless KaMinPar is installed."""
    if importlib.util.find_spec("kaminpar") is None:
        raise InputError(
            "the method kaminpar needs the package kaminpar",
            "none here",
            "Run: pip install 'jgs[kaminpar]'. Or use --method ldg.",
        )


def kaminpar_partition(
    graph: Adjacency, weights: Any, num_parts: int, seed: int, threads: int, scratch: Path
) -> np.ndarray:
    """int32 `[N]`: the part of each node, with a small edge cut. Nodes without edges are in
    part 0. With 1 thread the same arguments give the same parts.

    Args:
      graph: directed or not. Repeated edges count once.
      weights: `NodeWeights`. A node's weight is its number of edges plus 1, and parts are
        balanced in it to 3 %. `jgs.partition.balance` balances the other constraints.
      num_parts: at least 2.
      scratch: an existing folder for the graph's file: 4 bytes for each direction of an edge
        and 12 for a node; if the graph is not symmetric, 16 more for an edge for a while.

    Raises `InputError`, and `OSError` where the disk is full.
    """
    check_kaminpar()
    with tempfile.TemporaryDirectory(prefix="jgs-kaminpar-", dir=scratch) as folder:
        file, found = Path(folder) / "graph.parhip", Path(folder) / "parts.npy"
        _write(file, graph, weights, Path(folder))
        # The file is started, not the module, as the process needs no JAX. With -P Python does
        # not look for packages beside the file, where kaminpar.py would hide KaMinPar.
        command = [sys.executable, "-P", kaminpar_run.__file__]
        arguments = map(str, (file, num_parts, seed, threads, found))
        done = subprocess.run(
            [*command, *arguments], stdout=2, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise InputError(
                "KaMinPar must be able to partition the graph in the memory there is",
                f"its process ended with {done.returncode}, and said {said[0]}",
                "Use --method ldg, which streams through the graph once.",
            )
        of_connected = np.load(found)
    parts: np.ndarray = np.zeros(graph.num_nodes, np.int32)
    parts[weights.connected] = of_connected
    return parts


def _write(path: Path, graph: Adjacency, weights: Any, workspace: Path) -> None:
    """Writes the nodes that have an edge, with new numbers, in ParHiP's binary format: a
    header, the place in the file where each row begins, neighbours, and weights of nodes."""
    connected = weights.connected
    new_id: np.ndarray = np.empty(graph.num_nodes, np.int32)
    num_nodes = 0
    for some in pieces(graph.num_nodes):
        ends = np.cumsum(connected[some])
        new_id[some] = num_nodes + ends - 1
        num_nodes += int(ends[-1])
    begin = _HEADER + 8 * (num_nodes + 1)
    with open(path, "wb") as file, open(path, "rb+") as offsets:
        file.seek(begin)
        offsets.seek(_HEADER)
        offsets.write(np.uint64(begin).tobytes())
        num_edges = 0
        for first, degree, neighbors in undirected_rows(graph, workspace):
            own = degree[connected[first : first + degree.size]]
            ends = begin + 4 * (num_edges + np.cumsum(own))
            offsets.write(ends.astype(np.uint64).data)
            file.write(new_id[neighbors].data)
            num_edges += neighbors.size
        for some in pieces(graph.num_nodes):
            own = weights[some][connected[some], _EDGES] + 1
            file.write(np.minimum(own, 2**32 - 1).astype(np.uint32).data)
        offsets.seek(0)
        offsets.write(struct.pack("<3Q", _VERSION, num_nodes, num_edges))


def undirected_rows(
    graph: Adjacency, workspace: Path
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields the rows of the undirected graph in order, some million edges at a time: the first
    row's number, the rows' degrees int64 `[n]`, and the neighbours int32, one row after the
    other, ascending and distinct in each, without the node itself.

    A symmetric graph is read twice where it lies. The edges of any other are sorted on the
    disk, in `workspace`, which takes 16 bytes an edge for a while.
    """
    if not is_symmetric(graph):
        made = build_graph(_edges(graph), graph.num_nodes, workspace, symmetric=True, what="it")
        graph = in_neighbors(made)
    for first, stop, keys in _keys(graph):
        keys = np.unique(keys)
        rows, neighbors = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
        no_loop = rows != neighbors
        degree = np.bincount(rows[no_loop] - first, minlength=stop - first)
        yield first, degree, neighbors[no_loop]


def is_symmetric(graph: Adjacency) -> bool:
    """Whether every edge is there as often as its reverse. The sum of a 64-bit hash over the
    edges is compared with that over their reverses, in one pass."""
    forth = back = np.uint64(0)
    with np.errstate(over="ignore"):
        for _, _, keys in _keys(graph):
            reverse = (keys >> 32) | (keys & 0xFFFFFFFF) << 32
            forth += _hash(keys).sum(dtype=np.uint64)
            back += _hash(reverse).sum(dtype=np.uint64)
    return bool(forth == back)


def _hash(keys: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = keys.astype(np.uint64)
    for shift, odd in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(odd)
    return mixed ^ mixed >> np.uint64(31)


def _keys(graph: Adjacency) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yields `first`, `stop`, and each edge of those rows as row << 32 | neighbour, int64."""
    for first, stop in row_chunks(graph.indptr):
        degree = np.diff(graph.indptr[first : stop + 1])
        rows = np.repeat(np.arange(first, stop), degree)
        yield first, stop, rows << 32 | graph.indices[graph.indptr[first] : graph.indptr[stop]]


def _edges(graph: Adjacency) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _, _, keys in _keys(graph):
        yield keys & 0xFFFFFFFF, keys >> 32


_OPTIONS = 40  # METIS_NOPTIONS
_SEED = 8  # METIS_OPTION_SEED: the seed's place among them
_OK, _OUT_OF_MEMORY = 1, -3
# The imbalance that METIS may leave; `jgs.partition.balance` evens out what exceeds it.
_TOLERANCE = 1.03
_LARGER = "Use --method ldg, which streams through the graph once."


def check_metis(num_edges: int) -> None:
    """Raises `InputError` unless METIS is installed and can count `num_edges` edges."""
    _library(num_edges)


def metis_partition(
    graph: Adjacency, weights: np.ndarray, num_parts: int, seed: int = 0
) -> np.ndarray:
    """int32 `[n]`: the part of each node, with a small edge cut. The same arguments give the
    same parts.

    Args:
      graph: symmetric, without repeated edges and self-loops. `edge_weight` is the cost of
        cutting an edge.
      weights: integers `[n, C]`, none negative: each node's weight in each constraint.
      num_parts: at least 2.

    METIS aims at parts within 3 % of even in every constraint and may miss that aim. What it
    prints goes to standard error. Ctrl-C takes effect at once; a thread then stays until METIS
    or the process ends. Raises `InputError`.
    """
    num_nodes, num_constraints = weights.shape
    library, dtype = _library(int(max(graph.indices.size, weights.sum(axis=0).max())))

    def array(values: Any) -> np.ndarray:
        return np.ascontiguousarray(values, dtype)

    options: np.ndarray = np.empty(_OPTIONS, dtype)
    library.METIS_SetDefaultOptions(pointer(options))
    options[_SEED] = seed + 1  # C's srand treats the seed 0 as 1
    parts: np.ndarray = np.zeros(num_nodes, dtype)
    arguments = (
        array([num_nodes]),
        array([num_constraints]),
        *(array(graph.indptr), array(graph.indices)),
        array(weights),
        None,  # vertex sizes, which only the objective "communication volume" needs
        None if graph.edge_weight is None else array(graph.edge_weight),
        array([num_parts]),
        None,  # parts of equal size
        np.full(num_constraints, _TOLERANCE, np.float32),
        options,
        array([0]),  # METIS writes the cut here
        parts,
    )
    status: list[int] = []

    def call() -> None:
        pointers = [None if a is None else pointer(a) for a in arguments]
        status.append(library.METIS_PartGraphKway(*pointers))

    # A daemon thread, so that Ctrl-C need not wait hours for METIS.
    thread = threading.Thread(target=call, daemon=True)
    with output_elsewhere():
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    if status[0] == _OUT_OF_MEMORY:
        raise InputError(
            "METIS needs memory for several copies of the graph",
            f"{num_nodes:,} nodes and {graph.indices.size:,} edges",
            _LARGER,
        )
    if status[0] != _OK:
        raise InputError(
            "METIS must be able to partition the graph", f"its error {status[0]}", _LARGER
        )
    return parts.astype(np.int32)


def _library(largest: int) -> tuple[ctypes.CDLL, type]:
    """METIS and its integer type, which must hold the number `largest`."""
    try:
        extension = importlib.import_module("pymetis._internal")
        library = ctypes.CDLL(extension.__file__)
        bits = extension._idx_type_width()
        assert library.METIS_PartGraphKway
        assert bits in (32, 64)
    except (ImportError, OSError, AttributeError, AssertionError) as error:
        raise InputError(
            "the method metis needs METIS, in the package pymetis",
            " ".join(str(error).split()) or "another version of it",
            "Run: pip install 'jgs[partition]'. Or use --method ldg.",
        ) from None
    if bits == 32 and largest >= 2**31:
        raise InputError(
            "the edges of a graph for this METIS, of 32-bit integers, must be fewer than 2**31",
            f"{largest:,}",
            "Install a pymetis whose METIS has 64-bit integers, or use --method ldg.",
        )
    return library, np.int32 if bits == 32 else np.int64
