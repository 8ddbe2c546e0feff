"""The kernels draw the same on a CPU with fewer instructions (JGS_MAX_ISA)."""

import ctypes
import os
import re
import shutil

import pytest
from compiling import SOURCES, TESTS, compiled, run
from forks import quick_python

from jgs import kernels

RUN = {  # what is linked with each program, without kernels
    "sample": "relabel read_ahead",
    "labor": "relabel read_ahead",
    "walk": "walk_second",
    "visits": "relabel",
    "context_visits": "walk walk_second",
    "push": "",
    "contexts": "sample relabel read_ahead",
    "frontier": "relabel",
    "skipgram": "table_rows",
    "induced": "relabel",
}
TRIES_ALL = {"sample", "labor"}  # all instruction sets, by themselves
PROGRAMS = {path.stem.removesuffix("_test") for path in TESTS.glob("*_test.cc")}
OTHERS = sorted(PROGRAMS - {*RUN, "device"})  # test_cuda.py runs that one

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@pytest.mark.parametrize("sampler", RUN)
def test_every_instruction_set_draws_as_plain_loops_do(sampler):
    code, best = [SOURCES / f"{name}.cc" for name in (sampler, *RUN[sampler].split())], 2
    if kernels.available():  # those that are installed, compiled already
        code = [library := kernels.library(), f"-Wl,-rpath,{os.path.dirname(library)}"]
        best = kernels.function("JgsInstructionSet", ctypes.c_int)()
    program = compiled(f"{sampler}_test", "-O1", "-Wall", TESTS / f"{sampler}_test.cc", *code)
    for limit in range(best if sampler in TRIES_ALL else 0, best + 1):
        assert "runs equal" in run(program, "instruction sets", JGS_MAX_ISA=str(limit))


@pytest.mark.parametrize("program", OTHERS)
def test_the_other_programs_for_the_sanitizers_compile(program):
    compiled(f"{program}.o", "-c", "-O0", "-Wall", TESTS / f"{program}_test.cc")


def test_functions_that_only_prefetch_are_part_of_their_callers():
    """GCC drops calls of others, as without effect."""
    lines = [line for path in SOURCES.glob("*.*") for line in _lines(path)]
    found = [line for line in lines if re.search(r"\bvoid \w*Prefetch\w*\(", line)]
    assert len(found) > 5
    assert not [line for line in found if "JGS_INLINE" not in line]


def _lines(path):
    return path.read_text().splitlines() if path.suffix in (".h", ".cc", ".inc") else []


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
            run(quick_python(), "-c", "import jgs.kernels", JGS_MAX_ISA=wrong)
    with pytest.raises(AssertionError, match="JGS_FEATURE_PARTS must be an integer from 0"):
        run(quick_python(), "-c", "import jgs.kernels", JGS_FEATURE_PARTS="two")


def test_kernels_limited_to_avx2_are_plain():
    """Those that no program above tries: products, what they skip, and streamed sums."""
    tests = [
        "ops/test_linear.py::test_add_relu_and_dropout[193-reals1-0.3]",
        "ops/test_linear.py::test_inputs_and_gradients_that_are_mostly_zero",
        "kernels/test_aggregate_kernel.py::test_results_that_exceed_the_caches[mean]",
    ]
    paths = [f"tests/{test}" for test in tests]
    run(quick_python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, JGS_MAX_ISA="1")
