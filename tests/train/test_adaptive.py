"""Samplers that learn, from the command line: their state is trained, saved and resumed."""

import json

import jax
import numpy as np
import pytest
from small_runs import arrays, metrics, same_run, train

from jgs.dist.communicators.mesh import Mesh
from jgs.partition.__main__ import main as partition
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import learner
from jgs.train.loop import training as loop
from jgs.train.tasks.task import open_job

LEARNS = ("--sampler", "vrgcn", "--fanouts", "2", "2", "--epochs", "2")


class Crash(Exception):
    pass


def resumed_is_the_same(tmp_path, monkeypatch, *flags):
    """A run stopped at its sixth step goes on exactly as the run in the folder `whole` did."""
    steps_of = learner.make_train_step

    def crashing(*arguments):
        step, calls = steps_of(*arguments), []

        def crash(*args):
            calls.append(None)
            if len(calls) == 6:
                raise Crash
            return step(*args)

        return crash

    monkeypatch.setattr(learner, "make_train_step", crashing)
    run_dir = tmp_path / "run"
    with pytest.raises(Crash):
        train(run_dir, *flags, "--checkpoint-every", 3)
    monkeypatch.undo()
    assert main(["--resume", "--run-dir", str(run_dir)]) == 0
    same_run(run_dir, tmp_path / "whole")


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, monkeypatch, capsys):
    aged = (*LEARNS, "--state-age", "2")
    assert train(tmp_path / "whole", *aged) == 0
    assert train(tmp_path / "fresh", *LEARNS) == 0
    assert metrics(tmp_path / "fresh") != metrics(tmp_path / "whole")
    histories = [a for a in arrays(tmp_path / "whole") if a.ndim == 2 and a.shape[0] == 400]
    assert len(histories) == 2 * (1 + 2)  # one for each layer and each age
    assert all(history.any() for history in histories)
    resumed_is_the_same(tmp_path, monkeypatch, *aged)
    assert train(tmp_path / "no", *LEARNS, "--model", "gat") == 2
    assert "attention" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("flags", "shape"),
    [
        # The shape of W for 8 features.
        (("--sampler", "pass", "--fanouts", "3", "3"), (8, 128)),
        (("--sampler", "asgcn", "--sizes", "40", "40", "--fanouts", "10", "10"), (8,)),
    ],
)
def test_weights_of_features_are_trained_and_resumed(tmp_path, monkeypatch, flags, shape):
    flags = (*flags, "--epochs", "2", "--hidden", "9")
    assert train(tmp_path / "whole", *flags) == 0
    moments = [a for a in arrays(tmp_path / "whole") if a.shape == shape]
    assert len(moments) == 3  # W and Adam's two moments
    assert all(moment.any() for moment in moments)
    resumed_is_the_same(tmp_path, monkeypatch, *flags)


@pytest.mark.parametrize(
    "own", [{"sampler": "vrgcn", "fanouts": (2, 2)}, {"sampler": "asgcn", "sizes": (30, 30)}]
)
def test_ranks_have_one_state(tmp_path, own):
    parts = tmp_path / "parts"
    options = ["num_nodes=400", "num_edges=3000", "num_features=8", "num_classes=3"]
    argv = ["--dataset", "synthetic", "--data-options", *options, "--parts", "2"]
    assert partition([*argv, "--method", "random", "--out", str(parts)]) == 0
    comm, jobs = Mesh(jax.devices()[:2]), []

    def make_job(config):
        jobs.append(open_job(config, comm))
        return jobs[-1]

    def run(name, **more):
        config = Config(
            partition=str(parts), ranks=2, model="gcn", hidden=8, batch_size=12,
            run_dir=str(tmp_path / name), progress=False, eval_memory=1, **own, **more,
        )  # fmt: skip
        return loop.run(config, make_job)

    whole = run("whole", epochs=2)
    assert jobs[-1].data.num_steps == len(jobs[-1].loader)
    for history in jax.tree.leaves(jobs[-1].loader.sampler_state):
        one, other = (np.asarray(shard.data) for shard in history.addressable_shards)
        np.testing.assert_array_equal(one, other)
        assert one.any()
    run("half", epochs=1)
    half = run("half", epochs=2, resume=True)
    assert half["params_sha256"] == whole["params_sha256"]
    for mine, theirs in zip(
        *(jax.tree.leaves(job.loader.sampler_state) for job in (jobs[0], jobs[-1])),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)
    assert json.dumps(half["test_accuracy"]) == json.dumps(whole["test_accuracy"])
