"""glibc's allocator, told to keep the memory that a program frees."""

from __future__ import annotations

import ctypes
import sys

# glibc's <malloc.h>, Linux's <sys/mman.h>
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8
_MADV_HUGEPAGE, _HUGE_PAGE, _HUGE_BYTES = 14, 2 << 20, 1 << 30


def keep_freed_memory() -> bool:
    """Lets the process keep freed memory for its next allocations; returns whether it could.

    glibc gives large blocks back to the system when they are freed, and XLA:CPU allocates its
    temporaries anew at every call. Without this function the system spends up to half of a CPU
    training step on handing out zeroed pages. `python -m jgs.train` calls it at its start
    (`--no-keep-memory` leaves it out). Other programs call it once, before their first large
    allocation. Importing jgs changes nothing.

    The function sets, by `mallopt`: one arena; no separate `mmap` for large blocks; growth by
    256 MiB at a time; no trimming below 2 GiB. It asks for huge pages in the next GiB of
    addresses. The process then holds its peak memory until it ends. Without glibc the function
    changes nothing and returns False.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")):
        return False
    settings = {_ARENA_MAX: 1, _MMAP_MAX: 0, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 1 << 28}
    if not all(libc.mallopt(name, value) == 1 for name, value in settings.items()):
        return False
    libc.malloc.restype = ctypes.c_void_p
    # Small pages serve where the system grants no such block or has no huge pages.
    if block := libc.malloc(ctypes.c_size_t(_HUGE_BYTES)):
        first = -(-block // _HUGE_PAGE) * _HUGE_PAGE
        size = ctypes.c_size_t(block + _HUGE_BYTES - first)
        libc.madvise(ctypes.c_void_p(first), size, _MADV_HUGEPAGE)
        libc.free(ctypes.c_void_p(block))
    return True
