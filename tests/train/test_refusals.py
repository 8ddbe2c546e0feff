"""What a user can get wrong ends in one line and exit status 2, and leaves no run behind."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
from cases import cases
from refusals import command_refused as refused
from small_data import communities, events, moments, papers, rings, shops, small, thirds
from small_runs import SMALL, command, train, words

import jgs.data
from jgs import Graph
from jgs.data import Dataset
from jgs.train.__main__ import main
from jgs.train.loop import folder

# What is wrong with data alone is tried in tests/data, and values that no run takes in
# test_config.py.
TABLE = {
    small: [
        ("--no-such-flag", "--no-such-flag"),
        ("--dataset no-such-data", "no-such-data"),
        ("--batch-size 81", "--batch-size"),
        ("--weighted", "--weighted"),
        ("--scratch {file}", "--scratch must be a folder that takes files"),
        ("--lr-schedule warmup_cosine --warmup-steps 24", "than the run's steps, 24; got 24"),
        ("--accumulate 25", "--accumulate must be at most the number of batches in the run"),
        ("--sampler vrgcn --model gat", "attention"),
        ("--model tgat", "what sees times must be for"),
        ("--sampler context --order latest", "what sees times must be for"),
        ("--average-decay 0.5", "--average-decay must be beside --average ema, or nothing"),
        ("--lr-schedule cosine --warmup-steps 3", "--warmup-steps must be beside"),
        ("--feature-block 7", "--feature-block must be beside --feature-memory, or nothing"),
        ("--plateau-epochs 9", "must be beside --fanout-schedule plateau"),
        ("--cache none", "must be beside --partition or --features sharded"),
        ("--cache-memory 9", "must be beside --partition or --features sharded"),
        ("--features sharded --cache none --cache-memory 9", "must be beside --cache trial or"),
        ("--features sharded --prefetch 1", "--prefetch must be for batches that a"),
        ("--features sharded --mode vanilla", "--mode must be beside --partition"),
        ("--interface lo", "must be for JAX's own runtime; got one process"),
        ("--comm none --interface lo", "are for JAX's own runtime"),
        ("--model rgcn --fanouts *=3 4", "--model rgcn must be for a graph with node types"),
        ("--fanouts *=3 4", "for a graph with relations"),
        ("--device gpu", "a device must be one that JAX finds here"),
        ("--device cpu:4", "a device's number must be one of 0, 1, 2, 3, or all; got '4'"),
        ("--device cpu:1,1", "each device must be named once"),
        ("--device cpu:all --batch-size 10", "a multiple of 4, the number of devices"),
        (
            "--device cpu:all --features sharded --batch-size 10",
            "--batch-size must be a multiple of 4, the devices of a process",
        ),
        ("--device cpu:1,2 --sampler thanos", "Name one device"),
        ("--device-memory 9", "--device-memory must be for dense features"),
        ("--feature-memory 5", "must be matrices that lie in files"),
    ],
    rings: [
        ("--task embed --sampler metapath --relations a", "a typed graph"),
        ("--task embed --weighted", "weight"),
        ("--task embed --causal", "a graph without edge_time"),
        ("--task embed --batch-size 61", "at most the number of nodes"),
        ("--task links --sampler seal --batch-size 2000", "at most those to train on"),
        ("--task links --sampler seal --lr-schedule warmup_cosine --warmup-steps 99", "fewer"),
        ("--task links --sampler seal --device cpu:1,2", "several devices must share batches"),
    ],
    communities: [
        ("--task links --metric rmse", "--metric of --task links must be one of auc"),
        ("--task links --metric hits --metric-k 500", "at least --metric-k negatives, 500"),
        ("--task links --decoder distmult", "must be for a graph with relations"),
        ("--task links --split time", "--split time must be for edges with times"),
        ("--task links --sampler saint", "must have a sampler that is given its seeds"),
        ("--task links --test-share 0.9 --val-share 0.2 --split random", "split train"),
        ("--task links --batch-size 4000", "must not exceed the number of edges to train on"),
        ("--task links --temporal", "--temporal must have edges with times"),
        ("--task links --test-share 0.2", "must be of a split that is not in the data"),
        ("--sampler context --fill visits --latest", "--latest must be beside --fill hops"),
        ("--sampler context --fill visits --fanouts 3", "--fanouts must be beside --fill"),
        ("--sampler context --walks 9 3", "--walks must be beside --fill visits"),
        ("--sampler shadow --scope-size 4 --fanouts 3", "must be beside --scope-size 0"),
        ("--sampler saint --draw node --walk-steps 9", "--walk-steps must be beside --draw"),
        ("--task links --by-time 3", "--by-time must be beside --temporal"),
        ("--task links --eval-negatives 3", "must be beside --temporal or --metric mrr"),
        ("--task links --metric-k 3", "must be for a metric of the best k; got --metric AUC"),
        ("--task links --pool-share 0.3", "--pool-share must be for --sampler seal"),
        ("--task edges --sampler context --model relgt --layers 1 --eval-memory 9", "by exact"),
        ("--task edges --latest", "what sees times must be for"),
        ("--task edges --label colour", "the edges must have a column colour"),
        ("--task edges --decoder dot", "--task edges must have a decoder with several outputs"),
        ("--task edges --metric rmse", "--metric rmse must be for labels that are numbers"),
        ("--by-time 3", "--by-time must be for labels at moments"),
        ("--feature-memory 5 --device-memory 5 --device cpu:1", "must be without --partition"),
    ],
    events: [
        ("--split random", "must split the links by time"),
        ("--sampler shadow", "must have a sampler that takes cutoffs"),
        ("--metric recall", "must be of a table of links at moments"),
        ("--shared", "--shared"),
        ("--eval-memory 9", "--eval-memory must be for a model that is judged by exact rows"),
        ("--model gcn", "reads no degrees"),
        ("--negatives-by degree", "that no later link decides"),
        ("--metric hits --eval-negatives 10", "negatives, 50; got --eval-negatives 10"),
    ],
    moments: [
        ("--eval-memory 9", "--eval-memory must be for a model that is judged by exact rows"),
        ("--sampler shadow --fanouts 3", "must have a sampler that takes cutoffs"),
        ("--model gcn", "a model that reads no degrees"),
        ("--batch-size 700", "the number of rows of labels to train on; got 700 for 6"),
    ],
    papers: [
        ("--model rgcn --fanouts buys=3 4", "one of (author, writes, paper) ... got 'buys'"),
        ("--model rgcn --fanouts writes=3,writes=2", "must be written as writes=5,cites=10"),
        ("--model sage", "equally many ... author 7, paper 3 ... Choose a model of typed"),
        ("--model rgcn --sampler pinsage", "says the type of an edge ... --sampler pinsage"),
        ("--model rgcn --device cpu:1,2", "rows of nodes that are learned"),
    ],
    shops: [
        ("--task links --model rgcn --learned 4", "--learned must be 0 for a model of typed"),
        ("--task links --model sage", "must have equally many for a model that knows no types"),
    ],
}
TASK = {small: SMALL, events: "--task links --temporal", shops: "--relation buys"}
CASES = [
    pytest.param(make, *case, id=f"{make.__name__} {case[0]}")
    for make, cases in TABLE.items()
    for case in cases
]


@pytest.mark.parametrize(("make", "flags", "says"), CASES)
def test_flags_that_do_not_fit_the_data(saved, tmp_path, capsys, make, flags, says):
    (tmp_path / "file").touch()
    flags = flags.format(file=tmp_path / "file")
    run = ("--epochs 1 --batch-size 20 --no-progress --run-dir", tmp_path / "run")
    data = () if make is small else ("--dataset", saved(make))
    refused(capsys, says, command, *run, *data, TASK.get(make, ""), flags)
    assert not (tmp_path / "run" / folder.CONFIG).exists()


def write(path, **changes):
    """An archive, some of whose arrays are others, or none."""
    rng = np.random.default_rng(0)
    arrays = {
        "edge_index": rng.integers(0, 30, (2, 200)).astype(np.int32),
        "features": rng.normal(size=(30, 4)).astype(np.float32),
        "labels": np.arange(30, dtype=np.int32) % 3,
        **{f"{name}_idx": ids for name, ids in thirds(30).items()},
    }
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})


def every_pair_joined(path):
    np.savez(path, edge_index=np.array(np.nonzero(~np.eye(8, dtype=bool))), num_nodes=8)


@cases(
    "make, flags, says",
    (lambda path: None, "", "data.npz"),
    (lambda path: write(path, val_idx=np.zeros(0, np.int32)), "", "val"),
    (every_pair_joined, "--task links", "as many pairs without an edge as links"),
    (every_pair_joined, "--task links --metric mrr", "that its source has no edge to"),
)
def test_archives_that_no_run_takes(tmp_path, capsys, monkeypatch, make, flags, says):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "data.npz")
    run = ("--dataset data.npz --batch-size 2 --epochs 1 --no-progress", flags)
    refused(capsys, says, command, *run)
    assert not (tmp_path / "runs").exists(), "a run that never began leaves no folder"


def test_labels_at_moments_that_no_run_takes(tmp_path, capsys):
    data = moments()
    few = data.label_table._replace(split=np.minimum(data.label_table.split, 1))
    untimed = Graph.from_edges(np.arange(59), np.arange(1, 60), 60)
    for graph, table, says in (
        (data.graph, few, "must have rows of the split test; got none"),
        (untimed, data.label_table, "must have a graph whose edges have times"),
    ):
        made = Dataset.from_arrays(graph, data.features, None, None, label_table=table)
        made.save(tmp_path / says)
        run = ["--dataset", str(tmp_path / says), "--run-dir", str(tmp_path / "run")]
        refused(capsys, says, main, run)


def test_run_folders_that_are_not_this_run_s(tmp_path, capsys):
    write(tmp_path / "data.npz")
    run, data = tmp_path / "run", ("--dataset", tmp_path / "data.npz")
    flags = (*data, "--batch-size 5 --epochs 1 --fanouts 3 3 --no-progress --hidden 4")
    assert command(*flags, "--run-dir", run) == 0
    # What an earlier version took and did not read is no error in a run of it.
    saved = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(saved | {"plateau_epochs": 9}))
    assert command("--resume --run-dir", run) == 0
    (tmp_path / "file").touch()
    for more, says in (
        ("--hidden 5 --resume", "--hidden 5 there 4"),
        (f"--run-dir {tmp_path / 'file' / 'below'}", "folder"),
    ):
        refused(capsys, says, command, *flags, "--run-dir", run, more)
    for name, says in (("", "must name a folder"), (os.fsdecode(b"r\xff"), "must be UTF-8")):
        refused(capsys, says, main, [*words(*flags), "--run-dir", name])
    # A run that was refused is none: the corrected command takes its folder.
    new = (*flags, "--run-dir", tmp_path / "new")
    assert command(*new, "--sampler seal") == 2
    assert command(*new) == 0
    for name, spoil in (
        ("config.json", lambda p: p.write_bytes(b"\xff\xfe\xfa")),
        ("config.json", lambda p: p.mkdir()),
        ("checkpoints", lambda p: p.touch()),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(run, copy)
        shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
        spoil(copy / name)
        refused(capsys, name, command, "--resume --run-dir", copy)
        shutil.rmtree(copy)
    # The data set of a run has changed, so its checkpoint no longer fits.
    write(tmp_path / "data.npz", features=np.zeros((30, 9), np.float32))
    refused(capsys, "checkpoint ... must fit", command, *flags, "--resume --run-dir", run)


def test_resume_on_changed_data(whole, tmp_path, capsys, monkeypatch):
    """Of the same shapes."""
    run, load = shutil.copytree(whole, tmp_path / "run"), jgs.data.load

    def changed(*arguments, **options):
        data = load(*arguments, **options)
        return dataclasses.replace(data, labels=data.labels[::-1], val_idx=data.test_idx)

    monkeypatch.setattr(jgs.data, "load", changed)
    before = (run / folder.CONFIG).read_bytes()
    says = "a run must be resumed on the data set ... other labels, splits"
    refused(capsys, says, train, run, "--resume --keep 1")
    assert (run / folder.CONFIG).read_bytes() == before
