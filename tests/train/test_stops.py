"""What ends a run early: Ctrl-C, SIGTERM, the loss, a full disk, too little memory."""

import os
import shutil
import signal
import sys
import threading

import jax
import jax.numpy as jnp
import pytest
from cases import cases
from forks import ended
from refusals import command_refused as refused
from small_runs import SMALL, cut, result, same_run, train, words

import jgs.data
from benchmarks.plan.__main__ import main as plan
from jgs import InputError
from jgs.partition.__main__ import main as partition
from jgs.sampling import Loader
from jgs.train.evaluation import metrics
from jgs.train.loop import checkpoint, folder, learner, progress
from jgs.train.loop.progress import terminated_flag


def raising(error):
    def refuse(*_, **__):
        raise error

    return refuse


def limited(limit, *flags):
    """A process of the command under a limit of `ulimit`, that ends with status 2."""
    command = ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", sys.executable, "-m"]
    # Python would keep byte code that was cut short.
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = ended(*command, "jgs.train", *words(SMALL, *flags), env=env)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return done.stderr


def test_ctrl_c_stops_after_the_step_and_keeps_a_checkpoint(
    tmp_path, whole, capsys, monkeypatch
):
    step, calls = learner.ModelLearner.step, []

    def press(*inputs):
        calls.append(1)
        if len(calls) == 11:
            signal.raise_signal(signal.SIGINT)
        return step(*inputs)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(learner.ModelLearner, "step", press)
        assert train(tmp_path / "run") == 130
    assert signal.getsignal(signal.SIGINT) is before
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-2].startswith("stopping after this step")
    assert err.splitlines()[-1].startswith("interrupted at epoch 2/3, step 3 of")
    assert len(calls) == 11
    assert train(tmp_path / "run", "--resume") == 0
    assert "resuming after 1 epochs and 3 steps" in capsys.readouterr().err
    same_run(tmp_path / "run", whole)


@pytest.mark.timeout(20)  # a handler that waits for itself waits for ever
def test_sigterm_may_come_while_its_handler_runs(capsys):
    """mpiexec passes on the SIGTERM that a rank got already. Here it comes at each line."""
    for number in range(100):
        lines = []

        def at_line(frame, event, argument, number=number, lines=lines):
            if frame.f_code.co_filename in (progress.__file__, threading.__file__):
                lines.append(frame.f_lineno)
                if len(lines) == number:
                    signal.raise_signal(signal.SIGTERM)
            return at_line

        traced = sys.gettrace()
        with terminated_flag(speak=True) as terminated:
            assert not terminated()
            sys.settrace(at_line)
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                sys.settrace(traced)
            assert terminated()
            # Python may print a traceback of a signal that becomes ignored as it comes.
            assert callable(signal.getsignal(signal.SIGTERM))
        assert capsys.readouterr().err.count("\n") == 1
        if number > len(lines):
            break
    assert 4 < number < 100


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", ["load", "evaluation", "after the last step", "checkpoint"])
def test_ctrl_c_outside_the_steps(tmp_path, capsys, monkeypatch, where):
    """It stops at once, but lets a checkpoint be written."""
    after, steps, save = [], Loader.__iter__, checkpoint._write

    def press(*_, **__):
        signal.raise_signal(signal.SIGINT)
        after.append(1)

    def pressing(self):
        yield from steps(self)
        signal.raise_signal(signal.SIGINT)

    place, name, pressed = {
        "load": (jgs.data, "load", press),
        "evaluation": (metrics, "confusion", press),
        "after the last step": (Loader, "__iter__", pressing),
        "checkpoint": (checkpoint, "_write", lambda *given: press() or save(*given)),
    }[where]
    monkeypatch.setattr(place, name, pressed)
    assert train(tmp_path / "run") == 130
    out, err = capsys.readouterr()
    kept = checkpoint.checkpoints(tmp_path / "run" / folder.CHECKPOINTS)
    written = where == "checkpoint"
    assert (out, "Traceback" in err, len(after), len(kept)) == ("", False, written, written)
    *_, first, last = ["", *err.splitlines()]
    assert first.startswith("stopping after this checkpoint") == written
    assert last.startswith("interrupted; --resume")


