"""What one rank does for all ranks: its result or its error reaches every rank."""

from __future__ import annotations

from collections.abc import Callable
from socket import gethostname
from typing import Any, TypeVar

import jax
import numpy as np

from jgs.dist.communicators.comm import OWN, SAME, Communicator, all_gather_rows
from jgs.dist.communicators.rendezvous import names

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
