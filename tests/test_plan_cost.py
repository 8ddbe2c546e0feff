"""The cost model against counts of real runs, and against a few figures worked out by hand."""

import json
import math

import jax
import numpy as np
import pytest
from cases import cases
from flax import nnx
from refusals import command_refused

import benchmarks.plan.__main__ as plan
import jgs
from benchmarks.plan import cost, this_machine
from benchmarks.plan.cost import Workload
from benchmarks.plan.shapes import Degrees, expected_draw
from benchmarks.plan.trial import measured_draw
from jgs.data import Dataset
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import as_device
from jgs.partition.folder import write_parts
from jgs.sampling import DiskRows, Loader, Neighbors
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.progress import Meter
from jgs.train.loop.step import init_state, make_optimizer, make_train_step
from jgs.train.tasks.task import open_job

N, F, C, SEEDS, BATCH, FANOUTS, HIDDEN = 4000, 16, 5, 1200, 100, (4, 3, 3), 8
SPEEDS = ("--ns-per-edge", "10", "--ns-per-edge-vanilla", "20")
SPEEDS += ("--row-gbytes", "4", "--gflops", "50")


def random_data(rng, graph, width, num_seeds, num_classes):
    """A data set on a graph without weights, with so many nodes to train on."""
    graph = jgs.Graph(graph.indptr, graph.indices)
    train, val, test = np.split(
        rng.permutation(graph.num_nodes)[: num_seeds + 20], [num_seeds, num_seeds + 10]
    )
    features = as_device(rng.random((graph.num_nodes, width), np.float32))
    labels = rng.integers(0, num_classes, graph.num_nodes, np.int32)
    splits = [np.sort(s).astype(np.int32) for s in (train, val, test)]
    return Dataset("random", graph, features, labels, num_classes, *splits)


@pytest.fixture(scope="module")
def parts(tmp_path_factory, make_graph):
    rng = np.random.default_rng(0)
    data = random_data(rng, make_graph(N, 30_000), F, SEEDS, C)
    folder = tmp_path_factory.mktemp("cost") / "parts"
    write_parts(folder, data, rng.integers(0, 2, N), 2, method="random", seed=0)
    return folder


def counted(parts, mode, cache):
    """The rounds and bytes of a rank's step, after planning."""
    comm = Mesh(jax.devices()[:2])
    of = {"batch_size": BATCH, "ranks": 2, "fanouts": FANOUTS, "hidden": HIDDEN}
    of |= {"mode": mode, "cache": cache, "cache_memory": 1}
    config = Config(partition=str(parts), **of)
    job = open_job(config, comm)
    model = make_model(config, F, C, False, jax.random.key(0))
    job.start(model, jax.random.key(1), None)
    graphdef, params = nnx.split(model)
    optimizer = make_optimizer(0.1)
    state = comm.same(init_state(params, optimizer))
    step = make_train_step(graphdef, optimizer, comm)
    key = comm.same(jax.random.key_data(jax.random.key(2)))
    stop, seen = comm.own([np.float32(0)] * 2), []
    for batch, x in job.batches(Meter()):
        state = step(state, key, batch, x, job.data.labels, stop)
        counters = (job.loader.source.counters, comm.counters)
        seen.append((sum(c.rounds for c in counters), sum(c.bytes for c in counters)))
    job.close()
    return np.diff(seen, axis=0)[-1].tolist()


