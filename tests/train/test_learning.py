"""Learning rates, early stopping, what is logged, and training from Python."""

import json
import signal
import sys
import types

import numpy as np
import pytest
from small_runs import SMALL, metrics, same_run, train

import jgs
from jgs import InputError
from jgs.train import Config
from jgs.train.config import SETTINGS
from jgs.train.flags import parse
from jgs.train.loop import folder, job, learner, log
from jgs.train.loop.schedules import SCHEDULES, learning_rate

STEPS = 40


def test_the_rates_of_every_schedule():
    assert list(SETTINGS["lr_schedule"].option.choices) == list(SCHEDULES)
    step = np.arange(0, STEPS + 3)
    falling = np.minimum(step / STEPS, 1)

    def rates(name, **more):
        rate = learning_rate(Config(lr_schedule=name, lr=0.5, lr_end=0.1, epochs=4, **more), 10)
        return np.array([float(rate(s)) for s in step])

    def cosine(share):
        return 0.05 + 0.45 * (1 + np.cos(np.pi * share)) / 2

    assert learning_rate(Config(lr=0.5, epochs=4), 10) == 0.5
    np.testing.assert_allclose(rates("cosine"), cosine(falling), rtol=1e-5)
    np.testing.assert_allclose(rates("exponential")[:41], 0.5 * 0.1 ** falling[:41], rtol=1e-5)
    for rise, more in ((4, {}), (8, {"warmup_steps": 8})):
        share = np.clip((step - rise) / (STEPS - rise), 0, 1)
        want = np.where(step < rise, 0.5 * step / rise, cosine(share))
        np.testing.assert_allclose(rates("warmup_cosine", **more), want, rtol=1e-5)
    with pytest.raises(InputError, match="must be fewer than the run's steps, 40; got 40"):
        rates("warmup_cosine", warmup_steps=40)


def events(run_dir):
    """{name: [(epoch, number)]} as TensorBoard reads the events."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = accumulator.EventAccumulator(
        str(run_dir / log.TENSORBOARD), {accumulator.TENSORS: 0}
    )
    reader.Reload()
    return {
        name: [(e.step, float(e.tensor_proto.float_val[0])) for e in reader.Tensors(name)]
        for name in reader.Tags()["tensors"]
    }


def test_a_resumed_run_has_the_same_rates_metric_and_log(tmp_path, capsys, monkeypatch):
    flags = ["--lr-schedule", "warmup_cosine", "--metric", "auc", "--log", "tensorboard"]
    assert train(tmp_path / "whole", *flags) == 0
    assert json.loads(capsys.readouterr().out)["metric"] == "AUC"
    step, calls = learner.ModelLearner.step, []

    def terminated(*inputs):
        calls.append(1)
        if len(calls) == 11:  # in the second epoch
            signal.raise_signal(signal.SIGTERM)
        return step(*inputs)

    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", terminated)
        assert train(tmp_path / "cut", *flags) == 143
    assert train(tmp_path / "cut", "--resume") == 0
    same_run(tmp_path / "cut", tmp_path / "whole")
    for run in ("whole", "cut"):
        rows, seen = folder.read_metrics(tmp_path / run, 9), events(tmp_path / run)
        for name in ("train_loss", "val_accuracy", "seeds_per_second"):
            want = [(row["epoch"], pytest.approx(row[name], rel=1e-6)) for row in rows]
            assert seen[name] == want


def test_training_ends_when_patience_does(tmp_path, capsys, monkeypatch):
    values = {"val": [0.5, 0.6, 0.6, 0.1, 0.2, 0.7], "test": [0.3] * 9}
    monkeypatch.setattr(job.Job, "metric", lambda self, params, split: values[split].pop(0))
    assert train(tmp_path / "run", "--epochs", 9, "--patience", 2) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["epochs"], result["best_epoch"], result["val_accuracy"]) == (4, 2, 0.6)
    assert len(metrics(tmp_path / "run")) == 4
    assert "no better validation for 2 epochs: training ends after epoch 4" in err
    assert train(tmp_path / "run", "--epochs", 9, "--resume", "--patience", 3) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 5


def test_python_trains_as_the_command_does(tmp_path, whole, capsys):
    given = parse([*SMALL.split(), "--run-dir", str(tmp_path / "run")])
    run = jgs.train.run(Config(**given))
    same_run(tmp_path / "run", whole)
    assert capsys.readouterr().out == ""
    result = json.loads((tmp_path / "run" / folder.RESULT).read_text())
    assert run.best_epoch == result["best_epoch"]
    assert run.predict([0, 1]).prediction.shape == (2,)
    with pytest.raises(InputError, match="must be empty"):
        jgs.train.run(Config(**given))
    walks = {"task": "embed", "sampler": "walk", "dim": 8, "walk_length": 5, "num_walks": 1}
    of_data = {"data_options": given["data_options"], "batch_size": 40, "epochs": 1}
    embedded = jgs.train.run(Config(**walks, **of_data, run_dir=str(tmp_path / "embed")))
    np.testing.assert_array_equal(embedded.embed(), np.load(tmp_path / "embed/embeddings.npy"))


def test_the_curve_marks_the_best_epoch():
    pytest.importorskip("matplotlib")
    rows = [
        {"epoch": e, "train_loss": 1 / e, "val_accuracy": e % 3, "metric": "AUC"}
        for e in (1, 2, 3)
    ]
    for axes, name, best in zip(
        log.curves(rows, "", 2).axes,
        ("training loss", "validation AUC"),
        (0.5, 2),
        strict=True,
    ):
        assert axes.get_ylabel() == name
        (marked,) = (line for line in axes.lines if "best epoch" in str(line.get_label()))
        assert (list(marked.get_xdata()), list(marked.get_ydata())) == ([2], [best])


def test_wandb_is_told_each_epoch_once(tmp_path, monkeypatch):
    told = []

    class Session:
        step = 2  # an earlier session did the first epoch

        def log(self, numbers, step):
            told.append((step, numbers))

        def finish(self):
            told.append("finished")

    asked = {}
    stand_in = types.ModuleType("wandb")
    stand_in.init = lambda **given: asked.update(given) or Session()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    row = {"train_loss": 0.5, "val_accuracy": 0.25, "metric": "AUC"}
    for epoch in (1, 2):
        folder.append_metrics(tmp_path, {"epoch": epoch, **row})
    session = log.open_log(Config(log="wandb", hidden=8), tmp_path)
    session.add({"epoch": 3, **row})
    session.close()
    numbers = {"train_loss": 0.5, "val_accuracy": 0.25}
    assert told == [(2, numbers), (3, numbers), "finished"]
    assert (asked["config"]["hidden"], asked["resume"]) == (8, "allow")


def test_a_log_that_is_not_installed_is_refused_before_the_run_begins(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(log.importlib.util, "find_spec", lambda name: None)
    assert train(tmp_path / "run", "--log", "wandb") == 2
    assert "Run pip install 'jgs[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
