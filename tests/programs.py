"""What XLA compiles in tests: quickly, and once for all test processes and for the next run."""

import hashlib
import os
import time
from pathlib import Path

import jaxlib.version

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


def quickly(devices: int = 1) -> str:
    """XLA_FLAGS that compile in a third of the time; `JGS_TEST_OPTIMISED=1`: as users do."""
    flags = [f"--xla_force_host_platform_device_count={devices}"] if devices > 1 else []
    if os.environ.get("JGS_TEST_OPTIMISED", "0") == "0":
        flags.append("--xla_backend_optimization_level=0")
        # A flag that XLA does not know ends the process; 0.11.2 does not know this one.
        if jaxlib.version.__version_info__ < (0, 11):
            flags.append("--xla_cpu_use_fusion_emitters=false")
    return " ".join(flags)


# `jax.jit(f, compiler_options=OPTIMISED)`: where a kernel's bits are compared with those of
# floats in plain JAX, which an optimised program might round otherwise.
OPTIMISED = {"xla_backend_optimization_level": 3}
