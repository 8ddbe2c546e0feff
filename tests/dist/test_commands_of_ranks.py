"""Commands on two ranks: they write what one process writes; bad input gives one line."""

import functools
import json
import shutil
import subprocess
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from cases import cases
from forks import ended, quick_python
from ranks import MPIEXEC, needs_mpi, run_ranks
from refusals import command_refused
from small_ranks import FLAGS, make_parts, ranks_of, train_on

import jgs
from jgs.dist.communicators import launch
from jgs.dist.supervision.watchdog import Watchdog
from jgs.files.writing import locked
from jgs.predict.__main__ import main as predict
from jgs.train.__main__ import main
from jgs.train.loop import checkpoint, folder

TRAIN = ["train", *FLAGS, "--batch-size", 12]
USED = ("not empty", "in use")  # run folders
EMBED = """
    --task embed --sampler node2vec --p 0.5 --q 2 --dim 4 --walk-length 6 --num-walks 2
    --window 2 --shared-negatives 3 --lr 0.2 --epochs 1 --checkpoint-every 6 --keep 99
    --no-progress --watchdog 8
"""


CONTEXTS = "--sampler context --context-size 5 --model relgt --layers 1"


def bad_input(parts, folder):
    """By name: the flags of both ranks, or of each; what the error says."""
    of, other = ["--partition", parts], make_parts(folder / "other", seed=1)
    mixed, less = (shutil.copytree(parts, folder / name) for name in ("mixed", "less"))
    for name in ("part-00001", "part-00003"):  # one part of each rank
        shutil.rmtree(mixed / name)
        shutil.copytree(other / name, mixed / name)
    shutil.rmtree(less / "part-00003")  # a part of rank 1
    three = make_parts(folder / "three", num_parts=3)
    for name in USED:
        (folder / name).mkdir()
    (folder / "not empty" / "thesis.txt").touch()
    used = "compiled kernels: used on rank 0; not used on rank 1"
    x64 = "jax_enable_x64: False on rank 0; True on rank 1. Start all ranks with the same"
    return {
        "without parts": (["--epochs", 1], "no --partition"),
        "a part of another graph": (["--partition", mixed], "a folder of another graph"),
        "a missing part": (["--partition", less], "part-00003"),
        "parts that 2 does not divide": (["--partition", three], "3 parts"),
        # They have as many nodes and seeds.
        "other parts on a rank": ((of, ["--partition", other]), "the parts: "),
        "another flag on a rank": (
            (of, [*of, "--hidden", 9]),
            "--hidden: 8 on rank 0; 9 on rank 1",
        ),
        "other environments": ((of, [*of, "jax_enable_x64", "no_kernels"]), f"{used} | {x64}"),
        "no patience": ([*of, "--watchdog", 0], "--watchdog must be at least 1"),
        "an odd batch": ([*of, "--batch-size", 13], "--batch-size 13 for 2 parts"),
        "no weights": ([*of, "--weighted"], "edge weights"),
        "a device": ([*of, "--device", "cpu:1"], "a device's number must be one of 0"),
        "not empty": (of, "thesis.txt"),
        "in use": (of, "in use by another"),
    }


def commands(parts, folder):
    """Commands that end well, and one of `jgs.predict` that does not."""
    flags = [*TRAIN, "--partition", parts, "--run-dir", folder / "run", "--epochs", 1]
    known = ["predict", "--run-dir", folder / "run"]
    (folder / "ids").write_text("3\n-1\n")
    (folder / "good ids").write_text("590\n3\n590\n")
    embed = ["train", *embedding(folder), "--batch-size", 6]
    return {
        "train": flags,
        "predict": [*known, "--split", "test", "--out", folder / "two.npy"],
        "predict-bad": [*known, "--nodes", folder / "ids", "--out", folder / "no.csv"],
        "embed": [*embed, "--run-dir", folder / "embed"],
        "contexts": [*flags, *CONTEXTS.split(), "--run-dir", folder / "contexts"],
        "predict contexts": [
            *("predict", "--run-dir", folder / "contexts", "--nodes", folder / "good ids"),
            *("--out", folder / "two contexts.npy"),
        ],
    }


