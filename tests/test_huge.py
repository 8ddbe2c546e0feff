"""`benchmarks.huge`, far smaller: its phases run, and it leaves nothing behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import huge
from benchmarks.huge_phases import Edges

REPOSITORY = Path(__file__).parents[1]
SMALL = ("--nodes", "2e4", "--edges", "2e5", "--features", "16", "--steps", "6")
SMALL += ("--batch-size", "64", "--fanouts", "4", "3", "--hidden", "8", "--feature-memory", "1")


def test_edges_are_a_function_of_the_key():
    first, again, other = (
        np.concatenate([np.stack(each) for each in Edges(5000, 3_000_000, seed)], axis=1)
        for seed in (0, 0, 1)
    )
    assert first.shape == (2, 3_000_000)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    for ends in first:
        degree = np.sort(np.bincount(ends, minlength=5000))[::-1]
        # The rank r has the share (r / N) ** (1 / 3) of all ends up to it.
        shares = np.cumsum(degree)[[4, 49, 499]] / degree.sum()
        assert shares == pytest.approx(np.array([0.1, 0.215, 0.464]), abs=0.01)


def test_all_phases(tmp_path):
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.huge", *SMALL, "--folder", str(tmp_path)]
    done = subprocess.run(
        [*command, "--json", str(result)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    phases = json.loads(done.stdout)["phases"]
    assert list(phases) == ["build", "partition", "features", "train", "plan"]
    assert all(phase["private"] > 0 for phase in phases.values())
    train, plan = phases["train"]["result"], phases["plan"]["result"]
    assert train["steps"] == 6
    assert train["disk_rows"] / 6 == pytest.approx(plan["disk_rows"], rel=0.1)
    assert [each.name for each in tmp_path.iterdir()] == ["result.json"]


def test_ctrl_c_leaves_nothing(tmp_path):
    command = [sys.executable, "-m", "benchmarks.huge", *SMALL, "--folder", str(tmp_path)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith("build"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    assert process.returncode == 130
    assert not list(tmp_path.iterdir())


def test_too_little_room_is_one_line(tmp_path, capsys):
    assert huge.main(["--edges", "1e13", "--folder", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "must have room: build 80" in line
