"""`python -m jgs.predict` as several processes."""

import subprocess
import sys

import numpy as np
from launched import FLAGS, finish, result
from ranks import MPIEXEC, needs_mpi

from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main as train


def test_two_processes_write_what_one_does(parts, environment, tmp_path):
    needs_mpi()
    run_dir = tmp_path / "run"
    flags = [*FLAGS, "--batch-size", "12", "--epochs", "1", "--partition", str(parts)]
    assert train([*flags, "--run-dir", str(run_dir)]) == 0

    def start(*more):
        command = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "jgs.predict"]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*command, "--run-dir", str(run_dir), *map(str, more)],
            env=environment, stdout=pipe, stderr=pipe, text=True,
        )  # fmt: skip

    said, _ = result([start("--split", "test", "--out", tmp_path / "two.npy")])
    alone = ["--run-dir", str(run_dir), "--split", "test", "--out", str(tmp_path / "one.npy")]
    assert predict(alone) == 0
    one, two = np.load(tmp_path / "one.npy"), np.load(tmp_path / "two.npy")
    assert said["nodes"] == len(two) == len(one)
    for name in ("node", "prediction"):
        np.testing.assert_array_equal(two[name], one[name])
    np.testing.assert_allclose(two["probability"], one["probability"], rtol=1e-5)
    # An error that one rank finds ends both, in one line.
    (tmp_path / "ids").write_text("3\n-1\n")
    _, out, err = finish([start("--nodes", tmp_path / "ids", "--out", tmp_path / "no.csv")])
    assert out == ""
    assert [line for line in err.splitlines() if "error" in line] == err.splitlines()
    assert err.count("\n") == 1, err
    assert "got -1 (number 2)" in err
