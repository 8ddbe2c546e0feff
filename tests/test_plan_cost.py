"""The cost model against counts of real runs, and against a few figures worked out by hand."""

import json
import math
import shutil

import jax
import numpy as np
import pytest
from flax import nnx

import benchmarks.plan.__main__ as plan
import jgs
from benchmarks.plan import cost
from benchmarks.plan.cost import Constants, Draw, Network, Workload
from benchmarks.plan.shapes import Degrees, expected_draw, lognormal_degrees
from benchmarks.plan.trial import measured_draw
from jgs.data import Dataset
from jgs.dist.communicators.mesh import Mesh
from jgs.graph import as_device
from jgs.partition.folder import write_parts
from jgs.sampling import Neighbors
from jgs.train.config import Config
from jgs.train.loop.model import make_model
from jgs.train.loop.progress import Meter
from jgs.train.loop.step import init_state, make_optimizer, make_train_step
from jgs.train.tasks.task import open_job

N, F, C, SEEDS, BATCH, FANOUTS, HIDDEN = 4000, 16, 5, 1200, 100, (4, 3, 3), 8
SPLITS = ("train", "val", "test")
FAST = Constants(1e-8, 2e-8, 4e9, 5e10)
NET = Network(25e9 / 8, 50e-6)


@pytest.fixture(scope="module")
def parts(tmp_path_factory, make_graph):
    graph = make_graph(N, 30_000)
    graph = jgs.Graph(graph.indptr, graph.indices)
    rng = np.random.default_rng(0)
    train, val, test = np.split(rng.permutation(N)[: SEEDS + 20], [SEEDS, SEEDS + 10])
    features = as_device(rng.random((N, F), np.float32))
    labels = rng.integers(0, C, N, np.int32)
    splits = [np.sort(s).astype(np.int32) for s in (train, val, test)]
    data = Dataset("random", graph, features, labels, C, *splits)
    folder = tmp_path_factory.mktemp("cost") / "parts"
    write_parts(folder, data, rng.integers(0, 2, N), 2, method="random", seed=0)
    return folder


def counted(parts, mode, cache):
    """The rounds and bytes of a rank's step, after planning."""
    comm = Mesh(jax.devices()[:2])
    config = Config(
        partition=str(parts),
        batch_size=BATCH,
        ranks=2,
        fanouts=FANOUTS,
        hidden=HIDDEN,
        mode=mode,
        cache=cache,
        cache_memory=1,
    )
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


