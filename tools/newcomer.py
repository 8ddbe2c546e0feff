"""Walk a newcomer's path: `VENV/bin/python tools/newcomer.py [WHEEL]`, as `make newcomer` does.

The wheel is by default the newest in `build/wheels`; `tools/wheel.py` builds one if there is
none. In an empty home it is installed in a new environment, with its extra `viz`. Then `jgs
train` and `jgs predict --embed` run, and Python opens the run and draws a neighbourhood. Each
step must succeed. The steps of jgs must say nothing on standard error that is not meant. Prints
the seconds of each step.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import wheel

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "newcomer"
# What the commands say when all is well: the capacity of a batch, and the result of each epoch.
MEANT = re.compile(r"capacity planned |  edges \(|each epoch: |epoch \d+/\d+  loss ")
OPENED = """
import jgs

run = jgs.open_run("run")
print(run)
print(run.predict([0, 1, 2]))
jgs.viz.neighborhood(run.explain(0)).figure.savefig("neighborhood.png")
"""


def step(name: str, *command: object, environment: dict[str, str], quiet: bool = True) -> str:
    """Runs a command in the home; returns its output.

    With `quiet`, only lines that match `MEANT` may be on standard error. Otherwise all its
    lines are shown.
    """
    began = time.perf_counter()
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=environment, cwd=environment["HOME"], capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    lines = [line for line in done.stderr.splitlines() if line and not MEANT.match(line)]
    if done.returncode or (quiet and lines):
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        sys.exit(f"tools/newcomer.py: {name} ended with {done.returncode} and said {lines}")
    print(f"{seconds:7.1f} s  {name}", *lines, sep="\n           ", flush=True)
    return done.stdout


def newest() -> Path:
    """The newest wheel in `build/wheels`, which is built if there is none."""
    found = sorted(wheel.BUILD.glob("jgs-*.whl"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else wheel.build(platform.machine())


def main() -> None:
    package = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else newest()
    print(package)
    shutil.rmtree(PLACE, ignore_errors=True)
    home, own = PLACE / "home", PLACE / "env"
    home.mkdir(parents=True)
    fetching = os.environ | {"HOME": str(home)}  # has pip's settings
    bare = {"HOME": str(home), "PATH": f"{own / 'bin'}{os.pathsep}{os.defpath}"}
    jgs, python = own / "bin" / "jgs", own / "bin" / "python"
    make = (sys.executable, ROOT / "tools" / "make_venv.py", own)
    step("a new environment", *make, environment=fetching, quiet=False)
    install = (python, "-m", "pip", "install", "--quiet", f"jgs[viz] @ {package.as_uri()}")
    # Not quiet, because pip speaks of its settings here and of the package index.
    step("pip install jgs[viz]", *install, environment=fetching, quiet=False)
    step("jgs --help", jgs, "--help", environment=bare)
    train = step("jgs train", jgs, "train", "--run-dir", "run", environment=bare)
    predict = ("predict", "--run-dir", "run", "--embed", "--out", "embeddings.npy")
    step("jgs predict --embed", jgs, *predict, environment=bare)
    opened = step("open, predict, explain, draw", python, "-c", OPENED, environment=bare)
    for name, start in (("embeddings.npy", b"\x93NUMPY"), ("neighborhood.png", b"\x89PNG")):
        if not (home / name).read_bytes().startswith(start):
            sys.exit(f"tools/newcomer.py: {name} is no such file")
    print(train, opened, sep="", end="")


if __name__ == "__main__":
    main()
