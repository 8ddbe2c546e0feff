"""`python -m jgs.train --partition` as several processes: one output, one run, and failures."""

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
import pytest
from launched import FLAGS as LAUNCHED
from launched import LIMIT, finish, result
from ranks import MPIEXEC, needs_mpi
from ssh_servers import ssh_servers
from two_hosts import MPICH, NotPermitted, hosts, two_hosts

from jgs.dist.supervision.watchdog import LOST
from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

EPOCHS = 6  # each of 10 steps
FLAGS = [*LAUNCHED, "--metric", "auc"]  # ranks exchange more than counts for this metric


def rank_pids(run_dir, n):
    """The process of each rank, for a run started in `run_dir`."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
            if "python" in words[0] and str(run_dir) in words:
                env = (place / "environ").read_bytes().decode().split("\0")
                rank = next((e[9:] for e in env if e.startswith("PMI_RANK=")), None)
                found[int(rank or words[words.index("--process-id") + 1])] = int(place.name)
        except (OSError, IndexError):
            continue  # the process has ended
    assert sorted(found) == list(range(n))
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


def wait_for_end(pid):
    def running():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    end = time.monotonic() + LIMIT
    while running():
        assert time.monotonic() < end
        time.sleep(0.02)


def arrays(run_dir):
    """Every array of the last checkpoint, read without the model."""
    import orbax.checkpoint as ocp

    last = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)[-1]
    with ocp.PyTreeCheckpointer() as reader:
        return jax.tree.leaves(reader.restore(last.resolve() / checkpoint.ARRAYS))


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
    assert [sum(f"epoch {i + 1}/" in line for line in lines) for i in range(EPOCHS)] == [
        1
    ] * EPOCHS
    held = {p.name for p in run_dir.iterdir() if p.name != ".lock"}
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "result.json"}
    rows = folder.read_metrics(run_dir, EPOCHS)
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))
    assert all(row["rounds"] == 2 * 10 + row["extra_rounds"] for row in rows)
    assert sum(row["extra_steps"] for row in rows[1:]) == 0


def test_resume_by_another_number_of_ranks(start, whole, parts, tmp_path, capsys):
    uninterrupted = Path(whole("mpi")[0]["run_dir"])
    want = arrays(uninterrupted)
    run_dir = tmp_path / "run"
    flags = ("--run-dir", run_dir, "--resume", "--no-progress", "--epochs")
    new = (*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", run_dir)
    assert main([*map(str, new), "--epochs", "1"]) == 0
    result(start("mpi", 4, *flags, 3))
    result(start("mpi", 2, *flags, 5))
    capsys.readouterr()
    assert main([*map(str, flags), str(EPOCHS)]) == 0
    assert "resuming after 5 epochs" in capsys.readouterr().err
    for mine, theirs in zip(arrays(run_dir), want, strict=True):
        assert np.abs(mine - theirs).max(initial=0) <= 1e-5 * np.abs(theirs).max(initial=0)
    mine, theirs = (folder.read_metrics(run, EPOCHS) for run in (run_dir, uninterrupted))
    for own, other in zip(mine, theirs, strict=True):
        assert own["metric"] == other["metric"] == "AUC"
        assert own["val_accuracy"] == pytest.approx(other["val_accuracy"], abs=1e-3)


def harm_and_resume(start, kind, whole, parts, run_dir, harms):
    """A run that suffers each of `harms` in turn, and is resumed each time, up to its end."""
    flags = (*FLAGS, "--partition", parts, "--epochs", EPOCHS, "--batch-size", 6)
    flags = (*flags, "--checkpoint-every", 3, "--run-dir", run_dir, "--resume")
    for number, (harm, rank) in enumerate(harms):
        processes = start(kind, 2, *flags)
        wait_for(run_dir, processes, 6 + number)
        pids = rank_pids(run_dir, 2)
        began = time.monotonic()
        if harm == signal.SIGINT and kind == "jax":
            for process in processes:  # a terminal signals the whole group
                process.send_signal(harm)
        elif harm == signal.SIGTERM and kind == "mpi":
            # As Slurm does; mpiexec passes it on.
            for pid in (*pids.values(), processes[0].pid):
                os.kill(pid, harm)
        elif harm == signal.SIGINT:
            os.killpg(processes[0].pid, harm)
        else:
            os.kill(pids[rank], harm)
        if kind != "mpi" and harm == signal.SIGSTOP:
            wait_for_end(pids[1 - rank])
            print(f"the other ended after {time.monotonic() - began:.2f} s")
            with suppress(ProcessLookupError):  # hydra or the rank's guard may have ended it
                os.kill(pids[rank], signal.SIGKILL)
        statuses, out, err = finish(processes)
        print(f"{harm.name} of rank {rank}: {statuses} after {time.monotonic() - began:.2f} s")
        print(out, err, sep="\n")
        assert "Traceback" not in err
        assert "test_accuracy" not in out
        if harm == signal.SIGINT:
            # A rank in a step finishes it; one that evaluates ends at once. mpiexec may end it
            # before it says so. Then the other rank alone says it, in exactly one line.
            lines = err.splitlines()
            own = sum(line.startswith("interrupted") for line in lines)
            other = sum(
                line.startswith("rank 0 ends: rank 1 was interrupted;") for line in lines
            )
            assert own == 1 or (kind == "mpi" and (own, other) == (0, 1))
            assert 0 not in statuses
        elif harm == signal.SIGTERM:
            assert set(statuses) == {143}
            assert err.splitlines()[-1].startswith(
                ("terminated at epoch", "terminated at the end")
            )
            assert "continues there" in err.splitlines()[-1]
        else:
            lost = "is gone" if harm == signal.SIGKILL else "nothing heard of"
            lines = [s for s in err.splitlines() if f"rank {1 - rank} ends:" in s]
            # After a kill mpiexec may end the other ranks before they say anything.
            assert lines or (harm == signal.SIGKILL and kind != "jax")
            for line in lines:
                assert lost in line
                assert f"rank {rank}" in line
                assert "last checkpoint: that of step" in line
                assert str(run_dir) in line
            if kind == "jax":
                assert statuses[1 - rank] == LOST
    told, err = result(start(kind, 2, *flags))
    assert "resuming after" in err
    assert told["params_sha256"] == whole["params_sha256"]
    assert told["val_accuracy"] == whole["val_accuracy"]


HARMS = [(signal.SIGKILL, 1), (signal.SIGINT, 0), (signal.SIGTERM, 1), (signal.SIGSTOP, 0)]


@pytest.mark.parametrize("kind", ["mpi", "jax"])
def test_a_lost_rank_and_ctrl_c_end_all_and_resume_is_exact(
    start, whole, parts, tmp_path, kind
):
    harm_and_resume(start, kind, whole(kind)[0], parts, tmp_path / "run", HARMS)


def test_two_hosts_need_no_tc(tmp_path, monkeypatch):
    try:
        with two_hosts(tmp_path, MPIEXEC):
            pass
    except NotPermitted as reason:
        pytest.skip(f"two hosts need network namespaces, as root: {reason}")
    for name in ("cat", "hostname", "ip", "mount", "nsenter", "sh", "unshare"):
        (tmp_path / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    with two_hosts(tmp_path, MPIEXEC):
        pass


def test_two_hosts(start, whole, parts, tmp_path):
    needs_mpi()
    alone = whole("mpi")[0]
    try:
        with two_hosts(tmp_path, MPIEXEC) as command:
            harms = [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)]
            harm_and_resume(start, command, alone, parts, tmp_path / "run", harms)
    except NotPermitted as reason:
        pytest.skip(f"two hosts need network namespaces, as root: {reason}")


LAUNCH = [sys.executable, "-m", "jgs.launch", "--hosts", "host-a,host-b"]
TRAIN = ["--", *FLAGS, "--epochs", str(EPOCHS), "--batch-size", "6", "--run-dir"]


def check_launched(done, whole, run_dir):
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["params_sha256"] == whole["params_sha256"]
    assert told["run_dir"] == str(run_dir)
    lines = done.stderr.splitlines()
    assert sum(line.startswith(f"[0] epoch {EPOCHS}/{EPOCHS}") for line in lines) == 1


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
        with (
            hosts(2, tmp_path) as (a, b),
            ssh_servers([a, b], tmp_path / "keys") as ssh,
        ):
            subprocess.run(b.on("mount", "-t", "tmpfs", "none", str(site)), check=True)
            own = ["--ssh", ssh, "--parts", "site/parts", "--comm", kind]
            command = [*LAUNCH, *own, *TRAIN, str(tmp_path / "run")]
            # MPICH is told to use the cable, but not which interface that is.
            env = environment | {k: v for k, v in MPICH.items() if k != "UCX_NET_DEVICES"}
            done = subprocess.run(
                a.on(*command), env=env, capture_output=True, text=True, timeout=LIMIT
            )
            there = subprocess.run(b.on("ls", "site/parts"), capture_output=True, text=True)
    except NotPermitted as reason:
        pytest.skip(f"launching over ssh needs root, namespaces, sshd and rsync: {reason}")
    check_launched(done, alone, tmp_path / "run")
    assert "host-b: copying graph, manifest.json, part-00002, part-00003, shared" in done.stderr
    assert there.stdout.split() == [
        "graph", "manifest.json", "part-00002", "part-00003", "shared",
    ]  # fmt: skip


def test_launched_by_what_takes_ssh_s_place(whole, parts, environment, tmp_path):
    script = tmp_path / "shell"
    script.write_text(
        "#!/bin/sh\nshift\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$*\"\n"
    )
    script.chmod(0o755)
    own = ["--ssh", str(script), "--parts", str(parts), "--comm", "jax"]
    command = [*LAUNCH, *own, *TRAIN, str(tmp_path / "run")]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    check_launched(done, whole("jax")[0], tmp_path / "run")
    assert "copying" not in done.stderr  # the hosts share the file system