def embedding(folder):
    """The flags for a graph without labels; its 50 nodes are no multiple of ranks or walks."""
    path, time = folder / "graph.npz", np.arange(300) // 2 % 40
    src, dst = np.random.default_rng(0).integers(49, size=(2, 150))
    edges = np.stack([np.r_[src, dst], np.r_[dst, src]])
    np.savez(path, edge_index=edges, num_nodes=50, edge_time=time)
    return [*EMBED.split(), "--dataset", path]


def on_full_disks(parts, folder):
    """The disk of the checkpoints is full, or that of one rank's evaluation."""
    flags = [*TRAIN, "--partition", parts, "--run-dir"]
    # 300 own nodes need 1.3 MiB for each layer.
    wide = [*flags, folder / "wide", "--hidden", 1100, "--eval-memory", 1, "--scratch"]
    return {
        "checkpoint": [[*flags, folder / "disk"]] * 2,
        "evaluation": [[*wide, folder / "new" / "folder"], [*wide, folder / "scratch"]],
    }


@contextmanager
def small_disk(folder):
    """Yields whether there is one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def answered(parts, tmp_path_factory):
    """`answered(name)`: what two ranks said to a command: statuses, output, errors."""
    folder, cases, errors = tmp_path_factory.mktemp("ranks"), {}, {}
    for name, words in commands(parts, folder).items():
        cases[name] = [words, words]
    for name, (flags, error) in bad_input(parts, folder).items():
        each = flags if isinstance(flags, tuple) else (flags, flags)
        cases[name] = [[*TRAIN, "--run-dir", folder / name, *own] for own in each]
        errors[name] = error
    with ExitStack() as stack:
        disks = [stack.enter_context(small_disk(folder / n)) for n in ("disk", "scratch")]
        if all(disks):
            cases |= on_full_disks(parts, folder)
        stack.enter_context(locked(folder / "in use"))
        argv = {n: [list(map(str, words)) for words in each] for n, each in cases.items()}
        (folder / "cases.json").write_text(json.dumps(argv))
        script = Path(__file__).with_name("check_commands.py")
        run_ranks(script, "mpi", 2, folder / "cases.json", folder)

    def answer(name):
        if name not in cases:
            pytest.skip("mounting a small disk needs root")
        files = [folder / f"{name}-{rank}" for rank in range(2)]
        statuses = [int(file.with_suffix(".status").read_text()) for file in files]
        said = ("".join(f.with_suffix(s).read_text() for f in files) for s in (".out", ".err"))
        return statuses, *said

    answer.bad, answer.folder = errors, folder
    return answer


def result(answer):
    statuses, out, err = answer
    assert statuses == [0, 0], err
    assert out.count("\n") == 1, out
    return json.loads(out)


def is_one_error(statuses, out, err, expected):
    planned = ("training on", "capacity", "  edges")
    lines = [line for line in err.splitlines() if not line.startswith(planned)]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert set(statuses) == {2}
    assert out == ""


def test_bad_input_is_one_line(answered):
    for name, error in answered.bad.items():
        is_one_error(*answered(name), error)
        kept = (*USED, "a device")  # which is looked for once the run has its folder
        assert (answered.folder / name).exists() == (name in kept), name


def test_predictions_are_those_of_one_process(answered):
    folder = answered.folder
    assert result(answered("train"))["epochs"] == 1
    alone = ["--run-dir", str(folder / "run"), "--split", "test", "--out"]
    assert predict([*alone, str(folder / "one.npy")]) == 0
    one, two = np.load(folder / "one.npy"), np.load(folder / "two.npy")
    assert result(answered("predict"))["nodes"] == len(two) == len(one)
    for name in ("node", "prediction"):
        np.testing.assert_array_equal(two[name], one[name])
    np.testing.assert_allclose(two["probability"], one["probability"], rtol=1e-5)
    is_one_error(*answered("predict-bad"), "got -1 (number 2)")


def test_predictions_by_contexts_are_those_of_one_process(answered):
    folder = answered.folder
    assert result(answered("contexts"))["epochs"] == 1
    assert result(answered("predict contexts"))["nodes"] == 3
    two, run = np.load(folder / "two contexts.npy"), jgs.open_run(folder / "contexts")
    assert two["node"].tolist() == [590, 3, 590]
    wanted = run.predict(two["node"]).probability
    np.testing.assert_allclose(two["probability"], wanted, rtol=1e-5)


@pytest.fixture(scope="module")
def embed(tmp_path_factory):
    """`embed(name, ranks, flags...)`: the embeddings of the run of that name in `folder`."""

    @functools.cache
    def embed(name, ranks, *flags):
        run_dir = embed.folder / name
        new = [*embedding(embed.folder), "--batch-size", 12 // ranks]
        train_on(
            ranks_of(ranks), *([] if run_dir.exists() else new), *flags, "--run-dir", run_dir
        )
        return np.load(run_dir / "embeddings.npy")

    embed.folder = tmp_path_factory.mktemp("embed")
    return embed


def near(found, wanted):
    return np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_embeddings_are_those_of_one_process(answered, embed):
    assert "accuracy" not in result(answered("embed"))
    assert near(np.load(answered.folder / "embed" / "embeddings.npy"), embed("1", 1))


def test_embeddings_are_those_of_one_rank(embed):
    one, three = embed("1", 1), embed("3", 3)
    assert near(three, one)
    assert np.abs(one).min(axis=0).max() > 0  # the isolated node has a row as well
    # As if it was killed after the seventh of nine steps.
    for ranks in (3, 1):
        again = embed.folder / f"again-{ranks}"
        shutil.copytree(embed.folder / "3", again)
        for path in checkpoint.checkpoints(again / folder.CHECKPOINTS):
            if int(path.name.split("-")[1]) > 7:
                shutil.rmtree(path)
        (again / "embeddings.npy").unlink()
        found = embed(again.name, ranks, "--resume")
        assert np.array_equal(found, three) if ranks == 3 else near(found, one)


def test_embeddings_by_causal_walks_are_those_of_one_rank(embed):
    assert near(embed("four", 4, "--causal"), embed("one", 1, "--causal"))


@cases(
    "name, rank, disk, rule",
    ("checkpoint", 0, "disk", "with room on its disk"),
    ("evaluation", 1, "scratch", "evaluation must have room for 2 MiB"),
)
def test_a_full_disk_is_named(answered, name, rank, disk, rule):
    """The error names the rank and the room that is missing."""
    is_one_error(*answered(name), rule)
    err = answered(name)[2]
    assert f"error: rank {rank} on " in err
    full = answered.folder / disk
    assert f"0 MiB free on the disk at {full}, 1 MiB too few" in err
    assert name == "checkpoint" or "--scratch" in err


def test_a_bad_flag_of_one_rank_ends_all(environment, parts, tmp_path):
    """The rank exits before MPI_Init, in which the other rank waits for it."""
    needs_mpi()
    flags = [*FLAGS, "--partition", parts, "--batch-size", 12, "--run-dir", tmp_path / "run"]
    command = [quick_python(), "-m", "jgs.train", *map(str, flags)]
    ranks = ["-n", "1", *command, ":", "-n", "1", *command, "--hiden", "9"]
    done = ended(MPIEXEC, *ranks, env=environment)
    assert done.returncode
    assert done.stderr.count("error: the command line must parse") == 1
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_parts_and_the_watchdog_s_patience(
    parts, tmp_path, monkeypatch, capsys
):
    """A resume that is refused leaves the run as it was."""
    made = []

    def spy(*arguments, **options):
        made.append(Watchdog(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(launch, "Watchdog", spy)
    run_dir = ["--run-dir", str(tmp_path / "run")]
    flags = [*FLAGS, "--batch-size", "12", "--partition", str(parts), "--no-keep-memory"]
    assert main([*flags, *run_dir, "--epochs", "1", "--watchdog", "600"]) == 0
    other = make_parts(tmp_path / "other", seed=1)
    argv = [*run_dir, "--resume", "--partition", str(other)]
    command_refused(capsys, "other parts", main, argv)
    assert main([*run_dir, "--resume", "--epochs", "2"]) == 0
    assert main([*run_dir, "--resume", "--watchdog", "7"]) == 0
    assert [watchdog.timeout for watchdog in made] == [600, 600, 600, 7]
