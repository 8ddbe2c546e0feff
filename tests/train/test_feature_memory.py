"""`--feature-memory`: the run in memory, bit for bit, whatever stays in memory; also when it is
killed in the middle of a window, and when the file of the features fails."""

import json
import os

import numpy as np
import pytest
import scipy.sparse
from small_runs import metrics, same_run

import jgs.data
from jgs.partition.memory import Machine
from jgs.sampling.loading import disk_rows
from jgs.train.__main__ import main
from jgs.train.loop import whole_data

RUN = """--hidden 8 --batch-size 10 --epochs 3 --no-progress --checkpoint-every 3
    --norm layer --dropout 0.2"""
WIDTH = 2048  # 400 rows are 3 MiB


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = jgs.data.load(
        "synthetic", num_nodes=400, num_edges=3000, num_features=WIDTH, num_classes=3
    )
    where = tmp_path_factory.mktemp("data") / "graph"
    made.save(where)
    return where


def train(folder, run_dir, *more):
    fanouts = [] if set(more) & {"saint", "ladies", "frontier"} else ["--fanouts", "3", "3"]
    flags = [*RUN.split(), *fanouts, "--dataset", str(folder), "--run-dir", str(run_dir)]
    return main([*flags, *map(str, more)])


def result(capsys):
    out, err = capsys.readouterr()
    return json.loads(out) if out else None, err


def test_the_same_parameters(folder, tmp_path, capsys):
    """2 %, a third and all of the rows; with sums of neighbours, maxima, and attention."""
    for model in ("sage", "sage --reduce max", "gat", "sage --input-dropout 0.1"):
        digests = []
        for memory, block in ((0, 64), (1, 0), (1, 3), (9, 64)):
            flags = ("--feature-memory", memory, "--feature-block", block)
            run_dir = tmp_path / f"{model}{memory}{block}"
            assert train(folder, run_dir, "--model", *model.split(), *flags) == 0
            digests.append(result(capsys)[0]["params_sha256"])
        assert len(set(digests)) == 1, model
    lines = (tmp_path / "sage13" / "metrics.jsonl").read_text().splitlines()
    read = list(map(json.loads, lines))
    assert all(row["disk_rows"] > 0 and row["disk_bytes"] > row["disk_rows"] for row in read)


@pytest.mark.parametrize(
    "sampler", ["labor", "shadow", "saint", "ladies", "frontier", "thanos"]
)
def test_every_kind_of_sampler(folder, tmp_path, capsys, sampler):
    """Those that list their inputs anyway, and one that learns."""
    digests = []
    own = {"ladies": "--sizes 20 20", "frontier": "--budget 60 --frontier-size 7"}
    for memory in (0, 1):
        flags = f"--sampler {sampler} --epochs 1 {own.get(sampler, '')}".split()
        done = train(folder, tmp_path / str(memory), *flags, "--feature-memory", memory)
        out, err = result(capsys)
        assert done == 0, err
        digests.append(out["params_sha256"])
    assert len(set(digests)) == 1


