"""The machine's random-read limit: no sampler can read a graph's edges faster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np

from benchmarks import programs

_SOURCE = Path(__file__).with_suffix(".cc")


def measure(folder: Path, cache: Path, threads: int, reads: int = 20_000_000) -> dict | None:
    """Nanoseconds a read, from the mapped `indices` and from a copy of them in huge pages.

    None without a C++ compiler.
    """
    program = programs.compiled(_SOURCE, cache)
    if program is None:
        return None
    indices = np.load(folder / "indices.npy", mmap_mode="r")
    arguments = [folder / "indices.npy", indices.offset, indices.size, threads, reads]
    done = subprocess.run(
        [program, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)
