"""Keeps what XLA has compiled, for all test processes and for the next run."""

import hashlib
import os
import time
from pathlib import Path

DAYS = 7
# A process that is killed may leave half a program, and another process may read a program that
# is being written. JAX then compiles it and would warn.
HALF = "ignore:Error reading persistent compilation cache entry"


def kept(folder: Path) -> dict[str, str]:
    """Environment variables by which JAX keeps programs in `folder`; none if already set.

    JAX finds a program by its text, its options and JAX's version. The CPU is in the name of a
    folder within `folder`. Programs older than `DAYS` days are removed. The path of `folder` is
    in no program's options, where JAX would write the path of a GPU's own cache. So a checkout
    that was copied or moved finds its programs.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return {}
    info = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = sorted({line for line in info if line.startswith(("flags", "Features", "model"))})
    programs = folder / hashlib.sha256("\n".join(cpu).encode()).hexdigest()[:12]
    programs.mkdir(parents=True, exist_ok=True)
    for file in programs.iterdir():
        if file.stat().st_mtime < time.time() - DAYS * 86400:
            file.unlink(missing_ok=True)
    return {
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
        "PYTHONWARNINGS": ",".join(filter(None, [os.environ.get("PYTHONWARNINGS"), HALF])),
    }