def test_a_file_that_fails_loses_nothing(folder, tmp_path, capsys, monkeypatch):
    assert train(folder, tmp_path / "whole", "--feature-memory", 1) == 0
    whole, _ = result(capsys)
    file, steps = folder / "features.npy", []
    content = file.read_bytes()
    make = disk_rows.DiskRows.make

    def failing(self, *given):
        steps.append(given)
        if len(steps) == 13:  # in the middle of the second epoch, of 8 steps
            os.truncate(file, len(content) // 3)
        return make(self, *given)

    monkeypatch.setattr(disk_rows.DiskRows, "make", failing)
    flags = ("--feature-memory", 1, "--feature-block", 0)
    assert train(folder, tmp_path / "run", *flags) == 2
    out, err = result(capsys)
    assert out is None
    assert "Traceback" not in err
    last = err.strip().splitlines()
    assert "features.npy must stay readable, with all of its rows" in last[-1]
    assert "a checkpoint has what was learned up to step 12" in last[-2]
    file.write_bytes(content)
    assert train(folder, tmp_path / "run", "--feature-memory", 2, "--resume") == 0
    found, err = result(capsys)
    assert "resuming after 1 epochs and 4 steps" in err
    assert found["params_sha256"] == whole["params_sha256"]
    same_run(tmp_path / "run", tmp_path / "whole")
    assert len(metrics(tmp_path / "run")) == 3


def test_a_graph_larger_than_memory_is_read_ahead(folder, tmp_path, capsys, monkeypatch):
    digests, ahead = [], []
    read_ahead = whole_data.read_ahead
    monkeypatch.setattr(
        whole_data, "read_ahead", lambda graph: ahead.append(0) or read_ahead(graph)
    )
    for free in (1 << 40, 0):
        monkeypatch.setattr(whole_data, "machine", lambda free=free: Machine(1 << 40, free))
        assert train(folder, tmp_path / str(free), "--epochs", 1) == 0
        digests.append(result(capsys)[0]["params_sha256"])
    assert len(set(digests)) == 1
    assert len(ahead) == 1
    read_ahead(jgs.data.load(str(folder)).graph, threads=0)  # for the tests that follow


def test_sparse_features(tmp_path, capsys):
    """Sums and attention: the bits of the run in memory."""
    rng = np.random.default_rng(0)
    graph = jgs.Graph.from_edges(*rng.integers(0, 300, (2, 2000)), 300)
    words = scipy.sparse.random(300, 3000, 0.05, format="csr", rng=rng)
    split = dict(zip(("train", "val", "test"), np.arange(300).reshape(3, 100), strict=True))
    data = jgs.data.Dataset.from_arrays(graph, words, rng.integers(0, 3, 300), split)
    data.save(tmp_path / "words")
    for model in ("sage", "gat"):
        digests = []
        for memory, block in ((0, 64), (1, 0), (1, 3)):
            flags = ("--feature-memory", memory, "--feature-block", block)
            run_dir = tmp_path / f"{model}{memory}{block}"
            assert train(tmp_path / "words", run_dir, "--model", model, *flags) == 0
            digests.append(result(capsys)[0]["params_sha256"])
        assert len(set(digests)) == 1, model


def test_what_is_refused(folder, tmp_path, capsys):
    assert main(["--run-dir", str(tmp_path / "a"), "--feature-memory", "5"]) == 2
    assert "must be matrices that lie in files" in result(capsys)[1]
    others = ("--feature-memory", 5, "--device-memory", 5, "--device", "cpu:1")
    assert train(folder, tmp_path / "b", *others) == 2
    assert "--feature-memory must be without" in result(capsys)[1]
    assert train(folder, tmp_path / "c", "--feature-memory", -1) == 2
    capsys.readouterr()


def test_typed_features_and_links(tmp_path, capsys):
    """Tables of types, and batches of links."""
    rng = np.random.default_rng(0)
    graph = jgs.Graph.from_relations(
        {"user": 200, "item": 100},
        {
            ("user", "buys", "item"): rng.integers(0, (200, 100), (1500, 2)).T,
            ("item", "sold", "user"): rng.integers(0, (100, 200), (1500, 2)).T,
        },
    )
    features = {"user": rng.random((200, 40)), "item": rng.random((100, 9))}
    labels = {"user": rng.integers(0, 2, 200)}
    split = {"train": np.arange(80), "val": np.arange(80, 120), "test": np.arange(120, 200)}
    jgs.data.Dataset.from_arrays(graph, features, labels, split).save(tmp_path / "typed")
    runs = {
        "rgcn": "--model rgcn",
        "links": "--task links --model rgcn --relation buys --eval-negatives 5",
    }
    for name, flags in runs.items():
        digests = []
        for memory in (0, 1):
            done = train(tmp_path / "typed", tmp_path / f"{name}{memory}", *flags.split(),
                         "--epochs", 1, "--feature-memory", memory)  # fmt: skip
            out, err = result(capsys)
            assert done == 0, err
            digests.append(out["params_sha256"])
        assert len(set(digests)) == 1, name
