"""The kernels draw the same on a CPU with fewer instructions (JGS_MAX_ISA)."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "jgs/kernels"
PROGRAMS = sorted(path.stem for path in (ROOT / "tests/kernels").glob("*_test.cc"))
FLAGS = ["-std=c++17", "-ffp-contract=off", "-pthread", "-I", SOURCES]

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


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
    """The program `name`, kept for the next run as long as no source changes."""
    sources = sorted([*SOURCES.glob("*.*"), *(ROOT / "tests/kernels").glob("*.*")])
    sources = [s for s in sources if s.suffix in (".cc", ".h", ".inc", ".py")]
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


@pytest.mark.parametrize(
    ("sampler", "with_", "limits"),
    [
        ("sample", "relabel read_ahead", "2"),
        ("labor", "relabel read_ahead", "2"),
        ("walk", "walk_second", "012"),
        ("visits", "relabel", "012"),
        ("frontier", "relabel", "012"),
        ("skipgram", "table_rows", "012"),
        ("induced", "relabel", "012"),
    ],
)
def test_every_instruction_set_draws_as_plain_loops_do(sampler, with_, limits):
    code = [
        f"tests/kernels/{sampler}_test.cc",
        SOURCES / f"{sampler}.cc",
        *(SOURCES / f"{name}.cc" for name in with_.split()),
    ]
    program = compiled(f"{sampler}_test", "-O2", *code)
    for limit in limits:  # the samplers' programs try all instruction sets by themselves
        assert "runs equal" in run(program, JGS_MAX_ISA=limit)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_for_the_sanitizers_compile(program):
    compiled(f"{program}.o", "-c", "-O0", "-Wall", f"tests/kernels/{program}.cc")


def test_the_environment_limits_the_instructions(tmp_path):
    code = tmp_path / "best.cc"
    code.write_text(
        '#include <cstdio>\n#include "isa.h"\n'
        'int main() { std::printf("%d", static_cast<int>(jgs::BestIsa())); }\n'
    )
    program = compiled("best", code)
    best = int(run(program))
    assert [int(run(program, JGS_MAX_ISA=str(i))) for i in (0, 1, 2)] == [0, min(1, best), best]
    for wrong in ("", "avx2", "3"):
        with pytest.raises(AssertionError, match="InputError: JGS_MAX_ISA must be 0, 1 or 2"):
            run(sys.executable, "-c", "import jgs.kernels", JGS_MAX_ISA=wrong)
    with pytest.raises(AssertionError, match="JGS_FEATURE_PARTS must be an integer from 0"):
        run(sys.executable, "-c", "import jgs.kernels", JGS_FEATURE_PARTS="two")


def test_kernels_limited_to_avx2_are_plain():
    tests = [
        "tests/sampling/test_equality.py::test_kernel_is_plain_at_parallel_sizes",
        "tests/ops/test_linear.py::test_add_relu_and_dropout",
        "tests/ops/test_linear.py::test_inputs_and_gradients_that_are_mostly_zero",
    ]
    options = ["-q", "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *options, *tests, JGS_MAX_ISA="1")
