"""The number of batches that a loader samples in one call."""

from __future__ import annotations

import os

from jgs import kernels
from jgs.sampling.capacity import Capacity

_PER_THREAD = 4  # batches; a larger number brought no further gain when it was measured
_BYTES_PER_THREAD = 8 << 20


def choose_super_batch(capacity: Capacity) -> int:
    """The size of a super-batch: up to 4 batches a thread in at most 8 MiB a thread, or else 1.

    In a super-batch each thread samples whole batches and waits for no other thread (gSampler,
    SOSP 2023, super-batches), and the batches share the overhead of the call. A super-batch is
    of use only with at least one batch a thread. Measured by `python -m benchmarks.superbatch`.
    """
    size = 4 * (sum(capacity.edges) + sum(capacity.sources) + capacity.sources[-1])
    threads = max(2, num_threads())
    rounds = min(_PER_THREAD, _BYTES_PER_THREAD // max(1, size))
    return threads * rounds or 1


def num_threads() -> int:
    """The number of threads that a kernel may use."""
    return kernels.NUM_THREADS or _num_cores()


def _num_cores() -> int:
    """The number of threads in XLA's pool."""
    if (cores := os.environ.get("NPROC", "")).isdecimal() and int(cores) > 0:
        return int(cores)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
