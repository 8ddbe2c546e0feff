"""The benchmark's graph of several labels a node is as described, and the tables of the curves
over several seeds can be printed. Nothing is timed."""

import json

import numpy as np
import pytest

from benchmarks import planted_labels, subgraph_runs, subgraph_tables, subgraph_training
from benchmarks.planted_labels import F1, LABELS, MIXING, MOST
from jgs.data import load

N = 2000


@pytest.fixture(scope="module")
def made():
    return planted_labels.planted(N)


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory):
    found = tmp_path_factory.mktemp("data") / "planted"
    planted_labels.write(found, made)
    return found


def test_nodes_have_one_to_four_labels(made):
    assert made.labels.shape == (N, LABELS)
    assert set(np.unique(made.labels)) == {0, 1}
    of_nodes = np.bincount(made.labels.sum(axis=1), minlength=MOST + 1)
    assert of_nodes[0] == 0
    assert of_nodes.size == MOST + 1
    np.testing.assert_allclose(of_nodes[1:] / N, 1 / MOST, atol=0.05)
    of_labels = made.labels.sum(axis=0)
    assert of_labels[-1] > 1.5 * of_labels[0] > 0


def test_edges_go_both_ways_once_and_mostly_between_nodes_that_share_a_label(made):
    src, dst = made.edges
    keys = src * N + dst
    assert (src != dst).all()
    assert np.unique(keys).size == keys.size
    np.testing.assert_array_equal(np.sort(keys), np.sort(dst * N + src))
    share = (made.labels[src] & made.labels[dst]).any(axis=1).mean()
    one, other = np.random.default_rng(1).integers(N, size=(2, 50_000))
    by_chance = (made.labels[one] & made.labels[other]).any(axis=1).mean()
    # Those that ignore labels share one by chance. Pairs that are drawn twice are one edge.
    assert share == pytest.approx(1 - MIXING * (1 - by_chance), abs=0.02)


def test_a_seed_decides_the_graph(made):
    for a, b in zip(made, planted_labels.planted(N), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(made.labels, planted_labels.planted(N, seed=1).labels)


def test_jgs_reads_what_was_written(made, folder):
    data = load(folder)
    assert data.multilabel
    np.testing.assert_array_equal(data.labels, made.labels)
    np.testing.assert_array_equal(data.features, made.features)
    for number, ids in enumerate((data.train_idx, data.val_idx, data.test_idx)):
        np.testing.assert_array_equal(ids, np.flatnonzero(made.role == number))
    indptr, indices = np.asarray(data.graph.indptr), np.asarray(data.graph.indices)
    target = np.repeat(np.arange(N), np.diff(indptr))
    np.testing.assert_array_equal(
        np.sort(indices * np.int64(N) + target), np.sort(made.edges[0] * N + made.edges[1])
    )


def test_neighbours_say_more_than_features(folder):
    found = planted_labels.beside(load(folder))
    often, linear, neighbours = found.values()
    assert often.micro + 5 < linear.micro < neighbours.micro - 3
    assert often.macro < linear.macro < neighbours.macro
    assert planted_labels.beside_table(found)[2] == (
        f"| the most frequent labels | {often.micro:.2f} | {often.macro:.2f} |"
    )


def test_f1_of_one_label_is_accuracy():
    outputs = np.eye(3)[[0, 1, 1, 2]]
    found = planted_labels.f1(outputs, np.array([0, 1, 2, 2]))
    # By class: 1, 2/3 and 2/3.
    assert found == pytest.approx((75, 700 / 9))


def test_a_run_is_judged_on_the_test_nodes(folder):
    """One that learned is better than the parameters it began with."""
    flags = f"--dataset {folder} --hidden 32 --batch-size 50 --norm layer --dropout 0"
    flags += " --fanouts 10 10 --lr 2e-2 --epochs 4 --prefetch 0"
    with subgraph_runs.begun(flags) as run:
        before = subgraph_runs.test_f1(*run)
        epochs = list(subgraph_runs.trained(*run, lambda: 0.0))
        found = subgraph_runs.test_f1(*run)
        assert 100 * run[1].result(None)["test_accuracy"] == pytest.approx(found.micro)
    assert len(epochs) == 4
    assert before.micro + 20 < found.micro
    assert abs(max(epoch.accuracy for epoch in epochs) - found.micro) < 10


STEP = {"waited": 0.01, "computed": 0.02, "seeds": 5, "rows": 10, "edges": 20}


def seed(shift, walk):
    """The figures of a seed, whose first two curves are higher by `shift`."""
    curves = {"neighbour sampling": [90, 94], "frontier": [93.9, 93.0], "random walk": walk}
    return {
        f"3 {method}": {
            "points": [(10 * i + 10, a + shift) for i, a in enumerate(some)],
            "step": STEP,
            "test": F1(some[0] + shift, 50),
        }
        for method, some in curves.items()
    }


def test_the_tables_over_seeds():
    seeds = seed(0, [10, 93.8]), seed(2, [10, 20])
    rows = subgraph_tables.curves_table(*seeds)[2:]
    assert rows == [
        "| 3 | neighbour sampling | 95.00 ± 1.41 | 20.0 ± 0.0 | 20.0 ± 0.0 | 1.0 ± 0.0 | 30 "
        "| 10 | 5 |",
        "| 3 | frontier | 94.90 ± 1.41 | 10.0 ± 0.0 | 10.0 ± 0.0 | 2.0 ± 0.0 | 30 | 10 | 5 |",
        "| 3 | random walk | 57.90 ± 50.77 | 20.0 ± 0.0 | 20.0 (1 of 2) | 1.0 (1 of 2) | 30 "
        "| 10 | 5 |",
    ]
    rows = subgraph_tables.test_table(*seeds)[2:]
    assert rows[1] == "| 3 | frontier | 94.90 ± 1.41 | 50.00 ± 0.00 |"


def test_the_tables_by_depth():
    found = {"seconds": {"frontier": [1.0, 2.0]}, "rows": {"frontier": [1.5, 1.54]}}
    assert subgraph_tables.depth_tables(found) == [
        "| seconds an epoch | 1 layer | 2 layers | R² |",
        "|---|---|---|---|",
        "| frontier | 1.00 | 2.00 | 1.0000 |",
        "",
        "| rows for a seed | 1 layer | 2 layers |",
        "|---|---|---|",
        "| frontier | 1.5 | 1.5 |",
    ]
    rows = subgraph_tables.deeper_table({"planted": {"validation": [1, 2], "test": [3, 4]}})
    assert rows[2:] == [
        "| planted, validation | 1.00 | 2.00 |",
        "| planted, test | 3.00 | 4.00 |",
    ]
    rows = subgraph_tables.simple_table({"planted": {"none": F1(1, 2)}})
    assert rows[2:] == ["| planted | none | 1.00 | 2.00 |"]


def test_the_picture_of_several_seeds(tmp_path):
    for number in range(2):
        text = json.dumps(seed(number, [1, 2]))
        (tmp_path / f"planted-{number}.json").write_text(text)
    (tmp_path / "facebook-0.json").write_text(json.dumps(seed(0, [1, 2])))
    assert len(subgraph_training.stored(tmp_path, "planted")) == 2
    subgraph_training.picture(tmp_path, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000
