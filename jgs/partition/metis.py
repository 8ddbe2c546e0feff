"""METIS's k-way partitioner with several vertex weights, from the library inside `pymetis`.

Karypis & Kumar, "Multilevel algorithms for multi-constraint graph partitioning" (1998).
The function of pymetis passes one weight for each vertex. The extension module of pymetis also
exports METIS's C functions, which take several.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from typing import Any

import numpy as np

from jgs.command import output_elsewhere
from jgs.errors import InputError
from jgs.graph.adjacency import Adjacency
from jgs.graph.grouping import pointer

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