def test_sigterm_ends_what_is_under_way_and_keeps_a_checkpoint(
    tmp_path, whole, capsys, monkeypatch
):
    """The signal comes twice, as launchers send it: in a step, a checkpoint, an evaluation."""
    flags = (tmp_path / "run", "--resume --checkpoint-every 3")
    before = signal.getsignal(signal.SIGTERM)
    for place, name, calls, where in (
        (learner.ModelLearner, "step", 2, "epoch 1/3, step 2 of 8"),
        (checkpoint, "_write", 1, "epoch 1/3, step 3 of 8"),
        (learner.ModelLearner, "evaluate", 3, "the end of epoch 3/3"),
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


@cases("every, interrupted, kept", (1, False, 11), (0, True, 8), (0, False, 8))
def test_a_loss_that_is_not_finite_stops_the_run(
    tmp_path, capsys, monkeypatch, every, interrupted, kept
):
    """A checkpoint of it never takes the place of a good one."""
    step, calls = learner.ModelLearner.step, []

    def spoiled(own, *inputs):
        calls.append(1)
        step(own, *inputs)
        if len(calls) >= 12:
            own.state = own.state._replace(loss_sum=jnp.float32(jnp.nan))
            if interrupted:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(learner.ModelLearner, "step", spoiled)
    says = "loss must stay finite ... new run ... lower --lr"
    refused(capsys, says, train, tmp_path / "run", "--keep 1 --checkpoint-every", every)
    (last,) = checkpoint.checkpoints(tmp_path / "run" / folder.CHECKPOINTS)
    assert last.name == f"000001-{kept:09d}"


def test_a_full_disk_is_one_line_and_can_be_resumed(tmp_path, whole):
    """A limit on file sizes stands for the disk: arrays no longer fit, small files do."""
    run_dir = tmp_path / "run"
    last = limited("-f 2", "--run-dir", run_dir).splitlines()[-1]
    assert last.startswith(f"error: {run_dir / folder.CHECKPOINTS} must be writable")
    assert "--resume" in last
    assert not list((run_dir / folder.CHECKPOINTS).iterdir())
    assert train(run_dir, "--resume") == 0
    same_run(run_dir, whole)


def test_metrics_that_cannot_be_written_are_one_line(tmp_path, whole, capsys, monkeypatch):
    monkeypatch.setattr(folder.os, "fsync", raising(OSError(28, "No space left on device")))
    assert train(tmp_path / "new", "--epochs 1") == 2
    monkeypatch.undo()
    run_dir = cut(whole, tmp_path / "run", 16)
    (run_dir / folder.METRICS).unlink()
    (run_dir / folder.METRICS).mkdir()
    refused(capsys, f"{run_dir / folder.METRICS} must be", train, run_dir, "--resume")
    with pytest.raises(InputError, match="room on its disk"):
        folder.append_metrics(run_dir, {"epoch": 1})


@cases(
    "error, says",
    (MemoryError(), "memory ... Lower --hidden"),
    (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "memory"),
    (jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 7 bytes."), "memory"),
    (OSError(12, "Cannot allocate memory"), "memory ... Lower --hidden"),
    (OSError(28, "No space left on device"), "No space left"),
)
def test_what_the_machine_lacks_is_one_line(tmp_path, capsys, monkeypatch, error, says):
    monkeypatch.setattr("jgs.models.convolutions.GraphSAGE", raising(error))
    refused(capsys, says, train, tmp_path / "run")


def test_data_that_exceed_the_memory_are_one_line(tmp_path, capsys, monkeypatch):
    """A narrower model is then of no use."""
    monkeypatch.setattr(jgs.data, "load", raising(MemoryError()))
    monkeypatch.setattr("jgs.data.plain.load_whole", raising(MemoryError()))
    data, parts = ["--dataset", "synthetic"], words("--parts 2 --out", tmp_path / "parts")
    for call, *arguments in (
        (train, tmp_path / "run"),
        (partition, [*data, *parts]),
        (plan, data),
    ):
        refused(capsys, "the data set must fit into memory", call, *arguments)


def test_parameters_that_exceed_the_memory_are_one_line(tmp_path):
    flags = ("--fanouts 3 3 3 --hidden", 1 << 16, "--run-dir", tmp_path / "run")
    said = limited("-v 16000000", *flags)
    last = said.splitlines()[-1]
    assert last.startswith("error: the run must fit into memory; got ")
    assert "Lower --hidden" in last
    assert "Check failed" not in said


def test_a_result_that_standard_output_refuses_is_in_the_run_folder(
    tmp_path, whole, capsys, monkeypatch
):
    run_dir = tmp_path / "run"
    shutil.copytree(whole, run_dir)
    reader, writer = os.pipe()
    os.close(reader)
    for stdout, reason in ((os.fdopen(writer, "w"), "Broken pipe"), (None, "it is closed")):
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
        assert result(run_dir)["epochs"] == 3
    # A resumed run has no result until it ends.
    monkeypatch.setattr(metrics, "confusion", lambda *_: pytest.fail("evaluation"))
    with pytest.raises(pytest.fail.Exception):
        train(run_dir, "--resume", "--epochs", 4)
    assert not (run_dir / folder.RESULT).exists()


def test_a_fault_of_jgs_keeps_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setattr("jgs.models.convolutions.GraphSAGE", raising(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        train(tmp_path / "run")
