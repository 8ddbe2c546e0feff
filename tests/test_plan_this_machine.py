"""What `benchmarks.plan --this-machine` says that steps read, beside what a run counts."""

import json

import jax
import numpy as np
import pytest

import benchmarks.plan.__main__ as plan
from benchmarks.plan import this_machine
from jgs.data import Dataset
from jgs.graph import Graph, as_device
from jgs.sampling import DiskRows, Loader, Neighbors

pytestmark = pytest.mark.slow
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


@pytest.mark.parametrize("block", [0, 16])
def test_reads_are_those_of_a_run(folder, tmp_path, monkeypatch, capsys, block):
    monkeypatch.setattr(this_machine, "disk_speed", lambda _: this_machine.Disk(1e9, 5e8, 1e4))
    arguments = ["--dataset", str(folder), "--this-machine", "--feature-memory", "2"]
    arguments += ["--batch-size", str(BATCH), "--fanouts", *map(str, FANOUTS), *SPEEDS]
    arguments += ["--gflops", "50", "--feature-block", str(block)]
    assert plan.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
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
