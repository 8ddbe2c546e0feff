"""Bad input to `python -m jgs.train --partition` gives one line, whichever rank finds it."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from launched import FLAGS, LIMIT, finish, make_parts
from ranks import MPIEXEC, needs_mpi, run_ranks

from jgs.dist.watchdog import Watchdog
from jgs.files.writing import locked
from jgs.partition.__main__ import main as partition


def without_parts(parts, tmp_path):
    return ["--epochs", 1], "no --partition"


def part_of_another_graph(parts, tmp_path):
    bad = shutil.copytree(parts, tmp_path / "bad")
    other = make_parts(tmp_path / "other", seed=1)
    for name in ("part-00001", "part-00003"):  # one part of each rank
        shutil.rmtree(bad / name)
        shutil.copytree(other / name, bad / name)
    return ["--partition", bad], "a folder of another graph"


def odd_batch(parts, tmp_path):
    return ["--partition", parts, "--batch-size", 13], "--batch-size 13 for 2 parts"


def weighted_without_weights(parts, tmp_path):
    return ["--partition", parts, "--weighted"], "edge weights"


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
    return ["--partition", tmp_path / "few"], "the val split must not be empty"


def folder_not_empty(parts, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").touch()
    return ["--partition", parts], "thesis.txt"


def folder_in_use(parts, tmp_path):
    (tmp_path / "run").mkdir()
    return ["--partition", parts], "in use by another"


BAD = [
    without_parts,
    part_of_another_graph,
    odd_batch,
    weighted_without_weights,
    no_validation,
    folder_not_empty,
    folder_in_use,
]


def is_one_error(statuses, out, err, expected):
    planned = ("capacity", "  edges")
    lines = [line for line in err.splitlines() if not line.startswith(planned)]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert set(statuses) == {2}
    assert out == ""


def one_error(processes, expected):
    is_one_error(*finish(processes), expected)


@pytest.fixture(scope="module")
def answers(parts, tmp_path_factory):
    """What two ranks, started once, said to each case of BAD: statuses, output, errors. The
    expected error comes with it."""
    folder, cases, expected = tmp_path_factory.mktemp("bad"), {}, {}
    for bad in BAD:
        (place := folder / bad.__name__).mkdir()
        flags, expected[bad] = bad(parts, place)
        flags = [*FLAGS, "--batch-size", 12, *flags, "--run-dir", place / "run"]
        cases[bad.__name__] = list(map(str, flags))
    (folder / "cases.json").write_text(json.dumps(cases))
    with locked(folder / "folder_in_use" / "run"):
        script = Path(__file__).with_name("check_bad_input.py")
        run_ranks(script, "mpi", 2, folder / "cases.json", folder)

    def of(bad):
        files = [folder / f"{bad.__name__}-{rank}" for rank in range(2)]
        statuses = [int(file.with_suffix(".status").read_text()) for file in files]
        said = ("".join(f.with_suffix(s).read_text() for f in files) for s in (".out", ".err"))
        return statuses, *said

    return {bad: (*of(bad), expected[bad]) for bad in BAD}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_one_line(answers, bad):
    is_one_error(*answers[bad])


@pytest.mark.parametrize(
    ("n", "flags", "expected"),
    [
        (3, [], "4 parts"),
        (2, ["--watchdog", 0], "--watchdog must be at least 1"),
    ],
)
def test_bad_flags_are_one_line(start, parts, tmp_path, n, flags, expected):
    flags = [*FLAGS, "--batch-size", 12, "--partition", parts, *flags]
    one_error(start("mpi", n, *flags, "--run-dir", tmp_path / "run"), expected)


def test_a_missing_part_is_one_line(start, parts, tmp_path):
    bad = shutil.copytree(parts, tmp_path / "bad")
    shutil.rmtree(bad / "part-00003")  # a part of rank 1
    flags = [*FLAGS, "--batch-size", 12, "--partition", bad, "--run-dir", tmp_path / "run"]
    one_error(start("mpi", 2, *flags), "part-00003")


def test_ranks_started_differently(start, parts, tmp_path):
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    processes = start("jax", 2, *flags, each=[[], ["--hidden", "9"]])
    one_error(processes, "--hidden: 8 on rank 0; 9 on rank 1")


@pytest.mark.parametrize("num_parts", [2, 4])
def test_ranks_with_other_parts(start, parts, tmp_path, num_parts):
    """The other parts differ in number, or have as many nodes and seeds but other contents."""
    other = make_parts(tmp_path / "other", seed=1, num_parts=num_parts)
    flags = [*FLAGS, "--batch-size", 12, "--epochs", 1, "--run-dir", tmp_path / "run"]
    each = [["--partition", str(parts)], ["--partition", str(other)]]
    one_error(start("jax", 2, *flags, each=each), "the parts: ")
    assert not (tmp_path / "run").exists()


def test_a_bad_flag_of_one_rank_ends_all(environment, parts, tmp_path):
    """The rank exits before MPI_Init, in which the other rank waits for it."""
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
    from jgs.dist import together
    from jgs.train.__main__ import main

    made = []

    def spy(*arguments, **options):
        made.append(Watchdog(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(together, "Watchdog", spy)
    run_dir = ["--run-dir", str(tmp_path / "run")]
    flags = [*FLAGS, "--batch-size", "12", "--partition", str(parts), "--no-keep-memory"]
    assert main([*flags, *run_dir, "--epochs", "1", "--watchdog", "600"]) == 0
    assert main([*run_dir, "--resume", "--epochs", "2"]) == 0
    assert main([*run_dir, "--resume", "--watchdog", "7"]) == 0
    assert [watchdog.timeout for watchdog in made] == [600, 600, 7]


@contextmanager
def small_disk(folder):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_named(start, parts, tmp_path):
    """First the disk of the checkpoints is full, then that of one rank's evaluation. The error
    names the rank and the room that is missing."""
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12]
    with small_disk(tmp_path / "disk") as disk:
        _, _, err = told = finish(start("mpi", 2, *flags, "--run-dir", disk))
        is_one_error(*told, "with room on its disk")
        lacks = f"0 MiB free on the disk at {disk}, "
        assert "error: rank 0 on " in err
        assert f"{lacks}1 MiB too few" in err
        shutil.rmtree(disk / "checkpoints")
        # 300 own nodes need 1.3 MiB for each layer.
        flags += ["--hidden", 1100, "--eval-memory", 1, "--run-dir", tmp_path / "run"]
        each = [["--scratch", str(tmp_path / "new" / "folder")], ["--scratch", str(disk)]]
        _, _, err = told = finish(start("jax", 2, *flags, each=each))
        is_one_error(*told, "evaluation must have room for 2 MiB")
        assert "error: rank 1 on " in err
        assert f"{lacks}1 MiB too few" in err
        assert "--scratch" in err
