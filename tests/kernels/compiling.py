"""C++ programs and libraries of tests, kept for the next run as long as no source changes."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES, TESTS = ROOT / "jgs/kernels", ROOT / "tests/kernels"
FLAGS = ["-std=c++17", "-ffp-contract=off", "-pthread", "-I", SOURCES]


def run(*command, **environment):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def compiled(name, *command):
    """The program `name`."""
    sources = sorted(s for of in (SOURCES, TESTS) for s in of.glob("*.*"))
    sources = [s for s in sources if s.suffix in (".cc", ".cu", ".h", ".inc")]
    text = b"".join(source.read_bytes() for source in sources)
    version = run("c++", "--version").encode()
    folder = ROOT / "build/self_tests" / hashlib.sha256(text + version).hexdigest()[:16]
    program = folder / name
    if not folder.exists():
        shutil.rmtree(folder.parent, ignore_errors=True)  # programs of former sources
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f"{name}.{os.getpid()}"
        run("c++", *FLAGS, *command, "-o", fresh)
        fresh.rename(program)
    return program
