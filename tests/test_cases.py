"""Each script of ../shared/cases prints what it says is right, or its input is refused.

The scripts are run as they are: in this process where they start no command. A script without a
test fails here, so that whoever adds one says what it must print.
"""

import io
import re
import runpy
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from forks import quick_python, ran

from jgs import InputError

FOLDER = Path(__file__).parents[2] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/cases is not there")

# Runs a script with programs that start quickly in the place of `sys.executable`. What a row
# adds to the commands that the script starts is its last arguments.
START = """
import runpy, subprocess, sys
sys.executable, script, *more = sys.argv[1:]
run, sys.argv = subprocess.run, [script]
subprocess.run = lambda command, **options: run([*command, *more], **options)
runpy.run_path(script, run_name="__main__")
"""
UNNAMED = "must say what its columns are; got .*columns=src,dst,weight or columns=src,dst,time"
NUMBER = r"(-?[\d.]+(?:e-?\d+)?)"


def told(script, monkeypatch, tmp_path):
    """What a script prints that runs in this process, and the error that ends it, or None."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            runpy.run_path(str(FOLDER / f"{script}.py"), run_name="__main__")
        except (AssertionError, InputError) as error:
            return printed.getvalue(), error
    return printed.getvalue(), None


def printed(script, monkeypatch, tmp_path, *more):
    """What a script prints that starts commands, or that changes modules of jgs."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    python = quick_python()
    return ran(python, "-c", START, python, FOLDER / f"{script}.py", *more, cwd=tmp_path)


def numbers(pattern, text):
    """The numbers of a pattern, in which `#` stands for one."""
    found = re.search(pattern.replace("#", NUMBER), text)
    assert found, text
    return [float(number) for number in found.groups()]


# Script, the lines that it prints, and the end of a script that jgs refuses.
IN_WORDS = {
    "huge_ids": (
        [
            "'1' '18446744073709551614' '18446744073709551615' '2'",
            "'184467440737095516150' .*'b2'",
        ],
        None,
    ),
    "large_ids_merge": ([], UNNAMED),
    "latin1": ([f"{what}: InputError: .*iconv" for what in ("nodes", "ids")], None),
    "masked_arrays": (
        [f"{what}: refused: " for what in ("ids", "ids of names", "weight", "labels")],
        None,
    ),
    # The pages say these differences, so the script's last line does not hold.
    "migration_tables": ([r"\[\[0, 3, 3\], \[2, 1, 0\]\]", "self-loops: 4"], "self-loops"),
    "names_become_numbers": (
        ["'user:001', 'user:1', 'user:7', 'item:0005019281', 'item:42'", "4 nodes"],
        None,
    ),
    "overflow_in_jit": ([r"^\(\(Array\(nan, .*Array\(True.*\[nan, .*nan\]"], None),
    # Ids alone do not say how many nodes there are. By a batch these rows are refused: see
    # tests/ops/test_aggregate.py.
    "short_features": (["^87 real nodes"], None),
    "typed_ends_swapped": (
        [
            rf"{how} +..'user:0', 'item:5'., .'user:1', 'item:5'., .'user:2', 'item:4'.."
            for how in ("typed folder", "one table")
        ],
        None,
    ),
    "weights_as_times": ([], UNNAMED),
}


# These run for minutes. Smaller tests assert the same of targets of as many digits, of lists of
# one relation where another joins the same pairs, and of a column whose last block has a point.
ELSEWHERE = {
    "large_targets": "train/test_digits.py",
    "recall_other_relation": "train/test_second_opinion.py",
    "build_csv_inference": "data/test_build.py",
}


def test_every_script_has_a_test():
    scripts = {path.stem for path in FOLDER.glob("*.py")} - IN_WORDS.keys() - ELSEWHERE.keys()
    assert not {s for s in scripts if f"test_{s}" not in globals()}


@pytest.mark.parametrize("script", IN_WORDS)
def test_a_script_says_what_is_right(script, monkeypatch, tmp_path):
    lines, end = IN_WORDS[script]
    text, error = told(script, monkeypatch, tmp_path)
    for line in lines:
        assert re.search(line, text, re.MULTILINE), text
    assert (error is None) == (end is None), error
    assert end is None or re.search(end, str(error)), error


def test_kg_negatives_slow(monkeypatch, tmp_path):
    """42 relations, which took more than four minutes."""
    text = printed("kg_negatives_slow", monkeypatch, tmp_path)
    assert numbers("together # s", text)[0] < 20


@pytest.mark.slow  # it trains for eight epochs, and scores 60 candidates of each fact alone
def test_triples_filter(monkeypatch, tmp_path):
    text = printed("triples_filter", monkeypatch, tmp_path)
    (said,) = numbers("reports MRR #", text)
    own, right = numbers("jgs's filter #; .*relation #;", text)
    assert own == right == pytest.approx(said, abs=1e-4)
