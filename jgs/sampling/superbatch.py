"""How many batches the loader samples in one call."""

from __future__ import annotations

import os

from jgs import kernels
from jgs.sampling.capacity import Capacity

_PER_THREAD = 4  # batches; beyond that no further gain was measured
_BYTES_PER_THREAD = 8 << 20


def choose_super_batch(capacity: Capacity) -> int:
    """A super-batch's size: up to 4 batches a thread, in at most 8 MiB a thread, or else 1.

    In a super-batch a thread samples whole batches and waits for no other thread (gSampler,
    SOSP 2023, super-batches), and what a call costs is shared. It takes at least a batch a
    thread to be of use. Measured by `python -m benchmarks.superbatch`.
    """
    size = 4 * (sum(capacity.edges) + sum(capacity.sources) + capacity.sources[-1])
    threads = max(2, num_threads())
    rounds = min(_PER_THREAD, _BYTES_PER_THREAD // max(1, size))
    return threads * rounds or 1


def num_threads() -> int:
    """The threads that a kernel may use."""
    return kernels.NUM_THREADS or _num_cores()


def _num_cores() -> int:
    """The threads of XLA's pool."""
    if (cores := os.environ.get("NPROC", "")).isdecimal() and int(cores) > 0:
        return int(cores)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
