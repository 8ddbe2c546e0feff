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

from jgs.dist.supervision.watchdog import Watchdog
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


def missing_part(parts, tmp_path):
    bad = shutil.copytree(parts, tmp_path / "bad")
    shutil.rmtree(bad / "part-00003")  # a part of rank 1
    return ["--partition", bad], "part-00003"


def fewer_parts_on_a_rank(parts, tmp_path):
    other = make_parts(tmp_path / "other", seed=1, num_parts=2)
    return (["--partition", parts], ["--partition", other]), "the parts: "


def other_parts_on_a_rank(parts, tmp_path):
    """They have as many nodes and seeds, but other contents."""
    other = make_parts(tmp_path / "other", seed=1)
    return (["--partition", parts], ["--partition", other]), "the parts: "


def watchdog_without_patience(parts, tmp_path):
    return ["--partition", parts, "--watchdog", 0], "--watchdog must be at least 1"


def another_setting_of_jax(parts, tmp_path):
    expected = "jax_enable_x64: False on rank 0; True on rank 1. Start all ranks with the same"
    flags = ["--partition", parts]
    return (flags, ["jax_enable_x64", *flags]), expected


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
    missing_part,
    fewer_parts_on_a_rank,
    other_parts_on_a_rank,
    watchdog_without_patience,
    another_setting_of_jax,
    odd_batch,
    weighted_without_weights,
    no_validation,
    folder_not_empty,
    folder_in_use,
]


def is_one_error(statuses, out, err, expected):
    planned = ("training on", "capacity", "  edges")
    lines = [line for line in err.splitlines() if not line.startswith(planned)]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert set(statuses) == {2}
    assert out == ""


def one_error(processes, expected):
    is_one_error(*finish(processes), expected)


def answers_to(cases, folder):
    """What two ranks, started once, say to each of `cases`, which have the flags of each rank:
    statuses, output, errors."""
    argv = {name: [list(map(str, flags)) for flags in each] for name, each in cases.items()}
    (folder / "cases.json").write_text(json.dumps(argv))
    script = Path(__file__).with_name("check_bad_input.py")
    run_ranks(script, "mpi", 2, folder / "cases.json", folder)

    def of(name):
        files = [folder / f"{name}-{rank}" for rank in range(2)]
        statuses = [int(file.with_suffix(".status").read_text()) for file in files]
        said = ("".join(f.with_suffix(s).read_text() for f in files) for s in (".out", ".err"))
        return statuses, *said

    return {name: of(name) for name in cases}


@pytest.fixture(scope="module")
def answers(parts, tmp_path_factory):
    """`answers_to` all of BAD, each with the expected error and the run folder."""
    folder, cases, expected = tmp_path_factory.mktemp("bad"), {}, {}
    for bad in BAD:
        (place := folder / bad.__name__).mkdir()
        flags, error = bad(parts, place)
        each = flags if isinstance(flags, tuple) else (flags, flags)
        same = [*FLAGS, "--batch-size", 12, "--run-dir", place / "run"]
        cases[bad.__name__] = [[*same, *own] for own in each]
        expected[bad] = error, place / "run"
    with locked(folder / "folder_in_use" / "run"):
        said = answers_to(cases, folder)
    return {bad: (said[bad.__name__], *expected[bad]) for bad in BAD}


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_is_one_line(answers, bad):
    told, expected, run_dir = answers[bad]
    is_one_error(*told, expected)
    assert run_dir.exists() == (bad in (folder_not_empty, folder_in_use))


def test_ranks_that_do_not_divide_the_parts(start, parts, tmp_path):
    flags = [*FLAGS, "--batch-size", 12, "--partition", parts, "--run-dir", tmp_path / "run"]
    one_error(start("mpi", 3, *flags), "4 parts")


def test_ranks_started_differently(start, parts, tmp_path):
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    processes = start("jax", 2, *flags, each=[[], ["--hidden", "9"]])
    one_error(processes, "--hidden: 8 on rank 0; 9 on rank 1")


def test_ranks_in_other_environments(start, parts, tmp_path):
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    other = {"JAX_ENABLE_X64": "1", "JGS_KERNELS": "off"}
    processes = start("jax", 2, *flags, variables=[{}, other])
    kernels, x64 = "compiled kernels: used", "jax_enable_x64: False"
    said = f"{kernels} on rank 0; not used on rank 1 | {x64} on rank 0; True on rank 1. Start"
    one_error(processes, said)


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
    from jgs.dist.communicators import together
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


def test_a_full_disk_is_named(parts, tmp_path):
    """The disk of the checkpoints is full, or that of one rank's evaluation. The error names
    the rank and the room that is missing."""
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12]
    # 300 own nodes need 1.3 MiB for each layer.
    wide = [*flags, "--hidden", 1100, "--eval-memory", 1, "--run-dir", tmp_path / "run"]
    with small_disk(tmp_path / "disk") as disk, small_disk(tmp_path / "scratch") as scratch:
        other = tmp_path / "new" / "folder"
        cases = {
            "checkpoint": [[*flags, "--run-dir", disk]] * 2,
            "evaluation": [[*wide, "--scratch", place] for place in (other, scratch)],
        }
        answers = answers_to(cases, tmp_path)
    for case, rank, full, rule in (
        ("checkpoint", 0, disk, "with room on its disk"),
        ("evaluation", 1, scratch, "evaluation must have room for 2 MiB"),
    ):
        is_one_error(*answers[case], rule)
        err = answers[case][2]
        assert f"error: rank {rank} on " in err
        assert f"0 MiB free on the disk at {full}, 1 MiB too few" in err
    assert "--scratch" in err
