"""What ends a run early: Ctrl-C, SIGTERM, the loss, a full disk, too little memory."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import pytest
from small_runs import SMALL, same_run, train

import jgs.data
from benchmarks.plan.__main__ import main as plan
from jgs import InputError
from jgs.partition.__main__ import main as partition
from jgs.sampling import Loader
from jgs.train.evaluation import metrics
from jgs.train.loop import checkpoint, folder, interrupt, learner
from jgs.train.loop.interrupt import terminated_flag


def test_ctrl_c_stops_after_the_step_and_keeps_a_checkpoint(
    tmp_path, whole, capsys, monkeypatch
):
    steps_of, calls = learner.make_train_step, []

    def interrupting(*arguments):
        step = steps_of(*arguments)

        def press(*inputs):
            calls.append(1)
            if len(calls) == 11:
                signal.raise_signal(signal.SIGINT)
            return step(*inputs)

        return press

    monkeypatch.setattr(learner, "make_train_step", interrupting)
    before = signal.getsignal(signal.SIGINT)
    assert train(tmp_path / "run") == 130
    assert signal.getsignal(signal.SIGINT) is before
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-2].startswith("stopping after this step")
    assert err.splitlines()[-1].startswith("interrupted at epoch 2/3, step 3 of")
    assert len(calls) == 11
    monkeypatch.undo()
    assert train(tmp_path / "run", "--resume") == 0
    assert "resuming after 1 epochs and 3 steps" in capsys.readouterr().err
    same_run(tmp_path / "run", whole)


def test_sigterm_may_come_twice(capsys):
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("SIGTERM left the block"))
    try:
        with terminated_flag(speak=True) as terminated:
            assert not terminated()
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
                assert terminated()
                # Python may print a traceback of a signal that becomes ignored as it comes.
                assert callable(signal.getsignal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.timeout(20)  # a handler that waits for itself waits for ever
def test_sigterm_may_come_while_its_handler_runs(capsys):
    """mpiexec passes on the SIGTERM that a rank got already. Here it comes at each line."""
    for number in range(100):
        lines = []

        def at_line(frame, event, argument, number=number, lines=lines):
            if frame.f_code.co_filename in (interrupt.__file__, threading.__file__):
                lines.append(frame.f_lineno)
                if len(lines) == number:
                    signal.raise_signal(signal.SIGTERM)
            return at_line

        traced = sys.gettrace()
        with terminated_flag(speak=True) as terminated:
            sys.settrace(at_line)
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                sys.settrace(traced)
            assert terminated()
        assert capsys.readouterr().err.count("\n") == 1
        if number > len(lines):
            break
    assert 4 < number < 100


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", ["load", "evaluation"])
def test_ctrl_c_outside_the_steps_stops_at_once(tmp_path, capsys, monkeypatch, where):
    after = []

    def press(*_, **__):
        signal.raise_signal(signal.SIGINT)
        after.append(1)

    if where == "load":
        monkeypatch.setattr(jgs.data, "load", press)
    else:
        monkeypatch.setattr(metrics, "confusion", press)
    assert train(tmp_path / "run") == 130
    out, err = capsys.readouterr()
    assert (out, after) == ("", [])
    assert err.splitlines()[-1].startswith("interrupted; --resume")
    assert "Traceback" not in err


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_lets_a_checkpoint_be_written(tmp_path, capsys, monkeypatch):
    save = checkpoint._write

    def press(*arguments):
        signal.raise_signal(signal.SIGINT)
        return save(*arguments)

    monkeypatch.setattr(checkpoint, "_write", press)
    assert train(tmp_path / "run") == 130
    first, last = capsys.readouterr().err.splitlines()[-2:]
    assert first.startswith("stopping after this checkpoint")
    assert last.startswith("interrupted; --resume")
    kept = checkpoint.checkpoints(tmp_path / "run" / folder.CHECKPOINTS)
    assert [p.name for p in kept] == ["000001-000000008"]


def test_ctrl_c_after_the_last_step_of_an_epoch_is_not_lost(tmp_path, capsys, monkeypatch):
    steps = Loader.__iter__

    def pressing(self):
        yield from steps(self)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Loader, "__iter__", pressing)
    assert train(tmp_path / "run") == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted; --resume")


def test_sigterm_ends_what_is_under_way_and_keeps_a_checkpoint(
    tmp_path, whole, capsys, monkeypatch
):
    """The signal comes twice, as launchers send it: in a step, an evaluation, a checkpoint."""
    flags = (tmp_path / "run", "--resume", "--checkpoint-every", 3)
    before = signal.getsignal(signal.SIGTERM)
    for place, name, calls, where in (
        (learner.ModelLearner, "step", 2, "epoch 1/3, step 2 of 8"),
        (metrics, "confusion", 1, "the end of epoch 1/3"),
        (checkpoint, "_write", 1, "epoch 2/3, step 3 of 8"),
        (learner.ModelLearner, "evaluate", 2, "the end of epoch 3/3"),
    ):
        old, made = getattr(place, name), []

        def terminated(*inputs, old=old, made=made, calls=calls, **named):
            made.append(1)
            if len(made) == calls:
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGTERM)
            return old(*inputs, **named)

        with monkeypatch.context() as patch:
            patch.setattr(place, name, terminated)
            assert train(*flags) == 143
        assert len(made) >= calls
        out, err = capsys.readouterr()
        assert (out, err.count("terminated")) == ("", 2)
        assert err.splitlines()[-1].startswith(f"terminated at {where}; --resume")
        assert signal.getsignal(signal.SIGTERM) is before
    assert train(*flags) == 0
    same_run(tmp_path / "run", whole)


@pytest.mark.usefixtures("interruptible")
def test_sigterm_outside_of_training_stops_at_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(jgs.data, "load", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    assert train(tmp_path / "run") == 143
    assert capsys.readouterr().err.splitlines()[-1].startswith("terminated; --resume")


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, capsys, monkeypatch, interrupted):
    """A checkpoint of it never takes the place of a good one."""
    steps_of, calls = learner.make_train_step, []

    def spoiling(*arguments):
        step = steps_of(*arguments)

        def spoil(*inputs):
            calls.append(1)
            state = step(*inputs)
            if len(calls) < 12:
                return state
            if interrupted:
                signal.raise_signal(signal.SIGINT)
            return state._replace(loss_sum=jnp.float32(jnp.nan))

        return spoil

    monkeypatch.setattr(learner, "make_train_step", spoiling)
    every = 0 if interrupted else 1
    assert train(tmp_path / "run", "--checkpoint-every", every, "--keep", 1) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "loss must stay finite" in last
    assert "new run" in last
    assert "lower --lr" in last
    kept = [p.name for p in checkpoint.checkpoints(tmp_path / "run" / folder.CHECKPOINTS)]
    assert kept == ["000001-000000008" if interrupted else "000001-000000011"]


def test_the_loss_at_the_end_of_an_epoch_must_be_finite(tmp_path, capsys):
    assert train(tmp_path / "run", "--lr", 1e38) == 2
    assert "loss must stay finite" in capsys.readouterr().err.splitlines()[-1]


def test_a_full_disk_is_one_line_and_can_be_resumed(tmp_path, whole):
    """A limit on file sizes stands for the disk: arrays no longer fit, small files do."""
    run_dir = tmp_path / "run"
    argv = [sys.executable, "-m", "jgs.train", *SMALL.split(), "--run-dir", str(run_dir)]
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 2; exec "$@"', "bash", *argv],
        # Python would keep byte code that was cut short.
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: {run_dir / folder.CHECKPOINTS} must be writable")
    assert "--resume" in last
    assert "Traceback" not in done.stderr
    assert not list((run_dir / folder.CHECKPOINTS).iterdir())
    assert train(run_dir, "--resume") == 0
    same_run(run_dir, whole)


def test_metrics_that_cannot_be_written_are_one_line(tmp_path, capsys, monkeypatch):
    def refuse(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "fsync", refuse)
    assert train(tmp_path / "new") == 2
    monkeypatch.undo()
    run_dir = tmp_path / "run"
    assert train(run_dir, "--epochs", 1) == 0
    (run_dir / folder.METRICS).unlink()
    (run_dir / folder.METRICS).mkdir()
    capsys.readouterr()
    assert train(run_dir, "--resume") == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith(f"error: {run_dir / folder.METRICS} must be")
    with pytest.raises(InputError, match="room on its disk"):
        folder.append_metrics(run_dir, {"epoch": 1})


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (MemoryError(), "memory"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "memory"),
        (jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 7 bytes."), "memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (OSError(28, "No space left on device"), "No space left"),
    ],
)
def test_what_the_machine_lacks_is_one_line(tmp_path, capsys, monkeypatch, error, word):
    def lacking(*_, **__):
        raise error

    monkeypatch.setattr("jgs.models.stacked.GraphSAGE", lacking)
    assert train(tmp_path / "run") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: ")
    assert word in err.splitlines()[-1]
    assert ("Lower --hidden" in err) == (word == "memory")
    # The data set alone needs too much memory, so a narrower model is of no use.
    monkeypatch.setattr(jgs.data, "load", lacking)
    monkeypatch.setattr("jgs.data.plain.load_whole", lacking)
    synthetic = ["--dataset", "synthetic"]
    for command in (
        lambda: train(tmp_path / "other"),
        lambda: partition([*synthetic, "--parts", "2", "--out", str(tmp_path / "parts")]),
        lambda: plan(synthetic),
    ):
        assert command() == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        assert word in err
        assert ("the data set must fit into memory" in err) == (word == "memory")


def test_parameters_that_exceed_the_memory_are_one_line(tmp_path):
    argv = [sys.executable, "-m", "jgs.train", *SMALL.split(), "--fanouts", "3", "3", "3"]
    argv += ["--hidden", str(1 << 16), "--run-dir", str(tmp_path / "run")]
    limited = ["bash", "-c", 'ulimit -v 16000000; exec "$@"', "bash", *argv]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: the run must fit into memory; got ")
    assert "Lower --hidden" in last
    assert "Check failed" not in done.stderr


def test_a_result_that_standard_output_refuses_is_in_the_run_folder(
    tmp_path, whole, capsys, monkeypatch
):
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    reader, writer = os.pipe()
    os.close(reader)
    for stdout, reason in (
        (os.fdopen(os.open("/dev/full", os.O_WRONLY), "w"), "No space left on device"),
        (os.fdopen(writer, "w"), "Broken pipe"),
        (None, "it is closed"),
    ):
        (run_dir / folder.RESULT).unlink()
        monkeypatch.setattr(sys, "stdout", stdout)
        assert train(run_dir, "--resume") == 2
        if stdout is not None:
            stdout.close()  # as at Python's exit, where no error is raised again
        monkeypatch.undo()
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("error: standard output must take the result; got ")
        assert reason in last
        assert str(run_dir / folder.RESULT) in last
        result = json.loads((run_dir / folder.RESULT).read_text())
        assert result["epochs"] == 3
    # A resumed run has no result until it ends.
    monkeypatch.setattr(metrics, "confusion", lambda *_: pytest.fail("evaluation"))
    with pytest.raises(pytest.fail.Exception):
        train(run_dir, "--resume", "--epochs", 4)
    assert not (run_dir / folder.RESULT).exists()


def test_a_fault_of_jgs_keeps_its_traceback(tmp_path, monkeypatch):
    def faulty(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("jgs.models.stacked.GraphSAGE", faulty)
    with pytest.raises(RuntimeError, match="a bug"):
        train(tmp_path / "run")
