"""What one rank does for all ranks: its result or its error reaches every rank. And what the
ranks have, put together: by `rows_of_all` on rank 0, by the others on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from socket import gethostname
from typing import Any, TypeVar

import jax
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.communicators.start import names
from jgs.graph import Graph
from jgs.graph.row_tables.table import as_table, opened_table
from jgs.graph.rows import neighbor_counts, row_of_edges, row_offsets

T = TypeVar("T")


class FailedElsewhere(Exception):
    """Another rank has failed and says why. This rank only ends."""

    told = True


def everywhere(comm: Communicator, function: Callable[[], T]) -> T:
    """What `function` returns on this process. All ranks call it; `function` may not wait for
    other ranks.

    If `function` raises on one rank, all ranks raise, once every process has tried. The first
    rank that failed raises its own error, the others `FailedElsewhere`; both have an attribute
    `told`. Where some ranks have not failed, the error has an attribute `place`: the ranks that
    have failed, and the host of the first.
    """
    result, error = None, None
    try:
        result = function()
    except Exception as raised:  # the others are told of it, then it is raised
        error = raised
    mine = [np.array([error is not None], np.int32)] * comm.num_local
    failed = np.flatnonzero(all_gather_rows(comm, mine)[:, 0]).tolist()
    if error is not None and failed[0] == comm.rank:
        error.told = True  # type: ignore[attr-defined]
        if len(failed) < comm.size:
            error.place = f"{names(failed)} on {gethostname()}"  # type: ignore[attr-defined]
        raise error
    if failed:
        raise FailedElsewhere(f"rank {failed[0]} failed")
    return result  # type: ignore[return-value]


def texts_of_all(comm: Communicator, text: str) -> list[str]:
    """Every rank's text, on every rank."""
    data = np.frombuffer(text.encode(), np.uint8)
    lengths = all_gather_rows(comm, [np.array([data.size], np.int32)] * comm.num_local)[:, 0]
    row = np.pad(data, (0, lengths.max() - data.size))
    rows = all_gather_rows(comm, [row] * comm.num_local)
    return [own[:n].tobytes().decode() for own, n in zip(rows, lengths, strict=True)]


def broadcast_text(comm: Communicator, function: Callable[[], str]) -> str:
    """The text that `function` returns on the process of rank 0. It is called there alone."""
    return texts_of_all(comm, everywhere(comm, function if comm.rank == 0 else str))[0]


