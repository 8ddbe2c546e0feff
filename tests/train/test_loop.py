"""The command, in this process, on a small `synthetic` graph."""

import dataclasses
import gc
import inspect
import json
import re
import shutil
import weakref
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_runs import metrics, same_run, train

import jgs.data
from jgs.models import GraphSAGE
from jgs.options import Option
from jgs.train.__main__ import main
from jgs.train.config import Config
from jgs.train.loop import checkpoint, folder, learner
from jgs.train.loop import job as job_module
from jgs.train.loop import training as loop
from jgs.train.loop.job import Job
from jgs.train.loop.model import make_model
from jgs.train.loop.open_data import open_data


def test_the_run_folder_and_the_result_line(tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    result = json.loads(out)
    assert {"test_accuracy", "val_accuracy", "epochs", "seconds", "run_dir"} <= set(result)
    assert result["epochs"] == 3
    rows = folder.read_metrics(tmp_path / "run", 3)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    best = rows[result["best_epoch"] - 1]
    assert best["val_accuracy"] == max(row["val_accuracy"] for row in rows)
    assert best["val_accuracy"] == result["val_accuracy"]
    assert all(f"epoch {i}/3  loss" in err for i in (1, 2, 3))
    assert len(set(err.splitlines())) == len(err.splitlines()), "a line twice"
    held = {p.name for p in (tmp_path / "run").iterdir() if p.name != ".lock"}
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert {row["metric"] for row in rows} == {result["metric"]} == {"accuracy"}
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["hidden"] == 8
    assert "Traceback" not in err


def test_another_seed_gives_another_run_and_the_same_the_same(tmp_path, whole):
    assert train(tmp_path / "same", "--prefetch", 0) == 0
    same_run(tmp_path / "same", whole)
    assert train(tmp_path / "other", "--seed", 1) == 0
    assert metrics(tmp_path / "other") != metrics(whole)


def test_epochs_may_grow(tmp_path, whole, capsys):
    run_dir = tmp_path / "run"
    assert train(run_dir, "--epochs", 1) == 0
    capsys.readouterr()
    assert main(["--resume", "--run-dir", str(run_dir), "--epochs", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 3
    same_run(run_dir, whole)
    # Resuming a finished run gives its result again.
    assert main(["--resume", "--run-dir", str(run_dir)]) == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 3
    same_run(run_dir, whole)


class Crash(Exception):
    pass


def crash_after(monkeypatch, count):
    """Makes the run end with `Crash` after `count` steps."""
    steps_of = learner.make_train_step

    def crashing(*arguments):
        step, calls = steps_of(*arguments), []

        def crash(*inputs):
            calls.append(1)
            if len(calls) > count:
                raise Crash
            return step(*inputs)

        return crash

    monkeypatch.setattr(learner, "make_train_step", crashing)


@pytest.mark.parametrize("every", [0, 1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_resume_after_an_exception_at_a_random_step(tmp_path, whole, monkeypatch, every, seed):
    crash_after(monkeypatch, int(np.random.default_rng([every, seed]).integers(1, 3 * 8)))
    with pytest.raises(Crash):
        train(tmp_path / "run", "--checkpoint-every", every)
    monkeypatch.undo()
    assert train(tmp_path / "run", "--resume") == 0
    same_run(tmp_path / "run", whole)


@pytest.mark.parametrize(
    "sampler",
    [
        "subgraph --extra-nodes 60 --layers 2 --fanouts 10 10",  # the default's: none given
        "labor --importance 1 --period 4 --layer-dependency",
        "pinsage --fanouts 4 3 --walks 20 4 --restart 0.3",
        "frontier --budget 60 --frontier-size 9 --norm-error 0.3 --layers 3 --fanouts 10 10 "
        "--model gcn --concat",
        "shadow --fanouts 4 3 --disjoint --layers 3",
    ],
)
def test_runs_of_other_samplers_resume_exactly(tmp_path, monkeypatch, capsys, sampler):
    flags = ["--epochs", 2, "--sampler", *sampler.split()]
    assert train(tmp_path / "whole", *flags) == 0
    whole = json.loads(capsys.readouterr().out)
    crash_after(monkeypatch, 11)
    with pytest.raises(Crash):
        train(tmp_path / "run", *flags, "--checkpoint-every", 3)
    monkeypatch.undo()
    assert train(tmp_path / "run", "--resume", *flags) == 0
    out, err = capsys.readouterr()
    assert "resuming after 1 epochs and 3 steps" in err
    assert json.loads(out)["params_sha256"] == whole["params_sha256"]
    same_run(tmp_path / "run", tmp_path / "whole")


def test_resume_after_a_checkpoint_was_cut_short(tmp_path, whole, capsys):
    run_dir = tmp_path / "run"
    assert train(run_dir) == 0
    newest = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    largest = max((p for p in newest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    with open(largest, "r+b") as file:
        file.truncate(largest.stat().st_size // 2)
    capsys.readouterr()
    assert train(run_dir, "--resume") == 0
    err = capsys.readouterr().err
    assert "damaged" in err
    assert "resuming after 2 epochs" in err
    same_run(run_dir, whole)


def test_no_step_is_told_before_the_first_batch(tmp_path):
    """The work before it, such as planning a cache, may take longer than any step. And a
    reference cycle of one epoch, which may hold parameters, is gone in the next."""
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

    options = ("num_nodes=400", "num_edges=3000", "num_features=8", "num_classes=3")
    config = Config(
        data_options=options, fanouts=(3,), hidden=8, batch_size=10, epochs=2, progress=False,
        run_dir=str(tmp_path / "run"),
    )  # fmt: skip
    gc.disable()
    try:
        loop.run(config, lambda config: Watched(config, open_data(config)), told.append)
    finally:
        gc.enable()
    assert epochs == [None, None]
    assert alive == [[], [None]]
    assert [step for step in told if step is not None][:3] == [0.5, 1, 1.5]


def test_resume_on_changed_data_is_refused(tmp_path, capsys, monkeypatch):
    run_dir = tmp_path / "run"
    assert train(run_dir, "--epochs", 1) == 0
    load = jgs.data.load

    def changed(*arguments, **options):
        data = load(*arguments, **options)
        return dataclasses.replace(data, labels=data.labels[::-1], val_idx=data.test_idx)

    capsys.readouterr()
    monkeypatch.setattr(jgs.data, "load", changed)
    before = (run_dir / folder.CONFIG).read_bytes()
    assert train(run_dir, "--resume", "--keep", 1) == 2
    assert (run_dir / folder.CONFIG).read_bytes() == before
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: a run must be resumed on the data set")
    assert "other labels, splits" in err.splitlines()[-1]
    monkeypatch.undo()
    assert train(run_dir, "--resume") == 0


def test_evaluation_of_a_weighted_run_is_weighted(tmp_path, monkeypatch):
    load, made, seen = jgs.data.load, job_module.exact_inference, []

    def weighted(*arguments, **options):
        data = load(*arguments, **options)
        graph = data.graph
        graph = jgs.Graph(graph.indptr, graph.indices, np.ones(graph.num_edges, np.float32))
        return dataclasses.replace(data, graph=graph)

    def spy(*arguments, **options):
        bound = inspect.signature(made).bind(*arguments, **options)
        seen.append(bound.arguments["weighted"])
        return made(*arguments, **options)

    monkeypatch.setattr(jgs.data, "load", weighted)
    monkeypatch.setattr(job_module, "exact_inference", spy)
    assert train(tmp_path / "yes", "--epochs", 1, "--weighted") == 0
    assert train(tmp_path / "no", "--epochs", 1) == 0
    assert seen == [True, False]


def test_damaged_metrics_lose_no_other_line(tmp_path, whole, capsys):
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    first, second, third = (run_dir / folder.METRICS).read_bytes().splitlines(keepends=True)
    spoiled = first + second[:9] + b"\n" + third
    (run_dir / folder.METRICS).write_bytes(spoiled)
    capsys.readouterr()
    assert train(run_dir, "--resume", "--epochs", 4) == 0
    assert f"{folder.METRICS} is damaged in line 2: " in capsys.readouterr().err
    assert [row["epoch"] for row in metrics(run_dir)] == [1, 3, 4]
    assert (run_dir / "metrics.jsonl.damaged").read_bytes() == spoiled


@pytest.mark.parametrize("content", [b"null\n", b'{"epoch":1}\n', b"\xff\xfe\xfa\n"])
def test_spoiled_metrics_still_give_the_result(tmp_path, whole, capsys, content):
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    (run_dir / folder.METRICS).write_bytes(content)
    capsys.readouterr()
    assert train(run_dir, "--resume") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["epochs"] == 3
    assert "Traceback" not in err


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_the_options_of_the_model_reach_it(tmp_path, monkeypatch, reduce):
    made = []

    class Spy(GraphSAGE):
        def __init__(
            self,
            *widths,
            reduce: Annotated[str, Option("how", choices=("mean", "sum", "max"))] = "mean",
            **options,
        ):
            made.append({"reduce": reduce, **options})
            super().__init__(*widths, reduce=reduce, **options)

    monkeypatch.setattr("jgs.models.stacked.GraphSAGE", Spy)
    argv = f"--reduce {reduce} --norm l2 --input-dropout 0.2 --dropout 0.1 --replace --epochs 1"
    assert train(tmp_path / "run", *argv.split(), "--fanouts", 2, -1, 2) == 0
    options, *_ = made
    del options["rngs"]
    widths = {"in_features": 8, "hidden_features": 8, "out_features": 3, "num_layers": 3}
    shared = {"dropout": 0.1, "input_dropout": 0.2, "norm": "l2"}
    assert options == {"reduce": reduce, **widths, **shared}


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


def test_multi_label_data_end_to_end(tmp_path, monkeypatch, capsys):
    load = jgs.data.load

    def multilabel(*arguments, **options):
        data = load(*arguments, **options)
        labels = np.eye(3, dtype=np.float32)[data.labels]
        labels[:, 0] = 1
        fields = {f: getattr(data, f) for f in data.__dataclass_fields__}
        return jgs.data.Dataset(**{**fields, "labels": labels})

    monkeypatch.setattr(jgs.data, "load", multilabel)
    assert train(tmp_path / "run", "--epochs", 20, "--lr", 0.05) == 0
    out, err = capsys.readouterr()
    assert "val micro-F1" in err
    result = json.loads(out)
    assert result["test_accuracy"] > 0.75
    assert result["metric"] == "micro-F1"
    assert folder.read_metrics(tmp_path / "run", 1)[0]["metric"] == "micro-F1"
    assert max(len(line) for line in err.splitlines() if "epoch" in line) <= 80


def test_the_bar_is_drawn_on_a_terminal_only(monkeypatch, capsys):
    from jgs.train.loop.progress import Bar, Meter

    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm")
    for enabled, forced in ((True, True), (False, True), (True, False)):
        if forced:
            monkeypatch.setenv("FORCE_COLOR", "1")
        else:
            monkeypatch.delenv("FORCE_COLOR")
            monkeypatch.setenv("TTY_COMPATIBLE", "0")
        with Bar(enabled) as bar:
            bar.epoch("epoch 1/2", 0, 7)
            assert bar.due() == (enabled and forced)
            meter = Meter()
            meter.count(100)
            bar.show(3, 0.5, meter)
        shown = capsys.readouterr().err
        assert ("epoch 1/2" in shown) == (enabled and forced)


def test_the_bar_and_its_numbers_fit_80_columns(monkeypatch, capsys):
    from jgs.train.loop.progress import Bar, Meter

    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    meter = Meter()
    meter.count(123_456_789)
    meter.seconds = {"sampling": 5.0, "features": 3.0, "computing": 2.0}
    with Bar(True) as bar:
        bar.epoch("epoch 100/100", 0, 12345)
        bar.show(12344, 0.1234, meter)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    (line,) = {s.strip() for s in re.split(r"[\r\n]", shown) if "12344/12345" in s}
    assert line.startswith("epoch 100/100 ")
    assert line.endswith(f"loss 0.1234  {meter}")
    assert str(meter).endswith(" seeds/s  50/30/20%")
    assert len(line) <= 80


def test_features_are_arguments_and_not_constants():
    data = jgs.data.load("synthetic", num_nodes=400, num_edges=3000)
    traced = jax.make_jaxpr(jax.jit(jgs.ops.gather))(data.features, jnp.zeros(5, jnp.int32))
    assert sum(np.size(c) for c in traced.consts) < 10
