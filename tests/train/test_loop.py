"""The command, in this process, on a small `synthetic` graph."""

import gc
import json
import re
import weakref

import jax
import numpy as np
from small_runs import SMALL, command, cut, metrics, same_run, started, train, words

import jgs.data
from jgs.train.config import Config
from jgs.train.flags import parse
from jgs.train.loop import checkpoint, folder
from jgs.train.loop import training as loop
from jgs.train.loop.job import Job
from jgs.train.loop.model import make_model
from jgs.train.loop.open_data import open_data
from jgs.train.loop.progress import Bar, Meter


def test_the_run_folder_and_the_result_line(whole):
    out, err = (whole.with_suffix(suffix).read_text() for suffix in (".out", ".err"))
    assert out.count("\n") == 1
    result = json.loads(out)
    assert {"test_accuracy", "val_accuracy", "epochs", "seconds", "run_dir"} <= set(result)
    assert result["epochs"] == 3
    rows = folder.read_metrics(whole, 3)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    best = rows[result["best_epoch"] - 1]
    assert best["val_accuracy"] == max(row["val_accuracy"] for row in rows)
    assert best["val_accuracy"] == result["val_accuracy"]
    assert all(f"epoch {i}/3  loss" in err for i in (1, 2, 3))
    assert max(len(line) for line in err.splitlines() if "epoch" in line) <= 80
    assert len(set(err.splitlines())) == len(err.splitlines()), "a line twice"
    held = {p.name for p in whole.iterdir() if p.name != ".lock"}
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    assert json.loads((whole / "result.json").read_text()) == result
    assert {row["metric"] for row in rows} == {result["metric"]} == {"accuracy"}
    assert (whole / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((whole / "config.json").read_text())["hidden"] == 8
    assert "Traceback" not in err


def test_another_seed_gives_another_run(tmp_path, whole):
    assert train(tmp_path / "other", "--seed 1 --epochs 1") == 0
    assert metrics(tmp_path / "other") != metrics(whole)[:1]


def test_epochs_may_grow(tmp_path, whole, capsys):
    run_dir = tmp_path / "run"
    assert train(run_dir, "--epochs 2") == 0
    for more in ("--epochs 3", ""):  # resuming a finished run gives its result again
        capsys.readouterr()
        assert command("--resume --run-dir", run_dir, more) == 0
        assert json.loads(capsys.readouterr().out)["epochs"] == 3
        same_run(run_dir, whole)


def test_a_checkpoint_that_is_damaged(tmp_path, whole, capsys):
    """The one before it is taken."""
    run_dir = cut(whole, tmp_path / "run", 16)
    newest = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    largest = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    with open(largest, "r+b") as file:
        file.truncate(largest.stat().st_size // 2)
    assert train(run_dir, "--resume") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["epochs"] == 3
    assert re.search("checkpoint .* is damaged .*: falling back", err)
    assert "resuming after 1 epochs and 5 steps" in err
    same_run(run_dir, whole)


def test_no_step_is_told_before_the_first_batch(tmp_path):
    """Work before it may take long. A reference cycle of one epoch is gone in the next."""
    told, epochs, left, alive = [None], [], [], []

    class Cycle:
        def __init__(self):
            self.own = self
            left.append(weakref.ref(self))

    class Watched(Job):
        def batches(self, meter):
            alive.append([cycle() for cycle in left])
            for batch in super().batches(meter):
                epochs.append(told[-1]) if self.loader.step == 1 else None
                yield batch
            Cycle()

    config = Config(**parse(words(SMALL, "--epochs 2 --run-dir", tmp_path / "run")))
    gc.disable()
    try:
        loop.run(config, lambda config: Watched(config, open_data(config)), told.append)
    finally:
        gc.enable()
    assert epochs == [None, None]
    assert alive == [[], [None]]
    assert [step for step in told if step is not None][:3] == [0.5, 1, 1.5]


def test_evaluation_of_a_weighted_run_is_weighted(tmp_path):
    """Node 2 has an edge of weight 0, and all of them are kept where weights do not count."""
    graph = jgs.Graph.from_edges([0, 1, 0], [1, 2, 2], 9, np.float32([1, 1, 0]))
    of = (np.eye(9), np.arange(9) % 2, {"train": [0, 1], "val": [2], "test": [3]})
    jgs.data.Dataset.from_arrays(graph, *of).save(tmp_path / "data")
    found = []
    for weighted in (True, False):
        job, params = started(dataset=tmp_path / "data", batch_size=2, weighted=weighted)
        found.append(job._infer(params, [np.arange(9)])[0])
        job.close()
    apart = np.any(found[0] != found[1], axis=1)
    assert apart.tolist() == [False, False, True, *[False] * 6]


def test_the_options_of_the_model_reach_it():
    argv = "--reduce max --norm l2 --input-dropout 0.2 --dropout 0.1 --fanouts 2 -1 2"
    model = make_model(Config(**parse(words(argv))), 8, 3, False, jax.random.key(0))
    assert (model.norm, model.input_dropout, model.dropout) == ("l2", 0.2, 0.1)
    layers = [(one.in_features, one.out_features, one.reduce) for one in model.layers]
    assert layers == [(8, 64, "max"), (64, 64, "max"), (64, 3, "max")]


def test_input_dropout_follows_dropout_for_sparse_features_alone():
    for given, sparse, expected in (
        ({}, False, 0.0),
        ({}, True, 0.25),
        ({"input_dropout": 0.0}, True, 0.0),
        ({"input_dropout": 0.75}, False, 0.75),
    ):
        config = Config(dropout=0.25, **given)
        model = make_model(config, 4, 2, sparse, jax.random.key(0))
        assert model.input_dropout == expected


def test_the_bar_fits_a_terminal_and_is_drawn_there_only(monkeypatch, capsys):
    meter = Meter()
    meter.count(123_456_789)
    meter.seconds = {"sampling": 5.0, "features": 3.0, "computing": 2.0}
    assert str(meter).endswith(" seeds/s  50/30/20%")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    for enabled, terminal in ((True, True), (False, True), (True, False)):
        monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
        monkeypatch.setenv("FORCE_COLOR", "1") if terminal else monkeypatch.delenv(
            "FORCE_COLOR"
        )
        with Bar(enabled) as bar:
            bar.epoch("epoch 100/100", 0, 12345)
            assert bar.due() == (enabled and terminal)
            bar.show(12344, 0.1234, meter)
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
        lines = {s.strip() for s in re.split(r"[\r\n]", shown) if "12344/12345" in s}
        assert len(lines) == (enabled and terminal)
        for line in lines:
            assert line.startswith("epoch 100/100 ")
            assert line.endswith(f"loss 0.1234  {meter}")
            assert len(line) <= 80
