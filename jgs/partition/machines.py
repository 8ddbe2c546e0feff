"""The second level of a split: which parts' ranks share a machine.

DistDGL splits a graph over machines, and what a machine has over its trainers (Zheng et al.
2020, section III-E). Here the parts are made first, one for each rank. Then those that share
the most edges become neighbours: machine `m` has the parts from `m T` to `(m + 1) T - 1`. So
ranks that are started in order, `T` on each machine, send most of what they exchange within a
machine.
"""

from __future__ import annotations

import numpy as np

from jgs.errors import InputError
from jgs.graph.adjacency import Adjacency
from jgs.graph.rows import row_chunks


def check_machines(num_parts: int, ranks_per_machine: int) -> None:
    """Raises `InputError` unless the parts can be divided evenly over machines."""
    if type(ranks_per_machine) is not int or ranks_per_machine < 1:
        raise InputError(
            "the ranks of a machine must be a positive int",
            repr(ranks_per_machine),
            "Give the number of ranks that each machine runs.",
        )
    if num_parts % ranks_per_machine:
        raise InputError(
            "the number of parts must be a multiple of the ranks of a machine",
            f"{num_parts} parts, {ranks_per_machine} ranks a machine",
            "Give every machine equally many parts.",
        )


def edges_between(graph: Adjacency, parts: np.ndarray, num_parts: int) -> np.ndarray:
    """int64 `[P, P]`: the number of edges into each part (row) from each part (column)."""
    counts = np.zeros(num_parts * num_parts, np.int64)
    for first, stop in row_chunks(graph.indptr):
        begin, end = graph.indptr[first], graph.indptr[stop]
        degree = np.diff(graph.indptr[first : stop + 1])
        target = np.repeat(parts[first:stop].astype(np.int64), degree)
        pair = target * num_parts + parts[graph.indices[begin:end]]
        counts += np.bincount(pair, minlength=counts.size)
    return counts.reshape(num_parts, num_parts)


def machine_order(between: np.ndarray, ranks_per_machine: int) -> np.ndarray:
    """int64 `[P]`: the new number of each part, with which few of the edges `between` `[P, P]`,
    as `edges_between` returns them, are between machines. Each has `ranks_per_machine` parts.

    A machine begins with the part that has the most edges to parts without a machine. It takes
    the part that has the most edges to it, until it is full. Then parts of different machines
    change places as long as that saves edges. Machines are numbered by their least part. Where
    all this saves none, parts keep their numbers.
    """
    num_parts, size = len(between), ranks_per_machine
    if size in (1, num_parts):
        return np.arange(num_parts)
    affinity = (between + between.T).astype(np.int64)
    np.fill_diagonal(affinity, 0)
    machine = np.full(num_parts, -1)
    for number in range(num_parts // size):
        near = affinity[:, machine < 0].sum(axis=1)
        for _ in range(size):
            chosen = np.argmax(np.where(machine < 0, near, -1))
            machine[chosen] = number
            near = affinity[:, machine == number].sum(axis=1)
    _swap(affinity, machine)
    given = np.arange(num_parts) // size
    if affinity[given[:, None] == given].sum() >= affinity[machine[:, None] == machine].sum():
        return np.arange(num_parts)
    members = sorted(np.flatnonzero(machine == m).tolist() for m in range(num_parts // size))
    order = np.empty(num_parts, np.int64)
    order[np.concatenate(members)] = np.arange(num_parts)
    return order


def _swap(affinity: np.ndarray, machine: np.ndarray) -> None:
    """Exchanges the machines of two parts, those first that save the most, until none does.
    Changes `machine` `[P]`."""
    every = np.arange(len(machine))
    while True:
        to = affinity @ (machine[:, None] == np.arange(machine.max() + 1))  # [P, M]
        moved = to[:, machine] - to[every, machine][:, None]  # what a gains in b's machine
        saved = moved + moved.T - 2 * affinity
        saved[machine[:, None] == machine] = 0
        a, b = np.unravel_index(np.argmax(saved), saved.shape)
        if saved[a, b] <= 0:
            return
        machine[[a, b]] = machine[[b, a]]
