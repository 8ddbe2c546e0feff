"""The random numbers that all draws are made of, tried by TestU01's SmallCrush."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

_SOURCE = Path(__file__).with_name("threefry_crush.cc")
_KERNELS = Path(__file__).parents[2] / "jgs" / "kernels"
# By Debian's names, and by its own.
_LIBRARIES = tuple(
    ("-ltestu01", f"-l{own}probdist", f"-l{own}mylib", "-lm") for own in ("testu01", "")
)


def crushed(log2: int, prefix: Path | None = None) -> str:
    """A line about `2**log2` numbers, or why there is none. `prefix` has TestU01's `include`
    and `lib`, if the compiler does not find them by itself."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        return "Not tried: there is no C++ compiler."
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "crush"
        command: list[Any] = [
            compiler,
            "-O3",
            "-march=native",
            "-I",
            _KERNELS,
            _SOURCE,
            "-o",
            program,
        ]
        if prefix is not None:
            command += ["-I", prefix / "include", "-L", prefix / "lib"]
        if not any(_built([*command, *libraries]) for libraries in _LIBRARIES):
            return "Not tried: TestU01 is missing (`libtestu01-0-dev`, of Debian's non-free)."
        said = subprocess.run(
            [program, str(log2)], capture_output=True, text=True, check=True
        ).stdout
    lines = [line[1:].split("\t") for line in said.splitlines() if line.startswith("@")]
    used = sum(int(line[1]) for line in lines)
    found = np.array([float(p) for line in lines for p in line[2:]])
    worst = min(found.min(), 1 - found.max())
    # Of so many p-values the nearest to an end is as near or nearer with this chance.
    chance = -np.expm1(found.size * np.log1p(-min(2 * worst, 1 - 1e-12)))
    even = stats.kstest(found, "uniform").pvalue
    ways = ", ".join(dict.fromkeys(line[0] for line in lines))
    return (
        f"{used:,} numbers of the kernels' Threefry in {len(lines)} runs of SmallCrush, by "
        f"turns of {ways} that follow each other: {found.size} p-values from {found.min():.2g} "
        f"to {found.max():.6g}. That one of so many is as far out as the farthest has the "
        f"chance {chance:.2g}. That they are spread evenly has p = {even:.2g} (Kolmogorov and "
        "Smirnov)."
    )


def _built(command: list[Any]) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0
