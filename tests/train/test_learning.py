"""Learning rates, early stopping, what is logged, and training from Python."""

import json
import sys
import types

import numpy as np
import pytest
from refusals import command_refused as refused
from small_runs import SMALL, metrics, result, same_run, train, words

import jgs
from jgs import InputError
from jgs.train import Config
from jgs.train.config import SETTINGS
from jgs.train.flags import parse
from jgs.train.loop import folder, job, progress
from jgs.train.loop.step import SCHEDULES, learning_rate

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


def test_training_ends_when_patience_does(tmp_path, capsys, monkeypatch):
    values = {"val": [0.5, 0.6, 0.6, 0.1, 0.2, 0.7], "test": [0.3] * 9}
    monkeypatch.setattr(job.Job, "metric", lambda self, params, split: values[split].pop(0))
    assert train(tmp_path / "run", "--epochs", 9, "--patience", 2) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["epochs"], found["best_epoch"], found["val_accuracy"]) == (4, 2, 0.6)
    assert len(metrics(tmp_path / "run")) == 4
    assert "no better validation for 2 epochs: training ends after epoch 4" in err
    assert train(tmp_path / "run", "--epochs", 9, "--resume", "--patience", 3) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 5


def test_python_trains_as_the_command_does(tmp_path, whole, capsys):
    """And threads that draw ahead change nothing."""
    given = parse(words(SMALL, "--prefetch 0 --run-dir", tmp_path / "run"))
    run = jgs.train.run(Config(**given))
    same_run(tmp_path / "run", whole)
    assert capsys.readouterr().out == ""
    assert run.best_epoch == result(tmp_path / "run")["best_epoch"]
    assert run.predict([0, 1]).prediction.shape == (2,)
    with pytest.raises(InputError, match="must be empty"):
        jgs.train.run(Config(**given))


def test_the_curve_marks_the_best_epoch():
    pytest.importorskip("matplotlib")
    rows = [
        {"epoch": e, "train_loss": 1 / e, "val_accuracy": e % 3, "metric": "AUC"}
        for e in (1, 2, 3)
    ]
    loss, judged = progress.curves(rows, "", 2).axes
    for axes, name, best in ((loss, "training loss", 0.5), (judged, "validation AUC", 2)):
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
    session = progress.open_log(Config(log="wandb", hidden=8), tmp_path)
    session.add({"epoch": 3, **row})
    session.close()
    numbers = {"train_loss": 0.5, "val_accuracy": 0.25}
    assert told == [(2, numbers), (3, numbers), "finished"]
    assert (asked["config"]["hidden"], asked["resume"]) == (8, "allow")


def test_a_log_that_is_not_installed_is_refused_before_the_run_begins(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    says = "Run pip install 'jgs[wandb]'"
    refused(capsys, says, train, tmp_path / "run", "--log wandb")
    assert not (tmp_path / "run").exists()
