"""What partitioning takes of private memory, told before it begins.

Beside it the system maps the data set's files, as far as there is room; those pages can be
given back at any time and are not counted. The figures were measured, by
`python -m benchmarks.partition_large`, on RMAT graphs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from jgs.errors import InputError

log = logging.getLogger(__name__)


class _Bytes(NamedTuple):
    """Fields: bytes of every run, a node, a stored edge."""

    fixed: int
    node: float
    edge: float


# Writing the parts comes after partitioning, by any method.
_WRITING = _Bytes(450 << 20, 26, 0)
_METHODS = {
    "metis": _Bytes(450 << 20, 60, 170),
    "kaminpar": _Bytes(450 << 20, 60, 8),
    "ldg": _Bytes(450 << 20, 14, 0),
    "random": _Bytes(450 << 20, 14, 0),
    "assignment": _Bytes(450 << 20, 4, 0),
}


class Machine(NamedTuple):
    """Fields: bytes of memory that this process may have, and of these those that are free."""

    total: int
    free: int


def predicted(method: str, num_nodes: int, num_edges: int) -> int:
    """Bytes of private memory that partitioning, and writing the parts, take at most."""
    steps = (_WRITING, _METHODS[method])
    return max(int(s.fixed + s.node * num_nodes + s.edge * num_edges) for s in steps)


def predictions(num_nodes: int, num_edges: int) -> dict[str, int]:
    """What is `predicted` for each method of `python -m jgs.partition`."""
    return {
        name: predicted(name, num_nodes, num_edges) for name in _METHODS if name != "assignment"
    }


def machine() -> Machine | None:
    """This machine's memory, or its control group's; None where the system does not say."""
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
    """Limit and use of the control groups that this process is in, as far as there are any."""
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


def check_memory(method: str, num_nodes: int, num_edges: int) -> int:
    """What `predicted` says, once it is logged beside what this machine has.

    Raises `InputError` where it is more than the machine has at all; warns where it is more
    than is free.
    """
    needed, has = predicted(method, num_nodes, num_edges), machine()
    if has is None:
        log.info("%s will need about %s of memory", method, _gb(needed))
        return needed
    if needed > has.total:
        sizes = predictions(num_nodes, num_edges)
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