def broadcast_arrays(comm: Communicator, arrays: Any) -> Any:
    """Rank 0's values of a pytree of arrays, as NumPy. Those of other ranks give the shapes
    alone."""
    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, arrays))
    if comm.size == 1 or not leaves:
        return jax.tree.unflatten(structure, leaves)
    flat = np.concatenate([np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in leaves])
    words = np.zeros(-(-flat.size // 4), np.int32)
    words.view(np.uint8)[: flat.size] = flat
    # The others add zeros to rank 0's bits, as integers: so the bits stay as they are.
    mine = [
        words if comm.rank + i == 0 else np.zeros_like(words) for i in range(comm.num_local)
    ]
    total = comm.program(comm.all_reduce, (OWN,), SAME)(comm.own(mine))
    flat, begin = np.asarray(total).view(np.uint8), 0
    found = []
    for leaf in leaves:
        found.append(flat[begin : begin + leaf.nbytes].view(leaf.dtype).reshape(leaf.shape))
        begin += leaf.nbytes
    return jax.tree.unflatten(structure, found)


def rows_of_all(
    comm: Communicator,
    places: Sequence[np.ndarray],
    rows: Sequence[np.ndarray],
    out: np.ndarray | None,
    memory: int = 64 << 20,
) -> None:
    """Sets `out[places] = rows` of every rank, on the process of rank 0. All ranks call it.

    Args:
      places: int32 `[n_i]` for each local rank: rows of `out`.
      rows: `[n_i, W]` for each local rank, of 4-byte numbers.
      out: `[n, W]` of the same dtype on the process of rank 0; elsewhere None.
      memory: about so many bytes are sent at a time.
    """
    if comm.size == 1:
        assert out is not None
        out[places[0]] = rows[0]
        return
    width = rows[0].shape[1]
    most = int(all_gather_rows(comm, [np.array([len(p)], np.int32) for p in places]).max())
    size = max(1, min(most, memory // (4 * (width + 1) * comm.size)))
    for begin in range(0, most, size):
        mine = []
        for place, own in zip(places, rows, strict=True):
            some = slice(begin, begin + size)
            sent = np.ascontiguousarray(own[some]).view(np.int32)
            table = np.full((size, 1 + width), -1, np.int32)
            table[: len(sent)] = np.column_stack([place[some], sent])
            mine.append(table)
        every = all_gather_rows(comm, mine).reshape(-1, 1 + width)
        if out is not None:
            real = every[every[:, 0] >= 0]
            out[real[:, 0]] = np.ascontiguousarray(real[:, 1:]).view(out.dtype)


def rows_on_all(
    comm: Communicator, rows: Sequence[np.ndarray], sizes: np.ndarray | None = None
) -> np.ndarray:
    """The arrays `[n_r]` of all ranks, one after the other, on every rank. All ranks call it.

    Args:
      rows: for each local rank its array, of one dtype.
      sizes: int `[R]`, every `n_r`. Where it is not given, a round more finds it.
    """
    if sizes is None:
        sizes = all_gather_rows(comm, [np.array([own.size], np.int64) for own in rows])[:, 0]
    every = all_gather_rows(comm, [np.pad(own, (0, sizes.max() - own.size)) for own in rows])
    return np.concatenate([row[:size] for row, size in zip(every, sizes, strict=True)])


def all_degrees(comm: Communicator, graphs: Sequence[Graph], offsets: np.ndarray) -> np.ndarray:
    """The in-degrees int32 `[N]`, on every rank. All ranks call it; it takes one round.

    Args:
      graphs: for each local rank a graph of `N` nodes with the in-edges of its own nodes.
      offsets: int `[R+1]`; rank `r` owns the nodes from `offsets[r]` to `offsets[r+1]`.
    """
    mine = [np.diff(indptr).astype(np.int32) for _, indptr in _own_rows(comm, graphs, offsets)]
    return rows_on_all(comm, mine, np.diff(offsets))


def all_out_degrees(
    comm: Communicator, graphs: Sequence[Graph], offsets: np.ndarray
) -> np.ndarray:
    """The out-degrees int64 `[N]`; otherwise as `all_degrees`."""
    mine = []
    for graph, indptr in _own_rows(comm, graphs, offsets):
        own = np.asarray(graph.indices)[indptr[0] : indptr[-1]]
        mine.append(neighbor_counts(own, graph.num_nodes).astype(np.int64))
    return np.asarray(comm.program(comm.all_reduce, (OWN,), SAME)(comm.own(mine)))


def all_edges(
    comm: Communicator, graphs: Sequence[Graph], offsets: np.ndarray, most: int
) -> np.ndarray | None:
    """int32 `[2, E]`, on every rank: the source and the target of every edge; None where there
    are more than `most`. The arguments are those of `all_degrees`, and all ranks call it."""
    mine = []
    for r, (graph, indptr) in enumerate(_own_rows(comm, graphs, offsets), comm.rank):
        bounds = indptr[[0, -1]].tolist()
        mine.append((graph, slice(*bounds), indptr - bounds[0], offsets[r]))
    counts = [np.array([indptr[-1]], np.int64) for _, _, indptr, _ in mine]
    sizes = all_gather_rows(comm, counts)[:, 0]
    if sizes.sum() > most:
        return None
    ends = (
        [np.asarray(graph.indices)[own] for graph, own, _, _ in mine],
        [row_of_edges(indptr) + np.int32(first) for _, _, indptr, first in mine],
    )
    return np.stack([rows_on_all(comm, each, sizes) for each in ends])


def _own_rows(
    comm: Communicator, graphs: Sequence[Graph], offsets: np.ndarray
) -> Iterator[tuple[Graph, np.ndarray]]:
    for r, graph in enumerate(graphs, comm.rank):
        yield graph, np.asarray(graph.indptr)[offsets[r] : offsets[r + 1] + 1]


def all_features(comm: Communicator, features: Sequence[Any]) -> Any:
    """The rows `[N, F]` of all nodes on every rank, dense or sparse as they are given. Samplers
    that read any node need them. All ranks call it, and each sends all its rows once.

    Args:
      features: for each local rank its own nodes' rows, as `FeatureExchange` takes them.
    """
    tables = [as_table(own) for own in features]
    own = [table.arrays() for table in tables]
    first = tables[0]
    found: dict[str, np.ndarray] = dict(own[0])  # what is not sent is equal on all ranks
    if first.by_entries:
        counts = rows_on_all(comm, [np.diff(arrays["indptr"]) for arrays in own])
        found["indptr"] = row_offsets(counts)
    for name in ("indices", "values") if first.by_entries else first.row_names:
        sent = rows_on_all(comm, [np.asarray(arrays[name]).reshape(-1) for arrays in own])
        found[name] = sent.reshape(-1, *own[0][name].shape[1:])
    return opened_table(found, first.shape[1])
