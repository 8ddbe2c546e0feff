"""The kernels draw the same on a CPU with fewer instructions: JGS_ISA makes such a build."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "jgs/kernels"


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


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_every_instruction_set_draws_as_plain_loops_do(tmp_path):
    program = tmp_path / "sample_test"
    code = ["tests/kernels/sample_test.cc", SOURCES / "sample.cc", SOURCES / "relabel.cc"]
    flags = ["-std=c++17", "-O2", "-ffp-contract=off", "-pthread", "-I", SOURCES]
    run("g++", *flags, *code, "-o", program)
    assert "runs equal" in run(program)


@pytest.mark.skipif(
    shutil.which("c++") is None or shutil.which("cmake") is None, reason="no C++ compiler"
)
def test_a_build_limited_to_avx2_is_plain(tmp_path):
    python = f"-DPython_EXECUTABLE={sys.executable}"
    release = "-DCMAKE_BUILD_TYPE=Release"
    run("cmake", "-S", SOURCES, "-B", tmp_path, python, release, "-DJGS_ISA=avx2")
    run("cmake", "--build", tmp_path, "--parallel", "2")
    test = "tests/sampling/test_equality.py::test_kernel_is_plain_at_parallel_sizes"
    kernels = str(tmp_path / "libjgs_kernels.so")
    pytest_options = ["-q", "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *pytest_options, test, JGS_KERNELS=kernels)
