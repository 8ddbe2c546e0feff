"""`python -m jgs.train --partition` as several processes: one voice, one run, and failures."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from ranks import MPIEXEC, needs_mpi
from two_hosts import MPICH, NotPermitted, two_hosts

from jgs.dist.watchdog import LOST, Watchdog
from jgs.partition import main as partition
from jgs.train import checkpoint, folder
from jgs.train.files import locked

FLAGS = ["--fanouts", "3", "2", "--hidden", "8", "--no-progress", "--watchdog", "8"]
FLAGS += ["--checkpoint-every", "3"]
EPOCHS = 12  # of 5 steps
LIMIT = 60


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One compilation cache for all the processes, so that they start quickly."""
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JGS_NUM_THREADS": "1",
        "XLA_FLAGS": "",  # pytest's own devices
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return make_parts(tmp_path_factory.mktemp("parts") / "parts")


def make_parts(out, seed=0, num_parts=4):
    options = ["num_nodes=600", "num_edges=4000", "num_features=5", f"seed={seed}"]
    argv = ["--dataset", "synthetic", "--data-options", *options]
    argv += ["--parts", str(num_parts)]
    assert partition([*argv, "--method", "ldg", "--out", str(out)]) == 0
    return out


@pytest.fixture
def start(environment):
    """`start(kind, n, flags...)` starts the processes; all end with the test. `kind`: "mpi",
    "jax", or the start of a command. Flags of one rank: a list of each rank's."""
    started = []

    def start(kind, n, *flags, each=None):
        command = [sys.executable, "-m", "jgs.train", *map(str, flags)]
        env = environment
        if kind == "jax":
            with socket.create_server(("localhost", 0)) as free:
                port = free.getsockname()[1]
            by_hand = ["--comm", "jax", "--coordinator", f"localhost:{port}"]
            by_hand += ["--num-processes", str(n), "--process-id"]
            each = each or [[]] * n
            commands = [[*command, *by_hand, str(r), *each[r]] for r in range(n)]
        elif n == 1:
            commands = [command]
        else:
            needs_mpi()
            before = [str(MPIEXEC), "-n", str(n)] if kind == "mpi" else kind
            env = environment | (MPICH if kind != "mpi" else {})
            commands = [[*before, *command]]
        pipe = subprocess.PIPE
        processes = [
            subprocess.Popen(
                c, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
            )
            for c in commands
        ]
        started.extend(processes)
        return processes

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()  # mpiexec ends its ranks
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def finish(processes):
    """Statuses, and what all wrote to standard output and standard error."""
    end = time.monotonic() + LIMIT
    said = [p.communicate(timeout=max(end - time.monotonic(), 1)) for p in processes]
    outs, errs = zip(*said, strict=True)
    err = "".join(line for line in "".join(errs).splitlines(True) if "[Gloo]" not in line)
    return [p.returncode for p in processes], "".join(outs), err


def result(processes):
    statuses, out, err = finish(processes)
    assert set(statuses) == {0}, err
    assert out.count("\n") == 1, out
    assert "Traceback" not in err
    return json.loads(out), err


