"""The faults of tools/mutants can be put in: each stands once in its file and has its tests."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "tools" / "mutants"
_spec = importlib.util.spec_from_file_location("mutants", FOLDER / "__main__.py")
mutants = importlib.util.module_from_spec(_spec)
sys.modules["mutants"] = mutants  # where dataclasses look for types
_spec.loader.exec_module(mutants)
FAULTS = mutants.faults()


@pytest.mark.parametrize("area", sorted({path.stem for path in FOLDER.glob("*.toml")}))
def test_faults_apply_and_have_their_tests(area):
    own = [fault for fault in FAULTS if fault.area == area]
    assert own
    for fault in own:
        text = (REPOSITORY / fault.file).read_text()
        assert fault.applied(text) != text
        assert fault.what
        assert fault.tests
        missing = [name for name in fault.tests if not (REPOSITORY / name).is_file()]
        assert not missing, f"{fault.name}: {missing}"


def test_names_are_unique_and_few_faults_need_slow_tests():
    assert Counter(fault.name for fault in FAULTS).most_common(1)[0][1] == 1
    assert sum(bool(fault.slow) for fault in FAULTS) <= 5


def test_an_end_without_a_failed_test_is_no_verdict():
    assert mutants.verdict_of(1, "No module named pytest") == -1
    assert mutants.verdict_of(1, "F\nFAILED tests/test_a.py::test_b") == mutants.CAUGHT
    assert mutants.verdict_of(0, "1 passed") == mutants.SURVIVED


def test_a_fault_that_stands_twice_or_never_is_refused():
    fault = mutants.Fault("a", "b", "c", before="x\n", after="y\n", tests=[])
    assert fault.applied("w\nx\n") == "w\ny\n"
    for text in ("x\nx\n", "w\n"):
        with pytest.raises(ValueError, match="not once"):
            fault.applied(text)
