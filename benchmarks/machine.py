"""What the report says about the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe() -> dict:
    return {
        "cpu": _line("/proc/cpuinfo", "model name"),
        "mhz": _line("/proc/cpuinfo", "cpu MHz"),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
        "memory_gib": round(int(_line("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1),
        "huge_pages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "load_before": round(os.getloadavg()[0], 2),
        "versions": {name: version(name) for name in ("jgs", "jax", "jaxlib", "numpy")},
    }


def _line(path: str, start: str) -> str:
    """The value of the first line `start: value`; "0" if there is none."""
    values = (
        line.partition(":")[2].strip()
        for line in _text(path).splitlines()
        if line.startswith(start)
    )
    return next(values, "0")


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