def rank_pids(run_dir, n):
    """The process of each rank, of a run started in `run_dir`."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode().split("\0")
            if "python" in words[0] and str(run_dir) in words:
                env = (place / "environ").read_bytes().decode().split("\0")
                rank = next((e[9:] for e in env if e.startswith("PMI_RANK=")), None)
                found[int(rank or words[words.index("--process-id") + 1])] = int(place.name)
        except (OSError, IndexError):
            continue  # it has ended
    assert sorted(found) == list(range(n))
    return found


def wait_for(run_dir, processes, steps):
    """Until the run has a checkpoint after so many further steps."""

    def newest():
        found = checkpoint.checkpoints(run_dir / folder.CHECKPOINTS)
        return int(found[-1].name.split("-")[1]) if found else 0

    aim, end = newest() + steps, time.monotonic() + LIMIT
    while newest() < aim:
        if any(p.poll() is not None for p in processes):
            pytest.fail("\n".join(map(str, finish(processes))))  # whole, unlike an assertion's
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
    """`whole(kind)`: the result of a run of 2 ranks that nothing interrupted."""

    def make(kind):
        if kind not in wholes:
            run_dir = tmp_path_factory.mktemp(kind) / "run"
            flags = (*FLAGS, "--partition", parts, "--epochs", EPOCHS, "--batch-size", 12)
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
    assert held == {"config.json", "metrics.jsonl", "checkpoints", "curve.png"}
    rows = folder.read_metrics(run_dir, EPOCHS)
    assert [row["epoch"] for row in rows] == list(range(1, EPOCHS + 1))


def test_resume_by_another_number_of_ranks(start, whole, parts, tmp_path):
    want = arrays(Path(whole("mpi")[0]["run_dir"]))
    run_dir = tmp_path / "run"
    flags = ("--run-dir", run_dir, "--resume", "--no-progress", "--epochs")
    new = (*FLAGS, "--partition", parts, "--batch-size", 24, "--run-dir", run_dir)
    result(start("mpi", 1, *new, "--epochs", 3))
    result(start("mpi", 4, *flags, 6))
    result(start("mpi", 2, *flags, 9))
    _, err = result(start("mpi", 1, *flags, EPOCHS))
    assert "resuming after 9 epochs" in err
    for mine, theirs in zip(arrays(run_dir), want, strict=True):
        assert np.abs(mine - theirs).max(initial=0) <= 1e-5 * np.abs(theirs).max(initial=0)


def harm_and_resume(start, kind, whole, parts, run_dir, harms):
    """A run that comes to each of `harms` in turn, resumed to its end."""
    flags = (*FLAGS, "--partition", parts, "--epochs", EPOCHS, "--batch-size", 12)
    flags = (*flags, "--run-dir", run_dir, "--resume")
    for number, (harm, rank) in enumerate(harms):
        processes = start(kind, 2, *flags)
        wait_for(run_dir, processes, 6 + number)
        pids = rank_pids(run_dir, 2)
        began = time.monotonic()
        if harm == signal.SIGINT and kind == "jax":
            for process in processes:  # a terminal's whole group
                process.send_signal(harm)
        elif harm == signal.SIGINT:
            os.killpg(processes[0].pid, harm)
        else:
            os.kill(pids[rank], harm)
        if kind != "mpi" and harm == signal.SIGSTOP:
            wait_for_end(pids[1 - rank])
            print(f"the other ended after {time.monotonic() - began:.2f} s")
            os.kill(pids[rank], signal.SIGKILL)  # hydra does so on its own host only
        statuses, out, err = finish(processes)
        print(f"{harm.name} of rank {rank}: {statuses} after {time.monotonic() - began:.2f} s")
        print(out, err, sep="\n")
        assert "Traceback" not in err
        assert "test_accuracy" not in out
        if harm == signal.SIGINT:
            # A rank that comes late to its own signal may say that the other was interrupted.
            assert sum(line.startswith("interrupted") for line in err.splitlines()) == 1
            assert 0 not in statuses
        else:
            lost = "is gone" if harm == signal.SIGKILL else "nothing heard of"
            lines = [s for s in err.splitlines() if f"rank {1 - rank} ends:" in s]
            # Of a killed rank mpiexec may tell and end the others before they speak.
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


HARMS = [(signal.SIGKILL, 1), (signal.SIGINT, 0), (signal.SIGSTOP, 0)]


@pytest.mark.parametrize("kind", ["mpi", "jax"])
def test_a_lost_rank_and_ctrl_c_end_all_and_resume_is_exact(
    start, whole, parts, tmp_path, kind
):
    harm_and_resume(start, kind, whole(kind)[0], parts, tmp_path / "run", HARMS)


def test_two_hosts(start, whole, parts, tmp_path):
    needs_mpi()
    alone = whole("mpi")[0]
    try:
        with two_hosts(tmp_path, MPIEXEC) as command:
            harms = [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)]
            harm_and_resume(start, command, alone, parts, tmp_path / "run", harms)
    except NotPermitted as reason:
        pytest.skip(f"two hosts need network namespaces, as root: {reason}")


def without_parts(parts, tmp_path):
    return 2, ["--epochs", 1], "no --partition"


def three_ranks(parts, tmp_path):
    return 3, ["--partition", parts], "4 parts"


def missing_part(parts, tmp_path):
    bad = shutil.copytree(parts, tmp_path / "bad")
    shutil.rmtree(bad / "part-00003")  # of rank 1
    return 2, ["--partition", bad], "part-00003"


def part_of_another_graph(parts, tmp_path):
    bad = shutil.copytree(parts, tmp_path / "bad")
    other = make_parts(tmp_path / "other", seed=1)
    for name in ("part-00001", "part-00003"):  # one of each rank
        shutil.rmtree(bad / name)
        shutil.copytree(other / name, bad / name)
    return 2, ["--partition", bad], "a folder of another graph"


def odd_batch(parts, tmp_path):
    return 2, ["--partition", parts, "--batch-size", 13], "--batch-size 13 for 2 parts"


def weighted_without_weights(parts, tmp_path):
    return 2, ["--partition", parts, "--weighted"], "edge weights"


def impatient(parts, tmp_path):
    return 2, ["--partition", parts, "--watchdog", 0], "--watchdog must be at least 1"


def no_validation(parts, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        edge_index=rng.integers(0, 90, (2, 600)).astype(np.int32),
        features=rng.normal(size=(90, 4)).astype(np.float32),
        labels=np.arange(90, dtype=np.int32) % 3,
        num_nodes=np.int64(90),
        num_classes=np.int64(3),
        train_idx=np.arange(60, dtype=np.int32),
        val_idx=np.arange(0, dtype=np.int32),
        test_idx=np.arange(60, 90, dtype=np.int32),
    )
    argv = ["--dataset", str(tmp_path / "data.npz"), "--parts", "2", "--method", "random"]
    assert partition([*argv, "--out", str(tmp_path / "few")]) == 0
    return 2, ["--partition", tmp_path / "few"], "the val split must not be empty"


def folder_not_empty(parts, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    return 2, ["--partition", parts], "thesis.txt"


BAD = [
    without_parts,
    three_ranks,
    missing_part,
    part_of_another_graph,
    odd_batch,
    weighted_without_weights,
    impatient,
    no_validation,
    folder_not_empty,
]


def one_error(processes, expected):
    statuses, out, err = finish(processes)
    lines = [line for line in err.splitlines() if not line.startswith("capacity")]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert set(statuses) == {2}
    assert out == ""


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_one_line(start, parts, tmp_path, bad):
    n, flags, expected = bad(parts, tmp_path)
    flags = [*FLAGS, "--batch-size", 12, *flags, "--run-dir", tmp_path / "run"]
    one_error(start("mpi", n, *flags), expected)


def test_folder_in_use(start, parts, tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"):
        flags = [
            *FLAGS,
            "--partition",
            parts,
            "--run-dir",
            tmp_path / "run",
            "--batch-size",
            12,
        ]
        one_error(start("mpi", 2, *flags), "in use by another")


def test_ranks_started_differently(start, parts, tmp_path):
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    processes = start("jax", 2, *flags, each=[[], ["--hidden", "9"]])
    one_error(processes, "--hidden: 8 on rank 0; 9 on rank 1")


@pytest.mark.parametrize("num_parts", [2, 4])
def test_ranks_with_other_parts(start, parts, tmp_path, num_parts):
    """Of another number, or of as many nodes and seeds."""
    other = make_parts(tmp_path / "other", seed=1, num_parts=num_parts)
    flags = [*FLAGS, "--batch-size", 12, "--epochs", 1, "--run-dir", tmp_path / "run"]
    each = [["--partition", str(parts)], ["--partition", str(other)]]
    one_error(start("jax", 2, *flags, each=each), "the parts: ")
    assert not (tmp_path / "run").exists()


def test_a_bad_flag_of_one_rank_ends_all(environment, parts, tmp_path):
    """It exits before MPI_Init, in which the other waits for it."""
    needs_mpi()
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    command = [sys.executable, "-m", "jgs.train", *map(str, flags)]
    ranks = ["-n", "1", *command, ":", "-n", "1", *command, "--hiden", "9"]
    done = subprocess.run(
        [str(MPIEXEC), *ranks], env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode
    assert done.stderr.count("error: the command line must parse") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_refused_resume_leaves_the_run_as_it_was(parts, tmp_path, capsys):
    from jgs.train.__main__ import main

    run_dir = ["--run-dir", str(tmp_path / "run")]
    flags = [*FLAGS, "--batch-size", "12", "--partition", str(parts), "--no-keep-memory"]
    assert main([*flags, *run_dir, "--epochs", "1"]) == 0
    other = make_parts(tmp_path / "other", seed=1)
    capsys.readouterr()
    assert main([*run_dir, "--resume", "--partition", str(other)]) == 2
    assert "other parts" in capsys.readouterr().err
    assert main([*run_dir, "--resume", "--epochs", "2"]) == 0
    assert main([*run_dir, "--resume"]) == 0


def test_resume_keeps_the_watchdog_s_patience(parts, tmp_path, monkeypatch):
    from jgs.train import launched
    from jgs.train.__main__ import main

    made = []

    def spy(*arguments, **options):
        made.append(Watchdog(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(launched, "Watchdog", spy)
    run_dir = ["--run-dir", str(tmp_path / "run")]
    flags = [*FLAGS, "--batch-size", "12", "--partition", str(parts), "--no-keep-memory"]
    assert main([*flags, *run_dir, "--epochs", "1", "--watchdog", "600"]) == 0
    assert main([*run_dir, "--resume", "--epochs", "2"]) == 0
    assert main([*run_dir, "--resume", "--watchdog", "7"]) == 0
    assert [watchdog.timeout for watchdog in made] == [600, 600, 7]


def test_full_disk(start, parts, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(run_dir)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", run_dir]
        one_error(start("mpi", 2, *flags), "with room on its disk")
    finally:
        subprocess.run(["umount", str(run_dir)], check=True)
