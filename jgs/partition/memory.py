"""The private memory that partitioning takes, estimated before it begins.

The system also maps the data set's files, as far as there is room. It can take those pages back
at any time, so they are not counted. The figures were measured by
`python -m benchmarks.partition_large` on RMAT graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jgs.errors import InputError

log = logging.getLogger(__name__)


# The process, and the temporaries of passes over edges and features.
_FIXED = 300 << 20
# Bytes for each of the things that a `Graph` counts.
_METHODS: dict[str, dict[str, float]] = {
    "metis": {"nodes": 12, "connected": 50, "edges": 170},
    "kaminpar": {"nodes": 8, "connected": 70, "edges": 12},
    "ldg": {"nodes": 13.5},
    "random": {"nodes": 13.5},
    "assignment": {"nodes": 8},
}
# Writing the parts comes after partitioning, by any method.
_WRITING = {"nodes": 20.5, "in_splits": 6.5}


class Graph(NamedTuple):
    """The numbers of a graph on which the memory depends: of its nodes, of its edges in both
    directions, of nodes that have an edge, and of nodes that are in a split."""

    nodes: int
    edges: int
    connected: int
    in_splits: int = 0


class Machine(NamedTuple):
    """The bytes of memory that this process may use, and how many of them are free."""

    total: int
    free: int


def predicted(method: str, graph: Graph) -> int:
    """Bytes of private memory that partitioning and writing the parts take at most."""
    counts = graph._asdict()
    steps = _WRITING, _METHODS[method]
    return _FIXED + max(
        int(sum(size * counts[what] for what, size in step.items())) for step in steps
    )


def predictions(graph: Graph) -> dict[str, int]:
    """The `predicted` bytes for each method of `python -m jgs.partition`."""
    return {name: predicted(name, graph) for name in _METHODS if name != "assignment"}


def machine() -> Machine | None:
    """The memory of this machine, or of the process's control group if that is less; None where
    the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kib = {
            name: int(rest.split()[0]) for name, _, rest in (s.partition(":") for s in lines)
        }
        total, free = kib["MemTotal"] << 10, kib["MemAvailable"] << 10
    except (OSError, ValueError, KeyError, IndexError):
        return None
    for limit, used in _groups():
        total, free = min(total, limit), min(free, limit - used)
    return Machine(total, max(0, free))


def _groups() -> Iterable[tuple[int, int]]:
    """The limit and the use, in bytes, of each control group that has a limit."""
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
        (path,) = (e.split("::", 1)[1] for e in entries if e.startswith("0::"))
        group = Path("/sys/fs/cgroup") / path.strip("/")
        for folder in (group, *group.parents):
            limit, used = folder / "memory.max", folder / "memory.current"
            if limit.is_file() and (text := limit.read_text().strip()) != "max":
                yield int(text), int(used.read_text())
    except (OSError, ValueError):
        return


def check_memory(method: str, graph: Graph) -> int:
    """The `predicted` bytes. They are logged beside the machine's memory.

    Raises `InputError` where they exceed the machine's memory, and warns where they exceed the
    free memory.
    """
    needed, has = predicted(method, graph), machine()
    if has is None:
        log.info("%s will need about %s of memory", method, _gb(needed))
        return needed
    if needed > has.total:
        sizes = predictions(graph)
        fitting = [name for name, size in sizes.items() if size <= has.total]
        raise InputError(
            "the partitioning must fit into this machine's memory",
            f"{method} will need about {_gb(needed)}, this machine has {_gb(has.total)}",
            f"Use --method {' or '.join(fitting)}." if fitting else "Use a larger machine.",
        )
    level = logging.WARNING if needed > has.free else logging.INFO
    log.log(
        level,
        "%s will need about %s of memory; of this machine's %s are %s free",
        *(method, _gb(needed), _gb(has.total), _gb(has.free)),
    )
    return needed


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
