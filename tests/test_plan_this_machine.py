"""What `benchmarks.plan --this-machine` says that steps read, beside what a run counts."""

import json

import jax
import numpy as np
import pytest
import scipy.sparse

import benchmarks.plan.__main__ as plan
from benchmarks.plan import this_machine
from benchmarks.plan.cost import Workload
from jgs.data import Dataset
from jgs.graph import Graph, as_device
from jgs.sampling import DiskRows, Loader, Neighbors

N, F, SEEDS, BATCH, FANOUTS = 20_000, 128, 2400, 100, (4, 3)
SPEEDS = ("--ns-per-edge", "10", "--ns-per-edge-vanilla", "20", "--row-gbytes", "4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_graph):
    graph = make_graph(N, 200_000)
    rng = np.random.default_rng(0)
    train, val, test = np.split(rng.permutation(N)[: SEEDS + 20], [SEEDS, SEEDS + 10])
    features = as_device(rng.random((N, F), np.float32))
    splits = [np.sort(s).astype(np.int32) for s in (train, val, test)]
    plain = Graph(graph.indptr, graph.indices)
    data = Dataset("random", plain, features, np.zeros(N, np.int32), 2, *splits)
    path = tmp_path_factory.mktemp("plan") / "data"
    data.save(path)
    return path


def test_other_features_are_refused(tmp_path, capsys, data_folder):
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], 4)
    split = {name: [i] for i, name in enumerate(("train", "val", "test"))}
    data = Dataset.from_arrays(graph, scipy.sparse.eye(4), np.zeros(4, int), split)
    data.save(tmp_path / "words")
    assert plan.main(["--dataset", str(tmp_path / "words"), "--this-machine"]) == 2
    assert "must plan for dense features; got the sparse ones" in capsys.readouterr().err
    assert plan.main(["--dataset", "acm", "--root", str(data_folder)]) == 2
    assert "a graph with one table of features; got acm" in capsys.readouterr().err


@pytest.mark.parametrize("block", [0, 16])
def test_reads_are_those_of_a_run(folder, tmp_path, monkeypatch, capsys, block):
    monkeypatch.setattr(this_machine, "disk_speed", lambda _: this_machine.Disk(1e9, 5e8, 1e4))
    arguments = ["--dataset", str(folder), "--this-machine", "--feature-memory", "2"]
    arguments += ["--batch-size", str(BATCH), "--fanouts", *map(str, FANOUTS), *SPEEDS]
    arguments += ["--gflops", "50", "--feature-block", str(block)]
    assert plan.main(arguments) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert f"the {found['binds']} binds" in err

    data = Dataset.open(folder)
    rows = DiskRows(
        data.features, 2 << 20, scratch=tmp_path if block else None, block=max(block, 1)
    )
    before = rows.counts
    loader = Loader(
        data.graph,
        data.train_idx,
        BATCH,
        Neighbors(FANOUTS),
        key=jax.random.key(5),
        read=rows,
        prefetch=0,
    )
    steps = len(list(loader))
    counts = {name: (rows.counts[name] - before[name]) / steps for name in before}
    reads = found["reads"]
    assert reads["steps"] == steps == SEEDS // BATCH
    assert found["disk_rows"] == pytest.approx(counts["disk_rows"], rel=0.03)
    assert reads["written"] == pytest.approx(counts["scratch_bytes"], rel=0.03)
    if rows.direct:
        assert reads["bytes"] == pytest.approx(counts["disk_bytes"], rel=0.05)
    assert found["memory"]["rows that stay"] + found["memory"]["plan of rows"] == (
        rows.capacity * (4 * F + 12) + 8 * N
    )
    expected = 1 / max(found["seconds"]["disk"], 1e-9)
    assert found["bounds"]["disk"] == pytest.approx(expected)


def test_a_published_size_is_scaled(monkeypatch):
    monkeypatch.setattr(this_machine, "_SIMULATED", 1 << 14)
    sizes = (1 << 18, 1 << 22, 32, 4, 10, 50_000)
    work = Workload("p", *sizes, batch_size=200, sampler=Neighbors((5, 5)))
    options = {"most_batches": 40, "feature_memory": 4, "feature_block": 8}
    draw, reads = this_machine.plan_of_shape(work, options)
    assert reads.steps == 40
    assert reads.rows == pytest.approx(draw.sources[-1], rel=0.05)
    assert 0 < reads.later < reads.missing < reads.rows
    options["feature_memory"] = 64  # all rows: each is read once
    assert this_machine.plan_of_shape(work, options)[1].later < reads.later


@pytest.mark.parametrize(
    "arguments",
    [
        ["--partition", "p", "--this-machine"],
        ["--dataset", "d", "--this-machine", "--feature-memory", "-1"],
        ["--dataset", "d", "--this-machine", "--feature-block", "5000"],
    ],
)
def test_bad_input_is_one_line(arguments, capsys):
    assert plan.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
