"""What a user can get wrong ends in one line and exit status 2, without a traceback."""

import os
import shutil

import numpy as np
import pytest

from jgs.train.__main__ import main

N = 30


def write(path, **changes):
    rng = np.random.default_rng(0)
    arrays = {
        "edge_index": rng.integers(0, N, (2, 200)).astype(np.int32),
        "features": rng.normal(size=(N, 4)).astype(np.float32),
        "labels": np.arange(N, dtype=np.int32) % 3,
        "num_nodes": np.int64(N),
        "num_classes": np.int64(3),
        "train_idx": np.arange(10, dtype=np.int32),
        "val_idx": np.arange(10, 20, dtype=np.int32),
        "test_idx": np.arange(20, 30, dtype=np.int32),
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def good(path):
    write(path)


def missing(path):
    pass


def truncated(path):
    write(path)
    path.write_bytes(path.read_bytes()[:700])


def text(path):
    path.write_text("this is no archive\n")


def few_features(path):
    write(path, features=np.zeros((N - 1, 4), np.float32))


def large_label(path):
    write(path, labels=np.full(N, 3, np.int32))


def negative_label(path):
    write(path, labels=np.full(N, -2, np.int32))


def nan_features(path):
    features = np.zeros((N, 4), np.float32)
    features[5, 2] = np.nan
    write(path, features=features)


def foreign_edges(path):
    write(path, edge_index=np.array([[0, N], [1, 2]], np.int32))


def foreign_split(path):
    write(path, train_idx=np.array([0, N], np.int32))


def no_labels(path):
    write(path, labels=None)


def no_validation(path):
    write(path, val_idx=np.zeros(0, np.int32))


def pickled(path):
    write(path, labels=np.array([None] * N))


TABLE = [
    (missing, "", "data.npz"),
    (truncated, "", "whole"),
    (text, "", "data.npz"),
    (few_features, "", "features"),
    (large_label, "", "labels"),
    (negative_label, "", "labels"),
    (nan_features, "", "finite"),
    (foreign_edges, "", "node ids"),
    (foreign_split, "", "train"),
    (no_labels, "", "labels"),
    (no_validation, "", "val"),
    (pickled, "", "pickles"),
    (good, "--fanouts 0", "fanout"),
    (good, "--fanouts 5 x", "--fanouts"),
    (good, "--batch-size 11", "--batch-size"),
    (good, "--batch-size 0", "--batch-size"),
    (good, "--epochs 0", "--epochs"),
    (good, "--dropout 1.5", "--dropout"),
    (good, "--no-such-flag", "--no-such-flag"),
    (good, "--weighted", "--weighted"),
    (good, "--lr-end 0.5", "--lr-end must be for --lr-schedule cosine or"),
    (good, "--lr-schedule cosine --warmup-steps 3", "--warmup-steps must be for"),
    (good, "--task links --sampler seal --metric auc", "--metric must be for --task nodes or"),
    (good, "--task embed --patience 3", "--patience must be for --task nodes or links"),
    (good, "--lr-schedule warmup_cosine --warmup-steps 2", "than the run's steps, 2; got 2"),
    (
        good,
        "--task links --sampler seal --lr-schedule warmup_cosine --warmup-steps 999",
        "--warmup-steps must be fewer than",
    ),
    (good, "--scratch data.npz", "--scratch must be a folder that takes files"),
    (good, "--data-options colour=red", "colour"),
    (good, "--dataset no-such-data", "no-such-data"),
    (good, "--dataset ogbn-none", "ogbn-none"),
]


@pytest.mark.parametrize(
    ("spoil", "flags", "word"), TABLE, ids=lambda v: getattr(v, "__name__", v)
)
def test_bad_input(tmp_path, capsys, monkeypatch, spoil, flags, word):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "data.npz"
    spoil(path)
    argv = ["--dataset", str(path), "--batch-size", "5", "--epochs", "1", *flags.split()]
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert word in err
    assert not (tmp_path / "runs").exists(), "a run that never began leaves no folder"


def test_run_folders_that_are_not_this_run_s(tmp_path, capsys):
    good(tmp_path / "data.npz")
    run = tmp_path / "run"
    argv = (
        f"--dataset {tmp_path / 'data.npz'} --batch-size 5 --epochs 1 --run-dir {run}".split()
    )
    assert main([*argv, "--hidden", "4"]) == 0
    (tmp_path / "file").touch()
    for more, word in (
        (["--hidden", "4"], "--resume"),
        (["--hidden", "5", "--resume"], "--hidden 5 there 4"),
        (["--resume", "--lr", "0.5", "--seed", "2"], "--lr 0.5 there 0.01, --seed 2 there 0"),
        (["--resume", "--run-dir", str(tmp_path)], "config.json"),
        (["--run-dir", str(tmp_path / "file")], "folder"),
        (["--run-dir", str(tmp_path / "file" / "below")], "folder"),
    ):
        capsys.readouterr()
        assert main([*argv, *more]) == 2, more
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), err[:7]) == ("", 1, "error: "), err
        assert word in err
    # A run that was refused is none: the corrected command takes its folder.
    new = [*argv[:-1], str(tmp_path / "new"), "--hidden", "4"]
    assert main([*new, "--sampler", "seal"]) == 2
    assert main(new) == 0
    for name, spoil in (
        ("config.json", lambda p: p.write_bytes(b"\xff\xfe\xfa")),
        ("config.json", lambda p: p.mkdir()),
        ("checkpoints", lambda p: p.touch()),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        if (copy / name).is_dir():
            shutil.rmtree(copy / name)
        else:
            (copy / name).unlink()
        spoil(copy / name)
        capsys.readouterr()
        assert main(["--resume", "--run-dir", str(copy)]) == 2
        out, err = capsys.readouterr()
        assert (out, "Traceback" in err) == ("", False), err
        assert err.splitlines()[-1].startswith("error: ")
        assert name in err.splitlines()[-1]
        shutil.rmtree(copy)
    for name, word in (("", "must name a folder"), (os.fsdecode(b"r\xff"), "must be UTF-8")):
        capsys.readouterr()
        assert main([*argv, "--run-dir", name]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        assert word in err
    # The data set of a run has changed, so its checkpoint no longer fits.
    write(tmp_path / "data.npz", features=np.zeros((N, 9), np.float32))
    assert main([*argv, "--hidden", "4", "--resume"]) == 2
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("error: checkpoint")
    assert "must fit" in err
    assert "Traceback" not in err
