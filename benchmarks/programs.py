"""The benchmarks' own C++ programs, compiled once into the cache."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path


def compiled(source: Path, cache: Path) -> Path | None:
    """The program compiled from a source file; None without a C++ compiler."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    program = cache / f"{source.stem}-{digest}"
    if not program.is_file():
        try:
            subprocess.run(["g++", "-O2", "-pthread", "-o", program, source], check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
    return program
