"""Files of METIS, `.graph` and `.metis`, as KaMinPar, DIMACS and others have them too.

`%` begins a line of comment. The first other line has the number of nodes and that of edges,
which counts each edge once, and perhaps `fmt` and the number of weights a node. `fmt` has up to
three digits: whether there are sizes of nodes, weights of nodes, and weights of edges. Then
comes a line for each node, which is blank where a node has no neighbour: its size, its weights,
and its neighbours, counted from 1, each with the weight of the edge. An edge is in the lines of
both of its ends.

The graph has both directions. `node_ids` has the numbers of the file, from 1. Sizes and weights
of nodes are the node columns `size`, and `weight` or `weight_0`, `weight_1` and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from jgs.arrays import check_range
from jgs.data.dataset import Plain
from jgs.data.text import line_chunks
from jgs.errors import InputError, refusing
from jgs.graph import Graph, NodeIds

_ENDINGS = (".graph", ".metis", ".graph.gz", ".metis.gz")


def recognises(path: Path) -> bool:
    """Whether it is a file with such a name whose first line has numbers."""
    if not path.name.endswith(_ENDINGS) or not path.is_file():
        return False
    head = next((line for line in _lines(path)), b"").split()
    return 2 <= len(head) <= 4 and all(word.isdigit() for word in head)


def read(path: Path) -> Plain:
    """The graph of the file. Raises `InputError`."""
    lines = _lines(path)
    head = next(lines, b"").split()
    with refusing(ValueError, f"{path} must begin with 2 to 4 numbers", "Fetch it again."):
        sizes = [int(word) for word in head]
        if not 2 <= len(sizes) <= 4 or min(sizes) < 0:
            raise ValueError(b" ".join(head).decode(errors="replace")[:60] or "nothing")
    count, num_edges = sizes[:2]
    fmt = head[2].decode().zfill(3) if len(head) > 2 else "000"
    if len(fmt) > 3 or set(fmt) - {"0", "1"}:
        raise InputError(f"fmt in {path} must be of 0 and 1, e.g. 011", fmt, "Correct it.")
    has_size, has_weights, has_edge_weights = (digit == "1" for digit in fmt)
    of_nodes = has_size + has_weights * (sizes[3] if len(sizes) > 3 else 1)
    step = 1 + has_edge_weights
    rule = f"every line of {path} must have whole numbers, as its first line says"
    nodes: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    degrees: list[int] = []
    for line in lines:
        if len(degrees) == count:
            if line.strip():
                raise _odd_count(path, count, "more")
            continue
        with refusing((ValueError, OverflowError), rule, "Correct it."):
            numbers = np.array(line.split(), np.int64)
            if numbers.size < of_nodes or (numbers.size - of_nodes) % step:
                raise ValueError(f"{numbers.size} numbers for node {len(degrees) + 1}")
        nodes.append(numbers[:of_nodes])
        parts.append(numbers[of_nodes:].reshape(-1, step))
        degrees.append(len(parts[-1]))
    if len(degrees) != count:
        raise _odd_count(path, count, str(len(degrees)))
    entries = np.concatenate([np.empty((0, step), np.int64), *parts])
    src = np.repeat(np.arange(count), degrees)
    dst = entries[:, 0] - 1
    check_range(
        f"the neighbours in {path} must be from 1 to {count}", dst, count, "Correct it."
    )
    weight = entries[:, 1] if has_edge_weights else None
    _check(path, src, dst, weight, num_edges)
    graph = Graph.from_edges(src, dst, count, weight)
    names = ["size"] * has_size
    kinds = of_nodes - has_size
    names += ["weight"] if kinds == 1 else [f"weight_{i}" for i in range(kinds)]
    if names:
        table = np.array(nodes).reshape(count, of_nodes)
        columns = {name: table[:, i] for i, name in enumerate(names)}
        graph = graph.with_node_columns(**columns)
    ids = NodeIds(np.arange(1, count + 1))
    return Plain(path.name.partition(".")[0], graph, node_ids=ids)


def _lines(path: Path) -> Iterator[bytes]:
    for text in line_chunks(path, 1 << 20):
        yield from (line for line in text.splitlines() if not line.lstrip().startswith(b"%"))


def _odd_count(path: Path, count: int, found: str) -> InputError:
    return InputError(
        f"{path} must have a line for each of {count} nodes", f"{found} lines", "Correct it."
    )


def _check(
    path: Path, src: np.ndarray, dst: np.ndarray, weight: np.ndarray | None, num_edges: int
) -> None:
    keys = [dst, src] if weight is None else [weight, dst, src]
    back = [src, dst] if weight is None else [weight, src, dst]
    there, mirrored = np.lexsort(keys), np.lexsort(back)
    same = np.ones(src.size, bool)
    for one, other in zip(keys, back, strict=True):
        same &= one[there] == other[mirrored]
    if not same.all():
        at = there[int(np.argmin(same))]
        raise InputError(
            f"{path} must list every edge at both of its ends, with the same weight",
            f"node {src[at] + 1} and {dst[at] + 1}, which differ",
            "Correct it.",
        )
    loops = int((src == dst).sum())
    if src.size + loops not in (2 * num_edges, 2 * num_edges + loops):
        raise InputError(
            f"the first line of {path} must count each edge once",
            f"{num_edges} for {src.size} neighbours",
            f"Write {(src.size + loops) // 2}, unless lines are missing.",
        )
