"""`python -m jgs.train --partition` as several processes: one run, failures, devices."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import programs
import pytest
import small_ranks
from cases import cases
from forks import ended
from ranks import LIMIT, finish, needs_mpi, result
from small_data import papers
from ssh_servers import ssh_servers
from two_hosts import NotPermitted, two_hosts

from benchmarks import network
from jgs.dist.supervision.watchdog import LOST
from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

EPOCHS = 6  # each of 10 steps
FLAGS = [*small_ranks.FLAGS, "--metric", "auc"]


def rank_pids(run_dir):
    """The processes of the ranks of a run that was started in `run_dir`."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            words = (place / "cmdline").read_bytes().decode().split("\0")
            if "python" in words[0] and str(run_dir) in words:
                found.append(int(place.name))
    assert len(found) == 2
    return found


def wait_for(run_dir, processes, steps):
    """Waits until the run has a checkpoint `steps` further than its newest one."""

    def newest():
        found = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)
        return int(found[-1].name.split("-")[1]) if found else 0

    aim, end = newest() + steps, time.monotonic() + LIMIT
    while newest() < aim:
        if any(p.poll() is not None for p in processes):
            # In full; an assertion's message would be cut.
            pytest.fail("\n".join(map(str, finish(processes))))
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture(scope="module")
def wholes():
    return {}


@pytest.fixture
def whole(start, parts, wholes, tmp_path_factory):
    """`whole(kind)`: the result of a run of 2 ranks that was not interrupted."""

    def make(kind):
        if kind not in wholes:
            run_dir = tmp_path_factory.mktemp(kind) / "run"
            flags = (*FLAGS, "--partition", parts, "--epochs", EPOCHS, "--batch-size", 6)
            wholes[kind] = result(start(kind, 2, *flags, "--run-dir", run_dir))
        return wholes[kind]

    return make


@pytest.mark.parametrize("kind", ["mpi", "jax"])
def test_one_rank_speaks_and_writes_the_run(whole, kind):
    told, err = whole(kind)
    run_dir = Path(told["run_dir"])
    assert told["epochs"] == EPOCHS
    lines = err.splitlines()
    for i in range(EPOCHS):
        assert sum(f"epoch {i + 1}/" in line for line in lines) == 1
    held = {p.name for p in run_dir.iterdir() if p.name != ".lock"}
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    rows = folder.read_metrics(run_dir, EPOCHS)
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))
    assert all(row["rounds"] == 2 * 10 + row["extra_rounds"] for row in rows)
    assert sum(row["extra_steps"] for row in rows[1:]) == 0


def end(processes, harm, kind, run_dir):
    """Harms a run, and says how it ended."""
    if harm == signal.SIGKILL:
        processes[1].kill()
    elif harm == signal.SIGTERM:
        # As Slurm does; mpiexec passes it on.
        for pid in (*rank_pids(run_dir), processes[0].pid):
            os.kill(pid, harm)
    else:  # a terminal signals the whole group
        for process in processes:
            os.killpg(process.pid, harm)
    statuses, out, err = finish(processes)
    assert "Traceback" not in err
    assert "test_accuracy" not in out
    return statuses, err.splitlines()


@cases(
    "kind, harms",
    ("jax", (signal.SIGKILL, signal.SIGINT)),
    ("mpi", (signal.SIGINT, signal.SIGTERM)),
)
def test_a_lost_rank_and_ctrl_c_end_all_and_resume_is_exact(
    start, whole, parts, tmp_path, kind, harms
):
    """One run suffers each harm in turn, and is resumed each time, up to its end."""
    flags = (*FLAGS, "--partition", parts, "--epochs", EPOCHS, "--batch-size", 6)
    flags = (*flags, "--checkpoint-every", 3, "--run-dir", tmp_path / "run", "--resume")
    for number, harm in enumerate(harms):
        processes = start(kind, 2, *flags)
        wait_for(tmp_path / "run", processes, 6 + number)
        statuses, lines = end(processes, harm, kind, tmp_path / "run")
        if harm == signal.SIGINT:
            # A rank in a step finishes it; one that evaluates ends at once. mpiexec may end it
            # before it says so. Then the other rank alone says it, in exactly one line.
            own = sum(line.startswith("interrupted") for line in lines)
            said = "rank 0 ends: rank 1 was interrupted;"
            other = sum(line.startswith(said) for line in lines)
            assert own == 1 or (kind == "mpi" and (own, other) == (0, 1)), lines
            assert 0 not in statuses
        elif harm == signal.SIGTERM:
            # mpiexec says 9 where it killed a rank, since another had ended already.
            assert set(statuses) == {143} or (kind == "mpi" and statuses == [9]), statuses
            # The signal that mpiexec passes on may come when the loop has ended for the first.
            at = ("terminated at epoch", "terminated at the end", "terminated; --resume")
            assert lines[-1].startswith(at)
            assert "continues there" in lines[-1] or kind == "mpi"
        else:
            (line,) = [line for line in lines if "rank 0 ends:" in line]
            for said in ("rank 1", "is gone", "last checkpoint: that of step", str(tmp_path)):
                assert said in line
            assert statuses[0] == LOST
    told, err = result(start(kind, 2, *flags))
    assert "resuming after" in err
    assert told["params_sha256"] == whole(kind)[0]["params_sha256"]
    assert told["val_accuracy"] == whole(kind)[0]["val_accuracy"]


