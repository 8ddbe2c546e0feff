"""Environment variables: a bad one spoils no run, or an error of one line names it."""

import json
import os
import sys

from forks import ended, quick_python, ran

from jgs.train.__main__ import main

SMALL = """
    --data-options num_nodes=400 num_edges=3000 num_features=8 num_classes=3 --fanouts 3
    --hidden 8 --batch-size 40 --epochs 1 --no-progress
"""


def train(run_dir, **variables):
    argv = [quick_python(), "-m", "jgs.train", *SMALL.split(), "--run-dir", run_dir]
    return ended(*argv, env=os.environ | variables)


def test_settings_of_jax_and_matplotlib_change_nothing(tmp_path, capsys):
    assert main([*SMALL.split(), "--run-dir", str(tmp_path / "plain")]) == 0
    plain = json.loads(capsys.readouterr().out)
    other = train(
        tmp_path / "other",
        JAX_NUMPY_DTYPE_PROMOTION="strict",
        JAX_NUMPY_RANK_PROMOTION="raise",
        JAX_TRANSFER_GUARD="disallow",
        JAX_DEFAULT_PRNG_IMPL="rbg",
        JAX_THREEFRY_PARTITIONABLE="0",
        MPLBACKEND="bogus",
    )
    assert other.returncode == 0, other.stderr
    assert json.loads(other.stdout)["params_sha256"] == plain["params_sha256"]
    assert other.stderr.splitlines()[-1].startswith("no curve.png: Key backend: 'bogus'")


def test_a_platform_that_jax_does_not_know(tmp_path):
    done = train(tmp_path / "run", JAX_PLATFORMS="foo")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: JAX must find the platform")
    assert "JAX_PLATFORMS" in line


def test_commands_answer_before_jax_is_imported():
    code = (
        "import sys, jgs, jgs.train.__main__, jgs.partition.__main__, jgs.predict.__main__\n"
        "assert 'jax' not in sys.modules\n"
        "assert 'Graph' in dir(jgs) and jgs.Graph is jgs.graph.Graph\n"
        "from jgs import Block, MiniBatch, SparseFeatures\n"
        "import jgs.train.tasks.task\n"
        # `import scipy` is quick: SciPy imports its own packages when they are first used.
        "assert 'scipy.sparse' not in sys.modules and 'scipy.special' not in sys.modules"
    )
    # A fork of `quick_python` has imported JAX.
    ran(sys.executable, "-c", code)
