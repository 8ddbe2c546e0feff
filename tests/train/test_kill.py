"""`kill -9` at a random moment, then `--resume`, many times: the same bits."""

import json
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from small_runs import SMALL, command

from jgs.train.loop import checkpoint, folder

STEPS, KILLS = 6 * 8, 10  # of `SMALL`
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["jgs.train.loop.training", "matplotlib.figure", "orbax.checkpoint"]
)


def train(run_dir):
    """`python -m jgs.train`. What it says is in two files beside `run_dir`."""
    for stream, suffix in ((1, ".out"), (2, ".err")):
        said = os.open(run_dir.with_suffix(suffix), os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(said, stream)
    more = "--epochs 6 --checkpoint-every 3 --resume --run-dir"
    raise SystemExit(command(SMALL, more, run_dir))


def start(run_dir):
    process = PROCESSES.Process(target=train, args=(run_dir,))
    process.start()
    return process


def finish(run_dir):
    process = start(run_dir)
    process.join(120)
    out, err = (run_dir.with_suffix(suffix).read_text() for suffix in (".out", ".err"))
    assert process.exitcode == 0, err
    return json.loads(out), err


def newest(run_dir):
    found = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)
    return found[-1].name if found else ""


def steps_of(name):
    return int(name.split("-")[1]) if name else 0


@pytest.mark.slow  # trains for a minute; test_checkpoint.py harms each file of a checkpoint
def test_kill_and_resume(tmp_path):
    whole, _ = finish(tmp_path / "whole")
    rng = np.random.default_rng(0)
    killed, at, run_dir = 0, [], tmp_path / "run0"
    while killed < KILLS:
        process = start(run_dir)
        # The kill comes some random steps later, at a random moment in or after that step.
        aim = steps_of(newest(run_dir)) + int(rng.integers(1, 10))
        while process.is_alive() and steps_of(newest(run_dir)) < min(aim, STEPS - 1):
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.05)))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
            at.append(newest(run_dir))
        # Nearly done: begin a new run.
        if steps_of(newest(run_dir)) >= STEPS - 8 and killed < KILLS:
            check(run_dir, whole)
            run_dir = tmp_path / f"run{killed}"
    check(run_dir, whole)
    assert len(set(at)) > KILLS // 3, at  # the kills hit different steps


def check(run_dir, whole):
    result, err = finish(run_dir)
    assert "resum" in err
    assert "damaged" not in err
    same = ("params_sha256", "test_accuracy", "val_accuracy", "best_epoch")
    assert {k: result[k] for k in same} == {k: whole[k] for k in same}
    epochs = [row["epoch"] for row in folder.read_metrics(run_dir, 99)]
    assert epochs == [1, 2, 3, 4, 5, 6]