@pytest.mark.slow
def test_every_harm():
    """Also ranks that are stopped, late, or on hosts whose cable is cut."""
    command = [sys.executable, "-m", "benchmarks.faults", "--moment", "middle"]
    done = subprocess.run(command, capture_output=True, text=True)  # it takes many minutes
    assert "0 problems" in done.stdout, done.stdout + done.stderr


FOUR = {"XLA_FLAGS": programs.quickly(devices=4)}
TWO = 2


def parameters(run_dir, *names):
    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        every = reader.restore(last.resolve() / checkpoint.ARRAYS)
    return jax.tree.leaves([every[name] for name in names or ["best_params"]])


def test_processes_with_devices_end_as_one_process(start, parts, tmp_path):
    """Two processes train on devices; one process goes on, in vanilla mode."""
    more = ["--batch-size", 16, "--epochs", TWO, "--comm", "none"]
    whole, two = (
        [*small_ranks.FLAGS, "--partition", parts, "--run-dir", tmp_path / n] for n in "ab"
    )
    assert main(list(map(str, [*whole, *more]))) == 0
    devices = [["--device", each] for each in ("cpu:1,2", "cpu:3,1")]
    own = {"each": devices, "variables": [FOUR] * 2}
    ended, printed = result(start("jax", 2, *two, "--batch-size", 8, "--epochs", 1, **own))
    assert ended["epochs"] == 1
    # A share that were lost or drawn twice would show in the first epoch's loss.
    losses = [folder.read_metrics(tmp_path / run, 1)[0]["train_loss"] for run in "ab"]
    assert abs(losses[0] - losses[1]) < 1e-4
    assert "training on 2 x cpu\n" in printed
    rest = [*two, *more, "--device", "cpu:1,2", "--mode", "vanilla", "--resume"]
    assert main(list(map(str, rest))) == 0
    for a, b in zip(parameters(tmp_path / "b"), parameters(tmp_path / "a"), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_processes_whose_devices_share_the_rows(start, tmp_path):
    """Also those that are learned. Each process has all data."""
    papers().save(tmp_path / "data")
    flags = [*small_ranks.FLAGS, "--dataset", tmp_path / "data", "--model", "rgcn"]
    flags += ["--features", "sharded", "--keep", 9]
    runs = [[*flags, "--run-dir", tmp_path / name] for name in "ab"]
    one = ["--batch-size", 20, "--epochs", 1, "--device", "cpu:all", "--comm", "none"]
    assert main(list(map(str, [*runs[0], *one]))) == 0
    devices = [["--device", each] for each in ("cpu:1,2", "cpu:3,1")]
    own = {"each": devices, "variables": [FOUR] * 2}
    result(start("jax", 2, *runs[1], "--batch-size", 10, "--epochs", 1, **own))
    rows = [folder.read_metrics(tmp_path / run, 1)[0] for run in "ab"]
    assert rows[1]["rounds"] == rows[0]["rounds"]
    for name in ("train_loss", "val_accuracy"):
        assert abs(rows[0][name] - rows[1][name]) < 1e-4
    names = ("best_params", "learned", "best_learned")
    for a, b in zip(*(parameters(tmp_path / run, *names) for run in "ab"), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_what_two_processes_cannot_do_is_said_at_once(start, parts, tmp_path):
    flags = ["--partition", parts, *small_ranks.FLAGS, "--run-dir", tmp_path / "run"]
    flags += ["--batch-size", 8]
    uneven = {"each": [["--device", "cpu:1"], ["--device", "cpu"]], "variables": [FOUR] * 2}
    statuses, out, err = finish(start("jax", 2, *flags, **uneven))
    assert statuses == [2, 2]
    assert out == ""
    assert "train on as many devices, of one kind, or all where they draw" in err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jax", "mpi"])
def test_launched_over_ssh(whole, parts, environment, tmp_path, monkeypatch, kind):
    """Two hosts share no disk where the parts lie; an sshd runs on each."""
    if kind == "mpi":
        needs_mpi()
    alone = whole(kind)[0]
    site = tmp_path / "site"
    shutil.copytree(parts, site / "parts")
    (tmp_path / "keys").mkdir()
    monkeypatch.chdir(tmp_path)
    try:
        with two_hosts(tmp_path) as (a, b), ssh_servers([a, b], tmp_path / "keys") as ssh:
            subprocess.run(b.on("mount", "-t", "tmpfs", "none", str(site)), check=True)
            launch = [sys.executable, "-m", "jgs.launch", "--hosts", "host-a,host-b"]
            launch += ["--ssh", ssh, "--parts", "site/parts", "--comm", kind, "--", *FLAGS]
            train = ["--epochs", EPOCHS, "--batch-size", 6, "--run-dir", tmp_path / "run"]
            # MPICH is told to use the cable, but not which interface that is.
            env = environment | {
                k: v for k, v in network.MPICH.items() if k != "UCX_NET_DEVICES"
            }
            done = ended(*a.on(*launch, *map(str, train)), env=env)
            there = ended(*b.on("ls", "site/parts"))
    except NotPermitted as reason:
        pytest.skip(f"launching over ssh needs root, namespaces, sshd and rsync: {reason}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["params_sha256"] == alone["params_sha256"]
    assert told["run_dir"] == str(tmp_path / "run")
    assert done.stderr.count(f"\n[0] epoch {EPOCHS}/{EPOCHS}") == 1
    assert "host-b: copying graph, manifest.json, part-00002, part-00003, shared" in done.stderr
    assert there.stdout.split() == [
        "graph", "manifest.json", "part-00002", "part-00003", "shared",
    ]  # fmt: skip