@pytest.mark.parametrize(
    ("mode", "run"), [("hybrid", "none"), ("vanilla", "none"), ("cached", "planned")]
)
def test_bytes_and_rounds_of_a_run(parts, mode, run, capsys):
    rounds, num_bytes = counted(parts, "vanilla" if mode == "vanilla" else "hybrid", run)
    arguments = ["--partition", str(parts), "--machines", "2", "--gbits", "25"]
    arguments += ["--batch-size", str(BATCH), "--fanouts", *map(str, FANOUTS)]
    arguments += ["--hidden", str(HIDDEN), "--cache-memory", "1"]
    arguments += ["--ns-per-edge", "10", "--ns-per-edge-vanilla", "20"]
    assert plan.main([*arguments, "--row-gbytes", "4", "--gflops", "50"]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    (row,) = [r for r in results if r["mode"] == mode]
    assert row["rounds"] == rounds == (7 if mode == "vanilla" else 3)
    assert row["bytes"] == pytest.approx(num_bytes, rel=0.1)


def test_bytes_by_hand():
    # 3 peers; 64 ids and a number of 4 bytes, 64 rows of 10 float16.
    assert cost.feature_bytes(4, 64, 10, 2) == 3 * (65 * 4 + 64 * 20)
    # 5 ids after a number; in return 2 numbers, 5 ends and 20 neighbours.
    assert cost.vanilla_bytes(4, [5], [20]) == 3 * 4 * (6 + 27)
    assert cost.num_parameters([10, 8, 3]) == (160 + 8) + (48 + 3)
    assert cost.reduce_bytes(2, 219) == 4 * 222
    assert cost.request_rows(1000) == 1024


def test_one_rank_sends_nothing():
    draw = Draw((50.0, 100.0), (60.0, 150.0), (0.0,), (0.0,), 0, 0, 0.0, 1.0)
    work = Workload("w", 1000, 9000, 16, 4, 5, 100, 10, Neighbors((5, 5)), 8)
    for mode in cost.MODES:
        result = cost.cost(work, draw, FAST, NET, 1, mode)
        assert (result.rounds, result.bytes, result.network_seconds) == (0, 0, 0)
        assert result.memory["features"] == 1000 * 16 * 4
        assert result.memory["topology"] == 8 * 1001 + 4 * 9000
    assert result.memory["cache"] == 4 * 1000  # the counts of a planned cache, without a row


def test_the_trial_cache_is_bounded():
    work = Workload("w", 1000, 9000, 16, 4, 5, 100, 10, Neighbors((5, 5)), 8)
    draw = Draw((50.0, 100.0), (60.0, 150.0), (0.0,), (0.0,), 30, 0, 0.0, 0.5)
    hybrid = cost.cost(work, draw, FAST, NET, 4, "hybrid").memory["cache"]
    assert hybrid == 3 * 64 * 16 * 4 + 4 * 1000  # 64 rows of each other rank, and 1000 places
    wide = work._replace(num_features=1 << 20)
    assert cost.cost(wide, draw, FAST, NET, 4, "vanilla").memory["cache"] == (64 << 20) + 4000


def test_topology_is_split_in_vanilla_mode_only():
    work = Workload("w", 1000, 9000, 16, 4, 5, 100, 10, Neighbors((5, 5)), 8)
    draw = expected_draw(work, lognormal_degrees(1000, 9000), 4)
    sizes = {m: cost.cost(work, draw, FAST, NET, 4, m).memory["topology"] for m in cost.MODES}
    assert sizes["hybrid"] == sizes["cached"] == 8 * 1001 + 4 * 9000
    assert sizes["vanilla"] == 8 * 1001 + 9000


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
    assert measured.cache_rows == 5000
    assert expected.cache_rows == pytest.approx(5000, abs=1)


def test_a_cache_of_everything_serves_everything():
    work = Workload("w", 1000, 9000, 16, 4, 5, 500, 10, Neighbors((5, 5)), 8)
    degrees = lognormal_degrees(1000, 9000)
    assert degrees.nodes.sum() == pytest.approx(1000)
    assert degrees.nodes @ degrees.degree == pytest.approx(9000)
    hits = [expected_draw(work, degrees, 2, rows).hit for rows in (0, 50, 200, 1000)]
    assert hits[0] == 0
    assert hits[-1] == pytest.approx(1)
    assert all(math.isfinite(h) for h in hits)
    assert hits == sorted(hits)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--dataset and --partition"),
        (["--dataset", "cora", "--shape-only"], "--shape-only"),
        (["--dataset", "MAG240M", "--machines", "0"], "--machines"),
        (["--dataset", "MAG240M", "--fanouts", "0"], "fanout"),
        (["--dataset", "MAG240M", "--wire", "int8"], "--wire"),
        (["--dataset", "synthetic", "--machines", "999999"], "training nodes for a batch"),
        (["--dataset", "MAG240M", "--machines", "1", "--batch-size", "1200000"], "for a batch"),
        (["--dataset", "MAG240M", "--machines", "9" * 300], "--machines must be from 1 to"),
        (["--dataset", "MAG240M", "--hidden", "9" * 300], "--hidden must be from 1 to"),
        (["--dataset", "MAG240M", "--gbits", "1e-320"], "--gbits must be from 1e-09 to"),
        (["--dataset", "MAG240M", "--gbits", "nan"], "--gbits must be from 1e-09 to"),
        (["--dataset", "MAG240M", "--latency-us", "inf"], "--latency-us must be from 0 to"),
        (["--dataset", "MAG240M", "--cut", "1e300"], "--cut must be from 1e-09 to 1"),
        (["--dataset", "MAG240M", "--ns-per-edge", "0"], "--ns-per-edge must be from"),
        (["--dataset", "MAG240M", "--machines", "1048576"], "nodes for a batch"),
        (["--dataset", "synthetic", "--cut", "0.5"], "--cut must be used with a published"),
        (["--partition", "PARTS", "--cut", "0.5"], "--cut must be used with a published"),
        (["--partition", "PARTS", "--root", "data"], "--root must be used with --dataset"),
        (["--partition", "PARTS", "--data-options", "seed=1"], "--data-options must be used"),
        # 600 seeds in each part, 1,200 in all.
        (["--partition", "PARTS", "--machines", "2", "--batch-size", "601"], "of at least 600"),
        (["--partition", "PARTS", "--machines", "1", "--batch-size", "51"], "batches of 51"),
        (["--partition", "PARTS", "--machines", "3", "--batch-size", "401"], "of 401"),
    ],
)
def test_bad_input(parts, arguments, words, capsys):
    assert plan.main([str(parts) if a == "PARTS" else a for a in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert words in line


def test_damaged_parts_are_one_line(parts, tmp_path, capsys):
    copy = tmp_path / "parts"
    shutil.copytree(parts, copy)
    path = copy / "part-00000" / "train_idx.npy"
    path.write_bytes(path.read_bytes()[:-4] + b"\xff" * 4)
    assert plan.main(["--partition", str(copy), "--machines", "2", "--batch-size", "10"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "train_idx.npy must have the manifest's checksum" in line


def test_of_the_default_machines_those_that_can_train(parts, capsys):
    arguments = ["--partition", str(parts), "--batch-size", "100", "--fanouts", "2", "2"]
    arguments += ["--hidden", "8", "--gbits", "25", "--ns-per-edge", "10"]
    arguments += ["--ns-per-edge-vanilla", "20", "--row-gbytes", "4", "--gflops", "50"]
    assert plan.main(arguments) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    assert {r["machines"] for r in results} == {2, 4, 8}  # 12 batches in all


def test_a_graph_without_edges_costs_something(tmp_path, capsys):
    arrays = {f"{k}_idx": np.arange(10, dtype=np.int32) + 10 * i for i, k in enumerate(SPLITS)}
    np.savez(
        tmp_path / "data.npz",
        edge_index=np.zeros((2, 0), np.int32),
        features=np.ones((30, 4), np.float32),
        labels=np.arange(30, dtype=np.int32) % 3,
        num_nodes=np.int64(30),
        num_classes=np.int64(3),
        **arrays,
    )
    arguments = ["--dataset", str(tmp_path / "data.npz"), "--machines", "1", "--gbits", "25"]
    assert plan.main([*arguments, "--batch-size", "5", "--fanouts", "3", "--hidden", "4"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["workload"]["num_edges"] == 0
    assert all(row["cpu_seconds"]["sampling"] == 0 for row in result["results"])
    assert all(row["epoch_seconds"] > 0 for row in result["results"])


def test_a_data_set_is_sampled_and_this_machine_measured(capsys):
    arguments = ["--dataset", "synthetic", "--data-options", "num_nodes=500", "num_edges=3000"]
    arguments += ["--machines", "1", "3", "--batch-size", "20", "--fanouts", "3", "-1"]
    arguments += ["--hidden", "8"]
    assert plan.main([*arguments, "--gbits", "25", "100"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert len(result["results"]) == 2 * 2 * len(cost.MODES)
    assert all(0 < value < math.inf for value in result["constants"].values())
    rows = {(r["machines"], r["gbits"], r["mode"]): r for r in result["results"]}
    slow, fast = rows[3, 25.0, "hybrid"], rows[3, 100.0, "hybrid"]
    assert slow["bytes"] == fast["bytes"] > 0
    assert slow["epoch_seconds"] > fast["epoch_seconds"]
    assert rows[1, 25.0, "hybrid"]["bytes"] == 0
    assert "synthetic" in err
    assert result["partitioning_bytes"]["metis"] > result["partitioning_bytes"]["ldg"] > 0
    assert "python -m jgs.partition takes, by --method: metis 0." in err