@cases(
    "mode, run",
    ("hybrid", "none"),
    ("vanilla", "none"),
    pytest.param("cached", "planned", marks=pytest.mark.slow),
)
def test_bytes_and_rounds_of_a_run(parts, mode, run, capsys):
    rounds, num_bytes = counted(parts, "vanilla" if mode == "vanilla" else "hybrid", run)
    arguments = ["--partition", str(parts), "--machines", "2", "--gbits", "25"]
    arguments += ["--batch-size", str(BATCH), "--fanouts", *map(str, FANOUTS)]
    arguments += ["--hidden", str(HIDDEN), "--cache-memory", "1"]
    assert plan.main([*arguments, *SPEEDS]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    (row,) = [r for r in results if r["mode"] == mode]
    assert row["rounds"] == rounds == (7 if mode == "vanilla" else 3)
    assert row["bytes"] == pytest.approx(num_bytes, rel=0.1)


@cases(
    "arguments, words",
    ([], "--dataset and --partition"),
    (["--dataset", "MAG240M", "--machines", "9" * 300], "--machines must be from 1 to"),
    (["--dataset", "synthetic", "--machines", "999999"], "training nodes for a batch"),
    (["--dataset", "synthetic", "--cut", "0.5"], "--cut must be used with a published"),
    # 600 seeds in each part, 1,200 in all.
    (["--partition", "PARTS", "--machines", "2", "--batch-size", "601"], "of at least 600"),
    (["--partition", "PARTS", "--machines", "3", "--batch-size", "401"], "of 401"),
)
def test_bad_input(parts, arguments, words, capsys):
    argv = [str(parts) if a == "PARTS" else a for a in arguments]
    assert command_refused(capsys, words, plan.main, argv).count("\n") == 1


@pytest.mark.slow
def test_expected_draw_of_a_random_graph():
    """Where the approximation's assumptions hold, sampling finds the same number."""
    rng = np.random.default_rng(0)
    num_nodes, degree = 20_000, 12
    indptr = np.arange(num_nodes + 1) * degree
    indices = rng.integers(0, num_nodes, num_nodes * degree, np.int32)
    work = Workload("w", num_nodes, indices.size, 16, 4, 5, 6000, 100, Neighbors((5, 4, 30)), 8)
    owner = rng.permutation(np.arange(num_nodes) % 2)
    seeds = rng.permutation(num_nodes)[:6000].astype(np.int32)
    expected = expected_draw(work, Degrees(np.array([2e4]), np.array([12.0])), 2, 5000)
    graph = jgs.Graph(indptr, indices)
    measured = measured_draw(work, graph, owner, [seeds[::2], seeds[1::2]], 5000)
    for name in ("edges", "sources", "asked_nodes", "asked_edges", "asked_rows", "hit"):
        np.testing.assert_allclose(
            getattr(expected, name), getattr(measured, name), rtol=0.1, err_msg=name
        )
    assert expected.cache_rows == pytest.approx(measured.cache_rows, abs=1)


@pytest.mark.slow
def test_a_data_set_is_sampled_and_this_machine_measured(capsys):
    arguments = ["--dataset", "synthetic", "--data-options", "num_nodes=500", "num_edges=3000"]
    arguments += ["--machines", "1", "3", "--batch-size", "20", "--fanouts", "3", "-1"]
    arguments += ["--hidden", "8"]
    assert plan.main([*arguments, "--gbits", "25", "100"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["results"]) == 2 * 2 * len(cost.MODES)
    assert all(0 < value < math.inf for value in result["constants"].values())
    rows = {(r["machines"], r["gbits"], r["mode"]): r for r in result["results"]}
    slow, fast = rows[3, 25.0, "hybrid"], rows[3, 100.0, "hybrid"]
    assert slow["bytes"] == fast["bytes"] > 0
    assert slow["epoch_seconds"] > fast["epoch_seconds"]


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 16])
def test_reads_on_this_machine_are_those_of_a_run(
    make_graph, tmp_path, monkeypatch, capsys, block
):
    folder, seeds, fanouts = tmp_path / "data", 2400, (4, 3)
    rng, graph = np.random.default_rng(0), make_graph(20_000, 200_000)
    random_data(rng, graph, 128, seeds, 2).save(folder)
    monkeypatch.setattr(this_machine, "disk_speed", lambda _: this_machine.Disk(1e9, 5e8, 1e4))
    arguments = ["--dataset", str(folder), "--this-machine", "--feature-memory", "2"]
    arguments += ["--batch-size", str(BATCH), "--fanouts", *map(str, fanouts), *SPEEDS]
    arguments += ["--feature-block", str(block)]
    assert plan.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    data = Dataset.open(folder)
    rows = DiskRows(
        data.features, 2 << 20, scratch=tmp_path if block else None, block=max(block, 1)
    )
    before = rows.counts
    of, options = (data.graph, data.train_idx, BATCH, Neighbors(fanouts)), {"prefetch": 0}
    steps = len(list(Loader(*of, key=jax.random.key(5), read=rows, **options)))
    counts = {name: (rows.counts[name] - before[name]) / steps for name in before}
    reads = found["reads"]
    assert reads["steps"] == steps == seeds // BATCH
    assert found["disk_rows"] == pytest.approx(counts["disk_rows"], rel=0.03)
    assert reads["written"] == pytest.approx(counts["scratch_bytes"], rel=0.03)
    if rows.direct:
        assert reads["bytes"] == pytest.approx(counts["disk_bytes"], rel=0.05)
