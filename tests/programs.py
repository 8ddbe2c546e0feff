"""Keeps what XLA has compiled, for all processes of the tests and for the next run."""

import hashlib
import os
import time
from pathlib import Path

DAYS = 7
# A process that was killed may have left half a program, and another may read one that is being
# written: JAX then compiles it, and would warn.
HALF = "ignore:Error reading persistent compilation cache entry"


def kept(folder: Path) -> dict[str, str]:
    """Variables of the environment by which JAX keeps them in `folder`; none if it has them.

    JAX finds a program by its text, its options and JAX's version; the CPU is in the name of a
    folder within `folder`. What was kept `DAYS` days ago is removed. The place of `folder` is
    in no program's options, where JAX writes that of a GPU's own cache: a checkout that was
    copied or moved finds its programs.
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
